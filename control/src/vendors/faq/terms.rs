//! Words as the index sees them: stop words, stems, synonyms, sound-alikes, and what kind of answer
//! a question wants. English in depth, French as far as stop words go.

use media::config::Language;

use super::lists::{ENGLISH_STOPS, FRENCH_STOPS, PLACE_WORDS, SYNONYMS, TIME_WORDS};

/// What a sentence tells, and what a question word asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Time,
    Money,
    Place,
    Length,
    Person,
}

/// What the right kind of answer adds to a score, as a share of a rarest word's: enough to decide
/// between two sentences about the same thing.
pub(super) const KIND_WEIGHT: f64 = 0.3;

/// Too common to tell sentences apart.
pub(super) fn is_stop(word: &str, language: Language) -> bool {
    let list = match language {
        Language::English => ENGLISH_STOPS,
        Language::French => FRENCH_STOPS,
    };
    list.contains(&word) || word.chars().count() == 1
}

/// Whether the sentence tells the agent how to be, instead of something to say.
pub(super) fn is_instruction(sentence: &str, language: Language) -> bool {
    let lower = sentence.to_lowercase();
    let starts: &[&str] = match language {
        Language::English => &[
            "you are ",
            "you answer ",
            "you speak ",
            "you help ",
            "your name ",
            "your job ",
            "your task ",
            "be ",
            "always ",
            "never ",
            "do not ",
            "don't ",
            "keep ",
            "speak ",
            "answer ",
            "act as ",
            "only answer ",
            "use short ",
            "#",
        ],
        Language::French => &[
            "vous êtes ",
            "tu es ",
            "soyez ",
            "sois ",
            "réponds ",
            "répondez ",
            "ne ",
            "toujours ",
            "jamais ",
            "parle ",
            "parlez ",
            "#",
        ],
    };
    starts.iter().any(|start| lower.starts_with(start))
}

/// The part of a word that its forms share. Light: endings only, so that no two words of different
/// sense meet. The final e goes too ("close", "closing").
pub(super) fn stem(word: &str) -> String {
    let word = word.strip_suffix("'s").unwrap_or(word);
    let mut stem = word.replace('\'', "");
    for (ending, instead) in [
        ("ies", "y"),
        ("ied", "y"),
        ("sses", "ss"),
        ("ches", "ch"),
        ("shes", "sh"),
    ] {
        if let Some(base) = stem.strip_suffix(ending)
            && base.len() >= 2
        {
            stem = format!("{base}{instead}");
            return stem;
        }
    }
    if stem.ends_with('s') && !stem.ends_with("ss") && !stem.ends_with("us") && stem.len() > 3 {
        stem.pop();
    }
    for ending in ["ing", "ed"] {
        if let Some(base) = stem.strip_suffix(ending)
            && base.len() >= 3
            && base.contains(['a', 'e', 'i', 'o', 'u', 'y'])
        {
            stem = base.to_owned();
            let mut tail = stem.chars().rev();
            if let (Some(last), Some(before)) = (tail.next(), tail.next())
                && last == before
                && !matches!(last, 'l' | 's' | 'z' | 'e' | 'o')
            {
                stem.pop();
            }
            break;
        }
    }
    if stem.ends_with('e') && stem.len() > 3 {
        stem.pop();
    }
    stem
}

/// Stems of like sense, with how far they may stand for the word.
pub(super) fn synonyms(stem: &str) -> Vec<(String, f64)> {
    let groups = SYNONYMS
        .iter()
        .filter(|group| group.iter().any(|word| self::stem(word) == stem));
    groups
        .flat_map(|group| group.iter().map(|word| (self::stem(word), 0.65)))
        .collect()
}

/// How far a misheard word may stand for a term of the prompt; 0 = not at all.
pub(super) fn likeness(heard: &str, term: &str) -> f64 {
    let (a, b) = (heard.chars().count(), term.chars().count());
    if a.min(b) < 3 || a.abs_diff(b) > 3 {
        return 0.0;
    }
    // A key of two consonants fits too many words.
    if sound(heard) == sound(term) && sound(term).len() >= 3 {
        return 0.7;
    }
    let longest = a.max(b);
    let distance = edits(sound(heard).as_bytes(), sound(term).as_bytes());
    let sounds = sound(heard).len().max(sound(term).len());
    if sounds >= 5 && distance == 1 {
        return 0.5;
    }
    let allowed = match longest {
        0..=4 => 0,
        5..=7 => 1,
        _ => 2,
    };
    if edits(heard.as_bytes(), term.as_bytes()) <= allowed {
        0.55
    } else {
        0.0
    }
}

/// What kinds of answer a question asks for.
pub(super) fn asked_kinds(words: &[String]) -> Vec<Kind> {
    let text = format!(" {} ", words.join(" "));
    let any = |list: &[&str]| {
        list.iter()
            .any(|phrase| text.contains(&format!(" {phrase} ")))
    };
    let mut kinds = Vec::new();
    if any(&[
        "when",
        "what time",
        "how late",
        "how early",
        "which days",
        "what days",
        "hours",
        "at what time",
        "until when",
        "what hour",
        "quelle heure",
        "quand",
    ]) {
        kinds.push(Kind::Time);
    }
    if any(&[
        "how much",
        "cost",
        "costs",
        "price",
        "prices",
        "charge",
        "charges",
        "pay",
        "fee",
        "expensive",
        "rate",
        "combien",
        "prix",
    ]) {
        kinds.push(Kind::Money);
    }
    if any(&[
        "where",
        "which floor",
        "what floor",
        "address",
        "located",
        "find",
        "how far",
        "far",
        "near",
        "où",
    ]) {
        kinds.push(Kind::Place);
    }
    if any(&["how long", "how many minutes", "how far"]) {
        kinds.push(Kind::Length);
    }
    if any(&["who", "whom", "name", "names", "qui"]) {
        kinds.push(Kind::Person);
    }
    kinds
}

/// What kinds of answer a sentence holds.
pub(super) fn kinds(words: &[String]) -> Vec<Kind> {
    let any = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let mut kinds = Vec::new();
    if any(TIME_WORDS) {
        kinds.push(Kind::Time);
    }
    if any(&[
        "dollars", "dollar", "euros", "euro", "pounds", "pound", "cents", "free", "charge", "fee",
    ]) {
        kinds.push(Kind::Money);
    }
    if any(PLACE_WORDS) {
        kinds.push(Kind::Place);
    }
    if any(&[
        "minutes",
        "minute",
        "hours",
        "hour",
        "days",
        "weeks",
        "months",
        "kilometres",
        "miles",
    ]) {
        kinds.push(Kind::Length);
    }
    if any(&[
        "doctor", "dr", "mister", "mrs", "mr", "miss", "called", "named", "manager", "owner",
    ]) {
        kinds.push(Kind::Person);
    }
    kinds
}

/// A key under which words that sound alike meet: consonant classes, vowels only at the start.
fn sound(word: &str) -> String {
    let word = word
        .replace("ph", "f")
        .replace("gh", "")
        .replace("ck", "k")
        .replace("kn", "n")
        .replace("wr", "r");
    let mut key = String::new();
    for (at, c) in word.chars().enumerate() {
        let class = match c {
            'a' | 'e' | 'i' | 'o' | 'u' | 'y' => {
                if at == 0 {
                    key.push('a');
                }
                continue;
            }
            'h' | 'w' | '\'' => continue,
            'b' | 'p' => 'p',
            'f' | 'v' => 'f',
            'c' | 'k' | 'q' | 'g' => 'k',
            'd' | 't' => 't',
            's' | 'z' | 'x' | 'j' => 's',
            'm' | 'n' => 'n',
            other => other,
        };
        if !key.ends_with(class) {
            key.push(class);
        }
    }
    key
}

/// Levenshtein distance.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for forms in [
            &["close", "closes", "closing", "closed"][..],
            &["swim", "swimming", "swims"],
            &["visit", "visits", "visited"],
            &["beach", "beaches"],
            &["party", "parties"],
        ] {
            let stems: Vec<String> = forms.iter().map(|form| stem(form)).collect();
            assert!(stems.iter().all(|other| *other == stems[0]), "{stems:?}");
        }
        assert_eq!(stem("glass"), "glass");
        assert_eq!(stem("bus"), "bus");
    }

    #[test]
    fn misheard_words_are_near_and_others_are_not() {
        assert!(likeness("parting", "parking") > 0.0);
        assert!(likeness("breakfest", "breakfast") > 0.0);
        assert!(likeness("dental", "rental") == 0.0 || likeness("dental", "rental") < 0.6);
        assert_eq!(likeness("table", "garden"), 0.0);
        assert_eq!(likeness("in", "inn"), 0.0);
    }

    #[test]
    fn edit_distance() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
    }

    #[test]
    fn questions_ask_for_kinds() {
        let asked = |text: &str| asked_kinds(&super::super::words::words(text));
        assert_eq!(asked("when does the bar close"), [Kind::Time]);
        assert_eq!(asked("how much is a room"), [Kind::Money]);
    }
}
