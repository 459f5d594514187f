//! Tables of fields as JSON Schema (draft 2020-12). What a schema lets through, the check of
//! [`validate`](super::super::validate) lets through, and the other way round, as far as a schema can say it.

use serde_json::{Map, Value, json};

use super::super::validate::{Field, Kind, LONGEST_SCALAR, Schema, Unknown};

/// Text without NUL, which no database takes.
const TEXT: &str = r"^[^\u0000]*$";
/// ITU-T E.164, with its plus sign.
const E164: &str = r"^\+[1-9][0-9]{1,14}$";
/// A DNS name with at least two labels, the last one with a letter.
const ORIGIN_HOST: &str = concat!(
    r"^(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
    r"|((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}",
    r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]))$"
);
/// https, a public DNS name, port 443, no user info.
const HTTPS_URL: &str = concat!(
    r"^https://(?![^/?]*\.(localhost|local|internal|intranet|lan|home|corp|arpa|test|invalid|example|onion)(:443)?([/?]|$))",
    r"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
    r"(:443)?([/?]([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$"
);

/// A body as a schema.
pub(super) fn body(schema: &Schema) -> Value {
    let mut made = object(schema.fields, schema.unknown);
    made["title"] = schema.name.into();
    made
}

/// Fields as an answer shows them: of the type, without the bounds that a request is held to.
pub(super) fn record(fields: impl Iterator<Item = Field>) -> Value {
    let fields: Vec<Field> = fields.collect();
    let mut schema = object(&fields, Unknown::Ignore);
    unbound(&mut schema);
    schema
}

fn unbound(schema: &mut Value) {
    const BOUNDS: [&str; 9] = [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "propertyNames",
    ];
    match schema {
        Value::Object(map) => {
            map.retain(|key, value| {
                let is_bound = BOUNDS.contains(&key.as_str())
                    && !value.get("type").is_some_and(Value::is_string);
                let is_pattern = key == "pattern" && value.is_string();
                !is_bound && !is_pattern
            });
            map.values_mut().for_each(unbound);
        }
        Value::Array(items) => items.iter_mut().for_each(unbound),
        _ => {}
    }
}

/// Fields as an object schema.
pub(super) fn object(fields: &[Field], unknown: Unknown) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut schema = kind(&field.kind, field.nullable);
            schema["description"] = field.doc.into();
            (field.name.to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    let mut made = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        made["required"] = json!(required);
    }
    if unknown == Unknown::Refuse {
        made["additionalProperties"] = false.into();
    }
    made
}

/// A kind as a schema.
pub(super) fn kind(of: &Kind, nullable: bool) -> Value {
    let mut schema = match of {
        Kind::Str { min, max } => {
            let mut schema = json!({"type": "string", "maxLength": max, "pattern": TEXT});
            if *min > 0 {
                schema["minLength"] = (*min).into();
            }
            schema
        }
        // A rule in words cannot be said in a schema.
        Kind::Pattern { name, .. } if name.starts_with('^') => {
            json!({"type": "string", "pattern": name})
        }
        Kind::Pattern { name, .. } => json!({"type": "string", "x-rule": name}),
        Kind::Enum(words) => json!({"type": "string", "enum": words}),
        Kind::Int { min, max } => {
            let mut schema = json!({"type": "integer"});
            if *min > i64::MIN {
                schema["minimum"] = (*min).into();
            }
            if *max < i64::MAX {
                schema["maximum"] = (*max).into();
            }
            schema
        }
        Kind::Num { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Uuid => json!({"type": "string", "format": "uuid"}),
        Kind::E164 | Kind::Callee => json!({"type": "string", "pattern": E164}),
        Kind::HttpsUrl => {
            json!({"type": "string", "format": "uri", "maxLength": 2048, "pattern": HTTPS_URL})
        }
        Kind::OriginHost => json!({"anyOf": [
            {"type": "string", "maxLength": 253, "pattern": ORIGIN_HOST},
            {"type": "string", "format": "ipv6"},
        ]}),
        Kind::List { item, min, max } => {
            let mut schema = json!({"type": "array", "items": kind(item, false), "maxItems": max});
            if *min > 0 {
                schema["minItems"] = (*min).into();
            }
            schema
        }
        Kind::Object(fields) => object(fields, Unknown::Refuse),
        Kind::OpenObject(fields) => object(fields, Unknown::Ignore),
        Kind::Scalars { max, key_rule, .. } => json!({
            "type": "object", "maxProperties": max,
            "propertyNames": {"pattern": key_pattern(key_rule), "description": key_rule},
            "additionalProperties": {"anyOf": [
                {"type": "string", "pattern": TEXT, "maxLength": LONGEST_SCALAR},
                {"type": "number"}, {"type": "boolean"}
            ]}
        }),
        Kind::AnyObject => json!({"type": "object", "additionalProperties": true}),
        Kind::Any => json!({}),
        Kind::Timestamp => json!({"type": "string", "format": "date-time"}),
    };
    if nullable {
        allow_null(&mut schema);
    }
    schema
}

/// A list of words that holds null as well is two schemas: so generators make one type of the words.
pub(super) fn part_null_from_words(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(part_null_from_words);
            let Some(Value::Array(words)) = map.get_mut("enum") else {
                return;
            };
            let before = words.len();
            words.retain(|word| !word.is_null());
            if words.len() < before {
                let words = json!({"type": "string", "enum": words});
                map.remove("enum");
                map.remove("type");
                map.insert("anyOf".to_owned(), json!([words, {"type": "null"}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(part_null_from_words),
        _ => {}
    }
}

fn allow_null(schema: &mut Value) {
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.push(Value::Null);
    }
    if let Some(Value::String(one)) = schema.get("type") {
        schema["type"] = json!([one, "null"]);
    }
}

/// The rule for keys as a regular expression: that of variables, whose names may be bounded.
fn key_pattern(rule: &str) -> &'static str {
    if rule.starts_with("1 to 64") {
        r"^(?!system__)[^\u0000]{1,64}$"
    } else {
        r"^(?!system__)[^\u0000]*$"
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
