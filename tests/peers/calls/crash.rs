//! The process dies in the middle of calls, and ends in order.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use kit::peer::{self, Live, Mix, NUMBER, Peer};
use kit::ports::free_udp;
use kit::socket::{Caller, native, telco, ulaw};
use kit::telephone::Telephone;
use media::rtp::sdp::Encryption;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage;

#[tokio::test]
async fn after_kill_9_calls_are_node_lost_once_each_and_heard_to_the_last_second() {
    let _few = stage::among_few().await;
    let mut server = stage::server().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields.clone()).await;
    let mut unrecorded = fields;
    unrecorded["recording_enabled"] = json!(false);
    let unrecorded = stage::agent(&client, unrecorded).await;
    let count = if stage::soak() { 48 } else { 9 };
    let mut kinds = Vec::new();
    for _ in 0..count / 3 {
        kinds.extend([native(&agent), ulaw(&agent), telco(&agent)]);
    }
    kinds.extend([native(&unrecorded), native(&unrecorded)]);
    let pending = stage::session(&client, &agent).await;
    let mut callers = join_all(kinds.iter().map(|kind| Caller::call(&client, kind))).await;
    let voice = stage::voice(3500);
    join_all(callers.iter_mut().map(|caller| caller.speak(&voice))).await;
    let lived: Vec<Duration> = callers.iter().map(|c| c.connected.elapsed()).collect();
    server.kill();
    for caller in &mut callers {
        let closed = caller.close_code(Duration::from_secs(5)).await;
        assert!(closed.is_some(), "a caller learns it at once");
    }
    server.start_again().await;

    let restarted = Instant::now();
    let mut events = BTreeSet::new();
    for ((caller, lived), kind) in callers.iter().zip(lived).zip(&kinds) {
        let id = &caller.session_id;
        let call = stage::over(&client, id, Duration::from_secs(20)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"]),
            (&json!("failed"), &json!("node_lost"))
        );
        let of_call = server.events(id, "call.ended").await;
        assert_eq!(of_call.len(), 1, "{id}");
        assert_eq!(of_call[0].0["status"], "failed");
        events.insert(of_call[0].0["event_id"].to_string());
        let recorded = kind["agent_id"] == json!(agent);
        assert_eq!(call["has_recording"], json!(recorded), "{kind}");
        if recorded {
            let sound = stage::recording(&client, id).await;
            heard_to_the_end(&sound, lived);
        } else {
            client
                .get(&format!("/conversations/{id}/audio"))
                .await
                .expect(404);
            client
                .get(&format!("/conversations/{id}/audio.wav"))
                .await
                .expect(404);
        }
    }
    assert_eq!(events.len(), callers.len());
    println!(
        "{} calls ended {:?} after the restart",
        callers.len(),
        restarted.elapsed()
    );

    // A session that nobody had joined is as good as before.
    let mut caller = Caller::join(&pending, "").await.unwrap();
    caller.wait_for("audio", 2000).await;
    caller.hang_up().await;

    // Another restart ends nothing twice.
    server.kill();
    server.start_again().await;
    sleep(Duration::from_millis(500)).await;
    for caller in &callers {
        assert_eq!(
            server.events(&caller.session_id, "call.ended").await.len(),
            1
        );
    }
}

/// Telephones that call and ones that are called, and browsers.
#[tokio::test]
async fn after_kill_9_calls_without_a_socket_are_node_lost_once_each_and_heard_to_the_last_second()
{
    let _few = stage::among_few().await;
    let listen = free_udp();
    let mut server = stage::setup().telephones(listen).start().await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    peer::line(&client, &agent).await;
    let (browsers, telephones, called) = if stage::soak() { (10, 9, 3) } else { (2, 2, 1) };
    let mix = Mix {
        sockets: 0,
        browsers,
        telephones,
        called,
    };
    let mut peers = peer::calls(&client, listen, &agent, mix).await;
    join_all(peers.iter_mut().map(|peer| peer.speak(5000))).await;
    let lived: Vec<Duration> = peers.iter().map(|peer| peer.since.elapsed()).collect();
    server.kill();
    server.start_again().await;
    for (peer, lived) in peers.iter().zip(lived) {
        let call = stage::over(&client, &peer.id, Duration::from_secs(20)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["has_recording"]),
            (&json!("failed"), &json!("node_lost"), &json!(true))
        );
        heard_to_the_end(&stage::recording(&client, &peer.id).await, lived);
    }
    // They hang up at a server that does not know them any more.
    let ids = peer::hang_up(peers).await;
    for id in &ids {
        let events = server.events(id, "call.ended").await;
        assert_eq!(events.len(), 1, "{id}");
        assert_eq!(events[0].0["status"], "failed");
    }
}

/// Both sides sound until a second before the end at most.
fn heard_to_the_end(sound: &[Vec<i16>; 2], lived: Duration) {
    let ms = (sound[0].len() / 16) as u64;
    let lived = lived.as_millis() as u64;
    assert!(
        ms + 1000 >= lived && ms <= lived + 1000,
        "{ms} ms of {lived} ms"
    );
    for side in sound {
        let last = side.iter().rposition(|sample| sample.unsigned_abs() > 500);
        let last = last.expect("both sides sound") as u64 / 16;
        assert!(last + 1000 >= lived, "sounds until {last} of {lived} ms");
        let loud = side
            .iter()
            .filter(|sample| sample.unsigned_abs() > 500)
            .count();
        assert!(
            loud * 3 > side.len(),
            "only {loud} of {} samples sound",
            side.len()
        );
    }
}

#[tokio::test]
async fn sigterm_lets_live_calls_go_on_and_takes_no_new_ones() {
    let _together = stage::together().await;
    let mut server = stage::setup()
        .set("SERVER__DRAIN_SECONDS", "20")
        .start()
        .await;
    let client = server.client();
    let agent = stage::agent(&client, json!({})).await;
    let pending = stage::session(&client, &agent).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.listen(2300).await;
    server.terminate();
    caller.listen(200).await;

    let not_ready = client.get("//readyz").await.expect(503);
    assert!(not_ready.header("retry-after").is_some());
    client.get("//healthz").await.expect(200);
    let refused = client
        .post("/conversation/connect", &native(&agent))
        .await
        .expect(503);
    assert_eq!(refused.text("code"), "service_unavailable");
    assert!(refused.header("retry-after").is_some());
    // Whoever was promised a call still gets it.
    let mut late = Caller::join(&pending, "").await.unwrap();
    late.wait_for("audio", 2000).await;
    late.hang_up().await;

    // The live call is answered as before, and its routes work.
    let id = caller.session_id.clone();
    caller.speak(&stage::voice(600)).await;
    caller.wait_for("audio", 3000).await;
    let status = client
        .get(&format!("/conversation/{id}/status"))
        .await
        .expect(200);
    assert_eq!(status.text("status"), "live");
    caller.listen(1000).await;
    caller.send(&json!({"type": "end"})).await;
    assert_eq!(caller.close_code(Duration::from_secs(3)).await, Some(1000));
    assert_eq!(server.ended(Duration::from_secs(10)).await, Some(0));

    server.start_again().await;
    let call = stage::over(&client, &id, Duration::from_secs(5)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["has_recording"]),
        (&json!("completed"), &json!("caller_hangup"), &json!(true))
    );
    assert_eq!(server.events(&id, "call.ended").await.len(), 1);
    stage::recording(&client, &id).await;
}

/// Each hears its agent without a gap until it hangs up itself.
#[tokio::test]
async fn a_drain_loses_no_call() {
    let _alone = stage::alone().await;
    let (sockets, browsers, telephones, called) = if stage::soak() {
        (30, 10, 8, 2)
    } else {
        (6, 2, 2, 1)
    };
    let listen = free_udp();
    let mut server = stage::setup()
        .telephones(listen)
        .set("SERVER__DRAIN_SECONDS", "20")
        .start()
        .await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting(), "interruption_enabled": false});
    let agent = stage::agent(&client, fields).await;
    peer::line(&client, &agent).await;
    let kinds = [native(&agent), ulaw(&agent), telco(&agent)];
    let placed = (0..sockets)
        .map(async |n| Peer::on(Caller::call(&client, &kinds[n % kinds.len()]).await).await);
    let mix = Mix {
        sockets: 0,
        browsers,
        telephones,
        called,
    };
    let mut peers = peer::calls(&client, listen, &agent, mix).await;
    peers.extend(join_all(placed).await);
    let count = peers.len();
    let live = Live::begin(peers);
    sleep(Duration::from_millis(500)).await;
    let told = Instant::now();
    server.terminate();
    sleep(Duration::from_millis(200)).await;
    let refused = client.post("/conversation/connect", &kinds[0]).await;
    let refused = refused.expect(503);
    assert_eq!(refused.text("code"), "service_unavailable");
    assert!(refused.header("retry-after").is_some());
    let within = Duration::from_secs(10);
    let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
    assert_eq!(called.err(), Some(503), "a telephone");
    sleep(Duration::from_secs(5)).await;
    let mut peers = live.stop().await;
    peer::check_heard(&mut peers, told, Duration::from_millis(500));
    let spoken = peer::spoken(&peers);
    let ids = peer::hang_up(peers).await;
    assert_eq!(server.ended(Duration::from_secs(20)).await, Some(0));
    println!("{count} calls drained within {:?}", told.elapsed());

    server.start_again().await;
    for id in &ids {
        let call = stage::over(&client, id, Duration::from_secs(5)).await;
        assert_eq!(
            (&call["status"], &call["end_reason"]),
            (&json!("completed"), &json!("caller_hangup"))
        );
        assert_eq!(server.events(id, "call.ended").await.len(), 1);
    }
    for (id, spoke) in spoken {
        peer::check_recorded(&client, &id, spoke).await;
    }
}

#[tokio::test]
async fn a_call_that_outlasts_the_drain_is_ended_in_order() {
    let _together = stage::together().await;
    let mut server = stage::setup()
        .set("SERVER__DRAIN_SECONDS", "1")
        .start()
        .await;
    let client = server.client();
    let fields = json!({"first_message": stage::long_greeting()});
    let agent = stage::agent(&client, fields).await;
    let mut caller = Caller::call(&client, &native(&agent)).await;
    caller.listen(500).await;
    let told = Instant::now();
    server.terminate();
    let mut code = None;
    while code.is_none() && told.elapsed() < Duration::from_secs(10) {
        caller.listen(100).await;
        code = caller.closed;
    }
    assert!(
        told.elapsed() >= Duration::from_millis(900),
        "it had its second"
    );
    assert_eq!(code, Some(1000));
    assert_eq!(caller.of_kind("call_ended").len(), 1);
    assert_eq!(server.ended(Duration::from_secs(10)).await, Some(0));
    server.start_again().await;
    let call = stage::over(&client, &caller.session_id, Duration::from_secs(5)).await;
    assert_ne!(call["end_reason"], "node_lost");
    assert_eq!(call["has_recording"], true);
    assert_eq!(
        server.events(&caller.session_id, "call.ended").await.len(),
        1
    );
    stage::recording(&client, &caller.session_id).await;
}
