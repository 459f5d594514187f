//! Routes of usage and its triggers (document 1, scopes and events).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::rules::{self, ThresholdType};
use super::store::{self, GroupBy};
use super::trigger_store::{self, Firing, Trigger};
use super::triggers;
use super::wire::{
    CreateTrigger, FiringRecord, PatchTrigger, TriggerRecord, UsageQuery, UsageReport,
};
use crate::app::App;
use crate::http::page::UpTo;
use crate::http::validate::{FieldError, Loc, is_https_url};
use crate::http::{
    Access, ApiError, Body, Caller, Created, Endpoint, Found, Id, List, Page, Query, Reply, Scope,
};
use crate::ids::{UsageFiringId, UsageTriggerId};
use crate::webhooks::outbox;

const READ: Access = Access::Scopes(&[Scope::UsageRead]);
const WRITE: Access = Access::Scopes(&[Scope::UsageWrite]);

/// The longest time that one report covers: rows are summed when it is asked for.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/usage", READ, usage)
            .query::<UsageQuery>()
            .answers::<UsageReport>()
            .summary("What was used, and what it cost"),
        Endpoint::list::<Trigger, TriggerRecord, UpTo<200>>("/usage/triggers", READ)
            .summary("Usage triggers, newest first"),
        Endpoint::post("/usage/triggers", WRITE, create)
            .body::<CreateTrigger>()
            .answers::<TriggerRecord>()
            .refuses_unfit("too_many_triggers", "the account has 100 triggers")
            .summary("Be told when a threshold is crossed"),
        Endpoint::one::<Trigger, TriggerRecord>("/usage/triggers/{trigger_id}", READ)
            .summary("One trigger"),
        Endpoint::patch("/usage/triggers/{trigger_id}", WRITE, patch)
            .body::<PatchTrigger>()
            .answers::<TriggerRecord>()
            .summary("Change a trigger"),
        Endpoint::delete("/usage/triggers/{trigger_id}", WRITE, delete)
            .summary("Delete a trigger and its firings"),
        Endpoint::get("/usage/triggers/{trigger_id}/firings", READ, firings)
            .page::<UpTo<200>>()
            .answers::<List<FiringRecord>>()
            .summary("When a trigger fired, newest first"),
        Endpoint::post(
            "/usage/triggers/{trigger_id}/firings/{firing_id}/redeliver",
            WRITE,
            redeliver,
        )
        .returns(StatusCode::ACCEPTED)
        .answers::<FiringRecord>()
        .summary("Send a firing's event again, with the same event_id"),
    ]
}

async fn usage(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Reply<UsageReport> {
    let to = query.to.unwrap_or_else(|| app.clock.now());
    let from = query.from.unwrap_or_else(|| rules::month_start(to));
    let wrong = |kind, msg: &str| {
        ApiError::Fields(vec![FieldError {
            loc: vec![Loc::from("query"), Loc::from("to")],
            msg: msg.to_owned(),
            kind,
        }])
    };
    if to < from {
        return Err(wrong(
            "greater_than_equal",
            "Input should not be before from",
        ));
    }
    if to.since(from) > LONGEST {
        return Err(wrong(
            "less_than_equal",
            "Input should be at most 366 days after from",
        ));
    }
    let group_by = query.group_by.unwrap_or(GroupBy::Resource);
    let sums = store::sums(&app.db, caller.account, from, to, group_by).await?;
    let report = UsageReport::new(from, to, &sums, group_by == GroupBy::Agent);
    Ok(Json(report))
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<CreateTrigger>,
) -> Result<Created<TriggerRecord>, ApiError> {
    let now = app.clock.now();
    let trigger = Trigger {
        id: UsageTriggerId::new(&app.clock),
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
    can_be_reached(&app, &trigger)?;
    can_be_told(&app, &trigger.event_callback_url)?;
    let mut tx = app.db.begin_write().await?;
    if trigger_store::count(&mut tx, caller.account).await? >= triggers::MOST {
        return Err(ApiError::unprocessable(
            "too_many_triggers",
            format!(
                "The account has {} triggers, and may have no more",
                triggers::MOST
            ),
        ));
    }
    tx.insert(caller.account, &trigger).run().await?;
    tx.commit().await?;
    Ok(Created(trigger.into()))
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
    Body(body): Body<PatchTrigger>,
) -> Reply<TriggerRecord> {
    // Read, judged and written in one transaction, so that no other change is lost.
    let mut tx = app.db.begin_write().await?;
    let old: Trigger = tx.of(caller.account).hold(id).await?.found()?;
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
    can_be_reached(&app, &new)?;
    if new.event_callback_url != old.event_callback_url {
        can_be_told(&app, &new.event_callback_url)?;
    }
    if !new.watches_as(&old) {
        new.generation += 1;
        new.fired_period_at = None;
    }
    new.updated_at = app.clock.now();
    tx.update(caller.account, &new).await?;
    tx.commit().await?;
    Ok(Json(new.into()))
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
) -> Result<StatusCode, ApiError> {
    let mut tx = app.db.begin_write().await?;
    trigger_store::delete(&mut tx, caller.account, id)
        .await?
        .found()?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn firings(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
    page: Page<UpTo<200>>,
) -> Result<List<FiringRecord>, ApiError> {
    let trigger = app.db.of::<Trigger>(caller.account).get(id);
    trigger.await?.found()?;
    let firings = app.db.of::<Firing>(caller.account).whose("trigger_id", id);
    Ok(List::of(firings.page(page).await?, page))
}

async fn redeliver(
    State(app): State<App>,
    caller: Caller,
    Id((trigger, id)): Id<(UsageTriggerId, UsageFiringId)>,
) -> Result<(StatusCode, Json<FiringRecord>), ApiError> {
    let firing = async || {
        let firings = app.db.of::<Firing>(caller.account);
        firings.whose("trigger_id", trigger).get(id).await?.found()
    };
    let event = firing().await?.event;
    let of: Trigger = app.db.of(caller.account).get(trigger).await?.found()?;
    let (url, now) = (of.event_callback_url, app.clock.now());
    let shared = app.clock.shared();
    outbox::redeliver(&app.db, caller.account, event, &url, now, shared).await?;
    app.webhooks.wake();
    Ok((StatusCode::ACCEPTED, Json(firing().await?.into())))
}

/// A percentage needs something that it is of.
fn can_be_reached(app: &App, trigger: &Trigger) -> Result<(), ApiError> {
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
fn can_be_told(app: &App, url: &str) -> Result<(), ApiError> {
    is_https_url(url, &app.config.egress.allow).map_err(|why| {
        let message = format!("Input should be a public HTTPS URL: {why}");
        ApiError::field("event_callback_url", "url_parsing", message)
    })
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
