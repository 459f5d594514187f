//! Routes of usage and its triggers (document 1, scopes and events).

use std::time::Duration;

use axum::Json;
use http::StatusCode;

use super::rules::{self, ThresholdType};
use super::store::{self, GroupBy};
use super::trigger_store::{self, Firing, Trigger};
use super::triggers;
use super::wire::{
    CreateTrigger, FiringRecord, PatchTrigger, TriggerRecord, UsageQuery, UsageReport,
};
use crate::http::page::UpTo;
use crate::http::validate::is_https_url;
use crate::http::{
    Access, ApiError, Body, Context, Created, Done, Endpoint, Found, Id, List, Made, NoContent,
    Page, Query, Reply, Scope,
};
use crate::ids::{UsageFiringId, UsageTriggerId};
use crate::node::Node;
use crate::webhooks::outbox;

const READ: Access = Access::Scopes(&[Scope::UsageRead]);
const WRITE: Access = Access::Scopes(&[Scope::UsageWrite]);

/// The longest time that one report covers: rows are summed when it is asked for.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get("/usage", READ, usage)
            .query::<UsageQuery>()
            .answers::<UsageReport>()
            .summary("What was used, and what it cost")
            .operation(
                "getUsage",
                "Sums up what the account used and what it cost between two times, by resource \
                 and, if asked, by day or agent. Without times it is the current month, UTC. At \
                 most 366 days can be asked for at once.",
            ),
        Endpoint::list::<Trigger, TriggerRecord, UpTo<200>>("/usage/triggers", READ)
            .summary("Usage triggers, newest first")
            .operation(
                "listUsageTriggers",
                "Lists the account's usage triggers. When each of them fired is in \
                 `listUsageFirings`.",
            ),
        Endpoint::post("/usage/triggers", WRITE, create)
            .body::<CreateTrigger>()
            .answers::<TriggerRecord>()
            .or_422("too_many_triggers: the account has 100 triggers")
            .summary("Be told when a threshold is crossed")
            .operation(
                "createUsageTrigger",
                "Has `usage.threshold.crossed` sent to a URL when the usage of a period reaches \
                 a threshold, once in each period. The URL must be public HTTPS. A percentage \
                 needs a monthly limit of the resource in the server's settings; an account has \
                 at most 100 triggers.",
            ),
        Endpoint::one::<Trigger, TriggerRecord>("/usage/triggers/{trigger_id}", READ)
            .summary("One trigger")
            .operation(
                "getUsageTrigger",
                "Answers one usage trigger. When it fired is in `listUsageFirings`.",
            ),
        Endpoint::patch("/usage/triggers/{trigger_id}", WRITE, patch)
            .body::<PatchTrigger>()
            .answers::<TriggerRecord>()
            .summary("Change a trigger")
            .operation(
                "updateUsageTrigger",
                "Changes the fields that are given. When that changes what is watched (resource, \
                 threshold or period), the trigger begins anew and can fire again in the same \
                 period.",
            ),
        Endpoint::delete("/usage/triggers/{trigger_id}", WRITE, delete)
            .summary("Delete a trigger and its firings")
            .operation(
                "deleteUsageTrigger",
                "Deletes a trigger together with the record of its firings. It fires no more; an \
                 event that is on its way may still arrive.",
            ),
        Endpoint::get("/usage/triggers/{trigger_id}/firings", READ, firings)
            .page::<UpTo<200>>()
            .answers::<List<FiringRecord>>()
            .summary("When a trigger fired, newest first")
            .operation(
                "listUsageFirings",
                "Lists when a trigger fired, with the values that it saw. Each tells whether its \
                 event was delivered.",
            ),
        Endpoint::post(
            "/usage/triggers/{trigger_id}/firings/{firing_id}/redeliver",
            WRITE,
            redeliver,
        )
        .returns(StatusCode::ACCEPTED)
        .answers::<FiringRecord>()
        .summary("Send a firing's event again, with the same event_id")
        .operation(
            "redeliverUsageFiring",
            "Sends the event of a firing again, to the trigger's present URL. It has the same \
             `event_id`, so that a receiver that has it can pass it over. The answer (202) comes \
             before the delivery; the firing tells how it went.",
        ),
    ]
}

async fn usage(cx: Context<Node>, Query(query): Query<UsageQuery>) -> Reply<UsageReport> {
    let to = query.to.unwrap_or_else(|| cx.clock.now());
    let from = query.from.unwrap_or_else(|| rules::month_start(to));
    if to < from {
        let why = "Input should not be before from";
        return Err(ApiError::query("to", "greater_than_equal", why));
    }
    if to.since(from) > LONGEST {
        let why = "Input should be at most 366 days after from";
        return Err(ApiError::query("to", "less_than_equal", why));
    }
    let group_by = query.group_by.unwrap_or(GroupBy::Resource);
    let sums = store::sums(&cx.db, cx.account, from, to, group_by).await?;
    let report = UsageReport::new(from, to, &sums, group_by == GroupBy::Agent);
    Ok(Json(report))
}

async fn create(cx: Context<Node>, Body(body): Body<CreateTrigger>) -> Made<TriggerRecord> {
    let now = cx.clock.now();
    let trigger = Trigger {
        id: UsageTriggerId::new(&cx.clock),
        name: body.name,
        resource: body.resource_type,
        threshold_type: body.threshold_type,
        threshold_value: body.threshold_value,
        period: body.period,
        event_callback_url: body.event_callback_url,
        generation: 0,
        fired_period_at: None,
        created_at: now,
        updated_at: now,
    };
    can_be_reached(&cx, &trigger)?;
    can_be_told(&cx, &trigger.event_callback_url)?;
    let mut tx = cx.db.begin_write().await?;
    if trigger_store::count(&mut tx, cx.account).await? >= triggers::MOST {
        return Err(ApiError::unprocessable(
            "too_many_triggers",
            format!(
                "The account has {} triggers, and may have no more",
                triggers::MOST
            ),
        ));
    }
    tx.insert(cx.account, &trigger).run().await?;
    tx.commit().await?;
    Ok(Created(trigger.into()))
}

async fn patch(
    cx: Context<Node>,
    Id(id): Id<UsageTriggerId>,
    Body(body): Body<PatchTrigger>,
) -> Reply<TriggerRecord> {
    // Read, judged and written in one transaction, so that no other change is lost.
    let mut tx = cx.db.begin_write().await?;
    let old: Trigger = tx.of(cx.account).hold(id).await?.found()?;
    let PatchTrigger {
        name,
        resource_type,
        threshold_type,
        threshold_value,
        period,
        event_callback_url,
    } = body;
    let mut new = Trigger {
        name: name.or(old.name.clone()),
        resource: resource_type.unwrap_or(old.resource),
        threshold_type: threshold_type.unwrap_or(old.threshold_type),
        threshold_value: threshold_value.unwrap_or(old.threshold_value),
        period: period.unwrap_or(old.period),
        event_callback_url: event_callback_url.unwrap_or_else(|| old.event_callback_url.clone()),
        ..old.clone()
    };
    if new == old {
        return Ok(Json(old.into()));
    }
    can_be_reached(&cx, &new)?;
    if new.event_callback_url != old.event_callback_url {
        can_be_told(&cx, &new.event_callback_url)?;
    }
    if !new.watches_as(&old) {
        new.generation += 1;
        new.fired_period_at = None;
    }
    new.updated_at = cx.clock.now();
    tx.update(cx.account, &new).await?;
    tx.commit().await?;
    Ok(Json(new.into()))
}

async fn delete(cx: Context<Node>, Id(id): Id<UsageTriggerId>) -> Done {
    let mut tx = cx.db.begin_write().await?;
    let deleted = trigger_store::delete(&mut tx, cx.account, id).await?;
    deleted.found()?;
    tx.commit().await?;
    Ok(NoContent)
}

async fn firings(
    cx: Context<Node>,
    Id(id): Id<UsageTriggerId>,
    page: Page<UpTo<200>>,
) -> Result<List<FiringRecord>, ApiError> {
    let trigger = cx.rows::<Trigger>().get(id);
    trigger.await?.found()?;
    let firings = cx.rows::<Firing>().whose("trigger_id", id);
    Ok(List::of(firings.page(page).await?, page))
}

async fn redeliver(
    cx: Context<Node>,
    Id((trigger, id)): Id<(UsageTriggerId, UsageFiringId)>,
) -> Result<(StatusCode, Json<FiringRecord>), ApiError> {
    let firing = async || {
        let firings = cx.rows::<Firing>();
        firings.whose("trigger_id", trigger).get(id).await?.found()
    };
    let event = firing().await?.event;
    let of: Trigger = cx.rows().get(trigger).await?.found()?;
    let (url, now) = (of.event_callback_url, cx.clock.now());
    let shared = cx.clock.shared();
    outbox::redeliver(&cx.db, cx.account, event, &url, now, shared).await?;
    cx.webhooks.wake();
    Ok((StatusCode::ACCEPTED, Json(firing().await?.into())))
}

/// A percentage needs something that it is of.
fn can_be_reached(app: &Node, trigger: &Trigger) -> Result<(), ApiError> {
    let limit = trigger.resource.monthly_limit(&app.config.usage.limits);
    if trigger.threshold_type == ThresholdType::PercentOfLimit && limit == 0 {
        return Err(ApiError::field(
            "threshold_type",
            "value_error",
            format!(
                "This installation sets no monthly limit of {}: use absolute",
                trigger.resource.name()
            ),
        ));
    }
    Ok(())
}

/// An event goes to a public address, or to one that the operator allows.
fn can_be_told(app: &Node, url: &str) -> Result<(), ApiError> {
    is_https_url(url, &app.config.egress.allow).map_err(|why| {
        let message = format!("Input should be a public HTTPS URL: {why}");
        ApiError::field("event_callback_url", "url_parsing", message)
    })
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
