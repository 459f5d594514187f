//! Holding a value against its table. All wrong fields are found, up to a bound.

use serde_json::{Map, Value};

use super::{
    Field, FieldError, Kind, LONGEST_SCALAR, Loc, MOST_SCALARS, Schema, Unknown, is_origin_host,
    is_web_url,
};
use crate::numbers::is_e164;
use crate::numbers::spelling::right_spelling;

/// No answer lists more wrong fields than this: a hostile body has a million.
const MAX_ERRORS: usize = 100;

/// Everything that is wrong with `value`.
pub(super) fn check(schema: &Schema, root: &str, value: &Value) -> Result<(), Vec<FieldError>> {
    let mut errors = Errors {
        at: vec![Loc::from(root)],
        found: Vec::new(),
    };
    match value {
        Value::Object(map) => object(schema.fields, schema.unknown, map, &mut errors),
        _ => errors.push("model_type", "Input should be an object".into()),
    }
    if errors.found.is_empty() {
        Ok(())
    } else {
        Err(errors.found)
    }
}

/// Integers as JSON Schema knows them (draft 2020-12, validation, section 6.1.1): `3.0` is one, and becomes `3`
/// where a table wants an integer.
pub(super) fn settle(fields: &[Field], value: &mut Value) {
    let Value::Object(map) = value else { return };
    for field in fields {
        if let Some(value) = map.get_mut(field.name) {
            settle_kind(&field.kind, value);
        }
    }
}

fn settle_kind(kind: &Kind, value: &mut Value) {
    /// Beyond it neighbours of a number are the same number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match (kind, value) {
        (Kind::Int { min, max }, value @ Value::Number(_)) => {
            // Where the table sets no bound, a larger number is as good as the largest.
            let unbound = |number: f64| {
                (number > 0.0 && *max == i64::MAX) || (number < 0.0 && *min == i64::MIN)
            };
            if let Some(number) = value.as_f64().filter(|_| value.as_i64().is_none())
                && number.fract() == 0.0
                && (number.abs() <= EXACT || unbound(number))
            {
                *value = Value::from(number as i64);
            }
        }
        (Kind::List { item, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|value| settle_kind(item, value));
        }
        (Kind::Object(fields) | Kind::OpenObject(fields), value) => settle(fields, value),
        _ => {}
    }
}

struct Errors {
    at: Vec<Loc>,
    found: Vec<FieldError>,
}

impl Errors {
    fn push(&mut self, kind: &'static str, msg: String) {
        if self.found.len() < MAX_ERRORS {
            self.found.push(FieldError {
                loc: self.at.clone(),
                msg,
                kind,
            });
        }
    }

    fn within(&mut self, step: impl Into<Loc>, check: impl FnOnce(&mut Self)) {
        self.at.push(step.into());
        check(self);
        self.at.pop();
    }
}

fn object(fields: &[Field], unknown: Unknown, map: &Map<String, Value>, errors: &mut Errors) {
    for field in fields {
        match map.get(field.name) {
            None if field.required => errors.within(field.name, |errors| {
                errors.push("missing", "Field required".into())
            }),
            None => {}
            Some(Value::Null) if field.nullable => {}
            Some(value) => errors.within(field.name, |errors| kind(&field.kind, value, errors)),
        }
    }
    if unknown == Unknown::Refuse {
        for name in map
            .keys()
            .filter(|name| !fields.iter().any(|field| field.name == name.as_str()))
        {
            if errors.found.len() >= MAX_ERRORS {
                return;
            }
            let short: String = name.chars().take(128).collect();
            errors.within(short.as_str(), |errors| {
                errors.push("extra_forbidden", "Extra inputs are not permitted".into());
            });
        }
    }
}

fn kind(kind: &Kind, value: &Value, errors: &mut Errors) {
    match kind {
        Kind::Str { min, max } => text(value, errors, |text, errors| {
            let length = text.chars().count();
            if length < *min {
                errors.push(
                    "string_too_short",
                    format!(
                        "String should have at least {min} {}",
                        plural(*min, "character")
                    ),
                );
            } else if length > *max {
                errors.push(
                    "string_too_long",
                    format!(
                        "String should have at most {max} {}",
                        plural(*max, "character")
                    ),
                );
            }
        }),
        Kind::Pattern { name, check } => text(value, errors, |text, errors| {
            if !check(text) {
                errors.push(
                    "string_pattern_mismatch",
                    format!("String should match: {name}"),
                );
            }
        }),
        Kind::Enum(words) => {
            if !value.as_str().is_some_and(|text| words.contains(&text)) {
                let list: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                errors.push(
                    "enum",
                    format!("Input should be one of {}", list.join(", ")),
                );
            }
        }
        Kind::Int { min, max } => int(value, *min, *max, errors),
        Kind::Num { min, max } => match value.as_f64() {
            None => errors.push("float_parsing", "Input should be a valid number".into()),
            Some(number) if number < *min => {
                errors.push(
                    "greater_than_equal",
                    format!("Input should be greater than or equal to {min}"),
                );
            }
            Some(number) if number > *max => {
                errors.push(
                    "less_than_equal",
                    format!("Input should be less than or equal to {max}"),
                );
            }
            Some(_) => {}
        },
        Kind::Bool => {
            if !value.is_boolean() {
                errors.push("bool_parsing", "Input should be a valid boolean".into());
            }
        }
        Kind::Uuid => {
            if value
                .as_str()
                .is_none_or(|text| uuid::Uuid::try_parse(text).is_err())
            {
                errors.push("uuid_parsing", "Input should be a valid UUID".into());
            }
        }
        Kind::E164 => text(value, errors, e164),
        Kind::Callee => text(value, errors, |text, errors| {
            e164(text, errors);
            if is_e164(text)
                && let Some(right) = right_spelling(text)
            {
                errors.push(
                    "string_pattern_mismatch",
                    format!(
                        "A prefix for calls within the country follows its code: it is {right}"
                    ),
                );
            }
        }),
        Kind::HttpsUrl => text(value, errors, |text, errors| {
            if let Err(why) = is_web_url(text) {
                errors.push(
                    "url_parsing",
                    format!("Input should be a public HTTPS URL: {why}"),
                );
            }
        }),
        Kind::OriginHost => text(value, errors, |text, errors| {
            if !is_origin_host(text) {
                errors.push(
                    "string_pattern_mismatch",
                    "String should be a host name or an IP address".into(),
                );
            }
        }),
        Kind::List { item, min, max } => list(item, *min, *max, value, errors),
        Kind::Object(fields) => match value {
            Value::Object(map) => object(fields, Unknown::Refuse, map, errors),
            _ => errors.push("model_type", "Input should be an object".into()),
        },
        Kind::OpenObject(fields) => match value {
            Value::Object(map) => object(fields, Unknown::Ignore, map, errors),
            _ => errors.push("model_type", "Input should be an object".into()),
        },
        Kind::Scalars {
            max,
            key_ok,
            key_rule,
        } => scalars(*max, *key_ok, key_rule, value, errors),
        Kind::AnyObject => {
            if !value.is_object() {
                errors.push("dict_type", "Input should be an object".into());
            }
        }
        Kind::Any => {}
        Kind::Timestamp => text(value, errors, |text, errors| {
            if crate::time::Timestamp::parse(text).is_none() {
                errors.push(
                    "datetime_parsing",
                    "Input should be an ISO 8601 time with an offset".into(),
                );
            }
        }),
    }
}

fn e164(text: &str, errors: &mut Errors) {
    if !is_e164(text) {
        errors.push(
            "string_pattern_mismatch",
            r"String should match pattern '^\+[1-9]\d{1,14}$'".into(),
        );
    }
}

fn text(value: &Value, errors: &mut Errors, check: impl FnOnce(&str, &mut Errors)) {
    match value.as_str() {
        None => errors.push("string_type", "Input should be a valid string".into()),
        // No database takes it as text.
        Some(text) if text.contains('\0') => {
            errors.push(
                "string_pattern_mismatch",
                "String should not contain a NUL character".into(),
            );
        }
        Some(text) => check(text, errors),
    }
}

fn int(value: &Value, min: i64, max: i64, errors: &mut Errors) {
    match value.as_i64() {
        Some(number) if number < min => {
            errors.push(
                "greater_than_equal",
                format!("Input should be greater than or equal to {min}"),
            );
        }
        Some(number) if number > max => {
            errors.push(
                "less_than_equal",
                format!("Input should be less than or equal to {max}"),
            );
        }
        Some(_) => {}
        None if value.is_u64() => errors.push(
            "less_than_equal",
            format!("Input should be less than or equal to {max}"),
        ),
        None => errors.push("int_parsing", "Input should be a valid integer".into()),
    }
}

fn list(item: &Kind, min: usize, max: usize, value: &Value, errors: &mut Errors) {
    let Some(items) = value.as_array() else {
        errors.push("list_type", "Input should be a valid list".into());
        return;
    };
    if items.len() < min {
        errors.push(
            "too_short",
            format!("List should have at least {min} {}", plural(min, "item")),
        );
    } else if items.len() > max {
        errors.push(
            "too_long",
            format!("List should have at most {max} {}", plural(max, "item")),
        );
        return;
    }
    for (index, value) in items.iter().enumerate() {
        errors.within(index, |errors| kind(item, value, errors));
    }
}

fn scalars(
    max: usize,
    key_ok: fn(&str) -> bool,
    key_rule: &str,
    value: &Value,
    errors: &mut Errors,
) {
    let Some(map) = value.as_object() else {
        errors.push("dict_type", "Input should be an object".into());
        return;
    };
    if map.len() > max {
        errors.push(
            "too_long",
            format!("Object should have at most {max} {}", plural(max, "key")),
        );
        return;
    }
    let length = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if map.iter().map(length).sum::<usize>() > MOST_SCALARS {
        errors.push(
            "too_long",
            format!("All names and values together should have at most {MOST_SCALARS} bytes"),
        );
        return;
    }
    for (key, value) in map {
        let short: String = key.chars().take(128).collect();
        errors.within(short.as_str(), |errors| {
            if !key_ok(key) || key.contains('\0') {
                errors.push(
                    "string_pattern_mismatch",
                    format!("Key should match: {key_rule}"),
                );
            }
            match value {
                Value::String(text) if text.contains('\0') => {
                    errors.push(
                        "string_pattern_mismatch",
                        "String should not contain a NUL character".into(),
                    );
                }
                Value::String(text) if text.chars().count() > LONGEST_SCALAR => errors.push(
                    "string_too_long",
                    format!("String should have at most {LONGEST_SCALAR} characters"),
                ),
                Value::String(_) | Value::Number(_) | Value::Bool(_) => {}
                _ => errors.push(
                    "string_type",
                    "Input should be a string, a number or a boolean".into(),
                ),
            }
        });
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use serde_json::json;

    const SCHEMA: Schema = Schema {
        name: "Sample",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("name", Kind::Str { min: 1, max: 3 }, "a name"),
            Field::opt("age", Kind::Int { min: 0, max: 150 }, "years").nullable(),
            Field::opt(
                "phones",
                Kind::List {
                    item: &Kind::E164,
                    min: 0,
                    max: 2,
                },
                "numbers",
            ),
            Field::opt(
                "inner",
                Kind::Object(&[Field::req("on", Kind::Bool, "a switch")]),
                "a part",
            ),
            Field::opt(
                "vars",
                Kind::Scalars {
                    max: 2,
                    key_ok: |key| !key.starts_with("system__"),
                    key_rule: "not system__",
                },
                "variables",
            ),
        ],
    };

    fn wrong(value: Value) -> Vec<(String, &'static str)> {
        match SCHEMA.check("body", &value) {
            Ok(()) => Vec::new(),
            Err(errors) => errors
                .into_iter()
                .map(|error| (error.path(), error.kind))
                .collect(),
        }
    }

    #[test]
    fn all_wrong_fields_are_told_at_once() {
        assert_eq!(
            wrong(json!({"name": "ab", "age": null, "phones": ["+15550100"]})),
            []
        );
        assert_eq!(
            wrong(
                json!({"age": -1, "phones": ["+15550100", 5], "inner": {}, "x": 1, "vars": {"system__a": []}})
            ),
            [
                ("name".to_owned(), "missing"),
                ("age".to_owned(), "greater_than_equal"),
                ("phones.1".to_owned(), "string_type"),
                ("inner.on".to_owned(), "missing"),
                ("vars.system__a".to_owned(), "string_pattern_mismatch"),
                ("vars.system__a".to_owned(), "string_type"),
                ("x".to_owned(), "extra_forbidden"),
            ]
        );
    }

    #[test]
    fn lengths_count_characters_and_nul_is_refused() {
        assert_eq!(wrong(json!({"name": "éàü"})), []);
        assert_eq!(
            wrong(json!({"name": "abcd"})),
            [("name".to_owned(), "string_too_long")]
        );
        assert_eq!(
            wrong(json!({"name": "a\0"})),
            [("name".to_owned(), "string_pattern_mismatch")]
        );
        assert_eq!(
            wrong(json!({"name": null})),
            [("name".to_owned(), "string_type")]
        );
        assert_eq!(wrong(json!([])), [("body".to_owned(), "model_type")]);
        assert_eq!(
            wrong(json!({"name": "a", "age": 1.5})),
            [("age".to_owned(), "int_parsing")]
        );
    }

    #[test]
    fn the_values_of_a_flat_object_are_bounded_each_and_together() {
        let vars = |a: usize, b: usize| json!({"name": "a", "vars": {"a": "é".repeat(a), "b": "x".repeat(b)}});
        assert_eq!(wrong(vars(LONGEST_SCALAR, LONGEST_SCALAR)), []);
        let too_long = [("vars.b".to_owned(), "string_too_long")];
        assert_eq!(wrong(vars(1, LONGEST_SCALAR + 1)), too_long);
        let together = [("vars".to_owned(), "too_long")];
        assert_eq!(wrong(vars(1, MOST_SCALARS)), together);
        let named = json!({"name": "a", "vars": {("n".repeat(MOST_SCALARS + 1)): 1}});
        assert_eq!(wrong(named), together);
    }

    #[test]
    fn a_hostile_body_gets_a_short_answer() {
        let many: Map<String, Value> = (0..10_000)
            .map(|index| (format!("k{index}"), Value::Null))
            .collect();
        assert_eq!(
            SCHEMA
                .check("body", &Value::Object(many))
                .unwrap_err()
                .len(),
            MAX_ERRORS
        );
    }
}
