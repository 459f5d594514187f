//! A REST client that checks of every answer it sees what holds for all of them.

use std::time::Duration;

use control::testing::answer;
use reqwest::Method;
use reqwest::header::HeaderMap;
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
        let what = format!("{method} {url}");
        answer::check(&what, &method, status, &answer.headers, &answer.body);
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
}
