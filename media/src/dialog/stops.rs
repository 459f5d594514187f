//! Which marks end a sentence, in English and French. Pure: what follows may still be unknown.
//!
//! Where it cannot be known, a full stop is taken to go on: a reply that is one sentence longer than its agent
//! wants is better than one that breaks off after "Mt.".

/// What a mark does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The sentence ends at this byte, behind quotes and brackets that close with it.
    Ends(usize),
    GoesOn,
    /// The text that follows will tell.
    Unknown,
}

/// Always followed by what they belong to.
const TITLES: &[&str] = &[
    "adm", "al", "brig", "cdt", "capt", "cf", "cmdr", "col", "cpl", "cpt", "dr", "e.g", "gen",
    "gén", "gov", "hon", "i.e", "insp", "lt", "m", "maj", "messrs", "mgr", "mlle", "mlles", "mm",
    "mme", "mmes", "mr", "mrs", "ms", "mt", "mx", "p.ex", "pr", "pres", "prof", "pvt", "rep",
    "rev", "sen", "sgt", "supt", "viz", "vs", "vve",
];

/// They end a sentence only where one clearly begins behind them.
const ABBREVIATIONS: &[&str] = &[
    "approx", "apt", "assn", "assoc", "av", "ave", "avr", "bd", "bldg", "blvd", "boul", "bros",
    "co", "corp", "ct", "dept", "dépt", "déc", "env", "esq", "est", "etc", "excl", "ext", "fév",
    "févr", "ft", "hr", "hrs", "hwy", "inc", "incl", "janv", "jr", "juil", "lb", "lbs", "ltd",
    "ltée", "max", "min", "mins", "mts", "oz", "ph.d", "pkwy", "pl", "plc", "rd", "réf", "rte",
    "sq", "sr", "st", "ste", "sts", "tel", "tél", "univ", "vol", "env", "hab", "resp", "suppl",
];

/// The same, with a capital only: "sat." and "sun." are words, too.
const DATES: &[&str] = &[
    "Apr", "Aug", "Dec", "Feb", "Fri", "Jan", "Jul", "Jun", "Mar", "Mon", "Nov", "Oct", "Sat",
    "Sep", "Sept", "Sun", "Thu", "Thur", "Thurs", "Tue", "Tues", "Wed",
];

/// Abbreviations before a number, and words elsewhere: "No. 5", "No. We are closed."
const BEFORE_NUMBERS: &[&str] = &[
    "art", "ca", "ch", "chap", "fig", "n", "no", "nos", "nr", "p", "par", "pg", "pp", "rm", "sec",
    "sect", "vol",
];

/// Words with which a sentence begins that follows an abbreviation.
const STARTERS: &[&str] = &[
    "a",
    "all",
    "also",
    "an",
    "and",
    "any",
    "anything",
    "are",
    "as",
    "at",
    "but",
    "can",
    "come",
    "could",
    "did",
    "do",
    "does",
    "for",
    "good",
    "great",
    "have",
    "he",
    "hello",
    "her",
    "here",
    "his",
    "how",
    "however",
    "i",
    "i'd",
    "i'll",
    "i'm",
    "i've",
    "if",
    "in",
    "is",
    "it",
    "it's",
    "just",
    "let",
    "let's",
    "may",
    "my",
    "no",
    "now",
    "of",
    "on",
    "or",
    "our",
    "please",
    "shall",
    "she",
    "should",
    "so",
    "some",
    "thank",
    "thanks",
    "that",
    "that's",
    "the",
    "then",
    "there",
    "there's",
    "these",
    "they",
    "this",
    "those",
    "to",
    "was",
    "we",
    "we'll",
    "we're",
    "welcome",
    "were",
    "what",
    "what's",
    "when",
    "where",
    "which",
    "who",
    "why",
    "will",
    "would",
    "yes",
    "you",
    "you'll",
    "you're",
    "your",
    "alors",
    "après",
    "au",
    "aussi",
    "avec",
    "avez-vous",
    "bien",
    "bonne",
    "c'est",
    "ce",
    "ces",
    "cet",
    "cette",
    "combien",
    "comment",
    "dans",
    "des",
    "donc",
    "elle",
    "elles",
    "en",
    "est-ce",
    "et",
    "il",
    "ils",
    "j'ai",
    "je",
    "l'adresse",
    "la",
    "le",
    "les",
    "mais",
    "merci",
    "mon",
    "non",
    "nos",
    "notre",
    "nous",
    "on",
    "ou",
    "oui",
    "où",
    "par",
    "pour",
    "pouvez-vous",
    "puis",
    "quand",
    "que",
    "quel",
    "quelle",
    "qui",
    "sa",
    "ses",
    "si",
    "son",
    "souhaitez-vous",
    "sur",
    "un",
    "une",
    "vos",
    "votre",
    "voulez-vous",
    "vous",
    "y",
];

/// An ellipsis after so few words is a pause.
const PAUSE_WORDS: usize = 4;

/// What the mark `c` at byte `at` of the sentence that `rest` begins with does. `item`: the number of the newest
/// item of a list in it; `complete`: no more text will come.
pub(super) fn stop(rest: &str, at: usize, c: char, item: Option<u32>, complete: bool) -> Stop {
    if !matches!(c, '.' | '?' | '!' | '…' | '。' | '？' | '！') {
        return Stop::GoesOn;
    }
    let after = &rest[at + c.len_utf8()..];
    let closers = after.trim_start_matches(['"', '\'', '”', '’', '»', ')', ']']);
    // "« Oui. » Puis": the closing mark stands behind a blank.
    let quoted = rest[..at].rfind('«') > rest[..at].rfind('»');
    let closers = closers
        .strip_prefix([' ', '\u{a0}', '\u{202f}'])
        .and_then(|more| more.strip_prefix('»'))
        .filter(|_| quoted)
        .unwrap_or(closers);
    let end = rest.len() - closers.len();
    let Some(next) = closers.chars().next() else {
        return if complete {
            Stop::Ends(end)
        } else {
            Stop::Unknown
        };
    };
    if !next.is_whitespace() {
        return Stop::GoesOn;
    }
    if matches!(c, '。' | '？' | '！') {
        return Stop::Ends(end);
    }
    let line = closers.split('\n').next().unwrap_or_default();
    let follows = line.trim_start();
    let ends_line = follows.is_empty() && (line.len() < closers.len() || complete);
    // The guillemet that closes may still come.
    if follows.is_empty() && !ends_line && quoted && !rest[..end].ends_with('»') {
        return Stop::Unknown;
    }
    if matches!(c, '?' | '!') || ends_line {
        let is_mark = c == '.' && list_number(&rest[..=at]).is_some();
        return if is_mark && !complete {
            Stop::GoesOn
        } else {
            Stop::Ends(end)
        };
    }
    let before = &rest[..at];
    let word = before
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default();
    if c == '…' || word.ends_with('.') {
        return ellipsis(before, follows, end, complete);
    }
    let word = word.trim_start_matches(['(', '[', '"', '\'', '“', '‘', '«', '*']);
    full_stop(before, word, follows, item, end, complete)
}

/// "Well... I think" is a pause, "And then he left... The end." two sentences.
fn ellipsis(before: &str, follows: &str, end: usize, complete: bool) -> Stop {
    let words = before
        .split_whitespace()
        .filter(|word| word.contains(char::is_alphanumeric));
    match words.count() {
        // Dots alone belong to nothing that follows.
        0 => return Stop::Ends(end),
        count if count < PAUSE_WORDS => return Stop::GoesOn,
        _ => {}
    }
    match first_word(follows, complete) {
        None => Stop::Unknown,
        Some(("I" | "I'm" | "I'll" | "I'd" | "I've", _)) => Stop::GoesOn,
        Some((next, _)) if next.starts_with(char::is_uppercase) => Stop::Ends(end),
        Some(_) => Stop::GoesOn,
    }
}

fn full_stop(
    before: &str,
    word: &str,
    follows: &str,
    item: Option<u32>,
    end: usize,
    complete: bool,
) -> Stop {
    let lower = word.to_lowercase();
    let lower = ["l'", "l’", "d'", "d’", "qu'", "qu’"]
        .iter()
        .find_map(|article| lower.strip_prefix(article))
        .unwrap_or(&lower);
    if TITLES.contains(&lower) {
        return Stop::GoesOn;
    }
    if let Some(number) = list_number(&format!("{word}.")) {
        let lead = before[..before.len() - word.len()].trim_end();
        let opens = lead.is_empty() || (number == 1 && lead.ends_with([':', ',', ';']));
        let follows_one = number > 1 && last_item(lead, item) == Some(number - 1);
        return if opens || follows_one {
            Stop::GoesOn
        } else {
            Stop::Ends(end)
        };
    }
    if BEFORE_NUMBERS.contains(&lower) {
        return match follows.chars().next() {
            None if complete => Stop::Ends(end),
            None => Stop::Unknown,
            Some(c) if c.is_ascii_digit() || c == '#' => Stop::GoesOn,
            // A single letter may be an initial.
            Some(_) if lower.len() == 1 => ambiguous(follows, end, complete),
            Some(_) => Stop::Ends(end),
        };
    }
    let parts: Vec<&str> = word.split('.').collect();
    let letters = |part: &&str| {
        (1..=2).contains(&part.chars().count()) && part.chars().all(char::is_alphabetic)
    };
    let is_letter = word.chars().count() == 1 && word.starts_with(char::is_uppercase);
    let initials = parts.iter().all(letters) && (parts.len() > 1 || is_letter);
    let dated = DATES.contains(&word);
    if initials || dated || ABBREVIATIONS.contains(&lower) {
        return ambiguous(follows, end, complete);
    }
    Stop::Ends(end)
}

/// An abbreviation ends its sentence where a word follows with which sentences begin.
fn ambiguous(follows: &str, end: usize, complete: bool) -> Stop {
    let Some((next, is_initial)) = first_word(follows, complete) else {
        return Stop::Unknown;
    };
    let begins = next.starts_with(char::is_uppercase)
        && STARTERS.contains(&next.to_lowercase().replace('’', "'").as_str());
    if begins && !is_initial {
        Stop::Ends(end)
    } else {
        Stop::GoesOn
    }
}

/// The first word of what follows, once all of it is there, and whether it is one letter with a full stop.
fn first_word(follows: &str, complete: bool) -> Option<(&str, bool)> {
    let follows = follows.trim_start_matches(['"', '“', '«', '(', '\'', '¿', '¡']);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’' | '-');
    let (word, rest) = match follows.find(|c| !is_word(c)) {
        Some(end) => follows.split_at(end),
        None if complete => (follows, ""),
        None => return None,
    };
    Some((word, word.chars().count() == 1 && rest.starts_with('.')))
}

/// The number of a mark such as `2.` or `2)`.
pub(super) fn list_number(word: &str) -> Option<u32> {
    let digits = word.strip_suffix(['.', ')'])?;
    let fits = (1..=2).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
    fits.then(|| digits.parse().ok()).flatten()
}

/// The number of the newest item of a list in a sentence, or the one before it: `1.` where an item may begin, and from
/// there on each number that follows.
pub(super) fn last_item(sentence: &str, before: Option<u32>) -> Option<u32> {
    let mut newest = before;
    let mut opens = true;
    for word in sentence.split_whitespace() {
        if let Some(number) = list_number(word)
            && ((number == 1 && opens) || newest == number.checked_sub(1) && number > 1)
        {
            newest = Some(number);
        }
        opens = word.ends_with([':', ',', ';']);
    }
    newest
}

#[cfg(test)]
#[path = "stops_tests.rs"]
mod tests;
