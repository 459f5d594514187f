//! Every way a request can be refused. A variant owns its status, its slug and its extra keys; the
//! ones that a client should retry cannot be built without `retry_after`.
//!
//! A handler returns an [`ApiError`]; it travels in the response's extensions to the outermost
//! layer ([`super::envelope`]), which knows the request id and writes the body.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::scope::Scope;
use super::validate::{FieldError, Loc};
use crate::db::DbError;

/// The slug of a hard-blocked account, inside and outside.
const BILLING_BLOCK: &str = "billing.hard_block";

/// A refusal.
#[derive(Debug)]
pub enum ApiError {
    /// 401: no credential, or not a valid one.
    Unauthorized,
    /// 403: the key lacks this scope.
    Scope(Scope),
    /// 400: the request means nothing where things stand.
    BadRequest { code: &'static str, message: String },
    /// 402: the account may not spend; where it can be helped.
    PaymentRequired {
        message: String,
        action_url: Option<String>,
    },
    /// 403 for another reason.
    Forbidden { code: &'static str, message: String },
    /// 403 with an object that says more.
    Refused {
        code: &'static str,
        message: String,
        detail: Value,
    },
    /// 404: no such thing in this account.
    NotFound,
    /// 404 with a slug of its own.
    Missing { code: &'static str, message: String },
    /// 405; the router has set `Allow`.
    MethodNotAllowed,
    /// 408: the body did not come.
    RequestTimeout,
    /// 409.
    Conflict { code: &'static str, message: String },
    /// 410: was here, is no more.
    Gone { code: &'static str, message: String },
    /// 413: more bytes than the route takes.
    PayloadTooLarge { limit: usize },
    /// 413 with a slug of its own.
    TooLong { code: &'static str, message: String },
    /// 415: not the kind of body that the route takes.
    UnsupportedMediaType { expected: &'static str },
    /// 416: `size` is that of the whole, bytes.
    RangeNotSatisfiable { size: u64 },
    /// 422: fields that are wrong, all of them.
    Fields(Vec<FieldError>),
    /// 422: the fields are right but the wish is not. `detail` replaces the message as `detail`.
    Unprocessable {
        code: &'static str,
        message: String,
        detail: Option<Value>,
    },
    /// 429: too many requests; seconds to wait.
    RateLimited { retry_after: u32 },
    /// Admission control: 429, 409 or 503 by its reason.
    Capacity {
        reason: Reason,
        /// `account`, `pool`, `agent`, `trunk` or `node`; unknown when the lease store failed.
        resource: Option<&'static str>,
        current: Option<u32>,
        cap: Option<u32>,
        /// Seconds.
        retry_after: u32,
    },
    /// 429: a trunk has placed its calls of this hour.
    TrunkHour {
        limit: u32,
        /// Seconds.
        retry_after: u32,
    },
    /// 502: a system behind this one failed.
    Upstream { code: &'static str, message: String },
    /// 503: not now; seconds to wait.
    Unavailable {
        code: &'static str,
        message: String,
        retry_after: u32,
    },
    /// Any other status that a library below has answered with.
    Other {
        status: StatusCode,
        code: &'static str,
        message: String,
    },
    /// 500: the cause goes to the log, the client learns the request id.
    Internal(Arc<str>),
}

/// Why admission refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// 429: a cap is reached.
    Capacity,
    /// 409: another owner holds this lease.
    DuplicateLease,
    /// 503: no slot on this node.
    ServiceUnavailable,
    /// 503: the lease store does not answer.
    RedisUnavailable,
    /// 503: the lease store failed.
    RedisError,
}

impl Reason {
    /// The slug: `code` and `reason` of the body.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::DuplicateLease => "duplicate_lease",
            Self::ServiceUnavailable => "service_unavailable",
            Self::RedisUnavailable => "redis_unavailable",
            Self::RedisError => "redis_error",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Capacity => StatusCode::TOO_MANY_REQUESTS,
            Self::DuplicateLease => StatusCode::CONFLICT,
            Self::ServiceUnavailable | Self::RedisUnavailable | Self::RedisError => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl ApiError {
    /// All wrong fields of a request.
    pub const fn fields(errors: Vec<FieldError>) -> Self {
        Self::Fields(errors)
    }

    /// One wrong field of the body.
    pub fn field(name: &str, kind: &'static str, msg: impl Into<String>) -> Self {
        Self::Fields(vec![FieldError::body(name, kind, msg)])
    }

    /// A wrong parameter of the query.
    pub fn query(name: &str, kind: &'static str, msg: &str) -> Self {
        Self::Fields(vec![FieldError {
            loc: vec![Loc::from("query"), Loc::from(name)],
            msg: msg.to_owned(),
            kind,
        }])
    }

    /// 404 of something that the request names, with a sentence.
    pub fn missing(message: impl Into<String>) -> Self {
        Self::Missing {
            code: "not_found",
            message: message.into(),
        }
    }

    /// 409 with a slug.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::Conflict {
            code,
            message: message.into(),
        }
    }

    /// 422 with a sentence.
    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::Unprocessable {
            code,
            message: message.into(),
            detail: None,
        }
    }

    /// 500. The cause is logged where it happens, with its line.
    #[track_caller]
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let at = std::panic::Location::caller();
        Self::Internal(format!("{cause} ({}:{})", at.file(), at.line()).into())
    }

    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Self::PaymentRequired { .. } => StatusCode::PAYMENT_REQUIRED,
            Self::Scope(_) | Self::Forbidden { .. } | Self::Refused { .. } => StatusCode::FORBIDDEN,
            Self::NotFound | Self::Missing { .. } => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict { .. } => StatusCode::CONFLICT,
            Self::Gone { .. } => StatusCode::GONE,
            Self::PayloadTooLarge { .. } | Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Fields(_) | Self::Unprocessable { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited { .. } | Self::TrunkHour { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Capacity { reason, .. } => reason.status(),
            Self::Upstream { .. } => StatusCode::BAD_GATEWAY,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Other { status, .. } => *status,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The stable slug.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Scope(_) => "insufficient_scope",
            Self::PaymentRequired { .. } => BILLING_BLOCK,
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::UnsupportedMediaType { .. } => "unsupported_media_type",
            Self::RangeNotSatisfiable { .. } => "range_not_satisfiable",
            Self::Fields(_) => "validation_error",
            Self::RateLimited { .. } => "rate_limited",
            Self::Capacity { reason, .. } => reason.name(),
            Self::TrunkHour { .. } => Reason::Capacity.name(),
            Self::Internal(_) => "internal_error",
            Self::BadRequest { code, .. }
            | Self::Forbidden { code, .. }
            | Self::Refused { code, .. }
            | Self::Missing { code, .. }
            | Self::Conflict { code, .. }
            | Self::Gone { code, .. }
            | Self::TooLong { code, .. }
            | Self::Unprocessable { code, .. }
            | Self::Upstream { code, .. }
            | Self::Unavailable { code, .. }
            | Self::Other { code, .. } => code,
        }
    }

    /// What a person reads.
    pub fn message(&self) -> String {
        match self {
            Self::Unauthorized => "Missing or invalid credential".to_owned(),
            Self::Scope(scope) => format!("This key lacks the scope {scope}"),
            Self::NotFound => "Not found".to_owned(),
            Self::MethodNotAllowed => "Method not allowed".to_owned(),
            Self::RequestTimeout => "The request did not arrive in time".to_owned(),
            Self::PayloadTooLarge { limit } => format!("The body is larger than {limit} bytes"),
            Self::UnsupportedMediaType { expected } => format!("The body must be {expected}"),
            Self::RangeNotSatisfiable { size } => {
                format!("No part of the range lies within the {size} bytes")
            }
            Self::Fields(errors) => match errors.as_slice() {
                [one] => format!("Validation failed: {}: {}", one.path(), one.msg),
                many => format!("Validation failed: {} fields are wrong", many.len()),
            },
            Self::RateLimited { retry_after } => {
                format!("Too many requests: try again in {retry_after} s")
            }
            Self::Capacity {
                reason,
                resource,
                current,
                cap,
                ..
            } => match (reason, resource, current, cap) {
                (Reason::Capacity, Some(resource), Some(current), Some(cap)) => {
                    format!("Concurrent call limit of the {resource} reached ({current} of {cap})")
                }
                (Reason::Capacity, ..) => "Concurrent call limit reached".to_owned(),
                (Reason::DuplicateLease, ..) => "This call is being handled elsewhere".to_owned(),
                (Reason::ServiceUnavailable, ..) => "No capacity for a call right now".to_owned(),
                (Reason::RedisUnavailable | Reason::RedisError, ..) => {
                    "Call admission is not available right now".to_owned()
                }
            },
            Self::TrunkHour { limit, .. } => {
                format!("The trunk has placed its {limit} calls of this hour")
            }
            Self::Internal(_) => "Internal error".to_owned(),
            Self::BadRequest { message, .. }
            | Self::Forbidden { message, .. }
            | Self::PaymentRequired { message, .. }
            | Self::Refused { message, .. }
            | Self::Missing { message, .. }
            | Self::Conflict { message, .. }
            | Self::Gone { message, .. }
            | Self::TooLong { message, .. }
            | Self::Unprocessable { message, .. }
            | Self::Upstream { message, .. }
            | Self::Unavailable { message, .. }
            | Self::Other { message, .. } => message.clone(),
        }
    }

    /// Whole seconds for the `Retry-After` header, on every 429 and 503 and on `duplicate_lease`.
    pub const fn retry_after(&self) -> Option<u32> {
        match self {
            Self::RateLimited { retry_after }
            | Self::Capacity { retry_after, .. }
            | Self::TrunkHour { retry_after, .. }
            | Self::Unavailable { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// The body of the answer.
    pub fn body(&self, request_id: &str) -> Value {
        let message = self.message();
        let mut body = Map::new();
        body.insert("error".into(), message.clone().into());
        body.insert("code".into(), self.code().into());
        body.insert("request_id".into(), request_id.into());
        let detail = match self {
            Self::Fields(errors) => json!(errors),
            Self::Unprocessable {
                detail: Some(detail),
                ..
            }
            | Self::Refused { detail, .. } => detail.clone(),
            Self::PaymentRequired { action_url, .. } => {
                json!({"code": BILLING_BLOCK, "message": message, "action_url": action_url})
            }
            _ => message.into(),
        };
        if let Self::Fields(errors) = self {
            body.insert("fields".into(), json!(errors));
        }
        body.insert("detail".into(), detail);
        let admission = match self {
            Self::Capacity {
                reason,
                resource,
                current,
                cap,
                retry_after,
            } => Some((*reason, *resource, *current, *cap, *retry_after)),
            Self::TrunkHour { limit, retry_after } => {
                let (limit, retry_after) = (*limit, *retry_after);
                Some((
                    Reason::Capacity,
                    Some("trunk"),
                    Some(limit),
                    Some(limit),
                    retry_after,
                ))
            }
            _ => None,
        };
        if let Some((reason, resource, current, cap, retry_after)) = admission {
            body.insert("reason".into(), reason.name().into());
            body.insert("resource_class".into(), "call".into());
            body.insert("retry_after".into(), retry_after.into());
            for (key, value) in [
                ("resource", resource.map(Value::from)),
                ("current", current.map(Value::from)),
                ("cap", cap.map(Value::from)),
            ] {
                if let Some(value) = value {
                    body.insert(key.into(), value);
                }
            }
        }
        Value::Object(body)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        if let Self::RangeNotSatisfiable { size } = &self
            && let Ok(value) = format!("bytes */{size}").parse()
        {
            response
                .headers_mut()
                .insert(http::header::CONTENT_RANGE, value);
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl From<DbError> for ApiError {
    #[track_caller]
    fn from(error: DbError) -> Self {
        let unavailable = |message: &str, retry_after| Self::Unavailable {
            code: "service_unavailable",
            message: message.to_owned(),
            retry_after,
        };
        if error.is_too_slow() {
            tracing::warn!(%error, "a request was too much for the database");
            unavailable(
                "The database took too long over this: ask for less, or try again",
                5,
            )
        } else if error.is_unavailable() {
            tracing::debug!(%error, "a request could not be served");
            unavailable("The database is not available right now", 2)
        } else if error.is_conflict() {
            tracing::warn!(%error, "a request lost against another one");
            unavailable(
                "Another change was being made at the same time: try again",
                1,
            )
        } else if error.is_bad_text() {
            Self::unprocessable(
                "validation_error",
                "Text should not contain a NUL character",
            )
        } else {
            Self::internal(error)
        }
    }
}

impl From<std::io::Error> for ApiError {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded | ReadOnlyFilesystem => {
                tracing::error!(%error, "a request could not be served");
                Self::Unavailable {
                    code: "service_unavailable",
                    message: "The server cannot write to its disk right now".to_owned(),
                    retry_after: 5,
                }
            }
            _ => Self::internal(error),
        }
    }
}

impl From<Vec<FieldError>> for ApiError {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::Fields(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_refusal_has_its_keys() {
        let error = ApiError::Capacity {
            reason: Reason::Capacity,
            resource: Some("account"),
            current: Some(10),
            cap: Some(10),
            retry_after: 5,
        };
        let body = error.body("id");
        assert_eq!(
            body,
            json!({
                "error": "Concurrent call limit of the account reached (10 of 10)",
                "code": "capacity",
                "request_id": "id",
                "detail": "Concurrent call limit of the account reached (10 of 10)",
                "reason": "capacity",
                "resource_class": "call",
                "retry_after": 5,
                "resource": "account",
                "current": 10,
                "cap": 10
            })
        );
        assert_eq!(error.status(), StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn a_500_keeps_its_cause_to_itself() {
        let body = ApiError::internal("the disk is on fire")
            .body("id")
            .to_string();
        assert!(!body.contains("fire") && body.contains("internal_error"));
    }
}
