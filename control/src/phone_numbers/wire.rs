//! Bodies of the number routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::{FallbackAction, Provider, RoutingRules};
use super::store::PhoneNumber;
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::http::{Patch, Wire};
use crate::ids::{AgentId, PhoneNumberId, TrunkId};
use crate::sip_trunks::wire::{NUMBER, is_plain};
use crate::time::Timestamp;

const FALLBACK_ACTION: Field = Field::req(
    "fallback_action",
    Kind::Enum(FallbackAction::NAMES),
    "What is done with a call that no agent answers",
);
const FALLBACK_NUMBER: Field = Field::opt(
    "fallback_number",
    Kind::Callee,
    "Required when fallback_action is forward",
)
.nullable();
const MAX_RING: Field = Field::opt(
    "max_ring_seconds",
    Kind::Int { min: 5, max: 120 },
    "How long a call rings while no agent can answer (default 30)",
)
.nullable();

/// Routing rules inside other bodies.
pub const ROUTING_RULES: Kind = Kind::Object(&[FALLBACK_ACTION, FALLBACK_NUMBER, MAX_RING]);

const FRIENDLY_NAME: Kind = Kind::Pattern {
    name: r"^[^\u0000-\u001f\u007f-\u009f<>]{0,255}$",
    check: is_plain,
};

/// `POST /phone-numbers/sip/register`.
#[derive(Deserialize)]
pub struct RegisterSipNumber {
    pub phone_number: String,
    pub trunk_id: TrunkId,
    pub friendly_name: Option<String>,
    pub agent_id: Option<AgentId>,
    #[serde(default)]
    pub outbound_enabled: bool,
    pub inbound: Option<RoutingRules>,
}

impl Wire for RegisterSipNumber {
    const SCHEMA: &'static Schema = &Schema {
        name: "RegisterSipNumber",
        unknown: Unknown::Refuse,
        fields: &[
            Field::req(
                "phone_number",
                NUMBER,
                "The number, as the carrier knows it",
            ),
            Field::req("trunk_id", Kind::Uuid, "An active trunk of yours"),
            Field::opt("friendly_name", FRIENDLY_NAME, "A label"),
            Field::opt("agent_id", Kind::Uuid, "Who answers").nullable(),
            Field::opt(
                "outbound_enabled",
                Kind::Bool,
                "Whether calls may be placed from it (default false)",
            ),
            Field::opt(
                "inbound",
                ROUTING_RULES,
                "What is done when no agent answers",
            )
            .nullable(),
        ],
    };
}

/// `PATCH /phone-numbers/{id}`.
#[derive(Default, Deserialize)]
pub struct PatchNumber {
    pub friendly_name: Option<String>,
    #[serde(default)]
    pub agent_id: Patch<AgentId>,
    #[serde(default)]
    pub routing_rules: Patch<RoutingRules>,
    pub outbound_enabled: Option<bool>,
    pub trunk_id: Option<TrunkId>,
    pub sms_sender: Option<bool>,
    pub sms_sender_default: Option<bool>,
    pub sms_inbound: Option<bool>,
    pub acknowledge_no_replies: Option<bool>,
    pub messaging_account_id: Option<String>,
}

impl Wire for PatchNumber {
    const SCHEMA: &'static Schema = &Schema {
        name: "UpdatePhoneNumber",
        unknown: Unknown::Refuse,
        fields: &[
            Field::opt("friendly_name", FRIENDLY_NAME, "A label"),
            Field::opt("agent_id", Kind::Uuid, "Who answers; null for nobody").nullable(),
            Field::opt(
                "routing_rules",
                ROUTING_RULES,
                "What is done when no agent answers",
            )
            .nullable(),
            Field::opt(
                "outbound_enabled",
                Kind::Bool,
                "Whether calls may be placed from it",
            ),
            Field::opt(
                "trunk_id",
                Kind::Uuid,
                "An active trunk of yours; numbers of a trunk only",
            ),
            Field::opt("sms_sender", Kind::Bool, "Whether texts are sent from it"),
            Field::opt(
                "sms_sender_default",
                Kind::Bool,
                "Whether texts are sent from it where nothing else is named",
            ),
            Field::opt("sms_inbound", Kind::Bool, "Whether texts to it are taken"),
            Field::opt(
                "acknowledge_no_replies",
                Kind::Bool,
                "That texts sent from it may get no answer",
            ),
            Field::opt(
                "messaging_account_id",
                Kind::Uuid,
                "The carrier of a short code",
            ),
        ],
    };
}

/// `POST /phone-numbers/{id}/routing`.
#[derive(Deserialize)]
pub struct SetRouting(pub RoutingRules);

impl Wire for SetRouting {
    const SCHEMA: &'static Schema = &Schema {
        name: "SetRouting",
        unknown: Unknown::Refuse,
        fields: &[FALLBACK_ACTION, FALLBACK_NUMBER, MAX_RING],
    };
}

/// A number as it is answered.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PhoneNumber")]
pub struct PhoneNumberRecord {
    pub id: PhoneNumberId,
    pub phone_number: String,
    /// `telco`, `sip`, or a regional carrier's.
    pub provider: String,
    pub friendly_name: String,
    pub agent_id: Option<AgentId>,
    /// A released number is hidden.
    #[schemars(extend("enum" = ["active"]))]
    pub status: &'static str,
    pub outbound_enabled: bool,
    pub trunk_id: Option<TrunkId>,
    pub telco_account_id: Option<String>,
    pub messaging_account_id: Option<String>,
    pub routing_rules: Option<RoutingRecord>,
    pub capabilities: Capabilities,
    pub sms_sender: bool,
    pub sms_sender_default: bool,
    pub sms_inbound: bool,
    pub replies_acknowledged_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a number can carry.
#[derive(Serialize, JsonSchema)]
pub struct Capabilities {
    pub voice: bool,
    pub sms: bool,
}

/// What is done when no agent answers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RoutingRules")]
pub struct RoutingRecord {
    #[schemars(extend("enum" = FallbackAction::NAMES))]
    pub fallback_action: &'static str,
    pub fallback_number: Option<String>,
    pub max_ring_seconds: Option<u32>,
}

impl From<RoutingRules> for RoutingRecord {
    fn from(rules: RoutingRules) -> Self {
        let RoutingRules {
            fallback_action,
            fallback_number,
            max_ring_seconds,
        } = rules;
        Self {
            fallback_action: fallback_action.name(),
            fallback_number,
            max_ring_seconds,
        }
    }
}

impl From<PhoneNumber> for PhoneNumberRecord {
    fn from(number: PhoneNumber) -> Self {
        let PhoneNumber {
            id,
            account: _,
            phone_number,
            provider,
            friendly_name,
            agent_id,
            outbound_enabled,
            trunk_id,
            routing_rules,
            telco_account_id,
            messaging_account_id,
            sms_sender,
            sms_sender_default,
            sms_inbound,
            replies_acknowledged_at,
            created_at,
            updated_at,
        } = number;
        Self {
            id,
            phone_number,
            capabilities: Capabilities {
                voice: matches!(provider, Provider::Telco | Provider::Sip),
                // What a telco number can do its vendor says; a trunk carries no texts.
                sms: matches!(provider, Provider::Regional(_)),
            },
            provider: provider.name().to_owned(),
            friendly_name,
            agent_id,
            status: "active",
            outbound_enabled,
            trunk_id,
            telco_account_id,
            messaging_account_id,
            routing_rules: routing_rules.map(RoutingRecord::from),
            sms_sender,
            sms_sender_default,
            sms_inbound,
            replies_acknowledged_at,
            created_at,
            updated_at,
        }
    }
}
