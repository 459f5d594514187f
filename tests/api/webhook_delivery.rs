//! At least once, whatever dies: thousands of calls end while the receiver fails three times in ten and
//! the server is killed again and again. `SIDETONE_SOAK=1` takes the full volume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kit::client::Client;
use kit::receiver::{Answer, Receiver};
use serde_json::{Value, json};

use crate::webhooks::{agent_to, setup};

/// Makers of calls, at the same time.
const MAKERS: usize = 8;

/// A session that nobody joined, ended: the cheapest `call.ended`. Its id.
pub(crate) async fn ended(client: &Client, agent: &str) -> String {
    let body = json!({"agent_id": agent, "transport": "websocket"});
    let session = client.connect(&body).await;
    let id = session.text("session_id");
    client
        .post(&format!("/calls/{id}/end"), &json!({}))
        .await
        .expect(200);
    id
}

/// Numbers that only look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// The same as [`ended`] against a server that may be dead at any moment: each request is repeated
/// until it is answered.
async fn ended_at_last(http: &reqwest::Client, server: &(String, String), agent: &str) -> String {
    let (url, key) = server;
    let post = async |path: &str, body: Value| loop {
        let request = http
            .post(format!("{url}/api/v1{path}"))
            .header("x-api-key", key);
        let answer = request
            .header("content-type", "application/json")
            .body(body.to_string());
        if let Ok(answer) = answer.send().await
            && answer.status().is_success()
            && let Ok(bytes) = answer.bytes().await
        {
            return serde_json::from_slice::<Value>(&bytes).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let connect = json!({"agent_id": agent, "transport": "websocket"});
    let session = post("/conversation/connect", connect).await;
    let id = session["session_id"].as_str().unwrap().to_owned();
    post(&format!("/calls/{id}/end"), json!({})).await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_end_of_a_call_is_lost_to_failing_receivers_and_killed_servers() {
    let soak = std::env::var_os("SIDETONE_SOAK").is_some();
    let (calls, kills) = if soak { (10_000, 100) } else { (2_000, 10) };
    let dice = Mutex::new(Dice(0x5eed));
    let receiver = Receiver::answering(move |_| {
        let fails = dice.lock().unwrap().roll(10) < 3;
        Answer::Status(if fails { 503 } else { 200 })
    })
    .await;
    let setup = setup()
        .set("WEBHOOKS__ATTEMPT_MS", "1000")
        .set("WEBHOOKS__SHORT_PAUSE_MS", "20")
        .set("WEBHOOKS__FIRST_ROUND_MS", "50")
        .set("WEBHOOKS__LONGEST_PAUSE_MS", "500");
    let mut server = setup.start().await;
    let agent = Arc::new(agent_to(&server.client(), &receiver.url).await);
    let made = Arc::new(AtomicUsize::new(0));
    let all_made = Arc::new(AtomicBool::new(false));
    let address = Arc::new((server.url.clone(), server.key.clone()));
    let makers: Vec<_> = (0..MAKERS)
        .map(|_| {
            let (made, agent, address) = (made.clone(), agent.clone(), address.clone());
            tokio::spawn(async move {
                let http = kit::server::reqwest_client();
                let mut ids = Vec::new();
                while made.fetch_add(1, Ordering::SeqCst) < calls {
                    ids.push(ended_at_last(&http, &address, &agent).await);
                }
                ids
            })
        })
        .collect();
    let makers = tokio::spawn({
        let all_made = all_made.clone();
        async move {
            let mut ids = BTreeSet::new();
            for maker in makers {
                ids.extend(maker.await.unwrap());
            }
            all_made.store(true, Ordering::SeqCst);
            ids
        }
    });
    // Most of the kills fall while calls end, the others while the rest is delivered.
    let mut dice = Dice(0xdead);
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(50 + dice.roll(400))).await;
        server.kill();
        server.start_again().await;
    }
    let ids = makers.await.unwrap();
    assert!(ids.len() >= calls);

    let taken = |got: &[kit::receiver::Got]| {
        let taken = got.iter().filter(|got| got.status == 200);
        taken
            .map(|got| got.text("call_id"))
            .collect::<BTreeSet<_>>()
    };
    let until = Instant::now() + Duration::from_secs(120);
    while !ids.is_subset(&taken(&receiver.got())) {
        let missing = ids.difference(&taken(&receiver.got())).count();
        assert!(
            Instant::now() < until,
            "{missing} of {} were never taken",
            ids.len()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // One id and one body a call, however often it was sent.
    let mut first: BTreeMap<String, (String, Bytes)> = BTreeMap::new();
    let mut events = BTreeSet::new();
    let got = receiver.got();
    for one in got.iter().filter(|got| got.event == "call.ended") {
        let (call, event) = (one.text("call_id"), one.text("event_id"));
        events.insert(event.clone());
        let (id, body) = first
            .entry(call)
            .or_insert((event.clone(), one.body.clone()));
        assert_eq!((&event, &one.body), (&*id, &*body));
    }
    assert_eq!(events.len(), first.len());
    // Nothing is open any more, once the last answers are written down.
    let db = server.database().await;
    loop {
        let open = db
            .query("select count(*) as open from events where type = 'call.ended' and status <> 'delivered'")
            .one(|row| row.i64("open"))
            .await
            .unwrap();
        if open == 0 {
            break;
        }
        assert!(Instant::now() < until, "{open} are still open");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    db.close().await;
    let (sent, refused) = (
        got.len(),
        got.iter().filter(|got| got.status != 200).count(),
    );
    let twice = got.len() - refused - first.len();
    println!(
        "{} calls, {kills} kills: {sent} attempts, {refused} refused, {twice} taken twice",
        ids.len()
    );
}
