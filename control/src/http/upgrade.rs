//! WebSocket upgrades (RFC 6455 section 4.2): the check of the request, the 101 answer, and taking
//! the raw connection out of the HTTP server afterwards.

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;

use super::error::ApiError;
use super::serve::{Connection, Taken};

/// Takes the connection of this request as soon as the 101 answer has been written: the raw socket (of a TLS
/// connection the near end of a plain one that leads to it), and its slot among the connections of its
/// address. Call it before answering, await it (in a task of its own) after.
pub fn take<B>(
    request: &mut Request<B>,
) -> impl Future<Output = Result<Taken, TakeError>> + Send + use<B> {
    let upgrade = hyper::upgrade::on(request);
    async move {
        let upgraded = upgrade
            .await
            .map_err(|error| TakeError(error.to_string()))?;
        let parts = upgraded
            .downcast::<TokioIo<Connection>>()
            .map_err(|_| TakeError("the connection is not one of this server's".to_owned()))?;
        let mut taken = parts
            .io
            .into_inner()
            .into_plain()
            .await
            .map_err(|error| TakeError(error.to_string()))?;
        taken.leftover.extend_from_slice(&parts.read_buf);
        Ok(taken)
    }
}

/// Why a connection could not be taken.
#[derive(Debug)]
pub struct TakeError(String);

impl std::fmt::Display for TakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "upgrade: {}", self.0)
    }
}

impl std::error::Error for TakeError {}

/// The 101 answer to a WebSocket handshake, or the refusal of a request that is none: 426 with
/// `Upgrade: websocket`.
pub fn accept(method: &Method, headers: &HeaderMap) -> Result<Response, ApiError> {
    let refuse = |message: &str| ApiError::Other {
        status: StatusCode::UPGRADE_REQUIRED,
        code: "upgrade_required",
        message: message.to_owned(),
    };
    if method != Method::GET
        || !has_token(headers, &header::CONNECTION, "upgrade")
        || !has_token(headers, &header::UPGRADE, "websocket")
    {
        return Err(refuse("This is a WebSocket route: upgrade the connection"));
    }
    if headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return Err(refuse("Sec-WebSocket-Version must be 13"));
    }
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .ok_or_else(|| refuse("Sec-WebSocket-Key is missing"))?;
    let accept = HeaderValue::from_str(&accept_key(key.as_bytes())).map_err(ApiError::internal)?;
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let out = response.headers_mut();
    out.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455 section 4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    tokio_tungstenite::tungstenite::handshake::derive_accept_key(key)
}

fn has_token(headers: &HeaderMap, name: &header::HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn the_accept_key_of_the_rfc() {
        assert_eq!(
            accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_handshake_is_answered_and_others_are_not() {
        let mut headers = HeaderMap::new();
        assert!(accept(&Method::GET, &headers).is_err());
        headers.insert(
            header::CONNECTION,
            HeaderValue::from_static("keep-alive, Upgrade"),
        );
        headers.insert(header::UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        headers.insert(
            header::SEC_WEBSOCKET_KEY,
            HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="),
        );
        let response = accept(&Method::GET, &headers).unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert!(accept(&Method::GET, &headers).is_err());
    }
}
