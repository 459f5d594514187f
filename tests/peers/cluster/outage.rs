//! Redis dies, sleeps and forgets under a server with calls.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::{Answer, Client};
use kit::peer::{self, Live, NUMBER};
use kit::server::Server;
use kit::socket::native;
use kit::telephone::Telephone;
use media::rtp::sdp::Encryption;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::{Cluster, agent, gap, mix, p99, soak, talker};

/// Many connects at once; the answers, and how long the slowest of 99 in 100 took.
async fn connects(client: &Client, agent: &str, count: usize) -> (Vec<Answer>, Duration) {
    let answers = join_all((0..count).map(async |_| {
        let began = Instant::now();
        let answer = client.post("/conversation/connect", &native(agent)).await;
        (answer, began.elapsed())
    }))
    .await;
    let (answers, mut times): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
    (answers, p99(&mut times))
}

/// The whole of what a refusal of the store says: eight keys, and a header.
fn check_refusal(answer: &Answer, code: &str, retry_after: u32) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    let message = "Call admission is not available right now";
    assert_eq!(
        answer.body,
        json!({
            "error": message, "code": code, "request_id": answer.body["request_id"],
            "detail": message, "reason": code, "resource_class": "call", "resource": "pool",
            "retry_after": retry_after,
        })
    );
    let header = retry_after.to_string();
    assert_eq!(answer.header("retry-after"), Some(header.as_str()));
}

/// The code that a telephone hears, if it is not let in.
async fn refusal(listen: SocketAddr) -> Option<u16> {
    let within = Duration::from_secs(10);
    let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
    called.err()
}

async fn ready(server: &Server, within: Duration) -> Duration {
    let (client, began) = (server.client(), Instant::now());
    while client.get("//readyz").await.status != 200 {
        assert!(began.elapsed() < within, "not ready within {within:?}");
        sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

#[tokio::test]
async fn with_redis_down_every_connect_is_refused_at_once_and_leaves_nothing() {
    let mut cluster = Cluster::new().await;
    let (server, listen) = cluster.reachable_node("a");
    let server = server.start().await;
    let client = server.client();
    let agent = agent(&client).await;
    peer::line(&client, &agent).await;
    let out = json!({"name": "out", "auth_mode": "ip_acl", "numbers": ["+15550100"],
        "outbound_address": "127.0.0.1:9"});
    client.post("/sip-trunks/onboard", &out).await.expect(201);
    cluster.redis.kill();
    let (answers, slowest) = connects(&client, &agent, 200).await;
    for answer in &answers {
        check_refusal(answer, "redis_unavailable", 5);
    }
    let wish = json!({"agent_id": agent, "to_number": "+4989123456", "from_number": "+15550100"});
    for path in ["/calls", "/calls/trigger"] {
        check_refusal(&client.post(path, &wish).await, "redis_unavailable", 5);
    }
    println!("200 connects without Redis: p99 {slowest:?}");
    assert!(slowest < Duration::from_millis(300), "{slowest:?}");
    assert_eq!(refusal(listen).await, Some(503), "a telephone");
    assert_eq!(cluster.calls().await, 0, "no record is left");
    let not_ready = client.get("//readyz").await.expect(503);
    assert!(not_ready.text("error").contains("redis (no connection)"));
    // What costs nothing goes on.
    client.get("/calls").await.expect(200);
    client.get("//metrics").await.expect(200);

    cluster.redis.start_again().await;
    let began = Instant::now();
    while client
        .post("/conversation/connect", &native(&agent))
        .await
        .status
        != 200
    {
        assert!(began.elapsed() < Duration::from_secs(2), "not back");
        sleep(Duration::from_millis(10)).await;
    }
    println!("back {:?} after Redis was", began.elapsed());
    ready(&server, Duration::from_secs(1)).await;
    assert_eq!(cluster.redis.leases().await, 1);
}

#[tokio::test]
async fn with_redis_down_a_first_offer_is_refused_and_its_session_waits() {
    let mut cluster = Cluster::new().await;
    let server = cluster.node("a").start().await;
    let client = server.client();
    let agent = agent(&client).await;
    let session = client.connect(&json!({"agent_id": agent})).await;
    let path = |route: &str| format!("/conversation/{}/{route}", session.text("session_id"));
    let sdp = include_str!("../../../fixtures/sdp/aiortc_offer.sdp").replace('\n', "\r\n");
    let offer = json!({"sdp": sdp, "type": "offer"});
    cluster.redis.kill();
    let began = Instant::now();
    let refused = client.post(&path("offer"), &offer).await;
    println!("an offer without Redis: {:?}", began.elapsed());
    // It was promised a slot and is tried for a while; by then it is known that nobody answers.
    check_refusal(&refused, "redis_unavailable", 5);
    let status = client.get(&path("status")).await.expect(200);
    assert_eq!(status.text("status"), "open");

    cluster.redis.start_again().await;
    ready(&server, Duration::from_secs(2)).await;
    client.post(&path("offer"), &offer).await.expect(200);
    let status = client.get(&path("status")).await.expect(200);
    assert_eq!(status.text("status"), "live");
    client.post(&path("end"), &json!({})).await.expect(200);
    cluster.empty(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn while_redis_sleeps_answers_come_in_time_calls_live_on_and_no_lease_is_left_afterwards() {
    let cluster = Cluster::new().await;
    let (server, listen) = cluster.reachable_node("a");
    let server = server.start().await;
    let client = server.client();
    let agent = talker(&client).await;
    peer::line(&client, &agent).await;
    let live = Live::begin(peer::calls(&client, listen, &agent, mix(2)).await);
    cluster.redis.stop();
    let asleep = Instant::now();
    let (mut times, mut codes, mut pulse) = (Vec::new(), Vec::new(), Vec::new());
    while asleep.elapsed() < Duration::from_secs(3) {
        let (began, health, wish) = (Instant::now(), server.anonymous(), native(&agent));
        let (answer, ()) = tokio::join!(client.post("/conversation/connect", &wish), async {
            let began = Instant::now();
            health.get("//healthz").await.expect(200);
            pulse.push(began.elapsed());
        });
        times.push(began.elapsed());
        let code = answer.text("code");
        let retry_after = if code == "redis_error" { 1 } else { 5 };
        check_refusal(&answer, &code, retry_after);
        codes.push(code);
    }
    // At first nobody knows; then the breaker is open.
    assert_eq!(codes[0], "redis_error");
    assert_eq!(codes.last().unwrap(), "redis_unavailable");
    let distinct: BTreeSet<&String> = codes.iter().collect();
    assert_eq!(distinct.len(), 2, "{distinct:?}");
    let (slowest, stall) = (p99(&mut times), p99(&mut pulse));
    println!(
        "{} connects at a sleeping Redis: p99 {slowest:?}; healthz p99 {stall:?}",
        times.len()
    );
    assert!(slowest <= Duration::from_millis(400), "{slowest:?}");
    assert!(times.last().unwrap() <= &Duration::from_millis(500));
    assert!(stall <= Duration::from_millis(100), "{stall:?}");
    assert_eq!(refusal(listen).await, Some(503), "a telephone");
    cluster.redis.go_on();
    ready(&server, Duration::from_secs(2)).await;
    let mut peers = live.stop().await;
    peer::check_heard(&mut peers, asleep, gap());
    let lived = peer::hang_up(peers).await;
    cluster.check_over(&client, &lived, "caller_hangup").await;
    client.connect(&native(&agent)).await;
    let until = Instant::now() + Duration::from_secs(15);
    while cluster.redis.leases().await != cluster.open_calls().await.0 {
        assert!(Instant::now() < until, "leases are left");
        sleep(Duration::from_millis(100)).await;
    }
    let left = cluster.calls().await as usize - lived.len();
    assert_eq!(left, 1, "refusals left no record");
}

#[tokio::test]
async fn calls_live_on_when_redis_forgets_or_dies_and_no_other_takes_their_place() {
    let mut cluster = Cluster::new().await;
    let mix = mix(1);
    let cap = mix.count() as u64;
    let (server, listen) = cluster.reachable_node("a");
    let server = server.set("LIMITS__ACCOUNT_CALLS", &cap.to_string());
    let server = server.start().await;
    let client = server.client();
    let agent = talker(&client).await;
    peer::line(&client, &agent).await;
    let live = Live::begin(peer::calls(&client, listen, &agent, mix).await);
    let from = Instant::now();
    for round in ["forgets", "dies"] {
        if round == "forgets" {
            cluster.redis.command::<()>(&["FLUSHALL"]).await;
        } else {
            cluster.redis.kill();
        }
        let watch = async {
            let (began, mut refused) = (Instant::now(), 0);
            loop {
                let answer = client.post("/conversation/connect", &native(&agent)).await;
                assert!(cluster.open_calls().await.0 <= cap);
                match (answer.status, answer.text("code").as_str()) {
                    (503, "redis_unavailable" | "redis_error") => refused += 1,
                    (429, "capacity") if began.elapsed() > Duration::from_secs(1) => {
                        assert_eq!(answer.body["current"], cap);
                        return (refused, began.elapsed());
                    }
                    (429, "capacity") => {}
                    _ => panic!("{}", answer.body),
                }
                assert!(began.elapsed() < Duration::from_secs(5), "still refused");
                sleep(Duration::from_millis(5)).await;
                if round == "dies" && began.elapsed() > Duration::from_millis(700) {
                    return (refused, began.elapsed());
                }
            }
        };
        let (refused, took) = watch.await;
        let expected = if round == "dies" { 503 } else { 486 };
        assert_eq!(refusal(listen).await, Some(expected), "a telephone");
        println!("Redis {round}: {refused} connects refused within {took:?}");
        assert!(refused > 0, "a store that does not know takes nobody");
        if round == "dies" {
            cluster.redis.start_again().await;
            ready(&server, Duration::from_secs(2)).await;
        }
        let answer = client.post("/conversation/connect", &native(&agent)).await;
        assert_eq!(answer.status, 429, "{}", answer.body);
        assert_eq!(answer.body["current"], cap);
        assert_eq!(cluster.redis.leases().await, cap);
    }
    let mut peers = live.stop().await;
    peer::check_heard(&mut peers, from, gap());
    let lived = peer::hang_up(peers).await;
    cluster.check_over(&client, &lived, "caller_hangup").await;
    cluster.empty(Duration::from_secs(10)).await;
}

/// The lease step at a steady rate: 99 of 100 within 5 ms (on a machine that does nothing else).
#[tokio::test]
async fn the_lease_step_is_short() {
    let cluster = Cluster::new().await;
    let server = cluster.node("a").start().await;
    let client = server.client();
    let agent = agent(&client).await;
    let count = if soak() { 1500 } else { 150 };
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut under_way = Vec::new();
    for _ in 0..count {
        ticks.tick().await;
        let (client, agent) = (client.clone(), agent.clone());
        under_way.push(tokio::spawn(async move {
            let session = client.connect(&native(&agent)).await;
            let path = format!("/conversation/{}/end", session.text("session_id"));
            client.post(&path, &json!({})).await.expect(200);
        }));
    }
    for one in under_way {
        one.await.unwrap();
    }
    let metrics = client.get("//metrics").await.expect(200);
    let text = String::from_utf8(metrics.bytes).unwrap();
    let below = |bound: &str| -> f64 {
        let label = format!("sidetone_lease_seconds_bucket{{step=\"acquire\",le=\"{bound}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&label));
        line.unwrap_or_else(|| panic!("no {label}"))
            .parse()
            .unwrap()
    };
    let all = below("+Inf");
    let shares: Vec<String> = ["0.0005", "0.001", "0.0025", "0.005", "0.025"]
        .iter()
        .map(|bound| format!("{:.2} % in {bound} s", 100.0 * below(bound) / all))
        .collect();
    println!("{all} lease steps at 50 a second: {}", shares.join(", "));
    let bound = if soak() { "0.005" } else { "0.025" };
    assert!(below(bound) / all >= 0.99, "{}", shares.join(", "));
    cluster.empty(Duration::from_secs(5)).await;
}
