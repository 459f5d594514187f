//! The outermost layer: gives each request its id, writes every error in the one shape, turns
//! panics into 500, and counts.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use uuid::Uuid;

use super::error::ApiError;
use crate::metrics::Metrics;
use crate::supervisor::panic_text;

/// The name of the header that carries the request id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Request headers may have this many bytes in all.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// Request headers may be this many.
const MAX_HEADERS: usize = 100;
/// A path with its query may have this many bytes.
const MAX_URI: usize = 8 * 1024;

/// A body of more bytes may not have been read to its end when an error is answered; it does not come in one
/// piece with the head.
const LONG_BODY: u64 = 8 * 1024;

/// The id of the request at hand; handlers take it with `Extension<RequestId>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(pub Uuid);

/// The pattern of the route that answered, for the counters.
#[derive(Clone, Copy, Debug)]
pub struct Route(pub &'static str);

/// The layer.
pub async fn envelope(
    State(metrics): State<Arc<Metrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId(Uuid::new_v4());
    request.extensions_mut().insert(id);
    let method = request.method().clone();
    let cut = may_be_cut(&request);
    let began = Instant::now();
    let response = match too_large(&request) {
        Some(error) => error.into_response(),
        None => AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| {
                ApiError::internal(format_args!("a handler panicked: {}", panic_text(&*panic)))
                    .into_response()
            }),
    };
    let route = response
        .extensions()
        .get::<Route>()
        .map_or("unmatched", |route| route.0);
    metrics.request(&method, route, response.status(), began.elapsed());
    let mut response = finish(response, id);
    if cut && is_error(response.status()) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Whether the connection cannot go on after an error: the rest of the body is in the way of the next request.
/// A client that was not told would send that into the closing connection (RFC 9112 section 9.6). HTTP/2 has
/// streams, and no such header.
fn may_be_cut(request: &Request) -> bool {
    let most = request.body().size_hint().upper();
    request.version() <= Version::HTTP_11 && most.is_none_or(|bytes| bytes > LONG_BODY)
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Errors get their body, everything gets its id.
fn finish(response: Response, id: RequestId) -> Response {
    let text = id.0.to_string();
    let mut response = if is_error(response.status()) {
        let error = response
            .extensions()
            .get::<Arc<ApiError>>()
            .cloned()
            .unwrap_or_else(|| Arc::new(wrap(response.status())));
        if let ApiError::Internal(cause) = &*error {
            tracing::error!(request_id = %text, %cause, "request failed");
        }
        render(response, &error, &text)
    } else {
        response
    };
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let headers = response.headers_mut();
    headers
        .entry(header::X_CONTENT_TYPE_OPTIONS)
        .or_insert(HeaderValue::from_static("nosniff"));
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

fn render(response: Response, error: &ApiError, id: &str) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = error.status();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = error.retry_after() {
        parts.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if matches!(error, ApiError::Unauthorized) {
        parts
            .headers
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Response::from_parts(parts, axum::body::Body::from(error.body(id).to_string()))
}

/// An error for an answer that came without one: from the router or a library.
fn wrap(status: StatusCode) -> ApiError {
    let other = |code, message: &str| ApiError::Other {
        status,
        code,
        message: message.to_owned(),
    };
    match status {
        StatusCode::NOT_FOUND => ApiError::NotFound,
        StatusCode::METHOD_NOT_ALLOWED => ApiError::MethodNotAllowed,
        StatusCode::REQUEST_TIMEOUT => ApiError::RequestTimeout,
        StatusCode::PAYLOAD_TOO_LARGE => other("payload_too_large", "The body is too large"),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => other(
            "unsupported_media_type",
            "The route does not take such a body",
        ),
        StatusCode::BAD_REQUEST => other("bad_request", "The request cannot be read"),
        status if status.is_server_error() => {
            ApiError::internal(format_args!("an unexplained {status}"))
        }
        status => other(
            "bad_request",
            status
                .canonical_reason()
                .unwrap_or("The request was refused"),
        ),
    }
}

fn too_large(request: &Request) -> Option<ApiError> {
    let uri = request
        .uri()
        .path_and_query()
        .map_or(0, |text| text.as_str().len());
    let bytes: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if uri > MAX_URI {
        let status = StatusCode::URI_TOO_LONG;
        return Some(ApiError::Other {
            status,
            code: "uri_too_long",
            message: format!("The URL is longer than {MAX_URI} bytes"),
        });
    }
    (bytes > MAX_HEADER_BYTES || request.headers().len() > MAX_HEADERS).then(|| ApiError::Other {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        code: "headers_too_large",
        message: format!("More than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of them"),
    })
}

/// What a browser on another origin may do with an answer.
pub fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(
            "X-Request-ID, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset",
        ),
    );
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
