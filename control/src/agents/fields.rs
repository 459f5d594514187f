//! The settings of an agent as one table (document 2, Agent): name, type, range, whether null is
//! taken, and what the record shows while nothing is set. Validation of create and PATCH, the record,
//! the OpenAPI document and the tests read it; `settings.rs` is its typed view.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::placeholders::RESERVED_PREFIX;
use crate::http::validate::{Field, Kind};

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub field: Field,
    pub unset: Unset,
}

/// What the record shows while a setting is unset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unset {
    /// It is always set: required at create, never null.
    Required,
    Null,
    Bool(bool),
    Int(i64),
    Num(f64),
    Text(&'static str),
    EmptyList,
    EmptyObject,
}

impl Unset {
    /// As JSON; `None` for a required setting.
    pub fn value(self) -> Option<Value> {
        match self {
            Self::Required => None,
            Self::Null => Some(Value::Null),
            Self::Bool(flag) => Some(json!(flag)),
            Self::Int(number) => Some(json!(number)),
            Self::Num(number) => Some(json!(number)),
            Self::Text(text) => Some(json!(text)),
            Self::EmptyList => Some(json!([])),
            Self::EmptyObject => Some(json!({})),
        }
    }
}

impl Setting {
    /// Whether this value takes the setting back to unset: null, and "" for an optional free text.
    pub fn is_cleared_by(&self, value: &Value) -> bool {
        let free_text = matches!(self.field.kind, Kind::Str { .. });
        value.is_null()
            || (free_text && self.unset != Unset::Required && value.as_str() == Some(""))
    }
}

/// The setting of this name.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.field.name == name)
}

/// What the record shows of each setting while it is unset, in the order of [`SETTINGS`].
static UNSET: LazyLock<Vec<Option<Value>>> = LazyLock::new(|| {
    SETTINGS
        .iter()
        .map(|setting| setting.unset.value())
        .collect()
});

/// Every setting with its value: what is stored, else what the record shows while unset. Nothing is
/// copied: every read of an agent goes through here.
pub fn shown(stored: &Map<String, Value>) -> impl Iterator<Item = (&'static str, &Value)> {
    let adapted = adapted_sentences(stored);
    let settings = SETTINGS.iter().zip(UNSET.iter());
    settings.filter_map(move |(setting, unset)| {
        let name = setting.field.name;
        let value = match adapted {
            Some((adapted, value)) if adapted == name => Some(value),
            _ => stored.get(name).or(unset.as_ref()),
        };
        Some((name, value?))
    })
}

/// As a map.
pub fn complete(stored: &Map<String, Value>) -> Map<String, Value> {
    let shown = shown(stored);
    shown
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

/// When one of the two sentence bounds is set, the default of the other gives way to it: which one does,
/// and what is shown of it.
fn adapted_sentences(stored: &Map<String, Value>) -> Option<(&'static str, &Value)> {
    const BOUNDS: [&str; 2] = ["response_min_sentences", "response_max_sentences"];
    let [min, max] = BOUNDS.map(|name| stored.get(name));
    let default = |name| match setting(name)?.unset {
        Unset::Int(number) => Some(number),
        _ => None,
    };
    let (given, other, passes) = match (min, max) {
        (Some(min), None) => (min, BOUNDS[1], min.as_i64() > default(BOUNDS[1])),
        (None, Some(max)) => (max, BOUNDS[0], max.as_i64() < default(BOUNDS[0])),
        _ => return None,
    };
    (given.is_i64() && passes).then_some((other, given))
}

/// The fields of `POST /agents`.
pub static CREATE_FIELDS: [Field; SETTINGS.len()] = fields(true);

/// The fields of `PATCH /agents/{id}`: the same, none required.
pub static PATCH_FIELDS: [Field; SETTINGS.len()] = fields(false);

const fn fields(creating: bool) -> [Field; SETTINGS.len()] {
    let mut all = [SETTINGS[0].field; SETTINGS.len()];
    let mut index = 0;
    while index < SETTINGS.len() {
        all[index] = SETTINGS[index].field;
        all[index].required = creating && matches!(SETTINGS[index].unset, Unset::Required);
        index += 1;
    }
    all
}

/// The longest name, in characters.
pub const MAX_NAME: usize = 255;
/// A count that only storage bounds.
const MAX_COUNT: i64 = i32::MAX as i64;
/// The longest prompt, in characters: far above any model's use, and it fits the body limit.
const MAX_PROMPT: usize = 100_000;
/// The longest line that is spoken as it stands, in characters.
const MAX_LINE: usize = 2_000;

const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting {
        field: Field::req(name, kind, doc),
        unset: Unset::Required,
    }
}

/// Unset is shown as null, and null unsets.
const fn nullable(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting {
        field: Field::opt(name, kind, doc).nullable(),
        unset: Unset::Null,
    }
}

/// Unset is shown as its default; null unsets.
const fn resettable(name: &'static str, kind: Kind, unset: Unset, doc: &'static str) -> Setting {
    Setting {
        field: Field::opt(name, kind, doc).nullable(),
        unset,
    }
}

/// Unset is shown as its default; null is refused.
const fn fixed(name: &'static str, kind: Kind, unset: Unset, doc: &'static str) -> Setting {
    Setting {
        field: Field::opt(name, kind, doc),
        unset,
    }
}

const fn flag(name: &'static str, default: bool, doc: &'static str) -> Setting {
    fixed(name, Kind::Bool, Unset::Bool(default), doc)
}

const fn line(name: &'static str, max: usize, doc: &'static str) -> Setting {
    nullable(name, Kind::Str { min: 0, max }, doc)
}

/// The table, in the order of the document.
pub const SETTINGS: &[Setting] = &[
    required(
        "name",
        Kind::Str {
            min: 1,
            max: MAX_NAME,
        },
        "Name of the agent.",
    ),
    required(
        "system_prompt",
        Kind::Str {
            min: 1,
            max: MAX_PROMPT,
        },
        "What the agent is and knows. May hold {{placeholders}}.",
    ),
    required(
        "voice_id",
        Kind::Str { min: 1, max: 255 },
        "A voice id from GET /voices; a legacy voice_key is accepted and stored as its id.",
    ),
    line(
        "messaging_system_prompt",
        MAX_PROMPT,
        "Prompt for text conversations instead of system_prompt; null or \"\" removes it. No effect yet.",
    ),
    line(
        "first_message",
        MAX_LINE,
        "Greeting on connect; without one the agent waits for the user.",
    ),
    fixed(
        "language",
        Kind::Enum(&["english", "french"]),
        Unset::Text("english"),
        "Language that is spoken.",
    ),
    line(
        "dialect_style",
        64,
        "For example formal, mixed, local; what it does depends on the voice's provider.",
    ),
    fixed(
        "metadata",
        Kind::AnyObject,
        Unset::EmptyObject,
        "Free key-value pairs, at most 16 KiB.",
    ),
    resettable(
        "llm_model",
        Kind::Str { min: 0, max: 255 },
        Unset::Text(""),
        "An id from GET /models; \"\" is the platform default.",
    ),
    nullable(
        "temperature",
        Kind::Num { min: 0.0, max: 2.0 },
        "Sampling temperature; ignored for reasoning models.",
    ),
    nullable(
        "max_tokens",
        Kind::Int { min: 1, max: 8192 },
        "Longest reply in tokens; null is the platform default, 512 unless the deployment overrides it.",
    ),
    nullable(
        "max_context_tokens",
        Kind::Int {
            min: 1024,
            max: 262_144,
        },
        "Context in tokens; null is the platform default.",
    ),
    nullable(
        "frequency_penalty",
        Kind::Num {
            min: -2.0,
            max: 2.0,
        },
        "null is 0.4.",
    ),
    nullable(
        "presence_penalty",
        Kind::Num {
            min: -2.0,
            max: 2.0,
        },
        "null is 0.9.",
    ),
    nullable(
        "max_duration_seconds",
        Kind::Int { min: 30, max: 3600 },
        "The call ends when reached; null is 1800.",
    ),
    nullable(
        "silence_timeout_seconds",
        Kind::Int {
            min: 1,
            max: MAX_COUNT,
        },
        "The call ends after this much silence of the user; null disables.",
    ),
    nullable(
        "max_turns",
        Kind::Int { min: 1, max: 1000 },
        "Hang up when the caller begins this turn; null is no cap.",
    ),
    nullable(
        "history_truncation_enabled",
        Kind::Bool,
        "Drop older turns in long conversations; null inherits the default.",
    ),
    nullable(
        "history_max_turns",
        Kind::Int { min: 1, max: 200 },
        "Turns that trigger truncation.",
    ),
    fixed(
        "sms_message_ids",
        Kind::List {
            item: &Kind::Uuid,
            min: 0,
            max: 25,
        },
        Unset::EmptyList,
        "Messages the agent may send; [] is every active one. No effect yet.",
    ),
    nullable(
        "sms_max_sends_per_message",
        Kind::Int { min: 1, max: 30 },
        "null is 2. No effect yet.",
    ),
    flag(
        "interruption_enabled",
        true,
        "Whether the caller may interrupt.",
    ),
    nullable(
        "barge_in_min_speech_secs",
        Kind::Num { min: 0.0, max: 3.0 },
        "Speech that interrupts, in seconds; null is 0.6, 0 stops the agent at first speech.",
    ),
    nullable(
        "turn_eagerness",
        Kind::Enum(&["patient", "normal", "eager"]),
        "How soon the agent takes the turn; null is the platform default.",
    ),
    flag(
        "end_call_enabled",
        true,
        "Whether the agent may end the call.",
    ),
    fixed(
        "end_call_phrases",
        Kind::List {
            item: &Kind::Str { min: 1, max: 200 },
            min: 0,
            max: 50,
        },
        Unset::EmptyList,
        "Phrases the caller may say to end the call.",
    ),
    fixed(
        "end_call_behavior",
        Kind::Enum(&["auto_detect", "phrases_only"]),
        Unset::Text("auto_detect"),
        "phrases_only is advisory.",
    ),
    flag(
        "voicemail_detection_enabled",
        false,
        "Detect answering machines. No effect yet.",
    ),
    line(
        "voicemail_message",
        MAX_LINE,
        "Requires voicemail_detection_enabled=true. No effect yet.",
    ),
    fixed(
        "voicemail_action",
        Kind::Enum(&["leave_message", "hangup"]),
        Unset::Text("leave_message"),
        "What to do at a voicemail. No effect yet.",
    ),
    flag(
        "inbound_lobby_enabled",
        false,
        "Holding message before the agent picks up. No effect yet.",
    ),
    line(
        "inbound_lobby_message",
        120,
        "The holding message. No effect yet.",
    ),
    fixed(
        "inbound_lobby_audio_preset",
        Kind::Enum(&["none", "ambient", "instrumental"]),
        Unset::Text("ambient"),
        "Sound of the lobby. No effect yet.",
    ),
    resettable(
        "inbound_lobby_max_wait_seconds",
        Kind::Int { min: 0, max: 60 },
        Unset::Int(45),
        "Longest wait in the lobby, seconds. No effect yet.",
    ),
    flag("recording_enabled", true, "Keep the sound of calls."),
    flag("transcription_enabled", true, "Keep the text of calls."),
    flag(
        "public_access",
        false,
        "A browser or app may start a call with only the agent id; public calls are billed.",
    ),
    fixed(
        "allowed_origins",
        Kind::List {
            item: &Kind::OriginHost,
            min: 0,
            max: 100,
        },
        Unset::EmptyList,
        "Hosts whose pages may start public calls, as names or IP addresses without a port; [] is any.",
    ),
    flag(
        "focus_guardrail_enabled",
        true,
        "Keep the agent on its subject.",
    ),
    flag(
        "content_guardrail_enabled",
        false,
        "Keep the content clean.",
    ),
    fixed(
        "custom_guardrails",
        Kind::List {
            item: &GUARDRAIL,
            min: 0,
            max: 50,
        },
        Unset::EmptyList,
        "Guardrails of your own.",
    ),
    fixed(
        "script_adherence",
        Kind::Enum(&["strict", "medium", "loose"]),
        Unset::Text("strict"),
        "How closely the prompt is followed.",
    ),
    flag(
        "keypad_capture_enabled",
        true,
        "Digits are received exactly as pressed; phone agents only.",
    ),
    resettable(
        "idle_check_in_after_secs",
        Kind::Num {
            min: 1.0,
            max: 600.0,
        },
        Unset::Num(15.0),
        "Silence before the agent checks in, seconds; 15 when unset.",
    ),
    resettable(
        "max_idle_attempts",
        Kind::Int {
            min: 0,
            max: MAX_COUNT,
        },
        Unset::Int(0),
        "Check-ins before goodbye and hang-up; 0 is unlimited.",
    ),
    nullable(
        "soft_timeout_seconds",
        Kind::Num {
            min: 1.0,
            max: 300.0,
        },
        "Wait for the model before a filler line, seconds; null disables.",
    ),
    line("soft_timeout_message", MAX_LINE, "The filler line."),
    flag(
        "soft_timeout_use_llm",
        false,
        "Let the model word the filler line. No effect yet.",
    ),
    resettable(
        "response_min_sentences",
        Kind::Int {
            min: 0,
            max: MAX_COUNT,
        },
        Unset::Int(2),
        "2 when unset.",
    ),
    resettable(
        "response_max_sentences",
        Kind::Int {
            min: 0,
            max: MAX_COUNT,
        },
        Unset::Int(3),
        "3 when unset; at least response_min_sentences.",
    ),
    nullable(
        "rag_top_k",
        Kind::Int { min: 1, max: 20 },
        "Passages from the knowledge base; null is 6. No effect yet.",
    ),
    nullable(
        "rag_min_score",
        Kind::Num { min: 0.0, max: 1.0 },
        "Lowest score of a passage; null is 0.1, 0 disables the floor. No effect yet.",
    ),
    nullable(
        "transfer_phone_number",
        Kind::E164,
        "Whom to transfer to. No effect yet.",
    ),
    fixed(
        "transfer_phone_numbers",
        Kind::List {
            item: &Kind::E164,
            min: 0,
            max: 5,
        },
        Unset::EmptyList,
        "Dialled in order; [] returns to the single number. No effect yet.",
    ),
    fixed(
        "transfer_mode",
        Kind::Enum(&["warm", "conference"]),
        Unset::Text("warm"),
        "conference needs a SIP call with an outbound trunk. No effect yet.",
    ),
    line(
        "outbound_trunk_id",
        36,
        "An active outbound trunk of yours; \"\" clears.",
    ),
    line(
        "sms_sender_number_id",
        36,
        "An active number with sms_sender on; \"\" is the default sender. No effect yet.",
    ),
    fixed(
        "dynamic_variables",
        VARIABLES,
        Unset::EmptyObject,
        "Defaults for {{placeholders}}: a flat object of strings, numbers and booleans.",
    ),
    line(
        "webhook_url",
        2048,
        "HTTPS on port 443, a public host; receives signed events.",
    ),
];

const GUARDRAIL: Kind = Kind::Object(&[
    Field::req(
        "name",
        Kind::Str { min: 1, max: 255 },
        "Name of the guardrail.",
    ),
    Field::req(
        "prompt",
        Kind::Str { min: 1, max: 4000 },
        "What it watches for.",
    ),
    Field::opt("is_enabled", Kind::Bool, "true when left out."),
]);

/// As on connect: flat, and without the names that belong to the built-ins.
const VARIABLES: Kind = Kind::Scalars {
    max: 200,
    key_ok: |name| !name.starts_with(RESERVED_PREFIX),
    key_rule: "any name that does not begin with system__",
};
