//! Routes of usage and its triggers (document 1, scopes and events).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::rules::{self, ThresholdType};
use super::store::{self, GroupBy};
use super::trigger_store::Trigger;
use super::triggers;
use super::wire::{
    CreateTrigger, FiringRecord, PatchTrigger, TriggerRecord, UsageQuery, UsageReport,
};
use crate::app::App;
use crate::http::page::{UsageFiringsPage, UsageTriggersPage};
use crate::http::validate::{FieldError, Loc, is_https_url};
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Query, Scope};
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
            .summary("What was used, and what it cost")
            .operation(
                "getUsage",
                "Sums up what the account used and what it cost between two times, by resource \
                 and, if asked, by day or agent. Without times it is the current month, UTC. At \
                 most 366 days can be asked for at once.",
            ),
        Endpoint::get("/usage/triggers", READ, list)
            .page::<UsageTriggersPage>()
            .answers::<List<TriggerRecord>>()
            .summary("Usage triggers, newest first")
            .operation(
                "listUsageTriggers",
                "Lists the account's usage triggers. When each of them fired is in \
                 `listUsageFirings`.",
            ),
        Endpoint::post("/usage/triggers", WRITE, create)
            .body::<CreateTrigger>()
            .answers::<TriggerRecord>()
            .refuses(
                StatusCode::UNPROCESSABLE_ENTITY,
                "too_many_triggers",
                "the account has 100 triggers",
            )
            .summary("Be told when a threshold is crossed")
            .operation(
                "createUsageTrigger",
                "Has `usage.threshold.crossed` sent to a URL when the usage of a period reaches \
                 a threshold, once in each period. The URL must be public HTTPS. A percentage \
                 needs a monthly limit of the resource in the server's settings; an account has \
                 at most 100 triggers.",
            ),
        Endpoint::get("/usage/triggers/{trigger_id}", READ, get)
            .summary("One trigger")
            .operation(
                "getUsageTrigger",
                "Answers one usage trigger. When it fired is in `listUsageFirings`.",
            )
            .answers::<TriggerRecord>(),
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
            .page::<UsageFiringsPage>()
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

async fn usage(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Result<impl IntoResponse, ApiError> {
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
    let group_by = match query.group_by.as_deref() {
        Some("day") => GroupBy::Day,
        Some("agent") => GroupBy::Agent,
        _ => GroupBy::Resource,
    };
    let sums = store::sums(&app.db, caller.account, from, to, group_by).await?;
    let report = UsageReport::new(from, to, &sums, group_by == GroupBy::Agent);
    Ok(Json(report))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    page: Page<UsageTriggersPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (found, total) = triggers::list(&app.db, caller.account, page.limit, page.offset).await?;
    let records = found.into_iter().map(TriggerRecord::from).collect();
    Ok(List::new(records, total, page))
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<CreateTrigger>,
) -> Result<impl IntoResponse, ApiError> {
    let now = app.clock.now();
    let trigger = Trigger {
        id: UsageTriggerId::new(&app.clock),
        name: body.name,
        resource: word("resource_type", &body.resource_type)?,
        threshold_type: word("threshold_type", &body.threshold_type)?,
        threshold_value: body.threshold_value,
        period: word("period", &body.period)?,
        event_callback_url: body.event_callback_url,
        generation: 0,
        fired_period_at: None,
        created_at: now,
        updated_at: now,
    };
    can_be_reached(&app, &trigger)?;
    can_be_told(&app, &trigger.event_callback_url)?;
    let mut tx = app.db.begin_write().await?;
    if triggers::count(&mut tx, caller.account).await? >= triggers::MOST {
        return Err(ApiError::unprocessable(
            "too_many_triggers",
            format!(
                "The account has {} triggers, and may have no more",
                triggers::MOST
            ),
        ));
    }
    triggers::insert(&mut tx, caller.account, &trigger).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(TriggerRecord::from(trigger))))
}

async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
) -> Result<impl IntoResponse, ApiError> {
    let trigger = triggers::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Json(TriggerRecord::from(trigger)))
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
    Body(body): Body<PatchTrigger>,
) -> Result<impl IntoResponse, ApiError> {
    // Read, judged and written in one transaction, so that no other change is lost.
    let mut tx = app.db.begin_write().await?;
    let old = triggers::hold(&mut tx, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
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
        threshold_value: threshold_value.unwrap_or(old.threshold_value),
        event_callback_url: event_callback_url.unwrap_or_else(|| old.event_callback_url.clone()),
        ..old.clone()
    };
    if let Some(text) = resource_type {
        new.resource = word("resource_type", &text)?;
    }
    if let Some(text) = threshold_type {
        new.threshold_type = word("threshold_type", &text)?;
    }
    if let Some(text) = period {
        new.period = word("period", &text)?;
    }
    if new == old {
        return Ok(Json(TriggerRecord::from(old)));
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
    triggers::update(&mut tx, caller.account, &new).await?;
    tx.commit().await?;
    Ok(Json(TriggerRecord::from(new)))
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
) -> Result<impl IntoResponse, ApiError> {
    let mut tx = app.db.begin_write().await?;
    if !triggers::delete(&mut tx, caller.account, id).await? {
        return Err(ApiError::NotFound);
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn firings(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<UsageTriggerId>,
    page: Page<UsageFiringsPage>,
) -> Result<impl IntoResponse, ApiError> {
    triggers::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let (found, total) =
        triggers::firings(&app.db, caller.account, id, page.limit, page.offset).await?;
    let records = found.into_iter().map(FiringRecord::from).collect();
    Ok(List::new(records, total, page))
}

async fn redeliver(
    State(app): State<App>,
    caller: Caller,
    Id((trigger, id)): Id<(UsageTriggerId, UsageFiringId)>,
) -> Result<impl IntoResponse, ApiError> {
    let firing = triggers::firing(&app.db, caller.account, trigger, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    let url = triggers::get(&app.db, caller.account, trigger)
        .await?
        .ok_or(ApiError::NotFound)?
        .event_callback_url;
    let now = app.clock.now();
    outbox::redeliver(
        &app.db,
        caller.account,
        firing.event,
        &url,
        now,
        app.clock.shared(),
    )
    .await?;
    app.webhooks.wake();
    let firing = triggers::firing(&app.db, caller.account, trigger, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok((StatusCode::ACCEPTED, Json(FiringRecord::from(firing))))
}

/// A word of a closed set; the table has let only its words through.
fn word<T: std::str::FromStr<Err = String>>(field: &str, text: &str) -> Result<T, ApiError> {
    text.parse()
        .map_err(|why: String| ApiError::field(field, "enum", why))
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
