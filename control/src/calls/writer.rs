//! Writes down one call. What the database does not take now is kept: in memory, and in the journal
//! for the case that this process ends first. When the database is back all of it is written, turns
//! and end in one transaction; what is in the rows already is not written twice.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::backlog::Backlog;
use super::ending::{self, Also};
use super::journal::{Entry, Journal, Owner};
use super::store;
use crate::db::DbError;
use crate::node::Node;
use crate::recordings;

/// The pause between two tries to put into the journal what it did not take: its disk was full.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// The writer of one call.
pub struct Writer {
    app: Node,
    owner: Owner,
    journal: Journal,
    backlog: Backlog,
    next_try: Instant,
}

impl Writer {
    pub fn new(app: Node, owner: Owner) -> Self {
        let journal = Journal::of(&app.config);
        Self {
            app,
            owner,
            journal,
            backlog: Backlog::default(),
            next_try: Instant::now(),
        }
    }

    /// Whether something is not in the database yet.
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Whether the end of the call is kept here and not in the database.
    pub fn holds_end(&self) -> bool {
        self.backlog.holds_end()
    }

    /// Writes an entry now, or keeps it. Afterwards it is in the database or on the disk; where neither
    /// takes it, it is in memory, and both are tried again.
    pub async fn put(&mut self, entry: Entry) {
        if self.backlog.push(entry) && self.write_all().await {
            return;
        }
        self.keep().await;
    }

    /// Waits until it is worth trying again. May be dropped and called anew.
    pub async fn chance(&self) {
        if !self.app.db.is_away() {
            tokio::time::sleep_until(self.next_try).await;
        } else if self.backlog.unkept().is_empty() {
            self.app.db.returned().await;
        } else {
            // The journal may have room before the database is back.
            let _ = timeout(KEEP_AGAIN, self.app.db.returned()).await;
        }
    }

    /// Tries to write what is kept; whether nothing is left. What is in memory only is tried at the journal.
    pub async fn catch_up(&mut self) -> bool {
        let all = self.write_all().await;
        if !all {
            self.keep().await;
        }
        all
    }

    /// Puts into the journal what is in memory only.
    async fn keep(&mut self) {
        if self.backlog.unkept().is_empty() {
            return;
        }
        let kept = Box::pin(self.journal.add(self.owner, self.backlog.unkept())).await;
        self.backlog.handed(kept.is_ok());
        if let Err(error) = kept {
            tracing::error!(%error, "the journal could not be written");
        }
    }

    async fn write_all(&mut self) -> bool {
        while self.is_behind() {
            // Boxed: the transaction's state is large, and a call's task lives long and seldom writes.
            match Box::pin(write_first(&self.app, self.owner, self.backlog.entries())).await {
                Ok(written) => self.backlog.took(written),
                Err(error) => {
                    tracing::warn!(%error, "a call could not be written down; it is kept");
                    // Where the database is known to be away its return is waited for.
                    if !self.app.db.is_away() {
                        self.next_try = Instant::now() + self.backlog.pause();
                    }
                    return false;
                }
            }
        }
        if self.backlog.leaves_journal()
            && let Err(error) = self.journal.remove(self.owner.call).await
        {
            // Read at the next start it changes nothing, for all of it is written.
            tracing::error!(%error, "a journal could not be removed");
        }
        true
    }

    /// Goes on until everything is written.
    pub async fn finish(&mut self) {
        while self.is_behind() {
            self.chance().await;
            self.catch_up().await;
        }
    }
}

/// Writes a call's entries in their order and takes those away that are in the database: turns and end
/// in one transaction. Entries that were written before change nothing.
pub async fn write(app: &Node, owner: Owner, entries: &mut Vec<Entry>) -> Result<(), DbError> {
    while !entries.is_empty() {
        let written = write_first(app, owner, entries).await?;
        entries.drain(..written);
    }
    Ok(())
}

/// Writes the first entries, all turns with the end behind them. How many they are.
async fn write_first(app: &Node, owner: Owner, entries: &[Entry]) -> Result<usize, DbError> {
    let Owner { account, call, .. } = owner;
    match entries.first() {
        None => Ok(0),
        Some(Entry::Recorded(recorded)) => {
            recordings::keep(app, account, call, &recorded.file()).await?;
            Ok(1)
        }
        Some(Entry::NotRecorded { error }) => {
            recordings::give_up(app, account, call, error).await?;
            Ok(1)
        }
        Some(Entry::Taped { path }) => {
            recordings::keep_tape_alone(app, account, call, path).await?;
            Ok(1)
        }
        Some(Entry::Turn { .. } | Entry::End { .. }) => write_rows(app, owner, entries).await,
    }
}

/// Writes the turns and the end that come first. How many they are.
pub async fn write_rows(app: &Node, owner: Owner, entries: &[Entry]) -> Result<usize, DbError> {
    let Owner {
        account,
        call,
        incarnation,
    } = owner;
    // As a call goes on: one turn at a time.
    if let [
        Entry::Turn {
            index,
            body,
            text,
            at,
        },
    ] = entries
    {
        let index = *index;
        let turn = store::NewTurn { index, body, text };
        store::insert_lone_turn(&app.db, owner, &turn, *at).await?;
        return Ok(1);
    }
    let mut tx = app.db.begin_write().await?;
    let mut written = 0;
    let mut ended = None;
    for entry in entries {
        match entry {
            Entry::Turn {
                index,
                body,
                text,
                at,
            } => {
                let index = *index;
                let turn = store::NewTurn { index, body, text };
                store::insert_turn(&mut tx, owner, &turn, *at).await?;
            }
            Entry::End {
                ending,
                recording,
                at,
            } => {
                let also = Also {
                    event: true,
                    recording: *recording,
                };
                ended = ending::end_in(app, &mut tx, account, call, incarnation, ending, also, *at)
                    .await?
                    .or(ended);
            }
            Entry::Recorded(_) | Entry::NotRecorded { .. } | Entry::Taped { .. } => break,
        }
        written += 1;
    }
    tx.commit().await?;
    if let Some(ended) = ended {
        ended.count(app);
    }
    app.webhooks.wake();
    Ok(written)
}
