//! The store on both engines: what goes in comes out, who writes at the same time, what a server does
//! that goes away.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod command;
mod jobs;
mod outage;
mod schema;
mod tls;
mod trunks;
mod values;
mod writers;

use control::db::Db;

/// A database with the tables, and what keeps it.
pub(crate) struct Place {
    pub(crate) db: Db,
    _folder: Option<tempfile::TempDir>,
}

/// An empty SQLite file and an empty PostgreSQL database.
pub(crate) async fn empty() -> [Place; 2] {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("t.db").display());
    let postgres = kit::postgres::shared().database().await;
    [
        Place {
            db: Db::open(&sqlite).await.unwrap(),
            _folder: Some(folder),
        },
        Place {
            db: Db::open(&postgres).await.unwrap(),
            _folder: None,
        },
    ]
}

/// The same with all tables.
pub(crate) async fn both() -> [Place; 2] {
    let places = empty().await;
    for place in &places {
        place.db.migrate().await.unwrap();
    }
    places
}
