//! Routes of SIP trunks (document 3, SIP trunks).

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;

use super::Trunks;
use super::service;
use super::store::{self, Traffic, Trunk};
use super::wire::{CreateTrunk, OnboardTrunk, OnboardedTrunk, PatchTrunk, TrunkRecord};
use crate::db;
use crate::http::page::UpTo;
use crate::http::{
    Access, ApiError, Body, Context, Created, Done, Endpoint, Found, Id, List, Made, NoContent,
    Page, Reply, Scope,
};
use crate::ids::{AccountId, TrunkId};
use crate::node::Node;

const READ: Access = Access::Scopes(&[Scope::SipTrunksRead]);
const WRITE: Access = Access::Scopes(&[Scope::SipTrunksWrite]);
const ONBOARD: Access = Access::Scopes(&[Scope::SipTrunksWrite, Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Trunks>> {
    vec![
        made(Endpoint::post("/sip-trunks/onboard", ONBOARD, onboard))
            .summary("Create an outbound trunk and register its numbers, all or nothing")
            .operation(
                "onboardSipTrunk",
                "Creates an outbound trunk and registers its numbers in one step; when any part \
                 is refused, nothing is kept. It needs the scopes for trunks and for numbers. \
                 Use it to connect a carrier; `createSipTrunk` has every setting.",
            )
            .body::<OnboardTrunk>()
            .answers::<OnboardedTrunk>()
            .or_400("trunk_auth_inconsistent: the fields of authentication do not go together")
            .or_404("not_found: no such agent")
            .or_409("number_already_registered: a number is active on an account")
            .or_502("provisioning_failed: the SIP stack cannot take the trunk; nothing is stored"),
        made(written(Endpoint::post("/sip-trunks", WRITE, create)))
            .summary("Create a trunk")
            .operation(
                "createSipTrunk",
                "Creates a trunk to or from a carrier; one that registers with its carrier \
                 begins at once. Its password is kept sealed and never shown. Fields of \
                 authentication that do not go together are 400 `trunk_auth_inconsistent`, and \
                 numbers of an outbound trunk are registered apart, with `registerSipNumber`.",
            )
            .body::<CreateTrunk>()
            .answers::<TrunkRecord>(),
        Endpoint::get("/sip-trunks", READ, list)
            .summary("Trunks, newest first; disabled ones too")
            .operation(
                "listSipTrunks",
                "Lists the account's trunks with where they stand: registration, live calls, and \
                 the latest failure. Disabled trunks are among them, deleted ones are not.",
            )
            .page::<UpTo<200>>()
            .answers::<List<TrunkRecord>>(),
        Endpoint::get("/sip-trunks/{trunk_id}", READ, get)
            .summary("One trunk")
            .operation(
                "getSipTrunk",
                "Answers one trunk with its settings and where it stands: its registration, its \
                 live calls, and those that failed within a day. The password is never shown.",
            )
            .answers::<TrunkRecord>(),
        written(Endpoint::patch("/sip-trunks/{trunk_id}", WRITE, patch))
            .summary("Change a trunk: only the fields that are given")
            .operation(
                "updateSipTrunk",
                "Changes the fields that are given; calls that are live go on. A disabled trunk \
                 takes and places no calls, and is the default no more. What an outbound trunk \
                 was created with (numbers, addresses, authentication) is 422: create another in \
                 its place.",
            )
            .body::<PatchTrunk>()
            .answers::<TrunkRecord>(),
        Endpoint::patch(
            "/sip-trunks/{trunk_id}/set-default-outbound",
            WRITE,
            set_default_outbound,
        )
        .summary("Make an active outbound trunk the account's default")
        .operation(
            "setDefaultOutboundTrunk",
            "Makes a trunk the one that calls are placed over where neither the number nor the \
             agent names another. There is one default: the last one loses the mark. An inbound \
             or disabled trunk is 422 `trunk_inactive`.",
        )
        .answers::<TrunkRecord>()
        .or_422("trunk_inactive: the trunk is inbound, or not active"),
        Endpoint::delete("/sip-trunks/{trunk_id}", WRITE, delete)
            .summary("Delete a trunk; one that is not there is deleted already")
            .operation(
                "deleteSipTrunk",
                "Deletes a trunk; its numbers stay, without a trunk, until they are given \
                 another. The answer is 204 whether or not there was one, so it can be repeated \
                 and tells nothing of other accounts.",
            ),
    ]
}

/// What a new trunk is refused for.
fn made(endpoint: Endpoint<Trunks>) -> Endpoint<Trunks> {
    endpoint.or_409("trunk_limit_reached: the account has as many trunks as it may")
}

/// What a trunk is refused for, new or changed.
fn written(endpoint: Endpoint<Trunks>) -> Endpoint<Trunks> {
    endpoint
        .or_400("trunk_auth_inconsistent: the fields of authentication do not go together")
        .or_409("number_already_registered: a number belongs to another account")
        .or_409("name_taken: an inbound trunk is known by this user name")
        .or_502("provisioning_failed: the SIP stack cannot take it; nothing is stored")
}

async fn onboard(cx: Context<Trunks>, Body(body): Body<OnboardTrunk>) -> Made<OnboardedTrunk> {
    let (trunk, numbers) = service::onboard(&cx, cx.account, body).await?;
    Ok(Created(OnboardedTrunk {
        trunk: record(trunk, &mut HashMap::new()),
        phone_numbers: numbers.into_iter().map(Into::into).collect(),
    }))
}

async fn create(cx: Context<Trunks>, Body(body): Body<CreateTrunk>) -> Made<TrunkRecord> {
    let trunk = service::create(&cx, cx.account, body).await?;
    Ok(Created(record(trunk, &mut HashMap::new())))
}

async fn list(cx: Context<Trunks>, page: Page<UpTo<200>>) -> Result<List<TrunkRecord>, ApiError> {
    let trunks = cx.rows::<Trunk>().page(page).await?;
    let mut traffic = traffic(&cx, cx.account).await?;
    Ok(List::each(trunks, page, |trunk| {
        record(trunk, &mut traffic)
    }))
}

async fn get(cx: Context<Trunks>, Id(id): Id<TrunkId>) -> Reply<TrunkRecord> {
    let trunk = cx.rows().get(id).await?.found()?;
    with_traffic(&cx, trunk).await
}

async fn patch(
    cx: Context<Trunks>,
    Id(id): Id<TrunkId>,
    Body(body): Body<PatchTrunk>,
) -> Reply<TrunkRecord> {
    let trunk = service::change(&cx, cx.account, id, body).await?;
    with_traffic(&cx, trunk).await
}

async fn set_default_outbound(cx: Context<Trunks>, Id(id): Id<TrunkId>) -> Reply<TrunkRecord> {
    let trunk = service::set_default_outbound(&cx, cx.account, id).await?;
    with_traffic(&cx, trunk).await
}

async fn delete(cx: Context<Trunks>, Id(id): Id<TrunkId>) -> Done {
    service::delete(&cx, cx.account, id).await?;
    Ok(NoContent)
}

/// For so long a call that failed is told of.
const LATELY: Duration = Duration::from_secs(86_400);

async fn traffic(app: &Node, account: AccountId) -> db::Result<HashMap<TrunkId, Traffic>> {
    store::traffic(&app.db, account, app.clock.now().minus(LATELY)).await
}

async fn with_traffic(app: &Node, trunk: Trunk) -> Reply<TrunkRecord> {
    let mut traffic = traffic(app, trunk.account).await?;
    Ok(Json(record(trunk, &mut traffic)))
}

fn record(trunk: Trunk, traffic: &mut HashMap<TrunkId, Traffic>) -> TrunkRecord {
    let Traffic {
        active,
        failed,
        last_failed,
    } = traffic.remove(&trunk.id).unwrap_or_default();
    TrunkRecord::new(trunk, active, failed, last_failed)
}
