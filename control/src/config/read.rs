//! Putting settings together and reading them one by one, so that every wrong one can be named.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::providers;
use crate::secret::Secret;

/// Settings that are read out key by key.
pub(super) struct Settings {
    values: BTreeMap<String, Value>,
    secrets: BTreeMap<String, String>,
    wrong: Vec<String>,
}

/// What is wrong with the settings, a line each.
#[derive(Debug)]
pub struct ConfigError(Vec<String>);

impl ConfigError {
    /// One wrong setting.
    pub fn one(key: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self(vec![format!("{key}: {why}")])
    }
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

const SECRETS: &[&str] = &[
    "SIDETONE_BOOTSTRAP_API_KEY",
    "SIDETONE_MASTER_KEY",
    "SIDETONE_ADMIN_TOKEN",
];

impl Settings {
    pub(super) fn merge(
        defaults: &str,
        file: Option<&str>,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let table = |what: &str, text: &str| -> Result<Table, ConfigError> {
            text.parse()
                .map_err(|error| ConfigError(vec![format!("{what} is not TOML: {error}")]))
        };
        let mut values = BTreeMap::new();
        flatten("", table("the defaults", defaults)?, &mut values);
        let mut wrong = Vec::new();
        let mut from_file = BTreeMap::new();
        flatten(
            "",
            table("the settings file", file.unwrap_or(""))?,
            &mut from_file,
        );
        let named = env
            .iter()
            .filter_map(|(name, text)| Some((dotted(name)?, Value::String(text.clone()))));
        for (key, value) in from_file.into_iter().chain(named) {
            match values.get_mut(&key) {
                Some(old) => *old = value,
                // These have names of the operator's own.
                None if providers::parts(&key).is_some() => {
                    values.insert(key, value);
                }
                None => wrong.push(format!("{key}: no such setting")),
            }
        }
        let secrets = SECRETS
            .iter()
            .filter_map(|name| {
                Some((
                    (*name).to_owned(),
                    env.get(*name).filter(|text| !text.is_empty())?.clone(),
                ))
            })
            .collect();
        Ok(Self {
            values,
            secrets,
            wrong,
        })
    }

    pub(super) fn wrong(&mut self, key: &str, why: &str) {
        self.wrong.push(format!("{key}: {why}"));
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    pub(super) fn text(&mut self, key: &str) -> String {
        match self.values.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Integer(number)) => number.to_string(),
            _ => {
                self.wrong(key, "must be text");
                String::new()
            }
        }
    }

    pub(super) fn int(&mut self, key: &str, min: u32, max: u32) -> u32 {
        let number = match self.values.get(key) {
            Some(Value::Integer(number)) => Some(*number),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        let fits = number
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (min..=max).contains(number));
        fits.unwrap_or_else(|| {
            self.wrong(key, &format!("must be a whole number from {min} to {max}"));
            min
        })
    }

    pub(super) fn parsed<T: std::str::FromStr>(&mut self, key: &str, what: &str, fallback: T) -> T {
        match self.text(key).parse() {
            Ok(value) => value,
            Err(_) => {
                self.wrong(key, &format!("must be {what}"));
                fallback
            }
        }
    }

    /// One of these words; they are not empty.
    pub(super) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> T {
        let text = self.text(key);
        words.iter().find(|(word, _)| *word == text).map_or_else(
            || {
                let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.wrong(key, &format!("must be one of {}", names.join(", ")));
                words[0].1
            },
            |(_, value)| *value,
        )
    }

    /// A list in TOML, or text with commas between.
    pub(super) fn list(&mut self, key: &str) -> Vec<String> {
        let items: Vec<String> = match self.values.get(key) {
            Some(Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                texts.collect::<Option<_>>().unwrap_or_else(|| {
                    self.wrong(key, "must be a list of texts");
                    Vec::new()
                })
            }
            _ => self
                .text(key)
                .split(',')
                .map(|item| item.trim().to_owned())
                .collect(),
        };
        items.into_iter().filter(|item| !item.is_empty()).collect()
    }

    pub(super) fn secret(&mut self, name: &str) -> Option<Secret<String>> {
        self.secrets.remove(name).map(Secret::new)
    }

    /// The settings, unless something was wrong.
    pub(super) fn finish<T>(self, value: T) -> Result<T, ConfigError> {
        if self.wrong.is_empty() {
            Ok(value)
        } else {
            Err(ConfigError(self.wrong))
        }
    }
}

fn flatten(prefix: &str, table: Table, into: &mut BTreeMap<String, Value>) {
    for (key, value) in table {
        let key = if prefix.is_empty() {
            key
        } else {
            format!("{prefix}.{key}")
        };
        match value {
            Value::Table(table) => flatten(&key, table, into),
            value => {
                into.insert(key, value);
            }
        }
    }
}

/// The key that an environment variable sets. Without two underscores it is not a setting: the
/// command-line client has variables of its own.
fn dotted(name: &str) -> Option<String> {
    match name {
        "DATABASE_URL" => Some("database.url".to_owned()),
        "REDIS_URL" => Some("redis.url".to_owned()),
        _ => {
            let (section, key) = name.strip_prefix("SIDETONE_")?.split_once("__")?;
            // A provider's setting has its name between: SIDETONE_PROVIDERS__<NAME>__<KEY>.
            Some(format!("{section}.{}", key.replacen("__", ".", 1)).to_ascii_lowercase())
        }
    }
}
