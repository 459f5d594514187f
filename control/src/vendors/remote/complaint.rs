//! A provider's own words about a fault: found in its answer, without keys, and cut; and what of them the log may
//! hold, which says nothing of what was said in a call. Pure.

use std::collections::HashSet;

use serde_json::Value;

/// What is read of an answer that is an error or none, bytes.
pub(super) const READ: usize = 4 << 10;

/// What is kept of a fault's words, characters.
const LONGEST: usize = 200;

/// The longest code, characters: `insufficient_quota` has eighteen.
const LONGEST_CODE: usize = 64;

/// In place of what is left out.
const MASK: &str = "•••";

/// What a provider says of a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Complaint {
    /// Its word for it, where it has one.
    pub(super) code: Option<String>,
    pub(super) message: String,
}

/// Reads the body of an error in any of its common forms.
pub(super) fn read(body: &str) -> Complaint {
    let Ok(value) = serde_json::from_str::<Value>(body) else {
        return Complaint {
            code: None,
            message: plain(&without_tags(body)),
        };
    };
    // Some gateways wrap it in a list.
    let value = value.get(0).unwrap_or(&value);
    let places = [
        &value["error"]["message"],
        &value["error"],
        &value["message"],
        &value["detail"]["message"],
        &value["detail"],
        // Deepgram's.
        &value["err_msg"],
        &value["reason"],
    ];
    let told = places.into_iter().find_map(Value::as_str);
    let codes = [
        &value["error"]["code"],
        &value["error"]["type"],
        &value["error"]["status"],
        &value["code"],
        &value["detail"]["status"],
        &value["err_code"],
        &value["error_code"],
    ];
    Complaint {
        code: codes.into_iter().find_map(Value::as_str).and_then(code),
        message: plain(told.unwrap_or(body)),
    }
}

/// A code that is one word.
fn code(text: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let fits = !text.is_empty() && text.len() <= LONGEST_CODE && text.chars().all(is_word);
    fits.then(|| text.to_owned())
}

/// One line of bounded length, without whatever looks like a key.
pub(super) fn plain(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    // Before it is cut, or the first half of a key would stay.
    let masked = map_runs(&line, is_of_key, |run| {
        looks_like_key(run).then(|| MASK.to_owned())
    });
    masked.chars().take(LONGEST).collect()
}

/// The same without this key, which some servers repeat.
pub(super) fn without_key(text: &str, key: Option<&str>) -> String {
    match key {
        Some(key) if !key.is_empty() => text.replace(key, MASK),
        _ => text.to_owned(),
    }
}

/// The text of a page (HTML or XML, which nobody says in a call) that came in place of an answer; `None`: it is none.
pub(super) fn page(body: &[u8]) -> Option<String> {
    let beginning = String::from_utf8_lossy(&body[..body.len().min(READ)]);
    is_page(&beginning).then(|| plain(&without_tags(&beginning)))
}

fn is_page(text: &str) -> bool {
    text.trim_start().starts_with('<')
}

/// The text of a page, such as a proxy's about its own fault.
fn without_tags(text: &str) -> String {
    if !is_page(text) {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut inside = false;
    for c in text.chars() {
        match c {
            '<' => {
                inside = true;
                out.push(' ');
            }
            '>' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    if out.trim().is_empty() {
        text.to_owned()
    } else {
        out
    }
}

/// What of a message the log may hold: not the words of `sent`, which are the conversation's, but for those that
/// every error is made of; and no number and no address of a person.
pub(super) fn for_log<'a>(message: &str, sent: impl IntoIterator<Item = &'a str>) -> String {
    let said: HashSet<String> = sent
        .into_iter()
        .flat_map(|text| text.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let without_people = map_runs(message, is_of_address, |run| {
        let digits = run.chars().filter(char::is_ascii_digit).count();
        let is_number = digits >= 7 && run.chars().all(|c| !c.is_alphabetic());
        (run.contains('@') || is_number).then(|| MASK.to_owned())
    });
    map_runs(&without_people, char::is_alphanumeric, |word| {
        let word = word.to_lowercase();
        (said.contains(&word) && VOCABULARY.binary_search(&word.as_str()).is_err())
            .then(|| MASK.to_owned())
    })
}

/// The text with each run of such characters replaced, where there is something in its place.
fn map_runs(
    text: &str,
    is_part: impl Fn(char) -> bool,
    replace: impl Fn(&str) -> Option<String>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(&is_part) {
        out.push_str(&rest[..start]);
        let run = &rest[start..];
        let end = run.find(|c| !is_part(c)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        out.push_str(&replace(run).unwrap_or_else(|| run.to_owned()));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-*•.".contains(c)
}

fn is_of_address(c: char) -> bool {
    c.is_alphanumeric() || "@+._-".contains(c)
}

/// Whether a run of characters is a key, or what its owner shows of one: it begins as keys do, has stars within, or
/// has a long piece of letters and digits as no word does.
fn looks_like_key(run: &str) -> bool {
    const BEGINNINGS: [&str; 6] = ["sk-", "sk_", "pk_", "key-", "xi-", "gsk_"];
    let long = |piece: &str| {
        piece.len() >= 20
            && piece.contains(|c: char| c.is_ascii_digit())
            && piece.contains(|c: char| c.is_ascii_alphabetic())
    };
    let begins = BEGINNINGS
        .iter()
        .any(|beginning| run.len() > beginning.len() && run.starts_with(beginning));
    begins
        || run.contains("***")
        || run.contains("••")
        || run.split(|c: char| !c.is_ascii_alphanumeric()).any(long)
}

/// The words that errors of providers are made of. They say nothing of a conversation, whoever uses them. Sorted.
const VOCABULARY: &[&str] = &[
    "a",
    "access",
    "account",
    "action",
    "again",
    "allowed",
    "an",
    "and",
    "api",
    "apikey",
    "are",
    "at",
    "authentication",
    "authorization",
    "authorized",
    "available",
    "bad",
    "balance",
    "be",
    "billing",
    "body",
    "by",
    "can",
    "cannot",
    "capacity",
    "character",
    "characters",
    "check",
    "com",
    "concurrent",
    "connection",
    "content",
    "context",
    "could",
    "credentials",
    "credit",
    "credits",
    "current",
    "denied",
    "deployment",
    "details",
    "did",
    "disabled",
    "do",
    "does",
    "enabled",
    "engine",
    "error",
    "exceeded",
    "exist",
    "expired",
    "failed",
    "field",
    "find",
    "for",
    "forbidden",
    "format",
    "found",
    "free",
    "from",
    "gateway",
    "given",
    "has",
    "have",
    "help",
    "https",
    "id",
    "in",
    "incorrect",
    "input",
    "insufficient",
    "internal",
    "invalid",
    "is",
    "it",
    "its",
    "key",
    "keys",
    "language",
    "length",
    "limit",
    "limits",
    "long",
    "many",
    "max",
    "maximum",
    "message",
    "messages",
    "method",
    "missing",
    "model",
    "models",
    "must",
    "no",
    "not",
    "occurred",
    "of",
    "on",
    "openai",
    "or",
    "organization",
    "out",
    "overloaded",
    "page",
    "parameter",
    "payment",
    "per",
    "permission",
    "permissions",
    "plan",
    "platform",
    "please",
    "pricing",
    "project",
    "provided",
    "quota",
    "rate",
    "reached",
    "request",
    "requested",
    "requests",
    "required",
    "response",
    "retry",
    "seconds",
    "server",
    "service",
    "size",
    "status",
    "supported",
    "temporarily",
    "text",
    "than",
    "that",
    "the",
    "this",
    "timed",
    "timeout",
    "to",
    "token",
    "tokens",
    "too",
    "try",
    "type",
    "unauthorized",
    "unavailable",
    "unknown",
    "unsupported",
    "upgrade",
    "url",
    "usage",
    "use",
    "user",
    "valid",
    "value",
    "version",
    "voice",
    "voices",
    "was",
    "with",
    "you",
    "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_found_in_its_common_forms() {
        for (body, code, words) in [
            (
                r#"{"error":{"message":"no such model","code":null}}"#,
                None,
                "no such model",
            ),
            (
                r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
                Some("insufficient_quota"),
                "You exceeded your current quota.",
            ),
            (r#"{"error":"model not found"}"#, None, "model not found"),
            (r#"{"message":"slow down"}"#, None, "slow down"),
            (
                r#"{"detail":{"status":"voice_not_found","message":"no voice"}}"#,
                Some("voice_not_found"),
                "no voice",
            ),
            (
                r#"{"err_code":"INVALID_AUTH","err_msg":"Invalid credentials.","request_id":"x"}"#,
                Some("INVALID_AUTH"),
                "Invalid credentials.",
            ),
            (r#"{"detail":"Not Found"}"#, None, "Not Found"),
            (
                r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]"#,
                Some("INVALID_ARGUMENT"),
                "API key not valid.",
            ),
            (" plain words\n", None, "plain words"),
            (
                "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body></body></html>",
                None,
                "502 Bad Gateway",
            ),
            (r#"{"error":{"code":"two words","message":"x"}}"#, None, "x"),
            ("{}", None, "{}"),
        ] {
            let complaint = read(body);
            assert_eq!(
                (complaint.code.as_deref(), complaint.message.as_str()),
                (code, words)
            );
        }
    }

    #[test]
    fn what_looks_like_a_key_is_left_out_and_what_does_not_stays() {
        for (text, told) in [
            (
                "Incorrect API key provided: sk-abcd***************wxyz. You can find your API key at https://platform.openai.com/account/api-keys.",
                "Incorrect API key provided: ••• You can find your API key at https://platform.openai.com/account/api-keys.",
            ),
            ("key sk_3f9a2b77 is gone", "key ••• is gone"),
            (
                "token 0123456789abcdef0123456789abcdef01234567",
                "token •••",
            ),
            (
                "The model `gpt-4o-mini-transcribe-2025-12-15` does not exist",
                "The model `gpt-4o-mini-transcribe-2025-12-15` does not exist",
            ),
            (
                "no meta-llama/Llama-3.3-70B-Instruct-Turbo here",
                "no meta-llama/Llama-3.3-70B-Instruct-Turbo here",
            ),
            ("two\r\n lines\u{7}", "two lines"),
        ] {
            assert_eq!(plain(text), told);
        }
        assert_eq!(plain(&"x ".repeat(500)).chars().count(), LONGEST);
        assert_eq!(
            without_key("your key is hunter2.", Some("hunter2")),
            "your key is •••."
        );
    }

    #[test]
    fn the_log_has_the_provider_s_words_and_not_the_conversation_s() {
        let sent = [
            "You are kind. Does the model of your car exist? Call +49 30 1234567.",
            "I have a sore knee, Doctor Müller",
        ];
        for (message, logged) in [
            (
                "The model `gpt-9` does not exist or you do not have access to it.",
                "The model `gpt-9` does not exist or you do not have access to it.",
            ),
            (
                "cannot answer 'I have a sore knee, Doctor Müller'",
                "cannot answer '••• have a ••• •••, ••• •••'",
            ),
            (
                "flagged: SORE-knee of +49301234567 (m.mueller@example.com)",
                "flagged: •••-••• of ••• (•••)",
            ),
        ] {
            assert_eq!(for_log(message, sent), logged);
        }
    }

    #[test]
    fn the_vocabulary_is_sorted_so_that_a_word_is_found_in_it() {
        assert!(VOCABULARY.is_sorted());
        assert!(VOCABULARY.iter().all(|word| word.to_lowercase() == **word));
    }
}
