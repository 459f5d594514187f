//! SQLite: WAL mode, a pool of readers and one writing connection, so that a write waits its turn here
//! and not in the engine's busy loop.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::{Answer, Arg, DbError, Want, arg, is_read};

/// Reading connections. More than cores: they wait for the disk now and then.
const READERS: u32 = 8;

/// What a connection keeps of the file, in KiB (SQLite counts those below zero): the system keeps the rest, once for all.
const CACHE: &str = "-256";
/// How long a statement waits for a connection or a lock before it fails.
const PATIENCE: Duration = Duration::from_secs(5);

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/sqlite");

/// A file.
#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    readers: Arc<Readers>,
    writer: SqlitePool,
}

/// A transaction that may write.
pub(super) type Tx = sqlx::Transaction<'static, sqlx::Sqlite>;

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self, DbError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .pragma("cache_size", CACHE)
            .busy_timeout(PATIENCE);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await?;
        let readers = Arc::new(Readers::new(options.read_only(true)));
        Ok(Self { readers, writer })
    }

    pub(super) async fn migrate(&self) -> Result<(), DbError> {
        MIGRATIONS
            .run(&self.writer)
            .await
            .map_err(|error| DbError::Migration(error.to_string()))
    }

    pub(super) async fn run(
        &self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        if is_read(&sql) {
            self.readers.run(sql, args, want).await
        } else {
            run(&mut *self.writer.acquire().await?, sql, args, want).await
        }
    }

    /// Idle and used.
    pub(super) fn connections(&self) -> (u32, u32) {
        let size = self.writer.size();
        let waiting = u32::try_from(self.writer.num_idle()).unwrap_or(u32::MAX);
        let waiting = waiting.min(size);
        let (idle, used) = self.readers.counts();
        (waiting + idle, size - waiting + used)
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        Ok(self.writer.begin_with("begin immediate").await?)
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// The reading connections, opened when they are first needed and kept. A pool of `sqlx` asks each that comes
/// back whether it still answers, in a task of its own, which costs as much as most of our reads: a server may
/// be gone, a file is not.
#[derive(Debug)]
struct Readers {
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
    const fn new(options: SqliteConnectOptions) -> Self {
        Self {
            options,
            turns: Semaphore::const_new(READERS as usize),
            idle: Mutex::new(Vec::new()),
        }
    }

    async fn run(&self, sql: sqlx::SqlStr, args: &[Arg], want: Want) -> Result<Answer, DbError> {
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
        let answer = run(reading.connection.insert(connection), sql, args, want).await;
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
    fn counts(&self) -> (u32, u32) {
        let idle = u32::try_from(self.waiting().len()).unwrap_or(READERS);
        let free = u32::try_from(self.turns.available_permits()).unwrap_or(READERS);
        (idle, READERS.saturating_sub(free))
    }

    /// Waits for those at work; later statements are refused.
    async fn close(&self) {
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

/// Runs a statement on a connection.
pub(super) async fn run(
    connection: &mut SqliteConnection,
    sql: sqlx::SqlStr,
    args: &[Arg],
    want: Want,
) -> Result<Answer, DbError> {
    let query = arg::for_sqlite(sql, args);
    Ok(match want {
        Want::First => {
            let row = query.fetch_optional(connection).await?;
            Answer::Rows(row.into_iter().map(Into::into).collect())
        }
        Want::All => {
            let rows = query.fetch_all(connection).await?;
            Answer::Rows(rows.into_iter().map(Into::into).collect())
        }
        Want::Count => Answer::Touched(query.execute(connection).await?.rows_affected()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use sqlx::SqlSafeStr;

    use super::*;
    use crate::app::testing::TempDir;

    /// A thousand rows: more than lie between a connection's thread and who asked.
    const ROWS: &str = "select i from (with recursive n(i) as
        (select 1 union all select i + 1 from n where i < 1000) select i from n)";

    async fn open() -> (TempDir, Sqlite) {
        let dir = TempDir::new().unwrap();
        let db = Sqlite::open(&dir.path().join("t.db")).await.unwrap();
        (dir, db)
    }

    async fn rows(db: &Sqlite, sql: &'static str) -> Result<usize, DbError> {
        match db.run(sql.into_sql_str(), &[], Want::All).await? {
            Answer::Rows(rows) => Ok(rows.len()),
            Answer::Touched(_) => Ok(0),
        }
    }

    #[tokio::test]
    async fn one_after_the_other_is_read_by_one_connection() {
        let (_dir, db) = open().await;
        for _ in 0..5 {
            assert_eq!(rows(&db, ROWS).await.unwrap(), 1000);
        }
        assert_eq!(db.readers.counts(), (1, 0));
    }

    #[tokio::test]
    async fn many_at_once_wait_for_a_reader() {
        let (_dir, db) = open().await;
        let all = join_all((0..5 * READERS).map(|_| rows(&db, ROWS))).await;
        let counts: Vec<usize> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(counts, vec![1000; 5 * READERS as usize]);
        let (idle, used) = db.readers.counts();
        assert!((1..=READERS).contains(&idle) && used == 0, "{idle} {used}");
    }

    #[tokio::test]
    async fn who_goes_away_meanwhile_leaves_a_reader_that_reads() {
        let (_dir, db) = open().await;
        assert_eq!(rows(&db, "select 1").await.unwrap(), 1);
        for _ in 0..20 {
            drop(rows(&db, ROWS).now_or_never());
            assert_eq!(rows(&db, "select 1 union select 2").await.unwrap(), 2);
        }
        assert_eq!(db.readers.counts(), (1, 0));
    }

    #[tokio::test]
    async fn what_is_written_is_read_by_a_reader_that_was_there_before() {
        let (_dir, db) = open().await;
        assert_eq!(rows(&db, "create table t (n bigint)").await.unwrap(), 0);
        for written in 1..=20 {
            assert_eq!(rows(&db, "insert into t (n) values (1)").await.unwrap(), 0);
            assert_eq!(rows(&db, "select n from t").await.unwrap(), written);
        }
    }

    #[tokio::test]
    async fn a_reader_that_failed_is_not_used_again() {
        let (_dir, db) = open().await;
        rows(&db, "select n from nowhere").await.unwrap_err();
        assert_eq!(db.readers.counts(), (0, 0));
        assert_eq!(rows(&db, ROWS).await.unwrap(), 1000);
    }

    #[tokio::test]
    async fn nothing_is_read_after_the_end() {
        let (_dir, db) = open().await;
        assert_eq!(rows(&db, ROWS).await.unwrap(), 1000);
        db.close().await;
        let error = rows(&db, ROWS).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(db.readers.counts().0, 0);
    }
}
