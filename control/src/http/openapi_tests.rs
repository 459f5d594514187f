//! The OpenAPI document is whole: every route tells its answers, every body has an example, every reference leads
//! somewhere.

use super::*;
use crate::http::answers::Answer;
use crate::routes;

fn made() -> Value {
    document(&routes::endpoints(), "http://127.0.0.1:8080")
}

/// The name of each route, for messages.
fn named(endpoint: &Endpoint) -> String {
    format!("{} {}", endpoint.method, endpoint.full_path())
}

#[test]
fn every_route_tells_what_it_answers() {
    let untold: Vec<String> = routes::endpoints()
        .iter()
        .filter(|endpoint| matches!(endpoint.answer, Answer::Untold) || endpoint.summary.is_empty())
        .map(named)
        .collect();
    assert!(
        untold.is_empty(),
        "give them a summary and `.answers::<…>()`: {untold:?}"
    );
}

#[test]
fn every_refusal_has_a_slug_and_says_when() {
    for endpoint in routes::endpoints() {
        for refusal in &endpoint.refusals {
            let told = !refusal.code.contains(' ') && !refusal.when.is_empty();
            assert!(told, "{}: {refusal:?}", named(&endpoint));
        }
    }
}

#[test]
fn every_body_and_every_answer_of_a_name_has_an_example() {
    let document = made();
    let mut bare = Vec::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let responses = operation["responses"].as_object().into_iter().flatten();
            let bodies = responses
                .filter(|(status, _)| status.starts_with('2'))
                .map(|(_, response)| response)
                .chain(operation.get("requestBody"));
            for body in bodies {
                let content = &body["content"]["application/json"];
                if let Some(name) = component(&content["schema"])
                    && content.get("example").is_none()
                {
                    bare.push(format!("{method} {path}: {name}"));
                }
            }
        }
    }
    for (name, item) in document["webhooks"].as_object().into_iter().flatten() {
        let content = &item["post"]["requestBody"]["content"]["application/json"];
        if content.get("example").is_none() {
            bare.push(name.clone());
        }
    }
    assert!(
        bare.is_empty(),
        "write them into openapi_examples.json: {bare:?}"
    );
}

#[test]
fn no_example_is_of_something_that_is_gone() {
    let document = made();
    let examples = Examples::read();
    assert!(
        !examples.0.is_empty(),
        "openapi_examples.json cannot be read"
    );
    let gone: Vec<&String> = examples
        .0
        .keys()
        .filter(|name| {
            document["components"]["schemas"]
                .get(name.as_str())
                .is_none()
        })
        .collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.push(reference.clone());
                }
                map.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let document = made();
    let mut references = Vec::new();
    walk(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_resource_is_described_and_every_operation_has_a_name_of_its_own() {
    let mut ids = std::collections::BTreeSet::new();
    for endpoint in routes::endpoints()
        .iter()
        .filter(|endpoint| !endpoint.internal)
    {
        assert!(
            ids.insert(operation_id(endpoint)),
            "{} stands twice",
            operation_id(endpoint)
        );
        assert!(
            TAGS.iter().any(|(name, _)| *name == tag(endpoint)),
            "describe `{}` in TAGS",
            tag(endpoint)
        );
    }
}

#[test]
fn what_nodes_say_to_each_other_is_nobody_elses() {
    assert!(!made().to_string().contains("/internal/"));
}
