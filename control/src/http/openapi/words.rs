//! What the fields of answers mean. A field says so itself, in its doc comment. One that says nothing means what the field
//! of its name means in the body of a request that is answered with the record; else it is one of those that many
//! records have, and [`WORDS`] tells of them once.

use serde_json::{Map, Value};

/// Fields of many records, and of those that are declared without words of their own.
const WORDS: &[(&str, &str)] = &[
    ("account_id", "The account."),
    ("agent_id", "The agent."),
    (
        "agent_name",
        "The agent's name, as it was when the call began.",
    ),
    ("already_ended", "Whether it had ended before this request."),
    ("at", "When it happened."),
    ("batch_id", "The batch that the call is of."),
    (
        "batch_recipient_index",
        "The place of the call in its batch.",
    ),
    ("call_id", "The call."),
    ("capabilities", "What it can carry."),
    ("channel", "What the call goes over."),
    ("content_type", "The media type of what the URL gives."),
    (
        "conversation_id",
        "The conversation. It has the id of its call.",
    ),
    ("cost_cents", "What it cost, in cents."),
    ("created_at", "When it was made."),
    ("delivered_at", "When the event was taken by its receiver."),
    (
        "delivery_attempts",
        "How often the delivery of the event was tried.",
    ),
    (
        "direction",
        "Who calls: `inbound` calls come to the agent, `outbound` ones are the agent's.",
    ),
    ("duration_ms", "How long it took, in milliseconds."),
    ("duration_seconds", "How long it lasted, in seconds."),
    (
        "dynamic_variables",
        "The values of the agent's placeholders in this call.",
    ),
    (
        "end_reason",
        "Why it ended, such as `caller_hangup`, `agent_end_call`, `ended_by_api` or `session_expired`.",
    ),
    ("ended_at", "When it ended."),
    ("entries", "Numbers, or how they begin."),
    (
        "event_id",
        "The event. The id is the same in every attempt to deliver it.",
    ),
    ("event_type", "The kind of event, as in the header."),
    ("expires_at", "When it runs out."),
    ("expires_in", "How many seconds it lasts."),
    (
        "fallback_action",
        "What is done with a call that no agent answers.",
    ),
    ("fallback_number", "The number that calls are forwarded to."),
    ("fired_at", "When the threshold was reached."),
    ("from_number", "The number that calls."),
    (
        "has_recording",
        "Whether there is a recording that can be heard.",
    ),
    (
        "index",
        "The place of the turn in its conversation, from 0.",
    ),
    (
        "is_default_outbound",
        "Whether calls go over it where neither the number nor the agent names another.",
    ),
    ("items", "The items, in the order of the list."),
    (
        "jitter_ms",
        "How unevenly the packets arrive, in milliseconds (RFC 3550 section 6.4.1).",
    ),
    ("language", "The language that is spoken."),
    (
        "loss_pct",
        "The share of packets that were lost, in percent.",
    ),
    (
        "max_ring_seconds",
        "How long a call rings while no agent can answer. Null: 30 seconds.",
    ),
    ("metadata", "The account's own data about the call."),
    (
        "mode",
        "Whether only the entries may be called, or all others.",
    ),
    (
        "mos",
        "The estimated opinion of a listener, from 1 (bad) to 5 (excellent).",
    ),
    (
        "observed_value",
        "What was used when the threshold was reached.",
    ),
    ("offset", "How many items come before this page."),
    ("pc_id", "The id of the peer connection."),
    ("period", "Within what time usage is counted, UTC."),
    ("period_ends_at", "When the period that is counted ends."),
    (
        "period_started_at",
        "When the period that is counted began.",
    ),
    (
        "phone_number_id",
        "The account's phone number that the call came to or was placed from.",
    ),
    ("phone_numbers", "The phone numbers."),
    ("quantity", "How much was used, in `unit`."),
    ("reason", "Why, in words."),
    ("recording_id", "The recording of the call."),
    ("recording_region", "Where the recording is stored."),
    ("released_at", "When the entry was taken off the list."),
    (
        "replies_acknowledged_at",
        "When it was acknowledged that texts sent from the number get no answer.",
    ),
    ("resource_type", "What is counted."),
    (
        "rtt_ms",
        "How long a packet takes there and back, in milliseconds.",
    ),
    ("session_id", "The session. It has the id of its call."),
    ("size_bytes", "The length of the WAV in bytes."),
    ("sms", "Whether it can carry texts."),
    ("started_at", "When it began."),
    (
        "started_ms",
        "When it began: offset on the call's clock, in milliseconds.",
    ),
    ("status", "Where it stands, in one of these words."),
    (
        "telco_account_id",
        "The account at the telephony vendor. Null for numbers of others.",
    ),
    (
        "threshold_type",
        "Whether the threshold is in units of the resource or in percent of its monthly limit.",
    ),
    ("threshold_value", "The threshold."),
    ("timestamp", "When the event was made, in Unix seconds."),
    ("to_number", "The number that is called."),
    (
        "tool_call_id",
        "The tool call, by the id that the language model gave it.",
    ),
    ("totals", "All items together."),
    ("transcript", "What was said, turn by turn."),
    ("transcript_text", "What was said as text, one line a turn."),
    ("trigger_id", "The usage trigger."),
    ("trunk", "The trunk."),
    ("trunk_id", "The SIP trunk."),
    ("turn_count", "How many turns the conversation has."),
    (
        "turn_id",
        "The turn. The id is unique within its conversation.",
    ),
    ("unit", "What the quantity is counted in."),
    ("updated_at", "When it last changed."),
    ("voice", "Whether it can carry calls."),
    (
        "webhook_attempts",
        "How often the delivery of `call.ended` was tried.",
    ),
    (
        "webhook_delivered_at",
        "When `call.ended` was taken by its receiver.",
    ),
];

/// The bodies of requests, by the record that they are answered with.
pub(super) type Bodies = Vec<(String, String)>;

/// Describes each field of the components that does not say what it means, as far as it can be known.
pub(super) fn describe(schemas: &mut Map<String, Value>, bodies: &Bodies) {
    let asked: Map<String, Value> = schemas
        .iter()
        .filter(|(name, _)| bodies.iter().any(|(_, body)| body == *name))
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect();
    for (component, schema) in schemas {
        let inherited = |field: &str| {
            let own = bodies.iter().filter(|(record, _)| record == component);
            own.filter_map(|(_, body)| {
                asked.get(body)?["properties"][field]["description"].as_str()
            })
            .next()
        };
        let words = |field: &str| match field {
            "id" => Some(format!("The id of this {}.", spaced(component))),
            _ => inherited(field)
                .or_else(|| common(field))
                .map(str::to_owned),
        };
        walk(schema, &words);
    }
}

fn walk(schema: &mut Value, words: &impl Fn(&str) -> Option<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for (name, property) in properties {
                    if let Value::Object(property) = property
                        && !property.contains_key("description")
                        && let Some(words) = words(name)
                    {
                        property.insert("description".to_owned(), words.into());
                    }
                }
            }
            map.values_mut().for_each(|value| walk(value, words));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, words)),
        _ => {}
    }
}

fn common(field: &str) -> Option<&'static str> {
    let (_, words) = WORDS.iter().find(|(name, _)| *name == field)?;
    Some(words)
}

/// `SipTrunk` as words: SIP trunk. An item of a list is called as the record is.
fn spaced(component: &str) -> String {
    let record = component
        .trim_end_matches("Item")
        .trim_start_matches("Found");
    let mut words = String::new();
    for letter in record.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    for (small, right) in [("api ", "API "), ("sip ", "SIP ")] {
        if let Some(rest) = words.strip_prefix(small) {
            words = format!("{right}{rest}");
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_means_what_it_says_then_what_its_request_says_then_what_all_of_its_name_mean() {
        let Value::Object(mut schemas) = json!({
            "SipTrunk": {"properties": {
                "id": {}, "name": {}, "realm": {"description": "Its own."}, "created_at": {}, "odd": {}
            }},
            "CreateTrunk": {"properties": {
                "name": {"description": "A label."}, "realm": {"description": "Another."}
            }},
            "Other": {"properties": {"name": {}}}
        }) else {
            return;
        };
        describe(
            &mut schemas,
            &vec![("SipTrunk".to_owned(), "CreateTrunk".to_owned())],
        );
        let of = |field: &str| schemas["SipTrunk"]["properties"][field]["description"].clone();
        assert_eq!(of("id"), "The id of this SIP trunk.");
        assert_eq!(of("name"), "A label.");
        assert_eq!(of("realm"), "Its own.");
        assert_eq!(of("created_at"), "When it was made.");
        assert_eq!(of("odd"), Value::Null);
        assert_eq!(schemas["Other"]["properties"]["name"], json!({}));
    }

    #[test]
    fn a_word_stands_once() {
        for (place, (name, _)) in WORDS.iter().enumerate() {
            assert!(WORDS[place + 1..].iter().all(|(other, _)| other != name));
        }
    }
}
