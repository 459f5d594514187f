//! Tests made from the field table: every field wrong in turn, right at its bounds, null and cleared.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    fields::{CREATE_FIELDS, PATCH_FIELDS, SETTINGS, Setting, Unset, complete},
    rules::{Refused, World, change},
};
use crate::{
    egress::Allow,
    http::validate::{Field, Kind, LONGEST_SCALAR, Schema, Unknown},
};

const CREATE: Schema = Schema {
    name: "CreateAgent",
    fields: &CREATE_FIELDS,
    unknown: Unknown::Refuse,
};
const PATCH: Schema = Schema {
    name: "UpdateAgent",
    fields: &PATCH_FIELDS,
    unknown: Unknown::Refuse,
};
const VOICE: Uuid = Uuid::from_u128(7);

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn minimal() -> Map<String, Value> {
    object(json!({"name": "Reception", "system_prompt": "Be kind.", "voice_id": VOICE.to_string()}))
}

/// Judges a body as the route does: which fields are named, or what is stored.
fn judge(
    schema: &Schema,
    stored: &Map<String, Value>,
    body: &Map<String, Value>,
) -> Result<Map<String, Value>, Vec<String>> {
    if let Err(errors) = schema.check("body", &Value::Object(body.clone())) {
        return Err(errors.iter().map(|error| error.path()).collect());
    }
    let allow = Allow::default();
    let world = World {
        voice: |key| (key == "a-voice" || key == VOICE.to_string()).then_some(VOICE),
        model: |id| id == "faq",
        trunk: None,
        sender: None,
        egress: &allow,
    };
    match change(stored, body, &world) {
        Ok((stored, _)) => Ok(stored),
        Err(Refused::Fields(problems)) => Err(problems
            .iter()
            .map(|problem| problem.field.to_owned())
            .collect()),
        Err(Refused::UnknownNumber) => Err(vec!["sms_sender_number_id".to_owned()]),
        Err(Refused::Unreadable(error)) => panic!("{error}"),
    }
}

fn create(more: Value) -> Result<Map<String, Value>, Vec<String>> {
    let mut body = minimal();
    body.extend(object(more));
    judge(&CREATE, &Map::new(), &body)
}

/// Values that a kind must refuse.
pub(super) fn wrong(kind: &Kind) -> Vec<Value> {
    let mut values = match kind {
        Kind::Str { min, max } => {
            let mut values = vec![json!(1), json!("x".repeat(max + 1)), json!("a\0b")];
            values.extend((*min > 0).then(|| json!("")));
            return values
                .into_iter()
                .chain([json!([]), json!({}), json!(true)])
                .collect();
        }
        Kind::Pattern { .. } => vec![json!(1)],
        Kind::Enum(words) => vec![json!("nonsense"), json!(words[0].to_uppercase()), json!("")],
        Kind::Int { min, max } => vec![
            json!(min - 1),
            json!(max + 1),
            json!(*min as f64 + 0.5),
            json!(u64::MAX),
            json!("1"),
        ],
        Kind::Num { min, max } => vec![
            json!(min - 0.001),
            json!(max + 0.001),
            json!(1e300),
            json!("1"),
        ],
        Kind::Bool => vec![json!("true"), json!(1), json!("")],
        Kind::Uuid => vec![json!("x"), json!("")],
        Kind::E164 | Kind::Callee => vec![
            json!("0612345678"),
            json!("+0123"),
            json!("+"),
            json!("+1234567890123456"),
            json!("+1 555"),
            json!(""),
        ],
        Kind::HttpsUrl => vec![json!("http://example.com")],
        Kind::OriginHost => vec![
            json!("https://example.com"),
            json!("a b"),
            json!("-a.example"),
            json!(""),
        ],
        Kind::List { item, max, .. } => {
            let mut values: Vec<Value> = wrong(item)
                .into_iter()
                .map(|value| json!([value]))
                .collect();
            values.push(json!(vec![right(item).pop().unwrap(); max + 1]));
            values
        }
        Kind::Object(fields) => fields
            .iter()
            .flat_map(|field| wrong_part(fields, field))
            .chain([json!({"extra": 1})])
            .collect(),
        Kind::Scalars { .. } => vec![
            json!({"a": []}),
            json!({"a": {}}),
            json!({"a": null}),
            json!({"system__a": "x"}),
            json!({"a": "x".repeat(LONGEST_SCALAR + 1)}),
        ],
        Kind::AnyObject | Kind::Any | Kind::OpenObject(_) => vec![],
        Kind::Timestamp => vec![json!("yesterday")],
    };
    if !matches!(kind, Kind::Int { .. } | Kind::Num { .. }) {
        values.push(json!(5));
    }
    if !matches!(kind, Kind::List { .. }) {
        values.push(json!([]));
    }
    if !matches!(
        kind,
        Kind::Object(_) | Kind::Scalars { .. } | Kind::AnyObject
    ) {
        values.push(json!({}));
    }
    values
}

/// An object with one part wrong, and without it when it is required.
fn wrong_part(fields: &[Field], field: &Field) -> Vec<Value> {
    let whole: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.to_owned(), right(&field.kind).pop().unwrap()))
        .collect();
    let mut values: Vec<Value> = wrong(&field.kind)
        .into_iter()
        .map(|value| {
            let mut one = whole.clone();
            one.insert(field.name.to_owned(), value);
            Value::Object(one)
        })
        .collect();
    if field.required {
        let mut one = whole;
        one.remove(field.name);
        values.push(Value::Object(one));
    }
    values
}

/// Values that a kind must take, its bounds among them.
fn right(kind: &Kind) -> Vec<Value> {
    match kind {
        Kind::Str { min, max } => vec![json!("x".repeat(*max)), json!("é".repeat((*min).max(1)))],
        Kind::Enum(words) => words.iter().map(|word| json!(word)).collect(),
        Kind::Int { min, max } => vec![json!(min), json!(max)],
        Kind::Num { min, max } => vec![json!(min), json!(max), json!(f64::midpoint(*min, *max))],
        Kind::Bool => vec![json!(false), json!(true)],
        Kind::Uuid => vec![json!(VOICE.to_string())],
        Kind::E164 | Kind::Callee => vec![json!("+12"), json!("+123456789012345")],
        Kind::OriginHost => vec![json!("localhost"), json!("shop.example.com")],
        Kind::List { item, min, max } => vec![
            json!(vec![right(item).pop().unwrap(); *min]),
            json!(vec![right(item).pop().unwrap(); *max]),
        ],
        Kind::Object(fields) => vec![Value::Object(
            fields
                .iter()
                .map(|field| (field.name.to_owned(), right(&field.kind).pop().unwrap()))
                .collect(),
        )],
        Kind::Scalars { .. } => vec![json!({}), json!({"a": "x", "b": 2.5, "c": false})],
        Kind::AnyObject | Kind::Any => vec![json!({}), json!({"a": {"b": [1]}})],
        Kind::Pattern { .. } | Kind::HttpsUrl | Kind::Timestamp | Kind::OpenObject(_) => {
            panic!("no setting is of this kind")
        }
    }
}

/// Values right for this setting, where its kind alone does not tell.
fn right_for(setting: &Setting) -> Vec<Value> {
    match setting.field.name {
        "voice_id" => vec![
            json!("a-voice"),
            json!(VOICE.to_string().to_uppercase().to_lowercase()),
        ],
        "llm_model" => vec![json!("faq")],
        "sms_message_ids" => vec![json!([])],
        "outbound_trunk_id" | "sms_sender_number_id" => vec![json!("")],
        "webhook_url" => vec![json!("https://hooks.example.com/in")],
        _ => right(&setting.field.kind),
    }
}

/// What a setting needs beside it.
fn company(name: &str) -> Value {
    match name {
        "voicemail_message" => json!({"voicemail_detection_enabled": true}),
        "response_max_sentences" => json!({"response_min_sentences": 0}),
        _ => json!({}),
    }
}

#[test]
fn the_minimal_agent_is_taken_and_each_required_field_is_missed() {
    assert_eq!(create(json!({})), Ok(minimal()));
    for name in ["name", "system_prompt", "voice_id"] {
        let mut body = minimal();
        body.remove(name);
        assert_eq!(
            judge(&CREATE, &Map::new(), &body),
            Err(vec![name.to_owned()])
        );
    }
}

#[test]
fn every_field_wrong_in_turn_is_named_at_create_and_at_patch() {
    let mut cases = 0;
    for setting in SETTINGS {
        let name = setting.field.name;
        for value in wrong(&setting.field.kind) {
            for (schema, stored) in [(&CREATE, Map::new()), (&PATCH, minimal())] {
                let mut body = if stored.is_empty() {
                    minimal()
                } else {
                    Map::new()
                };
                body.insert(name.to_owned(), value.clone());
                let Err(named) = judge(schema, &stored, &body) else {
                    panic!("{name}: {value} was taken")
                };
                assert!(
                    named
                        .iter()
                        .all(|path| path.split('.').next() == Some(name)),
                    "{name}: {value}: {named:?}"
                );
                cases += 1;
            }
        }
    }
    assert!(cases > 700, "{cases}");
}

#[test]
fn all_fields_wrong_at_once_are_all_named() {
    let body: Map<String, Value> = SETTINGS
        .iter()
        .map(|setting| {
            (
                setting.field.name.to_owned(),
                wrong(&setting.field.kind).pop().unwrap(),
            )
        })
        .collect();
    let mut named = judge(&CREATE, &Map::new(), &body).unwrap_err();
    named.dedup();
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.field.name).collect();
    assert_eq!(named, names);
}

#[test]
fn every_field_right_at_its_bounds_is_stored_and_shown() {
    for setting in SETTINGS {
        let name = setting.field.name;
        for value in right_for(setting) {
            let mut body = object(company(name));
            body.insert(name.to_owned(), value.clone());
            let stored = create(Value::Object(body))
                .unwrap_or_else(|named| panic!("{name}: {value}: {named:?}"));
            let shown = complete(&stored).remove(name).unwrap();
            match name {
                "voice_id" => assert_eq!(shown, json!(VOICE)),
                "outbound_trunk_id" | "sms_sender_number_id" => assert_eq!(shown, Value::Null),
                _ => assert_eq!(shown, value, "{name}"),
            }
        }
    }
}

#[test]
fn null_unsets_or_is_refused_as_the_table_says() {
    for setting in SETTINGS {
        let name = setting.field.name;
        let body = object(json!({ name: null }));
        let mut stored = minimal();
        stored.extend(object(company(name)));
        stored.insert(name.to_owned(), right_for(setting).remove(0));
        match judge(&PATCH, &stored, &body) {
            Ok(after) => {
                assert!(
                    setting.field.nullable && !after.contains_key(name),
                    "{name}"
                );
                assert_eq!(
                    complete(&after).get(name),
                    setting.unset.value().as_ref(),
                    "{name}"
                );
            }
            Err(named) => assert!(
                !setting.field.nullable && named == [name],
                "{name}: {named:?}"
            ),
        }
    }
}

#[test]
fn what_the_record_shows_a_patch_takes_and_changes_nothing() {
    let stored = create(json!({"temperature": 0.5, "turn_eagerness": "eager"})).unwrap();
    let shown = complete(&stored);
    assert_eq!(shown.len(), SETTINGS.len());
    let after = judge(&PATCH, &stored, &shown).unwrap();
    assert_eq!(complete(&after), shown);
    assert_eq!(judge(&PATCH, &stored, &Map::new()), Ok(stored));
}

#[test]
fn an_unset_setting_is_shown_within_its_own_kind() {
    for Setting { field, unset } in SETTINGS {
        match unset.value() {
            None => assert!(
                CREATE_FIELDS
                    .iter()
                    .any(|create| create.name == field.name && create.required)
            ),
            Some(value) => {
                let stored = object(json!({ field.name: value.clone() }));
                assert!(
                    PATCH.check("body", &Value::Object(stored)).is_ok(),
                    "{}",
                    field.name
                );
                assert_eq!(value.is_null(), *unset == Unset::Null);
            }
        }
    }
}

#[test]
fn unknown_and_read_only_fields_are_refused_by_name() {
    for name in [
        "nonsense",
        "id",
        "status",
        "unfilled_variables",
        "transfer_summary",
        "created_at",
        "account_id",
    ] {
        assert_eq!(create(json!({ name: "x" })), Err(vec![name.to_owned()]));
    }
}

#[test]
fn unknown_references_are_refused_by_name() {
    let id = Uuid::from_u128(1).to_string();
    for body in [
        json!({"voice_id": id}),
        json!({"voice_id": "default"}),
        json!({"llm_model": "gpt-x"}),
        json!({"outbound_trunk_id": id}),
        json!({"sms_message_ids": [id]}),
        json!({"sms_sender_number_id": id}),
        json!({"outbound_trunk_id": "not a uuid"}),
        json!({"webhook_url": "https://10.0.0.1/"}),
        json!({"webhook_url": "http://example.com/"}),
        json!({"webhook_url": "https://example.com:8443/"}),
    ] {
        let name = object(body.clone()).keys().next().unwrap().clone();
        assert_eq!(create(body), Err(vec![name]));
    }
}

#[test]
fn rules_between_fields_hold_over_what_is_stored() {
    assert_eq!(
        create(json!({"voicemail_message": "Call back."})),
        Err(vec!["voicemail_message".to_owned()])
    );
    let stored =
        create(json!({"voicemail_message": "Call back.", "voicemail_detection_enabled": true}))
            .unwrap();
    let off = object(json!({"voicemail_detection_enabled": false}));
    assert_eq!(
        judge(&PATCH, &stored, &off),
        Err(vec!["voicemail_message".to_owned()])
    );
    let both = object(json!({"voicemail_detection_enabled": false, "voicemail_message": null}));
    assert!(judge(&PATCH, &stored, &both).is_ok());

    assert_eq!(
        create(json!({"response_min_sentences": 4, "response_max_sentences": 3})),
        Err(vec!["response_max_sentences".to_owned()])
    );
    let stored = create(json!({"response_max_sentences": 1})).unwrap();
    let min = object(json!({"response_min_sentences": 2}));
    assert_eq!(
        judge(&PATCH, &stored, &min),
        Err(vec!["response_max_sentences".to_owned()])
    );
}

#[test]
fn an_agent_whose_voice_has_gone_can_be_renamed() {
    let mut stored = minimal();
    stored.insert("voice_id".into(), json!(Uuid::from_u128(99)));
    let after = judge(&PATCH, &stored, &object(json!({"name": "New"}))).unwrap();
    assert_eq!(
        (after["name"].clone(), after["voice_id"].clone()),
        (json!("New"), json!(Uuid::from_u128(99)))
    );
}

#[test]
fn an_empty_text_unsets_and_a_blank_name_is_refused() {
    let stored = create(
        json!({"messaging_system_prompt": "Write.", "llm_model": "faq", "first_message": "Hi"}),
    )
    .unwrap();
    let after = judge(
        &PATCH,
        &stored,
        &object(json!({"messaging_system_prompt": "", "llm_model": "", "first_message": ""})),
    )
    .unwrap();
    assert_eq!(after, minimal());
    assert_eq!(create(json!({"name": "  "})), Err(vec!["name".to_owned()]));
}

#[test]
fn a_guardrail_is_switched_on_unless_told() {
    let stored = create(json!({"custom_guardrails": [{"name": "a", "prompt": "b"}, {"name": "c", "prompt": "d", "is_enabled": false}]})).unwrap();
    assert_eq!(stored["custom_guardrails"][0]["is_enabled"], json!(true));
    assert_eq!(stored["custom_guardrails"][1]["is_enabled"], json!(false));
}

#[test]
fn metadata_has_a_largest_size() {
    assert!(create(json!({"metadata": {"a": "x".repeat(16_000)}})).is_ok());
    assert_eq!(
        create(json!({"metadata": {"a": "x".repeat(17_000)}})),
        Err(vec!["metadata".to_owned()])
    );
}
