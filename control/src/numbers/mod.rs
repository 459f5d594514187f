//! Phone numbers as text: their forms, and which spellings are one number. Pure; what an account registers stands in
//! [`crate::phone_numbers`].

pub mod spelling;

use crate::words::words;

words! {
    /// How the number that is called is written to the carrier.
    pub enum DialFormat {
        /// `+4930123456`.
        E164 = "e164",
        /// `4930123456`.
        Digits = "digits",
        /// `030123456`.
        National = "national",
    }
}

/// A phone number: `+`, a digit 1–9, 1 to 14 more digits (ITU-T E.164).
pub fn is_e164(text: &str) -> bool {
    let Some(digits) = text.strip_prefix('+') else {
        return false;
    };
    (2..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The digits of a number: `+4930123456` and `4930123456` are one.
pub fn digits(number: &str) -> &str {
    number.strip_prefix('+').unwrap_or(number)
}

/// Whether this is a number as carriers write them: E.164, or 3 to 20 digits.
pub fn is_wire_number(text: &str) -> bool {
    if text.starts_with('+') {
        return is_e164(text);
    }
    (3..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phone_numbers() {
        for good in ["+15550100", "+4912", "+123456789012345"] {
            assert!(is_e164(good), "{good}");
        }
        for bad in [
            "",
            "+",
            "+1",
            "15550100",
            "+05550100",
            "+1234567890123456",
            "+1 555",
            "+١٢٣",
        ] {
            assert!(!is_e164(bad), "{bad}");
        }
    }

    #[test]
    fn numbers_of_carriers() {
        for good in ["+4930123456", "4930123456", "030123456", "100"] {
            assert!(is_wire_number(good), "{good}");
        }
        for bad in [
            "",
            "10",
            "+0301234",
            "+49 30",
            "sip:1@x",
            "123456789012345678901",
            "12a",
        ] {
            assert!(!is_wire_number(bad), "{bad}");
        }
    }
}
