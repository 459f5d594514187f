//! Routes of phone numbers (document 3, phone numbers).

use axum::Json;

use super::rules::RoutingRules;
use super::store::PhoneNumber;
use super::wire::{PatchNumber, PhoneNumberRecord, RegisterSipNumber};
use super::{service, store};
use crate::http::page::UpTo;
use crate::http::{
    Access, Body, Context, Created, Done, Endpoint, Found, Id, Made, NoContent, Patch, Reply, Scope,
};
use crate::ids::PhoneNumberId;
use crate::node::Node;

const READ: Access = Access::Scopes(&[Scope::PhoneNumbersRead]);
const WRITE: Access = Access::Scopes(&[Scope::PhoneNumbersWrite]);

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::list::<PhoneNumber, PhoneNumberRecord, UpTo<1000>>("/phone-numbers", READ)
            .summary("Numbers that are not released, newest first")
            .operation(
                "listPhoneNumbers",
                "Lists the account's phone numbers with who answers them and what they may do. \
                 Released numbers are left out.",
            ),
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
            .or_404("not_found: no such trunk or agent")
            .or_409("number_already_registered: the number is active on an account")
            .or_422("trunk_inactive: the trunk is disabled"),
        Endpoint::one::<PhoneNumber, PhoneNumberRecord>("/phone-numbers/{phone_number_id}", READ)
            .summary("One number")
            .operation(
                "getPhoneNumber",
                "Answers one phone number: its trunk, its agent, and what happens when no agent \
                 answers. A released number is 404.",
            ),
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
            .or_404("not_found: no such trunk or agent")
            .or_422("trunk_inactive: the trunk is disabled"),
        Endpoint::post(
            "/phone-numbers/{phone_number_id}/routing",
            WRITE,
            set_routing,
        )
        .returns(http::StatusCode::OK)
        .summary("What is done with calls that no agent answers")
        .operation(
            "setPhoneNumberRouting",
            "Replaces the routing rules of a number: what is done with a call that no agent \
             answers, and how long it rings first. `forward` needs a `fallback_number`, and a \
             number from which calls may be placed.",
        )
        .body::<RoutingRules>()
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

async fn register_sip(
    cx: Context<Node>,
    Body(body): Body<RegisterSipNumber>,
) -> Made<PhoneNumberRecord> {
    let number = service::register_sip(&cx, cx.account, body).await?;
    Ok(Created(number.into()))
}

async fn patch(
    cx: Context<Node>,
    Id(id): Id<PhoneNumberId>,
    Body(body): Body<PatchNumber>,
) -> Reply<PhoneNumberRecord> {
    let number = service::change(&cx, cx.account, id, body).await?;
    Ok(Json(number.into()))
}

async fn set_routing(
    cx: Context<Node>,
    Id(id): Id<PhoneNumberId>,
    Body(rules): Body<RoutingRules>,
) -> Reply<PhoneNumberRecord> {
    service::check_rules("", Some(&rules))?;
    let change = PatchNumber {
        routing_rules: Patch::Value(rules),
        ..PatchNumber::default()
    };
    let number = service::change(&cx, cx.account, id, change).await?;
    Ok(Json(number.into()))
}

async fn release(cx: Context<Node>, Id(id): Id<PhoneNumberId>) -> Done {
    let released = store::release(&cx.db, cx.account, id, cx.clock.now()).await?;
    released.found().map(|()| NoContent)
}
