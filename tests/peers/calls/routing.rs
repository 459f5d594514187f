//! What becomes of a call to a number whose agent does not answer: it rings, asks again, and is then
//! refused, recorded or forwarded, as the number's routing rules say. SIPp is the carrier.

use std::net::SocketAddr;
use std::time::Duration;

use kit::server::Server;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::trunks::{
    NUMBER, ack, by_address, caller, calls, invite, line, scenario, server, server_with, until,
    well,
};
use crate::stage::{self, loud};

/// A call that rings and is then refused with this code.
pub(crate) fn rings_in_vain(code: u16) -> String {
    scenario(&[
        invite("[service]", ""),
        format!(
            "<recv response=\"100\" optional=\"true\"/><recv response=\"180\"/><recv response=\"{code}\"/>"
        ),
        ack("[service]", ""),
    ])
}

fn rules(action: &str, seconds: u32) -> Value {
    json!({"fallback_action": action, "max_ring_seconds": seconds})
}

#[tokio::test]
async fn a_number_with_rules_rings_until_somebody_can_answer_or_its_time_is_over() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let no_agent = json!({"agent_id": null, "inbound": rules("hangup", 5)});
    let (trunk, agent, number) = line(&client, by_address(), no_agent).await;
    let scenario = server.data.join("rings.xml");
    std::fs::write(&scenario, rings_in_vain(480)).unwrap();
    let file = scenario.to_str().unwrap();
    let began = Instant::now();
    assert!(
        well(caller(&server, listen, NUMBER, &["-sf", file])).await,
        "180, then 480"
    );
    assert!(began.elapsed() >= Duration::from_secs(5));
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["sip_code"]),
        (&json!("no-answer"), &json!("no_answer"), &json!(480)),
        "{call}"
    );
    assert_eq!(
        (&call["agent_id"], &call["trunk_id"], &call["direction"]),
        (&json!(null), &json!(trunk), &json!("inbound")),
    );
    assert!(call["ring_seconds"].as_f64().unwrap() >= 4.9, "{call}");
    assert_eq!(call["answered_at"], json!(null));
    // Longer than it takes to give the number its agent.
    let path = format!("/phone-numbers/{number}");
    client
        .post(&format!("{path}/routing"), &rules("hangup", 120))
        .await
        .expect(200);
    let waits = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "500"]);
    sleep(Duration::from_secs(1)).await;
    client
        .patch(&path, &json!({"agent_id": agent}))
        .await
        .expect(200);
    assert!(well(waits).await, "{}", server.log());
    assert_eq!(calls(&client, 2).await[0]["status"], "completed");
}

#[tokio::test]
async fn a_caller_waits_for_room_and_is_busy_when_none_comes() {
    let _together = stage::together().await;
    let (server, listen) = server_with(&[("LIMITS__ACCOUNT_CALLS", "1")]).await;
    let client = server.client();
    let hangup = json!({"inbound": rules("hangup", 5)});
    let (trunk, _, number) = line(&client, by_address(), hangup).await;
    let busy = server.data.join("busy.xml");
    std::fs::write(&busy, rings_in_vain(486)).unwrap();
    let talking = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "9000"]);
    let path = format!("/sip-trunks/{trunk}");
    until(&client, &path, |trunk| trunk["active_calls"] == 1).await;
    let file = busy.to_str().unwrap();
    assert!(
        well(caller(&server, listen, NUMBER, &["-sf", file])).await,
        "180, then 486"
    );
    // The next one waits for longer than the first talks.
    client
        .post(
            &format!("/phone-numbers/{number}/routing"),
            &rules("hangup", 60),
        )
        .await
        .expect(200);
    let waits = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "500"]);
    assert!(well(talking).await, "{}", server.log());
    assert!(well(waits).await, "{}", server.log());
    let mut all = calls(&client, 3).await;
    all.reverse();
    let ends: Vec<_> = all.iter().map(|call| call["end_reason"].clone()).collect();
    let talked = || json!("caller_hangup");
    assert_eq!(ends, [talked(), json!("busy"), talked()], "{all:?}");
}

/// For how long 1000 Hz are heard and hardly anything else, ms, at 16 kHz.
fn tone_ms(samples: &[i16]) -> usize {
    let tonal = |part: &&[i16]| {
        let whole: f64 = part
            .iter()
            .map(|s| (f64::from(*s) / 32_768.0).powi(2))
            .sum();
        let mean = whole / part.len() as f64;
        // Of a sine its power is all there is.
        mean > 0.002 && media::audio::tones::goertzel(part, 16_000, 1_000.0) > 0.7 * mean
    };
    10 * samples.chunks_exact(160).filter(tonal).count()
}

#[tokio::test]
async fn a_caller_leaves_a_message_where_no_agent_answers() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let nobody = json!({"agent_id": null, "inbound": rules("voicemail", 5)});
    let (trunk, _, number) = line(&client, by_address(), nobody).await;
    // The announcement, and what is said after the tone: SIPp sends back what it hears, so its own voice
    // here is the announcement's and the tone's echo.
    let call = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "9000"]);
    assert!(well(call).await, "{}", server.log());
    let call = calls(&client, 1).await.remove(0);
    let id = call["id"].as_str().unwrap();
    let call = stage::over(&client, id, Duration::from_secs(20)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["ended_by"]),
        (&json!("completed"), &json!("voicemail"), &json!("caller")),
        "{call}"
    );
    assert_eq!(
        (
            &call["agent_id"],
            &call["trunk_id"],
            &call["phone_number_id"]
        ),
        (&json!(null), &json!(trunk), &json!(number)),
    );
    assert_eq!(call["has_recording"], true, "{call}");
    let turns = call["transcript"].as_array().unwrap();
    assert_eq!(turns.len(), 1, "the announcement: {call}");
    let [said, announced] = stage::recording(&client, id).await;
    assert!(announced.len() > 16_000 * 7, "{}", announced.len());
    // The tone, whatever voice announced it, and its echo in what the caller said.
    for heard in [&announced, &said] {
        assert!(tone_ms(heard) >= 100, "{} ms", tone_ms(heard));
    }
    assert!(loud(&announced) > 1.0);
}

#[tokio::test]
async fn a_message_is_taken_where_the_account_has_no_room_and_silence_ends_it() {
    let _together = stage::together().await;
    let (server, listen) = server_with(&[("LIMITS__ACCOUNT_CALLS", "1")]).await;
    let client = server.client();
    let taken = json!({"inbound": rules("voicemail", 5)});
    let (trunk, agent, _) = line(&client, by_address(), taken).await;
    let talking = caller(&server, listen, NUMBER, &["-sn", "uac", "-d", "30000"]);
    let path = format!("/sip-trunks/{trunk}");
    until(&client, &path, |trunk| trunk["active_calls"] == 1).await;
    // It never hangs up, and its echo ends with the tone: we do.
    let waits = server.data.join("waits.xml");
    let steps = [
        invite("[service]", ""),
        super::trunks::ANSWERED.to_owned(),
        ack("[service]", ""),
        "<recv request=\"BYE\" timeout=\"60000\"/><send><![CDATA[
      SIP/2.0 200 OK
      [last_Via:]
      [last_From:]
      [last_To:]
      [last_Call-ID:]
      [last_CSeq:]
      Content-Length: 0
    ]]></send>"
            .to_owned(),
    ];
    std::fs::write(&waits, scenario(&steps)).unwrap();
    let file = waits.to_str().unwrap();
    assert!(
        well(caller(&server, listen, NUMBER, &["-sf", file])).await,
        "{}",
        server.log()
    );
    assert!(well(talking).await, "{}", server.log());
    let all = calls(&client, 2).await;
    let message = all.iter().find(|call| call["end_reason"] == "voicemail");
    let message = message.unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(
        (&message["ended_by"], &message["agent_id"]),
        (&json!("system"), &json!(agent)),
        "{message}"
    );
}

/// A caller of a number without an agent, who rings and has been rung for a while: the pauses are long by then.
async fn ringing(server: &Server, listen: SocketAddr, code: u16) -> (Child, String) {
    let client = server.client();
    let no_agent = json!({"agent_id": null, "inbound": rules("hangup", 120)});
    line(&client, by_address(), no_agent).await;
    let file = server.data.join("rings.xml");
    std::fs::write(&file, rings_in_vain(code)).unwrap();
    let caller = caller(server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
    let list = until(&client, "/calls", |list| {
        list["items"][0]["status"] == "ringing"
    })
    .await;
    sleep(Duration::from_secs(6)).await;
    (caller, list["items"][0]["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_caller_who_rings_at_a_server_that_ends_is_told_at_once() {
    let _together = stage::together().await;
    let (mut server, listen) = server().await;
    let (caller, id) = ringing(&server, listen, 503).await;
    let told = Instant::now();
    server.terminate();
    assert!(well(caller).await, "180, then 503: {}", server.log());
    assert!(
        told.elapsed() < Duration::from_secs(2),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(server.ended(Duration::from_secs(20)).await, Some(0));
    server.start_again().await;
    let call = stage::over(&server.client(), &id, Duration::from_secs(5)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["sip_code"]),
        (&json!("no-answer"), &json!("no_answer"), &json!(503)),
        "{call}"
    );
    assert!(call["ring_seconds"].as_f64().unwrap() >= 5.0, "{call}");
    assert_eq!(server.events(&id, "call.ended").await.len(), 1);
}

#[tokio::test]
async fn a_caller_who_rings_at_a_server_that_dies_has_a_record_that_ends_once() {
    let _together = stage::together().await;
    let (mut server, listen) = server().await;
    let (caller, id) = ringing(&server, listen, 503).await;
    server.kill();
    drop(caller);
    server.start_again().await;
    let call = stage::over(&server.client(), &id, Duration::from_secs(20)).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["answered_at"]),
        (&json!("failed"), &json!("node_lost"), &json!(null)),
        "{call}"
    );
    assert_eq!(server.events(&id, "call.ended").await.len(), 1);
}
