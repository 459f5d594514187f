//! What a filter of `GET /voices` selects, and the closed vocabulary of tags. Pure.

use super::catalogue::Voice;

/// The tag vocabulary: category, tokens. Any token of any category is a valid `tag` filter.
pub const TAGS: [(&str, &[&str]); 4] = [
    (
        "tone",
        &[
            "calm",
            "cheerful",
            "confident",
            "friendly",
            "neutral",
            "serious",
            "warm",
        ],
    ),
    (
        "voice_texture",
        &["bright", "clear", "crisp", "deep", "husky", "soft"],
    ),
    (
        "delivery_style",
        &["brisk", "conversational", "formal", "measured"],
    ),
    (
        "business_persona",
        &[
            "advisor",
            "concierge",
            "dispatcher",
            "receptionist",
            "sales",
            "support_agent",
        ],
    ),
];

/// The filters of `GET /voices`. Blank is no filter; a value that nobody has selects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub language: Option<String>,
    pub supports_dialect_style: Option<bool>,
    /// Case-sensitive.
    pub tag: Option<String>,
    /// Any case.
    pub country: Option<String>,
}

impl Filter {
    /// Whether the voice passes every filter.
    pub fn admits(&self, voice: &Voice) -> bool {
        let Self {
            language,
            supports_dialect_style,
            tag,
            country,
        } = self;
        given(language).is_none_or(|language| voice.language == language)
            && supports_dialect_style.is_none_or(|wanted| voice.supports_dialect_style() == wanted)
            && given(tag).is_none_or(|tag| voice.tags.contains(&tag))
            && given(country).is_none_or(|country| voice.country.eq_ignore_ascii_case(country))
    }
}

fn given(filter: &Option<String>) -> Option<&str> {
    filter
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voices::catalogue::all;

    #[track_caller]
    fn check(filter: Filter, expect: impl Fn(&Voice) -> bool) {
        for voice in all() {
            assert_eq!(
                filter.admits(voice),
                expect(voice),
                "{filter:?} {}",
                voice.key
            );
        }
    }

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    #[test]
    fn blank_is_no_filter_and_unknown_selects_nothing() {
        check(Filter::default(), |_| true);
        check(
            Filter {
                tag: text(""),
                country: text(" "),
                ..Filter::default()
            },
            |_| true,
        );
        check(
            Filter {
                language: text("klingon"),
                ..Filter::default()
            },
            |_| false,
        );
        check(
            Filter {
                tag: text("purple"),
                ..Filter::default()
            },
            |_| false,
        );
        check(
            Filter {
                country: text("ZZ"),
                ..Filter::default()
            },
            |_| false,
        );
    }

    #[test]
    fn a_tag_keeps_its_case_a_country_does_not() {
        check(
            Filter {
                tag: text("warm"),
                ..Filter::default()
            },
            |voice| voice.tags.contains(&"warm"),
        );
        check(
            Filter {
                tag: text("Warm"),
                ..Filter::default()
            },
            |_| false,
        );
        check(
            Filter {
                country: text("gb"),
                ..Filter::default()
            },
            |voice| voice.country == "GB",
        );
    }

    #[test]
    fn filters_add_up() {
        let filter = Filter {
            language: text("french"),
            country: text("ch"),
            ..Filter::default()
        };
        check(filter, |voice| voice.key.starts_with("espeak-fr-ch"));
        check(
            Filter {
                supports_dialect_style: Some(true),
                ..Filter::default()
            },
            |voice| {
                let general = ["en-gb-female", "en-gb-male", "en-us-female", "en-us-male"];
                voice
                    .key
                    .strip_prefix("espeak-")
                    .is_some_and(|key| general.contains(&key))
            },
        );
        check(
            Filter {
                supports_dialect_style: Some(false),
                ..Filter::default()
            },
            |voice| !voice.supports_dialect_style(),
        );
    }

    #[test]
    fn no_token_stands_in_two_categories() {
        let mut tokens: Vec<&str> = TAGS
            .iter()
            .flat_map(|(_, tokens)| *tokens)
            .copied()
            .collect();
        let all = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), all);
    }
}
