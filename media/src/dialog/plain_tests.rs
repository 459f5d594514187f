//! What is said of what models write: a table of cases, and that it does not matter how a text is cut.

use super::*;

/// Written, said.
const ENGLISH: &[(&str, &str)] = &[
    ("Hello there.", "Hello there."),
    (" a  b ", "a b"),
    (
        "**Yes**, we are *open* until __nine__.",
        "Yes, we are open until nine.",
    ),
    ("That is ***very* good**.", "That is very good."),
    (
        "It is _really_ un**believ**able!",
        "It is really unbelievable!",
    ),
    ("(**now**)", "(now)"),
    ("~~old~~ new", "old new"),
    ("## Opening hours\nFrom nine.", "Opening hours\nFrom nine."),
    ("###Prices", "Prices"),
    ("#Title", "Title"),
    ("Room #12 is free.", "Room #12 is free."),
    (
        "We have:\n- a pool\n* a bar\n+ a gym\n• a roof",
        "We have:\na pool\na bar\na gym\na roof",
    ),
    ("1. Open it.\n2. Close it.", "Open it.\nClose it."),
    ("1) one\n2) two\n3) three", "one\ntwo\nthree"),
    ("**1.** one\n**2.** two", "one\ntwo"),
    ("a) one\nb) two", "one\ntwo"),
    ("- [ ] milk\n- [x] bread", "milk\nbread"),
    ("12. That is how many.", "12. That is how many."),
    ("2026. A good year.", "2026. A good year."),
    ("> quoted\n> twice", "quoted\ntwice"),
    ("above\n---\nbelow\n***\nend", "above\nbelow\nend"),
    (
        "| Day | Hours |\n|---|:---:|\n| Monday | 9 to 5 |\n| Sunday | |\nThat is all.",
        "Day, Hours\nMonday, 9 to 5\nSunday\nThat is all.",
    ),
    (
        "Day | Hours\n--- | ---\nMonday | 9",
        "Day, Hours\nMonday, 9",
    ),
    (
        "See [our site](https://example.com/a?b=c) now.",
        "See our site now.",
    ),
    ("[](https://example.com)", "example dot com"),
    (
        "See [the terms][1] and [^2] this[3].",
        "See the terms and this.",
    ),
    ("![a map](map.png) here", "a map here"),
    (
        "Go to https://www.example.com/help, please.",
        "Go to example dot com slash help, please.",
    ),
    ("Go to www.example.com.", "Go to example dot com."),
    ("(example.com)", "(example dot com)"),
    ("**example.com**", "example dot com"),
    ("<https://example.com>", "example dot com"),
    (
        "Write to jane.doe@example.com!",
        "Write to jane dot doe at example dot com!",
    ),
    (
        "Write to <info@example.com>.",
        "Write to info at example dot com.",
    ),
    ("Use `book` or `npm install`.", "Use book or npm install."),
    (
        "Do this:\n```python\nprint(1)\n```\nThat is all.",
        "Do this:\nThat is all.",
    ),
    ("```\nHello there.\n```", "Hello there."),
    ("```json\n{\"a\": 1}\n```", ""),
    (
        "```bash npm install```\nThat is all.",
        "bash npm install\nThat is all.",
    ),
    (
        "Say ```ls -l``` to see. Really.\n~~~text Hello there.~~~\nBye.",
        "Say ls -l to see. Really.\ntext Hello there.\nBye.",
    ),
    ("Great! 😀 Fine.", "Great! Fine."),
    ("Great 😀.", "Great."),
    ("Thanks 👍🏽 👨‍👩‍👧 🇫🇷 ❤️", "Thanks"),
    ("1️⃣ first", "1 first"),
    ("Well done :) Bye", "Well done Bye"),
    ("Settings → Wi-Fi", "Settings Wi-Fi"),
    ("<b>Bold</b> and <br/>break", "Bold and break"),
    ("<speak>Hi <break time=\"1s\"/>there</speak>", "Hi there"),
    ("Fish &amp; chips&nbsp;now", "Fish & chips now"),
    ("5 < 6 and 7 > 3", "5 < 6 and 7 > 3"),
    ("3*4 is 12", "3*4 is 12"),
    ("the order_id is \\*new\\*", "the order id is new"),
    ("[name: not provided]", "[name: not provided]"),
    ("an [open bracket", "an [open bracket"),
    ("a <tag without end", "a <tag without end"),
    ("line one  \nline two", "line one\nline two"),
    ("a\u{0}b\u{200b}c\u{1}d\u{feff}", "abcd"),
    ("...", "..."),
    ("It's 10:30 a.m. — see you", "It's 10:30 a.m. — see you"),
];

const FRENCH: &[(&str, &str)] = &[
    ("Bonjour !", "Bonjour !"),
    ("Bonjour\u{a0}! Ça va\u{202f}?", "Bonjour ! Ça va ?"),
    ("**Oui**, c'est *ouvert* !", "Oui, c'est ouvert !"),
    (
        "Voici :\n- lundi\n- mardi\n\nC'est tout.",
        "Voici :\nlundi\nmardi\nC'est tout.",
    ),
    ("1. Ouvrez.\n2. Fermez.", "Ouvrez.\nFermez."),
    (
        "Allez sur https://www.exemple.fr/aide.",
        "Allez sur exemple point fr slash aide.",
    ),
    (
        "Écrivez à info@mon-exemple.fr.",
        "Écrivez à info arobase mon tiret exemple point fr.",
    ),
    ("## Horaires\nDès 9 h.", "Horaires\nDès 9 h."),
    ("« **Bien** » 😀 !", "« Bien » !"),
    (
        "| Jour | Heure |\n|--|--|\n| lundi | 9 h |",
        "Jour, Heure\nlundi, 9 h",
    ),
    ("[notre site](https://exemple.fr)", "notre site"),
];

fn in_pieces(text: &str, language: Language, sizes: &[usize]) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut plain = Plain::new(language);
    let (mut out, mut at) = (String::new(), 0);
    for size in sizes.iter().cycle() {
        if at >= letters.len() {
            break;
        }
        let end = (at + size).min(letters.len());
        out.push_str(&plain.push(&letters[at..end].iter().collect::<String>()));
        at = end;
    }
    out.push_str(&plain.finish());
    out.retain(|c| c != ITEM && c != LIST_OVER);
    out
}

#[test]
fn what_is_written_is_said_as_people_say_it() {
    for (table, language) in [(ENGLISH, Language::English), (FRENCH, Language::French)] {
        for (written, said) in table {
            assert_eq!(
                Plain::text(written, language).trim_end(),
                *said,
                "{written:?}"
            );
        }
    }
}

#[test]
fn any_chunking_says_the_same() {
    for (table, language) in [(ENGLISH, Language::English), (FRENCH, Language::French)] {
        for (written, _) in table {
            let whole = Plain::text(written, language);
            for sizes in [&[1][..], &[2], &[3, 1], &[7, 2, 1], &[1, 5]] {
                assert_eq!(in_pieces(written, language, sizes), whole, "{written:?}");
            }
        }
    }
}

#[test]
fn what_was_said_plainly_is_said_the_same_again() {
    for (table, language) in [(ENGLISH, Language::English), (FRENCH, Language::French)] {
        for (_, said) in table {
            assert_eq!(Plain::text(said, language).trim_end(), *said);
        }
    }
}

#[test]
fn items_and_the_end_of_their_list_are_told() {
    let mut plain = Plain::new(Language::English);
    let out = plain.push("We have:\n- a pool. It is warm.\n  Really.\n\n- a bar\n\nCome and see. ");
    assert_eq!(
        out,
        format!(
            "We have:\n{ITEM}a pool. It is warm.\nReally.\n{ITEM}a bar\n{LIST_OVER}Come and see. "
        )
    );
}

#[test]
fn a_sentence_is_not_held_back_longer_than_its_last_word() {
    let mut plain = Plain::new(Language::English);
    assert_eq!(plain.push("We are open. "), "We are open. ");
    assert_eq!(plain.push("See [our"), "See");
    let long = "x".repeat(LONGEST_HELD);
    assert!(plain.push(&long).ends_with(&long[..LONGEST_HELD - 10]));
}

#[test]
fn a_long_address_is_left_out_and_not_spelled() {
    let address = format!("https://www.example.com/{}", "a1b/".repeat(119));
    assert_eq!(address.len(), 500);
    for (written, said) in [
        (
            format!("See [our site]({address}), please. Bye."),
            "See our site, please. Bye.",
        ),
        (
            format!("See [our site]({address} \nBye."),
            "See our site\nBye.",
        ),
        (format!("See [our site]({address}"), "See our site"),
        (
            format!("Go to {address}. Bye."),
            "Go to example dot com. Bye.",
        ),
        (format!("({address})\nBye."), "(example dot com)\nBye."),
        (
            format!("**{address}**, or <{address}>!"),
            "example dot com, or example dot com!",
        ),
        (format!("[]({address})"), "example dot com"),
    ] {
        let whole = Plain::text(&written, Language::English);
        assert_eq!(whole.trim_end(), said, "{written:?}");
        for sizes in [
            &[1][..],
            &[2],
            &[3, 1],
            &[7, 2, 1],
            &[299, 1],
            &[300],
            &[301, 99],
        ] {
            let cut = in_pieces(&written, Language::English, sizes);
            assert_eq!(cut, whole, "{written:?}");
        }
    }
}

#[test]
fn code_without_bounds_on_one_line_ends_there() {
    let long = "x ".repeat(LONGEST_LINE);
    let said = Plain::text(
        &format!("```sh {long}``` is long.\nBye."),
        Language::English,
    );
    assert!(said.starts_with("sh x x") && said.ends_with("\nBye."));
}
