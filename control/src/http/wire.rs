//! Bodies, queries and answers, each as one table of its fields.
//!
//! # What a client sends
//!
//! ```text
//! body! {
//!     /// `POST /usage/triggers`.
//!     pub struct CreateTrigger = "CreateUsageTrigger";
//!     /// `PATCH /usage/triggers/{id}`.
//!     patch PatchTrigger = "UpdateUsageTrigger";
//!     nullable name: String = Kind::Str { min: 1, max: 100 }, "What it is for";
//!     required kind as "type": Resource, "What is counted";
//!     default on: bool, "Whether it fires (default false)";
//! }
//! ```
//!
//! One line is one field: how it may be missing, its name (`as` its name in JSON, where that is another), its type,
//! `=` what it must look like (left out where the type tells: a word, an id, a flag, a time, another body), and what the document
//! says of it.
//!
//! | | in JSON | in Rust |
//! |---|---|---|
//! | `required` | is there | `T` |
//! | `optional` | may be left out | `Option<T>` |
//! | `nullable` | may be left out or null, which is the same | `Option<T>` |
//! | `default` | may be left out | `T`, then its `Default` |
//! | `clearable` | left out: stays; null: is cleared | `Patch<T>` |
//! | `stated` | is there, and may be null | `T`, which reads null itself |
//!
//! `patch`, which may be left out, makes the body of a PATCH of the same fields: all may be left out, and those that
//! are `nullable` become `clearable`. A PATCH with other fields or other words is a body of its own. With
//! `pub query` instead of `pub struct` it is a query; members that it does not know are ignored. A `pub open struct` is
//! a body, or an object within one, of which the same is true.
//!
//! # What it is answered
//!
//! ```text
//! answer! {
//!     /// A trigger as it is answered.
//!     pub struct TriggerRecord = "UsageTrigger" of Trigger uses(period) hides(generation) {
//!         id: UsageTriggerId,
//!         /// UTC.
//!         period_name: &'static str = period.name(),
//!     }
//! }
//! ```
//!
//! makes the struct with its JSON schema, and `From<Trigger>`. Fields without `=` are those of `Trigger`; `uses` names
//! its fields that the others are made of, and `hides` those that no client sees. It does not compile before every
//! field of `Trigger` stands in one of the three. With `of Trigger (now: Timestamp)` it is `new(trigger, now)`. What is
//! asked of the whole before it is taken apart stands in front: `of Trigger as trigger first(due = trigger.is_due())`.
//!
//! A new body and a new answer have an example in `openapi/examples.json`, under the name behind `=`.

use serde::de::{DeserializeOwned, Error};
use serde_json::{Map, Value};

use super::patch::Patch;

/// See the [module](self).
macro_rules! body {
    (@type whole required $type:ty) => { $type };
    (@type whole default $type:ty) => { $type };
    (@type whole stated $type:ty) => { $type };
    (@type whole clearable $type:ty) => { $crate::http::Patch<$type> };
    (@type whole $optional:ident $type:ty) => { Option<$type> };
    (@type patch nullable $type:ty) => { $crate::http::Patch<$type> };
    (@type patch $optional:ident $type:ty) => { Option<$type> };

    (@read whole required $map:ident $key:expr) => { $crate::http::wire::required(&mut $map, $key) };
    (@read whole stated $map:ident $key:expr) => { $crate::http::wire::required(&mut $map, $key) };
    (@read whole default $map:ident $key:expr) => { $crate::http::wire::or_default(&mut $map, $key) };
    (@read whole clearable $map:ident $key:expr) => { $crate::http::wire::clearable(&mut $map, $key) };
    (@read whole optional $map:ident $key:expr) => { $crate::http::wire::optional(&mut $map, $key) };
    (@read whole nullable $map:ident $key:expr) => { $crate::http::wire::optional(&mut $map, $key) };
    (@read patch nullable $map:ident $key:expr) => { $crate::http::wire::clearable(&mut $map, $key) };
    (@read patch $optional:ident $map:ident $key:expr) => { $crate::http::wire::optional(&mut $map, $key) };

    (@field whole required $key:expr, $kind:expr, $doc:expr) => {
        $crate::http::validate::Field::req($key, $kind, $doc)
    };
    (@field whole stated $key:expr, $kind:expr, $doc:expr) => {
        $crate::http::validate::Field::req($key, $kind, $doc).nullable()
    };
    (@field whole clearable $key:expr, $kind:expr, $doc:expr) => {
        $crate::http::validate::Field::opt($key, $kind, $doc).nullable()
    };
    (@field $mode:ident nullable $key:expr, $kind:expr, $doc:expr) => {
        $crate::http::validate::Field::opt($key, $kind, $doc).nullable()
    };
    (@field $mode:ident $optional:ident $key:expr, $kind:expr, $doc:expr) => {
        $crate::http::validate::Field::opt($key, $kind, $doc)
    };

    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
    (@kind $type:ty) => { <$type as $crate::http::validate::Shape>::KIND };
    (@kind $type:ty, $kind:expr) => { $kind };
    (@object Refuse $fields:expr) => { $crate::http::validate::Kind::Object($fields) };
    (@object Ignore $fields:expr) => { $crate::http::validate::Kind::OpenObject($fields) };

    (@make $mode:ident $unknown:ident [$(#[$meta:meta])*] $vis:vis $name:ident $title:expr;
     $($presence:ident $field:ident $(as $key:literal)?: $type:ty $(= $kind:expr)?, $doc:expr;)+) => {
        $(#[$meta])*
        $vis struct $name {
            $(pub $field: $crate::http::wire::body!(@type $mode $presence $type)),+
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut map: serde_json::Map<String, serde_json::Value> =
                    serde::Deserialize::deserialize(deserializer)?;
                Ok(Self {
                    $($field: $crate::http::wire::body!(
                        @read $mode $presence map $crate::http::wire::body!(@key $field $($key)?)
                    )
                    .map_err(serde::de::Error::custom)?),+
                })
            }
        }

        impl $crate::http::validate::Shape for $name {
            const KIND: $crate::http::validate::Kind = $crate::http::wire::body!(
                @object $unknown <Self as $crate::http::Wire>::SCHEMA.fields
            );
        }

        impl $crate::http::Wire for $name {
            const SCHEMA: &'static $crate::http::validate::Schema = &$crate::http::validate::Schema {
                name: $title,
                unknown: $crate::http::validate::Unknown::$unknown,
                fields: &[$($crate::http::wire::body!(
                    @field $mode $presence
                    $crate::http::wire::body!(@key $field $($key)?),
                    $crate::http::wire::body!(@kind $type $(, $kind)?),
                    $doc
                )),+],
            };
        }
    };

    ($(#[$meta:meta])* $vis:vis struct $name:ident = $title:literal;
     $(#[$patch_meta:meta])* patch $patch:ident = $patch_title:literal;
     $($presence:ident $field:ident $(as $key:literal)?: $type:ty $(= $kind:expr)?, $doc:expr;)+) => {
        $crate::http::wire::body! {
            @make whole Refuse [$(#[$meta])*] $vis $name $title;
            $($presence $field $(as $key)?: $type $(= $kind)?, $doc;)+
        }
        $crate::http::wire::body! {
            @make patch Refuse [$(#[$patch_meta])*] $vis $patch $patch_title;
            $($presence $field $(as $key)?: $type $(= $kind)?, $doc;)+
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident = $title:literal; $($fields:tt)+) => {
        $crate::http::wire::body! { @make whole Refuse [$(#[$meta])*] $vis $name $title; $($fields)+ }
    };
    ($(#[$meta:meta])* $vis:vis open struct $name:ident = $title:literal; $($fields:tt)+) => {
        $crate::http::wire::body! { @make whole Ignore [$(#[$meta])*] $vis $name $title; $($fields)+ }
    };
    ($(#[$meta:meta])* $vis:vis query $name:ident; $($fields:tt)+) => {
        $crate::http::wire::body! { @make whole Ignore [$(#[$meta])*] $vis $name stringify!($name); $($fields)+ }
    };
}

/// See the [module](self).
macro_rules! answer {
    // One field after the other: [what the struct is told] [fields that are moved] [declared] [made].
    (@field $head:tt [$($moved:ident)*] [$($declared:tt)*] [$($made:tt)*]
     $(#[$meta:meta])* $field:ident: $type:ty = $value:expr, $($rest:tt)*) => {
        $crate::http::wire::answer! {
            @field $head [$($moved)*] [$($declared)* $(#[$meta])* pub $field: $type,]
            [$($made)* $field: $value,] $($rest)*
        }
    };
    (@field $head:tt [$($moved:ident)*] [$($declared:tt)*] [$($made:tt)*]
     $(#[$meta:meta])* $field:ident: $type:ty, $($rest:tt)*) => {
        $crate::http::wire::answer! {
            @field $head [$($moved)* $field] [$($declared)* $(#[$meta])* pub $field: $type,]
            [$($made)* $field,] $($rest)*
        }
    };
    (@field [[$(#[$meta:meta])*] $vis:vis $name:ident $title:literal $source:ident
             [$whole:ident $($first:ident = $asked:expr),*] [$($arg:ident: $arg_type:ty),*]
             [$($used:ident),*] [$($hidden:ident),*]]
     [$($moved:ident)*] [$($declared:tt)*] [$($made:tt)*]) => {
        $(#[$meta])*
        #[derive(serde::Serialize, schemars::JsonSchema)]
        #[schemars(rename = $title)]
        $vis struct $name {
            $($declared)*
        }

        $crate::http::wire::answer! {
            @from $vis $name [$($arg: $arg_type),*] $whole: $source => {
                $(let $first = $asked;)*
                let $source { $($moved,)* $($used,)* $($hidden: _,)* } = $whole;
                Self { $($made)* }
            }
        }
    };
    (@from $vis:vis $name:ident [] $it:ident: $source:ident => $body:block) => {
        impl From<$source> for $name {
            fn from($it: $source) -> Self $body
        }
    };
    (@from $vis:vis $name:ident [$($arg:ident: $type:ty),+] $it:ident: $source:ident => $body:block) => {
        impl $name {
            /// As it is answered.
            $vis fn new($it: $source, $($arg: $type),+) -> Self $body
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident = $title:literal of $source:ident
     as $whole:ident first($($first:ident = $asked:expr),+)
     $(($($arg:ident: $type:ty),+))? $(uses($($used:ident),+))? $(hides($($hidden:ident),+))?
     { $($fields:tt)+ }) => {
        $crate::http::wire::answer! {
            @field [[$(#[$meta])*] $vis $name $title $source [$whole $($first = $asked),+]
                    [$($($arg: $type),+)?] [$($($used),+)?] [$($($hidden),+)?]]
            [] [] [] $($fields)+
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident = $title:literal of $source:ident
     $(($($arg:ident: $type:ty),+))? $(uses($($used:ident),+))? $(hides($($hidden:ident),+))?
     { $($fields:tt)+ }) => {
        $crate::http::wire::answer! {
            @field [[$(#[$meta])*] $vis $name $title $source [source]
                    [$($($arg: $type),+)?] [$($($used),+)?] [$($($hidden),+)?]]
            [] [] [] $($fields)+
        }
    };
}

pub(crate) use {answer, body};

/// A member that is there.
pub fn required<T: DeserializeOwned>(
    map: &mut Map<String, Value>,
    key: &str,
) -> serde_json::Result<T> {
    match map.remove(key) {
        Some(value) => serde_json::from_value(value),
        None => Err(serde_json::Error::custom(format!("missing field `{key}`"))),
    }
}

/// A member that may be missing or null.
pub fn optional<T: DeserializeOwned>(
    map: &mut Map<String, Value>,
    key: &str,
) -> serde_json::Result<Option<T>> {
    map.remove(key).map_or(Ok(None), serde_json::from_value)
}

/// A member that may be missing, and then is as its type begins.
pub fn or_default<T: DeserializeOwned + Default>(
    map: &mut Map<String, Value>,
    key: &str,
) -> serde_json::Result<T> {
    map.remove(key)
        .map_or_else(|| Ok(T::default()), serde_json::from_value)
}

/// A member that tells nothing, null and a value apart.
pub fn clearable<T: DeserializeOwned>(
    map: &mut Map<String, Value>,
    key: &str,
) -> serde_json::Result<Patch<T>> {
    map.remove(key)
        .map_or(Ok(Patch::Absent), serde_json::from_value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]
    #![allow(unreachable_pub, dead_code, reason = "the macros are for resources")]

    use serde_json::json;

    use crate::http::extract::parse;
    use crate::http::validate::{self, Kind, Unknown};
    use crate::http::{Patch, Wire};

    body! {
        /// Made.
        #[derive(Debug, PartialEq)]
        struct Create = "CreateIt";
        /// Changed.
        #[derive(Debug, PartialEq)]
        patch Update = "UpdateIt";
        required name: String = Kind::Str { min: 1, max: 9 }, "A name";
        optional size as "how-large": u32 = Kind::Int { min: 0, max: 9 }, "A size";
        nullable note: String = Kind::Str { min: 0, max: 9 }, "A note";
        default on: bool, "A flag";
    }

    body! {
        #[derive(Debug, PartialEq)]
        query Asked;
        clearable on: bool, "A flag";
    }

    body! {
        #[derive(Debug, PartialEq)]
        open struct Point = "Point";
        required x: u32 = Kind::int(0, 9), "A place";
    }

    body! {
        #[derive(Debug, PartialEq)]
        open struct Line = "Line";
        required points: Vec<Point> = Kind::list(&<Point as validate::Shape>::KIND, 0, 2), "Places";
        stated note: Option<String> = Kind::Str { min: 0, max: 9 }, "A note";
    }

    fn refused<T: Wire>(body: &str) -> String {
        parse::<T>(body.as_bytes())
            .err()
            .unwrap()
            .body("")
            .to_string()
    }

    #[test]
    fn a_body_says_how_its_fields_may_be_missing() {
        let least = Create {
            name: "a".into(),
            size: None,
            note: None,
            on: false,
        };
        assert_eq!(parse::<Create>(br#"{"name": "a"}"#).unwrap(), least);
        assert_eq!(
            parse::<Create>(br#"{"name": "a", "note": null}"#).unwrap(),
            least
        );
        let all = br#"{"name": "a", "how-large": 3, "note": "n", "on": true}"#;
        let expected = Create {
            name: "a".into(),
            size: Some(3),
            note: Some("n".into()),
            on: true,
        };
        assert_eq!(parse::<Create>(all).unwrap(), expected);
        for (body, rule) in [
            ("{}", "missing"),
            (r#"{"name": null}"#, "string_type"),
            (r#"{"name": "a", "how-large": null}"#, "int_parsing"),
            (r#"{"name": "a", "on": null}"#, "bool_parsing"),
            (r#"{"name": "a", "size": 3}"#, "extra_forbidden"),
        ] {
            assert!(refused::<Create>(body).contains(rule), "{body}");
        }
    }

    #[test]
    fn its_patch_takes_the_same_fields_and_needs_none() {
        let nothing = Update {
            name: None,
            size: None,
            note: Patch::Absent,
            on: None,
        };
        assert_eq!(parse::<Update>(b"{}").unwrap(), nothing);
        let cleared = parse::<Update>(br#"{"note": null, "on": true}"#).unwrap();
        assert_eq!(
            cleared,
            Update {
                note: Patch::Null,
                on: Some(true),
                ..nothing
            }
        );
        assert!(refused::<Update>(r#"{"name": null}"#).contains("string_type"));
        let (made, changed) = (Create::SCHEMA, Update::SCHEMA);
        assert_eq!((made.name, changed.name), ("CreateIt", "UpdateIt"));
        assert!(changed.fields.iter().all(|field| !field.required));
        for (one, other) in made.fields.iter().zip(changed.fields) {
            assert_eq!(
                (one.name, one.doc, one.nullable),
                (other.name, other.doc, other.nullable)
            );
        }
    }

    #[test]
    fn a_query_ignores_what_it_does_not_know() {
        assert_eq!(Asked::SCHEMA.unknown, Unknown::Ignore);
        assert_eq!(Asked::SCHEMA.name, "Asked");
        assert_eq!(
            parse::<Asked>(br#"{"x": 1, "on": null}"#).unwrap(),
            Asked { on: Patch::Null }
        );
    }

    #[test]
    fn an_open_body_ignores_what_it_does_not_know_at_every_depth() {
        let read = parse::<Line>(br#"{"points": [{"x": 1, "y": 2}], "note": null, "z": 3}"#);
        let line = Line {
            points: vec![Point { x: 1 }],
            note: None,
        };
        assert_eq!(read.unwrap(), line);
        let missing = refused::<Line>(r#"{"points": []}"#);
        assert!(missing.contains("missing") && missing.contains("note"));
        assert!(refused::<Line>(r#"{"points": [{"y": 2}], "note": "n"}"#).contains("missing"));
        let note = Line::SCHEMA.field("note").unwrap();
        assert!(note.required && note.nullable);
    }

    struct Stored {
        id: u32,
        word: String,
        secret: String,
    }

    answer! {
        /// As it is answered.
        struct Shown = "It" of Stored (by: u32) uses(word) hides(secret) {
            id: u32,
            /// How long the word is.
            length: usize = word.len(),
            by: u32 = by,
        }
    }

    impl Stored {
        fn is_long(&self) -> bool {
            self.word.len() > self.secret.len()
        }
    }

    answer! {
        struct Judged = "Judged" of Stored as it first(long = it.is_long()) hides(id, secret) {
            word: String,
            /// Whether it is long.
            long: bool = long,
        }
    }

    #[test]
    fn an_answer_asks_the_whole_before_it_is_taken_apart() {
        for (word, long) in [("abc", true), ("a", false)] {
            let stored = Stored {
                id: 7,
                word: word.into(),
                secret: "s".into(),
            };
            let judged = serde_json::to_value(Judged::from(stored)).unwrap();
            assert_eq!(judged, json!({"word": word, "long": long}));
        }
    }

    #[test]
    fn an_answer_shows_what_it_names_and_hides_the_rest() {
        let stored = Stored {
            id: 7,
            word: "abc".into(),
            secret: "s".into(),
        };
        let shown = serde_json::to_value(Shown::new(stored, 2)).unwrap();
        assert_eq!(shown, json!({"id": 7, "length": 3, "by": 2}));
        let schema = schemars::schema_for!(Shown).to_value();
        assert_eq!(schema["title"], "It");
        assert_eq!(
            schema["properties"]["length"]["description"],
            "How long the word is."
        );
        assert_eq!(schema["required"], json!(["id", "length", "by"]));
    }
}
