//! The writing connection of a file: one, so that a write waits its turn here and not in the engine's
//! busy loop.
//!
//! A connection that may not be clean is closed, and the next write opens another. SQLite may have rolled
//! back by itself when a statement fails (a full disk), so no failed `rollback` says what is left of a
//! transaction. Transactions are therefore begun and ended by plain statements, and the driver's own count
//! of them, which would be wrong from then on, stays out of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, SqlSafeStr as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;

use super::PATIENCE;
use crate::db::outage::{Outage, Probe, Seen};
use crate::db::{Answer, Arg, DbError, Want};

/// Who asks whether writes are taken waits this long for one.
const TRIAL: Duration = Duration::from_secs(2);
/// What must be free on the disk before writes go on, bytes: more than most of our transactions take.
const ROOM: usize = 64 << 10;
/// The cheapest write that reaches the disk: a number in the file's first page that nothing reads.
const TOUCH: &str = "pragma user_version = 1";

/// The writer of one file. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    seat: Arc<IdleWriter>,
    outage: Outage<Look>,
}

/// The one connection, while nobody writes.
#[derive(Debug)]
struct IdleWriter {
    /// They open the file and never make it: a file that was taken away is a fault, not a new database.
    options: SqliteConnectOptions,
    turn: Arc<Semaphore>,
    idle: Mutex<Option<SqliteConnection>>,
}

/// The turn to write. What is left of the connection when it is dropped is given back or closed; the next
/// one waits until that is done.
#[derive(Debug)]
struct Writing {
    seat: Arc<IdleWriter>,
    /// There until it is dropped.
    connection: Option<SqliteConnection>,
    turn: Option<OwnedSemaphorePermit>,
    left: Left,
}

/// What state a connection is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Clean,
    /// In a transaction, maybe.
    Open,
    /// Nobody knows: of no more use.
    Spoiled,
}

impl Writer {
    /// Opens the file, which is made where it is missing.
    pub(super) async fn open(path: &Path, options: SqliteConnectOptions) -> Result<Self, DbError> {
        let first = options.clone().create_if_missing(true).connect().await?;
        let seat = Arc::new(IdleWriter {
            options,
            turn: Arc::new(Semaphore::new(1)),
            idle: Mutex::new(Some(first)),
        });
        let outage = Outage::new(Look {
            seat: seat.clone(),
            room: beside(path),
        });
        Ok(Self { seat, outage })
    }

    pub(super) const fn outage(&self) -> &Outage<Look> {
        &self.outage
    }

    /// Runs a statement on its own.
    pub(super) async fn run(
        &self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        self.outage.check(false)?;
        let done = async {
            let mut writing = self.seat.turn().await?;
            writing.run(sql, args, want).await
        };
        let answer = self.noted(done.await)?;
        if matches!(answer, Answer::Touched(rows) if rows > 0) {
            self.outage.wrote();
        }
        Ok(answer)
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        self.outage.check(false)?;
        let begun = async {
            let mut writing = self.seat.turn().await?;
            writing.command("begin immediate", Left::Open).await?;
            Ok(writing)
        };
        Ok(Tx {
            writing: self.noted(begun.await)?,
            writer: self.clone(),
            failed: false,
            touched: false,
        })
    }

    /// Runs migrations on the connection.
    pub(super) async fn migrate(&self, all: &sqlx::migrate::Migrator) -> Result<(), DbError> {
        let mut writing = self.seat.turn().await?;
        let Some(connection) = &mut writing.connection else {
            return Err(DbError::Aborted);
        };
        // Until it is through: the driver may count a transaction that is no more.
        writing.left = Left::Spoiled;
        all.run(connection)
            .await
            .map_err(|error| DbError::Migration(error.to_string()))?;
        writing.left = Left::Clean;
        Ok(())
    }

    /// Whether a write is taken: tried unless one succeeded a moment ago.
    pub(super) async fn takes_writes(&self) -> Result<(), DbError> {
        self.outage.check(false)?;
        if self.outage.wrote_lately() {
            return Ok(());
        }
        let touched = async {
            let turn = Arc::clone(&self.seat.turn).acquire_owned().await;
            let turn = turn.map_err(|_| sqlx::Error::PoolClosed)?;
            self.seat.touch(turn).await
        };
        let touched = timeout(TRIAL, touched).await;
        self.noted(touched.unwrap_or(Err(DbError::TimedOut)))?;
        self.outage.wrote();
        Ok(())
    }

    /// Idle and used.
    pub(super) fn counts(&self) -> (u32, u32) {
        let idle = u32::from(self.seat.idle().is_some());
        let used = u32::from(self.seat.turn.available_permits() == 0);
        (idle, used)
    }

    /// Waits for who writes; later writes are refused.
    pub(super) async fn close(&self) {
        let last = self.seat.turn.acquire().await;
        self.seat.turn.close();
        drop(last);
        let connection = self.seat.idle().take();
        if let Some(connection) = connection {
            drop(connection.close().await);
        }
    }

    /// Notes an error. Who waited in vain for the turn to write has it looked into whether whoever has it gets on.
    fn noted<T>(&self, done: Result<T, DbError>) -> Result<T, DbError> {
        done.inspect_err(|error| match error {
            DbError::TimedOut | DbError::Engine(sqlx::Error::PoolTimedOut) => {
                self.outage.doubt_writes();
            }
            error => self.outage.note(error),
        })
    }
}

impl IdleWriter {
    /// Waits for the turn.
    async fn turn(self: &Arc<Self>) -> Result<Writing, DbError> {
        // A timer is only made where one has to wait.
        let turn = match Arc::clone(&self.turn).try_acquire_owned() {
            Ok(turn) => Ok(turn),
            Err(TryAcquireError::Closed) => Err(sqlx::Error::PoolClosed),
            Err(TryAcquireError::NoPermits) => {
                let turn = timeout(PATIENCE, Arc::clone(&self.turn).acquire_owned()).await;
                turn.map_err(|_| sqlx::Error::PoolTimedOut)?
                    .map_err(|_| sqlx::Error::PoolClosed)
            }
        };
        self.sit(turn?).await
    }

    async fn sit(self: &Arc<Self>, turn: OwnedSemaphorePermit) -> Result<Writing, DbError> {
        let idle = self.idle().take();
        let connection = match idle {
            Some(connection) => connection,
            None => timeout(PATIENCE, self.options.connect())
                .await
                .map_err(|_| sqlx::Error::PoolTimedOut)??,
        };
        Ok(Writing {
            seat: self.clone(),
            connection: Some(connection),
            turn: Some(turn),
            left: Left::Clean,
        })
    }

    /// Writes one page.
    async fn touch(self: &Arc<Self>, turn: OwnedSemaphorePermit) -> Result<(), DbError> {
        let mut writing = self.sit(turn).await?;
        writing
            .run(TOUCH.into_sql_str(), &[], Want::Count)
            .await
            .map(drop)
    }

    fn idle(&self) -> MutexGuard<'_, Option<SqliteConnection>> {
        // Whole after any panic: each use is one operation.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    async fn run(
        &mut self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        let Some(connection) = &mut self.connection else {
            return Err(DbError::Aborted);
        };
        let done = super::run(connection, sql, args, want).await;
        if let Err(error) = &done
            && !error.is_refusal()
        {
            self.left = Left::Spoiled;
        }
        done
    }

    /// Begins or ends a transaction; `then` is what is left once it succeeded.
    async fn command(&mut self, sql: &'static str, then: Left) -> Result<(), DbError> {
        // Whoever goes away meanwhile leaves it open, or ended: a rollback tells.
        self.left = Left::Open;
        let done = self.run(sql.into_sql_str(), &[], Want::Count).await;
        self.left = match &done {
            Ok(_) => then,
            Err(_) => Left::Spoiled,
        };
        done.map(drop)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let (Some(mut connection), turn) = (self.connection.take(), self.turn.take()) else {
            return;
        };
        if self.left == Left::Clean {
            *self.seat.idle() = Some(connection);
            return;
        }
        // Without a runtime it is closed by being dropped, which undoes a transaction too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (seat, left) = (self.seat.clone(), self.left);
            runtime.spawn(async move {
                let rollback = "rollback".into_sql_str();
                if left == Left::Open
                    && super::run(&mut connection, rollback, &[], Want::Count)
                        .await
                        .is_ok()
                {
                    *seat.idle() = Some(connection);
                } else {
                    drop(connection.close().await);
                }
                drop(turn);
            });
        }
    }
}

/// A transaction. Dropped without commit it is undone.
#[derive(Debug)]
pub(in crate::db) struct Tx {
    writing: Writing,
    writer: Writer,
    /// A statement failed: SQLite may have undone all before it, and what came now would stand alone.
    failed: bool,
    /// A statement wrote a row: a commit then shows that writes are taken.
    touched: bool,
}

impl Tx {
    pub(in crate::db) async fn run(
        &mut self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        if self.failed {
            return Err(DbError::Aborted);
        }
        let done = self.writing.run(sql, args, want).await;
        self.failed = done.is_err();
        self.touched |= matches!(done, Ok(Answer::Touched(rows)) if rows > 0);
        self.writer.noted(done)
    }

    pub(in crate::db) async fn commit(mut self) -> Result<(), DbError> {
        if self.failed {
            return Err(DbError::Aborted);
        }
        let done = self.writing.command("commit", Left::Clean).await;
        self.writer.noted(done)?;
        if self.touched {
            self.writer.outage.wrote();
        }
        Ok(())
    }
}

/// How it is found out that the file takes writes again.
#[derive(Debug)]
pub(in crate::db) struct Look {
    seat: Arc<IdleWriter>,
    /// A file that is made and removed for it.
    room: PathBuf,
}

impl Probe for Look {
    async fn look(&self, writes: bool) -> Seen {
        if !writes {
            return Seen::Well;
        }
        // Whoever writes may hang in the disk: nothing else is tried before they are through.
        let turn = match timeout(PATIENCE, Arc::clone(&self.seat.turn).acquire_owned()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) => return Seen::Well,
            Err(_) => return Seen::Slow(DbError::TimedOut),
        };
        let room = self.room.clone();
        let found = tokio::task::spawn_blocking(move || make_room(&room)).await;
        // Where no file can be made for another reason, the write itself tells.
        if let Ok(Err(error)) = found
            && is_of_the_disk(&error)
        {
            return Seen::NoWrites(DbError::Engine(error.into()));
        }
        let touched = timeout(PATIENCE, self.seat.touch(turn)).await;
        match touched.unwrap_or(Err(DbError::TimedOut)) {
            Err(error) if error.is_fault() => Seen::NoWrites(error),
            Err(error) if error.is_busy() => Seen::Slow(error),
            Ok(()) | Err(_) => Seen::Well,
        }
    }

    fn is_closed(&self) -> bool {
        self.seat.turn.is_closed()
    }
}

/// Where the room on the disk is tried: beside the database, so that it is the same disk.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-room");
    name.into()
}

/// Writes [`ROOM`] bytes and takes them away.
fn make_room(path: &Path) -> io::Result<()> {
    let written = std::fs::File::create(path).and_then(|mut file| {
        // Not zeros, which some file systems do not store.
        io::Write::write_all(&mut file, &[b'r'; ROOM])?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(path);
    written.and(removed)
}

/// Whether the disk is full or fails.
fn is_of_the_disk(error: &io::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    full.contains(&error.kind())
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
