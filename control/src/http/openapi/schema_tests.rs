//! Tables of fields and the schemas made of them say the same.

use super::*;
use crate::routes;

/// Every kind of every table, those within others too.
fn kinds() -> Vec<Kind> {
    fn of(kind: Kind, found: &mut Vec<Kind>) {
        found.push(kind);
        match kind {
            Kind::List { item, .. } => of(*item, found),
            Kind::Object(fields) | Kind::OpenObject(fields) => {
                fields.iter().for_each(|field| of(field.kind, found))
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    for endpoint in routes::endpoints() {
        for schema in [endpoint.body, endpoint.query].into_iter().flatten() {
            schema
                .fields
                .iter()
                .for_each(|field| of(field.kind, &mut found));
        }
    }
    found
}

#[test]
fn a_rule_of_a_text_is_a_regular_expression() {
    for kind in kinds() {
        if let Kind::Pattern { name, .. } = kind {
            assert!(name.starts_with('^'), "a schema cannot say {name:?}");
        }
    }
}

#[test]
fn a_rule_of_keys_is_one_that_a_schema_can_say() {
    let long = "é".repeat(65);
    for kind in kinds() {
        let Kind::Scalars {
            key_ok, key_rule, ..
        } = kind
        else {
            continue;
        };
        // The patterns of `key_pattern`, told apart by their bound.
        let bounded = key_pattern(key_rule).contains("{1,64}");
        for (key, right) in [
            ("guest", true),
            ("system__time", false),
            ("systems", true),
            ("", !bounded),
            (long.as_str(), !bounded),
        ] {
            assert_eq!(key_ok(key), right, "{key_rule}: {key:?}");
        }
    }
}

#[test]
fn words_or_null_are_two_schemas() {
    let mut schema = kind(&Kind::Enum(&["a", "b"]), true);
    schema["description"] = json!("A.");
    part_null_from_words(&mut schema);
    assert_eq!(
        schema,
        json!({"description": "A.", "anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}]})
    );
}

#[test]
fn a_record_has_the_types_and_not_the_bounds() {
    let fields = [
        Field::req("a", Kind::Str { min: 1, max: 9 }, "A."),
        Field::opt("b", Kind::Int { min: 0, max: 3 }, "B.").nullable(),
    ];
    assert_eq!(
        record(fields.into_iter()),
        json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": "A."},
                "b": {"type": ["integer", "null"], "description": "B."}
            },
            "required": ["a"]
        })
    );
}
