//! Bodies of the number routes.

use super::rules::{FallbackAction, Provider, RoutingRules};
use super::store::PhoneNumber;
use crate::http::validate::Kind;
use crate::http::validate::is_plain;
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, PhoneNumberId, TrunkId};
use crate::time::Timestamp;

const FRIENDLY_NAME: Kind = Kind::pattern(r"^[^\u0000-\u001f\u007f-\u009f<>]{0,255}$", is_plain);

body! {
    /// `POST /phone-numbers/sip/register`.
    pub struct RegisterSipNumber = "RegisterSipNumber";
    required phone_number: String = Kind::WIRE_NUMBER, "The number, as the carrier knows it";
    required trunk_id: TrunkId, "An active trunk of yours";
    optional friendly_name: String = FRIENDLY_NAME, "A label";
    nullable agent_id: AgentId, "Who answers";
    default outbound_enabled: bool, "Whether calls may be placed from it (default false)";
    nullable inbound: RoutingRules, "What is done when no agent answers";
}

body! {
    /// `PATCH /phone-numbers/{id}`.
    #[derive(Default)]
    pub struct PatchNumber = "UpdatePhoneNumber";
    optional friendly_name: String = FRIENDLY_NAME, "A label";
    clearable agent_id: AgentId, "Who answers; null for nobody";
    clearable routing_rules: RoutingRules, "What is done when no agent answers";
    optional outbound_enabled: bool, "Whether calls may be placed from it";
    optional trunk_id: TrunkId, "An active trunk of yours; numbers of a trunk only";
    optional sms_sender: bool, "Whether texts are sent from it";
    optional sms_sender_default: bool, "Whether texts are sent from it where nothing else is named";
    optional sms_inbound: bool, "Whether texts to it are taken";
    optional acknowledge_no_replies: bool, "That texts sent from it may get no answer";
    optional messaging_account_id: String = Kind::Uuid, "The carrier of a short code";
}

answer! {
    /// A number as it is answered.
    pub struct PhoneNumberRecord = "PhoneNumber" of PhoneNumber uses(provider, routing_rules) hides(account) {
        id: PhoneNumberId,
        phone_number: String,
        /// `telco`, `sip`, or a regional carrier's.
        provider: String = provider.to_string(),
        friendly_name: String,
        agent_id: Option<AgentId>,
        /// A released number is hidden.
        #[schemars(extend("enum" = ["active"]))]
        status: &'static str = "active",
        outbound_enabled: bool,
        trunk_id: Option<TrunkId>,
        telco_account_id: Option<String>,
        messaging_account_id: Option<String>,
        routing_rules: Option<RoutingRecord> = routing_rules.map(RoutingRecord::from),
        capabilities: Capabilities = Capabilities::of(&provider),
        sms_sender: bool,
        sms_sender_default: bool,
        sms_inbound: bool,
        replies_acknowledged_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// What a number can carry.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Capabilities {
    pub voice: bool,
    pub sms: bool,
}

impl Capabilities {
    /// What a telco number can do its vendor says; a trunk carries no texts.
    fn of(provider: &Provider) -> Self {
        Self {
            voice: matches!(provider, Provider::Telco | Provider::Sip),
            sms: matches!(provider, Provider::Regional(_)),
        }
    }
}

answer! {
    /// What is done when no agent answers.
    pub struct RoutingRecord = "RoutingRules" of RoutingRules {
        fallback_action: FallbackAction,
        fallback_number: Option<String>,
        max_ring_seconds: Option<u32>,
    }
}
