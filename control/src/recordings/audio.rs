//! A WAV as an answer: whole or one range of it, streamed from the object store.

use axum::body::Body;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};

use super::store::{RecordingRow, Status};
use crate::http::answers::HeaderDoc;
use crate::http::error::ApiError;
use crate::http::range::{self, Selected};
use crate::node::Node;
use crate::time::Timestamp;

/// What is told with a WAV.
pub const FILE: &[HeaderDoc] = &[
    HeaderDoc {
        name: "ETag",
        kind: "string",
        doc: "Stays as it is while the file does; for `If-None-Match` and `If-Range`.",
    },
    HeaderDoc {
        name: "Last-Modified",
        kind: "string",
        doc: "When the file was made.",
    },
];

/// When a 502 comes.
pub const UNREADABLE: &str = "the recording could not be read from storage";

/// Answers a request for a ready recording (RFC 9110 sections 13 and 14). Ranges count for GET only.
pub async fn serve(
    app: &Node,
    recording: &RecordingRow,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let Some(key) = recording
        .key
        .as_ref()
        .filter(|_| recording.status == Status::Ready)
    else {
        return Err(ApiError::NotFound);
    };
    let length = recording.size_bytes.unsigned_abs();
    if length == 0 {
        return Err(ApiError::NotFound);
    }
    let unreadable = |error: std::io::Error| {
        tracing::error!(%error, recording = %recording.id, "a ready recording cannot be read");
        ApiError::Upstream {
            code: "storage_error",
            message: "The recording could not be read from storage".to_owned(),
        }
    };
    let etag = format!("\"{}\"", recording.sha256.as_deref().unwrap_or_default());
    let modified = http_date(recording.ready_at.unwrap_or(recording.created_at));
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());

    let answer = Response::builder()
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, &etag)
        .header(LAST_MODIFIED, &modified)
        .header(CACHE_CONTROL, "private, no-cache")
        .header("x-content-type-options", "nosniff");
    if range::none_match_hits(header(IF_NONE_MATCH), &etag) {
        return built(answer.status(StatusCode::NOT_MODIFIED).body(Body::empty()));
    }
    let wanted = header(RANGE)
        .filter(|_| method == Method::GET)
        .filter(|_| range::if_range_holds(header(IF_RANGE), &etag, &modified));
    let (status, first, count) = match range::select(wanted, length) {
        Selected::Whole => (StatusCode::OK, 0, length),
        Selected::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Selected::Unsatisfiable => return Err(ApiError::RangeNotSatisfiable { size: length }),
    };
    let mut answer = answer
        .status(status)
        .header(CONTENT_TYPE, "audio/wav")
        .header(
            CONTENT_DISPOSITION,
            format!("inline; filename=\"{}.wav\"", recording.call_id),
        )
        .header(CONTENT_LENGTH, count);
    if status == StatusCode::PARTIAL_CONTENT {
        answer = answer.header(
            CONTENT_RANGE,
            format!("bytes {first}-{}/{length}", first + count - 1),
        );
    }
    let (body, stored) = if method == Method::HEAD {
        let stored = app.storage.length(key).await.map_err(unreadable)?;
        (Body::empty(), stored)
    } else {
        let range = first..first + count;
        let (content, stored) = app.storage.read(key, range).await.map_err(unreadable)?;
        (Body::from_stream(content), stored)
    };
    if stored != length {
        let why = format!("{stored} bytes in the store, not {length}");
        return Err(unreadable(std::io::Error::other(why)));
    }
    built(answer.body(body))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7).
fn http_date(time: Timestamp) -> String {
    jiff::Timestamp::from_second(time.seconds())
        .map(|time| time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .unwrap_or_default()
}

fn built(answer: Result<Response<Body>, http::Error>) -> Result<Response<Body>, ApiError> {
    answer.map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_http() {
        assert_eq!(
            http_date(Timestamp(784_111_777_123_456)),
            "Sun, 06 Nov 1994 08:49:37 GMT"
        );
    }
}
