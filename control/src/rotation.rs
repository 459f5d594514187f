//! Rotation of the master key, online: every secret in the database names the key that sealed it, so old
//! and new may stand side by side while they are sealed anew, one by one.

use std::time::Duration;

use crate::db::{Db, DbError};
use crate::node::Node;
use crate::secret::{MasterKey, Purpose};

/// How often a server looks whether another process has added a key.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Secrets that are read at a time: a bound on one pass, not on the work.
const BATCH: i64 = 100;

/// A column of sealed secrets.
struct Sealed {
    table: &'static str,
    /// The row's name: what the secret is bound to.
    row: &'static str,
    column: &'static str,
    purpose: Purpose,
}

/// All of them.
const SEALED: &[Sealed] = &[
    Sealed {
        table: "webhook_secrets",
        row: "account_id",
        column: "sealed",
        purpose: Purpose::WebhookSecret,
    },
    Sealed {
        table: "sip_trunks",
        row: "id",
        column: "password_sealed",
        purpose: Purpose::TrunkPassword,
    },
];

/// Follows the file of the master key until the process ends.
pub async fn run(app: Node) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tick.tick().await;
        let key = app.master_key.clone();
        match tokio::task::spawn_blocking(move || key.reload()).await {
            Ok(Ok(true)) => tracing::info!("the master key was rotated"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the master key's file cannot be read"),
            Err(error) => tracing::warn!(%error, "the master key's file was not read"),
        }
    }
}

/// Seals with the newest key what an older one sealed, in all accounts; how many secrets. One that does
/// not open is left as it is and ends in an error: retiring its key would lose it.
pub async fn seal_anew(db: &Db, key: &MasterKey) -> Result<u64, DbError> {
    let mut count = 0;
    for sealed in SEALED {
        count += column_anew(db, key, sealed).await?;
    }
    Ok(count)
}

async fn column_anew(db: &Db, key: &MasterKey, sealed: &Sealed) -> Result<u64, DbError> {
    let Sealed {
        table,
        row,
        column,
        purpose,
    } = sealed;
    let mut count = 0;
    let mut after = String::new();
    loop {
        let rows: Vec<(String, String)> = db
            .query_built(format!(
                "select {row} as name, {column} as secret from {table}
                 where {row} > $1 and {column} is not null order by {row} limit $2"
            ))
            .bind(&after)
            .bind(BATCH)
            .all(|row| Ok((row.text("name")?, row.text("secret")?)))
            .await?;
        let Some((last, _)) = rows.last() else {
            return Ok(count);
        };
        after.clone_from(last);
        for (name, old) in rows.iter().filter(|(_, old)| !key.is_current(old)) {
            let lost = |why: &str| DbError::Column {
                column: format!("{table}.{column}"),
                why: format!("of {name}: {why}"),
            };
            let plain = key
                .open(*purpose, name, old)
                .ok_or_else(|| lost("no master key that is known opens it"))?;
            let new = key
                .seal(*purpose, name, plain.expose())
                .map_err(|error| lost(&error.to_string()))?;
            // Unless it was changed meanwhile: then a server has sealed it, with the key it knew, and
            // the next rotation or `--retire` finds it.
            count += db
                .query_built(format!(
                    "update {table} set {column} = $1 where {row} = $2 and {column} = $3"
                ))
                .bind(new)
                .bind(name)
                .bind(old)
                .execute()
                .await?;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test may stop at a surprise"
    )]

    use super::*;
    use crate::testing::TestApp;
    use crate::webhooks::service;

    #[tokio::test]
    async fn secrets_are_the_same_after_a_rotation_and_after_the_old_key_is_gone() {
        let test = TestApp::new().await;
        let (other, _) = test.other_account().await;
        let secret = async |account| {
            let secret = service::signing_secret(&test.app, account).await;
            let Ok(secret) = secret else {
                panic!("the secret does not open")
            };
            secret.expose().clone()
        };
        let before = [secret(test.account).await, secret(other).await];
        let file = test.app.config.server.data_dir.join("master.key");
        MasterKey::rotate_file(&file).unwrap();
        let command = MasterKey::load_or_create(&file).unwrap();
        assert_eq!(seal_anew(&test.app.db, &command).await.unwrap(), 2);
        assert_eq!(seal_anew(&test.app.db, &command).await.unwrap(), 0);
        // The server that runs has not been told.
        assert_eq!([secret(test.account).await, secret(other).await], before);
        MasterKey::retire_file(&file).unwrap();
        assert!(test.app.master_key.reload().unwrap());
        assert_eq!([secret(test.account).await, secret(other).await], before);
    }

    /// Columns whose name says that they are sealed, of all migrations.
    fn sealed_columns() -> Vec<(String, String)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
        let mut found = Vec::new();
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            let sql = std::fs::read_to_string(file.path()).unwrap();
            let mut table = String::new();
            for line in sql.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let column = match words[..] {
                    ["create", "table", name, ..] => {
                        name.trim_matches('(').clone_into(&mut table);
                        continue;
                    }
                    ["alter", "table", name, "add", "column", column, ..] => {
                        name.clone_into(&mut table);
                        column
                    }
                    [column, ..] => column,
                    [] => continue,
                };
                if column == "sealed"
                    || column.ends_with("_sealed")
                    || column.starts_with("sealed_")
                {
                    found.push((table.clone(), column.to_owned()));
                }
            }
        }
        found
    }

    /// The purposes that something is sealed for anywhere in the sources.
    fn sealing(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sealing(&path, found);
                continue;
            }
            let own = ["rotation.rs", "secret.rs"]
                .iter()
                .any(|name| path.ends_with(name));
            if own || path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for (_, rest) in text
                .match_indices(".seal(")
                .map(|(at, _)| text.split_at(at))
            {
                // A packet is sealed in place, for its way only.
                if rest.starts_with(".seal(&mut ") {
                    continue;
                }
                let purpose = rest.split("Purpose::").nth(1).unwrap_or(rest);
                let name = purpose.chars().take_while(|c| c.is_alphanumeric());
                found.push(name.collect());
            }
        }
    }

    #[test]
    fn whatever_is_sealed_is_sealed_anew() {
        let mut listed: Vec<(String, String)> = SEALED
            .iter()
            .map(|sealed| (sealed.table.to_owned(), sealed.column.to_owned()))
            .collect();
        let mut columns = sealed_columns();
        listed.sort();
        columns.sort();
        assert_eq!(listed, columns, "SEALED against the migrations");
        let mut sealed = Vec::new();
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        sealing(std::path::Path::new(sources), &mut sealed);
        assert!(!sealed.is_empty());
        for purpose in sealed {
            let known = SEALED
                .iter()
                .any(|one| format!("{:?}", one.purpose) == purpose);
            assert!(
                known,
                "Purpose::{purpose} seals, but no column of SEALED is for it"
            );
        }
    }

    #[tokio::test]
    async fn a_secret_that_does_not_open_stops_the_rotation() {
        let test = TestApp::new().await;
        let made = service::signing_secret(&test.app, test.account).await;
        assert!(made.is_ok());
        let elsewhere = test.app.config.server.data_dir.join("other.key");
        let stranger = MasterKey::load_or_create(&elsewhere).unwrap();
        let error = seal_anew(&test.app.db, &stranger).await.unwrap_err();
        assert!(
            error.to_string().contains("webhook_secrets.sealed"),
            "{error}"
        );
    }
}
