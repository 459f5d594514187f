//! Bodies of the usage routes and of the trigger event.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Number, Value, json};

use super::rules::{DAY, Period, Resource, ThresholdType, cents};
use super::store::{GroupBy, Sum};
use super::trigger_store::{Firing, Trigger};
use crate::http::validate::Kind;
use crate::http::wire::{answer, body};
use crate::ids::{AgentId, EventId, UsageFiringId, UsageTriggerId};
use crate::time::Timestamp;

body! {
    /// The query of `GET /usage`.
    #[derive(Debug)]
    pub query UsageQuery;
    optional from: Timestamp, "Used at or after this time; unset: since the month began, UTC.";
    optional to: Timestamp, "Used before this time; unset: now.";
    optional group_by: GroupBy, "How sums are split beside by resource (default resource: no further).";
}

/// What was used, and what it cost. Costs are rounded half up from millionths of a cent, each by itself,
/// so the items' need not sum to the total's.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageReport {
    pub period_started_at: Timestamp,
    pub period_ends_at: Timestamp,
    pub items: Vec<UsageItem>,
    pub totals: Totals,
}

/// What was used of one resource.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageItem {
    pub resource_type: Resource,
    pub quantity: Number,
    pub unit: &'static str,
    pub cost_cents: i64,
    /// UTC; only when grouped by day.
    #[schemars(extend("format" = "date"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Only when grouped by agent; null for what no agent used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Option<AgentId>>,
}

/// All of it together: a quantity for each resource, and the cost.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Totals {
    #[serde(flatten)]
    #[schemars(with = "Quantities")]
    pub quantities: BTreeMap<&'static str, Number>,
    pub cost_cents: i64,
}

/// A number for each resource.
struct Quantities;

impl JsonSchema for Quantities {
    fn schema_name() -> Cow<'static, str> {
        "Quantities".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        let quantity = |name: &&str| {
            let about = format!("How much was used: {}.", name.replace('_', " "));
            (
                (*name).to_owned(),
                json!({"type": "number", "description": about}),
            )
        };
        let properties: Map<String, Value> = Resource::NAMES.iter().map(quantity).collect();
        json_schema!({"type": "object", "properties": properties, "required": Resource::NAMES})
    }
}

impl UsageReport {
    /// From sums; `by_agent`: items name their agent.
    pub fn new(from: Timestamp, to: Timestamp, sums: &[Sum], by_agent: bool) -> Self {
        let item = |sum: &Sum| UsageItem {
            resource_type: sum.resource,
            quantity: sum.resource.quantity(sum.amount),
            unit: sum.resource.unit(),
            cost_cents: cents(sum.cost_microcents),
            date: sum
                .day
                .map(|day| Timestamp(day * DAY).to_string()[..10].to_owned()),
            agent_id: by_agent.then_some(sum.agent),
        };
        let total = |resource: Resource| {
            let of_it = sums.iter().filter(|sum| sum.resource == resource);
            resource.quantity(of_it.map(|sum| sum.amount).sum())
        };
        Self {
            period_started_at: from,
            period_ends_at: to,
            items: sums.iter().map(item).collect(),
            totals: Totals {
                quantities: Resource::ALL
                    .iter()
                    .map(|resource| (resource.name(), total(*resource)))
                    .collect(),
                cost_cents: cents(sums.iter().map(|sum| sum.cost_microcents).sum()),
            },
        }
    }
}

const NAME: Kind = Kind::Str { min: 1, max: 100 };
/// A thousand times more than anybody uses; keeps the arithmetic exact.
const VALUE: Kind = Kind::int(1, 1_000_000_000_000);

body! {
    /// `POST /usage/triggers`.
    #[derive(Debug)]
    pub struct CreateTrigger = "CreateUsageTrigger";
    /// `PATCH /usage/triggers/{id}`.
    #[derive(Debug)]
    patch PatchTrigger = "UpdateUsageTrigger";
    nullable name: String = NAME, "What it is for";
    required resource_type: Resource, "What is counted";
    required threshold_type: ThresholdType,
        "Units of the resource, or percent of the installation's monthly limit of it";
    required threshold_value: i64 = VALUE, "Fires when this much is reached";
    required period: Period, "Counted within this, UTC; fires once in each";
    required event_callback_url: String = Kind::HttpsUrl, "Receives usage.threshold.crossed";
}

answer! {
    /// A trigger as it is answered.
    #[derive(Debug)]
    pub struct TriggerRecord = "UsageTrigger" of Trigger uses(resource) hides(generation, fired_period_at) {
        id: UsageTriggerId,
        name: Option<String>,
        resource_type: Resource = resource,
        threshold_type: ThresholdType,
        threshold_value: i64,
        period: Period,
        event_callback_url: String,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// The body of `usage.threshold.crossed`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageThresholdCrossedEvent")]
pub struct ThresholdCrossed {
    /// The same in every attempt.
    pub event_id: EventId,
    #[schemars(extend("const" = "usage.threshold.crossed"))]
    pub event_type: &'static str,
    pub trigger_id: UsageTriggerId,
    pub resource_type: Resource,
    pub threshold_type: ThresholdType,
    pub threshold_value: i64,
    /// In the unit of `threshold_value`.
    pub observed_value: Number,
    pub period: Period,
    pub period_started_at: Timestamp,
    /// Null for all time.
    pub period_ends_at: Option<Timestamp>,
    pub fired_at: Timestamp,
}

answer! {
    /// A firing as it is answered: the event as it was told, and what became of it.
    #[derive(Debug)]
    pub struct FiringRecord = "UsageFiring" of Firing uses(trigger, event, body) {
        id: UsageFiringId,
        trigger_id: UsageTriggerId = trigger,
        event_id: EventId = event,
        #[schemars(with = "Resource")]
        resource_type: Value = body["resource_type"].clone(),
        #[schemars(with = "ThresholdType")]
        threshold_type: Value = body["threshold_type"].clone(),
        #[schemars(with = "i64")]
        threshold_value: Value = body["threshold_value"].clone(),
        #[schemars(with = "Number")]
        observed_value: Value = body["observed_value"].clone(),
        #[schemars(with = "Period")]
        period: Value = body["period"].clone(),
        #[schemars(with = "Timestamp")]
        period_started_at: Value = body["period_started_at"].clone(),
        /// Null for all time.
        #[schemars(with = "Option<Timestamp>")]
        period_ends_at: Value = body["period_ends_at"].clone(),
        #[schemars(with = "Timestamp")]
        fired_at: Value = body["fired_at"].clone(),
        /// Where the event's delivery stands; null once that is forgotten.
        delivery_status: Option<String>,
        delivery_attempts: i64,
        delivered_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}
