//! The database goes away in the middle of calls: they go on, and what happened to them is written
//! once it is back, by this process or by the next.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::peer::{self, Live, Mix, NUMBER, Peer};
use kit::ports::free_udp;
use kit::postgres::Postgres;
use kit::server::Server;
use kit::socket::{Caller, native, telco, ulaw};
use kit::telephone::Telephone;
use media::rtp::sdp::Encryption;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::stage;
use crate::trunks::until;

/// After the database is back everything is in it within this.
const WRITTEN: Duration = Duration::from_secs(10);
/// A longer pause between two pieces of the agent's sound is a gap that is heard.
const GAP: Duration = Duration::from_millis(500);

/// A server with its own database, and the calls on it: each speaks, and is spoken to for minutes.
struct Scene {
    database: Postgres,
    server: Server,
    client: Client,
    agent: String,
    /// Where telephones call it.
    listen: SocketAddr,
    peers: Vec<Peer>,
}

async fn scene(mix: Mix) -> Scene {
    let database = Postgres::start();
    let url = database.database().await;
    let listen = free_udp();
    let server = stage::setup().telephones(listen).database(&url);
    let server = server.start().await;
    let client = server.client();
    let fields = json!({
        "first_message": stage::long_greeting(), "interruption_enabled": false,
        "webhook_url": "https://hooks.example.com/calls",
    });
    let agent = stage::agent(&client, fields).await;
    peer::line(&client, &agent).await;
    let kinds = [native(&agent), ulaw(&agent), telco(&agent)];
    let placed = (0..mix.sockets)
        .map(async |n| Peer::on(Caller::call(&client, &kinds[n % kinds.len()]).await).await);
    let others = Mix { sockets: 0, ..mix };
    let mut peers = peer::calls(&client, listen, &agent, others).await;
    peers.extend(join_all(placed).await);
    let talk = async |peer: &mut Peer| {
        peer.speak(1200).await;
        peer.be_silent(1000).await;
    };
    join_all(peers.iter_mut().map(talk)).await;
    Scene {
        database,
        server,
        client,
        agent,
        listen,
        peers,
    }
}

/// What is refused while the database is away, and how fast.
async fn check_refusals(scene: &Scene) {
    let until = Instant::now() + Duration::from_secs(3);
    let not_ready = loop {
        let answer = scene.client.get("//readyz").await;
        if answer.status == 503 {
            break answer;
        }
        assert!(Instant::now() < until, "ready without a database");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(not_ready.text("error").contains("database"));
    scene.client.get("//healthz").await.expect(200);
    let began = Instant::now();
    let body = native(&scene.agent);
    let connects = (0..50).map(|_| scene.client.post("/conversation/connect", &body));
    for answer in join_all(connects).await {
        let answer = answer.expect(503);
        assert_eq!(answer.text("code"), "service_unavailable");
        assert!(answer.header("retry-after").is_some());
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "50 refusals took {took:?}");
    let within = Duration::from_secs(10);
    let called = Telephone::call_number(scene.listen, NUMBER, Encryption::Disable, within).await;
    assert_eq!(called.err(), Some(503), "a telephone");
}

/// The rows and events of these calls, once each has its end: reason by call.
async fn written(server: &Server, ids: &[String]) -> BTreeMap<String, Value> {
    let until = Instant::now() + WRITTEN;
    let client = server.client();
    let mut ended = BTreeMap::new();
    while ended.len() < ids.len() {
        let took = Instant::now();
        assert!(took < until, "{} of {} are written", ended.len(), ids.len());
        for id in ids {
            if ended.contains_key(id) {
                continue;
            }
            let answer = client.get(&format!("/calls/{id}")).await;
            if answer.status == 200 && !answer.body["ended_at"].is_null() {
                ended.insert(id.clone(), answer.body);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    ended
}

/// Each has one event of its end, with an id of its own.
async fn check_events(server: &Server, calls: &BTreeMap<String, Value>) {
    let mut ids = std::collections::BTreeSet::new();
    for (id, call) in calls {
        let events = server.events(id, "call.ended").await;
        assert_eq!(events.len(), 1, "{id}");
        let (body, status) = &events[0];
        assert_eq!(body["call_id"], json!(id));
        assert_eq!(body["status"], call["status"]);
        assert_ne!(status, "skipped", "it is to be sent");
        ids.insert(body["event_id"].to_string());
    }
    assert_eq!(ids.len(), calls.len());
}

#[tokio::test]
async fn calls_live_through_an_outage_of_the_database_and_are_written_once() {
    let _few = stage::among_few().await;
    let (sockets, browsers, telephones, called, away) = match stage::soak() {
        true => (30, 10, 8, 2, Duration::from_secs(30)),
        false => (9, 2, 2, 1, Duration::from_secs(4)),
    };
    let mix = Mix {
        sockets,
        browsers,
        telephones,
        called,
    };
    let calls = mix.count();
    let mut scene = scene(mix).await;
    let from = Instant::now();
    scene.database.crash();

    // A third hang up while it is away; the others speak on, and their agent to them.
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    for (n, peer) in scene.peers.drain(..).enumerate() {
        let side = if n % 3 == 0 {
            &mut leaving
        } else {
            &mut staying
        };
        side.push(peer);
    }
    let live = Live::begin(staying);
    check_refusals(&scene).await;
    let left = peer::hang_up(leaving).await;
    sleep(away.saturating_sub(from.elapsed())).await;
    let journal = scene.server.data.join("journal");
    let files = std::fs::read_dir(&journal).unwrap().count();
    assert!(
        files >= left.len(),
        "{files} files in {}",
        journal.display()
    );

    let mut staying = live.stop().await;
    peer::check_heard(&mut staying, from, GAP);
    scene.database.start_again();
    let back = Instant::now();
    let mut ended = written(&scene.server, &left).await;
    println!(
        "{} ends of {away:?} are in the rows {:?} after its return",
        left.len(),
        back.elapsed()
    );
    // The others end as if nothing had been.
    let spoken = peer::spoken(&staying);
    let others = peer::hang_up(staying).await;
    ended.extend(written(&scene.server, &others).await);
    assert_eq!(ended.len(), calls);
    check_events(&scene.server, &ended).await;
    for (id, call) in &ended {
        assert_eq!(
            (&call["status"], &call["end_reason"]),
            (&json!("completed"), &json!("caller_hangup")),
            "{id}"
        );
        let over = stage::over(&scene.client, id, WRITTEN).await;
        assert_eq!(over["has_recording"], true, "{id}");
        let turns = client_turns(&scene.client, id).await;
        assert!(!turns.is_empty(), "{id} has no transcript");
        assert_eq!(call["turn_count"], json!(turns.len()), "{id}");
    }
    let until = Instant::now() + WRITTEN;
    while std::fs::read_dir(&journal).unwrap().count() > 0 {
        assert!(Instant::now() < until, "the journal is not empty");
        sleep(Duration::from_millis(50)).await;
    }
    scene.client.get("//readyz").await.expect(200);
    for (id, spoke) in spoken {
        peer::check_recorded(&scene.client, &id, spoke).await;
    }
}

/// Telephones that ring when the database goes: what becomes of each is known once it is back.
#[tokio::test]
async fn calls_that_ring_through_an_outage_of_the_database_have_their_ends_written_once() {
    let _together = stage::together().await;
    let mix = Mix {
        sockets: 0,
        browsers: 0,
        telephones: 0,
        called: 0,
    };
    let scene = scene(mix).await;
    let (client, agent) = (&scene.client, &scene.agent);
    let (answered, answers) = peer::ringing(client, agent).await;
    let (declined, declines) = peer::ringing(client, agent).await;
    let (canceled, gives_up) = peer::ringing(client, agent).await;
    let (late, answers_late) = peer::ringing(client, agent).await;
    let ids = [&answered, &declined, &canceled];
    for id in ids.into_iter().chain([&late]) {
        let rings = |call: &Value| call["status"] == "ringing";
        until(client, &format!("/calls/{id}"), rings).await;
    }
    scene.database.crash();
    check_refusals(&scene).await;
    // An answer that cannot be written down is none.
    let mut phone = answers.answer();
    phone.wait_for_goodbye().await;
    declines.refuse(486).await;
    gives_up.refuse(480).await;
    scene.database.start_again();
    let ended = written(&scene.server, &ids.map(Clone::clone)).await;
    check_events(&scene.server, &ended).await;
    for (id, end) in ids.into_iter().zip([
        ["failed", "engine_error"],
        ["busy", "busy"],
        ["no-answer", "no_answer"],
    ]) {
        let told = [&ended[id]["status"], &ended[id]["end_reason"]];
        assert_eq!(
            told,
            end.map(|word| json!(word)).each_ref(),
            "{}",
            ended[id]
        );
    }
    // Who answers when it is back is in a call.
    let mut phone = answers_late.answer();
    phone.silence(4_000).await;
    assert!(!phone.came.is_empty(), "the agent is not heard");
    phone.hang_up().await;
    let ended = written(&scene.server, std::slice::from_ref(&late)).await;
    check_events(&scene.server, &ended).await;
    assert_eq!(ended[&late]["end_reason"], "caller_hangup");
}

async fn client_turns(client: &Client, id: &str) -> Vec<Value> {
    let transcript = client
        .get(&format!("/conversations/{id}/transcript"))
        .await
        .expect(200);
    transcript.body["turns"].as_array().unwrap().clone()
}

#[tokio::test]
async fn what_a_killed_process_could_not_write_the_next_one_does() {
    let _few = stage::among_few().await;
    let mix = Mix {
        sockets: 2,
        browsers: 2,
        telephones: 2,
        called: 2,
    };
    let mut scene = scene(mix).await;
    scene.database.crash();
    check_refusals(&scene).await;
    // One of each kind hangs up.
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    for (n, peer) in scene.peers.drain(..).enumerate() {
        let side = if n % 2 == 0 {
            &mut leaving
        } else {
            &mut staying
        };
        side.push(peer);
    }
    let left = peer::hang_up(leaving).await;
    let lost = peer::ids(&staying);
    // Their recordings are made while there is nowhere to write them down.
    let journal = scene.server.data.join("journal");
    let until = Instant::now() + WRITTEN;
    for id in &left {
        let file = journal.join(format!("{id}.journal"));
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if text.contains("\"end\"") && text.contains("\"recorded\"") {
                break;
            }
            assert!(Instant::now() < until, "{}: {text}", file.display());
            sleep(Duration::from_millis(20)).await;
        }
    }
    scene.server.kill();
    sleep(Duration::from_secs(1)).await;
    scene.database.start_again();
    let mut first = None;
    for _ in 0..2 {
        scene.server.start_again().await;
        let all: Vec<String> = left.iter().chain(&lost).cloned().collect();
        let ended = written(&scene.server, &all).await;
        check_events(&scene.server, &ended).await;
        for id in &all {
            let hung_up = left.contains(id);
            let reason = if hung_up {
                "caller_hangup"
            } else {
                "node_lost"
            };
            assert_eq!(ended[id]["end_reason"], reason, "{id}");
            let over = stage::over(&scene.client, id, WRITTEN).await;
            assert_eq!(over["has_recording"], true, "{id}");
            stage::recording(&scene.client, id).await;
        }
        // Nothing changes at another start, and the end is when it was, not when it was written.
        let times: Vec<Value> = all.iter().map(|id| ended[id]["ended_at"].clone()).collect();
        assert!(times[0].as_str() < times[left.len()].as_str(), "{times:?}");
        assert!(first.as_ref().is_none_or(|first| *first == times));
        first = Some(times);
        scene.server.kill();
    }
}
