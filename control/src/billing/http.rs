//! Routes of billing (document 1, billing errors).

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::wire::{AdjustmentRecord, BillingStatus, CreateAdjustment};
use crate::http::{Access, ApiError, Body, Caller, Class, Endpoint, Scope};
use crate::node::Node;

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::get(
            "/billing/status",
            Access::Scopes(&[Scope::UsageRead]),
            status,
        )
        .summary("Whether the account may spend, and its balance")
        .operation(
            "getBillingStatus",
            "Tells whether the account may spend. Where the server counts prepaid credit, an \
             account without any is blocked, as is one that the operator has blocked; what costs \
             money is then 402 `billing.hard_block`.",
        )
        .answers::<BillingStatus>(),
        Endpoint::post("/billing/adjustments", Access::Admin, adjust)
            .body::<CreateAdjustment>()
            .answers::<AdjustmentRecord>()
            .class(Class::Exempt)
            .summary("Give an account credit, or take it")
            .operation(
                "createBillingAdjustment",
                "Adds to an account's balance, or takes from it with a negative amount. The \
                 answer tells the balance that follows. Each request counts: one that is sent \
                 twice adjusts twice.",
            ),
    ]
}

async fn status(State(app): State<Node>, caller: Caller) -> Result<impl IntoResponse, ApiError> {
    let standing = super::standing(&app, caller.account).await?;
    Ok(Json(BillingStatus {
        enabled: standing.prepaid,
        hard_blocked: standing.is_hard_blocked(),
        balance_cents: standing.balance_cents(),
    }))
}

async fn adjust(
    State(app): State<Node>,
    Body(body): Body<CreateAdjustment>,
) -> Result<impl IntoResponse, ApiError> {
    let CreateAdjustment {
        account_id,
        amount_cents,
        note,
    } = body;
    let adjusted = super::adjust(
        &app.db,
        &app.clock,
        account_id,
        amount_cents,
        note.as_deref(),
    )
    .await?;
    let adjustment = adjusted
        .ok_or_else(|| ApiError::field("account_id", "value_error", "There is no such account"))?;
    let record = AdjustmentRecord::from(adjustment);
    Ok((StatusCode::CREATED, Json(record)))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
