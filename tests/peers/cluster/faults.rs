//! Live calls on two nodes through faults of a node and of Redis: who is not concerned hears no gap, and
//! afterwards records, events and leases are right.

use std::collections::BTreeSet;
use std::time::Duration;

use kit::peer::{self, Live};
use kit::redis::Redis;
use kit::relay::Relay;
use kit::server::Server;
use kit::socket::native;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, gap, mix, talker};

async fn ready(server: &Server) {
    let until = Instant::now() + Duration::from_secs(10);
    while server.client().get("//readyz").await.status != 200 {
        assert!(Instant::now() < until, "not ready");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn when_one_of_two_nodes_dies_only_its_calls_end() {
    let cluster = Cluster::new().await;
    let ((a, at_a), (b, at_b)) = (cluster.reachable_node("a"), cluster.reachable_node("b"));
    let (a, mut b) = (a.start().await, b.start().await);
    ready(&a).await;
    ready(&b).await;
    let client = a.client();
    let agent = talker(&client).await;
    peer::line(&client, &agent).await;
    let half = mix(2);
    let staying = Live::begin(peer::calls(&client, at_a, &agent, half).await);
    let dying = Live::begin(peer::calls(&b.client(), at_b, &agent, half).await);
    // And one that nobody has answered yet.
    let (rang, _phone) = peer::ringing(&b.client(), &agent).await;
    sleep(Duration::from_secs(1)).await;
    let killed = Instant::now();
    b.kill();
    let freed = loop {
        sleep(Duration::from_millis(50)).await;
        if cluster.redis.leases().await == half.count() as u64 {
            break killed.elapsed();
        }
        assert!(
            killed.elapsed() < Duration::from_secs(15),
            "leases of the dead node are left"
        );
    };
    let mut dying = dying.stop().await;
    let quiet = killed + Duration::from_secs(1);
    for peer in &mut dying {
        // Nobody hangs the others up.
        assert!(!peer.is_socket() || peer.is_lost());
        let after = peer.heard_since(quiet);
        assert!(after.is_empty(), "{} {}: {after:?}", peer.id, peer.way());
    }
    let mut lost = peer::ids(&dying);
    lost.push(rang);
    cluster.check_over(&client, &lost, "node_lost").await;
    let took = killed.elapsed();
    println!(
        "{} calls of a dead node: leases free after {freed:?}, all over after {took:?}",
        lost.len()
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    let mut staying = staying.stop().await;
    peer::check_heard(&mut staying, killed, gap());
    let spoken = peer::spoken(&staying);
    let kept = peer::hang_up(staying).await;
    cluster.check_over(&client, &kept, "caller_hangup").await;
    for (id, spoke) in spoken {
        peer::check_recorded(&client, &id, spoke).await;
    }
    cluster.empty(Duration::from_secs(5)).await;
    // Who hangs up only when the node is back is not left waiting, and ends nothing twice.
    b.start_again().await;
    peer::hang_up(dying).await;
    cluster.check_over(&client, &lost, "node_lost").await;
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
    let (quarter, url) = (mix(4), format!("redis://{}", relay.address()));
    let count = 4 * quarter.count();
    let node = async |name| {
        let (setup, listen) = cluster.reachable_node(name);
        let setup = setup.env("REDIS_URL", &url);
        let setup = setup.set("LIMITS__ACCOUNT_CALLS", &count.to_string());
        (setup.start().await, listen)
    };
    let ((a, at_a), (b, at_b)) = (node("a").await, node("b").await);
    ready(&a).await;
    ready(&b).await;
    let clients = [a.client(), b.client()];
    let agent = talker(&clients[0]).await;
    peer::line(&clients[0], &agent).await;
    // Half of the calls before the replica is cut off, half after it, on both nodes.
    let half = async || {
        let mut peers = peer::calls(&clients[0], at_a, &agent, quarter).await;
        peers.extend(peer::calls(&clients[1], at_b, &agent, quarter).await);
        peers
    };
    let early = half().await;
    let mut ids = peer::ids(&early);
    let early = Live::begin(early);
    let until = Instant::now() + Duration::from_secs(10);
    while leases(&replica).await != leases(&cluster.redis).await {
        assert!(Instant::now() < until, "the replica is behind");
        sleep(Duration::from_millis(20)).await;
    }
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let late = half().await;
    ids.extend(peer::ids(&late));
    let late = Live::begin(late);
    let from = Instant::now();
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
    sleep(Duration::from_secs(2)).await;
    assert_eq!(leases(&replica).await, known);
    let mut peers = early.stop().await;
    peers.extend(late.stop().await);
    peer::check_heard(&mut peers, from, gap());
    peer::hang_up(peers).await;
    cluster.check_over(&clients[0], &ids, "caller_hangup").await;
    let until = Instant::now() + Duration::from_secs(5);
    while replica.leases().await > 0 {
        assert!(Instant::now() < until, "leases are left");
        sleep(Duration::from_millis(50)).await;
    }
}
