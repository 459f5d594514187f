//! The document comes compressed to who takes it so, and not at all to who has it.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::io::Read;

use axum::body::Body;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Request, StatusCode, header};
use serde_json::Value;

use super::*;
use crate::testing::TestApp;

const PATH: &str = "/api/v1/openapi.json";

async fn ask(
    test: &TestApp,
    method: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, HeaderMap, Bytes) {
    let mut request = Request::builder().method(method).uri(PATH);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (status, headers, body, _) = test.whole(request.body(Body::empty()).unwrap()).await;
    (status, headers, body)
}

#[tokio::test]
async fn the_document_comes_compressed_to_who_takes_it_so() {
    let test = TestApp::new().await;
    let (status, headers, plain) = ask(&test, "GET", &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[header::VARY], "Accept-Encoding");
    assert!(!headers.contains_key(header::CONTENT_ENCODING));
    let document: Value = serde_json::from_slice(&plain).unwrap();
    let server = document["servers"][0]["url"].as_str().unwrap();
    assert!(server.starts_with("http://sidetone.test"), "{server}");
    let (status, compressed, body) = ask(&test, "GET", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(compressed[header::CONTENT_ENCODING], "gzip");
    assert_ne!(compressed[header::ETAG], headers[header::ETAG]);
    assert!(
        body.len() * 6 < plain.len(),
        "{} of {}",
        body.len(),
        plain.len()
    );
    let mut text = Vec::new();
    GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain);
    assert!(std::ptr::eq(written(&test.app), written(&test.app)));
}

#[tokio::test]
async fn who_has_the_document_is_sent_nothing() {
    let test = TestApp::new().await;
    for coding in ["gzip", "identity"] {
        let coding = ("accept-encoding", coding);
        let (_, first, body) = ask(&test, "GET", &[coding]).await;
        let etag = first[header::ETAG].to_str().unwrap();
        assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        for method in ["GET", "HEAD"] {
            let known = format!("\"other\", {etag}");
            let (status, headers, nothing) =
                ask(&test, method, &[coding, ("if-none-match", &known)]).await;
            assert_eq!(
                (status, nothing.len(), &headers[header::ETAG]),
                (StatusCode::NOT_MODIFIED, 0, &first[header::ETAG])
            );
            assert_eq!(headers[header::VARY], "Accept-Encoding");
        }
        let (status, headers, nothing) = ask(&test, "HEAD", &[coding]).await;
        assert_eq!((status, nothing.len()), (StatusCode::OK, 0));
        assert_eq!(headers[header::ETAG], first[header::ETAG]);
        assert_eq!(
            headers[header::CONTENT_LENGTH],
            body.len().to_string().as_str()
        );
        let stale = ("if-none-match", "\"0\"");
        assert_eq!(ask(&test, "GET", &[coding, stale]).await.0, StatusCode::OK);
    }
}
