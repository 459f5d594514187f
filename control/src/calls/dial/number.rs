//! How a number that is called is written to the carrier. Pure.

use phonenumber::Mode;

use crate::sip_trunks::DialFormat;

/// The country codes of no country: services of the whole world (ITU-T E.164, list of assigned codes).
const NO_COUNTRY: &[u16] = &[800, 808, 870, 878, 881, 882, 883, 888, 979];

/// The number (E.164) in a trunk's format. `None`: it has no national form, for it belongs to no country or
/// is none that its country knows.
pub fn written(number: &str, format: DialFormat) -> Option<String> {
    match format {
        DialFormat::E164 => Some(number.to_owned()),
        DialFormat::Digits => Some(digits(number)),
        DialFormat::National => national(number),
    }
}

/// As somebody within the country dials it, without blanks: `030123456` of `+4930123456`. What the
/// country's plan does not know is not dialled: `+49112` would be `112`, which is another call.
fn national(number: &str) -> Option<String> {
    let number = phonenumber::parse(None, number).ok()?;
    let dialled = digits(&number.format().mode(Mode::National).to_string());
    let known = number.is_valid() && !NO_COUNTRY.contains(&number.code().value());
    known.then_some(dialled)
}

/// Whether a carrier that dials this means the number: as its own country dials it, or from abroad, after the
/// `00` of most countries (ITU-T E.164).
pub fn means(dialled: &str, number: &str) -> bool {
    let digits = number.strip_prefix('+').unwrap_or(number);
    dialled.strip_prefix("00") == Some(digits)
        || national(&format!("+{digits}")).as_deref() == Some(dialled)
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e164_and_digits_differ_by_the_plus() {
        assert_eq!(
            written("+4930123456", DialFormat::E164).as_deref(),
            Some("+4930123456")
        );
        assert_eq!(
            written("+4930123456", DialFormat::Digits).as_deref(),
            Some("4930123456")
        );
    }

    #[test]
    fn national_is_as_a_neighbour_dials() {
        for (number, dialled) in [
            // Germany, France, Britain: 0. North America, Spain, Poland, Denmark: nothing.
            ("+4930123456", "030123456"),
            ("+33123456789", "0123456789"),
            ("+442079460018", "02079460018"),
            ("+12025550123", "2025550123"),
            ("+34912345678", "912345678"),
            ("+48221234567", "221234567"),
            ("+4532123456", "32123456"),
            // Italy's own 0 is part of the number, and a mobile has none.
            ("+390612345678", "0612345678"),
            ("+393123456789", "3123456789"),
            // Hungary: 06; Russia: 8.
            ("+3612345678", "0612345678"),
            ("+74951234567", "84951234567"),
        ] {
            assert_eq!(
                written(number, DialFormat::National).as_deref(),
                Some(dialled),
                "{number}"
            );
        }
    }

    #[test]
    fn a_number_is_meant_as_its_country_or_the_rest_of_the_world_dials_it() {
        for (dialled, number, meant) in [
            ("030123456", "+4930123456", true),
            ("030123456", "4930123456", true),
            ("004930123456", "+4930123456", true),
            ("2025550123", "+12025550123", true),
            // It only ends so.
            ("4930123456", "994930123456", false),
            ("+4930123456", "994930123456", false),
            ("030123456", "994930123456", false),
            ("30123456", "+4930123456", false),
            ("0123456", "+4930123456", false),
            ("112", "+49112", false),
            ("", "+4930123456", false),
        ] {
            assert_eq!(means(dialled, number), meant, "{dialled} of {number}");
        }
    }

    #[test]
    fn a_number_of_no_country_or_no_plan_has_no_national_form() {
        for number in [
            "+999123456789",
            "+2101234567",
            "+1",
            "+80012345678",
            "+883512345678",
            // Of a country, but no number of its plan.
            "+49112",
            "+12345",
        ] {
            assert_eq!(written(number, DialFormat::National), None, "{number}");
        }
    }
}
