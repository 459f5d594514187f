//! The console at `/`: static ES modules out of the binary, no build step and nothing from elsewhere.
//!
//! Each file has an `ETag` made of its content and `Cache-Control: no-cache`, so a browser asks each
//! time and a new release is seen at once. The content security policy allows this origin only.

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

/// The console's routes: `/` and `/web/*`. They take no key; the page asks for one.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for (index, file) in FILES.iter().enumerate() {
        router = router.route(
            file.path,
            get(move |headers: HeaderMap| async move { serve(index, &headers) }),
        );
    }
    router
}

struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($path:literal, $name:literal, $content_type:expr) => {
        File {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("../web/", $name)),
        }
    };
}

static FILES: [File; 9] = [
    file!("/", "index.html", HTML),
    file!("/web/app.css", "app.css", CSS),
    file!("/web/app.js", "app.js", SCRIPT),
    file!("/web/api.js", "api.js", SCRIPT),
    file!("/web/call.js", "call.js", SCRIPT),
    file!("/web/audio.js", "audio.js", SCRIPT),
    file!("/web/transcript.js", "transcript.js", SCRIPT),
    file!("/web/worklet.js", "worklet.js", SCRIPT),
    file!("/web/icon.svg", "icon.svg", SVG),
];

/// Scripts, styles and connections of this origin only; the latency bars set widths from script,
/// which the policy's `style-src` does not concern.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One tag a file, of its SHA-256's first 16 bytes.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &File| {
        let hex: String = Sha256::digest(file.bytes)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Hexadecimal digits between quotes always make a header value.
        HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"0\""))
    };
    FILES.iter().map(tag).collect()
});

fn serve(index: usize, asked: &HeaderMap) -> Response {
    let (file, tag) = (&FILES[index], &TAGS[index]);
    let mut headers = HeaderMap::new();
    headers.insert(header::ETAG, tag.clone());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(
        "permissions-policy",
        HeaderValue::from_static("microphone=(self), camera=(), geolocation=()"),
    );
    if unchanged(asked, tag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(file.content_type),
    );
    (headers, file.bytes).into_response()
}

/// RFC 9110 section 13.1.2: a list of tags, compared weakly, or `*`.
fn unchanged(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let Some(list) = asked
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let own = tag.to_str().unwrap_or_default();
    list.split(',')
        .map(str::trim)
        .any(|one| one == "*" || one.trim_start_matches("W/") == own)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn fetch(path: &str, tag: Option<&str>) -> (StatusCode, HeaderMap, Vec<u8>) {
        let mut request = Request::get(path);
        if let Some(tag) = tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let response = router::<()>()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        (
            parts.status,
            parts.headers,
            axum::body::to_bytes(body, 1 << 20).await.unwrap().to_vec(),
        )
    }

    #[tokio::test]
    async fn the_page_comes_with_its_policy() {
        let (status, headers, body) = fetch("/", None).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[header::CONTENT_TYPE], HTML);
        assert!(
            headers[header::CONTENT_SECURITY_POLICY]
                .to_str()
                .unwrap()
                .contains("default-src 'none'")
        );
        assert!(
            String::from_utf8(body)
                .unwrap()
                .contains("<title>sidetone</title>")
        );
    }

    #[tokio::test]
    async fn a_known_tag_is_answered_without_a_body() {
        let (_, headers, _) = fetch("/web/app.js", None).await;
        let tag = headers[header::ETAG].to_str().unwrap();
        for form in [
            tag.to_owned(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            "*".to_owned(),
        ] {
            let (status, _, body) = fetch("/web/app.js", Some(&form)).await;
            assert_eq!(
                (status, body.len()),
                (StatusCode::NOT_MODIFIED, 0),
                "{form}"
            );
        }
        assert_eq!(
            fetch("/web/app.js", Some("\"other\"")).await.0,
            StatusCode::OK
        );
    }

    /// Whatever a page or module names under `/web/` is served, and nothing comes from elsewhere.
    #[tokio::test]
    async fn every_named_file_exists_and_none_is_foreign() {
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for name in text
                .split(['"', '\''])
                .filter(|word| word.starts_with("/web/") || word.starts_with("./"))
            {
                let path = name.replace("./", "/web/");
                assert!(
                    FILES.iter().any(|other| other.path == path),
                    "{} names {name}",
                    file.path
                );
            }
            let foreign = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !foreign.contains("http://") && !foreign.contains("https://"),
                "{}",
                file.path
            );
        }
    }
}
