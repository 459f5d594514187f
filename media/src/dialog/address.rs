//! Web and e-mail addresses as people say them: `https://www.example.com/help` is "example dot com slash help".

use crate::config::Language;

/// Ends of host names that are told from a forgotten blank between two sentences ("open.It"). An address
/// with a scheme, with `www.` or with an `@` may end in any other.
const ENDS: &[&str] = &[
    "ai", "app", "bank", "biz", "ca", "ch", "cloud", "co", "com", "de", "dev", "edu", "es", "eu",
    "fr", "gov", "health", "hotel", "info", "io", "net", "nl", "online", "org", "qc", "shop",
    "site", "store", "tech", "travel", "uk",
];

/// A path longer than this (characters) is nothing that a listener could follow: the host is said alone.
const LONGEST_PATH: usize = 40;

/// The address in words; `None`: the text is no address.
pub(super) fn said(text: &str, language: Language) -> Option<String> {
    let words = Words::of(language);
    let text = without_prefix(text, "mailto:").unwrap_or(text);
    if let Some((local, host)) = text.split_once('@') {
        let host = host.split('?').next().unwrap_or_default();
        let is_local = |c: char| c.is_alphanumeric() || "._%+-'".contains(c);
        let fits = !local.is_empty() && local.chars().all(is_local) && is_host(host);
        return fits.then(|| format!("{} {} {}", words.spell(local), words.at, words.spell(host)));
    }
    let schemes = ["https://", "http://", "ftp://", "wss://", "ws://"];
    let after = schemes
        .iter()
        .find_map(|scheme| without_prefix(text, scheme));
    let named = after.is_some();
    let rest = after.unwrap_or(text);
    let without_www = without_prefix(rest, "www.");
    let named = named || without_www.is_some();
    let rest = without_www.unwrap_or(rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let is_port = port.chars().all(|c| c.is_ascii_digit());
    let is_known = || {
        host.rsplit_once('.')
            .is_some_and(|(_, end)| ENDS.contains(&end))
    };
    let fits = is_host(host) || (after.is_some() && is_label(host));
    if !fits || !is_port || !(named || is_known()) {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = path.trim_matches('/');
    let mut said = words.spell(host);
    if !path.is_empty() && path.chars().count() <= LONGEST_PATH {
        for part in path.split('/').filter(|part| !part.is_empty()) {
            said = format!("{said} {} {}", words.slash, words.spell(part));
        }
    }
    Some(said)
}

/// The text after this prefix, whose case does not matter.
fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let begins = text.get(..prefix.len())?;
    begins
        .eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

fn is_host(host: &str) -> bool {
    host.contains('.') && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-')
}

/// What the marks of an address are called.
struct Words {
    dot: &'static str,
    at: &'static str,
    slash: &'static str,
    dash: &'static str,
    underscore: &'static str,
}

impl Words {
    const fn of(language: Language) -> Self {
        match language {
            Language::English => Self {
                dot: "dot",
                at: "at",
                slash: "slash",
                dash: "dash",
                underscore: "underscore",
            },
            Language::French => Self {
                dot: "point",
                at: "arobase",
                slash: "slash",
                dash: "tiret",
                underscore: "tiret bas",
            },
        }
    }

    fn spell(&self, part: &str) -> String {
        let mut said = String::with_capacity(part.len() + 16);
        for c in part.chars() {
            let word = match c {
                '.' => self.dot,
                '-' => self.dash,
                '_' => self.underscore,
                '+' => "plus",
                _ => {
                    said.push(c);
                    continue;
                }
            };
            if !said.is_empty() && !said.ends_with(' ') {
                said.push(' ');
            }
            said.push_str(word);
            said.push(' ');
        }
        said.truncate(said.trim_end().len());
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_said_as_people_say_them() {
        for (text, english, french) in [
            ("example.com", "example dot com", "example point com"),
            ("www.example.com", "example dot com", "example point com"),
            (
                "https://www.Example.com/",
                "Example dot com",
                "Example point com",
            ),
            (
                "HTTP://my-shop.co.uk/opening_hours?x=1#top",
                "my dash shop dot co dot uk slash opening underscore hours",
                "my tiret shop point co point uk slash opening tiret bas hours",
            ),
            (
                "http://localhost:8080/a/b",
                "localhost slash a slash b",
                "localhost slash a slash b",
            ),
            (
                "jane.doe+news@mail.example.org",
                "jane dot doe plus news at mail dot example dot org",
                "jane point doe plus news arobase mail point example point org",
            ),
            (
                "mailto:info@exemple.fr",
                "info at exemple dot fr",
                "info arobase exemple point fr",
            ),
            (
                "https://example.museum",
                "example dot museum",
                "example point museum",
            ),
            (
                "https://example.com/0123456789012345678901234567890123456789x",
                "example dot com",
                "example point com",
            ),
        ] {
            assert_eq!(said(text, Language::English).as_deref(), Some(english));
            assert_eq!(said(text, Language::French).as_deref(), Some(french));
        }
    }

    #[test]
    fn what_only_looks_like_an_address_is_none() {
        for text in [
            "3.50",
            "open.It",
            "e.g.",
            "Node.js",
            "and/or",
            "@",
            "a@b",
            "@sidetone",
            "10:30",
            "http://",
            "u.s.",
            "...",
            "1.",
        ] {
            assert_eq!(said(text, Language::English), None, "{text}");
        }
    }
}
