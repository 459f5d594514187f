//! Routes of recordings (document 2, Recordings).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, Method, Response, StatusCode};

use super::wire::{DownloadLink, DownloadQuery, RecordingRecord};
use super::{audio, service, spool, store, token};
use crate::http::page::RecordingsPage;
use crate::http::{Access, ApiError, Caller, Endpoint, Id, List, Page, Query, Scope};
use crate::ids::RecordingId;
use crate::node::Node;
use crate::secret::Purpose;

/// The routes, in the order of the document.
pub fn endpoints() -> Vec<Endpoint<Node>> {
    let read = Access::Scopes(&[Scope::RecordingsRead]);
    vec![
        Endpoint::get("/recordings", read, list)
            .summary("Recordings, newest first")
            .operation(
                "listRecordings",
                "Lists the account's recordings, those that are still being stored among them. \
                 Deleted ones are left out.",
            )
            .page::<RecordingsPage>()
            .answers::<List<RecordingRecord>>(),
        Endpoint::get("/recordings/{recording_id}", read, get)
            .summary("One recording, without its bytes")
            .operation(
                "getRecording",
                "Tells the length, size and digest of a recording, and whether it is ready. The \
                 sound itself comes by the URL of `getRecordingAudioUrl`.",
            )
            .answers::<RecordingRecord>(),
        Endpoint::get("/recordings/{recording_id}/audio", read, link)
            .summary("A signed URL of the WAV, good for an hour without a key")
            .operation(
                "getRecordingAudioUrl",
                "Signs a URL that downloads the recording for an hour, without a key. A \
                 recording that is not stored yet, or failed, is 404 `recording_not_ready`.",
            )
            .answers::<DownloadLink>()
            .refuses(
                StatusCode::NOT_FOUND,
                "recording_not_ready",
                "the recording is not ready yet, or failed",
            ),
        Endpoint::get(
            "/recordings/{recording_id}/audio.wav",
            Access::SignedUrl,
            download,
        )
        .summary("The WAV, whole or a range of it; the URL itself is the credential")
        .operation(
            "downloadRecording",
            "Sends the recording, the caller on the left channel and the agent on the right. The \
             URL comes from `getRecordingAudioUrl` or the event `recording.ready`; 410 \
             `url_expired` asks for a fresh one. `Range` gets a part of it.",
        )
        .query::<DownloadQuery>()
        .sends(&["audio/wav"])
        .in_ranges()
        .tells(audio::FILE)
        .refuses(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this is no URL that was given out",
        )
        .refuses(
            StatusCode::GONE,
            "url_expired",
            "the URL has run out; ask for a fresh one",
        )
        .refuses(StatusCode::BAD_GATEWAY, "storage_error", audio::UNREADABLE),
        Endpoint::delete(
            "/recordings/{recording_id}",
            Access::Scopes(&[Scope::RecordingsWrite]),
            delete,
        )
        .summary("Delete a recording for good, its tape included")
        .operation(
            "deleteRecording",
            "Deletes a recording and everything that the call can be heard from, for good. \
             Nobody hears it from the answer on; URLs that were signed before open nothing any \
             more. The transcript stays.",
        ),
    ]
}

async fn list(
    State(app): State<Node>,
    caller: Caller,
    page: Page<RecordingsPage>,
) -> Result<impl IntoResponse, ApiError> {
    let (recordings, total) = store::list(&app.db, caller.account, page.limit, page.offset).await?;
    Ok(List::new(
        recordings.into_iter().map(RecordingRecord::from).collect(),
        total,
        page,
    ))
}

async fn get(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<RecordingId>,
) -> Result<impl IntoResponse, ApiError> {
    let recording = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    Ok(Json(RecordingRecord::from(recording)))
}

async fn link(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<RecordingId>,
) -> Result<impl IntoResponse, ApiError> {
    let recording = store::get(&app.db, caller.account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    if recording.status != store::Status::Ready {
        return Err(ApiError::Missing {
            code: "recording_not_ready",
            message: format!("The recording is {}", recording.status),
        });
    }
    let now = app.clock.now();
    let signed = token::fresh(now);
    let mut tx = app.db.begin_write().await?;
    store::insert_token(&mut tx, caller.account, recording.call_id, signed, now).await?;
    tx.commit().await?;
    let text = token::mint(&app.master_key, Purpose::DownloadUrl, id.0, signed);
    Ok(Json(DownloadLink {
        audio_url: format!(
            "{}/api/v1/recordings/{id}/audio.wav?token={text}",
            app.config.server.public_url
        ),
        expires_at: signed.expires_at,
        expires_in: token::LIFETIME_SECONDS,
        content_type: "audio/wav",
        size_bytes: recording.size_bytes,
    }))
}

async fn download(
    State(app): State<Node>,
    Id(id): Id<RecordingId>,
    Query(query): Query<DownloadQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let signed = query
        .token
        .and_then(|text| token::open(&app.master_key, Purpose::DownloadUrl, id.0, &text))
        .ok_or(ApiError::Unauthorized)?;
    if signed.expires_at <= app.clock.now() {
        return Err(ApiError::Gone {
            code: "url_expired",
            message: "This URL has expired: ask for a fresh one".to_owned(),
        });
    }
    let account = store::recording_token_account(&app.db, id, signed)
        .await?
        .ok_or(ApiError::NotFound)?;
    let recording = store::get(&app.db, account, id)
        .await?
        .ok_or(ApiError::NotFound)?;
    audio::serve(&app, &recording, &method, &headers).await
}

async fn delete(
    State(app): State<Node>,
    caller: Caller,
    Id(id): Id<RecordingId>,
) -> Result<impl IntoResponse, ApiError> {
    let mut tx = app.db.begin_write().await?;
    let call = store::delete(&mut tx, caller.account, id, app.clock.now())
        .await?
        .ok_or(ApiError::NotFound)?;
    tx.commit().await?;
    // Whoever stores it at this moment finds it deleted, and does the same.
    if !app.live.has(call) {
        spool::discard(&app, call).await;
    }
    // From here on nobody hears it; what the store still holds goes now, or with the next sweep.
    if let Err(error) = service::remove_now(&app, id).await {
        tracing::error!(%error, recording = %id, "a deleted recording's objects wait for the next sweep");
    }
    Ok(StatusCode::NO_CONTENT)
}
