//! Routes of SIP trunks (document 3, SIP trunks).

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::service;
use super::store::{self, Traffic, Trunk};
use super::wire::{CreateTrunk, OnboardTrunk, OnboardedTrunk, PatchTrunk, TrunkRecord};
use crate::app::App;
use crate::db::DbError;
use crate::http::page::UpTo;
use crate::http::{
    Access, ApiError, Body, Caller, Created, Endpoint, Found, Id, List, Page, Reply, Scope,
};
use crate::ids::{AccountId, TrunkId};

const READ: Access = Access::Scopes(&[Scope::SipTrunksRead]);
const WRITE: Access = Access::Scopes(&[Scope::SipTrunksWrite]);
const ONBOARD: Access = Access::Scopes(&[Scope::SipTrunksWrite, Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        made(Endpoint::post("/sip-trunks/onboard", ONBOARD, onboard))
            .summary("Create an outbound trunk and register its numbers, all or nothing")
            .body::<OnboardTrunk>()
            .answers::<OnboardedTrunk>()
            .refuses_bad(
                "trunk_auth_inconsistent",
                "the fields of authentication do not go together",
            )
            .refuses_missing("not_found", "no such agent")
            .refuses_conflict(
                "number_already_registered",
                "a number is active on an account",
            )
            .refuses_upstream(
                "provisioning_failed",
                "the SIP stack cannot take the trunk; nothing is stored",
            ),
        made(written(Endpoint::post("/sip-trunks", WRITE, create)))
            .summary("Create a trunk")
            .body::<CreateTrunk>()
            .answers::<TrunkRecord>(),
        Endpoint::get("/sip-trunks", READ, list)
            .summary("Trunks, newest first; disabled ones too")
            .page::<UpTo<200>>()
            .answers::<List<TrunkRecord>>(),
        Endpoint::get("/sip-trunks/{trunk_id}", READ, get)
            .summary("One trunk")
            .answers::<TrunkRecord>(),
        written(Endpoint::patch("/sip-trunks/{trunk_id}", WRITE, patch))
            .summary("Change a trunk: only the fields that are given")
            .body::<PatchTrunk>()
            .answers::<TrunkRecord>(),
        Endpoint::patch(
            "/sip-trunks/{trunk_id}/set-default-outbound",
            WRITE,
            set_default_outbound,
        )
        .summary("Make an active outbound trunk the account's default")
        .answers::<TrunkRecord>()
        .refuses_unfit("trunk_inactive", "the trunk is inbound, or not active"),
        Endpoint::delete("/sip-trunks/{trunk_id}", WRITE, delete)
            .summary("Delete a trunk; one that is not there is deleted already"),
    ]
}

/// What a new trunk is refused for.
fn made(endpoint: Endpoint) -> Endpoint {
    endpoint.refuses_conflict(
        "trunk_limit_reached",
        "the account has as many trunks as it may",
    )
}

/// What a trunk is refused for, new or changed.
fn written(endpoint: Endpoint) -> Endpoint {
    endpoint
        .refuses_bad(
            "trunk_auth_inconsistent",
            "the fields of authentication do not go together",
        )
        .refuses_conflict(
            "number_already_registered",
            "a number belongs to another account",
        )
        .refuses_conflict("name_taken", "an inbound trunk is known by this user name")
        .refuses_upstream(
            "provisioning_failed",
            "the SIP stack cannot take it; nothing is stored",
        )
}

async fn onboard(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<OnboardTrunk>,
) -> Result<Created<OnboardedTrunk>, ApiError> {
    let (trunk, numbers) = service::onboard(&app, caller.account, body).await?;
    Ok(Created(OnboardedTrunk {
        trunk: record(trunk, Traffic::default()),
        phone_numbers: numbers.into_iter().map(Into::into).collect(),
    }))
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<CreateTrunk>,
) -> Result<Created<TrunkRecord>, ApiError> {
    let trunk = service::create(&app, caller.account, body).await?;
    Ok(Created(record(trunk, Traffic::default())))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    page: Page<UpTo<200>>,
) -> Result<List<TrunkRecord>, ApiError> {
    let trunks = app.db.of::<Trunk>(caller.account).page(page).await?;
    let mut traffic = traffic(&app, caller.account).await?;
    Ok(List::each(trunks, page, |trunk| {
        let traffic = traffic.remove(&trunk.id).unwrap_or_default();
        record(trunk, traffic)
    }))
}

async fn get(State(app): State<App>, caller: Caller, Id(id): Id<TrunkId>) -> Reply<TrunkRecord> {
    let trunk = app.db.of(caller.account).get(id).await?.found()?;
    with_traffic(&app, trunk).await
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
    Body(body): Body<PatchTrunk>,
) -> Reply<TrunkRecord> {
    let trunk = service::change(&app, caller.account, id, body).await?;
    with_traffic(&app, trunk).await
}

async fn set_default_outbound(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
) -> Reply<TrunkRecord> {
    let trunk = service::set_default_outbound(&app, caller.account, id).await?;
    with_traffic(&app, trunk).await
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
) -> Result<StatusCode, ApiError> {
    service::delete(&app, caller.account, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// For so long a call that failed is told of.
const LATELY: Duration = Duration::from_secs(86_400);

async fn traffic(app: &App, account: AccountId) -> Result<HashMap<TrunkId, Traffic>, DbError> {
    store::traffic(&app.db, account, app.clock.now().minus(LATELY)).await
}

async fn with_traffic(app: &App, trunk: Trunk) -> Reply<TrunkRecord> {
    let mut traffic = traffic(app, trunk.account).await?;
    let traffic = traffic.remove(&trunk.id).unwrap_or_default();
    Ok(Json(record(trunk, traffic)))
}

fn record(trunk: Trunk, traffic: Traffic) -> TrunkRecord {
    let Traffic {
        active,
        failed,
        last_failed,
    } = traffic;
    TrunkRecord::new(trunk, active, failed, last_failed)
}
