//! Examples of bodies and answers that nobody wrote one for, made of their schemas: a new resource needs no entry in
//! `examples.json` where these are good enough.

use serde_json::{Map, Value, json};

use super as openapi;

/// What stands where a schema asks for an id, a time or an address.
const UUID: &str = "0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22";
const TIME: &str = "2026-01-02T03:04:05.000006+00:00";
const URL: &str = "https://hooks.acme.com/events";
const NUMBER: &str = "+4930123456";

/// Gives every JSON body of a named type an example, where it has none.
pub(super) fn fill(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    for section in ["paths", "webhooks"] {
        let items = document[section].as_object_mut().into_iter().flatten();
        for (_, item) in items {
            let operations = item.as_object_mut().into_iter().flatten();
            for (_, operation) in operations {
                fill_body(operation.get_mut("requestBody"), &schemas);
                let responses = operation
                    .get_mut("responses")
                    .and_then(Value::as_object_mut);
                for (status, response) in responses.into_iter().flatten() {
                    if status.starts_with('2') {
                        fill_body(Some(response), &schemas);
                    }
                }
            }
        }
    }
}

fn fill_body(body: Option<&mut Value>, schemas: &Value) {
    let content = body.and_then(|body| body.pointer_mut("/content/application~1json"));
    if let Some(Value::Object(content)) = content
        && !content.contains_key("example")
        && let Some(schema) = content.get("schema")
        && openapi::component(schema).is_some()
    {
        let example = sample("value", schema, schemas);
        content.insert("example".to_owned(), example);
    }
}

/// Something of this schema; `name`: that of the field it stands in.
fn sample(name: &str, schema: &Value, schemas: &Value) -> Value {
    if let Some(component) = openapi::component(schema) {
        return sample(name, &schemas[component], schemas);
    }
    let one_of = ["anyOf", "oneOf", "allOf"];
    let choice = one_of.iter().find_map(|key| schema.get(key)?.get(0));
    if let Some(choice) = choice {
        return sample(name, choice, schemas);
    }
    if let Some(value) = schema.get("const").or_else(|| schema.get("enum")?.get(0)) {
        return value.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let field =
                |(name, field): (&String, &Value)| (name.clone(), sample(name, field, schemas));
            Value::Object(fields.map(field).collect::<Map<_, _>>())
        }
        Some("array") => json!([sample(name, &schema["items"], schemas)]),
        Some("string") => text(name, schema),
        Some("integer" | "number") => {
            let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
            json!(schema["minimum"].as_i64().unwrap_or(1).max(1).min(most))
        }
        Some("boolean") => json!(true),
        _ => Value::Null,
    }
}

fn text(name: &str, schema: &Value) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    match schema["format"].as_str() {
        Some("uuid") => json!(UUID),
        Some("date-time") => json!(TIME),
        Some("uri") => json!(URL),
        _ if pattern.contains(r"\+[1-9]") => json!(NUMBER),
        _ => json!(name.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::validate::{Field, Kind, Schema, Unknown};

    const TABLE: Schema = Schema {
        name: "Sampled",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req("id", Kind::Uuid, ""),
            Field::req("a_name", Kind::Str { min: 1, max: 9 }, ""),
            Field::req("number", Kind::E164, ""),
            Field::opt("at", Kind::Timestamp, "").nullable(),
            Field::opt("word", Kind::Enum(&["one", "two"]), "").nullable(),
            Field::opt("size", Kind::Int { min: 5, max: 9 }, ""),
            Field::opt("url", Kind::HttpsUrl, ""),
            Field::opt(
                "list",
                Kind::List {
                    item: &Kind::Bool,
                    min: 1,
                    max: 2,
                },
                "",
            ),
        ],
    };

    #[test]
    fn a_sample_is_what_its_table_takes() {
        let schema = super::super::schema::body(&TABLE);
        let mut document = json!({
            "components": {"schemas": {"Sampled": schema}},
            "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/Sampled"}
            }}}}}}
        });
        fill(&mut document);
        let content = &document["paths"]["/x"]["post"]["requestBody"]["content"];
        let example = &content["application/json"]["example"];
        assert_eq!(TABLE.check("body", example), Ok(()), "{example}");
        assert_eq!(example["a_name"], "a name");
        assert_eq!(example["list"], json!([true]));
    }

    #[test]
    fn an_example_that_somebody_wrote_stays() {
        let document = openapi::document(
            &crate::routes::endpoints(),
            crate::routes::EVENTS,
            "http://127.0.0.1:8080",
        );
        let key =
            "/paths/~1api~1v1~1api-keys/post/requestBody/content/application~1json/example/name";
        assert_eq!(document.pointer(key), Some(&json!("laptop")));
    }
}
