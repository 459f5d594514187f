//! Finished files into the object store, deleted ones out of it.

use std::io;
use std::path::Path;
use std::time::Duration;

use media::shell::RecordedFile;

use super::store::{self, Kept, Leftover};
use super::{spool, token};
use crate::db::DbError;
use crate::ids::{AccountId, CallId, EventId, RecordingId};
use crate::node::Node;
use crate::secret::Purpose;
use crate::storage::ObjectKey;
use crate::webhooks::bodies;
use crate::webhooks::event::EventType;
use crate::webhooks::outbox::{self, NewEvent, Target};

/// Deleted recordings whose objects are removed in one sweep: a bound on one pass, not on the work.
const SWEEP: i64 = 100;
/// How often the sweeper looks.
const EVERY: Duration = Duration::from_secs(2);
/// How long a request waits for the store to remove what it deleted.
const MOMENT: Duration = Duration::from_secs(1);

/// First and longest pause between two tries to store a file.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Why a finished file is not kept yet. It still lies in the spool, so nothing is lost.
enum NotYet {
    Database(DbError),
    Store(io::Error),
}

/// Moves a call's finished file into the store and marks its recording `ready`; one that broke off is
/// kept as `failed`. While the store is away it tries until it is not; what cannot be written down is an
/// error, and the same may be asked again. What is still to be done when the process ends, its next
/// start does.
pub async fn keep(
    app: &Node,
    account: AccountId,
    call: CallId,
    file: &RecordedFile,
) -> Result<(), DbError> {
    let mut patience = Patience::default();
    loop {
        match try_to_keep(app, account, call, file).await {
            Ok(()) => return Ok(()),
            Err(NotYet::Database(error)) => return Err(error),
            Err(NotYet::Store(error)) => patience.wait(&error).await,
        }
    }
}

/// Pauses between tries to store something, each longer than the one before.
struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(RETRY.0)
    }
}

impl Patience {
    async fn wait(&mut self, error: &io::Error) {
        tracing::warn!(%error, "a recording or a tape could not be stored; trying again");
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY.1);
    }
}

/// What was done stays done.
async fn try_to_keep(
    app: &Node,
    account: AccountId,
    call: CallId,
    file: &RecordedFile,
) -> Result<(), NotYet> {
    if file.samples == 0 {
        return Ok(give_up(app, account, call, "the call had no sound").await?);
    }
    let key = match &file.broken {
        None => ObjectKey::recording(account, call),
        Some(_) => ObjectKey::partial(account, call),
    };
    let tape_key = ObjectKey::tape(account, call);
    let standing = store::standing(&app.db, account, call).await?;
    if !standing.is_some_and(|standing| standing.deleted) {
        take(app, &key, &file.path).await.map_err(NotYet::Store)?;
        take(app, &tape_key, &file.tape_path)
            .await
            .map_err(NotYet::Store)?;
    }
    let kept = Kept {
        samples: file.samples,
        size_bytes: file.bytes,
        sha256: &file.sha256,
        key: &key,
        tape_key: Some(&tape_key),
    };
    write_down(app, account, call, &kept, file.broken.as_deref()).await?;
    spool::discard(app, call).await;
    Ok(())
}

/// Writes down a recording that is in the store; `broken` says why it is the beginning only. Where it was deleted
/// meanwhile, or the call has none, its objects go.
pub(super) async fn write_down(
    app: &Node,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
    broken: Option<&str>,
) -> Result<(), DbError> {
    if try_to_write_down(app, account, call, kept, broken).await? {
        return Ok(());
    }
    match store::standing(&app.db, account, call).await? {
        // Deleted while it was being made: nothing may stay behind.
        Some(standing) if standing.deleted => {
            store::came_late(&app.db, account, standing.id, kept).await?;
            remove_now(app, standing.id).await?;
        }
        // Another try of the same was first, and only its answer was lost.
        Some(standing) if standing.key.as_ref() == Some(kept.key) => {}
        // The call was ended in the name of this node, which was taken for dead.
        None if begin_late(app, account, call).await? => {
            try_to_write_down(app, account, call, kept, broken).await?;
        }
        Some(_) | None => {
            for key in [Some(kept.key), kept.tape_key].into_iter().flatten() {
                if let Err(error) = app.storage.delete(key).await {
                    tracing::error!(%error, "the object of no recording could not be removed");
                }
            }
        }
    }
    Ok(())
}

/// The recording as ready, or as one that broke off.
async fn try_to_write_down(
    app: &Node,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
    broken: Option<&str>,
) -> Result<bool, DbError> {
    match broken {
        None => ready(app, account, call, kept).await,
        Some(why) => store::broken(&app.db, account, call, kept, why, app.clock.now()).await,
    }
}

/// Gives a call its recording that was ended as lost with its node. `false`: it was not, or has one.
pub async fn begin_late(app: &Node, account: AccountId, call: CallId) -> Result<bool, DbError> {
    let lost = store::lost_with_node(&app.db, call).await?;
    let Some((_, agent)) = lost.filter(|(owner, _)| *owner == account) else {
        return Ok(false);
    };
    let (id, region) = (RecordingId::new(&app.clock), app.storage.region());
    let mut tx = app.db.begin_write().await?;
    let now = app.clock.now();
    store::insert(&mut tx, account, id, call, agent, region, now).await?;
    tx.commit().await?;
    Ok(true)
}

/// Keeps the tape of a call without a recording until it is old, if any are kept. While the store is away it tries
/// until it is not; what cannot be written down is an error, and the same may be asked again.
pub async fn keep_tape_alone(
    app: &Node,
    account: AccountId,
    call: CallId,
    path: &Path,
) -> Result<(), DbError> {
    let key = ObjectKey::tape(account, call);
    if app.config.recordings.unrecorded_tape_days > 0 && path.exists() {
        // Its row first: a tape without one would never be removed.
        store::insert_tape(&app.db, account, call, &key, app.clock.now()).await?;
        let mut patience = Patience::default();
        while let Err(error) = take(app, &key, path).await {
            patience.wait(&error).await;
        }
    }
    spool::discard(app, call).await;
    Ok(())
}

/// Moves a file of the spool into the store, if it is there.
async fn take(app: &Node, key: &ObjectKey, path: &Path) -> io::Result<()> {
    match path.exists() {
        true => app.storage.take_file(key, path).await,
        false => Ok(()),
    }
}

/// Marks a call's recording `failed`, and removes what there is of it: nobody can ask for it any more.
pub async fn give_up(
    app: &Node,
    account: AccountId,
    call: CallId,
    error: &str,
) -> Result<(), DbError> {
    store::failed(&app.db, account, call, error, app.clock.now()).await?;
    spool::discard(app, call).await;
    Ok(())
}

/// Sweeps until the process ends. A task of its own: a store that hangs holds nothing else.
pub async fn run_sweeper(app: Node) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = sweep(&app).await {
            tracing::warn!(%error, "deleted recordings could not be swept");
        }
    }
}

/// Forgets tokens that ran out, and removes the objects of deleted recordings and tapes that are old, until
/// the store does not answer.
pub async fn sweep(app: &Node) -> Result<(), DbError> {
    store::forget_tokens(&app.db, app.clock.now()).await?;
    for leftover in store::leftovers(&app.db, SWEEP).await? {
        if !remove(app, &leftover).await? {
            return Ok(());
        }
    }
    let days = u64::from(app.config.recordings.unrecorded_tape_days);
    let old = app
        .clock
        .now()
        .minus(Duration::from_secs(days.saturating_mul(86_400)));
    for (call, key) in store::old_tapes(&app.db, old, SWEEP).await? {
        match app.storage.delete(&key).await {
            Ok(()) => store::forget_tape(&app.db, call).await?,
            Err(error) => {
                tracing::error!(%error, %call, "an old tape could not be removed");
                if error.kind() == io::ErrorKind::TimedOut {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Removes what the store holds of one deleted recording, if that takes a moment; else the sweeper does.
pub async fn remove_now(app: &Node, id: RecordingId) -> Result<(), DbError> {
    let Some(leftover) = store::leftover(&app.db, id).await? else {
        return Ok(());
    };
    match tokio::time::timeout(MOMENT, remove(app, &leftover)).await {
        Ok(removed) => removed.map(drop),
        Err(_) => {
            tracing::warn!(recording = %id, "a deleted recording's objects wait for a slow store");
            Ok(())
        }
    }
}

/// Removes the objects of one deleted recording. `false`: the store does not answer.
async fn remove(app: &Node, leftover: &Leftover) -> Result<bool, DbError> {
    let mut gone = true;
    for key in &leftover.keys {
        if let Err(error) = app.storage.delete(key).await {
            tracing::error!(%error, recording = %leftover.id, "a deleted recording's object could not be removed");
            if error.kind() == io::ErrorKind::TimedOut {
                return Ok(false);
            }
            gone = false;
        }
    }
    if gone {
        store::cleared(&app.db, leftover.id).await?;
    }
    Ok(true)
}

/// Row, flag of the call, and the `recording.ready` event in one transaction.
async fn ready(
    app: &Node,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
) -> Result<bool, DbError> {
    let now = app.clock.now();
    let mut tx = app.db.begin_write().await?;
    if !store::ready(&mut tx, account, call, kept, now).await? {
        return Ok(false);
    }
    let Some(agent) = store::agent_of_call(&mut tx, account, call).await? else {
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
        audio_url: &token::audio_url(&app.config, call, &text),
        size_bytes: i64::try_from(kept.size_bytes).unwrap_or(i64::MAX),
        recording_region: app.storage.region(),
    };
    let event = NewEvent {
        id,
        r#type: EventType::RecordingReady,
        target: Target::Agent(agent),
        call: Some(call),
        body: serde_json::to_string(&body).unwrap_or_default(),
    };
    outbox::insert(&mut tx, account, &event, now, app.clock.shared()).await?;
    tx.commit().await?;
    app.webhooks.wake();
    Ok(true)
}

impl From<DbError> for NotYet {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
