//! What calls leave on the disk, however they end: what is kept of them lies in the object store, nothing in
//! the spool, nothing in the journal; and what is deleted is gone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::peer::{self, NUMBER};
use kit::ports::free_udp;
use kit::server::Server;
use kit::socket::{Caller, native};
use kit::telephone::{Telephone, Waiting};
use media::rtp::sdp::Encryption;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::stage;

/// The names of all files below a folder; none where there is no folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => _ = found.insert(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    found
}

fn unsettled(server: &Server) -> BTreeSet<String> {
    let mut files_of_calls = files(&server.data.join("spool"));
    files_of_calls.extend(files(&server.data.join("journal")));
    files_of_calls
}

/// Waits until nothing of any call lies where it does not stay.
async fn nothing_waits(server: &Server) {
    let until = Instant::now() + Duration::from_secs(20);
    while !unsettled(server).is_empty() {
        let left = unsettled(server);
        assert!(Instant::now() < until, "{left:?}\n{}", server.log());
        sleep(Duration::from_millis(50)).await;
    }
}

/// What the store has to have of these calls, each with what is kept of it.
fn kept(calls: &[(String, &[&str])]) -> BTreeSet<String> {
    let names = calls
        .iter()
        .flat_map(|(id, endings)| endings.iter().map(move |ending| format!("{id}.{ending}")));
    names.collect()
}

const SOUND: &[&str] = &["wav", "tape"];
const TAPE: &[&str] = &["tape"];
const NOTHING: &[&str] = &[];

/// Deletes every recording there is.
async fn delete_all(client: &Client) {
    let list = client.get("/recordings?limit=100").await.expect(200).body;
    for recording in list["items"].as_array().unwrap() {
        let path = format!("/recordings/{}", recording["id"].as_str().unwrap());
        client.delete(&path).await.expect(204);
    }
}

/// A call of a socket that hears its agent, and is then ended by somebody. Its id.
async fn ended(client: &Client, agent: &str, end: impl AsyncFnOnce(&mut Caller)) -> String {
    let mut caller = Caller::call(client, &native(agent)).await;
    caller.wait_for("audio", 5000).await;
    end(&mut caller).await;
    let closed = caller.close_code(Duration::from_secs(10)).await;
    assert!(closed.is_some(), "it goes on");
    caller.session_id
}

/// The newest call of the list, once it is over.
async fn newest(client: &Client, path: &str) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let list = client.get(path).await.expect(200).body;
        let call = list["items"][0].clone();
        if call["ended_at"].is_string() || call["ended_at"].is_i64() {
            return call;
        }
        assert!(Instant::now() < until, "{list}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sockets: by the caller, by the agent, by a client, after silence, before any sound, and without a recording.
async fn of_sockets(client: &Client) -> Vec<(String, &'static [&'static str])> {
    let greets = stage::agent(client, json!({})).await;
    let silent = stage::agent(client, json!({"first_message": null})).await;
    let unrecorded = stage::agent(client, json!({"recording_enabled": false})).await;
    let impatient = stage::agent(client, json!({"silence_timeout_seconds": 1})).await;
    let parting = json!({"end_call_phrases": ["hello there"]});
    let parting = stage::agent(client, parting).await;
    let end = json!({"type": "end"});
    let by_caller = ended(client, &greets, async |caller: &mut Caller| {
        caller.send(&end).await
    });
    let by_client = ended(client, &greets, async |caller: &mut Caller| {
        let path = format!("/calls/{}/end", caller.session_id);
        client.post(&path, &json!({})).await.expect(200);
    });
    let by_silence = ended(client, &impatient, async |_: &mut Caller| {});
    let by_agent = ended(client, &parting, async |caller: &mut Caller| {
        caller.listen(2300).await;
        caller.speak(&stage::voice(600)).await;
    });
    let private = ended(client, &unrecorded, async |caller: &mut Caller| {
        caller.send(&end).await;
    });
    let before_sound = async {
        let mut caller = Caller::call(client, &native(&silent)).await;
        caller.send(&end).await;
        caller.close_code(Duration::from_secs(10)).await;
        caller.session_id
    };
    let gone = async {
        let caller = Caller::call(client, &native(&silent)).await;
        let id = caller.session_id.clone();
        drop(caller);
        id
    };
    let (a, b, c, d, e, f, g) = tokio::join!(
        by_caller,
        by_client,
        by_silence,
        by_agent,
        private,
        before_sound,
        gone
    );
    vec![
        (a, SOUND),
        (b, SOUND),
        (c, SOUND),
        (d, SOUND),
        (e, TAPE),
        (f, NOTHING),
        (g, NOTHING),
    ]
}

/// Telephones: refused before the answer, not answered, who leave a message or ring off before, and two that hear
/// each other.
async fn of_telephones(
    client: &Client,
    listen: SocketAddr,
) -> Vec<(String, &'static [&'static str])> {
    let agent = stage::agent(client, json!({})).await;
    peer::line(client, &agent).await;
    let within = Duration::from_secs(20);
    let nobodys = Telephone::call_number(listen, "+4930999", Encryption::Disable, within).await;
    assert_eq!(nobodys.err(), Some(404));
    let mut phone = Telephone::call_as("+33123000001", listen, NUMBER).await;
    phone.silence(600).await;
    phone.hang_up().await;
    let talked = newest(client, "/calls?phone=%2B33123000001").await;
    let (declined, ringing) = peer::ringing(client, &agent).await;
    ringing.refuse(486).await;

    // Nobody's numbers, one with a message and one with another telephone behind it.
    let trunks = client.get("/sip-trunks").await.expect(200).body;
    let mut trunks = trunks["items"].as_array().unwrap().iter();
    let trunk = trunks.find(|trunk| trunk["type"] == "inbound");
    let trunk = trunk.unwrap()["id"].clone();
    let callee = Waiting::new();
    let way = json!({"name": "way out", "outbound_address": callee.address().to_string(),
        "auth_mode": "ip_acl", "numbers": ["+15550100"], "set_as_tenant_default": true});
    client.post("/sip-trunks/onboard", &way).await.expect(201);
    for (number, rules) in [
        (
            "+4930654321",
            json!({"fallback_action": "voicemail", "max_ring_seconds": 5}),
        ),
        (
            "+4930654322",
            json!({"fallback_action": "forward", "fallback_number": "+4989654321",
            "max_ring_seconds": 5}),
        ),
    ] {
        let number = json!({"phone_number": number, "trunk_id": trunk, "inbound": rules,
            "outbound_enabled": true});
        let path = "/phone-numbers/sip/register";
        client.post(path, &number).await.expect(201);
    }
    let mut phone = Telephone::call_as("+33123000002", listen, "+4930654321").await;
    phone.silence(800).await;
    phone.hang_up().await;
    let message = newest(client, "/calls?phone=%2B33123000002").await;
    let forwarded = Telephone::call_as("+33123000003", listen, "+4930654322");
    let answered = async { callee.rings().await.answer() };
    let (mut phone, called) = tokio::join!(forwarded, answered);
    phone.silence(400).await;
    phone.hang_up().await;
    drop(called);
    let forwarded = newest(client, "/calls?phone=%2B33123000003").await;
    let id = |call: &Value| call["id"].as_str().unwrap().to_owned();
    vec![
        (id(&talked), SOUND),
        (declined, NOTHING),
        (id(&message), SOUND),
        (id(&forwarded), NOTHING),
    ]
}

#[tokio::test]
async fn however_a_call_ends_nothing_waits_and_what_is_deleted_is_gone() {
    let _together = stage::together().await;
    let listen = free_udp();
    let setup = stage::setup().telephones(listen);
    let mut server = setup.set("SERVER__DRAIN_SECONDS", "1").start().await;
    let client = server.client();
    let (mut calls, of_telephones) =
        tokio::join!(of_sockets(&client), of_telephones(&client, listen));
    calls.extend(of_telephones);
    nothing_waits(&server).await;
    let store = server.data.join("objects");
    assert_eq!(files(&store), kept(&calls), "{}", server.log());

    // Killed in the midst of calls that are heard, of one that is not, and of one that is not recorded.
    let greeting = json!({"first_message": stage::long_greeting()});
    let greets = stage::agent(&client, greeting.clone()).await;
    let silent = stage::agent(&client, json!({"first_message": null})).await;
    let mut private = greeting;
    private["recording_enabled"] = json!(false);
    let private = stage::agent(&client, private).await;
    let mut live = join_all([&greets, &silent, &private].map(|agent| {
        let (client, agent) = (&client, agent.clone());
        async move { Caller::call(client, &native(&agent)).await }
    }))
    .await;
    live[0].wait_for("audio", 5000).await;
    live[2].listen(1500).await;
    server.kill();
    server.start_again().await;
    for (caller, what) in live.iter().zip([SOUND, NOTHING, TAPE]) {
        let id = caller.session_id.clone();
        let call = stage::over(&client, &id, Duration::from_secs(20)).await;
        assert_eq!(call["end_reason"], "node_lost");
        calls.push((id, what));
    }
    nothing_waits(&server).await;
    let silent_left = &calls[calls.len() - 2].0;
    // What came to be recorded of it, if anything did, is whole.
    let mut found = files(&store);
    found.retain(|name| !name.starts_with(silent_left.as_str()));
    assert_eq!(found, kept(&calls), "{}", server.log());

    // Told to end, in the midst of one.
    let mut last = Caller::call(&client, &native(&greets)).await;
    last.wait_for("audio", 5000).await;
    server.terminate();
    assert!(last.close_code(Duration::from_secs(10)).await.is_some());
    assert_eq!(server.ended(Duration::from_secs(20)).await, Some(0));
    assert_eq!(unsettled(&server), BTreeSet::new());
    calls.push((last.session_id, SOUND));

    // Another start finds nothing to do, and what is deleted is gone.
    server.start_again().await;
    delete_all(&client).await;
    let tapes: Vec<_> = calls
        .into_iter()
        .filter(|(_, what)| *what == TAPE)
        .collect();
    let until = Instant::now() + Duration::from_secs(10);
    while files(&store) != kept(&tapes) {
        assert!(Instant::now() < until, "{:?}", files(&store));
        sleep(Duration::from_millis(50)).await;
    }
    nothing_waits(&server).await;
}

/// As long as its object store is away, a recording waits in the spool; deleted, it waits no more.
#[tokio::test]
async fn a_recording_that_cannot_be_stored_is_gone_when_it_is_deleted() {
    let _together = stage::together().await;
    let setup = stage::setup()
        .set("STORAGE__URL", "s3://calls")
        .set("STORAGE__ENDPOINT", "http://127.0.0.1:9")
        .set("STORAGE__REGION", "eu-west-1")
        .env("AWS_ACCESS_KEY_ID", "a")
        .env("AWS_SECRET_ACCESS_KEY", "b");
    let mut server = setup.start().await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let end = json!({"type": "end"});
    for restarted in [false, true] {
        let id = ended(&client, &agent, async |caller: &mut Caller| {
            caller.listen(500).await;
            caller.send(&end).await;
        })
        .await;
        let names = [format!("{id}.tape"), format!("{id}.wav")];
        let until = Instant::now() + Duration::from_secs(10);
        while unsettled(&server) != BTreeSet::from(names.clone()) {
            assert!(Instant::now() < until, "{:?}", unsettled(&server));
            sleep(Duration::from_millis(20)).await;
        }
        if restarted {
            server.kill();
            server.start_again().await;
        }
        delete_all(&client).await;
        nothing_waits(&server).await;
    }
}
