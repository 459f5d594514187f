//! The OpenAPI document is whole: every route tells its answers, every body has an example, every reference leads
//! somewhere.

use super::*;
use crate::routes;

fn made() -> Value {
    document(
        &routes::endpoints(),
        routes::EVENTS,
        "http://127.0.0.1:8080",
    )
}

/// The name of each route, for messages.
fn named(endpoint: &Operation) -> String {
    format!("{} {}", endpoint.method, endpoint.full_path())
}

#[test]
fn every_route_tells_what_it_answers() {
    let untold: Vec<String> = routes::endpoints()
        .iter()
        .filter(|endpoint| matches!(endpoint.answer, Answer::Untold) || endpoint.summary.is_empty())
        .map(|endpoint| named(endpoint))
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
    assert!(bare.is_empty(), "write them into examples.json: {bare:?}");
}

#[test]
fn no_example_is_of_something_that_is_gone() {
    let document = made();
    let examples = Examples::read();
    assert!(!examples.0.is_empty(), "examples.json cannot be read");
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

/// Every operation, those of events too, with its name for messages.
fn operations(document: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for section in ["paths", "webhooks"] {
        for (path, item) in document[section].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                found.push((format!("{method} {path}"), operation.clone()));
            }
        }
    }
    assert!(found.len() > 80, "{}", found.len());
    found
}

/// Every schema with its place: the components, and all that stand within them.
fn walk_schemas(of: &str, at: &str, schema: &Value, visit: &mut impl FnMut(&str, &str, &Value)) {
    visit(of, at, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk_schemas(of, &format!("{at}.{name}"), property, visit);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            walk_schemas(of, &format!("{at}[]"), &schema[part], visit);
        }
    }
    for part in ["anyOf", "oneOf", "allOf"] {
        for one in schema[part].as_array().into_iter().flatten() {
            walk_schemas(of, &format!("{at}|"), one, visit);
        }
    }
}

fn every_schema(document: &Value, mut visit: impl FnMut(&str, &str, &Value)) {
    let schemas = &document["components"]["schemas"];
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        walk_schemas(name, name, schema, &mut visit);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default().trim()
}

/// What an operation begins with.
const VERBS: &[&str] = &[
    "add",
    "block",
    "create",
    "delete",
    "download",
    "duplicate",
    "end",
    "get",
    "join",
    "list",
    "onboard",
    "open",
    "place",
    "preview",
    "rate",
    "receive",
    "redeliver",
    "register",
    "release",
    "revoke",
    "rotate",
    "search",
    "send",
    "set",
    "synthesize",
    "trigger",
    "unblock",
    "update",
];

#[test]
fn every_operation_is_a_verb_and_a_noun_that_no_other_has() {
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&made()) {
        let id = text(&operation, "operationId").to_owned();
        let verb = id.find(|letter: char| letter.is_ascii_uppercase());
        let (verb, noun) = id.split_at(verb.unwrap_or(id.len()));
        assert!(VERBS.contains(&verb), "{name}: {id:?} begins with no verb");
        assert!(
            !noun.is_empty() && noun.chars().all(|letter| letter.is_ascii_alphanumeric()),
            "{name}: {id:?} has no noun"
        );
        assert!(ids.insert(id.clone()), "{name}: {id} stands twice");
    }
    let used = |verb: &&&str| ids.iter().any(|id| id.starts_with(**verb));
    assert!(
        VERBS.iter().all(|verb| used(&verb)),
        "a verb that is not used"
    );
}

#[test]
fn every_operation_says_in_sentences_what_it_does() {
    let mut short = Vec::new();
    for (name, operation) in operations(&made()) {
        let about = text(&operation, "description");
        let about = about.split("\n\n").next().unwrap_or_default();
        let ends = about.split(". ").filter(|sentence| sentence.len() > 10);
        if ends.count() < 2 || !about.ends_with('.') || text(&operation, "summary").is_empty() {
            short.push(format!("{name}: {about:?}"));
        }
        let tag = operation["tags"][0].as_str().unwrap_or_default();
        assert!(
            TAGS.iter().any(|(name, _)| *name == tag),
            "describe `{tag}` in TAGS"
        );
    }
    assert!(
        short.is_empty(),
        "less than two sentences:\n{}",
        short.join("\n")
    );
}

#[test]
fn every_field_says_what_it_means() {
    let document = made();
    let mut untold = Vec::new();
    let told = |schema: &Value| {
        let referred = text(schema, "$ref");
        !text(schema, "description").is_empty()
            || document
                .pointer(referred.trim_start_matches('#'))
                .is_some_and(|schema| {
                    !referred.is_empty() && !text(schema, "description").is_empty()
                })
    };
    every_schema(&document, |of, at, schema| {
        if of == at && text(schema, "description").is_empty() {
            untold.push(at.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if !told(property) {
                untold.push(format!("{at}.{name}"));
            }
        }
    });
    for (name, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if text(parameter, "description").is_empty() {
                untold.push(format!("{name}: {}", parameter["name"]));
            }
        }
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            if text(response, "description").is_empty() {
                untold.push(format!("{name}: {status}"));
            }
            for (header, told) in response["headers"].as_object().into_iter().flatten() {
                if text(told, "$ref").is_empty() && text(told, "description").is_empty() {
                    untold.push(format!("{name}: {status}: {header}"));
                }
            }
        }
    }
    for section in ["headers", "securitySchemes"] {
        for (name, one) in document["components"][section]
            .as_object()
            .into_iter()
            .flatten()
        {
            if text(one, "description").is_empty() {
                untold.push(format!("{section}: {name}"));
            }
        }
    }
    assert!(
        untold.is_empty(),
        "give them a doc comment:\n{}",
        untold.join("\n")
    );
}

/// A field that is called an id refers to the one schema, or says why not; and no UUID stands anywhere else.
#[test]
fn every_id_refers_to_the_one_schema() {
    let document = made();
    let id = ids::reference();
    let (mut wrong, mut ids) = (Vec::new(), 0);
    let mut met = BTreeSet::new();
    let refers = |schema: &Value| {
        let plain = schema["$ref"] == id["$ref"];
        let items = schema["items"]["$ref"] == id["$ref"];
        let one = schema["anyOf"]
            .as_array()
            .is_some_and(|all| all.contains(&id));
        plain || items || one
    };
    every_schema(&document, |of, at, schema| {
        if of != ids::NAME && schema["format"] == "uuid" {
            wrong.push(format!("{at} has a UUID of its own"));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let called_so = name == "id" || name.ends_with("_id") || name.ends_with("_ids");
            if ids::is_id(of, name) {
                ids += 1;
                if !refers(property) {
                    wrong.push(format!("{at}.{name}"));
                }
            } else if called_so {
                met.insert(name.clone());
                met.insert(format!("{of}.{name}"));
            }
        }
    });
    for (name, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let field = text(parameter, "name");
            if ids::is_id("", field) && !refers(&parameter["schema"]) {
                wrong.push(format!("{name}: {field}"));
            }
        }
    }
    assert!(ids > 80, "{ids}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (field, _) in ids::FOREIGN {
        assert!(met.contains(*field), "{field} is gone");
    }
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["Voice"]["properties"]["id"]["$ref"],
        schemas["Agent"]["properties"]["voice_id"]["$ref"]
    );
}

#[test]
fn an_event_needs_no_credential_and_says_so() {
    for (name, item) in made()["webhooks"].as_object().into_iter().flatten() {
        assert_eq!(item["post"]["security"], json!([]), "{name}");
    }
}

#[test]
fn every_operation_names_a_success_and_a_refusal() {
    let document = made();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let responses = operation["responses"].as_object().into_iter().flatten();
            let statuses: Vec<&str> = responses.map(|(status, _)| status.as_str()).collect();
            // 101 is the success of a WebSocket's handshake.
            let good = |status: &&str| status.starts_with('2') || *status == "101";
            assert!(statuses.iter().any(good), "{method} {path}: {statuses:?}");
            let refused = statuses.iter().any(|status| status.starts_with('4'));
            assert!(refused, "{method} {path}: {statuses:?}");
        }
    }
}

#[test]
fn what_nodes_say_to_each_other_is_nobody_elses() {
    assert!(!made().to_string().contains("/internal/"));
}
