//! A collector of traces on loopback: it takes OTLP over HTTP as protobuf and keeps the spans.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;

/// One span as it came.
#[derive(Clone, Debug)]
pub struct Got {
    pub span: Span,
    /// Of the resource that it belongs to.
    pub resource: Vec<KeyValue>,
}

/// A running collector. It ends with the test's runtime.
#[derive(Clone)]
pub struct Collector {
    /// Without a slash at its end.
    pub url: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Got>,
    /// Of each request, as text.
    headers: Vec<String>,
    bytes: Vec<u8>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let collector = Self {
            url: format!("http://{address}"),
            seen: Arc::default(),
        };
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Got> {
        self.seen().spans.clone()
    }

    /// All bytes of all requests, one after the other.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen().bytes.clone()
    }

    /// The headers of all requests.
    pub fn headers(&self) -> Vec<String> {
        self.seen().headers.clone()
    }

    /// The spans once one of this name came.
    pub async fn until(&self, name: &str, within: Duration) -> Vec<Got> {
        let until = Instant::now() + within;
        loop {
            let spans = self.spans();
            if spans.iter().any(|got| got.span.name == name) {
                return spans;
            }
            assert!(Instant::now() < until, "no span {name:?}: {spans:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test panicked here")
    }
}

impl Got {
    /// An attribute as text.
    pub fn text(&self, key: &str) -> Option<String> {
        text(&self.span.attributes, key)
    }

    /// An attribute of the resource as text.
    pub fn resource(&self, key: &str) -> Option<String> {
        text(&self.resource, key)
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    Some(match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    })
}

async fn take(State(own): State<Collector>, headers: HeaderMap, body: Bytes) -> Response {
    let kind = headers.get("content-type").expect("a content type");
    assert_eq!(kind, "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body.clone()).expect("a request of OTLP");
    let mut seen = own.seen();
    seen.bytes.extend_from_slice(&body);
    seen.headers.push(format!("{headers:?}"));
    for resource in request.resource_spans {
        let attributes = resource.resource.map(|r| r.attributes).unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|s| s.spans) {
            seen.spans.push(Got {
                span,
                resource: attributes.clone(),
            });
        }
    }
    drop(seen);
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    let mut response = Response::new(answer.into());
    *response.status_mut() = StatusCode::OK;
    response
}
