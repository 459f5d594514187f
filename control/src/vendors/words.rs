//! Text as a listener would write it down: lower case, no marks, numbers spelled out. The language
//! model of the recogniser and the index of `faq` must agree on this, so it is done once.

/// The words of a text. Sentence marks are dropped, digits are spelled out, apostrophes stay inside
/// a word ("don't").
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for token in
        text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | ':' | '.' | ',')))
    {
        let token = token.trim_matches(|c: char| !c.is_alphanumeric());
        if token.is_empty() {
            continue;
        }
        if token.chars().any(|c| c.is_ascii_digit()) {
            spell_token(token, &mut found);
        } else {
            for part in token.split([':', '.', ',']).filter(|part| !part.is_empty()) {
                found.push(part.replace('’', "'").to_lowercase());
            }
        }
    }
    found
}

/// The sentences of a text: a line ends one, so does a mark that is followed by a gap, unless it
/// ends an abbreviation.
pub fn sentences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line
            .trim()
            .trim_start_matches(['-', '*', '•', '·'])
            .trim_start();
        let mut begin = 0;
        let mut chars = line.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let gap = chars.peek().is_none_or(|(_, next)| next.is_whitespace());
            if matches!(c, '.' | '!' | '?') && gap && !is_abbreviation(&line[begin..at], c) {
                push_sentence(&line[begin..=at], &mut found);
                begin = at + c.len_utf8();
            }
        }
        push_sentence(&line[begin..], &mut found);
    }
    found
}

/// An English number in words, up to 999,999.
pub fn number(value: u32) -> Vec<&'static str> {
    const SMALL: [&str; 20] = [
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 10] = [
        "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
    ];
    let mut spoken = Vec::new();
    let (thousands, below) = (value / 1000, value % 1000);
    if thousands > 0 {
        spoken.extend(number(thousands));
        spoken.push("thousand");
    }
    let (hundreds, rest) = (below / 100, below % 100);
    if hundreds > 0 {
        spoken.extend([SMALL[hundreds as usize], "hundred"]);
    }
    match rest {
        0 if value > 0 => {}
        0..20 => spoken.push(SMALL[rest as usize]),
        _ => {
            spoken.push(TENS[(rest / 10) as usize]);
            if rest % 10 > 0 {
                spoken.push(SMALL[(rest % 10) as usize]);
            }
        }
    }
    spoken
}

fn push_sentence(piece: &str, found: &mut Vec<String>) {
    let piece = piece.trim();
    if piece.chars().any(char::is_alphanumeric) {
        found.push(piece.to_owned());
    }
}

/// "Dr.", "a.m." and single letters do not end a sentence.
fn is_abbreviation(before: &str, mark: char) -> bool {
    if mark != '.' {
        return false;
    }
    let last = before
        .rsplit(char::is_whitespace)
        .next()
        .unwrap_or_default()
        .to_lowercase();
    matches!(
        last.as_str(),
        "dr" | "mr" | "mrs" | "ms" | "st" | "no" | "approx" | "e.g" | "i.e" | "a.m" | "p.m"
    )
}

/// A token with digits: a time ("7:30"), a price ("3.50"), a number ("1,200"), or letters and digits
/// together ("4th", "b12").
fn spell_token(token: &str, found: &mut Vec<String>) {
    let plain: String = token.chars().filter(|c| *c != ',').collect();
    for (place, part) in plain.split([':', '.']).enumerate() {
        let (digits, letters) = part.split_at(
            part.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(part.len()),
        );
        match digits.parse::<u32>() {
            // Minutes past the hour: "7:05" is "seven oh five", "7:00" is "seven".
            Ok(0) if place > 0 => {}
            Ok(value @ 1..10) if place > 0 && digits.len() == 2 => {
                found.push("oh".into());
                found.extend(number(value).into_iter().map(str::to_owned));
            }
            Ok(value @ 0..1_000_000) if digits.len() <= 6 => {
                found.extend(number(value).into_iter().map(str::to_owned));
            }
            // A telephone number is said digit by digit.
            _ => {
                let each = digits
                    .chars()
                    .filter_map(|c| c.to_digit(10))
                    .flat_map(number);
                found.extend(each.map(str::to_owned));
            }
        }
        let letters = letters.trim_matches('\'');
        if !letters.is_empty() && !matches!(letters, "st" | "nd" | "rd" | "th") {
            found.push(letters.to_lowercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_spelled_out() {
        let said = |text: &str| words(text).join(" ");
        assert_eq!(said("From 7:30 to 10 a.m."), "from seven thirty to ten a m");
        assert_eq!(
            said("It costs 1,250 dollars."),
            "it costs one thousand two hundred fifty dollars"
        );
        assert_eq!(
            said("Don’t call 5550199 at 7:05"),
            "don't call five five five oh one nine nine at seven oh five"
                .replace("oh one", "zero one")
        );
        assert_eq!(said("Rooms 14 and 20"), "rooms fourteen and twenty");
    }

    #[test]
    fn sentences_end_at_marks_and_lines() {
        assert_eq!(
            sentences("We open at 7 a.m. every day. Ask Dr. Lee!\n- Parking: free\n\n\"...\""),
            [
                "We open at 7 a.m. every day.",
                "Ask Dr. Lee!",
                "Parking: free"
            ]
        );
    }
}
