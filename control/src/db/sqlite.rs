//! SQLite: WAL mode, several readers and one writing connection.

mod readers;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};

use self::readers::Readers;
pub(super) use self::writer::Tx;
use self::writer::Writer;
use super::outage::Readiness;
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
    writer: Writer,
}

impl Sqlite {
    pub(super) async fn open(path: &Path) -> Result<Self, DbError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .pragma("cache_size", CACHE)
            .busy_timeout(PATIENCE);
        let writer = Writer::open(path, options.clone()).await?;
        let readers = Arc::new(Readers::new(options.read_only(true)));
        Ok(Self { readers, writer })
    }

    pub(super) async fn migrate(&self) -> Result<(), DbError> {
        self.writer.migrate(&MIGRATIONS).await
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
            self.writer.run(sql, args, want).await
        }
    }

    /// Idle and used.
    pub(super) fn connections(&self) -> (u32, u32) {
        let (waiting, writing) = self.writer.counts();
        let (idle, used) = self.readers.counts();
        (waiting + idle, writing + used)
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        self.writer.begin().await
    }

    /// Whether a write is taken.
    pub(super) async fn takes_writes(&self) -> Result<(), DbError> {
        self.writer.takes_writes().await
    }

    /// Takes the answer to whether it can be read and written; how ready it is.
    pub(super) fn answered(&self, now: Instant, answer: Result<(), &DbError>) -> Readiness {
        self.writer.outage().answered(now, answer)
    }

    /// Whether it is known that no write is taken.
    pub(super) fn is_away(&self) -> bool {
        self.writer.outage().is_on()
    }

    /// Waits until writes are taken, as far as is known.
    pub(super) async fn returned(&self) {
        self.writer.outage().over().await;
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Runs a statement on a connection.
async fn run(
    connection: &mut SqliteConnection,
    sql: sqlx::SqlStr,
    args: &[Arg],
    want: Want,
) -> Result<Answer, DbError> {
    let query = arg::for_sqlite(sql, args);
    Ok(asked_for!(want, query, connection))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use sqlx::SqlSafeStr;

    use super::*;
    use crate::testing::TempDir;

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

    async fn count(db: &Sqlite) -> usize {
        rows(db, "select n from t").await.unwrap()
    }

    /// Makes the next write of the writing connection fail as one on a full disk does.
    const FULL: &str = "pragma max_page_count = 1";
    /// And as one on a disk that became read-only.
    const READ_ONLY: &str = "pragma query_only = 1";
    const TABLE: &str = "create table t (n bigint primary key, filler blob)";
    const LARGE: &str = "insert into t (n, filler) values (99, zeroblob(100000))";

    #[tokio::test]
    async fn a_transaction_that_sqlite_rolled_back_by_itself_costs_no_later_write() {
        let (_dir, db) = open().await;
        rows(&db, TABLE).await.unwrap();
        rows(&db, FULL).await.unwrap();
        let mut tx = db.begin().await.unwrap();
        let insert = |n: i64| (insert().into_sql_str(), [Arg::from(n)]);
        let (sql, args) = insert(1);
        tx.run(sql, &args, Want::Count).await.unwrap();
        let full = tx.run(LARGE.into_sql_str(), &[], Want::Count).await;
        let error = full.err().unwrap();
        assert!(error.is_unavailable() && error.is_fault(), "{error}");
        // The transaction is no more: this statement would stand alone.
        let (sql, args) = insert(2);
        let late = tx.run(sql, &args, Want::Count).await;
        assert!(matches!(late, Err(DbError::Aborted)));
        assert!(matches!(tx.commit().await, Err(DbError::Aborted)));

        let mut tx = db.begin().await.unwrap();
        let (sql, args) = insert(3);
        tx.run(sql, &args, Want::Count).await.unwrap();
        tx.commit().await.unwrap();
        rows(&db, LARGE).await.unwrap();
        assert_eq!(count(&db).await, 2);
    }

    const fn insert() -> &'static str {
        "insert into t (n) values ($1)"
    }

    #[tokio::test]
    async fn a_statement_that_failed_is_a_fault_that_passes_and_the_next_is_whole() {
        for fault in [FULL, READ_ONLY] {
            let (_dir, db) = open().await;
            rows(&db, TABLE).await.unwrap();
            rows(&db, fault).await.unwrap();
            let error = rows(&db, LARGE).await.unwrap_err();
            assert!(error.is_unavailable() && !error.is_conflict(), "{error}");
            let told = crate::http::ApiError::from(error);
            assert_eq!(told.status(), 503);
            assert!(told.retry_after().is_some());
            db.returned().await;
            rows(&db, LARGE).await.unwrap();
            assert_eq!(count(&db).await, 1, "{fault}");
        }
    }

    #[tokio::test]
    async fn a_commit_that_fails_and_a_begin_that_fails_cost_no_later_write() {
        let (_dir, db) = open().await;
        rows(&db, TABLE).await.unwrap();
        let child = "create table child (n bigint references t (n) deferrable initially deferred)";
        rows(&db, child).await.unwrap();
        let mut tx = db.begin().await.unwrap();
        let orphan = "insert into child (n) values (7)".into_sql_str();
        tx.run(orphan, &[], Want::Count).await.unwrap();
        tx.commit().await.unwrap_err();
        // A plain statement that begins a transaction behind our back: ours cannot begin.
        rows(&db, "begin").await.unwrap();
        assert!(db.begin().await.is_err());
        db.begin().await.unwrap().commit().await.unwrap();
        assert_eq!(rows(&db, "select n from child").await.unwrap(), 0);
        rows(&db, LARGE).await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_cut_off_anywhere_is_undone_or_done() {
        let (_dir, db) = open().await;
        rows(&db, TABLE).await.unwrap();
        for cut in 0_u32..60 {
            let two = async {
                let mut tx = db.begin().await?;
                for n in [2 * cut, 2 * cut + 1] {
                    let sql = insert().into_sql_str();
                    tx.run(sql, &[Arg::from(i64::from(n))], Want::Count).await?;
                }
                tx.commit().await
            };
            let cut = Duration::from_micros(20 * u64::from(cut));
            if let Ok(done) = tokio::time::timeout(cut, two).await {
                done.unwrap();
            }
            let mut tx = db.begin().await.unwrap();
            let all = tx.run("select n from t".into_sql_str(), &[], Want::All);
            let Answer::Rows(all) = all.await.unwrap() else {
                unreachable!("it was asked for rows")
            };
            assert_eq!(all.len() % 2, 0);
        }
        assert!(!db.is_away());
    }

    #[tokio::test]
    async fn a_refused_row_costs_no_connection() {
        let (_dir, db) = open().await;
        rows(&db, TABLE).await.unwrap();
        rows(&db, "create temp table mine (n bigint)")
            .await
            .unwrap();
        rows(&db, LARGE).await.unwrap();
        assert!(rows(&db, LARGE).await.unwrap_err().is_unique_violation());
        let mut tx = db.begin().await.unwrap();
        let again = tx.run(LARGE.into_sql_str(), &[], Want::Count).await;
        assert!(again.err().unwrap().is_unique_violation());
        drop(tx);
        // What is temporary lives as long as the connection.
        rows(&db, "insert into mine (n) values (1)").await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_was_taken_away_is_not_made_anew() {
        let (dir, db) = open().await;
        rows(&db, TABLE).await.unwrap();
        rows(&db, READ_ONLY).await.unwrap();
        let (path, away) = (dir.path().join("t.db"), dir.path().join("away.db"));
        std::fs::rename(&path, &away).unwrap();
        rows(&db, LARGE).await.unwrap_err();
        while !db.is_away() {
            tokio::task::yield_now().await;
        }
        let error = rows(&db, LARGE).await.unwrap_err();
        assert!(matches!(error, DbError::NoWrites), "{error}");
        assert!(db.takes_writes().await.is_err() && !path.exists());
        std::fs::rename(&away, &path).unwrap();
        db.returned().await;
        rows(&db, LARGE).await.unwrap();
        db.takes_writes().await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_file_is_no_fault_that_passes() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("t.db");
        std::fs::write(&path, vec![b'x'; 8192]).unwrap();
        let error = Sqlite::open(&path).await.unwrap_err();
        assert!(!error.is_unavailable(), "{error}");
    }

    #[tokio::test]
    async fn whether_writes_are_taken_is_tried_and_costs_a_write_a_second_at_most() {
        let (_dir, db) = open().await;
        db.takes_writes().await.unwrap();
        // Just tried: this connection's fault is not met.
        rows(&db, READ_ONLY).await.unwrap();
        db.takes_writes().await.unwrap();
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        let error = loop {
            match db.takes_writes().await {
                Err(error) => break error,
                Ok(()) => assert!(tokio::time::Instant::now() < until),
            }
            tokio::task::yield_now().await;
        };
        assert!(error.is_fault(), "{error}");
        db.returned().await;
        db.takes_writes().await.unwrap();
    }
}
