//! The database: the only code that knows which engine runs. Statements are one text with `$1`
//! placeholders; values are integers, text, booleans (as integers), floats and blobs.
//!
//! SQLite runs in WAL mode with a pool of readers and one writing connection, so that a write waits
//! its turn here and not in the engine's busy loop.

mod arg;
mod row;

use std::path::Path;
use std::time::Duration;

use sqlx::SqlSafeStr;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

pub use arg::Arg;
pub use row::Row;

/// Reading connections. More than cores: they wait for the disk now and then.
const READERS: u32 = 8;
/// How long a statement waits for a connection or a lock before it fails.
const PATIENCE: Duration = Duration::from_secs(5);

static SQLITE: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/sqlite");

/// The database of this installation.
#[derive(Clone, Debug)]
pub enum Db {
    Sqlite {
        readers: SqlitePool,
        writer: SqlitePool,
    },
}

/// What went wrong in the database. The text is for the log, never for a client.
#[derive(Debug)]
pub enum DbError {
    /// The engine refused or failed.
    Engine(sqlx::Error),
    /// `one` found no row.
    NoRow,
    /// A stored value is not what the code expects of that column.
    Column { column: String, why: String },
    /// A migration failed.
    Migration(String),
}

impl Db {
    /// Opens (and makes) the database at `url`: `sqlite:<path>`.
    pub async fn open(url: &str) -> Result<Self, DbError> {
        match url.split_once(':') {
            Some(("sqlite", path)) => Self::sqlite(Path::new(path.trim_start_matches("//"))).await,
            _ => Err(DbError::Migration(format!(
                "no engine for the URL {url:.20}: use sqlite:<path>"
            ))),
        }
    }

    async fn sqlite(path: &Path) -> Result<Self, DbError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .busy_timeout(PATIENCE);
        let pool = |connections| {
            SqlitePoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(PATIENCE)
                .test_before_acquire(false)
        };
        let writer = pool(1).connect_with(options.clone()).await?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self::Sqlite { readers, writer })
    }

    /// Brings the tables up to date. Safe to run at every start.
    pub async fn migrate(&self) -> Result<(), DbError> {
        let Self::Sqlite { writer, .. } = self;
        SQLITE
            .run(writer)
            .await
            .map_err(|error| DbError::Migration(error.to_string()))
    }

    /// A statement. One that begins with `select` runs on a reader, every other on the writer.
    pub fn query(&self, sql: &'static str) -> Query<'_> {
        Query {
            on: On::Pool(self),
            sql: sql.into_sql_str(),
            args: Vec::new(),
        }
    }

    /// A statement put together at run time. The text may only come from pieces in the source, never
    /// from a client.
    pub fn query_built(&self, sql: String) -> Query<'_> {
        Query {
            on: On::Pool(self),
            sql: sqlx::AssertSqlSafe(sql).into_sql_str(),
            args: Vec::new(),
        }
    }

    /// Begins a transaction that may write (`BEGIN IMMEDIATE`). Dropped without commit: undone. There
    /// is one writer: while a task holds a transaction it writes through that alone, or it would wait
    /// for itself.
    pub async fn begin_write(&self) -> Result<Tx, DbError> {
        let Self::Sqlite { writer, .. } = self;
        Ok(Tx(writer.begin_with("begin immediate").await?))
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), DbError> {
        self.query("select 1 as one")
            .one(|row| row.i64("one"))
            .await
            .map(drop)
    }

    /// Waits for what is under way and closes.
    pub async fn close(&self) {
        let Self::Sqlite { readers, writer } = self;
        readers.close().await;
        writer.close().await;
    }
}

/// A transaction that may write.
#[derive(Debug)]
pub struct Tx(sqlx::Transaction<'static, sqlx::Sqlite>);

impl Tx {
    /// A statement inside this transaction.
    pub fn query(&mut self, sql: &'static str) -> Query<'_> {
        Query {
            on: On::Tx(self),
            sql: sql.into_sql_str(),
            args: Vec::new(),
        }
    }

    /// As [`Db::query_built`], inside this transaction.
    pub fn query_built(&mut self, sql: String) -> Query<'_> {
        Query {
            on: On::Tx(self),
            sql: sqlx::AssertSqlSafe(sql).into_sql_str(),
            args: Vec::new(),
        }
    }

    pub async fn commit(self) -> Result<(), DbError> {
        Ok(self.0.commit().await?)
    }
}

/// A statement with its values, ready to run.
#[derive(Debug)]
pub struct Query<'a> {
    on: On<'a>,
    sql: sqlx::SqlStr,
    args: Vec<Arg>,
}

#[derive(Debug)]
enum On<'a> {
    Pool(&'a Db),
    Tx(&'a mut Tx),
}

impl Query<'_> {
    /// The next value: the first call fills `$1`.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Arg>) -> Self {
        self.args.push(value.into());
        self
    }

    /// Several next values.
    #[must_use]
    pub fn bind_all(mut self, values: impl IntoIterator<Item = Arg>) -> Self {
        self.args.extend(values);
        self
    }

    /// The first row, or `None`.
    pub async fn optional<T>(
        self,
        read: impl FnOnce(&Row) -> Result<T, DbError>,
    ) -> Result<Option<T>, DbError> {
        let row = match self.on {
            On::Pool(db) => {
                arg::bound(self.sql.clone(), self.args)
                    .fetch_optional(db.pool(&self.sql))
                    .await?
            }
            On::Tx(tx) => {
                arg::bound(self.sql, self.args)
                    .fetch_optional(&mut *tx.0)
                    .await?
            }
        };
        row.map(|row| read(&Row::new(row))).transpose()
    }

    /// The first row; none is an error ([`DbError::NoRow`]).
    pub async fn one<T>(self, read: impl FnOnce(&Row) -> Result<T, DbError>) -> Result<T, DbError> {
        self.optional(read).await?.ok_or(DbError::NoRow)
    }

    /// All rows.
    pub async fn all<T>(
        self,
        mut read: impl FnMut(&Row) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let rows = match self.on {
            On::Pool(db) => {
                arg::bound(self.sql.clone(), self.args)
                    .fetch_all(db.pool(&self.sql))
                    .await?
            }
            On::Tx(tx) => {
                arg::bound(self.sql, self.args)
                    .fetch_all(&mut *tx.0)
                    .await?
            }
        };
        rows.into_iter().map(|row| read(&Row::new(row))).collect()
    }

    /// Runs it; how many rows it touched.
    pub async fn execute(self) -> Result<u64, DbError> {
        let done = match self.on {
            On::Pool(db) => {
                arg::bound(self.sql.clone(), self.args)
                    .execute(db.pool(&self.sql))
                    .await?
            }
            On::Tx(tx) => arg::bound(self.sql, self.args).execute(&mut *tx.0).await?,
        };
        Ok(done.rows_affected())
    }
}

impl Db {
    fn pool(&self, sql: &sqlx::SqlStr) -> &SqlitePool {
        let Self::Sqlite { readers, writer } = self;
        let first = sql.as_str().trim_start();
        if first
            .get(..6)
            .is_some_and(|word| word.eq_ignore_ascii_case("select"))
        {
            readers
        } else {
            writer
        }
    }
}

impl DbError {
    /// Whether a unique or primary key refused the row.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Self::Engine(sqlx::Error::Database(error)) if error.is_unique_violation())
    }
}

impl std::fmt::Display for DbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(error) => write!(f, "database: {error}"),
            Self::NoRow => f.write_str("database: no row where one must be"),
            Self::Column { column, why } => write!(f, "database: column {column}: {why}"),
            Self::Migration(why) => write!(f, "database: {why}"),
        }
    }
}

impl std::error::Error for DbError {}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    async fn temp() -> (crate::app::testing::TempDir, Db) {
        let dir = crate::app::testing::TempDir::new().unwrap();
        let db = Db::open(&format!("sqlite:{}", dir.path().join("t.db").display()))
            .await
            .unwrap();
        db.query("create table t (id text primary key, n bigint, flag boolean, x real, b blob, note text)")
            .execute()
            .await
            .unwrap();
        (dir, db)
    }

    #[tokio::test]
    async fn values_come_back_as_they_went_in() {
        let (_dir, db) = temp().await;
        let rows = db
            .query("insert into t (id, n, flag, x, b, note) values ($1, $2, $3, $4, $5, $6)")
            .bind("a")
            .bind(7_i64)
            .bind(true)
            .bind(1.5_f64)
            .bind(vec![1_u8, 2])
            .bind(None::<String>)
            .execute()
            .await
            .unwrap();
        assert_eq!(rows, 1);
        let back = db
            .query("select * from t where id = $1")
            .bind("a")
            .one(|row| {
                Ok((
                    row.i64("n")?,
                    row.bool("flag")?,
                    row.f64("x")?,
                    row.blob("b")?,
                    row.opt_text("note")?,
                ))
            })
            .await
            .unwrap();
        assert_eq!(back, (7, true, 1.5, vec![1, 2], None));
        let none = db
            .query("select id from t where id = $1")
            .bind("b")
            .optional(|row| row.text("id"))
            .await
            .unwrap();
        assert_eq!(none, None);
    }

    #[tokio::test]
    async fn a_dropped_transaction_is_undone_and_a_duplicate_is_named() {
        let (_dir, db) = temp().await;
        let mut tx = db.begin_write().await.unwrap();
        tx.query("insert into t (id) values ($1)")
            .bind("a")
            .execute()
            .await
            .unwrap();
        drop(tx);
        let mut tx = db.begin_write().await.unwrap();
        tx.query("insert into t (id) values ($1)")
            .bind("a")
            .execute()
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let error = db
            .query("insert into t (id) values ($1)")
            .bind("a")
            .execute()
            .await
            .unwrap_err();
        assert!(error.is_unique_violation());
    }

    #[tokio::test]
    async fn migrations_run_twice_without_harm() {
        let (_dir, db) = temp().await;
        db.migrate().await.unwrap();
        db.migrate().await.unwrap();
    }
}
