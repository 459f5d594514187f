//! A crowd with one key has two nodes call at the same moment, over one trunk: what its slots and its hour allow is
//! counted once, by both together.

use std::net::UdpSocket;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use serde_json::{Value, json};

use crate::stage::{Cluster, agent, soak};

const FROM: &str = "+15550100";
const SLOTS: usize = 17;
const HOUR: usize = 23;

/// Asks both nodes at once: the calls that were taken.
async fn rush(nodes: &[Client; 2], wish: &Value) -> Vec<String> {
    let crowd = if soak() { 1_000 } else { 100 };
    let asked = (0..crowd).map(async |n| nodes[n % 2].post("/calls/trigger", wish).await);
    let mut taken = Vec::new();
    for answer in join_all(asked).await {
        match answer.status {
            202 => taken.push(answer.text("call_id")),
            429 => assert_eq!(answer.body["resource"], "trunk", "{}", answer.body),
            _ => panic!("{}", answer.body),
        }
    }
    taken
}

#[tokio::test]
async fn of_a_crowd_at_two_nodes_as_many_are_called_as_the_trunk_allows() {
    let cluster = Cluster::new().await;
    let (a, _) = cluster.reachable_node("a");
    let (b, _) = cluster.reachable_node("b");
    let (a, b) = tokio::join!(a.start(), b.start());
    let nodes = [a.client(), b.client()];
    // A carrier that never answers.
    let carrier = UdpSocket::bind("127.0.0.1:0").unwrap();
    let trunk = json!({"name": "Silence", "auth_mode": "ip_acl", "numbers": [FROM],
        "outbound_address": carrier.local_addr().unwrap().to_string(),
        "max_concurrent_calls": SLOTS, "calls_per_hour_limit": HOUR});
    nodes[0]
        .post("/sip-trunks/onboard", &trunk)
        .await
        .expect(201);
    let agent = agent(&nodes[0]).await;
    let wish = json!({"agent_id": agent, "to_number": "+4930123456", "from_number": FROM});
    let first = rush(&nodes, &wish).await;
    assert_eq!(first.len(), SLOTS);
    assert_eq!(cluster.redis.leases().await, SLOTS as u64);
    // Whichever node it was that called.
    for id in &first {
        let path = format!("/calls/{id}/end");
        nodes[1].post(&path, &json!({})).await.expect(200);
    }
    cluster.empty(Duration::from_secs(10)).await;
    // Their slots are given back, the hour is not.
    let second = rush(&nodes, &wish).await;
    assert_eq!(second.len(), HOUR - SLOTS);
    assert_eq!(
        cluster.calls().await,
        HOUR as i64,
        "a record for each, and for no other"
    );
}
