//! Three servers, one Redis, one database, and a crowd, while servers die and Redis forgets and
//! sleeps: never one call above a cap, and nothing left at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use control::http::scope::Scopes;
use control::time::Clock;
use futures_util::future::join_all;
use kit::client::Client;
use kit::server::{Server, reqwest_client};
use kit::socket::{Caller, native};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, agent, soak};

const POOL: u64 = 100;
const ACCOUNT: u64 = 40;

/// A small generator of its own, so that a run can be told by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // Knuth's MMIX multiplier and increment.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Three accounts with a key and an agent each: together they want more than the pool has.
async fn accounts(cluster: &Cluster, url: &str) -> Vec<(String, String)> {
    let clock = Clock::system();
    let mut made = Vec::new();
    for name in ["one", "two", "three"] {
        let account = control::accounts::ensure(&cluster.db, &clock, name)
            .await
            .unwrap();
        let key =
            control::api_keys::create(&cluster.db, &clock, account, "crowd", Scopes::all(), None)
                .await
                .unwrap();
        let key = key.key.expose().clone();
        let agent = agent(&Client::new(url, Some(&key))).await;
        made.push((key, agent));
    }
    made
}

/// One request of somebody who bears that servers die: status and body, or nothing.
async fn post(http: &reqwest::Client, url: &str, key: &str, body: &Value) -> Option<(u16, Value)> {
    let answer = http
        .post(url)
        .header("x-api-key", key)
        .json(body)
        .send()
        .await
        .ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.ok()?))
}

#[derive(Default)]
struct Tally {
    admitted: AtomicU64,
    full: AtomicU64,
    account_full: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_three_servers_never_passes_a_cap_whatever_dies() {
    let runs = if soak() { 20 } else { 1 };
    for seed in 0..runs {
        println!("run {} of {runs}", seed + 1);
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let cluster = Arc::new(Cluster::new().await);
    let mut servers = Vec::new();
    for name in ["a", "b", "c"] {
        let setup = cluster
            .node(name)
            .set("LIMITS__POOL_CALLS", &POOL.to_string())
            .set("LIMITS__ACCOUNT_CALLS", &ACCOUNT.to_string());
        servers.push(setup.start().await);
    }
    let accounts = accounts(&cluster, &servers[0].url).await;
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    let servers = Arc::new(Mutex::new(servers));
    let over = Arc::new(AtomicBool::new(false));

    // Looks all the time whether a cap is passed.
    let watching = tokio::spawn({
        let (cluster, over) = (cluster.clone(), over.clone());
        async move {
            let (mut most, mut most_of_one, mut looks) = (0, 0, 0);
            while !over.load(Ordering::SeqCst) {
                let (all, of_one) = cluster.open_calls().await;
                assert!(
                    all <= POOL && of_one <= ACCOUNT,
                    "{all} calls, {of_one} of one"
                );
                (most, most_of_one, looks) = (all.max(most), of_one.max(most_of_one), looks + 1);
                sleep(Duration::from_millis(10)).await;
            }
            (most, most_of_one, looks)
        }
    });

    let tally = Arc::new(Tally::default());
    let people = if soak() { 1000 } else { 240 };
    let began = Instant::now();
    let crowd: Vec<_> = (0..people)
        .map(|number| {
            let (urls, accounts, tally) = (urls.clone(), accounts.clone(), tally.clone());
            tokio::spawn(async move {
                // Half of them want the first account.
                let account = &accounts[[0, 0, 1, 2][(number % 4) as usize]];
                person(seed << 32 | number, &urls, account, &tally).await;
            })
        })
        .collect();
    chaos(seed, &cluster, &servers).await;
    for one in crowd {
        one.await.unwrap();
    }
    println!(
        "{people} people in {:?}: {} let in, {} at the pool's cap, {} at their account's, {} refused by the store, {} lost their server",
        began.elapsed(),
        tally.admitted.load(Ordering::SeqCst),
        tally.full.load(Ordering::SeqCst),
        tally.account_full.load(Ordering::SeqCst),
        tally.refused.load(Ordering::SeqCst),
        tally.lost.load(Ordering::SeqCst),
    );
    for full in [&tally.full, &tally.account_full] {
        assert!(full.load(Ordering::SeqCst) > 0, "no cap was reached");
    }

    // Everybody goes home; what died with its server is ended by the others.
    let left = end_all(&urls[0], &accounts).await;
    over.store(true, Ordering::SeqCst);
    let (most, most_of_one, looks) = watching.await.unwrap();
    println!(
        "{looks} looks: at most {most} calls at once, {most_of_one} of one account; {left} left to end"
    );
    // A look sees one moment in ten milliseconds, so it may miss the fullest.
    assert!(
        most >= POOL - 10 && most_of_one >= ACCOUNT - 4,
        "the caps were not reached: {most}, {most_of_one}"
    );
    cluster.empty(Duration::from_secs(30)).await;
    let twice: i64 = cluster
        .db
        .query("select count(*) as n from (select call_id from events where type = 'call.ended' group by call_id having count(*) > 1) as t")
        .one(|row| row.i64("n"))
        .await
        .unwrap();
    assert_eq!(twice, 0, "a call ended twice");
}

/// Comes until it is let in or has had enough, talks for a while or leaves its session waiting.
async fn person(number: u64, urls: &[String], account: &(String, String), tally: &Tally) {
    let (http, mut dice) = (reqwest_client(), Dice(number));
    let (key, agent) = account;
    // Longer than Redis ever sleeps.
    for _ in 0..if soak() { 40 } else { 6 } {
        let url = &urls[dice.roll(3) as usize];
        let connect = format!("{url}/api/v1/conversation/connect");
        match post(&http, &connect, key, &native(agent)).await {
            Some((200, session)) => {
                tally.admitted.fetch_add(1, Ordering::SeqCst);
                return talk(&http, urls, key, &session, &mut dice).await;
            }
            Some((429, body)) => {
                assert_eq!(body["code"], "capacity", "{body}");
                let full = match body["resource"].as_str() {
                    Some("pool") => &tally.full,
                    Some("account") => &tally.account_full,
                    _ => panic!("{body}"),
                };
                full.fetch_add(1, Ordering::SeqCst);
            }
            Some((503, body)) => {
                let code = body["code"].as_str().unwrap_or_default();
                let known = [
                    "redis_unavailable",
                    "redis_error",
                    "rate_limiter_unavailable",
                    "service_unavailable",
                ];
                assert!(known.contains(&code), "{body}");
                tally.refused.fetch_add(1, Ordering::SeqCst);
            }
            Some((status, body)) => panic!("{status} {body}"),
            None => drop(tally.lost.fetch_add(1, Ordering::SeqCst)),
        }
        sleep(Duration::from_millis(200 + dice.roll(1500))).await;
    }
}

async fn talk(
    http: &reqwest::Client,
    urls: &[String],
    key: &str,
    session: &Value,
    dice: &mut Dice,
) {
    let id = session["session_id"].as_str().unwrap_or_default();
    match dice.roll(4) {
        // Joins at another server than the one that opened the session, and hangs up.
        0 | 1 => {
            let ws_url = session["ws_url"].as_str().unwrap_or_default();
            let path = ws_url.split("/ws/").nth(1).unwrap_or_default();
            let host = urls[dice.roll(3) as usize].replace("http://", "ws://");
            if let Ok(mut caller) = Caller::open(&format!("{host}/ws/{path}")).await {
                caller.listen(500 + dice.roll(2500)).await;
                if caller.closed.is_none() && dice.roll(2) == 0 {
                    caller.hang_up().await;
                }
            }
        }
        // Ends it at another server.
        2 => {
            sleep(Duration::from_millis(dice.roll(2000))).await;
            let url = &urls[dice.roll(3) as usize];
            let end = format!("{url}/api/v1/conversation/{id}/end");
            post(http, &end, key, &json!({})).await;
        }
        // Never comes.
        _ => {}
    }
}

/// Servers die and come back, Redis forgets and sleeps: for three seconds, and once in a run at full
/// volume for twenty.
async fn chaos(seed: u64, cluster: &Cluster, servers: &Mutex<Vec<Server>>) {
    let mut dice = Dice(seed + 7);
    let rounds = if soak() { 9 } else { 3 };
    let long = if soak() {
        3 * dice.roll(3) + 2
    } else {
        u64::MAX
    };
    for round in 0..rounds {
        sleep(Duration::from_millis(1000 + dice.roll(1000))).await;
        match round % 3 {
            0 => {
                let which = dice.roll(3) as usize;
                let mut servers = servers.lock().await;
                servers[which].kill();
                sleep(Duration::from_millis(300)).await;
                servers[which].start_again().await;
            }
            1 => cluster.redis.command::<()>(&["FLUSHALL"]).await,
            _ => {
                cluster.redis.stop();
                let seconds = if round == long { 20 } else { 3 };
                sleep(Duration::from_secs(seconds)).await;
                cluster.redis.go_on();
            }
        }
    }
}

/// Ends whatever is open by the API. How many that were.
async fn end_all(url: &str, accounts: &[(String, String)]) -> usize {
    let mut left = 0;
    for (key, _) in accounts {
        let client = Client::new(url, Some(key));
        for status in ["queued", "in_progress"] {
            let calls = client
                .get(&format!("/calls?status={status}&limit=100"))
                .await
                .expect(200);
            let ids: Vec<String> = calls.body["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|call| call["id"].as_str().unwrap().to_owned())
                .collect();
            left += ids.len();
            join_all(ids.iter().map(async |id| {
                // A call whose server died ends by itself.
                let path = format!("/conversation/{id}/end");
                client.post(&path, &json!({})).await
            }))
            .await;
        }
    }
    left
}
