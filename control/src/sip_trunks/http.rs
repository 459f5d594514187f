//! Routes of SIP trunks (document 3, SIP trunks).

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::service;
use super::store::{self, Traffic};
use super::wire::{CreateTrunk, OnboardTrunk, OnboardedTrunk, PatchTrunk, TrunkRecord};
use crate::app::App;
use crate::db::DbError;
use crate::http::page::TrunksPage;
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Scope};
use crate::ids::{AccountId, TrunkId};
use crate::phone_numbers::wire::PhoneNumberRecord;

const READ: Access = Access::Scopes(&[Scope::SipTrunksRead]);
const WRITE: Access = Access::Scopes(&[Scope::SipTrunksWrite]);
const ONBOARD: Access = Access::Scopes(&[Scope::SipTrunksWrite, Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
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
            .refuses(
                StatusCode::BAD_REQUEST,
                "trunk_auth_inconsistent",
                "the fields of authentication do not go together",
            )
            .refuses(StatusCode::NOT_FOUND, "not_found", "no such agent")
            .refuses(
                StatusCode::CONFLICT,
                "number_already_registered",
                "a number is active on an account",
            )
            .refuses(
                StatusCode::BAD_GATEWAY,
                "provisioning_failed",
                "the SIP stack cannot take the trunk; nothing is stored",
            ),
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
            .page::<TrunksPage>()
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
        .refuses(
            StatusCode::UNPROCESSABLE_ENTITY,
            "trunk_inactive",
            "the trunk is inbound, or not active",
        ),
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
fn made(endpoint: Endpoint) -> Endpoint {
    endpoint.refuses(
        StatusCode::CONFLICT,
        "trunk_limit_reached",
        "the account has as many trunks as it may",
    )
}

/// What a trunk is refused for, new or changed.
fn written(endpoint: Endpoint) -> Endpoint {
    endpoint
        .refuses(
            StatusCode::BAD_REQUEST,
            "trunk_auth_inconsistent",
            "the fields of authentication do not go together",
        )
        .refuses(
            StatusCode::CONFLICT,
            "number_already_registered",
            "a number belongs to another account",
        )
        .refuses(
            StatusCode::CONFLICT,
            "name_taken",
            "an inbound trunk is known by this user name",
        )
        .refuses(
            StatusCode::BAD_GATEWAY,
            "provisioning_failed",
            "the SIP stack cannot take it; nothing is stored",
        )
}

async fn onboard(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<OnboardTrunk>,
) -> Result<impl IntoResponse, ApiError> {
    let (trunk, numbers) = service::onboard(&app, caller.account, body).await?;
    let made = OnboardedTrunk {
        trunk: TrunkRecord::new(trunk, Traffic::default()),
        phone_numbers: numbers.into_iter().map(PhoneNumberRecord::from).collect(),
    };
    Ok((StatusCode::CREATED, Json(made)))
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<CreateTrunk>,
) -> Result<impl IntoResponse, ApiError> {
    let trunk = service::create(&app, caller.account, body).await?;
    Ok((
        StatusCode::CREATED,
        Json(TrunkRecord::new(trunk, Traffic::default())),
    ))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    page: Page<TrunksPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (trunks, total) = store::list(&app.db, caller.account, page.limit, page.offset).await?;
    let mut traffic = traffic(&app, caller.account).await?;
    let records = trunks
        .into_iter()
        .map(|trunk| {
            let traffic = traffic.remove(&trunk.id).unwrap_or_default();
            TrunkRecord::new(trunk, traffic)
        })
        .collect();
    Ok(List::new(records, total, page))
}

async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
) -> Result<impl IntoResponse, ApiError> {
    let trunk = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    record(&app, trunk).await
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
    Body(body): Body<PatchTrunk>,
) -> Result<impl IntoResponse, ApiError> {
    let trunk = service::change(&app, caller.account, id, body).await?;
    record(&app, trunk).await
}

async fn set_default_outbound(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
) -> Result<impl IntoResponse, ApiError> {
    let trunk = service::set_default_outbound(&app, caller.account, id).await?;
    record(&app, trunk).await
}

async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TrunkId>,
) -> Result<impl IntoResponse, ApiError> {
    service::delete(&app, caller.account, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// For so long a call that failed is told of.
const LATELY: Duration = Duration::from_secs(86_400);

async fn traffic(app: &App, account: AccountId) -> Result<HashMap<TrunkId, Traffic>, DbError> {
    store::traffic(&app.db, account, app.clock.now().minus(LATELY)).await
}

async fn record(app: &App, trunk: store::Trunk) -> Result<Json<TrunkRecord>, ApiError> {
    let mut traffic = traffic(app, trunk.account).await?;
    let traffic = traffic.remove(&trunk.id).unwrap_or_default();
    Ok(Json(TrunkRecord::new(trunk, traffic)))
}
