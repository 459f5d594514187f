//! What holds for every answer, to whomever: on 4xx and 5xx the keys of the one shape and the header that
//! equals `request_id`, `Retry-After` where it is promised; in any body, that each time has six digits
//! and `+00:00`, and that no key is named like a secret.

#![expect(clippy::panic, reason = "a wrong answer is a failed test")]

use ::http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use uuid::Uuid;

/// Checks an answer to `what`: the method and the address.
pub fn check(what: &str, method: &Method, status: StatusCode, headers: &HeaderMap, body: &Value) {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = header("x-request-id").unwrap_or_else(|| panic!("{what}: no X-Request-ID"));
    assert!(
        Uuid::try_parse(id).is_ok(),
        "{what}: X-Request-ID {id:?} is no UUID"
    );
    if (status.is_client_error() || status.is_server_error()) && *method != Method::HEAD {
        for key in ["error", "code", "request_id"] {
            assert!(
                body[key].is_string(),
                "{what}: {status} without {key}: {body}"
            );
        }
        assert_eq!(body["request_id"], id, "{what}");
        assert!(!body["detail"].is_null(), "{what}: {status} without detail");
        if status == StatusCode::UNPROCESSABLE_ENTITY && body["code"] == "validation_error" {
            for field in body["detail"].as_array().into_iter().flatten() {
                for key in ["loc", "msg", "type"] {
                    assert!(
                        !field[key].is_null(),
                        "{what}: a field error without {key}: {field}"
                    );
                }
            }
        }
        if matches!(status.as_u16(), 429 | 503) {
            let seconds = header("retry-after").and_then(|value| value.parse::<u32>().ok());
            assert!(
                seconds.is_some(),
                "{what}: {status} without Retry-After in whole seconds"
            );
        }
        if status == StatusCode::UNAUTHORIZED {
            assert!(
                header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")),
                "{what}"
            );
        }
    }
    check_value(what, "", body);
}

/// Times have their form, and nothing is named like a secret.
fn check_value(what: &str, key: &str, value: &Value) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| check_value(what, key, value)),
        Value::Array(items) => items.iter().for_each(|item| check_value(what, key, item)),
        Value::String(text) => {
            let bytes = text.as_bytes();
            let like_a_time =
                bytes.len() >= 19 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T';
            if like_a_time && bytes[..4].iter().all(u8::is_ascii_digit) {
                let exact = bytes.len() == 32 && bytes[19] == b'.' && text.ends_with("+00:00");
                assert!(exact, "{what}: the time {key} = {text:?} has another form");
            }
            let secret = ["password", "secret", "private_key", "key_hash"]
                .iter()
                .any(|word| key.contains(word));
            // A new signing secret is shown once, where it is made; the document has an example of it, and of
            // a trunk's password that a request brings.
            let new = key == "secret" && what.ends_with("/webhook-secret/rotate");
            let example =
                what.ends_with("/openapi.json") && matches!(key, "secret" | "auth_password");
            assert!(
                !secret || new || example || key == "secret_headers",
                "{what}: a key named {key}"
            );
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
