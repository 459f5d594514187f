//! A PostgreSQL server of the tests' own: on a free port, in a temporary folder, ended with them
//! however they end.
//!
//! Its keeper is a shell that waits on a pipe which only the test process holds: when that process is
//! gone, panicked or killed, the pipe closes, and the keeper ends the server and removes the folder.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use control::db::{Db, Settings};
use tokio::sync::OnceCell;

use crate::certificates;
use crate::faults::Injector;
use crate::ports::free_port;

/// A running server.
pub struct Postgres {
    port: u16,
    folder: PathBuf,
    /// Who runs it, when the tests run as root, which it refuses.
    user: Option<(u32, u32)>,
    environment: Vec<(&'static str, String)>,
    keeper: Child,
    /// Closed, it tells the keeper that the tests are over.
    pipe: Option<ChildStdin>,
}

/// Ends the server and removes its folder once the pipe is closed.
const KEEPER: &str = r#"
folder=$1; shift
cat >/dev/null
"$@" >/dev/null 2>&1
rm -rf "$folder"
"#;

/// For data that outlives a crash of the server but not of the machine, with room for many tests at
/// once.
const SETTINGS: &str = "
fsync = off
full_page_writes = off
max_connections = 400
shared_buffers = 32MB
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
";

/// The server that the tests of one program share.
pub fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(Postgres::start)
}

/// A new database of the shared server with every table in it: a copy of one that was migrated once. Its URL.
pub async fn migrated() -> String {
    static TEMPLATE: OnceCell<()> = OnceCell::const_new();
    const NAME: &str = "migrated";
    let server = shared();
    let make = || async {
        server.make_database(NAME, "template1").await;
        let db = server.open(NAME).await;
        db.migrate().await.expect("the migrations");
        db.close().await;
    };
    TEMPLATE.get_or_init(make).await;
    let name = new_name();
    server.make_database(&name, NAME).await;
    server.url(&name)
}

fn new_name() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}

/// Whether `SIDETONE_TEST_DATABASE=postgres` asks for tests on PostgreSQL that run on SQLite otherwise.
pub fn is_chosen() -> bool {
    std::env::var("SIDETONE_TEST_DATABASE").is_ok_and(|name| name == "postgres")
}

impl Postgres {
    /// A new, empty server.
    pub fn start() -> Self {
        Self::start_with("", Vec::new())
    }

    /// A server whose tables lie on a disk that fails on demand.
    pub fn start_failing(faults: &Injector) -> Self {
        Self::start_with("", faults.environment("/data/base/").into())
    }

    /// A server that takes encrypted connections too; its authority is [`Postgres::authority`].
    pub fn start_encrypted() -> Self {
        let settings = "ssl = on\nssl_cert_file = 'leaf.crt'\nssl_key_file = 'leaf.key'\n";
        Self::start_with(settings, Vec::new())
    }

    fn start_with(more: &str, environment: Vec<(&'static str, String)>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("sidetone-postgres")
            .tempdir()
            .expect("a temporary folder")
            .keep();
        let user = user();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("the folder changes hands");
        }
        let port = free_port();
        let data = folder.join("data");
        let (mut keeper, pipe) = {
            let stop = as_user(user, "pg_ctl", &data);
            let mut keeper = Command::new("sh")
                .args(["-c", KEEPER, "keeper"])
                .arg(&folder)
                .arg(stop.get_program())
                .args(stop.get_args())
                .args(["stop", "-m", "immediate"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a shell starts");
            let pipe = keeper.stdin.take();
            (keeper, pipe)
        };
        assert!(pipe.is_some() && keeper.try_wait().is_ok_and(|ended| ended.is_none()));
        let server = Self {
            port,
            folder,
            user,
            environment,
            keeper,
            pipe,
        };
        let arguments = "--username=sidetone --auth=trust --encoding=UTF8 --locale=C --no-sync";
        server.run("initdb", &arguments.split(' ').collect::<Vec<_>>());
        let settings = data.join("postgresql.conf");
        let written = std::fs::read_to_string(&settings).expect("initdb wrote settings");
        let all = format!("{written}\n{SETTINGS}port = {port}\n{more}");
        std::fs::write(&settings, all).expect("settings can be written");
        if !more.is_empty() {
            server.make_certificates();
        }
        server.start_again();
        server
    }

    /// Starts it after a [`crash`](Self::crash), on the same data and port; it answers then.
    pub fn start_again(&self) {
        let log = self.folder.join("log");
        let log = log.to_str().expect("a path of text");
        self.run("pg_ctl", &["start", "-w", "-t", "60", "-l", log]);
    }

    /// Ends it at once, as a power cut would (`pg_ctl stop -m immediate`).
    pub fn crash(&self) {
        self.run("pg_ctl", &["stop", "-m", "immediate"]);
    }

    /// Stops every process of it, or lets them go on: it is there, but answers nothing.
    pub fn hang(&self, hangs: bool) {
        let file = self.folder.join("data/postmaster.pid");
        let text = std::fs::read_to_string(file).expect("it runs");
        let main = text.lines().next().expect("its number").to_owned();
        let mut all = vec![main.clone()];
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if status.contains(&format!("\nPPid:\t{main}\n")) {
                all.push(name);
            }
        }
        let signal = if hangs { "-STOP" } else { "-CONT" };
        // A child that has ended meanwhile is no concern.
        let status = Command::new("kill").arg(signal).args(&all).status();
        status.expect("kill runs");
    }

    /// Changes a setting of it while it runs; `None`: back to what it was.
    pub async fn set(&self, name: &str, value: Option<&str>) {
        let db = self.open("postgres").await;
        let change = match value {
            Some(value) => format!("alter system set {name} = {value}"),
            None => format!("alter system reset {name}"),
        };
        db.query_built(change)
            .execute()
            .await
            .expect("a setting is changed");
        let reload = db.query("select pg_reload_conf() as done");
        reload
            .one(|row| row.bool("done"))
            .await
            .expect("it reads it");
        db.close().await;
    }

    /// A new, empty database on it. Its URL.
    pub async fn database(&self) -> String {
        let name = new_name();
        self.make_database(&name, "template1").await;
        self.url(&name)
    }

    async fn make_database(&self, name: &str, template: &str) {
        let db = self.open("postgres").await;
        db.query_built(format!("create database {name} template {template}"))
            .execute()
            .await
            .expect("a database is made");
        db.close().await;
    }

    /// The URL of a database by its name.
    pub fn url(&self, name: &str) -> String {
        format!("postgres://sidetone@127.0.0.1:{}/{name}", self.port)
    }

    /// The whole of a database as text (`pg_dump`).
    pub fn dump(&self, name: &str) -> String {
        let output = Command::new(programs().join("pg_dump"))
            .args(["--username=sidetone", "--host=127.0.0.1"])
            .arg(format!("--port={}", self.port))
            .arg(name)
            .output()
            .expect("pg_dump runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The certificate that the server's own is signed with.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("data/ca.crt")
    }

    async fn open(&self, name: &str) -> Db {
        // Many tests begin at once, and making a database takes its while.
        let patience = Settings {
            connections: 1,
            acquire: Duration::from_secs(60),
            statement: Duration::from_secs(60),
        };
        Db::open_with(&self.url(name), &patience)
            .await
            .expect("a connection")
    }

    fn make_certificates(&self) {
        let data = self.folder.join("data");
        let mut command = in_place_of_root(self.user, Path::new("sh"));
        let command = command
            .args(["-ec", certificates::SCRIPT])
            .current_dir(data);
        run(command, "openssl");
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = as_user(self.user, program, &self.folder.join("data"));
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(arguments).envs(environment);
        run(command.current_dir(&self.folder), program);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // It ends by itself; there is nothing to do if it does not.
        let _ = self.keeper.wait();
    }
}

fn run(command: &mut Command, what: &str) {
    // What stays alive may not hold on to a pipe of ours, so the output goes nowhere.
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(status.success(), "{what} ended with {status}: {command:?}");
}

/// One of the server's programs on a data folder.
fn as_user(user: Option<(u32, u32)>, program: &str, data: &Path) -> Command {
    let mut command = in_place_of_root(user, &programs().join(program));
    command.arg("-D").arg(data);
    command
}

fn in_place_of_root(user: Option<(u32, u32)>, program: &Path) -> Command {
    let Some((uid, gid)) = user else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &uid.to_string(), "--regid", &gid.to_string()])
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

/// Where the server's programs lie: Debian has a folder for each version.
fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .chain(
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .map(|folder| (0, folder)),
        )
        .filter(|(_, folder)| folder.join("initdb").exists())
        .collect();
    found.sort();
    let (_, folder) = found
        .pop()
        .expect("PostgreSQL is not installed: run `bash scripts/setup.sh test`");
    folder
}

/// Whom root becomes: the package's own user, or nobody.
fn user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").expect("/proc").uid();
    if own != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("the users");
    ["postgres", "nobody"].iter().find_map(|name| {
        let line = users
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}
