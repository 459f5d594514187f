//! The words of a transcript: what recognisers write beside them is left out. They write marks for silence, and name in
//! brackets what they heard that was nobody's words. Pure.

use std::borrow::Cow;

/// Brackets around what is no word, in the scripts that have their own.
const BRACKETS: [(char, char); 10] = [
    ('[', ']'),
    ('(', ')'),
    ('<', '>'),
    ('{', '}'),
    ('［', '］'),
    ('（', '）'),
    ('＜', '＞'),
    ('【', '】'),
    ('〔', '〕'),
    ('｛', '｝'),
];

/// A song stands between these.
const NOTES: &str = "♪♫♬♩🎵🎶";

/// What stands for silence without brackets around it.
const SILENCE: [&str; 1] = ["BLANK_AUDIO"];

/// The words of a transcript; empty where there are none.
pub fn words(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    let is_plain = |c: char| !is_mark(c);
    let mut words = Cow::Borrowed(text);
    if !text.chars().all(is_plain) {
        words = Cow::Owned(joined(&without_annotations(text)));
    }
    let bare = words.trim_matches(|c: char| !c.is_alphanumeric());
    if bare.is_empty() || SILENCE.contains(&bare) {
        return Cow::Borrowed("");
    }
    words
}

/// Whether there is a word in the text.
pub fn has_words(text: &str) -> bool {
    !words(text).is_empty()
}

/// Whether a text without words names a noise: whoever wrote it has listened, and found that nobody spoke. A name of
/// silence is none.
pub fn names_a_noise(text: &str) -> bool {
    const NOTHING: [&str; 8] = [
        "blank",
        "silen",
        "inaudible",
        "no speech",
        "nospeech",
        "no audio",
        "unk",
        "_",
    ];
    let text = text.to_lowercase();
    let names = text.contains(|c: char| c.is_alphabetic() || NOTES.contains(c));
    names && !has_words(&text) && !NOTHING.iter().any(|nothing| text.contains(nothing))
}

fn is_mark(c: char) -> bool {
    c == '*' || c == '+' || NOTES.contains(c) || BRACKETS.iter().any(|(open, _)| *open == c)
}

/// What is left, with the marks of a sentence at its words.
fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_whitespace() {
        if !out.is_empty() && !part.chars().all(|c| ".,;?!…".contains(c)) {
            out.push(' ');
        }
        out.push_str(part);
    }
    out
}

fn without_annotations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_mark) {
        let (before, marked) = rest.split_at(at);
        out.push_str(before);
        let opens = out.trim().is_empty();
        let length = annotation(marked, opens);
        if length > 0 {
            out.push(' ');
            rest = &marked[length..];
        } else {
            let first = marked.chars().next().map_or(0, char::len_utf8);
            out.push_str(&marked[..first]);
            rest = &marked[first..];
        }
    }
    out.push_str(rest);
    out
}

/// The bytes of the annotation that this text begins with, or 0. `opens`: there is no word before it.
fn annotation(text: &str, opens: bool) -> usize {
    let Some(first) = text.chars().next() else {
        return 0;
    };
    if let Some((open, close)) = BRACKETS.iter().find(|(open, _)| *open == first) {
        let Some(end) = closed(text, *open, *close) else {
            // Cut off: no word of anybody's follows it.
            return if opens || matches!(open, '[' | '［' | '【') {
                text.len()
            } else {
                0
            };
        };
        let inside = &text[open.len_utf8()..end - close.len_utf8()];
        // Telephone numbers are written so, and nothing else that is said.
        let is_number = matches!(open, '(' | '（')
            && inside.contains(|c: char| c.is_numeric())
            && !inside.contains(char::is_alphabetic);
        return if is_number { 0 } else { end };
    }
    if NOTES.contains(first) {
        let is_note = |c: char| NOTES.contains(c) || c == '\u{fe0f}';
        let song = text.trim_start_matches(is_note);
        let Some(end) = song.find(is_note) else {
            return text.len();
        };
        return text.len() - song[end..].trim_start_matches(is_note).len();
    }
    // *coughs*, ++noise++
    let mark = if first == '*' { "*" } else { "++" };
    let Some(inside) = text.strip_prefix(mark) else {
        return 0;
    };
    let is_name = |name: &str| {
        name.starts_with(char::is_alphabetic)
            && name.ends_with(char::is_alphabetic)
            && !name.contains(|c: char| c.is_numeric())
    };
    inside
        .find(mark)
        .filter(|end| is_name(&inside[..*end]))
        .map_or(0, |end| end + 2 * mark.len())
}

/// Behind the bracket that closes the first one.
fn closed(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return Some(at + c.len_utf8());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_word_is_left_out_in_every_script() {
        for text in [
            "",
            " ",
            ".",
            "…",
            " ... ",
            "-",
            "—",
            "?!",
            "。",
            "、",
            "¿?",
            "♪",
            "♪♪♪",
            "♪ la la la ♪",
            "♪♪ Here comes the sun ♪♪",
            "🎵 music 🎵",
            "🙂",
            "[BLANK_AUDIO]",
            "[BLANK_AUDIO].",
            " [ Silence ] ",
            "BLANK_AUDIO",
            "(coughs)",
            "(coughs) (laughs).",
            "(coughs",
            "[noise",
            "<noise>",
            "<unk> <unk>",
            "<|nospeech|>",
            "[_BEG_][_TT_50]",
            "{laughter}",
            "*sighs*",
            "*door closes*.",
            "++NOISE++",
            "[[music] playing]",
            "(5 seconds of silence)",
            "[Musik]",
            "(музыка)",
            "[音楽]",
            "（笑）",
            "【拍手】",
            "［音声なし］",
            "[موسيقى]",
            "[संगीत]",
            "(기침)",
            "[เพลง]",
        ] {
            assert_eq!(words(text), "", "{text:?}");
            assert!(!has_words(text));
        }
    }

    #[test]
    fn a_noise_is_told_from_silence_and_from_words() {
        for noise in [
            "(coughs)",
            "♪♪♪",
            "[Musik]",
            "（笑）",
            "<noise>",
            "*sighs*",
            "[музыка]",
        ] {
            assert!(names_a_noise(noise), "{noise}");
        }
        for other in [
            "",
            ".",
            "[BLANK_AUDIO]",
            "[ Silence ]",
            "<unk>",
            "(inaudible)",
            "Yes.",
            "(7)",
        ] {
            assert!(!names_a_noise(other), "{other}");
        }
    }

    #[test]
    fn words_stay_as_they_are() {
        for text in [
            "Yes.",
            "7",
            "two rooms, please",
            "a + b",
            "press * 9 *",
            "C++ and C",
            "call (555) 123-4567",
            "(555) 123-4567",
            "5 < 7",
            "Ja, natürlich!",
            "да",
            "はい。",
            "네",
            "ใช่",
            "हाँ",
            "نعم",
            "שלום",
            "blank audio",
            "*9",
        ] {
            assert_eq!(words(text), text);
        }
    }

    #[test]
    fn words_beside_a_noise_are_words() {
        for (text, left) in [
            ("[noise] two rooms", "two rooms"),
            ("two <unk> rooms (coughs).", "two rooms."),
            ("Yes ♪", "Yes"),
            ("(sighs) Well, no.", "Well, no."),
            ("да (смех) конечно", "да конечно"),
            ("はい（笑）", "はい"),
            ("yes [inaud", "yes"),
        ] {
            assert_eq!(words(text), left);
        }
    }
}
