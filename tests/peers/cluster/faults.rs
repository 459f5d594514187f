//! Live calls on two nodes through faults of a node and of Redis: who is not concerned hears no gap, and
//! afterwards records, events and leases are right.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::server::Server;
use kit::socket::{self, Caller, native};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, soak};

/// A longer pause between two pieces of the agent's sound is a gap that is heard. In the small volume
/// other tests run beside it.
fn gap() -> Duration {
    Duration::from_millis(if soak() { 500 } else { 3000 })
}

/// Calls at the same time.
fn volume() -> usize {
    if soak() { 30 } else { 6 }
}

/// An agent that speaks for minutes.
async fn talker(client: &Client) -> String {
    let fields = json!({
        "voice_id": socket::scripted_voice(client).await,
        "llm_model": "echo",
        "first_message": "And this goes on and on, as long as somebody listens. ".repeat(17),
        "interruption_enabled": false,
        "webhook_url": "https://hooks.example.com/calls",
    });
    socket::agent(client, fields).await
}

/// Calls that hear their agent.
async fn calls(client: &Client, agent: &str, count: usize) -> Vec<Caller> {
    join_all((0..count).map(async |_| {
        let mut caller = Caller::call(client, &native(agent)).await;
        caller.wait_for("audio", 5000).await;
        caller
    }))
    .await
}

/// All of them still hear it, and did so all the time.
fn check_heard(callers: &[Caller], from: Instant) {
    for caller in callers {
        assert_eq!(caller.closed, None, "a call was lost");
        let heard = caller.audio_since(from);
        let pauses = heard.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let longest = pauses.max().unwrap_or(Duration::MAX);
        assert!(longest < gap(), "{longest:?} of silence");
    }
}

/// The calls once they are over, each with its one event.
async fn check_over(server: &Server, cluster: &Cluster, ids: &[String], reason: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    let mut events = BTreeSet::new();
    for id in ids {
        let call = loop {
            let call = server.client().get(&format!("/calls/{id}")).await;
            let call = call.expect(200).body;
            if !call["ended_at"].is_null() {
                break call;
            }
            assert!(Instant::now() < until, "still open: {call}");
            sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(call["end_reason"], reason, "{call}");
        let bodies: Vec<String> = cluster
            .db
            .query("select body from events where call_id = $1 and type = 'call.ended'")
            .bind(id.as_str())
            .all(|row| row.text("body"))
            .await
            .unwrap();
        assert_eq!(bodies.len(), 1, "{id}");
        let body: Value = serde_json::from_str(&bodies[0]).unwrap();
        assert_eq!(body["status"], call["status"]);
        events.insert(body["event_id"].to_string());
    }
    assert_eq!(events.len(), ids.len());
}

async fn ready(server: &Server) {
    let until = Instant::now() + Duration::from_secs(10);
    while server.client().get("//readyz").await.status != 200 {
        assert!(Instant::now() < until, "not ready");
        sleep(Duration::from_millis(20)).await;
    }
}

fn ids(callers: &[Caller]) -> Vec<String> {
    callers.iter().map(|c| c.session_id.clone()).collect()
}

#[tokio::test]
async fn when_one_of_two_nodes_dies_only_its_calls_end() {
    let cluster = Cluster::new().await;
    let a = cluster.node("a").start().await;
    let mut b = cluster.node("b").start().await;
    ready(&a).await;
    ready(&b).await;
    let agent = talker(&a.client()).await;
    let half = volume() / 2;
    let mut staying = calls(&a.client(), &agent, half).await;
    let mut dying = calls(&b.client(), &agent, half).await;
    let (kept, lost) = (ids(&staying), ids(&dying));
    let killed = Instant::now();
    b.kill();
    let mut freed = None;
    while killed.elapsed() < Duration::from_secs(20) {
        join_all(staying.iter_mut().map(|caller| caller.listen(250))).await;
        let leases = cluster.redis.leases().await;
        if leases == half as u64 {
            freed = Some(killed.elapsed());
            break;
        }
    }
    let freed = freed.expect("leases of the dead node are left");
    assert!(freed <= Duration::from_secs(15), "{freed:?}");
    for caller in &mut dying {
        assert!(caller.close_code(Duration::from_secs(1)).await.is_some());
    }
    check_over(&a, &cluster, &lost, "node_lost").await;
    println!(
        "{half} calls of a dead node: leases free after {freed:?}, all over after {:?}",
        killed.elapsed()
    );
    check_heard(&staying, killed);
    join_all(staying.into_iter().map(Caller::hang_up)).await;
    check_over(&a, &cluster, &kept, "caller_hangup").await;
    cluster.empty(Duration::from_secs(5)).await;
}
