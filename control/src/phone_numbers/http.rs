//! Routes of phone numbers (document 3, phone numbers).

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::wire::{PatchNumber, PhoneNumberRecord, RegisterSipNumber, SetRouting};
use super::{service, store};
use crate::app::App;
use crate::http::page::PhoneNumbersPage;
use crate::http::{Access, ApiError, Body, Caller, Endpoint, Id, List, Page, Patch, Scope};
use crate::ids::PhoneNumberId;

const READ: Access = Access::Scopes(&[Scope::PhoneNumbersRead]);
const WRITE: Access = Access::Scopes(&[Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/phone-numbers", READ, list)
            .summary("Numbers that are not released, newest first")
            .page::<PhoneNumbersPage>()
            .answers::<List<PhoneNumberRecord>>(),
        Endpoint::post("/phone-numbers/sip/register", WRITE, register_sip)
            .summary("Register a number of a SIP trunk")
            .body::<RegisterSipNumber>()
            .answers::<PhoneNumberRecord>()
            .refuses(StatusCode::NOT_FOUND, "not_found", "no such trunk or agent")
            .refuses(
                StatusCode::CONFLICT,
                "number_already_registered",
                "the number is active on an account",
            )
            .refuses(
                StatusCode::UNPROCESSABLE_ENTITY,
                "trunk_inactive",
                "the trunk is disabled",
            ),
        Endpoint::get("/phone-numbers/{phone_number_id}", READ, get)
            .summary("One number")
            .answers::<PhoneNumberRecord>(),
        Endpoint::patch("/phone-numbers/{phone_number_id}", WRITE, patch)
            .summary("Change a number: only the fields that are given")
            .body::<PatchNumber>()
            .answers::<PhoneNumberRecord>()
            .refuses(StatusCode::NOT_FOUND, "not_found", "no such trunk or agent")
            .refuses(
                StatusCode::UNPROCESSABLE_ENTITY,
                "trunk_inactive",
                "the trunk is disabled",
            ),
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

async fn list(
    State(app): State<App>,
    caller: Caller,
    page: Page<PhoneNumbersPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (numbers, total) = store::list(&app.db, caller.account, page.limit, page.offset).await?;
    let records = numbers.into_iter().map(PhoneNumberRecord::from).collect();
    Ok(List::new(records, total, page))
}

async fn register_sip(
    State(app): State<App>,
    caller: Caller,
    Body(body): Body<RegisterSipNumber>,
) -> Result<impl IntoResponse, ApiError> {
    let number = service::register_sip(&app, caller.account, body).await?;
    Ok((StatusCode::CREATED, Json(PhoneNumberRecord::from(number))))
}

async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
) -> Result<impl IntoResponse, ApiError> {
    let number = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Json(PhoneNumberRecord::from(number)))
}

async fn patch(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
    Body(body): Body<PatchNumber>,
) -> Result<impl IntoResponse, ApiError> {
    let number = service::change(&app, caller.account, id, body).await?;
    Ok(Json(PhoneNumberRecord::from(number)))
}

async fn set_routing(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
    Body(SetRouting(rules)): Body<SetRouting>,
) -> Result<impl IntoResponse, ApiError> {
    service::check_rules("", Some(&rules))?;
    let change = PatchNumber {
        routing_rules: Patch::Value(rules),
        ..PatchNumber::default()
    };
    let number = service::change(&app, caller.account, id, change).await?;
    Ok(Json(PhoneNumberRecord::from(number)))
}

async fn release(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<PhoneNumberId>,
) -> Result<impl IntoResponse, ApiError> {
    if !store::release(&app.db, caller.account, id, app.clock.now()).await? {
        return Err(ApiError::NotFound);
    }
    Ok(StatusCode::NO_CONTENT)
}
