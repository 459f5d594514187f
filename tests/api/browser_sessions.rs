//! Browser sessions as far as no media is needed: who may open them and go on with them, call tokens,
//! public agents, origins, what is wrong with offers and candidates. Whole calls: `tests/peers/webrtc`.

mod offers;
mod tokens;
mod who;

use std::time::Duration;

use axum::body::Body;
use control::admission::State;
use control::calls::bridge;
use control::config::proxies::Proxies;
use control::http::Scope;
use control::http::auth::ClientAddress;
use control::ids::CallId;
use control::sessions::call_token::{self, Claims};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::in_process::Server;

/// An offer that can be answered; nobody is behind it.
const SDP: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    a=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\na=fingerprint:sha-256 AA:BB\r\n\
    a=rtpmap:111 opus/48000/2\r\na=mid:0\r\na=setup:actpass\r\na=sendrecv\r\na=rtcp-mux\r\n";

/// Somebody with these headers at this address.
#[derive(Clone, Copy)]
struct Client<'a> {
    server: &'a Server,
    ip: [u8; 4],
    headers: &'a [(&'a str, &'a str)],
}

/// Status, body and headers.
type Answer = (u16, Value, HeaderMap);

impl<'a> Client<'a> {
    const fn of(server: &'a Server, headers: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            server,
            ip: [192, 0, 2, 7],
            headers,
        }
    }

    async fn ask(self, method: &str, path: &str, body: Value) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("content-type", "application/json");
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let mut request = request.body(body).unwrap();
        request
            .extensions_mut()
            .insert(ClientAddress(self.ip.into()));
        let response = self.server.test.send(request).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (parts.status.as_u16(), body, parts.headers)
    }

    async fn connect(self, agent: &str) -> Answer {
        self.ask("POST", "/conversation/connect", json!({"agent_id": agent}))
            .await
    }
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default())
}

fn text(answer: &Answer, key: &str) -> String {
    answer.1[key].as_str().unwrap().to_owned()
}

/// A token for this agent, minted with the full key.
async fn token(server: &Server, agent: &str) -> String {
    let (status, answer) = server
        .test
        .call(
            "POST",
            "/conversation/token",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    answer["token"].as_str().unwrap().to_owned()
}

/// A browser session opened with the full key. Its id.
async fn session(server: &Server, agent: &str) -> String {
    let (status, answer) = server
        .test
        .call(
            "POST",
            "/conversation/connect",
            Some(json!({"agent_id": agent})),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    answer["session_id"].as_str().unwrap().to_owned()
}

/// The routes of a session that a call token opens, with bodies that are right.
fn routes(id: &str) -> [(&'static str, String, Value); 5] {
    let path = |route: &str| format!("/conversation/{id}/{route}");
    [
        ("GET", path("status"), Value::Null),
        ("POST", path("offer"), json!({"sdp": SDP, "type": "offer"})),
        ("GET", path("offer"), Value::Null),
        (
            "PATCH",
            path("ice"),
            json!({"pc_id": "x", "candidates": []}),
        ),
        ("POST", path("end"), json!({})),
    ]
}
