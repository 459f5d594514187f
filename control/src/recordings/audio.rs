//! A WAV as an answer: whole or one range of it, streamed from the object store.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, Method, Response, StatusCode};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::store::RecordingRow;
use crate::app::App;
use crate::http::error::ApiError;
use crate::http::range::{self, Selected};
use crate::time::Timestamp;

/// Bytes read from the store at a time: two seconds of stereo audio, small enough for many listeners.
const CHUNK: u64 = 128 * 1024;

/// Answers a request for a ready recording (RFC 9110 sections 13 and 14). Ranges count for GET only.
pub async fn serve(
    app: &App,
    recording: &RecordingRow,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let Some(key) = recording
        .key
        .as_ref()
        .filter(|_| recording.status == "ready")
    else {
        return Err(ApiError::NotFound);
    };
    let (file, length) = app.storage.open(key).await.map_err(|error| {
        tracing::error!(%error, recording = %recording.id, "a ready recording is not in the store");
        ApiError::Upstream {
            code: "storage_error",
            message: "The recording could not be read from storage".to_owned(),
        }
    })?;
    if length == 0 {
        return Err(ApiError::NotFound);
    }
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
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        Body::from_stream(bytes_of(file, first, count))
    };
    built(answer.body(body))
}

/// Reads `count` bytes from `first` on, a chunk at a time.
fn bytes_of(
    file: File,
    first: u64,
    count: u64,
) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold(
        (file, Some(first), count),
        |(mut file, seek, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            if let Some(position) = seek {
                file.seek(std::io::SeekFrom::Start(position)).await?;
            }
            let mut chunk = vec![0; usize::try_from(left.min(CHUNK)).unwrap_or(0)];
            file.read_exact(&mut chunk).await?;
            let left = left - chunk.len() as u64;
            Ok(Some((Bytes::from(chunk), (file, None, left))))
        },
    )
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
