//! Routes of phone numbers (document 3, phone numbers).

use axum::Json;
use axum::extract::State;
use http::StatusCode;

use super::store::PhoneNumber;
use super::wire::{PatchNumber, PhoneNumberRecord, RegisterSipNumber, SetRouting};
use super::{service, store};
use crate::app::App;
use crate::http::page::UpTo;
use crate::http::{
    Access, ApiError, Body, Caller, Created, Endpoint, Found, Id, Patch, Reply, Scope,
};
use crate::ids::PhoneNumberId;

const READ: Access = Access::Scopes(&[Scope::PhoneNumbersRead]);
const WRITE: Access = Access::Scopes(&[Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::list::<PhoneNumber, PhoneNumberRecord, UpTo<1000>>("/phone-numbers", READ)
            .summary("Numbers that are not released, newest first"),
        Endpoint::post("/phone-numbers/sip/register", WRITE, register_sip)
            .summary("Register a number of a SIP trunk")
            .body::<RegisterSipNumber>()
            .answers::<PhoneNumberRecord>()
            .refuses_missing("not_found", "no such trunk or agent")
            .refuses_conflict(
                "number_already_registered",
                "the number is active on an account",
            )
            .refuses_unfit("trunk_inactive", "the trunk is disabled"),
        Endpoint::one::<PhoneNumber, PhoneNumberRecord>("/phone-numbers/{phone_number_id}", READ)
            .summary("One number"),
        Endpoint::patch("/phone-numbers/{phone_number_id}", WRITE, patch)
            .summary("Change a number: only the fields that are given")
            .body::<PatchNumber>()
            .answers::<PhoneNumberRecord>()
            .refuses_missing("not_found", "no such trunk or agent")
            .refuses_unfit("trunk_inactive", "the trunk is disabled"),
        Endpoint::post(
            "/phone-numbers/{phone_number_id}/routing",
            WRITE,
            set_routing,
        )
        .returns(StatusCode::OK)
        .summary("What is done with calls that no agent answers")
        .body::<SetRouting>()
        .answers::<PhoneNumberRecord>(),
        Endpoint::delete("/phone-numbers/{phone_number_id}", WRITE, release)
            .summary("Release a number: it is hidden, and may be registered again"),
    ]
}

async fn register_sip(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<RegisterSipNumber>,
) -> Result<Created<PhoneNumberRecord>, ApiError> {
    let number = service::register_sip(&app, caller.account, body).await?;
    Ok(Created(number.into()))
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
    Body(body): Body<PatchNumber>,
) -> Reply<PhoneNumberRecord> {
    let number = service::change(&app, caller.account, id, body).await?;
    Ok(Json(number.into()))
}

async fn set_routing(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
    Body(SetRouting(rules)): Body<SetRouting>,
) -> Reply<PhoneNumberRecord> {
    service::check_rules("", Some(&rules))?;
    let change = PatchNumber {
        routing_rules: Patch::Value(rules),
        ..PatchNumber::default()
    };
    let number = service::change(&app, caller.account, id, change).await?;
    Ok(Json(number.into()))
}

async fn release(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
) -> Result<StatusCode, ApiError> {
    let released = store::release(&app.db, caller.account, id, app.clock.now()).await?;
    released.found().map(|()| StatusCode::NO_CONTENT)
}
