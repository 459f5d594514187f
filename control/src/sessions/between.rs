//! The route between nodes: what another node asks of a session that this one hosts.

use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::wire::{Offer, ToolResult, Trickle};
use super::{peer, service};
use crate::calls;
use crate::cluster::route::{self, Ask, PATH, Reply};
use crate::http::{Access, ApiError, Class, Endpoint};
use crate::node::Node;

/// The route between nodes.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::post(PATH, Access::SignedUrl, answer)
            .summary("Between nodes: a request for a session that this node hosts")
            .class(Class::Exempt)
            .returns(StatusCode::OK)
            .answers_nothing()
            .internal()
            .at_root(),
    ]
}

async fn answer(State(app): State<Node>, request: Request) -> Result<Json<Reply>, ApiError> {
    let (account, id, ask) = route::asked(&app, request).await?;
    let done = match ask {
        Ask::Status => json(service::status_here(&app, account, id).await),
        Ask::End { reason } => {
            json(calls::service::end_here(&app, account, id, reason.as_deref()).await)
        }
        Ask::Offer {
            sdp,
            kind,
            pc_id,
            restart_pc,
        } => {
            let body = Offer {
                sdp,
                kind,
                pc_id,
                restart_pc,
            };
            json(peer::offer_here(&app, account, id, body).await)
        }
        Ask::MakeOffer => json(peer::make_offer_here(&app, account, id).await),
        Ask::Ice { pc_id, candidates } => {
            let body = Trickle { pc_id, candidates };
            json(peer::trickle_here(&app, account, id, body).await)
        }
        Ask::ToolResult {
            tool_call_id,
            result,
            is_error,
        } => {
            let body = ToolResult {
                tool_call_id,
                result,
                is_error,
            };
            json(service::tool_result_here(&app, account, id, body).await)
        }
    };
    Ok(Json(Reply::of(done)))
}

fn json<T: Serialize>(done: Result<T, ApiError>) -> Result<Value, ApiError> {
    done.and_then(|done| serde_json::to_value(done).map_err(ApiError::internal))
}
