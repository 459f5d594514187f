//! Ids in the document: every record of this server has a UUID, and every field that names a record refers to the one
//! schema [`NAME`].

use serde_json::{Map, Value, json};

/// The component.
pub(super) const NAME: &str = "Id";

/// Fields that are called an id and name no record of this server.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("pc_id", "names a peer connection within its session"),
    (
        "provider_request_ids",
        "speech and language providers give them",
    ),
    ("tool_call_id", "the language model gives it"),
    ("turn_id", "counts the turns of one conversation"),
    ("Model.id", "a provider and its name for the model"),
    ("ToolCall.id", "the language model gives it"),
];

/// Fields of requests that take other texts beside an id.
const ALSO_TEXT: &[&str] = &[
    // A legacy `voice_key`; for speech also `default`.
    "voice_id",
    // An empty text clears them.
    "outbound_trunk_id",
    "sms_sender_number_id",
];

/// Whether a schema says what a client sends, or what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Asked,
    Told,
}

/// The schema that all of them refer to.
pub(super) fn schema() -> Value {
    json!({
        "title": NAME,
        "description": "A UUID. Those of new records are version 7 (RFC 9562), so they sort by the time they were made. \
            The id of another account's record is answered like one that is nobody's.",
        "type": "string", "format": "uuid",
        "examples": ["0193a5c2-7d10-7c3e-9a41-5b6e2f0c1d22"]
    })
}

/// A reference to it.
pub(super) fn reference() -> Value {
    json!({"$ref": format!("#/components/schemas/{NAME}")})
}

/// Whether the field `name` of the component `of` names a record of this server.
pub(super) fn is_id(of: &str, name: &str) -> bool {
    let called_so = name == "id" || name.ends_with("_id") || name.ends_with("_ids");
    let qualified = format!("{of}.{name}");
    called_so
        && !FOREIGN
            .iter()
            .any(|(field, _)| *field == name || *field == qualified)
}

/// Has every id within the component `of` refer to the one schema.
pub(super) fn refer(of: &str, side: Side, schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for (name, property) in properties {
                    if is_id(of, name) {
                        refer_field(name, side, property);
                    }
                }
            }
            if map.get("format").is_some_and(|format| format == "uuid") {
                refer_field("", side, schema);
                return;
            }
            map.values_mut().for_each(|value| refer(of, side, value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(of, side, item)),
        _ => {}
    }
}

/// The schema of one field; its description stays beside the reference.
pub(super) fn refer_field(name: &str, side: Side, schema: &mut Value) {
    if let Some(items) = schema.get_mut("items") {
        refer_field(name, side, items);
        return;
    }
    let Value::Object(map) = schema else { return };
    let kinds = match map.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(|kind| kind.as_str().map(str::to_owned))
            .collect(),
        // It refers already.
        _ => return,
    };
    if !kinds.iter().any(|kind| kind == "string") {
        return;
    }
    let mut made = Map::new();
    if let Some(description) = map.remove("description") {
        made.insert("description".to_owned(), description);
    }
    if side == Side::Asked && ALSO_TEXT.contains(&name) {
        made.insert("anyOf".to_owned(), json!([reference(), map]));
    } else if kinds.iter().any(|kind| kind == "null") {
        made.insert("anyOf".to_owned(), json!([reference(), {"type": "null"}]));
    } else if let Value::Object(reference) = reference() {
        made.extend(reference);
    }
    *map = made;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_description_and_whether_it_may_be_null() {
        let mut told = json!({"properties": {
            "id": {"type": "string", "format": "uuid", "description": "Its own."},
            "agent_id": {"type": ["string", "null"], "format": "uuid"},
            "phone_number_ids": {"type": "array", "items": {"type": "string", "format": "uuid"}},
            "turn_id": {"type": "string"}
        }});
        refer("Call", Side::Told, &mut told);
        let id = "#/components/schemas/Id";
        assert_eq!(
            told["properties"],
            json!({
                "id": {"description": "Its own.", "$ref": id},
                "agent_id": {"anyOf": [{"$ref": id}, {"type": "null"}]},
                "phone_number_ids": {"type": "array", "items": {"$ref": id}},
                "turn_id": {"type": "string"}
            })
        );
    }

    #[test]
    fn a_request_may_name_a_voice_by_its_key_and_an_answer_has_its_id() {
        let voice = json!({"properties": {"voice_id": {"type": "string", "maxLength": 255}}});
        let (mut asked, mut told) = (voice.clone(), voice);
        refer("Speak", Side::Asked, &mut asked);
        refer("Agent", Side::Told, &mut told);
        assert_eq!(
            asked["properties"]["voice_id"],
            json!({"anyOf": [reference(), {"type": "string", "maxLength": 255}]})
        );
        assert_eq!(told["properties"]["voice_id"], reference());
    }

    #[test]
    fn what_others_call_an_id_stays_what_it_is() {
        assert!(is_id("Voice", "id") && is_id("Agent", "voice_id"));
        assert!(!is_id("Model", "id") && !is_id("Turn", "turn_id") && !is_id("Agent", "paid"));
    }
}
