//! What a body or a query must look like, as data. The same table checks requests, feeds the
//! OpenAPI document and lets tests make every field wrong in turn.
//!
//! A check finds all wrong fields at once; the names of the rules are Pydantic's, which clients of
//! such APIs know.

mod check;
mod text;

use serde::Serialize;
use serde_json::Value;

use crate::numbers::is_wire_number;
use crate::words::Word;

pub use text::{is_hostname, is_https_url, is_origin_host, is_plain, is_web_url, origin_address};

/// The fields of one JSON object.
#[derive(Debug)]
pub struct Schema {
    /// The name in the OpenAPI document.
    pub name: &'static str,
    pub fields: &'static [Field],
    pub unknown: Unknown,
}

/// What happens to fields that the table does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    Refuse,
    Ignore,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    pub nullable: bool,
    pub doc: &'static str,
}

impl Field {
    /// Must be there.
    pub const fn req(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            required: true,
            nullable: false,
            doc,
        }
    }

    /// May be left out.
    pub const fn opt(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            required: false,
            nullable: false,
            doc,
        }
    }

    /// May be null.
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// May be left out, whatever it was: for the PATCH table of the same fields.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.required = false;
        self
    }
}

/// The longest string in a flat object, characters.
pub const LONGEST_SCALAR: usize = 10_000;
/// All names and values of a flat object together, bytes.
pub const MOST_SCALARS: usize = 64 << 10;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text; lengths in characters.
    Str {
        min: usize,
        max: usize,
    },
    /// Text with a rule of its own; `name` says it in words or as a regular expression.
    Pattern {
        name: &'static str,
        check: fn(&str) -> bool,
    },
    /// One of these words.
    Enum(&'static [&'static str]),
    Int {
        min: i64,
        max: i64,
    },
    Num {
        min: f64,
        max: f64,
    },
    Bool,
    Uuid,
    /// A phone number: `+`, a digit 1–9, up to 14 more digits.
    E164,
    /// The same, to be called or not to be called: in the one spelling that is right.
    Callee,
    /// `https://` on port 443, a DNS name, no user info. Here only the form is judged: what the operator
    /// allows beside public hosts ([`is_https_url`]) is the route's to ask.
    HttpsUrl,
    /// A host as a page's origin names it: a DNS name of any number of labels, or an IP address.
    OriginHost,
    List {
        item: &'static Kind,
        min: usize,
        max: usize,
    },
    Object(&'static [Field]),
    /// The same; members that are not among the fields are ignored.
    OpenObject(&'static [Field]),
    /// A flat object of strings, numbers and booleans, at most `max` keys; each string and all of them together
    /// are bounded, as they are copied into texts and kept with every call.
    Scalars {
        max: usize,
        key_ok: fn(&str) -> bool,
        key_rule: &'static str,
    },
    /// Any JSON object.
    AnyObject,
    /// Any JSON.
    Any,
    /// ISO 8601 with an offset.
    Timestamp,
}

impl Kind {
    /// A list of so many items.
    pub const fn list(item: &'static Self, min: usize, max: usize) -> Self {
        Self::List { item, min, max }
    }

    /// A whole number within these bounds.
    pub const fn int(min: i64, max: i64) -> Self {
        Self::Int { min, max }
    }

    /// A number as a carrier knows it: E.164 or digits.
    pub const WIRE_NUMBER: Self =
        Self::pattern(r"^(\+[1-9][0-9]{1,14}|[0-9]{3,20})$", is_wire_number);

    /// Text of this regular expression, which the function judges.
    pub const fn pattern(name: &'static str, check: fn(&str) -> bool) -> Self {
        Self::Pattern { name, check }
    }
}

/// What a value of a type must look like in a body, where the type alone tells.
pub trait Shape {
    const KIND: Kind;
}

impl<T: Word> Shape for T {
    const KIND: Kind = Kind::Enum(T::NAMES);
}

impl Shape for bool {
    const KIND: Kind = Kind::Bool;
}

impl Shape for crate::time::Timestamp {
    const KIND: Kind = Kind::Timestamp;
}

/// A step of the path to a wrong field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Loc {
    Key(String),
    Index(usize),
}

impl From<&str> for Loc {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Loc {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// One wrong field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// `body`, `query` or `path`, then the way to the field.
    pub loc: Vec<Loc>,
    /// A sentence for people.
    pub msg: String,
    /// The rule, by Pydantic's name.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

impl FieldError {
    /// A wrong field of the body; `name` may be a dotted path.
    pub fn body(name: &str, kind: &'static str, msg: impl Into<String>) -> Self {
        let loc = std::iter::once("body")
            .chain(name.split('.').filter(|part| !part.is_empty()))
            .map(Loc::from)
            .collect();
        Self {
            loc,
            msg: msg.into(),
            kind,
        }
    }

    /// A field of the body that should be there.
    pub fn missing(name: &str) -> Self {
        Self::body(name, "missing", "Field required")
    }

    /// A field of the body whose value does not go with the rest.
    pub fn value(name: &str, msg: impl Into<String>) -> Self {
        Self::body(name, "value_error", msg)
    }

    /// The path in words, without its first step.
    pub fn path(&self) -> String {
        let steps: Vec<String> = self
            .loc
            .iter()
            .skip(1)
            .map(|step| match step {
                Loc::Key(key) => key.clone(),
                Loc::Index(index) => index.to_string(),
            })
            .collect();
        if steps.is_empty() {
            "body".to_owned()
        } else {
            steps.join(".")
        }
    }
}

impl Schema {
    /// Everything that is wrong with `value`; `root` is `body` or `query`.
    pub fn check(&self, root: &str, value: &Value) -> Result<(), Vec<FieldError>> {
        check::check(self, root, value)
    }

    /// Takes whole numbers that are written with a fraction (`3.0`) for the integers they are.
    pub fn settle(&self, value: &mut Value) {
        check::settle(self.fields, value);
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
