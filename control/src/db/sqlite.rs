//! SQLite: WAL mode, a pool of readers and one writing connection, so that a write waits its turn here
//! and not in the engine's busy loop.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

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
    readers: SqlitePool,
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
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(PATIENCE)
                .test_before_acquire(false)
        };
        let writer = pool(1).connect_with(options.clone()).await?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
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
        let pool = if is_read(&sql) {
            &self.readers
        } else {
            &self.writer
        };
        run(&mut *pool.acquire().await?, sql, args, want).await
    }

    /// Idle and used.
    pub(super) fn connections(&self) -> (u32, u32) {
        let size = self.readers.size() + self.writer.size();
        let idle = self.readers.num_idle() + self.writer.num_idle();
        let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(size);
        (idle, size - idle)
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        Ok(self.writer.begin_with("begin immediate").await?)
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
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
