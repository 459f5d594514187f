//! The connection to Redis, one for the whole process: bounded in time, and cut by a breaker when the
//! server does not answer.
//!
//! A request never waits for a connection to be tried again and again: while there is none, it is
//! told so at once, and the heart ([`crate::cluster::heart`]) tries in the background. An operation
//! that was sent and not answered may have been done or not; the caller is told that it is unsure.
//!
//! What is read and written has a thread of its own: behind a crowd of requests on the threads that serve them, an
//! answer would wait for longer than Redis may take, and a node that is merely busy would count it as none.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Script, ServerErrorKind};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::secret::Secret;

/// The clock that all nodes share: a Lua function that reads the server's own.
pub const SERVER_CLOCK: &str = include_str!("redis_link/clock.lua");

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_millis(200);
/// How long an operation may take. Redis answers these scripts within a tenth of a millisecond.
const OPERATION: Duration = Duration::from_millis(150);
/// Answers in a row that do not come before the breaker opens.
const TOLERATED: u32 = 3;
/// A failed attempt to connect stands for all who ask within this time.
const RECENT: Duration = Duration::from_millis(100);

/// Why an operation has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing was done: no connection, or the breaker is open.
    Away,
    /// It may have been done or not: no answer in time, or the server failed at it.
    Unsure(String),
}

/// The connection of this process.
pub struct Link {
    client: Client,
    /// Its one thread reads and writes. There until the link is dropped.
    thread: Option<Runtime>,
    state: Mutex<State>,
    /// Held while somebody connects, so that a crowd makes one attempt.
    connecting: tokio::sync::Mutex<()>,
    /// Operations in a row whose answer did not come.
    silent: AtomicU32,
    disturbed: Notify,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that a broken one is dropped once.
    generation: u64,
    failed: Option<Instant>,
    /// Why there is no connection, as the log has it; forgotten when there is one.
    told: Option<String>,
}

impl Link {
    /// Whether this is a URL that [`new`](Self::new) takes.
    pub fn takes(url: &Secret<String>) -> bool {
        Client::open(url.expose().as_str()).is_ok()
    }

    /// For this URL: `redis://[user:password@]host:port[/db]`; `rediss://…` speaks TLS to a server whose
    /// certificate the system's authorities (or those of the file `SSL_CERT_FILE`) vouch for. `Err`: why
    /// it is none, or that the system has no thread for it.
    pub fn new(url: &Secret<String>) -> Result<Arc<Self>, String> {
        let client = Client::open(url.expose().as_str()).map_err(|error| error.to_string())?;
        let thread = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redis")
            .enable_all()
            .build()
            .map_err(|error| format!("no thread for it: {error}"))?;
        Ok(Arc::new(Self {
            client,
            thread: Some(thread),
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
            silent: AtomicU32::new(0),
            disturbed: Notify::new(),
        }))
    }

    /// Whether there is a connection and the breaker is closed.
    pub fn is_up(&self) -> bool {
        self.state().connection.is_some()
    }

    /// Connects if there is no connection. Many at once make one attempt.
    pub async fn connect(&self) -> bool {
        let _one = self.connecting.lock().await;
        {
            let state = self.state();
            if state.connection.is_some() {
                return true;
            }
            if state.failed.is_some_and(|at| at.elapsed() < RECENT) {
                return false;
            }
        }
        let attempt = self.attempt().await;
        let mut state = self.state();
        match attempt {
            Ok(connection) => {
                self.silent.store(0, Ordering::SeqCst);
                state.generation += 1;
                state.failed = None;
                state.told = None;
                state.connection = Some(connection);
                tracing::info!("connected to Redis");
                true
            }
            Err(error) => {
                // The heart tries a few times a second: a reason is told once.
                if state.told.as_ref() == Some(&error) {
                    tracing::debug!(%error, "no connection to Redis");
                } else {
                    tracing::warn!(%error, "no connection to Redis: trying again and again");
                    state.told = Some(error);
                }
                state.failed = Some(Instant::now());
                false
            }
        }
    }

    async fn attempt(&self) -> Result<MultiplexedConnection, String> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(OPERATION));
        let client = self.client.clone();
        let connecting = async move {
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        let thread = self.thread.as_ref().ok_or("the node ends")?;
        let mut connection = timeout(CONNECT, thread.spawn(connecting))
            .await
            .map_err(|_| format!("no connection within {CONNECT:?}"))?
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        // A server that is stopped still lets its kernel accept.
        let ping = ::redis::cmd("PING");
        let pong = timeout(OPERATION, ping.query_async::<String>(&mut connection)).await;
        pong.map_err(|_| format!("no answer within {OPERATION:?}"))?
            .map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Runs a script that answers with a list of strings.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[String],
    ) -> Result<Vec<String>, Trouble> {
        let (mut generation, connection) = self.current();
        let mut connection = connection.ok_or(Trouble::Away)?;
        let mut invocation = script.prepare_invoke();
        keys.iter().for_each(|key| {
            invocation.key(*key);
        });
        args.iter().for_each(|arg| {
            invocation.arg(arg.as_str());
        });
        let mut again = true;
        loop {
            let answer = timeout(
                OPERATION,
                invocation.invoke_async::<Vec<String>>(&mut connection),
            )
            .await;
            let error = match answer {
                Ok(Ok(answer)) => {
                    self.silent.store(0, Ordering::SeqCst);
                    return Ok(answer);
                }
                Err(_) => {
                    self.unanswered(generation);
                    return Err(Trouble::Unsure(format!("no answer within {OPERATION:?}")));
                }
                Ok(Err(error)) if error.is_timeout() => {
                    self.unanswered(generation);
                    return Err(Trouble::Unsure(error.to_string()));
                }
                Ok(Err(error)) => error,
            };
            match fate(&error) {
                Fate::Failed => return Err(Trouble::Unsure(error.to_string())),
                Fate::Elsewhere => {
                    self.drop_connection(generation);
                    return Err(Trouble::Away);
                }
                // The server went away, perhaps long before this operation. One that is back is asked
                // again: the scripts do the same when they are run twice.
                Fate::Broken => {
                    self.drop_connection(generation);
                    if !again || !self.connect().await {
                        return Err(Trouble::Away);
                    }
                    again = false;
                    let (newer, fresh) = self.current();
                    (generation, connection) = (newer, fresh.ok_or(Trouble::Away)?);
                }
            }
        }
    }

    /// Resolves when the connection was lost.
    pub async fn disturbed(&self) {
        self.disturbed.notified().await;
    }

    /// Tells whoever waits in [`disturbed`](Self::disturbed).
    pub fn disturb(&self) {
        self.disturbed.notify_one();
    }

    fn unanswered(&self, generation: u64) {
        if self.silent.fetch_add(1, Ordering::SeqCst) + 1 >= TOLERATED {
            self.drop_connection(generation);
        }
    }

    fn drop_connection(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation && state.connection.take().is_some() {
            tracing::warn!("the connection to Redis is lost");
            self.disturb();
        }
    }

    fn current(&self) -> (u64, Option<MultiplexedConnection>) {
        let state = self.state();
        (state.generation, state.connection.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after any panic: each use is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Whoever lets go of it may be a task, which must not wait for a thread.
        if let Some(thread) = self.thread.take() {
            thread.shutdown_background();
        }
    }
}

/// What an error says of the connection.
enum Fate {
    /// The operation failed, the connection stands.
    Failed,
    /// The connection is gone.
    Broken,
    /// This server cannot serve (yet): it loads its data, or is a replica.
    Elsewhere,
}

fn fate(error: &RedisError) -> Fate {
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::BusyLoading | ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown,
        ) => Fate::Elsewhere,
        ErrorKind::Io | ErrorKind::AuthenticationFailed => Fate::Broken,
        _ => Fate::Failed,
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Link")
            .field("is_up", &self.is_up())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Logged;

    #[tokio::test]
    async fn a_server_that_was_never_there_is_told_of_once_and_without_its_url() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = nobody.local_addr().expect("an address").port();
        drop(nobody);
        let url = format!("redis://:swordfish@127.0.0.1:{port}/0");
        let link = Link::new(&Secret::new(url)).expect("a URL");
        let log = Logged::start();
        for _ in 0..3 {
            assert!(!link.connect().await);
            tokio::time::sleep(RECENT * 2).await;
        }
        let text = log.text();
        let warned = text.lines().filter(|line| line.contains("WARN"));
        assert_eq!(warned.count(), 1, "{text}");
        assert!(text.contains("no connection to Redis"), "{text}");
        assert!(!text.contains("swordfish"), "{text}");
    }
}
