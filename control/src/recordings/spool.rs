//! What calls leave in this node's spool. Whoever carries a call takes its files out when it is over; a process
//! that died, a disk that failed or a message that was lost leaves some. They are looked through at the start and
//! each hour: what is still to be stored is stored, and what belongs to nothing any more goes. Files of calls that the
//! database does not know stay for a day after a process has said so: it may be the wrong database.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::TryStreamExt;
use media::shell::{self, RecordedFile, Spooled};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::service::{self, begin_late, give_up, keep, keep_tape_alone};
use super::store::{self, Lot};
use crate::config::Config;
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::storage::ObjectKey;
use crate::supervisor;
use crate::telemetry::span;
use crate::time::{Moment, Timestamp};

/// Where the engine writes what it records, until a call is over.
pub fn spool_dir(config: &Config) -> PathBuf {
    config.server.data_dir.join("spool")
}

/// How often the spool is looked through.
const EVERY: Duration = Duration::from_secs(3600);
/// Calls that one sweep looks at: each takes a query or two, and the next sweep goes on behind them.
const CALLS: usize = 200;
/// How often it is looked whether an earlier process's calls are ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause before that next sweep.
const SOON: Duration = Duration::from_secs(1);
/// The pause after a sweep that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// A recording whose file did not come for this long will never come.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Files of a call that the database does not know are removed so long after this process first said so: by then somebody
/// has seen that the setting `database.url` names another database than the one before.
const STRANGE_FOR: Duration = Duration::from_secs(24 * 3600);
/// The pause between two tries to write a recording down.
const RETRY: Duration = Duration::from_secs(1);

/// What of a call is still to be stored.
#[derive(Debug)]
pub enum Left {
    Recording(RecordedFile),
    /// Of a call without a recording.
    Tape(PathBuf),
}

/// Sweeps until the process ends. Not before the calls of the process before this one are ended: until then nobody
/// knows what is to become of their files.
pub async fn run(app: Node) {
    while app.is_recovering() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let mut sweeper = Sweeper::default();
    loop {
        let pause = match sweeper.sweep(&app).await {
            Ok(true) => SOON,
            Ok(false) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "the spool could not be swept");
                app.db.returned().await;
                AFTER_FAILURE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Who looks through the spool, some calls at a time.
#[derive(Debug, Default)]
pub struct Sweeper {
    /// The last call of the sweep before, where there were more.
    after: Option<CallId>,
    /// Calls of which the log has that their files will be removed, and since when; none that the spool has no files of.
    announced: BTreeMap<CallId, Moment>,
}

impl Sweeper {
    /// Looks at the next calls that the spool has files of. Whether there are more.
    pub async fn sweep(&mut self, app: &Node) -> Result<bool, DbError> {
        let after = self.after.take();
        let found = match spooled(app).await {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                tracing::error!(%error, "the spool cannot be read");
                return Ok(false);
            }
        };
        let found: BTreeMap<CallId, Spooled> = found
            .into_iter()
            .filter_map(|(session, files)| {
                let call: CallId = session.parse().ok()?;
                // Another spelling of an id is nobody's.
                (call.to_string() == session).then_some((call, files))
            })
            .collect();
        self.announced.retain(|call, _| found.contains_key(call));
        let mut behind = found
            .into_iter()
            .filter(|(call, _)| after.is_none_or(|after| *call > after));
        let mut last = None;
        for (call, files) in behind.by_ref().take(CALLS) {
            match self.look_at(app, call, files).await {
                Err(error) if error.is_unavailable() => {
                    self.after = after;
                    return Err(error);
                }
                // The calls behind it are looked at all the same.
                Err(error) => {
                    tracing::error!(%error, %call, "what the spool has of a call cannot be judged");
                }
                Ok(()) => {}
            }
            last = Some(call);
        }
        self.after = last.filter(|_| behind.next().is_some());
        Ok(self.after.is_some())
    }

    /// Stores or removes what is left of one call.
    async fn look_at(&mut self, app: &Node, call: CallId, files: Spooled) -> Result<(), DbError> {
        // Whoever ends calls of dead processes salvages, too.
        let _one = app.burying.lock().await;
        if app.live.has(call) {
            return Ok(());
        }
        let Some((account, lot)) = store::lot(&app.db, call).await? else {
            self.wait_or_discard(app, call, files).await;
            return Ok(());
        };
        let span = span(account, call);
        settle(app, account, call, lot, files)
            .instrument(span)
            .await
    }

    /// Removes files of a call that the database does not know, a day after this process first said so.
    async fn wait_or_discard(&mut self, app: &Node, call: CallId, files: Spooled) {
        let paths: Vec<_> = files.files.iter().map(|path| path.display()).collect();
        let now = app.clock.moment();
        let announced = self.announced.entry(call).or_insert_with(|| {
            tracing::warn!(
                %call, ?paths, days = STRANGE_FOR.as_secs() / 86_400,
                "files of no call of the database are in the spool: they will be removed after these days, unless the database is another by then"
            );
            now
        });
        if now.since(*announced) >= STRANGE_FOR {
            tracing::warn!(%call, ?paths, "files of no call of the database were in the spool: they are removed");
            discard(app, call).await;
        }
    }
}

async fn spooled(app: &Node) -> io::Result<BTreeMap<String, Spooled>> {
    let folder = spool_dir(&app.config);
    tokio::task::spawn_blocking(move || shell::spooled(&folder))
        .await
        .map_err(io::Error::other)?
}

async fn settle(
    app: &Node,
    account: AccountId,
    call: CallId,
    lot: Lot,
    files: Spooled,
) -> Result<(), DbError> {
    match lot {
        Lot::Open => {}
        Lot::Uploading { since } => stranded(app, account, call, since).await?,
        Lot::Settled => {
            tracing::warn!(
                "files of a call whose recording is settled were in the spool: they are removed"
            );
            discard(app, call).await;
        }
        Lot::Lost { since } if files.sound => match salvage(app, call).await {
            Ok(Some(file)) => {
                begin_late(app, account, call).await?;
                keep_later(app, account, call, Left::Recording(file));
            }
            Err(_) if is_young(app, since) => {}
            Ok(None) | Err(_) => discard(app, call).await,
        },
        Lot::Lost { .. } | Lot::Unrecorded => match files.tape {
            Some(tape) => keep_later(app, account, call, Left::Tape(tape)),
            None => {
                tracing::warn!(
                    "sound of a call without a recording was in the spool: it is removed"
                );
                discard(app, call).await;
            }
        },
    }
    Ok(())
}

/// Goes on with a recording that a process which is no more was to store, `since` its call is over. Where the disk or
/// the store refuses what it has of it, a later sweep tries again, for a day.
pub async fn stranded(
    app: &Node,
    account: AccountId,
    call: CallId,
    since: Timestamp,
) -> Result<(), DbError> {
    let there = match salvage(app, call).await {
        Ok(Some(file)) => {
            keep_later(app, account, call, Left::Recording(file));
            return Ok(());
        }
        Ok(None) => tokio::time::timeout(STORE_PATIENCE, in_the_store(app, account, call))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        Err(error) => Err(error),
    };
    match there {
        Ok(true) => Ok(()),
        Err(error) if is_young(app, since) => {
            tracing::warn!(%error, "what became of a recording could not be learnt: it is tried again");
            Ok(())
        }
        Ok(false) | Err(_) => {
            give_up(app, account, call, "lost with the process that made it").await
        }
    }
}

/// How long a recording may take to be read from the store: others wait who end calls of nodes that died.
const STORE_PATIENCE: Duration = Duration::from_secs(60);

/// Whether it is worth trying again what failed.
fn is_young(app: &Node, since: Timestamp) -> bool {
    app.clock.now().since(since) < GIVEN_UP_AFTER
}

/// Writes down a recording whose file reached the store before its process died. `false`: the store has none.
async fn in_the_store(app: &Node, account: AccountId, call: CallId) -> io::Result<bool> {
    let keys = [
        (ObjectKey::recording(account, call), None),
        (
            ObjectKey::partial(account, call),
            Some("recording broke off"),
        ),
    ];
    for (key, broken) in keys {
        let bytes = match app.storage.length(&key).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            length => length?,
        };
        if bytes <= WAV_HEADER {
            continue;
        }
        let (mut content, _) = app.storage.read(&key, 0..bytes).await?;
        let mut hasher = Sha256::new();
        while let Some(piece) = content.try_next().await? {
            hasher.update(&piece);
        }
        let sha256: String = hasher
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let kept = store::Kept {
            samples: (bytes - WAV_HEADER) / 4,
            size_bytes: bytes,
            sha256: &sha256,
            key: &key,
            tape_key: Some(&ObjectKey::tape(account, call)),
        };
        service::write_down(app, account, call, &kept, broken)
            .await
            .map_err(io::Error::other)?;
        discard(app, call).await;
        return Ok(true);
    }
    Ok(false)
}

/// Of a WAV that this program made, bytes; a sample of both sides behind it takes four.
const WAV_HEADER: u64 = 44;

/// Stores what is left of a call in a task of its own: the store may be away for long, and other calls wait. Nothing
/// is done for a call of which somebody stores something already.
pub fn keep_later(app: &Node, account: AccountId, call: CallId, left: Left) {
    if !app.live.begin_keeping(call) {
        return;
    }
    let keeping = Keeping {
        app: app.clone(),
        call,
    };
    let task = async move {
        let app = &keeping.app;
        while let Err(error) = store_left(app, account, call, &left).await {
            tracing::warn!(%error, "what is left of a call could not be written down; trying again");
            tokio::time::sleep(RETRY).await;
        }
    };
    let span = span(account, call);
    span.in_scope(|| supervisor::detached("what a call left is stored", task));
}

async fn store_left(
    app: &Node,
    account: AccountId,
    call: CallId,
    left: &Left,
) -> Result<(), DbError> {
    match left {
        Left::Recording(file) => keep(app, account, call, file).await,
        Left::Tape(path) => keep_tape_alone(app, account, call, path).await,
    }
}

/// One call of which something is being stored, until this is dropped.
struct Keeping {
    app: Node,
    call: CallId,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.app.live.end_keeping(self.call);
    }
}

/// Makes a file of the sound that the spool has of a call that is over. `None`: there is none.
pub async fn salvage(app: &Node, call: CallId) -> io::Result<Option<RecordedFile>> {
    let folder = spool_dir(&app.config);
    let made = tokio::task::spawn_blocking(move || shell::salvage(&folder, &call.to_string()));
    let made = made.await.map_err(io::Error::other).and_then(|made| made);
    made.inspect_err(|error| tracing::error!(%error, "a recording could not be salvaged"))
}

/// The tape that the spool has of a call, if it has one.
pub fn tape(app: &Node, call: CallId) -> Option<PathBuf> {
    shell::tape_of(&spool_dir(&app.config), &call.to_string())
}

/// Removes what the spool has of a call. What does not go now is the next sweep's.
pub async fn discard(app: &Node, call: CallId) {
    let folder = spool_dir(&app.config);
    let removed = tokio::task::spawn_blocking(move || shell::discard(&folder, &call.to_string()));
    if let Err(error) = removed
        .await
        .map_err(io::Error::other)
        .and_then(|done| done)
    {
        tracing::error!(%error, %call, "the files of a call could not be removed from the spool");
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
