//! Bodies of the usage routes and of the trigger event.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use super::rules::{DAY, Period, Resource, ThresholdType, cents};
use super::store::Sum;
use super::trigger_store::{Firing, Trigger};
use crate::http::validate::{Field, Kind, Schema, Unknown};
use crate::http::{Patch, Wire};
use crate::ids::{AgentId, EventId, UsageFiringId, UsageTriggerId};
use crate::time::Timestamp;

/// The query of `GET /usage`.
#[derive(Debug, Deserialize)]
pub struct UsageQuery {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub group_by: Option<String>,
}

impl Wire for UsageQuery {
    const SCHEMA: &'static Schema = &Schema {
        name: "UsageQuery",
        unknown: Unknown::Ignore,
        fields: &[
            Field::opt(
                "from",
                Kind::Timestamp,
                "Used at or after this time; unset: since the month began, UTC.",
            ),
            Field::opt("to", Kind::Timestamp, "Used before this time; unset: now."),
            Field::opt(
                "group_by",
                Kind::Enum(&["resource", "day", "agent"]),
                "How sums are split beside by resource (default resource: no further).",
            ),
        ],
    };
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
    #[schemars(extend("enum" = Resource::NAMES))]
    pub resource_type: &'static str,
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
            resource_type: sum.resource.name(),
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
                    .into_iter()
                    .map(|resource| (resource.name(), total(resource)))
                    .collect(),
                cost_cents: cents(sums.iter().map(|sum| sum.cost_microcents).sum()),
            },
        }
    }
}

const NAME: Kind = Kind::Str { min: 1, max: 100 };
/// A thousand times more than anybody uses; keeps the arithmetic exact.
const VALUE: Kind = Kind::Int {
    min: 1,
    max: 1_000_000_000_000,
};

/// `POST /usage/triggers`.
#[derive(Debug, Deserialize)]
pub struct CreateTrigger {
    pub name: Option<String>,
    pub resource_type: String,
    pub threshold_type: String,
    pub threshold_value: i64,
    pub period: String,
    pub event_callback_url: String,
}

impl Wire for CreateTrigger {
    const SCHEMA: &'static Schema = &Schema {
        name: "CreateUsageTrigger",
        unknown: Unknown::Refuse,
        fields: &[
            Field::opt("name", NAME, "What it is for").nullable(),
            Field::req(
                "resource_type",
                Kind::Enum(Resource::NAMES),
                "What is counted",
            ),
            Field::req(
                "threshold_type",
                Kind::Enum(ThresholdType::NAMES),
                "Units of the resource, or percent of the installation's monthly limit of it",
            ),
            Field::req("threshold_value", VALUE, "Fires when this much is reached"),
            Field::req(
                "period",
                Kind::Enum(Period::NAMES),
                "Counted within this, UTC; fires once in each",
            ),
            Field::req(
                "event_callback_url",
                Kind::HttpsUrl,
                "Receives usage.threshold.crossed",
            ),
        ],
    };
}

/// `PATCH /usage/triggers/{id}`.
#[derive(Debug, Deserialize)]
pub struct PatchTrigger {
    #[serde(default)]
    pub name: Patch<String>,
    pub resource_type: Option<String>,
    pub threshold_type: Option<String>,
    pub threshold_value: Option<i64>,
    pub period: Option<String>,
    pub event_callback_url: Option<String>,
}

impl Wire for PatchTrigger {
    const SCHEMA: &'static Schema = &Schema {
        name: "UpdateUsageTrigger",
        unknown: Unknown::Refuse,
        fields: &[
            Field::opt("name", NAME, "What it is for").nullable(),
            Field::opt(
                "resource_type",
                Kind::Enum(Resource::NAMES),
                "What is counted",
            ),
            Field::opt(
                "threshold_type",
                Kind::Enum(ThresholdType::NAMES),
                "Units of the resource, or percent of the installation's monthly limit of it",
            ),
            Field::opt("threshold_value", VALUE, "Fires when this much is reached"),
            Field::opt(
                "period",
                Kind::Enum(Period::NAMES),
                "Counted within this, UTC; fires once in each",
            ),
            Field::opt(
                "event_callback_url",
                Kind::HttpsUrl,
                "Receives usage.threshold.crossed",
            ),
        ],
    };
}

/// A trigger as it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageTrigger")]
pub struct TriggerRecord {
    pub id: UsageTriggerId,
    pub name: Option<String>,
    #[schemars(extend("enum" = Resource::NAMES))]
    pub resource_type: &'static str,
    #[schemars(extend("enum" = ThresholdType::NAMES))]
    pub threshold_type: &'static str,
    pub threshold_value: i64,
    #[schemars(extend("enum" = Period::NAMES))]
    pub period: &'static str,
    pub event_callback_url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Trigger> for TriggerRecord {
    fn from(trigger: Trigger) -> Self {
        let Trigger {
            id,
            name,
            resource,
            threshold_type,
            threshold_value,
            period,
            event_callback_url,
            generation: _,
            fired_period_at: _,
            created_at,
            updated_at,
        } = trigger;
        Self {
            id,
            name,
            resource_type: resource.name(),
            threshold_type: threshold_type.name(),
            threshold_value,
            period: period.name(),
            event_callback_url,
            created_at,
            updated_at,
        }
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
    #[schemars(extend("enum" = Resource::NAMES))]
    pub resource_type: &'static str,
    #[schemars(extend("enum" = ThresholdType::NAMES))]
    pub threshold_type: &'static str,
    pub threshold_value: i64,
    /// In the unit of `threshold_value`.
    pub observed_value: Number,
    #[schemars(extend("enum" = Period::NAMES))]
    pub period: &'static str,
    pub period_started_at: Timestamp,
    /// Null for all time.
    pub period_ends_at: Option<Timestamp>,
    pub fired_at: Timestamp,
}

/// A firing as it is answered: the event as it was told, and what became of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageFiring")]
pub struct FiringRecord {
    pub id: UsageFiringId,
    pub trigger_id: UsageTriggerId,
    pub event_id: EventId,
    #[schemars(with = "String", extend("enum" = Resource::NAMES))]
    pub resource_type: Value,
    #[schemars(with = "String", extend("enum" = ThresholdType::NAMES))]
    pub threshold_type: Value,
    #[schemars(with = "i64")]
    pub threshold_value: Value,
    #[schemars(with = "Number")]
    pub observed_value: Value,
    #[schemars(with = "String", extend("enum" = Period::NAMES))]
    pub period: Value,
    #[schemars(with = "Timestamp")]
    pub period_started_at: Value,
    /// Null for all time.
    #[schemars(with = "Option<Timestamp>")]
    pub period_ends_at: Value,
    #[schemars(with = "Timestamp")]
    pub fired_at: Value,
    /// Where the event's delivery stands; null once that is forgotten.
    pub delivery_status: Option<String>,
    pub delivery_attempts: i64,
    pub delivered_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Firing> for FiringRecord {
    fn from(firing: Firing) -> Self {
        let Firing {
            id,
            trigger,
            event,
            mut body,
            delivery_status,
            delivery_attempts,
            delivered_at,
            created_at,
            updated_at,
        } = firing;
        let mut told = |key: &str| body.get_mut(key).map_or(Value::Null, Value::take);
        Self {
            id,
            trigger_id: trigger,
            event_id: event,
            resource_type: told("resource_type"),
            threshold_type: told("threshold_type"),
            threshold_value: told("threshold_value"),
            observed_value: told("observed_value"),
            period: told("period"),
            period_started_at: told("period_started_at"),
            period_ends_at: told("period_ends_at"),
            fired_at: told("fired_at"),
            delivery_status,
            delivery_attempts,
            delivered_at,
            created_at,
            updated_at,
        }
    }
}
