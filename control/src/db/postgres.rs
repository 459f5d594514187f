//! PostgreSQL: a pool of connections, each statement with a deadline, and a watch on whether the server
//! is there at all ([`super::outage`]).
//!
//! Transactions are `read committed`; what is read to be written again is read with a row lock
//! ([`super::Engine::for_update`]). A connection that died, hangs or holds a statement of an older table
//! is closed, and the pool opens another.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, SqlSafeStr as _};

use super::error::{is_read_only, lost, stale_plan};
use super::outage::{Outage, Probe, Seen, State};
use super::{Answer, Arg, DbError, Settings, Want, arg, is_read};

/// The server ends a statement that takes too long; only when it does not answer at all is the
/// connection given up, this much later.
const GRACE: Duration = Duration::from_secs(1);
/// Waiting longer than this for a connection, one looks whether the server is there at all.
const SUSPICIOUS: Duration = Duration::from_millis(200);
/// A server that does not complete a connection, or a trial, within this is not there.
const PATIENCE: Duration = Duration::from_secs(1);
/// A write that takes room on the disk that nothing had before, about 128 KiB; undone afterwards.
const TRIAL: &str = "create temporary table sidetone_trial on commit drop as
    select n, md5(n::text) as filler from generate_series(1, 2000) as n";
/// A write that changes nothing.
const TOUCH: &str = "update counters set value = value where name = 'incarnation'";
/// How often a single statement that lost against another one is tried in all.
const TRIES: u32 = 4;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations/postgres");

/// A server.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    pool: PgPool,
    /// For connections beside the pool, without a deadline of the server.
    options: PgConnectOptions,
    /// The longest that a statement may take.
    statement: Duration,
    outage: Outage<Server>,
}

/// How the server is looked at: over a connection of its own.
#[derive(Debug)]
pub(super) struct Server {
    options: PgConnectOptions,
    pool: PgPool,
    /// Older connections are closed: they may lead to a server that takes no writes, while another took its
    /// place.
    since: Since,
}

/// When the server took writes again.
#[derive(Clone, Debug, Default)]
struct Since(Arc<Mutex<Option<Instant>>>);

impl Since {
    fn is_before(&self, age: Duration) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < age)
    }

    fn is_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Probe for Server {
    async fn look(&self, writes: bool) -> Seen {
        let connected = tokio::time::timeout(PATIENCE, self.options.connect()).await;
        let mut connection = match connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
            Ok(connection) => connection,
            Err(error) => {
                let (is_late, error) = (matches!(error, sqlx::Error::PoolTimedOut), error.into());
                // A server that refuses this connection for a reason of its own is there.
                return match is_late || DbError::is_gone(&error) {
                    true => Seen::Away(error),
                    false => Seen::Well,
                };
            }
        };
        let tried = match writes {
            true => tokio::time::timeout(PATIENCE, trial(&mut connection)).await,
            false => Ok(Ok(())),
        };
        let tried = tried.map_or(Err(DbError::TimedOut), |tried| tried.map_err(Into::into));
        // Closing it undoes what is left of the trial; the server has seen what there was to see.
        drop(tokio::time::timeout(PATIENCE, connection.close()).await);
        match tried {
            Err(error) if error.is_busy() => Seen::Slow(error),
            // A server that dies of the trial takes no writes either.
            Err(error) if error.is_unavailable() => Seen::NoWrites(error),
            Ok(()) | Err(_) => Seen::Well,
        }
    }

    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    fn returned(&self, from: State) {
        if from == State::NoWrites {
            self.since.is_now();
        }
    }
}

/// Writes what takes room, and undoes it.
async fn trial(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    for sql in ["begin", TRIAL, "rollback"] {
        command(connection, sql).await?;
    }
    Ok(())
}

/// Whether this URL names a server and can be read; the reason when it cannot. Tells no password.
pub(super) fn check(url: &str) -> Result<(), String> {
    PgConnectOptions::from_str(url)
        .map(drop)
        .map_err(|error| error.to_string())
}

impl Postgres {
    /// Connections are opened when they are needed.
    pub(super) fn open(url: &str, settings: &Settings) -> Result<Self, DbError> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("sidetone")
            .disable_statement_logging();
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let pooled = options.clone().options([
            ("statement_timeout", ms(settings.statement)),
            // A transaction of a process that hangs may not hold its locks for ever.
            (
                "idle_in_transaction_session_timeout",
                ms(2 * settings.statement),
            ),
        ]);
        let since = Since::default();
        let pool = PgPoolOptions::new()
            .max_connections(settings.connections)
            .acquire_timeout(settings.acquire)
            .test_before_acquire(true)
            .before_acquire({
                let since = since.clone();
                move |_, meta| {
                    let is_old = since.is_before(meta.age);
                    Box::pin(async move { Ok(!is_old) })
                }
            })
            .connect_lazy_with(pooled);
        let outage = Outage::new(Server {
            options: options.clone(),
            pool: pool.clone(),
            since,
        });
        Ok(Self {
            pool,
            options,
            statement: settings.statement,
            outage,
        })
    }

    /// One process at a time: the migrator holds a lock of the server.
    pub(super) async fn migrate(&self) -> Result<(), DbError> {
        let failed = |error: &dyn std::fmt::Display| DbError::Migration(error.to_string());
        let mut connection = self.options.connect().await.map_err(|e| failed(&e))?;
        MIGRATIONS
            .run(&mut connection)
            .await
            .map_err(|e| failed(&e))?;
        connection.close().await.map_err(|e| failed(&e))
    }

    /// Idle and used.
    pub(super) fn connections(&self) -> (u32, u32) {
        let size = self.pool.size();
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        (idle.min(size), size.saturating_sub(idle))
    }

    pub(super) const fn outage(&self) -> &Outage<Server> {
        &self.outage
    }

    /// Runs a statement on its own. It is tried again when it lost against another write, and when a
    /// read met a connection that had died.
    pub(super) async fn run(
        &self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut connection = self.acquire(is_read(&sql)).await?;
            let error = match self.on(&mut connection, sql.clone(), args, want).await {
                Ok(answer) => {
                    if matches!(answer, Answer::Touched(rows) if rows > 0) {
                        self.outage.wrote();
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let (is_lost, is_stale) = match &error {
                DbError::Engine(error) => (lost(error) || is_read_only(error), stale_plan(error)),
                DbError::TimedOut => (true, false),
                _ => (false, false),
            };
            if is_lost {
                drop(connection.detach());
            } else if is_stale {
                connection.clear_cached_statements().await?;
            }
            let undone = error.is_conflict();
            let harmless = is_lost && is_read(&sql) && !matches!(error, DbError::TimedOut);
            if tries == TRIES || !(undone || harmless) {
                return Err(error);
            }
        }
    }

    pub(super) async fn begin(&self) -> Result<Tx, DbError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let connection = self.acquire(false).await?;
            let mut tx = Tx {
                connection: Some(connection),
                db: self.clone(),
                failed: false,
                touched: false,
                lost: false,
            };
            match tx.command("begin isolation level read committed").await {
                Ok(()) => return Ok(tx),
                // Nothing was done on it yet, so another connection is as good.
                Err(_) if tx.lost && tries < TRIES && !self.outage.is_on() => {}
                Err(error) => {
                    tx.lost = true;
                    return Err(error);
                }
            }
        }
    }

    /// Whether a write is taken: tried unless one succeeded a moment ago.
    pub(super) async fn takes_writes(&self) -> Result<(), DbError> {
        self.outage.check(false)?;
        if !self.outage.wrote_lately() {
            self.run(TOUCH.into_sql_str(), &[], Want::Count).await?;
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    /// A connection of the pool that answered a moment ago. While the server is known to be away, or to
    /// take no writes and this is for one, this fails at once.
    async fn acquire(
        &self,
        is_read: bool,
    ) -> Result<sqlx::pool::PoolConnection<sqlx::Postgres>, DbError> {
        self.outage.check(is_read)?;
        let acquire = self.pool.acquire();
        tokio::pin!(acquire);
        tokio::select! {
            biased;
            connection = &mut acquire => return connection.map_err(|error| self.failed(error)),
            () = tokio::time::sleep(SUSPICIOUS) => self.outage.suspect(),
        }
        tokio::select! {
            biased;
            connection = acquire => connection.map_err(|error| self.failed(error)),
            () = self.outage.away() => Err(DbError::Away),
        }
    }

    /// An error of the engine; one that smells of an outage is looked into.
    fn failed(&self, error: sqlx::Error) -> DbError {
        let error = DbError::Engine(error);
        self.outage.note(&error);
        error
    }

    /// A statement on a connection, with the deadline.
    async fn on(
        &self,
        connection: &mut PgConnection,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        self.in_time(run(connection, sql, args, want)).await
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, DbError> {
        match tokio::time::timeout(self.statement + GRACE, work).await {
            Ok(done) => done.map_err(|error| self.failed(error)),
            Err(_) => {
                self.outage.suspect();
                Err(DbError::TimedOut)
            }
        }
    }
}

/// A transaction. Dropped without commit it is undone.
#[derive(Debug)]
pub(super) struct Tx {
    /// There until it is committed or dropped.
    connection: Option<sqlx::pool::PoolConnection<sqlx::Postgres>>,
    db: Postgres,
    /// A statement failed: the server only takes the end of it now.
    failed: bool,
    /// A statement wrote a row: a commit then shows that writes are taken.
    touched: bool,
    /// The connection is of no more use.
    lost: bool,
}

impl Tx {
    pub(super) async fn run(
        &mut self,
        sql: sqlx::SqlStr,
        args: &[Arg],
        want: Want,
    ) -> Result<Answer, DbError> {
        let Some(connection) = &mut self.connection else {
            return Err(DbError::Aborted);
        };
        let done = self.db.on(connection, sql, args, want).await;
        self.touched |= matches!(done, Ok(Answer::Touched(rows)) if rows > 0);
        self.note(&done);
        done
    }

    pub(super) async fn commit(mut self) -> Result<(), DbError> {
        if self.failed {
            // The server would call this a rollback, and no error.
            return Err(DbError::Aborted);
        }
        self.command("commit").await?;
        if self.touched {
            self.db.outage.wrote();
        }
        // Back to the pool.
        drop(self.connection.take());
        Ok(())
    }

    async fn command(&mut self, sql: &'static str) -> Result<(), DbError> {
        let Some(connection) = &mut self.connection else {
            return Err(DbError::Aborted);
        };
        let done = self.db.in_time(command(connection, sql)).await;
        self.note(&done);
        done
    }

    fn note<T>(&mut self, done: &Result<T, DbError>) {
        if let Err(error) = done {
            self.failed = true;
            self.lost |= match error {
                DbError::Engine(error) => lost(error) || is_read_only(error) || stale_plan(error),
                _ => true,
            };
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !self.lost => {
                let db = self.db.clone();
                runtime.spawn(async move {
                    if db
                        .in_time(command(&mut connection, "rollback"))
                        .await
                        .is_err()
                    {
                        drop(connection.detach());
                    }
                });
            }
            // Closing the connection undoes it too.
            _ => drop(connection.detach()),
        }
    }
}

async fn command(connection: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(sql).execute(connection).await.map(drop)
}

async fn run(
    connection: &mut PgConnection,
    sql: sqlx::SqlStr,
    args: &[Arg],
    want: Want,
) -> Result<Answer, sqlx::Error> {
    let query = arg::for_postgres(sql, args);
    Ok(asked_for!(want, query, connection))
}
