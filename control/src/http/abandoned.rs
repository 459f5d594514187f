//! What a client who goes may not take along.

use tracing::Instrument;

use super::ApiError;

/// Does this in a task of its own: when the connection is closed the request is dropped, and this goes on to its
/// end. `what`: for the log, should it panic.
pub async fn goes_on<T: Send + 'static>(
    what: &str,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::spawn(work.in_current_span()).await;
    done.unwrap_or_else(|error| Err(ApiError::internal(format_args!("{what}: {error}"))))
}
