//! Triggers: judged when usage is written, in the same transaction, so that a threshold is told once
//! and never without the usage that crossed it.

use std::collections::HashMap;

use super::rules::{self, DAY, Period, Resource};
use super::store;
use super::trigger_store::{self, NewFiring, Trigger};
use super::wire::ThresholdCrossed;
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, EventId, UsageFiringId};
use crate::node::Node;
use crate::time::Timestamp;
use crate::webhooks::event::EventType;
use crate::webhooks::outbox::{self, NewEvent, Target};

/// Triggers of one account: all that watch a resource are judged whenever it is used.
pub const MOST: u64 = 100;

/// Fires every trigger on this resource whose threshold its period has reached, once a period.
pub(super) async fn fire(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    resource: Resource,
    now: Timestamp,
) -> Result<(), DbError> {
    let mut used: HashMap<Period, i64> = HashMap::new();
    for trigger in trigger_store::watching(tx, account, resource, now).await? {
        let period = trigger.period;
        let amount = match used.get(&period) {
            Some(amount) => *amount,
            None => {
                let (first, next) = period.days(now);
                let amount = store::in_days(tx, account, resource, first, next).await?;
                used.insert(period, amount);
                amount
            }
        };
        fire_one(app, tx, account, (&trigger, amount), now).await?;
    }
    Ok(())
}

/// Fires a trigger of which so much was used in its period.
async fn fire_one(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    (trigger, amount): (&Trigger, i64),
    now: Timestamp,
) -> Result<(), DbError> {
    let (_, next) = trigger.period.days(now);
    let period_started_at = trigger.period.began(now);
    let (resource, kind, value) = (
        trigger.resource,
        trigger.threshold_type,
        trigger.threshold_value,
    );
    let measured = rules::measure(resource, kind, value, amount, &app.config.usage.limits);
    let Some((observed_value, true)) = measured else {
        return Ok(());
    };
    let event = EventId::new(&app.clock);
    let body = ThresholdCrossed {
        event_id: event,
        event_type: EventType::UsageThresholdCrossed.name(),
        trigger_id: trigger.id,
        resource_type: resource,
        threshold_type: kind,
        threshold_value: value,
        observed_value,
        period: trigger.period,
        period_started_at,
        period_ends_at: next.map(|day| Timestamp(day * DAY)),
        fired_at: now,
    };
    let body = serde_json::to_string(&body).unwrap_or_default();
    let firing = NewFiring {
        id: UsageFiringId::new(&app.clock),
        trigger: trigger.id,
        generation: trigger.generation,
        event,
        body: body.clone(),
        period_started_at,
        created_at: now,
    };
    if trigger_store::insert_firing(tx, account, &firing).await? {
        let event = NewEvent {
            id: event,
            r#type: EventType::UsageThresholdCrossed,
            target: Target::Url(trigger.event_callback_url.clone()),
            call: None,
            body,
        };
        outbox::insert(tx, account, &event, now, app.clock.shared()).await?;
    }
    Ok(())
}
