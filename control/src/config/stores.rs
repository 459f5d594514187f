//! The settings of what a node keeps its state in, and shares with others: the database, Redis, the store of
//! recordings, and its own name among the nodes.

use std::path::Path;
use std::time::Duration;

use super::read::Settings;
use crate::secret::Secret;

/// `[database]`.
#[derive(Clone, Debug)]
pub struct Database {
    /// `sqlite:<path>` or `postgres://…`, which may hold a password.
    pub url: Secret<String>,
    pub pool: crate::db::Settings,
}

/// `[cluster]`.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The name of this node; the machine's when the setting is empty.
    pub node: String,
    /// Where the other nodes reach this one. Made from the bound address at the start when empty.
    pub address: String,
}

/// Where recordings and tapes lie.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// Empty: a folder in the data folder.
    pub url: String,
    /// Empty: the vendor's own.
    pub endpoint: String,
    pub region: String,
}

pub(super) fn database(settings: &mut Settings, data_dir: &Path) -> Database {
    let url = match settings.text("database.url") {
        url if url.is_empty() => format!("sqlite:{}", data_dir.join("sidetone.db").display()),
        url => url,
    };
    if let Err(why) = crate::db::check_url(&url) {
        settings.wrong("database.url", &why);
    }
    let mut seconds =
        |key: &str| Duration::from_secs(settings.int(&format!("database.{key}"), 1, 3600).into());
    let (acquire, statement) = (seconds("acquire_seconds"), seconds("statement_seconds"));
    Database {
        url: Secret::new(url),
        pool: crate::db::Settings {
            connections: settings.int("database.max_connections", 1, 10_000),
            acquire,
            statement,
        },
    }
}

pub(super) fn redis_url(settings: &mut Settings) -> Option<Secret<String>> {
    let url = settings.text("redis.url");
    if url.is_empty() {
        return None;
    }
    let url = Secret::new(url);
    let known = ["redis://", "rediss://"];
    let known = known.iter().any(|scheme| url.expose().starts_with(scheme));
    // What the client reads behind a `#` takes any certificate.
    let strict = !url.expose().contains('#');
    if !known || !strict || !crate::redis_link::Link::takes(&url) {
        // The value is not shown: it may hold a password.
        settings.wrong(
            "redis.url",
            "must be redis://[user:password@]host:port[/database], or rediss:// for TLS",
        );
    }
    Some(url)
}

pub(super) fn cluster(settings: &mut Settings) -> Cluster {
    let mut node = settings.text("cluster.node");
    if node.is_empty() {
        node = machine_name();
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if node.len() > 100 || !node.chars().all(plain) {
        settings.wrong(
            "cluster.node",
            "must be at most 100 letters, digits, dots, dashes and underscores",
        );
    }
    let address = settings
        .text("cluster.address")
        .trim_end_matches('/')
        .to_owned();
    if !address.is_empty() && !address.starts_with("http://") && !address.starts_with("https://") {
        settings.wrong("cluster.address", "must begin with http:// or https://");
    }
    Cluster { node, address }
}

/// The machine's name, or `local` where it has none that can stand in a lease's owner.
fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c))
        .take(100)
        .collect();
    if name.is_empty() {
        "local".to_owned()
    } else {
        name
    }
}

pub(super) fn storage(settings: &mut Settings) -> Storage {
    let storage = Storage {
        url: settings.text("storage.url"),
        endpoint: settings.text("storage.endpoint"),
        region: settings.text("storage.region"),
    };
    let known = ["s3://", "gs://", "az://"];
    if !storage.url.is_empty() && !known.iter().any(|scheme| storage.url.starts_with(scheme)) {
        settings.wrong("storage.url", "must begin with s3://, gs:// or az://");
    }
    let web = |text: &str| text.starts_with("http://") || text.starts_with("https://");
    if !storage.endpoint.is_empty() && !web(&storage.endpoint) {
        settings.wrong("storage.endpoint", "must begin with http:// or https://");
    }
    storage
}
