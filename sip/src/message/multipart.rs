//! Bodies of several parts (RFC 2046 5.1): which of them describes the session (RFC 5621). Carriers send
//! what ISDN said (ISUP) or where the caller is beside it.

use super::{Body, scan};

const SDP: &str = "application/sdp";

/// Parts that are looked at. A carrier sends two or three.
const MOST_PARTS: usize = 16;

/// RFC 2046 5.1.1.
const LONGEST_BOUNDARY: usize = 70;

/// Parts within parts that are looked into: a carrier wraps what it got once more.
const DEEPEST: usize = 3;

/// What the parts of a body say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The session description: of `multipart/alternative` the last, which is preferred (RFC 2046 5.1.4), of all
    /// others the first.
    description: Option<&'a [u8]>,
    /// The type of a part that must be understood and is not (RFC 3261 20.11).
    pub(super) required: Option<String>,
}

impl Parts<'_> {
    pub(super) fn session_description(&self) -> Option<Body> {
        self.description.map(|bytes| Body::new(SDP, bytes))
    }
}

/// The parts of a body with that `Content-Type`; `None` when it is no body of several.
pub(super) fn read<'a>(content_type: &str, bytes: &'a [u8]) -> Option<Parts<'a>> {
    is_multipart(content_type).then(|| {
        let mut left = MOST_PARTS;
        look_into(content_type, bytes, DEEPEST, &mut left)
    })
}

fn look_into<'a>(content_type: &str, bytes: &'a [u8], deep: usize, left: &mut usize) -> Parts<'a> {
    let mut found = Parts::default();
    let boundary = parameter(content_type, "boundary")
        .filter(|boundary| !boundary.is_empty() && boundary.len() <= LONGEST_BOUNDARY);
    let Some(boundary) = boundary else {
        return found;
    };
    let is_alternative = is(content_type, "multipart/alternative");
    for part in parts(&boundary, bytes) {
        let Some(fewer) = left.checked_sub(1) else {
            break;
        };
        *left = fewer;
        let Some(part) = Part::read(part) else {
            continue;
        };
        let (description, required) = match part.description() {
            Some(description) => (Some(description), None),
            None if deep > 1 && is_multipart(&part.content_type) => {
                let inner = look_into(&part.content_type, part.bytes, deep - 1, left);
                (inner.description, inner.required)
            }
            None => (None, part.is_required().then_some(part.content_type)),
        };
        // Of alternatives one is enough.
        if !is_alternative && found.required.is_none() {
            found.required = required;
        }
        if is_alternative || found.description.is_none() {
            found.description = description.or(found.description);
        }
    }
    found
}

pub(super) fn is_multipart(content_type: &str) -> bool {
    let kind = scan::trim(content_type).get(.."multipart/".len());
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
}

/// Whether a `Content-Type` is of that kind, whatever its parameters.
pub(super) fn is(content_type: &str, kind: &str) -> bool {
    scan::trim(content_type.split(';').next().unwrap_or_default()).eq_ignore_ascii_case(kind)
}

/// Whether a `Content-Disposition` says that what it describes may be passed over (RFC 3261 20.11).
pub(super) fn is_optional(disposition: &str) -> bool {
    parameter(disposition, "handling").is_some_and(|how| how.eq_ignore_ascii_case("optional"))
}

/// A parameter's value, quotes taken off. Boundaries often have characters that want quotes and stand
/// without.
fn parameter(value: &str, name: &str) -> Option<String> {
    scan::split(value, b';').skip(1).find_map(|parameter| {
        let (own, value) = parameter.split_once('=')?;
        scan::trim(own)
            .eq_ignore_ascii_case(name)
            .then(|| scan::unquote(scan::trim(value)))
    })
}

/// What stands between the delimiters. What is before the first and after the closing one is none; the last
/// part is whole without a closing one, too, for the length of the message says where it ends.
fn parts<'a>(boundary: &str, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut lines = Lines { bytes, at: 0 };
    let mut from = None;
    std::iter::from_fn(move || {
        loop {
            let start = lines.at;
            let Some(line) = lines.next() else {
                return bytes.get(from.take()?..);
            };
            let Some(closes) = delimiter(line, boundary) else {
                continue;
            };
            let part = from.and_then(|from| bytes.get(from..start));
            from = Some(lines.at);
            if closes {
                (from, lines.at) = (None, bytes.len());
            }
            if let Some(part) = part {
                // The line end before a delimiter is the delimiter's.
                let part = part.strip_suffix(b"\n").unwrap_or(part);
                return Some(part.strip_suffix(b"\r").unwrap_or(part));
            }
            if closes {
                return None;
            }
        }
    })
}

/// Whether a line is a delimiter, and then whether it is the closing one. White space may follow.
fn delimiter(line: &[u8], boundary: &str) -> Option<bool> {
    let rest = line
        .strip_prefix(b"--")?
        .strip_prefix(boundary.as_bytes())?;
    match rest.trim_ascii() {
        b"" => Some(false),
        b"--" => Some(true),
        // Another boundary that begins like this one.
        _ => None,
    }
}

/// One part: the fields that say what it is, and what it holds.
struct Part<'a> {
    content_type: String,
    disposition: String,
    /// As it was written; empty for plain bytes.
    encoding: String,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// `None`: its fields have no end.
    fn read(part: &'a [u8]) -> Option<Self> {
        let mut lines = Lines { bytes: part, at: 0 };
        let mut read = Self {
            content_type: String::new(),
            disposition: String::new(),
            encoding: String::new(),
            bytes: &[],
        };
        let mut folded = String::new();
        loop {
            let line = String::from_utf8_lossy(lines.next()?);
            if line.starts_with(scan::is_space) {
                folded.push_str(&line);
                continue;
            }
            let (name, value) = folded.split_once(':').unwrap_or_default();
            let (name, value) = (scan::trim(name), scan::trim(value));
            for (own, kept) in [
                ("Content-Type", &mut read.content_type),
                ("Content-Disposition", &mut read.disposition),
                ("Content-Transfer-Encoding", &mut read.encoding),
            ] {
                if name.eq_ignore_ascii_case(own) {
                    value.clone_into(kept);
                }
            }
            if line.is_empty() {
                break;
            }
            line.as_ref().clone_into(&mut folded);
        }
        read.bytes = part.get(lines.at..)?;
        Some(read)
    }

    /// What it holds, if that is the description of the session: in plain bytes, and for no other purpose than
    /// this session (such as the one that RFC 3959 has before the answer).
    fn description(&self) -> Option<&'a [u8]> {
        let is_plain = ["", "7bit", "8bit", "binary"]
            .iter()
            .any(|plain| self.encoding.eq_ignore_ascii_case(plain));
        let is_session = self.disposition.is_empty() || is(&self.disposition, "session");
        let is_sdp = is(&self.content_type, SDP);
        (is_sdp && is_session && is_plain && !self.bytes.is_empty()).then_some(self.bytes)
    }

    /// Whether the message must not be taken where this part is not understood. RFC 3261 20.11 has it so where
    /// nothing is said, too; carriers that say nothing of their ISUP do not mean it.
    fn is_required(&self) -> bool {
        let handling = parameter(&self.disposition, "handling");
        handling.is_some_and(|how| how.eq_ignore_ascii_case("required"))
    }
}

/// Lines without their ends, CRLF or LF; `at` is where the next one begins.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest);
        self.at += end.map_or(rest.len(), |end| end + 1);
        let line = rest.get(..end.unwrap_or(rest.len()))?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIXED: &str = "multipart/mixed;boundary=b1";
    const ISUP: &str = "Content-Type: application/isup;version=itu\n\
                        Content-Disposition: signal;handling=optional\n\n\u{1}\u{0}x";
    const PLAIN: &str = "Content-Type: application/sdp\n\nv=0\ns=-";

    /// The description that is found, its line ends as they are in a test.
    fn found(content_type: &str, text: &str) -> Option<String> {
        let of = |bytes: &[u8]| {
            let body = read(content_type, bytes)?.session_description()?;
            assert!(body.is(SDP));
            Some(String::from_utf8(body.bytes).unwrap().replace('\r', ""))
        };
        let lf = of(text.as_bytes());
        assert_eq!(lf, of(text.replace('\n', "\r\n").as_bytes()), "{text}");
        lf
    }

    #[test]
    fn the_session_is_read_out_of_whatever_stands_beside_it() {
        for text in [
            format!("--b1\n{PLAIN}\n--b1\n{ISUP}\n--b1--\n"),
            format!("--b1\n{ISUP}\n--b1\n{PLAIN}\n--b1--"),
            // Something before the first delimiter and after the last, white space, another boundary.
            format!("Hello\n--b1 \n{ISUP}\n--b12\n--b1\t\n{PLAIN}\n--b1--\n--b1\nbye"),
            // No closing delimiter.
            format!("--b1\n{ISUP}\n--b1\n{PLAIN}"),
            format!("--b1\n\nContent-Type: application/sdp\n\nv=1\n--b1\n{PLAIN}\n--b1--"),
            "--b1\ncontent-type:\n Application/SDP;charset=utf-8\nContent-Transfer-Encoding: 8BIT\n\
             Content-Disposition: session;handling=required\nContent-Length: 7\n\nv=0\ns=-\n--b1--"
                .to_owned(),
            // One for early media is not the session (RFC 3959).
            format!(
                "--b1\nContent-Disposition: early-session\n{}\n--b1\n{PLAIN}\n--b1--",
                PLAIN.replace("v=0", "v=1")
            ),
        ] {
            assert_eq!(found(MIXED, &text).as_deref(), Some("v=0\ns=-"), "{text}");
        }
    }

    #[test]
    fn boundaries_are_tokens_or_quoted_and_short() {
        let text = |boundary: &str| format!("--{boundary}\n{PLAIN}\n--{boundary}--");
        for (content_type, boundary) in [
            (
                "Multipart/Mixed; charset=x; Boundary = \"b;1, =x\"",
                "b;1, =x",
            ),
            ("multipart/mixed;boundary=----=_Part_1.2", "----=_Part_1.2"),
            ("multipart/mixed ;boundary=\"a\\\"b\"", "a\"b"),
        ] {
            assert!(
                found(content_type, &text(boundary)).is_some(),
                "{content_type}"
            );
        }
        let long = "x".repeat(71);
        for (content_type, boundary) in [
            ("multipart/mixed", ""),
            ("multipart/mixed;boundary=\"\"", ""),
            ("application/sdp;boundary=b1", "b1"),
            ("multipart;boundary=b1", "b1"),
            (
                format!("multipart/mixed;boundary={long}").as_str(),
                long.as_str(),
            ),
        ] {
            assert_eq!(found(content_type, &text(boundary)), None, "{content_type}");
        }
    }

    #[test]
    fn of_alternatives_the_last_is_taken_and_parts_of_parts_are_looked_into() {
        let (one, two) = (PLAIN, PLAIN.replace("v=0", "v=2"));
        let both = format!("--b1\n{one}\n--b1\n{two}\n--b1--");
        let alternative = "multipart/alternative;boundary=b1";
        assert_eq!(found(alternative, &both).as_deref(), Some("v=2\ns=-"));
        assert_eq!(found(MIXED, &both).as_deref(), Some("v=0\ns=-"));
        let nested = format!(
            "--b1\nContent-Type: multipart/alternative;boundary=b2\n\n--b2\n{PLAIN}\n--b2--\n--b1--"
        );
        assert_eq!(found(MIXED, &nested).as_deref(), Some("v=0\ns=-"));
        let alternatives = nested.replace(&format!("{PLAIN}\n"), &format!("{one}\n--b2\n{two}\n"));
        assert_eq!(found(MIXED, &alternatives).as_deref(), Some("v=2\ns=-"));
        let mut deep = PLAIN.to_owned();
        for level in (2..6).rev() {
            deep = format!(
                "Content-Type: multipart/mixed;boundary=b{level}\n\n--b{level}\n{deep}\n--b{level}--"
            );
        }
        assert_eq!(found(MIXED, &format!("--b1\n{deep}\n--b1--")), None);
        for none in [
            "",
            "--b1",
            "--b1--",
            "--b1\n--b1--",
            "--b1\nContent-Type: application/sdp",
            "--b1\nContent-Type: application/sdp\n\n--b1--",
            "--b1\nContent-Type: application/sdp\nContent-Transfer-Encoding: base64\n\ndj0w\n--b1--",
            "v=0\ns=-",
        ] {
            assert_eq!(found(MIXED, none), None, "{none}");
        }
        let many = format!("{}--b1\n{PLAIN}", format!("--b1\n{ISUP}\n").repeat(16));
        assert_eq!(found(MIXED, &many), None);
    }

    /// Any type of several parts may hold a session, whichever its parameters.
    #[test]
    fn a_session_is_found_in_parts_of_every_type() {
        let text = format!("preamble\n--b1\n{ISUP}\n--b1\n{PLAIN}\n--b1--\n");
        for kind in [
            "multipart/related;boundary=b1;type=\"application/sdp\";start=\"<a@b>\"",
            "Multipart/Related; type=application/sdp; boundary=\"b1\"",
            "multipart/alternative;boundary=b1",
            "MULTIPART/MIXED;Boundary=b1",
            "multipart/signed;micalg=sha1;boundary=b1",
            "multipart/x-carrier;boundary=b1",
        ] {
            assert_eq!(found(kind, &text).as_deref(), Some("v=0\ns=-"), "{kind}");
        }
        // Bytes beyond ASCII among the fields of a part are passed over.
        let mut bytes = b"--b1\r\nContent-Description: Ger\xe4t\r\n".to_vec();
        bytes.extend(b"Content-Type: application/sdp\r\n\r\nv=0\r\ns=-\r\n--b1--");
        let parts = read(MIXED, &bytes).unwrap();
        assert_eq!(parts.session_description(), Some(Body::sdp("v=0\r\ns=-")));
    }

    #[test]
    fn a_part_that_must_be_understood_is_told() {
        let part = |disposition: &str| {
            format!(
                "--b1\nContent-Type: application/x-unknown\n{disposition}\nx\n--b1\n{PLAIN}\n--b1--"
            )
        };
        for (disposition, required) in [
            ("Content-Disposition: signal;handling=required\n", true),
            ("content-disposition: x ; Handling = \"REQUIRED\"\n", true),
            ("Content-Disposition: signal;handling=optional\n", false),
            ("Content-Disposition: render\n", false),
            ("", false),
        ] {
            let text = part(disposition);
            let parts = read(MIXED, text.as_bytes()).unwrap();
            let told = required.then(|| "application/x-unknown".to_owned());
            assert_eq!(parts.required, told, "{disposition}");
            assert!(parts.session_description().is_some());
            // Of alternatives the other one is enough.
            let alternative = read("multipart/alternative;boundary=b1", text.as_bytes());
            assert_eq!(alternative.unwrap().required, None);
        }
        assert!(is_optional("session; handling=Optional"));
        assert!(!is_optional("session") && !is_optional("session;handling=required"));
    }

    proptest! {
        /// Whatever comes: no panic, and what is found stands in the body.
        #[test]
        fn any_bytes_are_read_to_their_end(
            content_type in "(multipart/(mixed|alternative);boundary=(b|\"b\"|\"|.{0,4})|.{0,20})",
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just(&b"--b"[..]), Just(&b"--b--"[..]), Just(&b"\r\n"[..]), Just(&b"\n"[..]),
                    Just(&b"\r"[..]), Just(&b"Content-Type:application/sdp"[..]), Just(&b" x"[..]),
                    Just(&b"\xff"[..]), Just(&b"-"[..]), Just(&b":"[..]), Just(&b"v=0"[..]),
                ],
                0..24,
            ),
        ) {
            let bytes = pieces.concat();
            let parts = read(&content_type, &bytes);
            if let Some(body) = parts.and_then(|parts| parts.session_description()) {
                prop_assert!(memchr::memmem::find(&bytes, &body.bytes).is_some());
            }
        }

        #[test]
        fn a_part_is_found_between_any_others(
            before in "[^-]{0,40}", after in "[^-]{0,40}", sdp in "v=0\r\n[a-z=\r\n]{0,40}x",
        ) {
            let text = format!(
                "--b1\r\nContent-Type: text/plain\r\n\r\n{before}\r\n--b1\r\n\
                 Content-Type: application/sdp\r\n\r\n{sdp}\r\n--b1\r\n\r\n{after}\r\n--b1--"
            );
            let body = read(MIXED, text.as_bytes()).unwrap().session_description();
            prop_assert_eq!(body, Some(Body::sdp(sdp)));
        }
    }
}
