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
            .operation(
                "listPhoneNumbers",
                "Lists the account's phone numbers with who answers them and what they may do. \
                 Released numbers are left out.",
            )
            .page::<PhoneNumbersPage>()
            .answers::<List<PhoneNumberRecord>>(),
        Endpoint::post("/phone-numbers/sip/register", WRITE, register_sip)
            .summary("Register a number of a SIP trunk")
            .operation(
                "registerSipNumber",
                "Registers a number of one of the account's active SIP trunks, so that an agent \
                 answers calls to it; with `outbound_enabled` calls can be placed from it too. A \
                 number belongs to one account: one that is registered already is 409 \
                 `number_already_registered`, and the message says whether the account itself \
                 has it.",
            )
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
            .operation(
                "getPhoneNumber",
                "Answers one phone number: its trunk, its agent, and what happens when no agent \
                 answers. A released number is 404.",
            )
            .answers::<PhoneNumberRecord>(),
        Endpoint::patch("/phone-numbers/{phone_number_id}", WRITE, patch)
            .summary("Change a number: only the fields that are given")
            .operation(
                "updatePhoneNumber",
                "Changes the fields that are given: who answers, what is done when nobody does, \
                 whether calls are placed from the number, and over which trunk. Calls that are \
                 live are left alone. Settings for texts are 422 where the number cannot carry \
                 any.",
            )
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
        .operation(
            "setPhoneNumberRouting",
            "Replaces the routing rules of a number: what is done with a call that no agent \
             answers, and how long it rings first. `forward` needs a `fallback_number`, and a \
             number from which calls may be placed.",
        )
        .body::<SetRouting>()
        .answers::<PhoneNumberRecord>(),
        Endpoint::delete("/phone-numbers/{phone_number_id}", WRITE, release)
            .summary("Release a number: it is hidden, and may be registered again")
            .operation(
                "releasePhoneNumber",
                "Takes a number out of service: calls to it are not answered any more, and any \
                 account can register it anew. Its past calls stay.",
            ),
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
