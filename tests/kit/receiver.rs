//! A receiver of webhooks on loopback: it keeps what it got, and answers as the test wants.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;
use tokio::net::TcpListener;

/// One request.
#[derive(Clone, Debug)]
pub struct Got {
    pub path: String,
    pub event: String,
    pub signature: String,
    pub body: Bytes,
    /// What it was answered with.
    pub status: u16,
}

/// What a request is answered with.
type Manner = dyn Fn(&Got) -> Answer + Send + Sync;

/// An answer to a request.
pub enum Answer {
    Status(u16),
    /// 200, and a body that never ends.
    Endless,
}

/// A running receiver. It ends with the test's runtime.
#[derive(Clone)]
pub struct Receiver {
    /// Without a slash at its end.
    pub url: String,
    got: Arc<Mutex<Vec<Got>>>,
    manner: Arc<Manner>,
}

impl Receiver {
    /// Takes everything.
    pub async fn start() -> Self {
        Self::answering(|_| Answer::Status(200)).await
    }

    pub async fn answering(manner: impl Fn(&Got) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let receiver = Self {
            url: format!("http://{address}"),
            got: Arc::default(),
            manner: Arc::new(manner),
        };
        let router = Router::new()
            .fallback(take)
            .layer(DefaultBodyLimit::disable())
            .with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    /// Everything so far, in order.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no test panicked here").clone()
    }

    /// What came once there is enough of it.
    pub async fn until(&self, within: Duration, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        let until = Instant::now() + within;
        loop {
            let got = self.got();
            if enough(&got) {
                return got;
            }
            assert!(
                Instant::now() < until,
                "the receiver waits in vain: {got:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("an event is JSON")
    }

    /// A text of the body.
    pub fn text(&self, key: &str) -> String {
        self.json()[key].as_str().unwrap_or_default().to_owned()
    }
}

async fn take(State(own): State<Receiver>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let mut got = Got {
        path: uri.path().to_owned(),
        event: header("x-svc-event"),
        signature: header("x-svc-signature"),
        body,
        status: 200,
    };
    let answer = (own.manner)(&got);
    let body = match answer {
        Answer::Status(status) => {
            got.status = status;
            Body::empty()
        }
        Answer::Endless => Body::from_stream(futures_util::stream::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 16 * 1024]))
        })),
    };
    let status = StatusCode::from_u16(got.status).expect("a status");
    own.got.lock().expect("no test panicked here").push(got);
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
