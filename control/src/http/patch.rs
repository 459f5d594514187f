//! A field of a PATCH: absent, null and value are three different things.

use serde::{Deserialize, Deserializer};

/// Use with `#[serde(default)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    /// Not in the body: leave as it is.
    #[default]
    Absent,
    /// `null`: clear.
    Null,
    Value(T),
}

impl<T> Patch<T> {
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// With another value, where there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Self::Absent => Patch::Absent,
            Self::Null => Patch::Null,
            Self::Value(value) => Patch::Value(change(value)),
        }
    }

    /// What a field that may be empty becomes.
    pub fn or(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Absent => old,
            Self::Null => None,
            Self::Value(new) => Some(new),
        }
    }

    /// What a field that is never empty becomes (the schema refuses null there).
    pub fn or_keep(self, old: T) -> T {
        match self {
            Self::Absent | Self::Null => old,
            Self::Value(new) => new,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Value))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        name: Patch<String>,
    }

    #[test]
    fn tells_the_three_apart() {
        let read = |text| serde_json::from_str::<Body>(text).unwrap().name;
        assert_eq!(read("{}"), Patch::Absent);
        assert_eq!(read(r#"{"name":null}"#), Patch::Null);
        assert_eq!(read(r#"{"name":"x"}"#), Patch::Value("x".into()));
    }
}
