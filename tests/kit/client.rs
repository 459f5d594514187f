//! A REST client that checks every answer it sees: on 4xx and 5xx the three keys and the header that
//! equals `request_id`, `Retry-After` where it is promised; in any body, that each time has six digits
//! and `+00:00`, and that no key is named like a secret.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::server::reqwest_client;

/// A client of one server with one key.
#[derive(Clone)]
pub struct Client {
    url: String,
    key: Option<String>,
    bearer: Option<String>,
    http: reqwest::Client,
}

/// An answer that has been checked.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    pub body: Value,
}

impl Client {
    pub fn new(url: &str, key: Option<&str>) -> Self {
        Self {
            url: url.to_owned(),
            key: key.map(str::to_owned),
            bearer: None,
            http: reqwest_client(),
        }
    }

    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..self.clone()
        }
    }

    /// With a bearer token in place of a key.
    #[must_use]
    pub fn with_bearer(&self, token: &str) -> Self {
        Self {
            key: None,
            bearer: Some(token.to_owned()),
            ..self.clone()
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(body.to_string().into_bytes()))
            .await
    }

    /// A session. A node that is behind with its calls (as one is on a machine that has other work) is
    /// asked again when it said, a minute long.
    pub async fn connect(&self, body: &Value) -> Answer {
        for _ in 0..60 {
            let answer = self.post("/conversation/connect", body).await;
            let behind = answer.status == 503 && answer.body["resource"] == "node";
            if !behind {
                return answer.expect(200);
            }
            let seconds = answer.body["retry_after"].as_u64().unwrap_or(1);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        panic!("the node was behind for a minute");
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, Some(body.to_string().into_bytes()))
            .await
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Answer {
        self.send_with(method, path, body, &[("content-type", "application/json")])
            .await
    }

    /// `path` is below `/api/v1`, or from the root when it begins with a host or `//`.
    pub async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let url = match path.strip_prefix("//") {
            Some(root) => format!("{}/{root}", self.url),
            None if path.starts_with("http") => path.to_owned(),
            None => format!("{}/api/v1{path}", self.url),
        };
        let mut request = self.http.request(method.clone(), &url);
        if let Some(key) = &self.key {
            request = request.header("x-api-key", key);
        }
        if let Some(token) = &self.bearer {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let answer = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{method} {url}: {error}"));
        let (status, headers) = (answer.status(), answer.headers().clone());
        let bytes = answer.bytes().await.expect("a body").to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let answer = Answer {
            status: status.as_u16(),
            headers,
            bytes,
            body,
        };
        answer.check(&format!("{method} {url}"), &method, status);
        answer
    }
}

impl Answer {
    /// The answer, which must have this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.bytes)
        );
        self
    }

    pub fn text(&self, key: &str) -> String {
        self.body[key]
            .as_str()
            .unwrap_or_else(|| panic!("no text {key:?} in {}", self.body))
            .to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The fields that a 422 names, as `body.name`.
    pub fn wrong_fields(&self) -> Vec<String> {
        let fields = self.body["fields"].as_array().cloned().unwrap_or_default();
        fields
            .iter()
            .map(|field| {
                let loc = field["loc"].as_array().cloned().unwrap_or_default();
                let parts: Vec<String> = loc
                    .iter()
                    .map(|part| part.as_str().map_or(part.to_string(), str::to_owned))
                    .collect();
                parts.join(".")
            })
            .collect()
    }

    fn check(&self, what: &str, method: &Method, status: StatusCode) {
        let id = self
            .header("x-request-id")
            .unwrap_or_else(|| panic!("{what}: no X-Request-ID"));
        assert!(
            uuid::Uuid::parse_str(id).is_ok(),
            "{what}: X-Request-ID {id:?} is no UUID"
        );
        if (status.is_client_error() || status.is_server_error()) && *method != Method::HEAD {
            for key in ["error", "code", "request_id"] {
                assert!(
                    self.body[key].is_string(),
                    "{what}: {status} without {key}: {}",
                    self.body
                );
            }
            assert_eq!(self.body["request_id"], id, "{what}");
            assert!(
                !self.body["detail"].is_null(),
                "{what}: {status} without detail"
            );
            if status == StatusCode::UNPROCESSABLE_ENTITY && self.body["code"] == "validation_error"
            {
                for field in self.body["detail"].as_array().into_iter().flatten() {
                    for key in ["loc", "msg", "type"] {
                        assert!(
                            !field[key].is_null(),
                            "{what}: a field error without {key}: {field}"
                        );
                    }
                }
            }
            if matches!(status.as_u16(), 429 | 503) {
                let seconds = self
                    .header("retry-after")
                    .and_then(|value| value.parse::<u32>().ok());
                assert!(
                    seconds.is_some(),
                    "{what}: {status} without Retry-After in whole seconds"
                );
            }
            if status == StatusCode::UNAUTHORIZED {
                assert!(
                    self.header("www-authenticate")
                        .is_some_and(|v| v.starts_with("Bearer")),
                    "{what}"
                );
            }
        }
        check_value(what, "", &self.body);
    }
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
