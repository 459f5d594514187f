//! Both engines have the same tables.

use std::collections::BTreeSet;

use control::db::{Db, Engine};

/// Each column as `table.column kind`, with `not null` where it may not be null.
async fn columns(db: &Db) -> BTreeSet<String> {
    let sql = match db.engine() {
        Engine::Sqlite => {
            "select m.name as tab, c.name as col, lower(c.type) as kind,
                    c.\"notnull\" = 1 or c.pk > 0 as required
             from sqlite_master m join pragma_table_info(m.name) c where m.type = 'table'"
        }
        Engine::Postgres => {
            "select cast(table_name as text) as tab, cast(column_name as text) as col,
                    cast(data_type as text) as kind, is_nullable = 'NO' as required
             from information_schema.columns where table_schema = 'public'"
        }
    };
    let read = db.query(sql).all(|row| {
        let kind = match row.text("kind")?.as_str() {
            "bytea" => "blob".to_owned(),
            "double precision" => "real".to_owned(),
            other => other.to_owned(),
        };
        let required = if row.bool("required")? {
            " not null"
        } else {
            ""
        };
        Ok(format!(
            "{}.{} {kind}{required}",
            row.text("tab")?,
            row.text("col")?
        ))
    });
    let all = read.await.unwrap();
    // The migrator's own table is not ours, nor are those that SQLite keeps.
    let own = |name: &String| name.starts_with("_sqlx") || name.starts_with("sqlite_");
    all.into_iter().filter(|name| !own(name)).collect()
}

/// The names of the indexes that a migration made by name.
async fn indexes(db: &Db) -> BTreeSet<String> {
    let sql = match db.engine() {
        Engine::Sqlite => {
            "select name from sqlite_master where type = 'index' and sql is not null"
        }
        Engine::Postgres => {
            "select cast(c.relname as text) as name from pg_index i join pg_class c on c.oid = i.indexrelid
             where c.relnamespace = 'public'::regnamespace
                and not exists (select 1 from pg_constraint k where k.conindid = c.oid)"
        }
    };
    let read = db.query(sql).all(|row| row.text("name"));
    read.await.unwrap().into_iter().collect()
}

#[tokio::test]
async fn tables_columns_and_indexes_are_the_same() {
    let [sqlite, postgres] = crate::both().await;
    let (left, right) = (columns(&sqlite.db).await, columns(&postgres.db).await);
    assert!(left.len() > 60, "{left:?}");
    let differ: Vec<&String> = left.symmetric_difference(&right).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    let (left, right) = (indexes(&sqlite.db).await, indexes(&postgres.db).await);
    assert!(left.len() > 10);
    assert_eq!(left, right);
}

#[tokio::test]
async fn several_processes_may_migrate_at_once_and_again() {
    let [_, postgres] = crate::empty().await;
    let (a, b, c) = tokio::join!(
        postgres.db.migrate(),
        postgres.db.migrate(),
        postgres.db.migrate()
    );
    for done in [a, b, c] {
        done.unwrap();
    }
    let [sqlite, _] = crate::both().await;
    sqlite.db.migrate().await.unwrap();
    for db in [&postgres.db, &sqlite.db] {
        let counter = db.query("select value from counters where name = 'incarnation'");
        assert_eq!(counter.one(|row| row.i64("value")).await.unwrap(), 0);
    }
}
