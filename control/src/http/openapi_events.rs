//! The events that are sent out, as the `webhooks` of the document (OpenAPI 3.1, section 4.8.1).

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::usage::wire::ThresholdCrossed;
use crate::webhooks::bodies::{CallEnded, PromptVariablesUnfilled, RecordingReady};
use crate::webhooks::event::EventType;
use crate::webhooks::schedule::Class;

/// An event that this server sends.
pub struct Event {
    pub kind: EventType,
    summary: &'static str,
    target: &'static str,
    body: fn(&mut SchemaGenerator) -> Schema,
}

/// Every one of them.
pub const EVENTS: &[Event] = &[
    Event {
        kind: EventType::CallEnded,
        summary: "A call has ended",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<CallEnded<'static>>,
    },
    Event {
        kind: EventType::RecordingReady,
        summary: "A recording can be heard",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<RecordingReady<'static>>,
    },
    Event {
        kind: EventType::PromptVariablesUnfilled,
        summary: "A conversation began although its prompt has placeholders that nothing fills; once an agent and UTC day",
        target: "the agent's `webhook_url`",
        body: SchemaGenerator::subschema_for::<PromptVariablesUnfilled<'static>>,
    },
    Event {
        kind: EventType::UsageThresholdCrossed,
        summary: "What was used has reached a trigger's threshold; once in each of its periods",
        target: "the trigger's `event_callback_url`",
        body: SchemaGenerator::subschema_for::<ThresholdCrossed>,
    },
];

/// The section. `example` gives that of a component.
pub(super) fn webhooks(
    generator: &mut SchemaGenerator,
    example: impl Fn(&Value) -> Option<Value>,
) -> Map<String, Value> {
    EVENTS
        .iter()
        .map(|event| {
            let schema = (event.body)(generator).to_value();
            let mut content = json!({"schema": schema});
            if let Some(example) = example(&schema) {
                content["example"] = example;
            }
            let name = event.kind.name();
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
    let words = event.kind.name().split(['.', '_']);
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
    let again = match event.kind.class() {
        Class::Durable => {
            "It makes three attempts in a row, then up to 20 rounds over three days; `webhook_delivery_status` of the call tells where the delivery stands"
        }
        Class::Short => "It makes three attempts in a row, and no more",
        Class::BestEffort => "It tries for a few minutes and then drops the event",
    };
    format!(
        "The server sends this to {}. {again}. Delivery is at least once: `event_id` tells a repetition.",
        event.target
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stands_once() {
        for (place, event) in EVENTS.iter().enumerate() {
            let later = &EVENTS[place + 1..];
            assert!(later.iter().all(|other| other.kind != event.kind));
        }
    }
}
