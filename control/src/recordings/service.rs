//! Finished files into the object store, deleted ones out of it.

use std::path::Path;

use media::shell::RecordedFile;

use super::store::{self, Kept};
use super::token;
use crate::app::App;
use crate::calls;
use crate::db::DbError;
use crate::ids::{AccountId, CallId, EventId};
use crate::secret::Purpose;
use crate::storage::ObjectKey;
use crate::webhooks::bodies;
use crate::webhooks::event::EventType;
use crate::webhooks::outbox::{self, NewEvent, Target};

/// Deleted recordings whose objects are removed in one sweep: a bound on one pass, not on the work.
const SWEEP: i64 = 100;

/// Moves a call's finished file into the store and marks its recording `ready`. May be repeated: what
/// was done stays done.
pub async fn keep(
    app: &App,
    account: AccountId,
    call: CallId,
    file: &RecordedFile,
) -> Result<(), DbError> {
    if file.samples == 0 {
        return give_up(app, account, call, "the call had no sound").await;
    }
    let key = ObjectKey::recording(account, call);
    let tape_key = ObjectKey::tape(account, call);
    if file.path.exists()
        && let Err(error) = app.storage.take_file(&key, &file.path).await
    {
        tracing::error!(%error, %call, "a recording could not be stored");
        return give_up(app, account, call, "the object store refused the file").await;
    }
    keep_tape(app, account, call, &file.tape_path).await;
    let kept = Kept {
        samples: file.samples,
        size_bytes: file.bytes,
        sha256: &file.sha256,
        key: &key,
        tape_key: Some(&tape_key),
    };
    if !ready(app, account, call, &kept).await? {
        // Deleted while it was being made: nothing may stay behind.
        for key in [&key, &tape_key] {
            if let Err(error) = app.storage.delete(key).await {
                tracing::error!(%error, %call, "a deleted recording's object could not be removed");
            }
        }
    }
    Ok(())
}

/// Moves a call's tape into the store, if there is one. A tape helps to understand a call; a call
/// without it is whole.
pub async fn keep_tape(app: &App, account: AccountId, call: CallId, path: &Path) {
    if path.exists()
        && let Err(error) = app
            .storage
            .take_file(&ObjectKey::tape(account, call), path)
            .await
    {
        tracing::error!(%error, %call, "a tape could not be stored");
    }
}

/// Marks a call's recording `failed`.
pub async fn give_up(
    app: &App,
    account: AccountId,
    call: CallId,
    error: &str,
) -> Result<(), DbError> {
    store::failed(&app.db, account, call, error, app.clock.now()).await
}

/// Removes the objects of deleted recordings and forgets tokens that ran out.
pub async fn sweep(app: &App) -> Result<(), DbError> {
    for leftover in store::leftovers(&app.db, SWEEP).await? {
        let mut gone = true;
        for key in &leftover.keys {
            if let Err(error) = app.storage.delete(key).await {
                tracing::error!(%error, recording = %leftover.id, "a deleted recording's object could not be removed");
                gone = false;
            }
        }
        if gone {
            store::cleared(&app.db, leftover.id).await?;
        }
    }
    store::forget_tokens(&app.db, app.clock.now()).await
}

/// Row, flag of the call, and the `recording.ready` event in one transaction.
async fn ready(
    app: &App,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
) -> Result<bool, DbError> {
    let now = app.clock.now();
    let mut tx = app.db.begin_write().await?;
    if !store::ready(&mut tx, account, call, kept, now).await? {
        return Ok(false);
    }
    let Some(row) = calls::store::get_in(&mut tx, account, call).await? else {
        return Ok(false);
    };
    let token = token::fresh(now);
    store::insert_token(&mut tx, account, call, token, now).await?;
    let text = token::mint(&app.master_key, Purpose::AudioToken, call.0, token);
    let id = EventId::new(&app.clock);
    let body = bodies::RecordingReady {
        event_id: id,
        timestamp: now.seconds(),
        call_id: call,
        conversation_id: call,
        audio_url: &crate::conversations::audio_url(&app.config, call, &text),
        size_bytes: i64::try_from(kept.size_bytes).unwrap_or(i64::MAX),
        recording_region: app.storage.region(),
    };
    let event = NewEvent {
        id,
        r#type: EventType::RecordingReady,
        target: Target::Agent(row.agent_id),
        call: Some(call),
        body: serde_json::to_string(&body).unwrap_or_default(),
    };
    outbox::insert(&mut tx, account, &event, now).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(true)
}
