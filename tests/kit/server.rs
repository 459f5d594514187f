//! The real program on a free port, with a data folder of its own, ended with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::certificates;
use crate::client::Client;
use crate::ports::free_port;
use crate::postgres;

/// Among the settings: what the program is started by.
const THROUGH: &str = "(through)";
/// And that it is not waited for until it is ready.
const UNREADY: &str = "(unready)";
/// And that it speaks https.
const TLS: &str = "(tls)";

/// A running `sidetone serve`. On SQLite, or on PostgreSQL when `SIDETONE_TEST_DATABASE=postgres`.
pub struct Server {
    pub url: String,
    pub data: PathBuf,
    /// Full scope, account `default`.
    pub key: String,
    child: Child,
    settings: Vec<(String, String)>,
    folder: Option<tempfile::TempDir>,
}

/// How a server is started.
#[derive(Default)]
pub struct Setup {
    settings: Vec<(String, String)>,
    key: Option<String>,
    through: Vec<String>,
}

impl Setup {
    /// One setting by its environment name without the prefix: `LIMITS__ACCOUNT_CALLS`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings
            .push((format!("SIDETONE_{name}"), value.to_owned()));
        self
    }

    /// Any variable of its environment, as it is: `REDIS_URL`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// This full-scope key in place of a new one: servers that share a database share it.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Scripted speech: immediate words and a tone for a voice, almost no work.
    #[must_use]
    pub fn scripted(self) -> Self {
        self.set("SPEECH__RECOGNISER", "scripted")
    }

    /// Browsers reach its one media thread through this router only, which leads to `media`.
    #[must_use]
    pub fn behind(self, router: &crate::router::Router, media: std::net::SocketAddr) -> Self {
        self.set("ENGINE__MEDIA_THREADS", "1")
            .set("WEBRTC__LISTEN", &media.to_string())
            .set("WEBRTC__PUBLIC_ADDRESSES", &router.address().to_string())
    }

    /// Telephones of this machine call it there, and it calls them.
    #[must_use]
    pub fn telephones(self, listen: std::net::SocketAddr) -> Self {
        self.set("SIP__LISTEN", &format!("udp:{listen}"))
            .set("EGRESS__ALLOW", "127.0.0.1")
    }

    /// On the database of this URL.
    #[must_use]
    pub fn database(mut self, url: &str) -> Self {
        self.settings
            .push(("DATABASE_URL".to_owned(), url.to_owned()));
        self
    }

    /// Runs on one core only.
    #[must_use]
    pub fn on_core(self, core: usize) -> Self {
        self.through(&["taskset", "-c", &core.to_string()])
    }

    /// It answers once it is started, though it never gets ready: what it needs is not there.
    #[must_use]
    pub fn unready(self) -> Self {
        self.env(UNREADY, "")
    }

    /// It speaks https only, with the certificate of [`certificates`]. Its client is
    /// [`trusting_client`]; [`Server::client`] does not reach it.
    #[must_use]
    pub fn tls(self) -> Self {
        self.env(TLS, "")
    }

    /// Started by another program, which gets the server's command as its last arguments and must become
    /// it (`exec`). Its environment has `SIDETONE_SERVER__DATA_DIR`.
    #[must_use]
    pub fn through(mut self, command: &[&str]) -> Self {
        self.through = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub async fn start(self) -> Server {
        let folder = tempfile::Builder::new()
            .prefix("sidetone-test")
            .tempdir()
            .expect("a temporary folder");
        let data = folder.path().to_owned();
        let mut settings = vec![
            (
                "SIDETONE_LIMITS__READS_PER_MINUTE".to_owned(),
                "1000000".to_owned(),
            ),
            (
                "SIDETONE_LIMITS__WRITES_PER_MINUTE".to_owned(),
                "1000000".to_owned(),
            ),
            (
                "SIDETONE_LIMITS__CALL_CREATIONS_PER_MINUTE".to_owned(),
                "1000000".to_owned(),
            ),
            (
                "SIDETONE_LIMITS__FAILED_AUTH_PER_MINUTE".to_owned(),
                "1000000".to_owned(),
            ),
            // Nobody answers there: no test asks a name server of the network's.
            ("SIDETONE_EGRESS__DNS".to_owned(), "127.0.0.1:9".to_owned()),
            (
                "SIDETONE_LIMITS__ACCOUNT_CALLS".to_owned(),
                "1000".to_owned(),
            ),
        ];
        if postgres::is_chosen() {
            let url = postgres::migrated().await;
            settings.push(("DATABASE_URL".to_owned(), url));
        }
        settings.extend(self.settings);
        if has(&settings, TLS) {
            certificates::make(&data);
            for (name, file) in [("CERTIFICATE", "leaf.crt"), ("KEY", "leaf.key")] {
                let file = data.join(file).display().to_string();
                settings.push((format!("SIDETONE_SERVER__TLS__{name}"), file));
            }
        }
        if !self.through.is_empty() {
            settings.push((THROUGH.to_owned(), self.through.join("\t")));
        }
        let key = self.key.unwrap_or_else(new_key);
        settings.push(("SIDETONE_BOOTSTRAP_API_KEY".to_owned(), key.clone()));
        let (child, url) = spawn(&data, &settings, None).await;
        Server {
            url,
            data,
            key,
            child,
            settings,
            folder: Some(folder),
        }
    }
}

impl Server {
    /// A server with scripted speech and generous limits.
    pub async fn scripted() -> Self {
        Setup::default().scripted().start().await
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A client with the full-scope key.
    pub fn client(&self) -> Client {
        Client::new(&self.url, Some(&self.key))
    }

    pub fn anonymous(&self) -> Client {
        Client::new(&self.url, None)
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data.join("server.log")).unwrap_or_default()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// The exit code, once it has ended by itself.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("the server can be waited for") {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Sets one setting for the next start, by its environment name without the prefix.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings
            .push((format!("SIDETONE_{name}"), value.to_owned()));
    }

    /// Sets any variable of its environment for the next start, as it is.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the same server again on the same data.
    pub async fn start_again(&mut self) {
        let (child, url) = spawn(&self.data, &self.settings, Some(&self.url)).await;
        self.child = child;
        self.url = url;
    }

    /// Starts it again where it cannot start: with what it ended, and its log.
    pub async fn fails_to_start(&mut self, within: Duration) -> (Option<i32>, String) {
        self.child = child(&self.data, &self.settings, free_port());
        let code = self.ended(within).await;
        (code, self.log())
    }

    /// Runs a command of the program on this server's data; what it prints.
    pub fn command(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, whatever comes of it.
    pub fn output(&self, args: &[&str]) -> Output {
        Command::new(program())
            .args(args)
            .env_clear()
            .env("SIDETONE_SERVER__DATA_DIR", &self.data)
            .env("DATABASE_URL", self.database_url())
            .current_dir(&self.data)
            .output()
            .expect("the program starts")
    }

    /// The bodies and states of a call's events of one kind, as the database holds them.
    pub async fn events(&self, call: &str, kind: &str) -> Vec<(serde_json::Value, String)> {
        let db = self.database().await;
        let events = db
            .query("select body, status from events where call_id = $1 and type = $2")
            .bind(call)
            .bind(kind)
            .all(|row| Ok((row.json("body")?, row.text("status")?)))
            .await
            .expect("the events can be read");
        db.close().await;
        events
    }

    /// The database of the server, beside it.
    pub async fn database(&self) -> control::db::Db {
        control::db::Db::open(&self.database_url())
            .await
            .expect("the database opens")
    }

    /// Where its database is, for another program.
    pub fn database_url(&self) -> String {
        let set = self
            .settings
            .iter()
            .rfind(|(name, _)| name == "DATABASE_URL");
        set.map_or_else(
            || {
                let file = self.data.join("sidetone.db");
                assert!(file.exists(), "no database at {}", file.display());
                format!("sqlite:{}", file.display())
            },
            |(_, url)| url.clone(),
        )
    }

    /// CPU time of all its threads so far, ns.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        let of = |task: std::fs::DirEntry| -> Option<u64> {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        tasks.flatten().filter_map(of).sum()
    }

    /// Sockets that it has open, those that it listens on included.
    pub fn sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid());
        let open = std::fs::read_dir(folder).expect("it runs").flatten();
        // What was closed meanwhile is none.
        let is_socket = |file: &std::fs::DirEntry| {
            std::fs::read_link(file.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        open.filter(is_socket).count()
    }

    /// Resident memory, KiB.
    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the server runs");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .expect("VmRSS");
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse().ok())
            .expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            eprintln!(
                "the server's data and log are kept in {}",
                folder.keep().display()
            );
        }
    }
}

/// A key as the server would make it.
pub fn new_key() -> String {
    let minted = control::api_keys::rules::Minted::new().expect("randomness");
    minted.into_key().expose().clone()
}

/// The program, built beside the tests.
pub fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("the test's own path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    let path = path.join("sidetone");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --release` first (`make test` does)",
        path.display()
    );
    path
}

/// The program as a child, on this port of loopback.
fn child(data: &Path, settings: &[(String, String)], port: u16) -> Child {
    let through = settings.iter().find(|(name, _)| name == THROUGH);
    let mut words = through.iter().flat_map(|(_, words)| words.split('\t'));
    let mut command = match words.next() {
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program());
            command
        }
        None => Command::new(program()),
    };
    let log = std::fs::File::create(data.join("server.log")).expect("a log file");
    let errors = log.try_clone().expect("a second handle");
    command
        .arg("serve")
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("SIDETONE_SERVER__LISTEN", format!("127.0.0.1:{port}"))
        .env("SIDETONE_SIP__LISTEN", "udp:127.0.0.1:0")
        .env("SIDETONE_SERVER__DATA_DIR", data)
        .envs(
            settings
                .iter()
                .filter(|(name, _)| !name.starts_with('('))
                .cloned(),
        )
        .current_dir(data)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .expect("the server starts")
}

async fn spawn(data: &Path, settings: &[(String, String)], url: Option<&str>) -> (Child, String) {
    let port = match url.and_then(|url| url.rsplit(':').next()) {
        Some(port) => port.parse().expect("a port"),
        None => free_port(),
    };
    let mut child = child(data, settings, port);
    let (scheme, client) = match has(settings, TLS) {
        true => ("https", trusting_client()),
        false => ("http", reqwest_client()),
    };
    let url = format!("{scheme}://127.0.0.1:{port}");
    let path = match has(settings, UNREADY) {
        true => "healthz",
        false => "readyz",
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(answer) = client.get(format!("{url}/{path}")).send().await
            && answer.status().is_success()
        {
            return (child, url);
        }
        if let Some(status) = child.try_wait().expect("the server can be waited for") {
            let log = std::fs::read_to_string(data.join("server.log")).unwrap_or_default();
            panic!("the server ended with {status}:\n{log}");
        }
        assert!(
            Instant::now() < until,
            "the server is not ready after a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn has(settings: &[(String, String)], name: &str) -> bool {
    settings.iter().any(|(set, _)| set == name)
}

/// A client that takes any certificate.
pub fn trusting_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .danger_accept_invalid_certs(true)
        .build()
        .expect("a client")
}

/// A client without proxies.
pub fn reqwest_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client")
}
