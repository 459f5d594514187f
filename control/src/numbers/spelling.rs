//! How a number that is called is written to the carrier, and which spellings of it are one number. Pure.

use std::borrow::Cow;

use phonenumber::Mode;
use phonenumber::metadata::DATABASE;

use super::{DialFormat, is_e164};

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
fn national(text: &str) -> Option<String> {
    let number = phonenumber::parse(None, text).ok()?;
    let dialled = digits(&number.format().mode(Mode::National).to_string());
    let known = number.is_valid() && !NO_COUNTRY.contains(&number.code().value());
    // Of another spelling: whoever judged this text has not judged what would be dialled.
    let same = number.format().mode(Mode::E164).to_string() == text;
    (known && same).then_some(dialled)
}

/// A number (E.164) as it is compared: who must not be called is not called by another spelling either.
pub fn canonical(number: &str) -> Cow<'_, str> {
    right_spelling(number).map_or(Cow::Borrowed(number), Cow::Owned)
}

/// `+4930123456` of `+49030123456`: what stands before a country's numbers within it does not follow its code, and
/// carriers leave it out. `None`: nothing is known to be wrong with it. Italy's 0 is part of its numbers.
pub fn right_spelling(number: &str) -> Option<String> {
    // Strangers dial anything.
    if !is_e164(number) {
        return None;
    }
    let mut right = without_prefix(number)?;
    // Each is shorter than the one before.
    while let Some(shorter) = without_prefix(&right) {
        right = shorter;
    }
    is_valid(&right).then_some(right)
}

/// The number once with what its country dials before it, the way in which [`right_spelling`] finds it wrong.
pub fn with_prefix(number: &str) -> Option<String> {
    let parsed = phonenumber::parse(None, number).ok()?;
    let prefix = parsed.metadata(&DATABASE)?.national_prefix()?;
    let code = parsed.code().value().to_string();
    let own = number.strip_prefix('+')?.strip_prefix(&code)?;
    Some(format!("+{code}{prefix}{own}"))
}

/// The number without one prefix, if it has any.
fn without_prefix(text: &str) -> Option<String> {
    let number = phonenumber::parse(None, text).ok()?;
    let read = number.format().mode(Mode::E164).to_string();
    if read != text {
        return (read.len() < text.len()).then_some(read);
    }
    if number.is_valid() {
        return None;
    }
    // The library takes a prefix only where it knows the country by what follows it.
    let code = number.code().value();
    let own = text.strip_prefix('+')?.strip_prefix(&code.to_string())?;
    DATABASE
        .by_code(&code)?
        .iter()
        .filter_map(|country| country.national_prefix())
        .find_map(|prefix| own.strip_prefix(prefix))
        .map(|own| format!("+{code}{own}"))
}

fn is_valid(text: &str) -> bool {
    phonenumber::parse(None, text).is_ok_and(|number| number.is_valid())
}

/// Whether a carrier that dials this means the number: as its own country dials it, from abroad, after the
/// `00` of most countries (ITU-T E.164), or with its country's prefix behind the code.
pub fn means(dialled: &str, number: &str) -> bool {
    let digits = number.strip_prefix('+').unwrap_or(number);
    let whole = format!("+{digits}");
    dialled.strip_prefix("00") == Some(digits)
        || national(&whole).as_deref() == Some(dialled)
        || right_spelling(dialled).as_ref() == Some(&whole)
}

/// What somebody means who dials this where the `neighbour` is (E.164).
pub fn dialled_beside(neighbour: &str, dialled: &str) -> Option<String> {
    let home = phonenumber::parse(None, neighbour).ok()?.country().id()?;
    let number = phonenumber::parse(Some(home), dialled).ok()?;
    let number = number.format().mode(Mode::E164).to_string();
    means(dialled, &number).then_some(number)
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
    fn a_prefix_behind_the_country_code_is_another_spelling_of_the_number() {
        for (text, right) in [
            ("+49030123456", "+4930123456"),
            ("+490030123456", "+4930123456"),
            ("+4900030123456", "+4930123456"),
            ("+4402079460018", "+442079460018"),
            ("+4409098790000", "+449098790000"),
            ("+330123456789", "+33123456789"),
            ("+784951234567", "+74951234567"),
            ("+112025550123", "+12025550123"),
            ("+360612345678", "+3612345678"),
        ] {
            assert_eq!(right_spelling(text).as_deref(), Some(right), "{text}");
            assert_eq!(canonical(text), right);
            // Whoever judged another spelling has not judged this call.
            assert_eq!(written(text, DialFormat::National), None, "{text}");
            assert_eq!(canonical(right), right);
        }
        assert_eq!(with_prefix("+4930123456").as_deref(), Some("+49030123456"));
        assert_eq!(with_prefix("+390612345678"), None);
    }

    #[test]
    fn what_is_right_or_unknown_stays_as_it_is() {
        for text in [
            "+4930123456",
            // Numbers that begin with 0.
            "+390612345678",
            "+3780549886377",
            "+2250701234567",
            "+242061234567",
            // Toll-free numbers that begin with what Russia and Belarus dial before others.
            "+78001234567",
            "+3758001234567",
            "+15550100",
            "+80012345678",
            "+883512345678",
            "+999123456789",
            "+2101234567",
            "+49112",
            "+4900",
            "+12",
            "+1",
            "+",
            "",
        ] {
            assert_eq!(right_spelling(text), None, "{text}");
            assert_eq!(canonical(text), text);
        }
        for country in DATABASE.iter() {
            let plan = country.descriptors();
            let kinds = [
                Some(plan.general()),
                plan.fixed_line(),
                plan.mobile(),
                plan.toll_free(),
                plan.premium_rate(),
                plan.shared_cost(),
                plan.voip(),
            ];
            for example in kinds
                .into_iter()
                .flatten()
                .filter_map(|kind| kind.example())
            {
                let text = format!("+{}{example}", country.country_code());
                assert_eq!(right_spelling(&text), None, "{text}");
            }
        }
    }

    #[test]
    fn a_number_is_meant_as_its_country_or_the_rest_of_the_world_dials_it() {
        for (dialled, number, meant) in [
            ("030123456", "+4930123456", true),
            ("030123456", "4930123456", true),
            ("004930123456", "+4930123456", true),
            ("2025550123", "+12025550123", true),
            ("84951234567", "+74951234567", true),
            ("+49030123456", "+4930123456", true),
            ("+4930123456", "+49030123456", false),
            ("030123456", "+49030123456", false),
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
