//! The console at `/` and the client library `sidetone.js`: static ES modules out of the binary, no build
//! step and nothing from elsewhere.
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
            &file.path,
            get(move |headers: HeaderMap| async move { serve(index, &headers) }),
        );
    }
    router
}

struct File {
    path: String,
    content_type: &'static str,
    bytes: &'static [u8],
    /// Whether pages of other origins may load it: the client library, not the console.
    shared: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const FONT: &str = "font/woff2";
const TEXT: &str = "text/plain; charset=utf-8";

/// Name and content of each file in `web/`, as the build script found them.
const FOUND: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/web.rs"));

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let file = |(name, bytes): &(&str, &'static [u8])| File {
        path: match *name {
            "index.html" => "/".to_owned(),
            name => format!("/web/{name}"),
        },
        content_type: content_type(name),
        bytes,
        shared: name.starts_with("sidetone") || *name == "worklet.js",
    };
    FOUND.iter().map(file).collect()
});

/// By how the name ends; declarations of types are for people and editors, not for browsers.
fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => HTML,
        Some("css") => CSS,
        Some("js") => SCRIPT,
        Some("svg") => SVG,
        Some("woff2") => FONT,
        _ => TEXT,
    }
}

/// Scripts, styles and connections of this origin only; widths and places are set from script,
/// which the policy's `style-src` does not concern.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    font-src 'self'; connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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
    if file.shared {
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_ORIGIN,
            HeaderValue::from_static("*"),
        );
        headers.insert(
            "cross-origin-resource-policy",
            HeaderValue::from_static("cross-origin"),
        );
    }
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
        for file in FILES.iter() {
            let Ok(text) = std::str::from_utf8(file.bytes) else {
                assert_eq!(file.content_type, FONT);
                continue;
            };
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
            // Names of namespaces, licences and what a form shows are no addresses that a browser opens.
            let opened = [
                "src=\"http",
                "href=\"http",
                "url(\"http",
                "from 'http",
                "import('http",
            ];
            for foreign in opened {
                assert!(!text.contains(foreign), "{}: {foreign}", file.path);
            }
        }
    }

    /// Pages of other origins may load the client library and what it needs, and nothing else.
    #[tokio::test]
    async fn only_the_library_is_for_other_origins() {
        for file in FILES.iter() {
            let (_, headers, _) = fetch(&file.path, None).await;
            let open = headers
                .get(header::ACCESS_CONTROL_ALLOW_ORIGIN)
                .is_some_and(|origin| origin == "*");
            let library = file.path.starts_with("/web/sidetone") || file.path == "/web/worklet.js";
            assert_eq!(open, library, "{}", file.path);
        }
    }

    /// The form of the console knows every setting of an agent, and none that there is not.
    #[test]
    fn the_form_has_every_setting_of_an_agent() {
        let form = include_str!("../web/agent-fields.js");
        for setting in crate::agents::fields::SETTINGS {
            let name = setting.field.name;
            assert!(
                form.contains(&format!("'{name}'")),
                "{name} is not in the form"
            );
        }
        let words = form.split('\'').filter(|word| word.contains('_'));
        let known = |name: &str| {
            let mut values = String::new();
            for setting in crate::agents::fields::SETTINGS {
                values += &format!("{} {:?} ", setting.field.name, setting.field.kind);
            }
            values.contains(name)
        };
        for word in words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
            assert!(known(word), "{word} is no setting");
        }
    }
}
