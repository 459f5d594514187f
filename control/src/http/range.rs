//! Byte ranges of RFC 9110 section 14, as far as a file needs them: at most one range is served.

/// What part of a representation of known length a `Range` header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected {
    /// Everything, with 200: there is no range, or one that has to be ignored (another unit, bad
    /// syntax, several ranges: section 14.2 lets a server ignore the header).
    Whole,
    /// The bytes `first..=last`, with 206.
    Part { first: u64, last: u64 },
    /// None of the bytes, with 416.
    Unsatisfiable,
}

/// Reads a `Range` header for a representation of `length` bytes.
pub fn select(range: Option<&str>, length: u64) -> Selected {
    let Some((unit, set)) = range.and_then(|value| value.split_once('=')) else {
        return Selected::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Selected::Whole;
    }
    // A list may hold empty elements (section 5.6.1). More than one range is answered with the
    // whole: a client that sends hundreds gains nothing by it.
    let mut specs = set
        .split(',')
        .map(str::trim)
        .filter(|spec| !spec.is_empty());
    let (Some(spec), None) = (specs.next(), specs.next()) else {
        return Selected::Whole;
    };
    match parse(spec) {
        None => Selected::Whole,
        Some(Spec::From { first, last }) => {
            if first >= length {
                return Selected::Unsatisfiable;
            }
            Selected::Part {
                first,
                last: last.unwrap_or(u64::MAX).min(length - 1),
            }
        }
        Some(Spec::Suffix(count)) => {
            if count == 0 || length == 0 {
                return Selected::Unsatisfiable;
            }
            Selected::Part {
                first: length.saturating_sub(count),
                last: length - 1,
            }
        }
    }
}

/// Whether `If-Range` lets a range be served (section 13.1.5): only a strong tag that is the same, or
/// the very date that was sent as `Last-Modified`.
pub fn if_range_holds(if_range: Option<&str>, etag: &str, last_modified: &str) -> bool {
    match if_range.map(str::trim) {
        None => true,
        Some(value) if value.starts_with("W/") => false,
        Some(value) => value == etag || value == last_modified,
    }
}

/// Whether `If-None-Match` names the representation that the client would get (section 13.1.2; weak
/// comparison).
pub fn none_match_hits(if_none_match: Option<&str>, etag: &str) -> bool {
    if_none_match.is_some_and(|value| {
        value
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
    })
}

enum Spec {
    From { first: u64, last: Option<u64> },
    Suffix(u64),
}

fn parse(spec: &str) -> Option<Spec> {
    let (first, last) = spec.split_once('-')?;
    match (first, last) {
        ("", count) => Some(Spec::Suffix(digits(count)?)),
        (first, "") => Some(Spec::From {
            first: digits(first)?,
            last: None,
        }),
        (first, last) => {
            let (first, last) = (digits(first)?, digits(last)?);
            (first <= last).then_some(Spec::From {
                first,
                last: Some(last),
            })
        }
    }
}

/// Digits only; a number beyond what fits is as good as the largest.
fn digits(text: &str) -> Option<u64> {
    let whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    whole.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(first: u64, last: u64) -> Selected {
        Selected::Part { first, last }
    }

    #[test]
    fn ranges_of_a_thousand_bytes() {
        use Selected::{Unsatisfiable, Whole};
        let cases: &[(&str, Selected)] = &[
            ("bytes=0-0", part(0, 0)),
            ("bytes=0-499", part(0, 499)),
            ("bytes=500-999", part(500, 999)),
            ("bytes=500-", part(500, 999)),
            ("bytes=0-", part(0, 999)),
            ("bytes=999-", part(999, 999)),
            ("bytes=999-999", part(999, 999)),
            ("bytes=0-1000", part(0, 999)),
            ("bytes=0-99999999999999999999999999", part(0, 999)),
            ("bytes=-1", part(999, 999)),
            ("bytes=-500", part(500, 999)),
            ("bytes=-1000", part(0, 999)),
            ("bytes=-5000", part(0, 999)),
            ("bytes=-99999999999999999999999999", part(0, 999)),
            ("Bytes=0-1", part(0, 1)),
            ("BYTES=0-1", part(0, 1)),
            (" bytes=0-1", part(0, 1)),
            ("bytes= 0-1", part(0, 1)),
            ("bytes=0-1 ", part(0, 1)),
            ("bytes=,0-1,", part(0, 1)),
            ("bytes=000-001", part(0, 1)),
            ("bytes=1000-", Unsatisfiable),
            ("bytes=1000-1000", Unsatisfiable),
            ("bytes=1000-2000", Unsatisfiable),
            ("bytes=99999999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=500-499", Whole),
            ("bytes=1-0", Whole),
            ("bytes=", Whole),
            ("bytes=,", Whole),
            ("bytes=-", Whole),
            ("bytes=--1", Whole),
            ("bytes=a-b", Whole),
            ("bytes=0-b", Whole),
            ("bytes=+0-1", Whole),
            ("bytes=0x0-1", Whole),
            ("bytes=0 -1", Whole),
            ("bytes=0- 1", Whole),
            ("bytes=0", Whole),
            ("bytes 0-1", Whole),
            ("bytes", Whole),
            ("", Whole),
            ("items=0-1", Whole),
            ("bytes=0-1,5-6", Whole),
            ("bytes=0-0,0-0,0-0", Whole),
            ("bytes=5000-,-1", Whole),
            ("bytes=1.5-2", Whole),
            ("bytes=-1-2", Whole),
            ("bytes=٣-٤", Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(select(Some(header), 1000), *expected, "{header:?}");
        }
        assert_eq!(select(None, 1000), Whole);
        let many = format!("bytes={}", "0-,".repeat(1000));
        assert_eq!(select(Some(&many), 1000), Whole);
    }

    #[test]
    fn an_empty_representation_has_no_range() {
        for header in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"] {
            assert_eq!(select(Some(header), 0), Selected::Unsatisfiable, "{header}");
        }
    }

    #[test]
    fn if_range_takes_only_what_is_certainly_the_same() {
        let date = "Tue, 15 Nov 1994 12:45:26 GMT";
        assert!(if_range_holds(None, "\"a\"", date));
        assert!(if_range_holds(Some("\"a\""), "\"a\"", date));
        assert!(if_range_holds(Some(date), "\"a\"", date));
        assert!(!if_range_holds(Some("W/\"a\""), "\"a\"", date));
        assert!(!if_range_holds(Some("\"b\""), "\"a\"", date));
        assert!(!if_range_holds(
            Some("Tue, 15 Nov 1994 12:45:27 GMT"),
            "\"a\"",
            date
        ));
        assert!(!if_range_holds(Some(""), "\"a\"", date));
    }

    #[test]
    fn if_none_match_compares_weakly() {
        assert!(none_match_hits(Some("\"x\", W/\"a\""), "\"a\""));
        assert!(none_match_hits(Some("*"), "\"a\""));
        assert!(!none_match_hits(Some("\"b\""), "\"a\""));
        assert!(!none_match_hits(None, "\"a\""));
    }
}
