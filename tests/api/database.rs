//! The tests of the API run on the database that `SIDETONE_TEST_DATABASE` names, and on no other.

use std::path::Path;

use kit::server::Server;
use kit::{app, postgres};

/// What only one of the two engines understands.
async fn speaks(db: &control::db::Db, sql: &'static str) -> bool {
    db.query(sql).one(|row| row.text("version")).await.is_ok()
}

#[tokio::test]
async fn an_application_in_the_process_is_on_the_database_that_is_asked_for() {
    let test = app::new().await;
    let db = &test.app.db;
    let postgres = speaks(db, "select current_setting('server_version') as version").await;
    let sqlite = speaks(db, "select sqlite_version() as version").await;
    let asked = std::env::var("SIDETONE_TEST_DATABASE").unwrap_or_default() == "postgres";
    assert_eq!((postgres, sqlite), (asked, !asked));
}

#[tokio::test]
async fn a_program_of_its_own_is_on_the_database_that_is_asked_for() {
    let server = Server::scripted().await;
    let file = server.data.join("sidetone.db").exists();
    assert_eq!(file, !postgres::is_chosen(), "{}", server.data.display());
}

/// An application that was made past the kit would be on SQLite whatever is asked for.
#[test]
fn no_test_of_the_api_makes_its_application_past_the_kit() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("api")];
    let made = ["TestApp::", "new("].concat();
    let changed = ["TestApp::", "with("].concat();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                !text.contains(&made) && !text.contains(&changed),
                "{}",
                path.display()
            );
        }
    }
}
