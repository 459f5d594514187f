//! After a crash: what an earlier process left in the journal is written down; then calls of a process
//! that is no more end as `node_lost`, once each, with whatever was recorded of them. The next process of
//! the same node does it at its start; the others once they take the node for dead, without the
//! recording, which lies on that node's disk and is kept when it is back.

use std::time::Duration;

use media::shell::{self, RecordedFile};
use tracing::Instrument;

use super::ending::{self, Also};
use super::journal::Journal;
use super::rules::Ending;
use super::spool_dir;
use super::store::{self, CallRow};
use super::writer;
use crate::admission::Owner;
use crate::app::App;
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::recordings;

/// The pause between two tries to write a recording down.
const RETRY: Duration = Duration::from_secs(1);

/// A recording whose file did not come for this long will never come.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Ends what the process before this one left behind, and saves its recordings. How many calls there
/// were. Calls that this process places meanwhile are not touched: their incarnation is its own.
pub async fn recover(app: &App) -> Result<usize, DbError> {
    replay(app).await?;
    // Not before: what is written down leaves room.
    if let Err(error) = Journal::of(&app.config).hold_room().await {
        tracing::warn!(%error, "no room on the disk is held for the ends of calls");
    }
    let (node, now) = (app.config.cluster.node.as_str(), app.clock.shared());
    // What was stranded before this process began; its own recordings come later.
    let long_ago = now.minus(GIVEN_UP_AFTER);
    let stranded = recordings::store::stranded(&app.db, node, now, long_ago).await?;
    let spooled = spooled(app).await;
    let count = {
        let _one = app.burying.lock().await;
        let orphans = store::orphans(&app.db, node, app.incarnation.number).await?;
        for call in &orphans {
            lost(app, call).await?;
        }
        orphans.len()
    };
    for (account, id) in stranded {
        let span = super::span(account, id);
        match salvage(app, id).instrument(span.clone()).await {
            Some(file) => keep(app, account, id, file),
            None => {
                recordings::give_up(app, account, id, "lost with the process that made it")
                    .instrument(span)
                    .await?
            }
        }
    }
    for id in spooled {
        salvage_late(app, id).await?;
    }
    if count > 0 {
        tracing::warn!(count, "calls of an earlier process were ended as node_lost");
    }
    Ok(count)
}

/// Writes what earlier processes could not. A file that the database refuses stays, for somebody to
/// look at; the calls of this process are written by their own writers.
async fn replay(app: &App) -> Result<(), DbError> {
    let journal = Journal::of(&app.config);
    // Whoever ended calls without having read it would call those lost that ended well.
    let calls = journal
        .calls()
        .await
        .map_err(|error| DbError::Engine(error.into()))?;
    for call in calls {
        let record = match journal.read(call).await {
            Ok(Some(record)) => record,
            Ok(None) => {
                tracing::error!(%call, "nothing of a call's journal can be read");
                continue;
            }
            Err(error) => {
                tracing::error!(%error, %call, "a call's journal could not be read");
                continue;
            }
        };
        if record.owner.incarnation == app.incarnation.number {
            continue;
        }
        let mut entries = record.entries;
        let span = super::span(record.owner.account, call);
        match writer::write(app, record.owner, &mut entries)
            .instrument(span.clone())
            .await
        {
            Ok(()) => tracing::warn!(parent: &span, "a call was written down from the journal"),
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => {
                tracing::error!(parent: &span, %error, "the database refuses a call's journal");
                continue;
            }
        }
        if let Err(error) = journal.remove(call).await {
            tracing::error!(parent: &span, %error, "a call's journal could not be removed");
        }
    }
    Ok(())
}

/// Calls of which this node's disk still holds sound.
async fn spooled(app: &App) -> Vec<CallId> {
    let folder = spool_dir(&app.config);
    let read = tokio::task::spawn_blocking(move || {
        let mut calls: Vec<CallId> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                name.to_str()?.split('.').next()?.parse().ok()
            })
            .collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    });
    read.await.unwrap_or_default()
}

/// Keeps the recording of a call that another node ended while this one was dead.
async fn salvage_late(app: &App, id: CallId) -> Result<(), DbError> {
    let Some((account, _)) = store::lost_without_recording(&app.db, id).await? else {
        return Ok(());
    };
    let span = super::span(account, id);
    let Some(file) = salvage(app, id).instrument(span).await else {
        return Ok(());
    };
    recordings::begin_late(app, account, id).await?;
    recordings::keep(app, account, id, &file).await
}

/// Ends one call whose process is no more, and frees its slot. Whoever calls it holds `app.burying`.
pub async fn lost(app: &App, call: &CallRow) -> Result<(), DbError> {
    let span = super::span(call.account, call.id);
    end_lost(app, call).instrument(span).await
}

async fn end_lost(app: &App, call: &CallRow) -> Result<(), DbError> {
    let (account, id) = (call.account, call.id);
    let file = salvage(app, id).await;
    let duration_ms = match &file {
        Some(file) => Some(file.samples * 1000 / u64::from(media::time::RATE)),
        None => last_turn_ms(app, account, id).await?,
    };
    let also = Also {
        event: true,
        recording: file.is_some(),
    };
    let ended = ending::end(
        app,
        account,
        id,
        call.incarnation,
        &Ending::node_lost(duration_ms),
        also,
    )
    .await?;
    let owner = Owner::new(call.node.as_deref().unwrap_or_default(), call.incarnation);
    app.admission.release(id, &owner);
    if let Some(file) = file.filter(|_| ended) {
        keep(app, account, id, file);
    }
    Ok(())
}

/// In a task of its own: the store may be away for long, and other calls wait.
fn keep(app: &App, account: AccountId, id: CallId, file: RecordedFile) {
    let app = app.clone();
    let keeping = async move {
        while let Err(error) = recordings::keep(&app, account, id, &file).await {
            tracing::warn!(%error, "a recording could not be written down; trying again");
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::spawn(keeping.instrument(super::span(account, id)));
}

/// The end of the last turn that was written: without a recording, all that tells how long it was.
async fn last_turn_ms(app: &App, account: AccountId, id: CallId) -> Result<Option<u64>, DbError> {
    let turns = store::turns(&app.db, account, id).await?;
    let ends = turns.iter().filter_map(|turn| {
        turn.get("end_ms")
            .or_else(|| turn.get("start_ms"))?
            .as_u64()
    });
    Ok(Some(ends.max().unwrap_or(0)))
}

async fn salvage(app: &App, id: CallId) -> Option<RecordedFile> {
    let folder = spool_dir(&app.config);
    let made = tokio::task::spawn_blocking(move || shell::salvage(&folder, &id.to_string())).await;
    match made {
        Ok(Ok(file)) => file,
        Ok(Err(error)) => {
            tracing::error!(%error, "a recording could not be salvaged");
            None
        }
        Err(error) => {
            tracing::error!(%error, "salvaging a recording failed");
            None
        }
    }
}
