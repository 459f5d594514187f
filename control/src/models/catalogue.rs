//! The models as data. Ids are public names; how a request reaches a provider is never shown.

/// One catalogue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    pub id: &'static str,
    pub name: &'static str,
    pub provider: &'static str,
    /// False while its provider is not configured.
    pub available: bool,
}

/// The alias of the platform default, an ordinary entry of the list.
pub const DEFAULT_ALIAS: &str = "default";

/// The model behind the alias and behind the empty `llm_model`.
const PLATFORM_DEFAULT: &str = "faq";

/// Every entry, in the order of the list. The empty sentinel is not among them.
pub const MODELS: &[Model] = &[
    Model {
        id: DEFAULT_ALIAS,
        name: "Platform default",
        provider: "sidetone",
        available: true,
    },
    Model {
        id: "faq",
        name: "FAQ: best-matching sentences of the prompt, offline",
        provider: "sidetone",
        available: true,
    },
    Model {
        id: "echo",
        name: "Echo: repeats the caller's words, for tests and load",
        provider: "sidetone",
        available: true,
    },
];

/// The entry of this id. The empty sentinel has none.
pub fn find(id: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.id == id)
}

/// The id of the model that really answers for a stored `llm_model`: the sentinel and the alias give
/// the platform default; `None` for an id that the catalogue does not hold.
pub fn resolve(id: &str) -> Option<&'static str> {
    match id {
        "" | DEFAULT_ALIAS => Some(PLATFORM_DEFAULT),
        id => find(id).map(|model| model.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentinel_and_the_alias_are_the_platform_default() {
        assert_eq!(
            (resolve(""), resolve("default"), resolve("echo")),
            (Some("faq"), Some("faq"), Some("echo"))
        );
        assert_eq!(resolve("gpt"), None);
        assert!(find(PLATFORM_DEFAULT).is_some_and(|model| model.available));
    }

    #[test]
    fn the_sentinel_is_hidden_and_ids_are_unique() {
        for (place, model) in MODELS.iter().enumerate() {
            assert!(!model.id.is_empty());
            assert!(
                MODELS
                    .iter()
                    .skip(place + 1)
                    .all(|other| other.id != model.id)
            );
        }
    }
}
