//! The models as data. Ids are public names; how a request reaches a provider is never shown.

use std::sync::OnceLock;

use super::providers::RemoteSettings;

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

/// The model behind the alias and behind the empty `llm_model` where no provider is configured.
const OFFLINE_DEFAULT: &str = "faq";

/// The entries that every installation has. The empty sentinel is not among them.
pub const BUILT_IN: &[Model] = &[
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

/// What the operator's providers add.
#[derive(Debug)]
struct Configured {
    models: Vec<Model>,
    default: &'static str,
}

static CONFIGURED: OnceLock<Configured> = OnceLock::new();

/// Adds the providers' models, once, before the server listens. Later calls change nothing.
pub fn configure(settings: &RemoteSettings) {
    CONFIGURED.get_or_init(|| configured(settings));
}

fn configured(settings: &RemoteSettings) -> Configured {
    // The catalogue lives as long as the process.
    let kept = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let models: Vec<Model> = settings
        .providers
        .iter()
        .flat_map(|provider| provider.models.iter().map(move |model| (provider, model)))
        .map(|(provider, model)| Model {
            id: kept(&model.id),
            name: kept(&model.id),
            provider: kept(&provider.name),
            available: provider.is_available(),
        })
        .collect();
    let first = models.iter().find(|model| model.available);
    let default = match &settings.default_model {
        Some(id) => kept(id),
        None => first.map_or(OFFLINE_DEFAULT, |model| model.id),
    };
    Configured { models, default }
}

/// Every entry, in the order of the list.
pub fn all() -> impl Iterator<Item = &'static Model> {
    let configured = CONFIGURED.get().map_or(&[][..], |all| &all.models);
    BUILT_IN.iter().chain(configured)
}

/// The entry of this id. The empty sentinel has none.
pub fn find(id: &str) -> Option<&'static Model> {
    all().find(|model| model.id == id)
}

/// The id of the model that really answers for a stored `llm_model`: the sentinel and the alias give
/// the platform default; `None` for an id that the catalogue does not hold.
pub fn resolve(id: &str) -> Option<&'static str> {
    match id {
        "" | DEFAULT_ALIAS => Some(
            CONFIGURED
                .get()
                .map_or(OFFLINE_DEFAULT, |configured| configured.default),
        ),
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
        assert!(find(OFFLINE_DEFAULT).is_some_and(|model| model.available));
    }

    #[test]
    fn the_sentinel_is_hidden_and_ids_are_unique() {
        for (place, model) in BUILT_IN.iter().enumerate() {
            assert!(!model.id.is_empty());
            assert!(
                BUILT_IN
                    .iter()
                    .skip(place + 1)
                    .all(|other| other.id != model.id)
            );
        }
    }

    #[test]
    fn a_configured_provider_s_first_model_is_the_default_unless_one_is_named() {
        let file = "[providers.a]\nkind = \"openai\"\nmodels = [\"no-key\"]\n\
            [providers.b]\nkind = \"openai\"\nbase_url = \"http://localhost:1/v1\"\nmodels = [\"x\", \"y\"]";
        let read = |file: &str| {
            let config =
                crate::config::Config::load(Some(file), &std::collections::BTreeMap::new());
            configured(
                &config
                    .unwrap_or_else(|error| unreachable!("{error}"))
                    .speech
                    .remote,
            )
        };
        let found = read(file);
        let listed: Vec<_> = found
            .models
            .iter()
            .map(|m| (m.id, m.provider, m.available))
            .collect();
        assert_eq!(
            listed,
            [("no-key", "a", false), ("x", "b", true), ("y", "b", true)]
        );
        assert_eq!(found.default, "x");
        assert_eq!(
            read(&format!("{file}\n[speech]\nmodel = \"y\"")).default,
            "y"
        );
        assert_eq!(read("").default, OFFLINE_DEFAULT);
    }
}
