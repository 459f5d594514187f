//! Routes of webhooks (document 1, Request shape).

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;

use super::service::{self, NoSecret};
use super::wire::Rotated;
use crate::http::{Access, ApiError, Caller, Endpoint, Scope};
use crate::node::Node;

/// The route table.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    vec![
        Endpoint::post(
            "/usage/webhook-secret/rotate",
            Access::Scopes(&[Scope::UsageWrite]),
            rotate,
        )
        .returns(StatusCode::OK)
        .answers::<Rotated>()
        .summary("Make a new secret for the signatures of events; it holds at once")
        .operation(
            "rotateWebhookSecret",
            "Makes the secret with which events are signed, the first one or a new one. It holds \
             at once, for events that wait as well, and the old one is gone. The answer shows \
             it, and nothing shows it again.",
        ),
    ]
}

async fn rotate(State(app): State<Node>, caller: Caller) -> Result<impl IntoResponse, ApiError> {
    let (secret, rotated_at) = service::rotate(&app, caller.account).await?;
    Ok(Json(Rotated {
        secret: secret.expose().clone(),
        rotated_at,
    }))
}

impl From<NoSecret> for ApiError {
    fn from(error: NoSecret) -> Self {
        match error {
            NoSecret::Database(error) => error.into(),
            NoSecret::System(_) | NoSecret::Sealed => Self::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::DbError;

    #[test]
    fn a_database_that_is_away_is_no_fault_of_the_server() {
        let away = ApiError::from(NoSecret::Database(DbError::Away));
        assert_eq!(away.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(away.retry_after().is_some());
        let sealed = ApiError::from(NoSecret::Sealed);
        assert_eq!(sealed.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
