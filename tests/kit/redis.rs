//! A private redis-server on a free port of the loopback, without a file, ended with the test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue};

use crate::certificates;
use crate::ports::free_port;

/// A running redis-server.
pub struct Redis {
    port: u16,
    /// Where it speaks TLS as well.
    tls_port: Option<u16>,
    child: Option<Child>,
    folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one and waits until it answers.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// One that speaks TLS as well, with a certificate for `localhost`.
    pub async fn start_encrypted() -> Self {
        Self::start_with(Some(free_port())).await
    }

    async fn start_with(tls_port: Option<u16>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sidetone-redis")
            .tempdir()
            .expect("a temporary folder");
        let mut redis = Self {
            port: free_port(),
            tls_port,
            child: None,
            folder,
        };
        if tls_port.is_some() {
            certificates::make(redis.folder.path());
        }
        redis.start_again().await;
        redis
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The URL under which it speaks TLS, by this name for the loopback.
    pub fn encrypted_url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.tls_port.expect("it speaks TLS"))
    }

    /// The file of the authority that vouches for its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Starts it again on its port, empty.
    pub async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut command = Command::new("redis-server");
        if let Some(port) = self.tls_port {
            command
                .args(["--tls-port", &port.to_string()])
                .args(["--tls-cert-file", "leaf.crt", "--tls-key-file", "leaf.key"])
                .args(["--tls-ca-cert-file", "ca.crt", "--tls-auth-clients", "no"])
                .current_dir(self.folder.path());
        }
        let child = command
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .args(["--repl-diskless-sync-delay", "0"])
            .arg("--dir")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: run `bash scripts/setup.sh test`");
        self.child = Some(child);
        let until = Instant::now() + Duration::from_secs(10);
        while self.try_connection().await.is_none() {
            assert!(Instant::now() < until, "redis-server does not answer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("redis-server can be killed");
            child.wait().expect("redis-server ends");
        }
    }

    /// SIGSTOP: it stays, and does not answer.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("kill runs").success());
    }

    /// A connection of the test's own.
    pub async fn connection(&self) -> MultiplexedConnection {
        // On a machine with much to do a single try may take too long.
        for _ in 0..10 {
            if let Some(connection) = self.try_connection().await {
                return connection;
            }
        }
        panic!("redis-server does not answer");
    }

    async fn try_connection(&self) -> Option<MultiplexedConnection> {
        let client = Client::open(self.url()).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        let pong = redis::cmd("PING")
            .query_async::<String>(&mut connection)
            .await;
        pong.ok().map(|_| connection)
    }

    /// Runs one command, as in `["SET", "a", "1"]`.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.connection().await;
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command
            .query_async(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// How many leases the server counts.
    pub async fn leases(&self) -> u64 {
        self.command(&["ZCARD", "sidetone:{adm}:pool"]).await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A stopped process takes SIGKILL as well; it may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
