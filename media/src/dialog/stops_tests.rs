//! Where sentences end: two hundred cases, a bar where one sentence ends and the next begins.

use super::super::sentences::Sentences;

const ENGLISH: &[&str] = &[
    "Dr. Smith is in.|Come in.",
    "I saw Mr. and Mrs. Jones.|They were fine.",
    "Ms. Lee called.|Call her back.",
    "Prof. Allen teaches.|It is late.",
    "The office is on 5th Ave. near the park.|Come by.",
    "We are on Main St. in Boston.|It is easy.",
    "We are on Main St.|We open at nine.",
    "St. Mary is a church.|Go there.",
    "Mt. Everest is high.|Is it?",
    "Climb Mt. Hood today.|Bring water.",
    "The U.S. is big.|Yes.",
    "He lives in the U.S. and works here.|Fine.",
    "She moved to the U.S.|She likes it.",
    "The U.S. Postal Service is closed.|Sorry.",
    "It is in Washington D.C. near us.|Good.",
    "It is in Washington D.C.|We can meet there.",
    "Come on Jan. 5 at noon.|Thank you.",
    "The date is Feb. 14.|Is that right?",
    "It ends in Dec. and begins in Sept. again.|Good.",
    "It ends in Dec.|We open in March.",
    "Sgt. Pepper is here.|Wait.",
    "Gen. Grant and Col. Mustard came.|They left.",
    "Lt. Dan called.|He is fine.",
    "Capt. Cook sailed.|He left.",
    "Rev. Green will call.|Good.",
    "Gov. Brown and Sen. White met.|They talked.",
    "It opens at 9 a.m. and closes at 5 p.m. today.|Come in.",
    "It opens at 9 a.m.|We close at five.",
    "It is 9 a.m. Monday.|Good.",
    "Bring milk, bread, etc. to the house.|Thanks.",
    "Bring milk, bread, etc.|We have the rest.",
    "Use fruit, e.g. apples.|They are good.",
    "The boss, i.e. Anna, is out.|Sorry.",
    "It is ca. 5 km.|That is far.",
    "It takes approx. 10 minutes.|Wait here.",
    "Ask for ext. 12 please.|Thank you.",
    "Acme Inc. makes shoes.|They are good.",
    "I work at Acme Inc.|It is nice.",
    "Smith & Co. is closed.|Sorry.",
    "Apple Corp. and Pear Ltd. merged.|Good.",
    "John Jr. called.|He is fine.",
    "Sammy Davis Jr. sang.|It was good.",
    "The dept. is closed.|Sorry.",
    "See fig. 3 for more.|It is there.",
    "See vol. 2 and p. 12 there.|It is clear.",
    "Your number is No. 5 today.|Wait.",
    "No.|We are closed.",
    "No. 7 is free.|Take it.",
    "It is no. 12.|Go in.",
    "Go to Rm. 12 now.|Bye.",
    "He is J. Smith.|Come in.",
    "J. R. R. Tolkien wrote it.|It is long.",
    "John F. Kennedy was here.|He left.",
    "So do I.|We agree.",
    "Take vitamin C.|It helps.",
    "That is plan B.|We like it.",
    "It costs 3.50 dollars.|Is that fine?",
    "It is version 2.0.1 now.|Good.",
    "It costs $3.|Is that fine?",
    "The total is 25.|Anything else?",
    "You owe 1,250.75.|Pay now.",
    "Press 1.|Then hold.",
    "Open at 10.|Close at 5.",
    "I live at 12 Oak Rd. near you.|Come.",
    "Take the A1.|Then turn.",
    "Well... I think so.|Yes.",
    "Hmm... Let me see.|Yes.",
    "Hmm… let me see.|Yes.",
    "Let me see... your order is ready.|Come.",
    "And then he just left...|The end.|Bye.",
    "So, and then we came home...|The dog was there.|Good.",
    "Wait... Bye.",
    "Is it open?|Yes!",
    "Really?!|Yes.",
    "Stop!!|Now.",
    "Hello!|How are you?",
    "He said \"yes.\"|Then he left.",
    "He said “no.”|Then he left.",
    "(It is open.)|Come in.",
    "She asked \"why?\"|I told her.",
    "I am fine.|Thanks.",
    "one.|two.|three.",
    "Thanks.|Bye.",
    "Call me.|I am here.",
    "Come in.|Sit down.",
    "He sat.|Then he spoke.",
    "We sat in the sun.|It was hot.",
    "That is the max. speed.|Slow down.",
    "It takes 5 min. by car.|Good.",
    "Two hrs. is long.|Wait.",
    "It is 6 ft. tall.|Wow.",
    "I have a Ph.D. in art.|It was hard.",
    "I have a Ph.D.|It was hard.",
    "Write to example dot com.|Thanks.",
    "A vs. B is hard.|Choose.",
    "Maj. Tom and Adm. Bird met.|Good.",
    "The Hon. Judge Judy is in.|Rise.",
    "Messrs. Smith and Jones came.|They left.",
    "Pkwy. and Blvd. are roads.|Drive.",
    "It is on Sunset Blvd. in town.|Come.",
    "It is on Sunset Blvd.|You will see it.",
    "Ask Supt. Miller or Insp. Gray.|They know.",
    "On Mon. and Tue. we are closed.|Sorry.",
    "We meet Sat. at noon.|Bye.",
    "We close on Sat.|You can come on Sunday.",
    "It is 5 p.m. Eastern time.|Good.",
    "I like N.Y. and L.A. too.|Good.",
    "I like N.Y.|It is big.",
    "That's all, folks.|Bye.",
];

const FRENCH: &[&str] = &[
    "M. Dupont est là.|Entrez.",
    "Mme. Martin arrive.|Attendez.",
    "Mlle. Durand appelle.|Répondez.",
    "MM. Dupont et Durand sont là.|Entrez.",
    "Le Dr. Petit est absent.|Désolé.",
    "Le Pr. Blanc reçoit.|Venez.",
    "Mgr. Leroy viendra.|Bien.",
    "Me voici.|Bonjour.",
    "C'est à l'av. Foch.|Venez.",
    "C'est au 5 av. des Lilas.|Venez.",
    "C'est bd. Voltaire.|Venez.",
    "C'est au 12 boul. Laurier.|Venez.",
    "Prenez la rte. 20 au nord.|Bien.",
    "Cela coûte env. 10 euros.|Merci.",
    "Il y a du pain, du lait, etc. à la maison.|Bien.",
    "Il y a du pain, etc.|Nous avons le reste.",
    "Un fruit, p.ex. une pomme.|Bien.",
    "Voir cf. page deux.|Merci.",
    "Voir p. 12 du livre.|Merci.",
    "Voir art. 5 du code.|Merci.",
    "Voir chap. 3 et fig. 4 aussi.|Merci.",
    "Voir vol. 2 du livre.|Merci.",
    "Tél. 01 23 45 67 89 le matin.|Merci.",
    "Le tél. est occupé.|Attendez.",
    "Le 5 janv. à midi.|Merci.",
    "Le 14 févr. prochain.|Merci.",
    "Le 1er avr. et le 3 juil. aussi.|Bien.",
    "Le 25 déc. nous sommes fermés.|Désolé.",
    "C'est fini en déc.|Nous rouvrons en mars.",
    "Il est né aux U.S.A. en mai.|Bien.",
    "Il vit aux U.S.A.|Il aime ça.",
    "La S.N.C.F. est en grève.|Désolé.",
    "J. Dupont a appelé.|Bien.",
    "Jean P. Martin arrive.|Bien.",
    "Le no. 5 est libre.|Entrez.",
    "Non.|Nous sommes fermés.",
    "C'est 3,50 euros.|Merci.",
    "C'est la version 2.0 ici.|Bien.",
    "Le total est de 25.|Autre chose ?",
    "Tapez 1.|Puis attendez.",
    "Il est 9 h.|Entrez.",
    "C'est ouvert !|Venez !",
    "Est-ce ouvert ?|Oui.",
    "Ah bon ?!|Oui.",
    "Euh... je ne sais pas.|Bien.",
    "Euh... Attendez un peu.|Bien.",
    "Voyons… votre commande est prête.|Venez.",
    "Et puis il est parti...|Voilà.|Au revoir.",
    "Il a dit « oui. »|Puis il est parti.",
    "Il a dit « non ».|Puis il est parti.",
    "Il demande « pourquoi ? »|Je réponds.",
    "(C'est ouvert.)|Entrez.",
    "Bonjour.|Comment allez-vous ?",
    "Merci.|Au revoir.",
    "Oui.|Non.|Peut-être.",
    "L'adresse est ici.|Merci.",
    "Il y a un max. de dix places.|Bien.",
    "Il faut 5 min. à pied.|Bien.",
    "C'est le min. requis.|Bien.",
    "Ste. Anne est là.|Bien.",
    "St. Malo est beau.|Oui.",
    "Le gén. de Gaulle est là.|Bien.",
    "Le col. Fabien est là.|Bien.",
    "Le lt. Blanc est là.|Bien.",
    "Réf. 1234 du dossier.|Merci.",
    "La réf. est bonne.|Merci.",
    "C'est au dépt. des ventes.|Merci.",
    "Acme inc. est fermée.|Désolé.",
    "Acme ltée. est ouverte.|Bien.",
    "Smith et Co. est là.|Bien.",
    "C'est Acme Inc.|Nous vendons du pain.",
    "Plan B.|Il est bon.",
    "La vitamine C.|Elle aide.",
    "Il a un Ph.D. en art.|Bien.",
    "Il est à Washington D.C. en mai.|Bien.",
    "Demain à 10 h 30.|Merci.",
    "Cela fait 1 250,75 euros.|Merci.",
    "Le 1er étage.|À gauche.",
    "Le 2e étage est libre.|Montez.",
    "Bien sûr.|Je vous écoute.",
    "Très bien.|C'est noté.",
    "D'accord.|Au revoir.",
    "Attendez... Merci.",
    "Bon... d'accord.|Merci.",
    "Hum… oui.|Merci.",
    "Écrivez à info arobase exemple point fr.|Merci.",
    "C'est tout.|Autre chose ?",
    "J'arrive.|Attendez-moi.",
    "M. et Mme. Petit sont là.|Entrez.",
    "Au nom de M. Le Goff.|Merci.",
    "Monsieur.|Madame.",
    "Il pleut.|Il neige.",
    "Ouvert de 9 h à 17 h.|Fermé le dimanche.",
    "Quel est votre nom ?|Merci.",
    "Un instant !|Merci.",
    "Je cherche.|Voilà.",
    "N. Sarkozy est venu.|Bien.",
    "Apt. 4 au fond.|Merci.",
    "C'est l'apt. 12 au fond.|Merci.",
    "L'univ. est fermée.|Désolé.",
];

/// The sentences of a text that comes in pieces of so many letters.
fn cut(text: &str, size: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let mut sentences = Sentences::default();
    let (mut out, mut begun) = (Vec::new(), String::new());
    let mut drain = |sentences: &mut Sentences| {
        let mut count = sentences.sentences();
        while let Some(segment) = sentences.take() {
            begun.push_str(&sentences.text()[segment.start..segment.end]);
            if sentences.sentences() > count {
                count = sentences.sentences();
                out.push(std::mem::take(&mut begun));
            } else {
                begun.push(' ');
            }
        }
    };
    for piece in letters.chunks(size) {
        sentences.push(&piece.iter().collect::<String>());
        drain(&mut sentences);
    }
    sentences.finish();
    drain(&mut sentences);
    out
}

#[test]
fn sentences_end_where_people_end_them() {
    let mut wrong = Vec::new();
    for case in ENGLISH.iter().chain(FRENCH) {
        let expect: Vec<&str> = case.split('|').collect();
        for size in [1, 3, 1000] {
            let found = cut(&case.replace('|', " "), size);
            if found != expect {
                wrong.push(format!("{case:?} in pieces of {size}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ENGLISH.len() + FRENCH.len() >= 200);
}

#[test]
fn a_line_ends_its_sentence_whatever_stands_there() {
    for text in [
        "We met the Dr.\nHe is fine.",
        "Open till 9 a.m.\nthen closed.",
        "Well...\nYes.",
    ] {
        for size in [1, 2, 1000] {
            assert_eq!(cut(text, size).len(), 2, "{text:?}");
        }
    }
}
