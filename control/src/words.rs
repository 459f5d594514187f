//! Closed sets of words, each written down once: the API, its document, the database and the code read the same
//! list.
//!
//! ```text
//! words! {
//!     /// Who wanted it.
//!     pub enum Source {
//!         /// The account added it.
//!         Manual = "manual",
//!         PersonRequest = "person_request",
//!     }
//!
//!     pub enum Status { Active = "active", Released = "released" }
//! }
//! ```
//!
//! makes enums with `ALL`, `NAMES` and `name()` that are also
//!
//! - parsed from their words and shown as them (`FromStr`, `Display`),
//! - fields of bodies and answers (serde, the JSON schema, [`Word`], which tells bodies what they may hold),
//! - values of statements and columns of records ([`crate::db`]).
//!
//! A word that was once written otherwise is read as before: `NoAnswer = "no-answer" | "no_answer"`.

/// A type whose values are the words of a closed set.
pub trait Word {
    /// All of them, in the order of the API.
    const NAMES: &'static [&'static str];
}

/// See the [module](self).
macro_rules! words {
    ($($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal $(| $old:literal)*),+ $(,)?
    })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// All of them, in the order of the API.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Their words, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// The word of the API.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word $(| $old)* => Ok(Self::$variant),)+
                    _ => Err(format!("{word} is none of {}", Self::NAMES.join(", "))),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": Self::NAMES})
            }
        }

        impl $crate::words::Word for $name {
            const NAMES: &'static [&'static str] = Self::NAMES;
        }

        impl From<$name> for $crate::db::Arg {
            fn from(word: $name) -> Self {
                word.name().into()
            }
        }

        impl $crate::db::Value for $name {
            const KIND: $crate::db::Kind = $crate::db::Kind::Text;
        }

        $crate::db::text_column!($name);
    )+};
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub, reason = "the macro is for resources")]

    use serde_json::json;

    use crate::db::Arg;
    use crate::http::validate::{Kind, Shape};

    words! {
        enum Light {
            Red = "red",
            /// Both lamps are lit.
            RedYellow = "red_yellow" | "amber",
        }
    }

    #[test]
    fn a_former_word_is_read_and_not_written() {
        assert_eq!("amber".parse(), Ok(Light::RedYellow));
        assert_eq!(Light::RedYellow.name(), "red_yellow");
        assert!(!Light::NAMES.contains(&"amber"));
    }

    #[test]
    fn a_word_is_the_same_wherever_it_stands() {
        assert_eq!(Light::ALL.len(), Light::NAMES.len());
        for (light, name) in Light::ALL.iter().zip(Light::NAMES) {
            assert_eq!(
                (light.name(), &light.to_string()),
                (*name, &(*name).to_owned())
            );
            assert_eq!(name.parse(), Ok(*light));
            assert_eq!(serde_json::to_value(light).ok(), Some(json!(name)));
            assert_eq!(serde_json::from_value(json!(name)).ok(), Some(*light));
            assert_eq!(Arg::from(*light), Arg::Text((*name).to_owned()));
        }
        assert!(matches!(Light::KIND, Kind::Enum(words) if words == Light::NAMES));
        let schema = schemars::SchemaGenerator::default().subschema_for::<Light>();
        assert_eq!(
            schema.to_value(),
            json!({"type": "string", "enum": ["red", "red_yellow"]})
        );
    }

    #[test]
    fn what_is_no_word_is_refused() {
        for wrong in ["Red", "", "green"] {
            assert!(wrong.parse::<Light>().is_err(), "{wrong}");
            assert!(
                serde_json::from_value::<Light>(json!(wrong)).is_err(),
                "{wrong}"
            );
        }
        assert!(serde_json::from_value::<Light>(json!(1)).is_err());
    }
}
