//! The events that are sent out, as the `webhooks` of the document (OpenAPI 3.1, section 4.8.1).

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// An event that this server sends.
pub struct Event {
    /// As in `call.ended`.
    pub name: &'static str,
    pub summary: &'static str,
    /// Whom it is sent to.
    pub target: &'static str,
    /// How hard it is delivered: a sentence without its full stop.
    pub delivery: &'static str,
    pub body: fn(&mut SchemaGenerator) -> Schema,
}

/// The section. `example` gives that of a component.
pub(super) fn webhooks(
    events: &[Event],
    generator: &mut SchemaGenerator,
    example: impl Fn(&Value) -> Option<Value>,
) -> Map<String, Value> {
    events
        .iter()
        .map(|event| {
            let schema = (event.body)(generator).to_value();
            let mut content = json!({"schema": schema});
            if let Some(example) = example(&schema) {
                content["example"] = example;
            }
            let name = event.name;
            let item = json!({"post": {
                "operationId": operation_id(event),
                "summary": event.summary,
                "description": description(event),
                "tags": ["webhooks"],
                // The signature tells the receiver who sends it; there is no credential.
                "security": [],
                "parameters": [
                    {
                        "name": "X-Svc-Event", "in": "header", "required": true,
                        "description": "The kind of event.",
                        "schema": {"type": "string", "const": name}
                    },
                    {
                        "name": "X-Svc-Signature", "in": "header", "required": true,
                        "description": "When it was signed (Unix seconds), and the HMAC-SHA-256 in hex, keyed with the webhook secret, over `<t>.<body>`. Refuse a time more than five minutes off.",
                        "schema": {"type": "string", "pattern": "^t=[0-9]+,v1=[0-9a-f]{64}$"}
                    }
                ],
                "requestBody": {"required": true, "content": {"application/json": content}},
                "responses": {
                    "2XX": {"description": "Taken, a repetition included. Within ten seconds; the body is not read."},
                    "default": {"description": "Not taken: it is sent again. A redirection is not followed."}
                }
            }});
            (name.to_owned(), item)
        })
        .collect()
}

/// `receiveCallEnded` of `call.ended`: the operation is the receiver's.
pub(super) fn operation_id(event: &Event) -> String {
    let words = event.name.split(['.', '_']);
    std::iter::once("receive".to_owned())
        .chain(words.map(capitalised))
        .collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + letters.as_str()
    })
}

fn description(event: &Event) -> String {
    format!(
        "The server sends this to {}. {}. Delivery is at least once: `event_id` tells a repetition.",
        event.target, event.delivery
    )
}
