//! A provider's own words about a fault: found in its answer, and shown without keys, and cut; and what of them the
//! log may hold, which says nothing of what was said in a call. Whatever is left out is left out before the words are
//! cut: half a key or half a name would not be found any more. Pure.

use std::collections::HashSet;

use serde_json::Value;

/// What is read of an answer that is an error or none, bytes.
pub(super) const READ: usize = 4 << 10;

/// What is shown of a fault's words, characters.
const LONGEST: usize = 200;

/// The longest code, characters: `insufficient_quota` has eighteen.
const LONGEST_CODE: usize = 64;

/// In place of what is left out.
const MASK: &str = "•••";

/// The first bytes of a key that are left out where a text ends within it.
const LEAST_OF_KEY: usize = 4;

/// What a provider says of a fault, as it says it.
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
            message: line(&without_tags(body)),
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
        &value["description"],
        &value["error_message"],
        &value["reason"],
        // Cartesia's.
        &value["title"],
    ];
    // An error that is one word beside a message is the message's code.
    let named = value["error"].as_str().and_then(code);
    let beside = value["message"].as_str().filter(|_| named.is_some());
    let told = beside.or_else(|| places.into_iter().find_map(Value::as_str));
    // OpenAI names the parameter that it refuses beside its words.
    let parameter = value["error"]["param"]
        .as_str()
        .filter(|name| !told.unwrap_or(body).contains(name))
        .map_or_else(String::new, |name| format!(" ({name})"));
    let codes = [
        &value["error"]["code"],
        &value["error"]["type"],
        &value["error"]["status"],
        &value["code"],
        &value["detail"]["status"],
        &value["err_code"],
        &value["error_code"],
        &value["variant"],
    ];
    Complaint {
        code: codes
            .into_iter()
            .find_map(Value::as_str)
            .and_then(code)
            .or(named.filter(|_| beside.is_some())),
        message: line(&format!("{}{parameter}", told.unwrap_or(body))),
    }
}

/// Whether a message tells of an error, in any of the common forms.
pub(super) fn is_error(value: &Value) -> bool {
    let says = |name: &str| match &value[name] {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => true,
    };
    let is_error = |name: &&str| name.eq_ignore_ascii_case("error");
    ["type", "status", "event"]
        .iter()
        .any(|name| value[*name].as_str().as_ref().is_some_and(is_error))
        || [
            "error",
            "err_msg",
            "err_code",
            "error_code",
            "error_message",
            "detail",
        ]
        .into_iter()
        .any(says)
}

/// A code that is one word, and no key.
fn code(text: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let fits = !text.is_empty() && text.len() <= LONGEST_CODE && text.chars().all(is_word);
    (fits && key_in(text).is_none()).then(|| text.to_owned())
}

/// One line of what a provider says, bounded. It may hold keys: it is shown by way of [`without_keys`] and [`cut`].
pub(super) fn line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = line.chars().filter(|c| !c.is_control());
    let kept: String = line.by_ref().take(READ).collect();
    match line.next() {
        Some(_) => without_cut_key(&kept),
        None => kept,
    }
}

/// The text without this key, which some servers repeat, and without whatever looks like one.
pub(super) fn without_keys(text: &str, key: Option<&str>) -> String {
    let text = without_key(text, key);
    map_runs(&text, is_of_key, |run| {
        let start = key_in(run).filter(|_| run.trim_end_matches('.') != MASK);
        start.map(|start| format!("{}{MASK}", &run[..start]))
    })
}

/// What is shown of a text from which everything is left out that has to be.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The text without this key: as it is, as JSON or a URL writes it, and as much of it as the text ends with.
pub(super) fn without_key(text: &str, key: Option<&str>) -> String {
    let mut text = text.to_owned();
    let Some(key) = key.filter(|key| !key.is_empty()) else {
        return text;
    };
    let in_json = Value::from(key).to_string();
    let spellings = [
        key.to_owned(),
        in_json[1..in_json.len() - 1].to_owned(),
        in_url(key, |byte| format!("%{byte:02X}")),
        in_url(key, |byte| format!("%{byte:02x}")),
    ];
    for spelling in &spellings {
        text = text.replace(spelling, MASK);
    }
    for spelling in &spellings {
        let ends = spelling.char_indices().map(|(end, _)| end).rev();
        let found = ends
            .filter(|end| *end >= LEAST_OF_KEY)
            .map(|end| &spelling[..end])
            .find(|beginning| text.ends_with(beginning));
        if let Some(beginning) = found {
            text.truncate(text.len() - beginning.len());
            text.push_str(MASK);
        }
    }
    text
}

/// A key as a part of a URL (RFC 3986 section 2.1).
fn in_url(key: &str, escaped: impl Fn(u8) -> String) -> String {
    let written = |byte: u8| match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        true => char::from(byte).to_string(),
        false => escaped(byte),
    };
    key.bytes().map(written).collect()
}

/// A text that was cut off, without a last word that may be the beginning of a key.
pub(super) fn without_cut_key(text: &str) -> String {
    let (before, last) = text.split_at(text.trim_end_matches(is_of_key).len());
    match last.contains(|c: char| c.is_ascii_digit()) {
        true => format!("{before}{MASK}"),
        false => text.to_owned(),
    }
}

/// The text of a page (HTML or XML, which nobody says in a call) that came in place of an answer; `None`: it is none.
pub(super) fn page(body: &[u8]) -> Option<String> {
    let beginning = &body[..body.len().min(READ)];
    let mut text = String::from_utf8_lossy(beginning).into_owned();
    if body.len() >= READ {
        text = without_cut_key(&text);
    }
    is_page(&text).then(|| line(&without_tags(&text)))
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

/// The words of a conversation, lower case, but for those that every error is made of.
pub(super) struct Said(HashSet<String>);

impl Said {
    pub(super) fn of<'a>(sent: impl IntoIterator<Item = &'a str>) -> Self {
        let words = sent
            .into_iter()
            .flat_map(|text| text.split(|c: char| !c.is_alphanumeric()))
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase);
        Self(
            words
                .filter(|word| VOCABULARY.binary_search(&word.as_str()).is_err())
                .collect(),
        )
    }
}

/// What of a message the log may hold: not what was `said`, and no number and no address of a person.
pub(super) fn for_log(message: &str, said: &Said) -> String {
    let without_people = map_runs(message, is_of_address, |run| {
        let digits = run.chars().filter(char::is_ascii_digit).count();
        let is_number = digits >= 7 && run.chars().all(|c| !c.is_alphabetic());
        (run.contains('@') || is_number).then(|| MASK.to_owned())
    });
    map_runs(&without_people, char::is_alphanumeric, |word| {
        said.0
            .contains(&word.to_lowercase())
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
    c.is_ascii_alphanumeric() || "_-*•.%".contains(c)
}

fn is_of_address(c: char) -> bool {
    c.is_alphanumeric() || "@+._-".contains(c)
}

/// Where in a run of characters a key begins, or what its owner shows of one: it begins as keys do, has stars within,
/// or has a long piece of letters and digits as no word does.
fn key_in(run: &str) -> Option<usize> {
    const BEGINNINGS: [&str; 9] = [
        "sk-", "sk_", "pk_", "key-", "xi-", "gsk_", "hf_", "xai-", "AIza",
    ];
    let begins = |text: &str| {
        BEGINNINGS
            .iter()
            .any(|beginning| text.len() > beginning.len() && text.starts_with(beginning))
    };
    let long = |piece: &str| {
        piece.len() >= 20
            && piece.contains(|c: char| c.is_ascii_digit())
            && piece.contains(|c: char| c.is_ascii_alphabetic())
    };
    if begins(run)
        || run.contains("***")
        || run.contains("••")
        || run.split(|c: char| !c.is_ascii_alphanumeric()).any(long)
    {
        return Some(0);
    }
    // Behind an escape of a URL, or behind a name; there are words like `api-key-based`.
    run.char_indices().find_map(|(at, c)| {
        let (start, sure) = match c {
            '%' => (at + 3, true),
            '_' | '-' | '.' => (at + 1, false),
            _ => return None,
        };
        let rest = run.get(start..)?;
        let is_key = begins(rest) && (sure || rest.contains(|c: char| c.is_ascii_digit()));
        is_key.then_some(start)
    })
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
                r#"{"message":"This request exceeds your quota.","error":"quota_exceeded","code":1008}"#,
                Some("quota_exceeded"),
                "This request exceeds your quota.",
            ),
            (
                r#"{"type":"Error","description":"The key is not valid.","message":"no","variant":"AUTH"}"#,
                Some("AUTH"),
                "no",
            ),
            (
                r#"{"type":"error","title":"Credits used up","status_code":402}"#,
                None,
                "Credits used up",
            ),
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
    fn an_error_is_told_from_an_answer() {
        let is_error = |text: &str| is_error(&serde_json::from_str(text).expect("JSON"));
        for error in [
            r#"{"error":"no"}"#,
            r#"{"error":{"message":"no"}}"#,
            r#"{"type":"Error"}"#,
            r#"{"status":"error","message":"no"}"#,
            r#"{"err_code":"INVALID_AUTH"}"#,
            r#"{"detail":{"status":"quota_exceeded"}}"#,
        ] {
            assert!(is_error(error), "{error}");
        }
        for answer in [
            r#"{"type":"chunk","error":null,"data":""}"#,
            r#"{"error":false,"error_code":0,"error_message":""}"#,
            r#"{"type":"Metadata"}"#,
            "[]",
        ] {
            assert!(!is_error(answer), "{answer}");
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
            // Within a word: behind its name, in quotes, in JSON, in a URL.
            ("no key=sk-abcdef, sorry", "no key=•••, sorry"),
            ("key:'sk-abcdef'; \"sk-abcdef\"", "key:'•••'; \"•••\""),
            (
                r#"{"api_key":"sk-abcdef","model":"x"}"#,
                r#"{"api_key":"•••","model":"x"}"#,
            ),
            (
                "GET https://api.example/v1?key=sk-abcdef&model=x",
                "GET https://api.example/v1?key=•••&model=x",
            ),
            (
                "wss://api.example/sk-abcdef/listen",
                "wss://api.example/•••/listen",
            ),
            ("to=%2Fv1%3Fkey%3Dsk-abcdef%26x", "to=%2Fv1%3Fkey%3D•••"),
            ("api_key_sk-abc123", "api_key_•••"),
            ("openai.sk_abc123", "openai.•••"),
            ("an api-key-based desk-top", "an api-key-based desk-top"),
            (
                "The model `gpt-4o-mini-transcribe-2025-12-15` does not exist",
                "The model `gpt-4o-mini-transcribe-2025-12-15` does not exist",
            ),
            (
                "no meta-llama/Llama-3.3-70B-Instruct-Turbo here, 100% sure",
                "no meta-llama/Llama-3.3-70B-Instruct-Turbo here, 100% sure",
            ),
        ] {
            assert_eq!(without_keys(text, None), told);
        }
        assert_eq!(line("two\r\n lines\u{7}"), "two lines");
        assert_eq!(cut(&"x ".repeat(500)).chars().count(), LONGEST);
        let coded = |code: &str| read(&format!(r#"{{"error":{{"message":"x","code":"{code}"}}}}"#));
        assert_eq!(coded("sk-abcdef").code, None);
        assert_eq!(
            coded("invalid_api_key").code.as_deref(),
            Some("invalid_api_key")
        );
    }

    /// Keys of this kind look like nothing.
    #[test]
    fn the_key_of_the_settings_is_left_out_however_it_is_written() {
        let key = Some("hunter/2+\"two\"");
        for text in [
            "your key is hunter/2+\"two\".",
            r#"your key is hunter/2+\"two\"."#,
            "your key is hunter%2F2%2B%22two%22.",
            "your key is hunter%2f2%2b%22two%22.",
        ] {
            assert_eq!(without_keys(text, key), "your key is •••.", "{text}");
        }
        let cut = [
            "your key is hunter/2+\"two\"",
            "your key is hunter/2+",
            "your key is hunt",
        ];
        for text in cut {
            assert_eq!(without_keys(text, key), "your key is •••", "{text}");
        }
        for other in ["your key is hun", "hunters pay", ""] {
            assert_eq!(without_keys(other, key), other);
            assert_eq!(without_keys(other, Some("")), other);
        }
        // The rest of a key that looks like one as well.
        let long = "ab+0123456789abcdef0123456789abcdef";
        assert_eq!(without_keys(&format!("<{long}>"), Some(long)), "<•••>");
    }

    /// A body is read up to a length, and its last word may be the first half of a key.
    #[test]
    fn a_key_that_a_body_is_cut_in_is_left_out() {
        let page = |behind: &str| {
            let tags = "<br>".repeat((READ - 24) / 4);
            format!("<p>{tags}key: 0123456789abc{behind}")
        };
        let excerpt = |page: &str| super::page(page.as_bytes()).expect("a page");
        let (whole, cut) = (page(" x"), page("def0123456789abcdef0123456789abcdef"));
        assert!(whole.len() < READ && cut.len() > READ);
        assert_eq!(excerpt(&whole), "key: 0123456789abc x");
        assert_eq!(excerpt(&cut), "key: •••");
        let many = "word ".repeat(READ);
        assert_eq!(line(&many).len(), READ);
        let many = format!("{}{}", "a ".repeat(READ / 2 - 4), "k1".repeat(9));
        assert!(line(&many).ends_with(" a •••"));
        assert_eq!(without_cut_key("Service Unavail"), "Service Unavail");
        assert_eq!(without_cut_key("of acc0unt"), "of •••");
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
            assert_eq!(for_log(message, &Said::of(sent)), logged);
        }
    }

    #[test]
    fn the_vocabulary_is_sorted_so_that_a_word_is_found_in_it() {
        assert!(VOCABULARY.is_sorted());
        assert!(VOCABULARY.iter().all(|word| word.to_lowercase() == **word));
    }
}
