//! Dialect styles of the offline voices: another accent of the same speaker. Pure.
//!
//! espeak-ng has several accents of British and of American English. A general voice of either country
//! speaks them with its own pitch and timbre: `formal` is the accent of newsreaders, `local` a regional
//! one, `mixed` its own. A voice that is regional already has no styles, and a style that a voice has
//! not got leaves it as it is.

use super::catalogue::{Engine, Voice};

/// The styles, in the order in which the API names them.
const STYLES: &[&str] = &["formal", "mixed", "local"];

/// espeak-ng's accents of a country, in the order of [`STYLES`].
const ACCENTS: &[(&str, [&str; 3])] = &[
    ("GB", ["en-gb-x-rp", "en-gb", "en-gb-x-gbclan"]),
    ("US", ["en-us", "en-us", "en-us-nyc"]),
];

impl Voice {
    /// Whether `dialect_style` changes how it sounds.
    pub fn supports_dialect_style(&self) -> bool {
        !self.dialect_styles().is_empty()
    }

    /// The styles that it has.
    pub fn dialect_styles(&self) -> &'static [&'static str] {
        match self.engine {
            Engine::Espeak { name, .. } if accents(self.country, name).is_some() => STYLES,
            _ => &[],
        }
    }

    /// The voice in this style; as it is where it has no such style.
    #[must_use]
    pub fn styled(&self, style: Option<&str>) -> Self {
        let mut voice = *self;
        let place = style.and_then(|style| STYLES.iter().position(|known| *known == style));
        if let (Engine::Espeak { name, .. }, Some(place)) = (&mut voice.engine, place)
            && let Some(accent) = accents(self.country, name).and_then(|all| all.get(place))
        {
            *name = with_variant(accent, name);
        }
        voice
    }
}

/// The accents of a voice of this country that speaks the general one.
fn accents(country: &str, name: &str) -> Option<&'static [&'static str; 3]> {
    let own = name.split('+').next().unwrap_or(name);
    ACCENTS
        .iter()
        .find(|(of, [_, general, _])| *of == country && *general == own)
        .map(|(_, accents)| accents)
}

/// The accent with the speaker's variant (`+f3`), as one of espeak-ng's names.
fn with_variant(accent: &'static str, name: &str) -> &'static str {
    /// Every accent with every variant that the catalogue has.
    const NAMES: &[(&str, &str, &str)] = &[
        ("en-gb-x-rp", "f3", "en-gb-x-rp+f3"),
        ("en-gb", "f3", "en-gb+f3"),
        ("en-gb-x-gbclan", "f3", "en-gb-x-gbclan+f3"),
        ("en-us", "f3", "en-us+f3"),
        ("en-us-nyc", "f3", "en-us-nyc+f3"),
    ];
    let Some((_, variant)) = name.split_once('+') else {
        return accent;
    };
    NAMES
        .iter()
        .find(|(of, with, _)| *of == accent && *with == variant)
        .map_or(accent, |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;
    use crate::vendors::voice::render;
    use crate::voices::catalogue::{all, known};

    fn name(key: &str, style: Option<&str>) -> &'static str {
        match known(key).unwrap().styled(style).engine {
            Engine::Espeak { name, .. } | Engine::Flite { name } => name,
            Engine::Scripted { .. } | Engine::Provider { .. } => "no program's",
        }
    }

    #[test]
    fn a_style_is_another_accent_of_the_same_speaker() {
        let female = "espeak-en-gb-female";
        assert_eq!(name(female, Some("formal")), "en-gb-x-rp+f3");
        assert_eq!(name(female, Some("mixed")), "en-gb+f3");
        assert_eq!(name(female, Some("local")), "en-gb-x-gbclan+f3");
        assert_eq!(name("espeak-en-us-male", Some("local")), "en-us-nyc");
        for unknown in [None, Some("pirate"), Some("Formal"), Some("")] {
            assert_eq!(name(female, unknown), "en-gb+f3");
        }
    }

    #[test]
    fn a_voice_without_styles_stays_as_it_is() {
        for voice in all() {
            for style in STYLES {
                let styled = voice.styled(Some(style));
                assert!(
                    voice.supports_dialect_style() || styled == *voice,
                    "{}",
                    voice.key
                );
                if let (Engine::Espeak { name: was, .. }, Engine::Espeak { name: is, .. }) =
                    (voice.engine, styled.engine)
                {
                    let variant = |name: &'static str| name.split_once('+').map(|(_, v)| v);
                    assert_eq!(variant(was), variant(is), "{} {style}", voice.key);
                }
            }
        }
    }

    #[test]
    fn a_style_is_heard() {
        let voice = known("espeak-en-gb-male").unwrap();
        let scratch = std::env::temp_dir().join("dialects.wav");
        let sound = |style| {
            let engine = voice.styled(Some(style)).engine;
            render(engine, "I had a bath and a cup of tea.", &scratch).unwrap()
        };
        let (formal, local) = (sound("formal"), sound("local"));
        assert!(formal.1.len() > 10_000 && local.1.len() > 10_000);
        assert_ne!(formal, local);
    }
}
