//! A server that goes away, hangs or is changed under its users.

use std::time::{Duration, Instant};

use control::db::{Db, DbError, Readiness, Settings};
use control::http::ApiError;
use futures_util::future::join_all;
use kit::postgres::Postgres;

/// A pool as small and as impatient as can be.
const SMALL: Settings = Settings {
    connections: 4,
    acquire: Duration::from_secs(2),
    statement: Duration::from_secs(1),
};

async fn open(server: &Postgres) -> Db {
    let url = server.database().await;
    Db::open_with(&url, &SMALL).await.unwrap()
}

#[tokio::test]
async fn after_a_crash_every_connection_is_a_new_one() {
    let server = Postgres::start();
    let db = open(&server).await;
    let table = "create table t (id bigint primary key)";
    db.query(table).execute().await.unwrap();
    // All connections are open, and one is in the middle of a transaction.
    let pings = join_all((0..8).map(|_| db.ping())).await;
    assert!(pings.iter().all(Result::is_ok));
    let mut tx = db.begin_write().await.unwrap();
    let insert = tx.query("insert into t (id) values (1)");
    insert.execute().await.unwrap();

    server.crash();
    let error = tx.query("insert into t (id) values (2)").execute().await;
    assert!(error.unwrap_err().is_unavailable());
    drop(tx);
    let began = Instant::now();
    let error = db.ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(db.is_away());
    // From now on nobody waits.
    let began = Instant::now();
    for answer in join_all((0..200).map(|_| db.ping())).await {
        assert!(matches!(answer, Err(DbError::Away)));
    }
    assert!(matches!(db.begin_write().await, Err(DbError::Away)));
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );

    server.start_again();
    let began = Instant::now();
    db.returned().await;
    for answer in join_all((0..8).map(|_| db.ping())).await {
        answer.unwrap();
    }
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let rows = db.query("select count(*) as n from t");
    assert_eq!(rows.one(|row| row.u32("n")).await.unwrap(), 0);
}

#[tokio::test]
async fn a_server_that_hangs_holds_nobody_for_long() {
    let server = Postgres::start();
    let db = open(&server).await;
    let pings = join_all((0..4).map(|_| db.ping())).await;
    assert!(pings.iter().all(Result::is_ok));
    server.hang(true);
    let began = Instant::now();
    let answers = join_all((0..20).map(|_| db.ping())).await;
    let took = began.elapsed();
    let refused = db.ping().await;
    server.hang(false);
    for answer in answers {
        assert!(answer.unwrap_err().is_unavailable());
    }
    // A connection's test has the time of an acquire, a statement its own and a second of grace.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(matches!(refused, Err(DbError::Away)));
    db.returned().await;
    for answer in join_all((0..20).map(|_| db.ping())).await {
        answer.unwrap();
    }
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_alone() {
    let url = kit::postgres::shared().database().await;
    let db = Db::open_with(&url, &SMALL).await.unwrap();
    let began = Instant::now();
    let slow = db.query("select pg_sleep(30) is null as slept");
    let error = slow.one(|row| row.bool("slept")).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() < Duration::from_millis(1900));
    assert!(!db.is_away());
    let told = ApiError::from(error);
    assert_eq!(told.status(), 503);
    assert!(told.message().contains("took too long"), "{told:?}");
    assert!(told.retry_after().is_some());
    db.ping().await.unwrap();
}

#[tokio::test]
async fn who_finds_no_connection_is_told_so() {
    let url = kit::postgres::shared().database().await;
    let impatient = Settings {
        acquire: Duration::from_millis(500),
        ..SMALL
    };
    let db = Db::open_with(&url, &impatient).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..SMALL.connections {
        held.push(db.begin_write().await.unwrap());
    }
    let error = db.ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(!db.is_away(), "the server is there");
    assert_eq!(db.readiness().await, Readiness::Ready);
    held.clear();
    db.ping().await.unwrap();
}

#[tokio::test]
async fn a_trial_of_a_write_that_takes_too_long_stops_no_write() {
    let server = Postgres::start();
    let db = open(&server).await;
    for step in [
        "create table counters (name text primary key, value bigint not null)",
        "insert into counters (name, value) values ('incarnation', 0)",
        "create function wait() returns event_trigger language plpgsql as
            'begin perform pg_sleep(30); end'",
        // No table is made as long as it is there.
        "create event trigger waits on ddl_command_start execute function wait()",
    ] {
        db.query(step).execute().await.unwrap();
    }
    let full = "do $$ begin raise exception using errcode = '53100'; end $$";
    let error = db.query(full).execute().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    // For longer than two looks wait.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        let write = "update counters set value = value + 1";
        assert_eq!(db.query(write).execute().await.unwrap(), 1);
        assert!(!db.is_away());
    }
    assert_eq!(db.readiness().await, Readiness::Ready);
    db.query("drop event trigger waits")
        .execute()
        .await
        .unwrap();
    db.returned().await;
}

#[tokio::test]
async fn a_table_may_be_changed_under_those_who_read_it() {
    let url = kit::postgres::shared().database().await;
    let db = Db::open_with(&url, &SMALL).await.unwrap();
    let make = "create table t (id bigint primary key)";
    db.query(make).execute().await.unwrap();
    let insert = "insert into t (id) values (1)";
    db.query(insert).execute().await.unwrap();
    let read = || db.query("select * from t").all(|row| row.i64("id"));
    for ids in join_all((0..8).map(|_| read())).await {
        assert_eq!(ids.unwrap(), [1]);
    }
    // As a newer version of the program does while this one runs.
    let change = "alter table t add column more text not null default 'x'";
    db.query(change).execute().await.unwrap();
    for ids in join_all((0..8).map(|_| read())).await {
        assert_eq!(ids.unwrap(), [1]);
    }
}

#[tokio::test]
async fn a_server_that_became_read_only_is_read_from_and_written_to_once_it_is_not() {
    let server = Postgres::start();
    let db = open(&server).await;
    for table in [
        "create table counters (name text primary key, value bigint not null)",
        "insert into counters (name, value) values ('incarnation', 0)",
    ] {
        db.query(table).execute().await.unwrap();
    }
    let pings = join_all((0..8).map(|_| db.ping())).await;
    assert!(pings.iter().all(Result::is_ok));
    let write = || db.query("update counters set value = value + 1").execute();
    write().await.unwrap();

    server
        .set("default_transaction_read_only", Some("on"))
        .await;
    let began = Instant::now();
    let error = loop {
        match write().await {
            Err(error) => break error,
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(5)),
        }
    };
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(ApiError::from(error).status(), 503);
    while !db.is_away() {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    assert!(matches!(db.begin_write().await, Err(DbError::NoWrites)));
    assert!(matches!(db.takes_writes().await, Err(DbError::NoWrites)));
    for answer in join_all((0..8).map(|_| db.ping())).await {
        answer.unwrap();
    }

    server.set("default_transaction_read_only", None).await;
    db.returned().await;
    // Every connection is a new one: the old ones may lead to a server that still takes none.
    for answer in join_all((0..8).map(|_| write())).await {
        assert_eq!(answer.unwrap(), 1);
    }
    db.takes_writes().await.unwrap();
}

/// What a server lacks now and may have again, by its SQLSTATE, and what does not pass by waiting.
#[tokio::test]
async fn a_server_that_lacks_something_is_no_fault_of_this_one() {
    let server = Postgres::start();
    let db = open(&server).await;
    for (passes, state) in [
        (true, "53000"),
        (true, "53100"),
        (true, "53200"),
        (true, "53300"),
        (true, "53400"),
        (true, "58000"),
        (true, "58030"),
        (true, "25006"),
        (true, "25P03"),
        (true, "57P01"),
        (true, "57P02"),
        (true, "57P03"),
        (true, "57P05"),
        (true, "08006"),
        (false, "58P01"),
        (false, "XX001"),
        (false, "XX002"),
        (false, "42P01"),
    ] {
        let raise = format!("do $$ begin raise exception using errcode = '{state}'; end $$");
        let error = db.query_built(raise).execute().await.unwrap_err();
        assert_eq!(error.is_unavailable(), passes, "{state}: {error}");
        let told = ApiError::from(error);
        let status = if passes { 503 } else { 500 };
        assert_eq!(told.status(), status, "{state}");
        assert_eq!(told.retry_after().is_some(), passes, "{state}");
        // The server is well: a look finds it so.
        db.returned().await;
        let mut tx = db.begin_write().await.unwrap();
        tx.query("select 1 as one")
            .one(|row| row.i64("one"))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    // One that is really ended.
    let mut tx = db.begin_write().await.unwrap();
    let ended = tx.query("select pg_terminate_backend(pg_backend_pid()) as ended");
    let error = ended.one(|row| row.bool("ended")).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    drop(tx);
    db.ping().await.unwrap();
}
