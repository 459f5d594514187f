//! What each route of the document may answer: its success, the refusals that follow from its entry in the
//! table, and those that the entry names.

use std::collections::BTreeMap;

use http::StatusCode;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::super::answers::{Answer, Refusal};
use super::super::endpoint::{Access, Class, Operation};
use super::super::error::{ApiError, Reason};
use super::super::scope::Scope;

/// The `responses` of a route. `example` gives that of a component; the slugs are noted in `codes`.
pub(super) fn responses(
    endpoint: &Operation,
    generator: &mut SchemaGenerator,
    example: impl Fn(&Value) -> Option<Value>,
    codes: &mut BTreeMap<&'static str, Refusal>,
) -> Value {
    let mut responses = Map::new();
    responses.insert(
        endpoint.success.as_str().to_owned(),
        success(endpoint, generator, &example),
    );
    if endpoint.told.iter().any(|told| told.name == "ETag") {
        responses.insert(
            "304".to_owned(),
            json!({"description": "`If-None-Match` names what there still is."}),
        );
    }
    if endpoint.ranges {
        let mut part = success(endpoint, generator, &example);
        part["description"] = "The range that was asked for.".into();
        part["headers"]["Content-Range"] = header("string", "Which bytes of how many.");
        responses.insert("206".to_owned(), part);
    }
    let mut by_status: BTreeMap<u16, Vec<Refusal>> = BTreeMap::new();
    for refusal in refusals(endpoint) {
        codes.entry(refusal.code).or_insert(refusal);
        let of_status = by_status.entry(refusal.status.as_u16()).or_default();
        if !of_status.contains(&refusal) {
            of_status.push(refusal);
        }
    }
    for (status, refusals) in by_status {
        responses.insert(status.to_string(), refused(status, &refusals));
    }
    Value::Object(responses)
}

/// The error answers' examples, one a slug, as the server itself writes them.
pub(super) fn examples(codes: &BTreeMap<&'static str, Refusal>) -> Map<String, Value> {
    codes
        .iter()
        .map(|(code, refusal)| {
            let value = error(*refusal).body("0b54f6a2-8d4f-4a67-9c0c-2f8f6f1d7a10");
            let example = json!({"summary": refusal.when, "value": value});
            ((*code).to_owned(), example)
        })
        .collect()
}

/// Headers that answers refer to.
pub(super) fn headers() -> Value {
    json!({
        "RequestId": {
            "description": "The id of the request; that of an error's `request_id`.",
            "required": true, "schema": super::ids::reference()
        },
        "RetryAfter": {
            "description": "Whole seconds to wait before the next try.",
            "required": true, "schema": {"type": "integer", "minimum": 0}
        },
        "RateLimitLimit": {
            "description": "Requests that the key may make at once, in this class of requests.",
            "schema": {"type": "integer", "minimum": 0}
        },
        "RateLimitRemaining": {
            "description": "How many of them are left now.",
            "schema": {"type": "integer", "minimum": 0}
        },
        "RateLimitReset": {
            "description": "Seconds until all of them are there again.",
            "schema": {"type": "integer", "minimum": 0}
        },
        "WwwAuthenticate": {
            "description": "How to authenticate.",
            "required": true, "schema": {"type": "string", "const": "Bearer"}
        }
    })
}

fn success(
    endpoint: &Operation,
    generator: &mut SchemaGenerator,
    example: &impl Fn(&Value) -> Option<Value>,
) -> Value {
    let mut headers = json!({"X-Request-ID": {"$ref": "#/components/headers/RequestId"}});
    if is_counted(endpoint) {
        for (name, component) in [
            ("RateLimit-Limit", "RateLimitLimit"),
            ("RateLimit-Remaining", "RateLimitRemaining"),
            ("RateLimit-Reset", "RateLimitReset"),
        ] {
            headers[name] = json!({"$ref": format!("#/components/headers/{component}")});
        }
    }
    if endpoint.ranges {
        headers["Accept-Ranges"] = header("string", "`bytes`.");
    }
    for told in endpoint.told {
        headers[told.name] = header(told.kind, told.doc);
    }
    let mut response = json!({"headers": headers});
    let text = match endpoint.answer {
        Answer::Json(schema) => {
            let schema = schema(generator).to_value();
            let mut content = json!({"schema": schema});
            if let Some(example) = example(&content["schema"]) {
                content["example"] = example;
            }
            response["content"] = json!({"application/json": content});
            match endpoint.success {
                StatusCode::CREATED => "Made.",
                StatusCode::ACCEPTED => "Taken; it is done in a moment.",
                _ => "Done.",
            }
        }
        Answer::Media(types) => {
            let content: Map<String, Value> = types
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": media_schema(media)})))
                .collect();
            response["content"] = Value::Object(content);
            "Done."
        }
        Answer::Empty | Answer::Untold if endpoint.success == StatusCode::SWITCHING_PROTOCOLS => {
            "The connection is a WebSocket from here on."
        }
        Answer::Empty | Answer::Untold => "Done; there is no body.",
    };
    response["description"] = text.into();
    response
}

fn media_schema(media: &str) -> Value {
    if media.starts_with("text/") {
        json!({"type": "string"})
    } else {
        json!({"type": "string", "format": "binary", "contentMediaType": media})
    }
}

fn header(kind: &str, doc: &str) -> Value {
    json!({"description": doc, "required": true, "schema": {"type": kind}})
}

fn refused(status: u16, refusals: &[Refusal]) -> Value {
    let mut headers = json!({"X-Request-ID": {"$ref": "#/components/headers/RequestId"}});
    let asking = refusals
        .iter()
        .filter(|refusal| error(**refusal).retry_after().is_some());
    match asking.count() {
        0 => {}
        all if all == refusals.len() => {
            headers["Retry-After"] = json!({"$ref": "#/components/headers/RetryAfter"});
        }
        _ => {
            headers["Retry-After"] = json!({
                "description": "Seconds to wait, with the codes that pass.",
                "schema": {"type": "integer"},
            });
        }
    }
    if status == StatusCode::UNAUTHORIZED.as_u16() {
        headers["WWW-Authenticate"] = json!({"$ref": "#/components/headers/WwwAuthenticate"});
    }
    let lines: Vec<String> = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}.", refusal.code, refusal.when))
        .collect();
    let examples: Map<String, Value> = refusals
        .iter()
        .map(|refusal| {
            let reference = format!("#/components/examples/{}", refusal.code);
            (refusal.code.to_owned(), json!({"$ref": reference}))
        })
        .collect();
    json!({
        "description": lines.join(" "),
        "headers": headers,
        "content": {"application/json": {
            "schema": {"$ref": "#/components/schemas/Error"}, "examples": examples
        }}
    })
}

/// Whether answers tell what is left of the key's budget.
fn is_counted(endpoint: &Operation) -> bool {
    is_keyed(endpoint) && endpoint.class != Class::Exempt && endpoint.access != Access::Signed
}

fn is_keyed(endpoint: &Operation) -> bool {
    !matches!(endpoint.access, Access::None | Access::SignedUrl)
}

/// Refusals of any request, told where an operation has no other. The document tells of them once for all others.
const OF_ANY_REQUEST: [Refusal; 2] = [
    Refusal {
        status: StatusCode::URI_TOO_LONG,
        code: "uri_too_long",
        when: "the URL is too long",
    },
    Refusal {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        code: "headers_too_large",
        when: "the headers are too many or too long",
    },
];

/// Everything that a client may be refused with, the entry's own refusals first.
fn refusals(endpoint: &Operation) -> Vec<Refusal> {
    let mut all = endpoint.refusals.clone();
    let mut add = |status, code, when| all.push(Refusal { status, code, when });
    let scoped = matches!(
        endpoint.access,
        Access::Scopes(_) | Access::AnyScope(_) | Access::CallToken(_) | Access::PublicAgent(_)
    );
    if is_keyed(endpoint) {
        add(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "the credential is missing or not valid",
        );
        add(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "too many requests of this key, or too many failed ones of this address",
        );
        add(
            StatusCode::SERVICE_UNAVAILABLE,
            "service_unavailable",
            "the database is not available right now",
        );
    }
    let signed = endpoint.access == Access::SignedUrl;
    if signed
        && endpoint
            .refusals
            .iter()
            .any(|told| told.status == StatusCode::UNAUTHORIZED)
    {
        add(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "too many URLs from this address opened nothing",
        );
    }
    if scoped || endpoint.access == Access::Signed {
        add(
            StatusCode::FORBIDDEN,
            "insufficient_scope",
            "the key lacks the scope",
        );
    }
    if endpoint.spends {
        add(
            StatusCode::PAYMENT_REQUIRED,
            "billing.hard_block",
            "the account may not spend; `detail` tells where that is mended",
        );
    }
    if matches!(endpoint.class, Class::CallCreation | Class::Tts) {
        add(
            StatusCode::SERVICE_UNAVAILABLE,
            "rate_limiter_unavailable",
            "requests that cost money cannot be counted right now",
        );
    }
    if endpoint.class == Class::CallCreation {
        add(
            StatusCode::TOO_MANY_REQUESTS,
            "capacity",
            "a cap on concurrent calls is reached; `resource` tells whose",
        );
        add(
            StatusCode::CONFLICT,
            "duplicate_lease",
            "this call is being handled elsewhere; try again",
        );
        for code in ["redis_unavailable", "redis_error"] {
            add(
                StatusCode::SERVICE_UNAVAILABLE,
                code,
                "concurrent calls cannot be counted right now",
            );
        }
    }
    if endpoint.idempotent {
        add(
            StatusCode::CONFLICT,
            "idempotency_conflict",
            "the `Idempotency-Key` belongs to another request",
        );
    }
    if endpoint.path.contains('{') && !endpoint.root {
        add(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such thing in this account",
        );
    }
    if endpoint.body.is_some() {
        add(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            "the body did not arrive in time",
        );
        add(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            "the body is larger than 1 MiB",
        );
        add(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "the body is not JSON",
        );
    }
    let takes_something = endpoint.body.is_some()
        || endpoint.query.is_some()
        || endpoint.page.is_some()
        || endpoint.path.contains('{');
    if takes_something && !endpoint.root {
        add(
            StatusCode::UNPROCESSABLE_ENTITY,
            "validation_error",
            "something in the request is wrong; `fields` names all of it",
        );
    }
    if endpoint.ranges {
        add(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "range_not_satisfiable",
            "no part of the range lies within the file",
        );
    }
    if all.iter().all(|refusal| !refusal.status.is_client_error()) {
        all.extend(OF_ANY_REQUEST);
    }
    let mut add = |status, code, when| all.push(Refusal { status, code, when });
    add(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal_error",
        "a fault of this server; quote `request_id`",
    );
    all
}

/// The refusal as a handler would return it.
fn error(refusal: Refusal) -> ApiError {
    let Refusal { status, code, when } = refusal;
    let message = {
        let mut letters = when.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().collect::<String>() + letters.as_str()
        })
    };
    let admission = |reason, counted: bool| ApiError::Capacity {
        reason,
        resource: counted.then_some("account"),
        current: counted.then_some(10),
        cap: counted.then_some(10),
        retry_after: 5,
    };
    match code {
        "unauthorized" => ApiError::Unauthorized,
        "insufficient_scope" => ApiError::Scope(Scope::AgentsWrite),
        "not_found" if status == StatusCode::NOT_FOUND => ApiError::NotFound,
        "request_timeout" => ApiError::RequestTimeout,
        "payload_too_large" => ApiError::PayloadTooLarge {
            limit: super::super::extract::MAX_BODY,
        },
        "unsupported_media_type" => ApiError::UnsupportedMediaType {
            expected: "application/json",
        },
        "range_not_satisfiable" => ApiError::RangeNotSatisfiable { size: 64_044 },
        "validation_error" => ApiError::field("name", "missing", "Field required"),
        "rate_limited" => ApiError::RateLimited { retry_after: 3 },
        "capacity" => admission(Reason::Capacity, true),
        "duplicate_lease" => admission(Reason::DuplicateLease, false),
        "redis_unavailable" => admission(Reason::RedisUnavailable, false),
        "redis_error" => admission(Reason::RedisError, false),
        "billing.hard_block" => ApiError::PaymentRequired {
            message: "This account may not spend".to_owned(),
            action_url: Some("https://sidetone.acme.com/billing".to_owned()),
        },
        _ => match status {
            StatusCode::BAD_REQUEST => ApiError::BadRequest { code, message },
            StatusCode::FORBIDDEN => ApiError::Forbidden { code, message },
            StatusCode::NOT_FOUND => ApiError::Missing { code, message },
            StatusCode::CONFLICT => ApiError::Conflict { code, message },
            StatusCode::GONE => ApiError::Gone { code, message },
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLong { code, message },
            StatusCode::UNPROCESSABLE_ENTITY => ApiError::unprocessable(code, message),
            StatusCode::BAD_GATEWAY => ApiError::Upstream { code, message },
            StatusCode::SERVICE_UNAVAILABLE => ApiError::Unavailable {
                code,
                message,
                retry_after: 2,
            },
            StatusCode::INTERNAL_SERVER_ERROR => ApiError::Internal("".into()),
            status => ApiError::Other {
                status,
                code,
                message,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_the_status_and_the_slug_that_it_stands_for() {
        for endpoint in crate::routes::endpoints() {
            for refusal in refusals(&endpoint) {
                let made = error(refusal);
                assert_eq!(
                    (made.status(), made.code()),
                    (refusal.status, refusal.code),
                    "{} {}",
                    endpoint.method,
                    endpoint.path
                );
            }
        }
    }
}
