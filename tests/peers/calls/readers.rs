//! Callers who stop reading: each is closed, and costs little until then, and another call hears its
//! agent in time.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::server::Server;
use kit::socket::{Caller, native, telco};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bystander::{Bystander, jitter, no_gap};
use crate::stage;

/// A caller who does not read may cost this much more than one who does, KiB. (Both kernels hold more:
/// about a second of audio each way.)
const HELD: u64 = 64;

/// How unevenly another call may hear its agent: p99, ms.
const UNEVEN: f64 = 10.0;

/// The machine may have other work, but once in so many rounds the other call is served in time.
const ROUNDS: usize = 3;

/// How many stop reading at once.
fn crowd() -> usize {
    if stage::soak() { 500 } else { 50 }
}

#[tokio::test]
async fn who_reads_on_after_the_close_learns_of_it() {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    for connect in [native(&agent), telco(&agent)] {
        let session = client.connect(&connect).await;
        let mut caller = Caller::join_narrow(&session).await.unwrap();
        let begins = Instant::now() + Duration::from_millis(500);
        caller.receive_until(begins).await;
        let began = Instant::now();
        while server_calls(&client).await > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "it goes on");
            sleep(Duration::from_millis(20)).await;
        }
        let code = caller.close_code(Duration::from_secs(5)).await;
        assert_eq!(code, Some(1011), "{connect}");
        assert!(caller.of_kind("call_ended").is_empty());
    }
}

#[tokio::test]
async fn fifty_who_stop_reading_are_closed_and_hold_little() {
    stop_reading(native).await;
}

#[tokio::test]
async fn fifty_vendors_who_stop_reading_are_closed_and_hold_little() {
    stop_reading(telco).await;
}

async fn stop_reading(connect: fn(&str) -> Value) {
    let _alone = stage::alone().await;
    let server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    // What as many calls take whose callers read; the third time, for the allocator keeps what it
    // was given.
    let mut usual = 0;
    for _ in 0..3 {
        let mut readers = joined(&client, &connect(&agent)).await;
        for _ in 0..30 {
            let until = Instant::now() + Duration::from_millis(100);
            join_all(readers.iter_mut().map(|r| r.receive_until(until))).await;
            usual = usual.max(server.memory_kib());
        }
        join_all(readers.into_iter().map(Caller::hang_up)).await;
        while server_calls(&client).await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }

    let mut ended = 3 * crowd();
    let mut uneven = Vec::new();
    while uneven.len() < ROUNDS {
        uneven.push(without_readers(&server, &agent, &connect(&agent), usual).await);
        // The other call too.
        ended += crowd() + 1;
        ended_calls(&server, ended).await;
        if uneven[uneven.len() - 1] < UNEVEN {
            break;
        }
    }
    let last = uneven[uneven.len() - 1];
    assert!(last < UNEVEN, "another call's p99: {uneven:?} ms");
}

/// A crowd that stops reading, beside a call that is heard: how unevenly, p99 in ms. `usual` is the
/// memory of the server with as many who read, KiB.
async fn without_readers(server: &Server, agent: &str, connect: &Value, usual: u64) -> f64 {
    let client = server.client();
    let heard = stage::session(&client, agent).await;
    let heard_id = heard.text("session_id");
    let bystander = Bystander::join(heard);
    let readers = joined(&client, connect).await;
    let began = Instant::now();
    let (mut held, mut ending) = (0, 0);
    loop {
        let calls = server_calls(&client).await;
        let memory = server.memory_kib();
        if calls == 1 {
            break;
        }
        // Nobody is closed before 2 s; then all end at once and are written, while what waits for those
        // who do not read is still held.
        if began.elapsed() < Duration::from_millis(1900) {
            held = held.max(memory);
        } else {
            ending = ending.max(memory);
        }
        sleep(Duration::from_millis(20)).await;
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "not closed within 10 s"
        );
    }
    let took = began.elapsed().as_secs_f64();
    sleep(Duration::from_millis(500)).await;
    let heard = bystander.leave();
    no_gap(&heard);
    let uneven = jitter(&heard, began);
    println!(
        "closed after {took:.1} s; {usual} KiB with readers, {held} without, {ending} as they end; \
         the other call's p99 is {uneven:.1} ms from 20"
    );
    // The other call has its own.
    let usual = usual + 512;
    let crowd = crowd() as u64;
    assert!(held <= usual + crowd * HELD, "{usual} KiB, but {held}");
    assert!(
        ending <= usual + 2 * crowd * HELD,
        "{usual} KiB, but {ending}"
    );
    for reader in &readers {
        let call = stage::over(&client, &reader.session_id, Duration::from_secs(10)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"]),
            (&json!("failed"), &json!("media_timeout"))
        );
    }
    stage::over(&client, &heard_id, Duration::from_secs(10)).await;
    uneven
}

/// A crowd of calls that are read until all of them have begun, and for a second more.
async fn joined(client: &Client, connect: &Value) -> Vec<Caller> {
    let begun = Cell::new(0);
    let join = async || {
        let session = client.connect(connect).await;
        let mut caller = Caller::join_narrow(&session).await.unwrap();
        begun.set(begun.get() + 1);
        while begun.get() < crowd() {
            let soon = Instant::now() + Duration::from_millis(50);
            caller.receive_until(soon).await;
        }
        let later = Instant::now() + Duration::from_secs(1);
        caller.receive_until(later).await;
        caller
    };
    join_all((0..crowd()).map(|_| join())).await
}

async fn server_calls(client: &Client) -> usize {
    let calls = client.get("/calls?status=in_progress").await.expect(200);
    calls.body["total"].as_u64().unwrap() as usize
}

/// One event for each call that has ended.
async fn ended_calls(server: &Server, count: usize) {
    let db = server.database().await;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let calls: Vec<String> = db
            .query("select call_id from events where type = 'call.ended'")
            .all(|row| row.text("call_id"))
            .await
            .unwrap();
        if calls.len() == count || Instant::now() > until {
            let mut once = calls.clone();
            once.sort();
            once.dedup();
            assert_eq!((calls.len(), once.len()), (count, count));
            return db.close().await;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
