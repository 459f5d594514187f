//! The reading connections of a file.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::{PATIENCE, READERS};
use crate::db::{Answer, Arg, DbError, Want};

/// The reading connections, opened when they are first needed and kept. A pool of `sqlx` asks each that comes
/// back whether it still answers, in a task of its own, which costs as much as most of our reads: a server may
/// be gone, a file is not.
#[derive(Debug)]
pub(super) struct Readers {
    options: SqliteConnectOptions,
    /// One permit for each that may be at work.
    turns: Semaphore,
    /// Those that wait. The one used last is the next, for its pages and statements are warm.
    idle: Mutex<Vec<SqliteConnection>>,
}

/// A reader at work. It waits for the next statement once this is dropped, also by a client who went away
/// meanwhile: its thread does one statement after the other, and stops at the first row that nobody takes.
struct Reading<'a> {
    readers: &'a Readers,
    /// `None`: it failed, and another is opened in its place.
    connection: Option<SqliteConnection>,
    // Given back after the connection: fields are dropped after `drop` has run.
    _turn: SemaphorePermit<'a>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.readers.waiting().extend(self.connection.take());
    }
}

impl Readers {
    pub(super) const fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options,
            turns: Semaphore::const_new(READERS as usize),
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) async fn run(
        &self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        let mut reading = Reading {
            readers: self,
            connection: None,
            _turn: self.turn().await?,
        };
        let idle = self.waiting().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => timeout(PATIENCE, self.options.connect())
                .await
                .map_err(|_| sqlx::Error::PoolTimedOut)??,
        };
        let answer = super::run(reading.connection.insert(connection), sql, args, want).await;
        if answer.is_err() {
            reading.connection = None;
        }
        answer
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>, sqlx::Error> {
        // A timer is only made where one has to wait.
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let turn = timeout(PATIENCE, self.turns.acquire()).await;
        turn.map_err(|_| sqlx::Error::PoolTimedOut)?
            .map_err(|_| sqlx::Error::PoolClosed)
    }

    /// Idle and used.
    pub(super) fn counts(&self) -> (u32, u32) {
        let idle = u32::try_from(self.waiting().len()).unwrap_or(READERS);
        let free = u32::try_from(self.turns.available_permits()).unwrap_or(READERS);
        (idle, READERS.saturating_sub(free))
    }

    /// Waits for those at work; later statements are refused.
    pub(super) async fn close(&self) {
        let all = self.turns.acquire_many(READERS).await;
        self.turns.close();
        drop(all);
        let connections = std::mem::take(&mut *self.waiting());
        for connection in connections {
            drop(connection.close().await);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<SqliteConnection>> {
        // Whole after any panic: each use is one operation.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
