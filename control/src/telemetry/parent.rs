//! `traceparent`: whose trace a call belongs to (W3C Trace Context, section 3.2). Pure.

/// Version 0 has 55 characters; a later one that is much longer is not kept.
const LONGEST: usize = 256;

/// A parent that another system named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Its owner keeps the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the header's value; `None`: it is none, and a trace of one's own begins.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parts = text.trim().split('-');
        let version = hex::<1>(parts.next()?)?[0];
        let trace = hex(parts.next()?)?;
        let span = hex(parts.next()?)?;
        let flags = hex::<1>(parts.next()?)?[0];
        // Version 0 has four parts; later ones may have more behind them, 255 is none.
        let whole = version != 0 || parts.next().is_none();
        let known = version != 255 && trace != [0; 16] && span != [0; 8];
        (whole && known).then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }
}

/// Lower-case digits, two a byte.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_read() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = TraceParent::parse(text);
        let expected = TraceParent {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
            span: 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes(),
            sampled: true,
        };
        assert_eq!(parent, Some(expected));
        let later = format!("01{}-what-comes-later", &text[2..]);
        assert_eq!(TraceParent::parse(&later), Some(expected));
        let longer = format!("01{}-{}", &text[2..], "x".repeat(LONGEST));
        assert_eq!(TraceParent::parse(&longer), None);
        let unsampled = format!("{}00", &text[..text.len() - 2]);
        assert_eq!(
            TraceParent::parse(&unsampled).map(|parent| parent.sampled),
            Some(false)
        );
    }

    #[test]
    fn what_is_none_is_left() {
        for text in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-é4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
