//! The countries a voice can be of: a closed set, sorted by code (document 2, GET /voices/countries).

/// ISO 3166-1 alpha-2 code and display name.
#[rustfmt::skip]
pub const COUNTRIES: [(&str, &str); 149] = [
    ("AE", "United Arab Emirates"), ("AF", "Afghanistan"), ("AL", "Albania"), ("AM", "Armenia"),
    ("AO", "Angola"), ("AR", "Argentina"), ("AT", "Austria"), ("AU", "Australia"), ("AZ", "Azerbaijan"),
    ("BA", "Bosnia and Herzegovina"), ("BB", "Barbados"), ("BD", "Bangladesh"), ("BE", "Belgium"),
    ("BF", "Burkina Faso"), ("BG", "Bulgaria"), ("BH", "Bahrain"), ("BJ", "Benin"), ("BN", "Brunei"),
    ("BO", "Bolivia"), ("BR", "Brazil"), ("BS", "Bahamas"), ("BW", "Botswana"), ("BY", "Belarus"),
    ("CA", "Canada"), ("CD", "DR Congo"), ("CG", "Republic of the Congo"), ("CH", "Switzerland"),
    ("CI", "Côte d'Ivoire"), ("CL", "Chile"), ("CM", "Cameroon"), ("CN", "China"), ("CO", "Colombia"),
    ("CR", "Costa Rica"), ("CU", "Cuba"), ("CY", "Cyprus"), ("CZ", "Czechia"), ("DE", "Germany"),
    ("DK", "Denmark"), ("DO", "Dominican Republic"), ("DZ", "Algeria"), ("EC", "Ecuador"), ("EE", "Estonia"),
    ("EG", "Egypt"), ("ES", "Spain"), ("ET", "Ethiopia"), ("FI", "Finland"), ("FR", "France"),
    ("GA", "Gabon"), ("GB", "United Kingdom"), ("GE", "Georgia"), ("GH", "Ghana"), ("GN", "Guinea"),
    ("GR", "Greece"), ("GT", "Guatemala"), ("GY", "Guyana"), ("HK", "Hong Kong"), ("HN", "Honduras"),
    ("HR", "Croatia"), ("HT", "Haiti"), ("HU", "Hungary"), ("ID", "Indonesia"), ("IE", "Ireland"),
    ("IL", "Israel"), ("IN", "India"), ("IQ", "Iraq"), ("IR", "Iran"), ("IS", "Iceland"), ("IT", "Italy"),
    ("JM", "Jamaica"), ("JO", "Jordan"), ("JP", "Japan"), ("KE", "Kenya"), ("KG", "Kyrgyzstan"),
    ("KH", "Cambodia"), ("KR", "South Korea"), ("KW", "Kuwait"), ("KZ", "Kazakhstan"), ("LA", "Laos"),
    ("LB", "Lebanon"), ("LK", "Sri Lanka"), ("LT", "Lithuania"), ("LU", "Luxembourg"), ("LV", "Latvia"),
    ("LY", "Libya"), ("MA", "Morocco"), ("MD", "Moldova"), ("ME", "Montenegro"), ("MG", "Madagascar"),
    ("MK", "North Macedonia"), ("ML", "Mali"), ("MM", "Myanmar"), ("MN", "Mongolia"), ("MR", "Mauritania"),
    ("MT", "Malta"), ("MU", "Mauritius"), ("MW", "Malawi"), ("MX", "Mexico"), ("MY", "Malaysia"),
    ("MZ", "Mozambique"), ("NA", "Namibia"), ("NE", "Niger"), ("NG", "Nigeria"), ("NI", "Nicaragua"),
    ("NL", "Netherlands"), ("NO", "Norway"), ("NP", "Nepal"), ("NZ", "New Zealand"), ("OM", "Oman"),
    ("PA", "Panama"), ("PE", "Peru"), ("PH", "Philippines"), ("PK", "Pakistan"), ("PL", "Poland"),
    ("PR", "Puerto Rico"), ("PS", "Palestine"), ("PT", "Portugal"), ("PY", "Paraguay"), ("QA", "Qatar"),
    ("RO", "Romania"), ("RS", "Serbia"), ("RU", "Russia"), ("RW", "Rwanda"), ("SA", "Saudi Arabia"),
    ("SD", "Sudan"), ("SE", "Sweden"), ("SG", "Singapore"), ("SI", "Slovenia"), ("SK", "Slovakia"),
    ("SN", "Senegal"), ("SV", "El Salvador"), ("SY", "Syria"), ("TG", "Togo"), ("TH", "Thailand"),
    ("TJ", "Tajikistan"), ("TN", "Tunisia"), ("TR", "Türkiye"), ("TT", "Trinidad and Tobago"),
    ("TW", "Taiwan"), ("TZ", "Tanzania"), ("UA", "Ukraine"), ("UG", "Uganda"), ("US", "United States"),
    ("UY", "Uruguay"), ("UZ", "Uzbekistan"), ("VE", "Venezuela"), ("VN", "Vietnam"), ("ZA", "South Africa"),
    ("ZM", "Zambia"), ("ZW", "Zimbabwe"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_by_code_each_once_and_well_formed() {
        assert!(COUNTRIES.is_sorted_by(|(a, _), (b, _)| a < b));
        for (code, name) in COUNTRIES {
            assert!(
                code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_uppercase()),
                "{code}"
            );
            assert!(!name.is_empty() && name.trim() == name, "{code}");
        }
    }
}
