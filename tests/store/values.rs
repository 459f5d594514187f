//! Values, their absence, and what a statement says when it fails.

use std::time::Duration;

use control::cluster::heart::agree;
use control::db::{Db, DbError};
use control::time::{Clock, Timestamp};

/// By a server's clock its processes agree; a file has none.
#[tokio::test]
async fn a_server_tells_its_time_and_a_file_has_none() {
    for place in crate::empty().await {
        let theirs = place.db.time().await.unwrap();
        let clock = Clock::system();
        let wall = clock.now();
        match place.db.engine() {
            control::db::Engine::Sqlite => assert_eq!(theirs, None),
            control::db::Engine::Postgres => {
                let theirs = theirs.unwrap();
                let apart = theirs.since(wall).max(wall.since(theirs));
                assert!(apart < Duration::from_secs(10), "{theirs} at {wall}");
            }
        }
        // Of a wrong clock a server's word takes over.
        let wrong = wall.minus(Duration::from_secs(86_400));
        clock.agree(wrong, clock.moment());
        agree(&place.db, &clock).await.unwrap();
        let shared = clock.shared();
        let right = shared.since(wall).max(wall.since(shared)) < Duration::from_secs(10);
        assert_eq!(right, theirs.is_some(), "{shared} at {wall}");
    }
}

async fn table(db: &Db) {
    let blob = match db.engine() {
        control::db::Engine::Sqlite => "blob",
        control::db::Engine::Postgres => "bytea",
    };
    db.query_built(format!(
        "create table t (id text primary key, n bigint, flag boolean, x double precision, b {blob}, note text)"
    ))
    .execute()
    .await
    .unwrap();
}

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    for place in crate::empty().await {
        let db = &place.db;
        table(db).await;
        let insert = "insert into t (id, n, flag, x, b, note) values ($1, $2, $3, $4, $5, $6)";
        let rows = db
            .query(insert)
            .bind("a")
            .bind(Timestamp(i64::MAX))
            .bind(true)
            .bind(0.1_f64)
            .bind(vec![0_u8, 255])
            .bind("ünï\u{10ffff}")
            .execute()
            .await
            .unwrap();
        assert_eq!(rows, 1);
        db.query(insert)
            .bind("b")
            .bind(None::<i64>)
            .bind(None::<bool>)
            .bind(None::<f64>)
            .bind(None::<Vec<u8>>)
            .bind(None::<String>)
            .execute()
            .await
            .unwrap();
        let all = db
            .query("select * from t order by id")
            .all(|row| {
                Ok((
                    row.opt_time("n")?,
                    row.opt_bool("flag")?,
                    row.opt_f64("x")?,
                    row.opt_blob("b")?,
                    row.opt_text("note")?,
                ))
            })
            .await
            .unwrap();
        let full = (
            Some(Timestamp(i64::MAX)),
            Some(true),
            Some(0.1),
            Some(vec![0, 255]),
            Some("ünï\u{10ffff}".to_owned()),
        );
        assert_eq!(all, [full, (None, None, None, None, None)]);

        // A filter that may be absent, whichever way round it is written.
        for sql in [
            "select count(*) as n from t where ($1 is null or note = $1) and ($2 is null or n = $2)",
            "select count(*) as n from t where (note = $1 or $1 is null) and (n = $2 or $2 is null)",
        ] {
            let count = async |note: Option<&str>, n: Option<i64>| {
                let query = db.query(sql).bind(note).bind(n);
                query.one(|row| row.u32("n")).await.unwrap()
            };
            assert_eq!(count(None, None).await, 2);
            assert_eq!(count(Some("ünï\u{10ffff}"), Some(i64::MAX)).await, 1);
            assert_eq!(count(Some("other"), None).await, 0);
        }
        let sums = "select cast(sum(n) as bigint) as n, 7 as seven, count(n) > 0 as some,
            cast(avg(x) as double precision) as x from t where id = $1";
        let sums = db.query(sums).bind("a").one(|row| {
            Ok((
                row.i64("n")?,
                row.i64("seven")?,
                row.bool("some")?,
                row.f64("x")?,
            ))
        });
        assert_eq!(sums.await.unwrap(), (i64::MAX, 7, true, 0.1));

        let none = db.query("select id from t where id = $1").bind("c");
        assert_eq!(none.optional(|row| row.text("id")).await.unwrap(), None);
        let null = db.query("select n from t where id = 'b'");
        let error = null.one(|row| row.i64("n")).await.unwrap_err();
        assert!(
            matches!(&error, DbError::Column { column, .. } if column == "n"),
            "{error}"
        );
        let missing = db.query("select n from t where id = 'b'");
        let error = missing.one(|row| row.text("nothing")).await.unwrap_err();
        assert!(matches!(error, DbError::Column { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_duplicate_is_known_as_one() {
    for place in crate::empty().await {
        let db = &place.db;
        table(db).await;
        let insert = || db.query("insert into t (id) values ($1)").bind("a");
        insert().execute().await.unwrap();
        let error = insert().execute().await.unwrap_err();
        assert!(error.is_unique_violation(), "{error}");
        assert!(!error.is_unavailable() && !error.is_conflict(), "{error}");
        let quiet = "insert into t (id) values ($1) on conflict (id) do nothing returning id";
        let row = db.query(quiet).bind("a").optional(|row| row.text("id"));
        assert_eq!(row.await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_transaction_is_whole_or_nothing() {
    for place in crate::empty().await {
        let db = &place.db;
        table(db).await;
        let count = async || {
            let rows = db.query("select count(*) as n from t");
            rows.one(|row| row.u32("n")).await.unwrap()
        };
        // More often than there are connections, so that each is given back as good as new.
        for _ in 0..40 {
            let mut tx = db.begin_write().await.unwrap();
            let insert = tx.query("insert into t (id) values ($1)").bind("a");
            insert.execute().await.unwrap();
            drop(tx);
        }
        assert_eq!(count().await, 0);
        let mut tx = db.begin_write().await.unwrap();
        let insert = tx.query("insert into t (id) values ($1)").bind("a");
        insert.execute().await.unwrap();
        let own = tx.query("select count(*) as n from t");
        assert_eq!(own.one(|row| row.u32("n")).await.unwrap(), 1);
        tx.commit().await.unwrap();
        assert_eq!(count().await, 1);
    }
}

#[tokio::test]
async fn what_failed_is_not_committed() {
    let [_, postgres] = crate::empty().await;
    let db = &postgres.db;
    table(db).await;
    let mut tx = db.begin_write().await.unwrap();
    let first = tx.query("insert into t (id) values ('a')");
    first.execute().await.unwrap();
    let again = tx.query("insert into t (id) values ('a')");
    assert!(again.execute().await.unwrap_err().is_unique_violation());
    assert!(matches!(tx.commit().await, Err(DbError::Aborted)));
    let left = db.query("select count(*) as n from t");
    assert_eq!(left.one(|row| row.u32("n")).await.unwrap(), 0);
    // A text that only one of the engines takes is the sender's fault, not the server's.
    let nul = db.query("select id from t where id = $1").bind("a\0b");
    let error = nul.optional(|row| row.text("id")).await.unwrap_err();
    assert!(error.is_bad_text(), "{error}");
}
