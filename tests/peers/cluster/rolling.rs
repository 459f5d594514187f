//! Two nodes are restarted one after the other while callers come: a client that tries the other node, as
//! a proxy does, is never without an answer, and no call is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kit::client::Client;
use kit::server::{Server, reqwest_client};
use kit::socket::{Caller, native};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::stage::{Cluster, agent, soak};

/// How long a caller stays.
const TALK: u64 = 2_000;

/// A client in front of both nodes.
#[derive(Clone)]
struct Proxy {
    nodes: [String; 2],
    key: String,
    http: reqwest::Client,
    turn: Arc<AtomicUsize>,
    /// Answers by their status and error code.
    seen: Arc<std::sync::Mutex<BTreeMap<(u16, String), usize>>>,
}

impl Proxy {
    /// Asks a node, and the other one when it is not there or is leaving.
    async fn connect(&self, agent: &str) -> Option<Value> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for place in 0..2 {
            let node = &self.nodes[(first + place) % 2];
            let asked = self
                .http
                .post(format!("{node}/api/v1/conversation/connect"));
            let asked = asked.header("x-api-key", &self.key).json(&native(agent));
            // A node that has ended refuses the connection: the proxy's next.
            let Ok(answer) = asked.send().await else {
                continue;
            };
            let status = answer.status().as_u16();
            let waits = answer.headers().contains_key("retry-after");
            let body = answer.json::<Value>().await.unwrap_or_default();
            let code = body["code"].as_str().unwrap_or_default();
            let seen = (status, code.to_owned());
            *self.seen.lock().unwrap().entry(seen).or_default() += 1;
            assert!(
                status == 200 || (status == 503 && waits),
                "{status}, {waits}: {body}"
            );
            if status == 200 {
                return Some(body);
            }
        }
        None
    }

    /// Joins a session at any node that takes it.
    async fn join(&self, session: &Value) -> Option<Caller> {
        let url = session["ws_url"].as_str()?;
        let here = url.split("/ws/").nth(1)?;
        for place in 0..4 {
            let node = self.nodes[place % 2].replace("http://", "ws://");
            let Ok(mut caller) = Caller::open(&format!("{node}/ws/{here}")).await else {
                continue;
            };
            caller.session_id = session["session_id"].as_str()?.to_owned();
            caller.listen(200).await;
            if caller.closed.is_none() {
                return Some(caller);
            }
        }
        None
    }
}

/// Row 9.
#[tokio::test]
async fn a_rolling_restart_fails_no_connect_and_loses_no_call() {
    let cluster = Cluster::new().await;
    let (a, b) = tokio::join!(cluster.node("a").start(), cluster.node("b").start());
    let mut nodes = [a, b];
    let agent = agent(&nodes[0].client()).await;
    let proxy = Proxy {
        nodes: [nodes[0].url.clone(), nodes[1].url.clone()],
        key: cluster.key.clone(),
        http: reqwest_client(),
        turn: Arc::default(),
        seen: Arc::default(),
    };
    let (a_second, rounds) = if soak() { (20, 3) } else { (5, 1) };
    let over = Arc::new(AtomicBool::new(false));
    let calling = tokio::spawn(callers(proxy.clone(), agent, a_second, Arc::clone(&over)));
    for _ in 0..rounds {
        for node in &mut nodes {
            sleep(Duration::from_secs(2)).await;
            restart(node).await;
        }
    }
    sleep(Duration::from_secs(2)).await;
    over.store(true, Ordering::Relaxed);
    let calls = calling.await.unwrap();
    let client = nodes[0].client();
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for id in &calls.joined {
        *ends.entry(end_of(&client, id).await).or_default() += 1;
    }
    println!(
        "{} connects ({:?}), {} without an answer, {} not joined; the calls ended by {ends:?}",
        calls.asked,
        proxy.seen.lock().unwrap(),
        calls.refused,
        calls.lost
    );
    assert!(calls.asked >= 20);
    assert_eq!((calls.refused, calls.lost), (0, 0));
    assert_eq!(ends.into_keys().collect::<Vec<_>>(), ["caller_hangup"]);
}

/// SIGTERM; the node ends once its calls have, and comes back.
async fn restart(node: &mut Server) {
    node.terminate();
    assert_eq!(node.ended(Duration::from_secs(40)).await, Some(0));
    node.start_again().await;
}

/// What became of the callers.
#[derive(Default)]
struct Calls {
    asked: usize,
    refused: usize,
    lost: usize,
    joined: Vec<String>,
}

enum Fate {
    Refused,
    Lost,
    Joined(String),
}

/// Callers at this rate until it is over, and then until the last has hung up.
async fn callers(proxy: Proxy, agent: String, a_second: u64, over: Arc<AtomicBool>) -> Calls {
    let mut ticks = interval(Duration::from_millis(1000 / a_second));
    let mut all = JoinSet::new();
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (proxy, agent) = (proxy.clone(), agent.clone());
        all.spawn(async move {
            let Some(session) = proxy.connect(&agent).await else {
                return Fate::Refused;
            };
            let Some(mut caller) = proxy.join(&session).await else {
                return Fate::Lost;
            };
            caller.listen(TALK).await;
            if caller.closed.is_some() {
                return Fate::Lost;
            }
            let id = caller.session_id.clone();
            caller.hang_up().await;
            Fate::Joined(id)
        });
    }
    let mut calls = Calls::default();
    while let Some(fate) = all.join_next().await {
        calls.asked += 1;
        match fate.unwrap() {
            Fate::Refused => calls.refused += 1,
            Fate::Lost => calls.lost += 1,
            Fate::Joined(id) => calls.joined.push(id),
        }
    }
    calls
}

async fn end_of(client: &Client, id: &str) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let call = client.get(&format!("/calls/{id}")).await.expect(200).body;
        if let Some(reason) = call["end_reason"].as_str() {
            return reason.to_owned();
        }
        assert!(Instant::now() < until, "{call}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Row 51: what one node takes back is refused by the other at once, whatever Redis does.
#[tokio::test]
async fn an_audio_token_that_one_node_revokes_is_refused_by_the_other() {
    let mut cluster = Cluster::new().await;
    let a = cluster.node("a").start().await;
    let objects = a.data.join("objects");
    let b = cluster.node("b").start().await;
    // Both have the same store: a bucket elsewhere, one folder here.
    let theirs = b.data.join("objects");
    if theirs.exists() {
        std::fs::remove_dir_all(&theirs).unwrap();
    }
    std::os::unix::fs::symlink(&objects, &theirs).unwrap();
    let (at_a, at_b) = (a.client(), b.client());
    let agent = agent(&at_a).await;
    let mut caller = Caller::call(&at_a, &native(&agent)).await;
    let id = caller.session_id.clone();
    caller.wait_for("audio", 3000).await;
    caller.listen(500).await;
    caller.hang_up().await;
    let until = Instant::now() + Duration::from_secs(10);
    while at_a.get(&format!("/calls/{id}")).await.body["has_recording"] != true {
        assert!(Instant::now() < until, "no recording");
        sleep(Duration::from_millis(50)).await;
    }
    for redis in [true, false] {
        if !redis {
            cluster.redis.kill();
        }
        let link = at_a.get(&format!("/conversations/{id}/audio")).await;
        let token = link.expect(200).text("token");
        let path = format!("/conversations/{id}/audio.wav?token={token}");
        b.anonymous().get(&path).await.expect(200);
        let revoke = format!("/conversations/{id}/audio/revoke");
        let body = json!({"token": token});
        at_a.post(&revoke, &body).await.expect(200);
        let revoked = Instant::now();
        let refused = b.anonymous().get(&path).await.expect(401);
        println!(
            "refused {:?} after: {}",
            revoked.elapsed(),
            refused.text("code")
        );
        a.anonymous().get(&path).await.expect(401);
    }
    at_b.get(&format!("/calls/{id}")).await.expect(200);
}
