//! Bodies of several parts (RFC 2046 5.1): which of them describes the session (RFC 5621). Carriers send
//! what ISDN said (ISUP) or where the caller is beside it.

use super::{Body, scan};

const SDP: &str = "application/sdp";

/// Parts that are looked at. A carrier sends two or three.
const MOST_PARTS: usize = 16;

/// RFC 2046 5.1.1.
const LONGEST_BOUNDARY: usize = 70;

/// The session description among the parts of a body with that `Content-Type`: of `multipart/mixed` the
/// first, of `multipart/alternative` the last, which is preferred (RFC 2046 5.1.4). `None` for a body of
/// another type or without one. Parts that have parts themselves are not looked into.
pub(super) fn session_description(content_type: &str, bytes: &[u8]) -> Option<Body> {
    let mixed = is(content_type, "multipart/mixed");
    if !mixed && !is(content_type, "multipart/alternative") {
        return None;
    }
    let boundary = parameter(content_type, "boundary")?;
    if boundary.is_empty() || boundary.len() > LONGEST_BOUNDARY {
        return None;
    }
    let mut descriptions = parts(&boundary, bytes)
        .take(MOST_PARTS)
        .filter_map(description);
    let bytes = match mixed {
        true => descriptions.next(),
        false => descriptions.last(),
    };
    Some(Body::new(SDP, bytes?))
}

/// Whether a `Content-Type` is of that kind, whatever its parameters.
pub(super) fn is(content_type: &str, kind: &str) -> bool {
    scan::trim(content_type.split(';').next().unwrap_or_default()).eq_ignore_ascii_case(kind)
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

/// What a part holds, if that is the description of the session: in plain bytes, and for no other purpose
/// than this session (such as the one that RFC 3959 has before the answer).
fn description(part: &[u8]) -> Option<&[u8]> {
    let mut lines = Lines { bytes: part, at: 0 };
    let (mut is_sdp, mut is_session) = (false, true);
    let mut folded = String::new();
    loop {
        let line = std::str::from_utf8(lines.next()?).ok()?;
        if line.starts_with(scan::is_space) {
            folded.push_str(line);
            continue;
        }
        let (name, value) = folded.split_once(':').unwrap_or_default();
        let (name, value) = (scan::trim(name), scan::trim(value));
        if name.eq_ignore_ascii_case("Content-Type") {
            is_sdp = is(value, SDP);
        } else if name.eq_ignore_ascii_case("Content-Disposition") {
            is_session = is(value, "session");
        } else if name.eq_ignore_ascii_case("Content-Transfer-Encoding")
            && !["7bit", "8bit", "binary"]
                .iter()
                .any(|plain| value.eq_ignore_ascii_case(plain))
        {
            return None;
        }
        if line.is_empty() {
            break;
        }
        line.clone_into(&mut folded);
    }
    let bytes = part.get(lines.at..)?;
    (is_sdp && is_session && !bytes.is_empty()).then_some(bytes)
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
            let body = session_description(content_type, bytes)?;
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
            ("multipart/related;boundary=b1", "b1"),
            ("application/sdp;boundary=b1", "b1"),
            (
                format!("multipart/mixed;boundary={long}").as_str(),
                long.as_str(),
            ),
        ] {
            assert_eq!(found(content_type, &text(boundary)), None, "{content_type}");
        }
    }

    #[test]
    fn of_alternatives_the_last_is_taken_and_parts_of_parts_are_left() {
        let (one, two) = (PLAIN, PLAIN.replace("v=0", "v=2"));
        let both = format!("--b1\n{one}\n--b1\n{two}\n--b1--");
        let alternative = "multipart/alternative;boundary=b1";
        assert_eq!(found(alternative, &both).as_deref(), Some("v=2\ns=-"));
        assert_eq!(found(MIXED, &both).as_deref(), Some("v=0\ns=-"));
        let nested = format!(
            "--b1\nContent-Type: multipart/alternative;boundary=b2\n\n--b2\n{PLAIN}\n--b2--\n--b1--"
        );
        assert_eq!(found(MIXED, &nested), None);
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
            if let Some(body) = session_description(&content_type, &bytes) {
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
            let body = session_description(MIXED, text.as_bytes());
            prop_assert_eq!(body, Some(Body::sdp(sdp)));
        }
    }
}
