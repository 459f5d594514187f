//! Live calls on two nodes through faults of a node and of Redis: who is not concerned hears no gap, and
//! afterwards records, events and leases are right.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::redis::Redis;
use kit::relay::Relay;
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

/// The ids of the leases that a server counts.
async fn leases(redis: &Redis) -> BTreeSet<String> {
    let ids: Vec<String> = redis
        .command(&["ZRANGE", "sidetone:{adm}:pool", "0", "-1"])
        .await;
    ids.into_iter().collect()
}

/// Row 4: a replica that heard nothing of the last calls takes over.
#[tokio::test]
async fn calls_live_on_when_a_stale_replica_takes_over_and_no_cap_is_passed() {
    let cluster = Cluster::new().await;
    // A server that gets its first replica is cold for a moment, so it has one before there are nodes.
    let replica = Redis::start().await;
    let port = cluster.redis.address().port().to_string();
    replica
        .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
        .await;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let info: String = replica.command(&["INFO", "replication"]).await;
        if info.contains("master_link_status:up") {
            break;
        }
        assert!(Instant::now() < until, "no replication: {info}");
        sleep(Duration::from_millis(20)).await;
    }
    let relay = Relay::to(cluster.redis.address()).await;
    let count = volume();
    let node = |name| {
        cluster
            .node(name)
            .env("REDIS_URL", &format!("redis://{}", relay.address()))
            .set("LIMITS__ACCOUNT_CALLS", &count.to_string())
            .start()
    };
    let servers = [node("a").await, node("b").await];
    for server in &servers {
        ready(server).await;
    }
    let clients = servers.each_ref().map(Server::client);
    let agent = talker(&clients[0]).await;
    // Half of the calls before the replica is cut off, half after it, on both nodes.
    let half = async || {
        let each = count / 4;
        let mut callers = calls(&clients[0], &agent, each).await;
        callers.extend(calls(&clients[1], &agent, count / 2 - each).await);
        callers
    };
    let mut callers = half().await;
    let until = Instant::now() + Duration::from_secs(10);
    while leases(&replica).await != leases(&cluster.redis).await {
        assert!(Instant::now() < until, "the replica is behind");
        sleep(Duration::from_millis(20)).await;
    }
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    callers.extend(half().await);
    let (from, ids) = (Instant::now(), ids(&callers));
    let known: BTreeSet<String> = ids.iter().cloned().collect();
    assert!(leases(&replica).await.len() < known.len());
    relay.point(Some(replica.address()));
    let mut refused = 0;
    let took = loop {
        for client in &clients {
            let answer = client.post("/conversation/connect", &native(&agent)).await;
            assert!(cluster.open_calls().await.0 <= count as u64);
            match (answer.status, answer.text("code").as_str()) {
                (503, "redis_unavailable" | "redis_error") => refused += 1,
                (429, "capacity") => {
                    assert_eq!(answer.body["current"], json!(count));
                }
                _ => panic!("{}", answer.body),
            }
        }
        if leases(&replica).await == known {
            break from.elapsed();
        }
        assert!(from.elapsed() < Duration::from_secs(10), "not all are told");
        sleep(Duration::from_millis(5)).await;
    };
    println!("a stale replica takes over: {refused} connects refused, all told after {took:?}");
    // Each is counted for the one node that the database says hosts it.
    for id in &ids {
        let key = format!("sidetone:{{adm}}:lease:{id}");
        let owner: String = replica.command(&["HGET", &key, "owner"]).await;
        let host = cluster
            .db
            .query("select owner_node, owner_incarnation from calls where id = $1")
            .bind(id.as_str())
            .one(|row| {
                let node = row.text("owner_node")?;
                Ok(format!("{node}:{}", row.i64("owner_incarnation")?))
            })
            .await
            .unwrap();
        assert_eq!(owner, host, "{id}");
    }
    join_all(callers.iter_mut().map(|caller| caller.listen(2000))).await;
    assert_eq!(leases(&replica).await, known);
    check_heard(&callers, from);
    join_all(callers.into_iter().map(Caller::hang_up)).await;
    check_over(&servers[0], &cluster, &ids, "caller_hangup").await;
    let until = Instant::now() + Duration::from_secs(5);
    while replica.leases().await > 0 {
        assert!(Instant::now() < until, "leases are left");
        sleep(Duration::from_millis(50)).await;
    }
}
