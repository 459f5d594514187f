//! The database: the only code that knows which engine runs. Statements are one text with `$1`
//! placeholders for SQLite and PostgreSQL; values are integers, text, booleans, floats and blobs; times
//! are integer microseconds.
//!
//! What the one text has to heed: a sum is asked for as `cast(sum(x) as bigint)`, an average as
//! `cast(avg(x) as double precision)`; a `group by` names every column that is not summed up; nothing is
//! sorted by a column that may be null without `nulls last`. A statement that fails inside a transaction
//! ends it: what may collide is written with `on conflict`.
//!
//! Two transactions never write at the same time on SQLite, but do on PostgreSQL: rows that are read to
//! be changed are read with [`Engine::for_update`] behind the `select`.

/// Runs a query of either engine on a connection of it: what is wanted of it.
macro_rules! asked_for {
    ($want:expr, $query:expr, $connection:expr) => {
        match $want {
            Want::First => {
                let row = $query.fetch_optional($connection).await?;
                Answer::Rows(row.into_iter().map(Into::into).collect())
            }
            Want::All => {
                let rows = $query.fetch_all($connection).await?;
                Answer::Rows(rows.into_iter().map(Into::into).collect())
            }
            Want::Count => Answer::Touched($query.execute($connection).await?.rows_affected()),
        }
    };
}

mod arg;
mod error;
mod insert;
mod outage;
mod postgres;
mod record;
mod row;
mod sqlite;

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::SqlSafeStr;

pub use arg::{Arg, Kind, Value};
pub use error::DbError;
pub use insert::Insert;
pub use outage::Readiness;
pub use record::{Column, Owner, Record, Rows, Window};
pub(crate) use record::{args, json_column, named, record, text_column};
pub use row::Row;

use crate::time::Timestamp;

/// What a question to the database comes to.
pub type Result<T, E = DbError> = std::result::Result<T, E>;

/// The database of this installation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Db(Store);

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one in a process, behind few clones"
)]
enum Store {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

/// Which engine runs: asked only where they differ, which is in locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    /// Behind a `select` of rows that this transaction is about to change: others who want to change
    /// them wait for its end. On SQLite there is one writer anyway.
    pub const fn for_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " for update",
        }
    }

    /// Behind a `select` of a row that stands for others which this transaction is about to change: who does the
    /// same waits for its end, and who only refers to the row does not.
    pub const fn for_no_key_update(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " for no key update",
        }
    }

    /// Behind a `select` of rows that must not change before this transaction ends.
    pub const fn for_share(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " for share",
        }
    }

    /// Behind a `select` of rows to claim: those that another claims at this moment are left out.
    pub const fn skip_locked(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " for update skip locked",
        }
    }
}

/// How a server is used; nothing of it matters to SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The most connections of this process.
    pub connections: u32,
    /// How long a statement waits for one of them.
    pub acquire: Duration,
    /// How long a statement may take.
    pub statement: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 16,
            acquire: Duration::from_secs(5),
            statement: Duration::from_secs(5),
        }
    }
}

/// How long one who asks whether the database is ready waits: those who ask the program, such as the probe of our
/// manifests for Kubernetes, wait for 3 s.
const ASKED: Duration = Duration::from_secs(2);

/// What a statement is asked for.
#[derive(Clone, Copy, Debug)]
enum Want {
    First,
    All,
    Count,
}

/// What it answers.
enum Answer {
    Rows(Vec<Row>),
    Touched(u64),
}

/// Whether a URL names an engine and can be read; the reason when not, without the password.
pub fn check_url(url: &str) -> Result<(), String> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(()),
        Some(("postgres" | "postgresql", _)) => postgres::check(url),
        _ => Err("must be sqlite:<path> or postgres://<user>@<host>/<database>".to_owned()),
    }
}

/// The file of a `sqlite:<path>`; `None`: the URL names a server.
pub fn file(url: &str) -> Option<&Path> {
    match url.split_once(':') {
        Some(("sqlite", path)) => Some(Path::new(path.trim_start_matches("//"))),
        _ => None,
    }
}

/// Where the database of this URL is, for people: without user and password.
pub fn place(url: &str) -> String {
    if let Some(file) = file(url) {
        return file.display().to_string();
    }
    let server = url.split('?').next().unwrap_or_default();
    let server = server.rsplit(['@', '/']).take(2).collect::<Vec<_>>();
    server.into_iter().rev().collect::<Vec<_>>().join("/")
}

impl Db {
    /// Opens the database at `url` with the settings that nobody changed.
    pub async fn open(url: &str) -> Result<Self, DbError> {
        Self::open_with(url, &Settings::default()).await
    }

    /// Opens the database at `url`: `sqlite:<path>`, whose file is made, or `postgres://…`, which is
    /// connected to when it is first used.
    pub async fn open_with(url: &str, settings: &Settings) -> Result<Self, DbError> {
        check_url(url).map_err(DbError::Migration)?;
        Ok(Self(match file(url) {
            Some(file) => Store::Sqlite(sqlite::Sqlite::open(file).await?),
            None => Store::Postgres(postgres::Postgres::open(url, settings)?),
        }))
    }

    /// Which engine runs.
    pub const fn engine(&self) -> Engine {
        match self.0 {
            Store::Sqlite(_) => Engine::Sqlite,
            Store::Postgres(_) => Engine::Postgres,
        }
    }

    /// Whether somebody has made tables in it.
    pub async fn is_made(&self) -> Result<bool, DbError> {
        let tables = match self.engine() {
            Engine::Sqlite => {
                "select count(*) as n from sqlite_master where name = '_sqlx_migrations'"
            }
            Engine::Postgres => {
                "select count(*) as n from pg_tables
                 where schemaname = any (current_schemas(false)) and tablename = '_sqlx_migrations'"
            }
        };
        Ok(self.query(tables).one(|row| row.i64("n")).await? > 0)
    }

    /// Brings the tables up to date. Safe to run at every start, of several processes at once too.
    pub async fn migrate(&self) -> Result<(), DbError> {
        match &self.0 {
            Store::Sqlite(db) => db.migrate().await,
            Store::Postgres(db) => db.migrate().await,
        }
    }

    /// A statement. On SQLite one that begins with `select` runs on a reader, every other on the
    /// writer.
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

    /// Begins a transaction that may write. Dropped without commit: undone. SQLite has one writer
    /// (`begin immediate`) and PostgreSQL a bounded pool: while a task holds a transaction it uses the
    /// database through that alone, or it would wait for itself.
    pub async fn begin_write(&self) -> Result<Tx, DbError> {
        Ok(Tx(match &self.0 {
            Store::Sqlite(db) => Inner::Sqlite(Box::pin(db.begin()).await?),
            Store::Postgres(db) => Inner::Postgres(Box::pin(db.begin()).await?),
        }))
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), DbError> {
        self.query("select 1 as one")
            .one(|row| row.i64("one"))
            .await
            .map(drop)
    }

    /// The time of the database server; `None`: a file has none.
    pub async fn time(&self) -> Result<Option<Timestamp>, DbError> {
        if self.engine() == Engine::Sqlite {
            return Ok(None);
        }
        self.query("select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as now")
            .one(|row| row.time("now"))
            .await
            .map(Some)
    }

    /// Whether the database takes writes: one is tried, unless another succeeded within the last second.
    pub async fn takes_writes(&self) -> Result<(), DbError> {
        match &self.0 {
            Store::Sqlite(db) => db.takes_writes().await,
            Store::Postgres(db) => db.takes_writes().await,
        }
    }

    /// How ready the database is: asked to read, and to take a write unless one succeeded a moment ago. A database that has
    /// much to do is ready.
    pub async fn readiness(&self) -> Readiness {
        let asked = async {
            self.ping().await?;
            self.takes_writes().await
        };
        let answer = tokio::time::timeout(ASKED, asked).await;
        let answer = answer.unwrap_or(Err(DbError::TimedOut));
        let (now, answer) = (Instant::now(), answer.as_ref().copied());
        match &self.0 {
            Store::Sqlite(db) => db.answered(now, answer),
            Store::Postgres(db) => db.outage().answered(now, answer),
        }
    }

    /// Whether the database is known to be away, or to take no writes (its disk is full, it is read-only).
    /// Then every write fails at once, and where it is away every read.
    pub fn is_away(&self) -> bool {
        match &self.0 {
            Store::Sqlite(db) => db.is_away(),
            Store::Postgres(db) => db.outage().is_on(),
        }
    }

    /// Connections of this process: how many wait for work, and how many have some.
    pub fn connections(&self) -> (u32, u32) {
        match &self.0 {
            Store::Sqlite(db) => db.connections(),
            Store::Postgres(db) => db.connections(),
        }
    }

    /// Waits until the database is not known to be away, and takes writes.
    pub async fn returned(&self) {
        match &self.0 {
            Store::Sqlite(db) => db.returned().await,
            Store::Postgres(db) => db.outage().over().await,
        }
    }

    /// Waits for what is under way and closes.
    pub async fn close(&self) {
        match &self.0 {
            Store::Sqlite(db) => db.close().await,
            Store::Postgres(db) => db.close().await,
        }
    }
}

/// A transaction that may write.
#[derive(Debug)]
pub struct Tx(Inner);

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a transaction is made where it is used and hardly moved"
)]
enum Inner {
    Sqlite(sqlite::Tx),
    Postgres(postgres::Tx),
}

impl Tx {
    /// A statement inside this transaction.
    pub fn query(&mut self, sql: &'static str) -> Query<'_> {
        Query {
            on: On::Tx(self),
            sql: sql.into_sql_str(),
            args: Vec::new(),
        }
    }

    /// Others who name the same wait here until this transaction ends. On SQLite there is one writer anyway.
    pub async fn alone_at(&mut self, name: &str) -> Result<(), DbError> {
        match self.engine() {
            Engine::Sqlite => Ok(()),
            Engine::Postgres => {
                let lock = self.query("select pg_advisory_xact_lock(hashtextextended($1, 0))");
                lock.bind(name).one(|_| Ok(())).await
            }
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

    /// Which engine runs.
    pub const fn engine(&self) -> Engine {
        match self.0 {
            Inner::Sqlite(_) => Engine::Sqlite,
            Inner::Postgres(_) => Engine::Postgres,
        }
    }

    /// Makes it true. An error that [`is unavailable`](DbError::is_unavailable) leaves open whether it
    /// is: the answer may have been lost on its way.
    pub async fn commit(self) -> Result<(), DbError> {
        match self.0 {
            Inner::Sqlite(tx) => Box::pin(tx.commit()).await,
            Inner::Postgres(tx) => Box::pin(tx.commit()).await,
        }
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
        let rows = self.rows(Want::First).await?;
        rows.first().map(read).transpose()
    }

    /// The first row; none is an error ([`DbError::NoRow`]).
    pub async fn one<T>(self, read: impl FnOnce(&Row) -> Result<T, DbError>) -> Result<T, DbError> {
        self.optional(read).await?.ok_or(DbError::NoRow)
    }

    /// All rows.
    pub async fn all<T>(
        self,
        read: impl FnMut(&Row) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        self.rows(Want::All).await?.iter().map(read).collect()
    }

    /// Runs it; how many rows it touched.
    pub async fn execute(self) -> Result<u64, DbError> {
        match self.boxed(Want::Count).await? {
            Answer::Touched(rows) => Ok(rows),
            Answer::Rows(rows) => Ok(rows.len() as u64),
        }
    }

    async fn rows(self, want: Want) -> Result<Vec<Row>, DbError> {
        match self.boxed(want).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Touched(_) => Ok(Vec::new()),
        }
    }

    /// Runs it on the heap. A statement under way is some kilobytes large, and would be a part of the future of everybody
    /// who waits for it: tasks that ask for much through a few functions would be too large for a thread's stack.
    fn boxed(self, want: Want) -> impl Future<Output = Result<Answer, DbError>> {
        Box::pin(self.run(want))
    }

    async fn run(self, want: Want) -> Result<Answer, DbError> {
        let Self { on, sql, args } = self;
        match on {
            On::Pool(Db(Store::Sqlite(db))) => db.run(sql, &args, want).await,
            On::Pool(Db(Store::Postgres(db))) => db.run(sql, &args, want).await,
            On::Tx(Tx(Inner::Sqlite(tx))) => tx.run(sql, &args, want).await,
            On::Tx(Tx(Inner::Postgres(tx))) => tx.run(sql, &args, want).await,
        }
    }
}

/// Whether a statement only reads.
fn is_read(sql: &sqlx::SqlStr) -> bool {
    let first = sql.as_str().trim_start().get(..6);
    first.is_some_and(|word| word.eq_ignore_ascii_case("select"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    async fn temp() -> (crate::testing::TempDir, Db) {
        let dir = crate::testing::TempDir::new().unwrap();
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
    async fn a_writer_that_is_busy_is_no_outage() {
        let (_dir, db) = temp().await;
        let mut tx = db.begin_write().await.unwrap();
        let insert = tx.query("insert into t (id) values ('a')");
        insert.execute().await.unwrap();
        assert_eq!(db.readiness().await, Readiness::Ready);
        assert!(!db.is_away());
        tx.commit().await.unwrap();
        db.takes_writes().await.unwrap();
        assert_eq!(db.readiness().await, Readiness::Ready);
    }

    #[tokio::test]
    async fn migrations_run_twice_without_harm() {
        let (_dir, db) = temp().await;
        db.migrate().await.unwrap();
        db.migrate().await.unwrap();
    }
}
