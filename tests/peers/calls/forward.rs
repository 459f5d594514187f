//! A call to a number whose agent does not answer is forwarded: a second call goes out, and both sides
//! hear each other. SIPp is the carrier of the second one, and a telephone of our own or another SIPp
//! calls.

use std::net::SocketAddr;
use std::time::Duration;

use kit::client::Client;
use kit::ports::free_port;
use kit::telephone::{Telephone, Waiting};
use media::audio::tones;
use media::rtp::sdp::{Codec, Encryption, Flow};
use serde_json::{Value, json};

use super::outbound::{self, NO_BODY, answer, bye_taken, carrier, recv, refuses, rings, send};
use super::routing::rings_in_vain;
use super::trunks::{
    ANSWERED, NUMBER, ack, by_address, caller, calls, invite, line, scenario, server, until, well,
};
use crate::stage;

/// The number that calls are forwarded to.
const TO: &str = "+4989654321";

fn forward() -> Value {
    json!({"agent_id": null, "outbound_enabled": true, "inbound": {"fallback_action": "forward",
        "fallback_number": TO, "max_ring_seconds": 5}})
}

/// The default trunk, over which calls go out to this carrier. Its id.
async fn way_out(client: &Client, carrier: SocketAddr, more: Value) -> String {
    let mut body = json!({"name": "way out", "outbound_address": carrier.to_string(),
        "auth_mode": "ip_acl", "numbers": ["+15550100"], "set_as_tenant_default": true});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let made = client.post("/sip-trunks/onboard", &body).await.expect(201);
    made.body["trunk"]["id"].as_str().unwrap().to_owned()
}

/// The call that came in and the one that went out.
async fn both(client: &Client) -> (Value, Value) {
    let all = calls(client, 2).await;
    let of = |direction| {
        let found = all.iter().find(|call| call["direction"] == direction);
        found.unwrap_or_else(|| panic!("{all:?}")).clone()
    };
    (of("inbound"), of("outbound"))
}

#[tokio::test]
async fn a_forwarded_caller_and_the_callee_hear_each_other_in_two_codecs() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    let (_, _, number) = line(&client, by_address(), forward()).await;
    // It speaks A-law, the caller µ-law; it sends back what it hears.
    let law = answer("[media_port]")
        .replace("RTP/AVP 0", "RTP/AVP 8")
        .replace("rtpmap:0 PCMU", "rtpmap:8 PCMA");
    let steps = [
        recv("INVITE"),
        send("180 Ringing", NO_BODY),
        "<pause milliseconds=\"700\"/>".to_owned(),
        law,
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ];
    let (callee, address) = carrier(&server, &scenario(&steps), "u1");
    let trunk = way_out(&client, address, json!({})).await;
    let within = Duration::from_secs(30);
    let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
    let mut phone = called.unwrap_or_else(|code| panic!("{code}: {}", server.log()));
    phone.speak(&tones::sine(8_000, 500.0, -12.0, 16_000)).await;
    phone.silence(500).await;
    let heard = phone.heard.clone();
    phone.hang_up().await;
    outbound::well(callee, &server).await;
    // A second of the two that were said came back, at least.
    let echoed = heard
        .chunks_exact(800)
        .filter(|part| tones::goertzel(part, 8_000, 500.0) > 0.02)
        .count();
    assert!(echoed >= 10, "{echoed} of {} tenths", heard.len() / 800);
    let (came, went) = both(&client).await;
    assert_eq!(
        (&came["status"], &came["end_reason"], &came["ended_by"]),
        (&json!("completed"), &json!("transferred"), &json!("caller")),
        "{came}"
    );
    assert_eq!(
        (&went["status"], &went["end_reason"], &went["ended_by"]),
        (
            &json!("completed"),
            &json!("caller_hangup"),
            &json!("system")
        ),
        "{went}"
    );
    assert_eq!(
        (&went["to_number"], &went["from_number"], &went["trunk_id"]),
        (&json!(TO), &json!(NUMBER), &json!(trunk)),
    );
    assert_eq!(went["metadata"]["forwarded_call_id"], came["id"]);
    assert_eq!(came["phone_number_id"], json!(number));
    for call in [&came, &went] {
        assert!(!call["answered_at"].is_null(), "{call}");
        assert!(call["duration_seconds"].as_f64().unwrap() >= 2.0, "{call}");
        assert!(call["ring_seconds"].as_f64().unwrap() > 0.5, "{call}");
    }
}

#[tokio::test]
async fn a_callee_who_hangs_up_ends_the_callers_call() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let goodbye = "<pause milliseconds=\"1500\"/><send retrans=\"500\"><![CDATA[
      BYE sip:sidetone@127.0.0.1 SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: [$to]
      To: [$from]
      [last_Call-ID:]
      CSeq: 1 BYE
      Max-Forwards: 70
      Content-Length: 0
    ]]></send><recv response=\"200\"/>";
    let steps = [
        "<recv request=\"INVITE\"><action>
          <ereg regexp=\".*\" search_in=\"hdr\" header=\"From:\" check_it=\"true\" assign_to=\"from\"/>
          <ereg regexp=\".*\" search_in=\"hdr\" header=\"To:\" check_it=\"true\" assign_to=\"to\"/>
        </action></recv>"
            .to_owned(),
        send("180 Ringing", NO_BODY),
        answer("[media_port]"),
        recv("ACK"),
        goodbye.replace("[$to]", "[$to];tag=carrier[call_number]"),
    ];
    let (callee, address) = carrier(&server, &scenario(&steps), "u1");
    way_out(&client, address, json!({})).await;
    let waits = server.data.join("waits.xml");
    let steps = [
        invite("[service]", ""),
        ANSWERED.to_owned(),
        ack("[service]", ""),
        recv("BYE"),
        bye_taken(),
    ];
    std::fs::write(&waits, scenario(&steps)).unwrap();
    let file = waits.to_str().unwrap();
    let called = caller(&server, listen, NUMBER, &["-sf", file]);
    assert!(well(called).await, "{}", server.log());
    outbound::well(callee, &server).await;
    let (came, went) = both(&client).await;
    assert_eq!(
        (&came["end_reason"], &came["ended_by"]),
        (&json!("transferred"), &json!("system")),
        "{came}"
    );
    assert_eq!(
        (&went["end_reason"], &went["ended_by"]),
        (&json!("caller_hangup"), &json!("caller")),
        "{went}"
    );
}

#[tokio::test]
async fn a_forwarded_call_ends_when_its_account_is_blocked() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let steps = [
        recv("INVITE"),
        send("180 Ringing", NO_BODY),
        answer("[media_port]"),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ];
    let (callee, address) = carrier(&server, &scenario(&steps), "u1");
    way_out(&client, address, json!({})).await;
    let waits = server.data.join("waits.xml");
    let steps = [
        invite("[service]", ""),
        ANSWERED.to_owned(),
        ack("[service]", ""),
        recv("BYE"),
        bye_taken(),
    ];
    std::fs::write(&waits, scenario(&steps)).unwrap();
    let file = waits.to_str().unwrap();
    let called = caller(&server, listen, NUMBER, &["-sf", file]);
    until(&client, "/calls?limit=100", |list| {
        let items = list["items"].as_array().unwrap();
        items.len() == 2 && items.iter().all(|call| call["status"] == "in_progress")
    })
    .await;
    server.command(&["accounts", "block", "default"]);
    assert!(well(called).await, "{}", server.log());
    outbound::well(callee, &server).await;
    let (came, went) = both(&client).await;
    for call in [came, went] {
        assert_eq!(
            (&call["end_reason"], &call["ended_by"]),
            (&json!("ended_by_api"), &json!("system")),
            "{call}"
        );
    }
}

#[tokio::test]
async fn a_forwarded_call_is_ended_over_the_api_by_either_of_its_records() {
    let _together = stage::together().await;
    for direction in ["inbound", "outbound"] {
        let (server, listen) = server().await;
        let client = server.client();
        line(&client, by_address(), forward()).await;
        let steps = [
            recv("INVITE"),
            send("180 Ringing", NO_BODY),
            answer("[media_port]"),
            recv("ACK"),
            recv("BYE"),
            bye_taken(),
        ];
        let (callee, address) = carrier(&server, &scenario(&steps), "u1");
        way_out(&client, address, json!({})).await;
        let within = Duration::from_secs(30);
        let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
        let mut phone = called.unwrap_or_else(|code| panic!("{code}: {}", server.log()));
        let list = client.get("/calls").await.expect(200).body;
        let mut items = list["items"].as_array().unwrap().iter();
        let meant = items.find(|call| call["direction"] == direction).unwrap();
        let path = format!("/calls/{}/end", meant["id"].as_str().unwrap());
        let ended = client.post(&path, &json!({})).await.expect(200);
        assert_eq!(ended.text("end_reason"), "ended_by_api");
        phone.wait_for_goodbye().await;
        outbound::well(callee, &server).await;
        let (came, went) = both(&client).await;
        for call in [came, went] {
            assert_eq!(
                (&call["status"], &call["end_reason"], &call["ended_by"]),
                (&json!("completed"), &json!("ended_by_api"), &json!("api")),
                "{direction}: {call}"
            );
        }
    }
}

#[tokio::test]
async fn a_forwarded_caller_who_holds_hears_nothing_and_then_the_callee_again() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let steps = [
        recv("INVITE"),
        send("180 Ringing", NO_BODY),
        answer("[media_port]"),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ];
    // It sends back what it hears.
    let (callee, address) = carrier(&server, &scenario(&steps), "u1");
    way_out(&client, address, json!({})).await;
    let within = Duration::from_secs(30);
    let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
    let mut phone = called.unwrap_or_else(|code| panic!("{code}: {}", server.log()));
    let tone = tones::sine(8_000, 500.0, -12.0, 8_000);
    let tonal = |heard: &[i16]| {
        let tenths = heard.chunks_exact(800);
        tenths
            .filter(|part| tones::goertzel(part, 8_000, 500.0) > 0.02)
            .count()
    };
    phone.speak(&tone).await;
    phone.silence(300).await;
    assert!(tonal(&phone.heard) >= 5, "{}", tonal(&phone.heard));
    phone.flow(Flow::SendOnly).await;
    phone.silence(300).await;
    let held = phone.heard.len();
    phone.speak(&tone).await;
    assert_eq!(phone.heard.len(), held, "nothing is sent to one who holds");
    phone.flow(Flow::SendRecv).await;
    phone.silence(300).await;
    let back = phone.heard.len();
    phone.speak(&tone).await;
    phone.silence(300).await;
    let tenths = tonal(&phone.heard[back..]);
    assert!(tenths >= 5, "the line is back: {tenths}");
    phone.hang_up().await;
    outbound::well(callee, &server).await;
    let (came, went) = both(&client).await;
    assert_eq!(came["end_reason"], "transferred", "{came}");
    assert_eq!(went["end_reason"], "caller_hangup", "{went}");
}

/// Half a second of both at once, each with a tone of its own, and what is still on its way then.
async fn both_speak([caller, callee]: &mut [Telephone; 2]) {
    let [low, high] = [500.0, 1_250.0].map(|hz| tones::sine(8_000, hz, -12.0, 4_000));
    tokio::join!(caller.speak(&low), callee.speak(&high));
    tokio::join!(caller.silence(300), callee.silence(300));
}

#[tokio::test]
async fn either_side_of_a_forwarded_call_holds_and_comes_back_in_another_codec() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let waiting = Waiting::new();
    way_out(&client, waiting.address(), json!({})).await;
    let within = Duration::from_secs(30);
    let (caller, callee) = tokio::join!(
        Telephone::call_number(listen, NUMBER, Encryption::Disable, within),
        async { waiting.rings().await.answer() }
    );
    let caller = caller.unwrap_or_else(|code| panic!("{code}: {}", server.log()));
    let mut phones = [caller, callee];
    // The codec of each side, once this one is back.
    for (holder, codecs) in [
        (0, [Codec::Pcma, Codec::Pcmu]),
        (1, [Codec::Pcma, Codec::Pcma]),
    ] {
        let other = 1 - holder;
        let [holds, waits] = phones.get_disjoint_mut([holder, other]).unwrap();
        tokio::join!(holds.flow(Flow::SendOnly), waits.silence(300));
        holds.silence(300).await;
        let held = holds.heard.len();
        both_speak(&mut phones).await;
        let heard = phones[holder].heard.len();
        assert_eq!(heard, held, "nothing is sent to one who holds");
        let [holds, waits] = phones.get_disjoint_mut([holder, other]).unwrap();
        tokio::join!(holds.resume_in(Codec::Pcma), waits.silence(300));
        let from = [0, 1].map(|at| phones[at].heard.len());
        both_speak(&mut phones).await;
        for (at, hz) in [(0, 1_250.0), (1, 500.0)] {
            let phone = &phones[at];
            let parts = phone.heard[from[at]..].chunks_exact(800);
            let tonal = parts.filter(|part| tones::goertzel(part, 8_000, hz) > 0.02);
            let tonal = tonal.count();
            assert!(tonal >= 4, "{holder} held, {at} hears {tonal} tenths");
            assert_eq!(phone.heard_in, Some(codecs[at]), "{holder} held");
        }
    }
    let [caller, mut callee] = phones;
    tokio::join!(caller.hang_up(), callee.wait_for_goodbye());
    let (came, went) = both(&client).await;
    assert_eq!(came["end_reason"], "transferred", "{came}");
    assert_eq!(went["end_reason"], "caller_hangup", "{went}");
}

#[tokio::test]
async fn a_callee_who_never_answers_is_rung_for_half_a_minute_and_the_caller_told() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let (callee, address) = carrier(&server, &rings(), "u1");
    way_out(&client, address, json!({})).await;
    let file = server.data.join("rings.xml");
    std::fs::write(&file, rings_in_vain(480)).unwrap();
    let called = caller(&server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
    assert!(well(called).await, "{}", server.log());
    outbound::well(callee, &server).await;
    let (came, went) = both(&client).await;
    for call in [&came, &went] {
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["answered_at"]),
            (&json!("no-answer"), &json!("no_answer"), &json!(null)),
            "{call}"
        );
    }
    assert_eq!(came["sip_code"], 480, "{came}");
    assert!(went["ring_seconds"].as_f64().unwrap() >= 29.0, "{went}");
    // Five seconds for an agent, and the callee's.
    assert!(came["ring_seconds"].as_f64().unwrap() >= 34.0, "{came}");
}

#[tokio::test]
async fn the_caller_is_told_why_the_callee_did_not_answer() {
    let _together = stage::together().await;
    for (said, told, reason) in [
        ("486 Busy Here", 486, "busy"),
        ("603 Decline", 603, "declined"),
        ("404 Not Found", 404, "invalid_number"),
    ] {
        let (server, listen) = server().await;
        let client = server.client();
        line(&client, by_address(), forward()).await;
        let (callee, address) = carrier(&server, &refuses(said), "u1");
        way_out(&client, address, json!({})).await;
        let file = server.data.join("rings.xml");
        std::fs::write(&file, rings_in_vain(told)).unwrap();
        let called = caller(&server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
        assert!(well(called).await, "{said}: {}", server.log());
        outbound::well(callee, &server).await;
        let (came, went) = both(&client).await;
        for call in [came, went] {
            assert_eq!(
                (&call["end_reason"], &call["sip_code"]),
                (&json!(reason), &json!(told)),
                "{call}"
            );
        }
    }
}

#[tokio::test]
async fn a_caller_who_gives_up_cancels_the_call_that_went_out() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    let (callee, address) = carrier(&server, &rings(), "u1");
    way_out(&client, address, json!({})).await;
    let within = Duration::from_secs(9);
    let called = Telephone::call_number(listen, NUMBER, Encryption::Disable, within).await;
    assert!(called.is_err(), "nobody answers");
    outbound::well(callee, &server).await;
    let (came, went) = both(&client).await;
    for call in [came, went] {
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["ended_by"]),
            (
                &json!("canceled"),
                &json!("caller_hangup"),
                &json!("caller")
            ),
            "{call}"
        );
    }
}

#[tokio::test]
async fn what_a_trunk_may_not_call_no_rule_calls() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), forward()).await;
    // Nobody is there: it is not called.
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let elsewhere = json!({"destination_allowlist": {"mode": "allowlist", "entries": ["+1"]}});
    way_out(&client, nobody, elsewhere).await;
    let file = server.data.join("rings.xml");
    std::fs::write(&file, rings_in_vain(480)).unwrap();
    let called = caller(&server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
    assert!(well(called).await, "{}", server.log());
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(
        (&call["direction"], &call["end_reason"], &call["sip_code"]),
        (&json!("inbound"), &json!("no_answer"), &json!(480)),
        "{call}"
    );
    let id = call["id"].as_str().unwrap();
    let told = client
        .get(&format!("/conversations/{id}/diagnostics"))
        .await
        .expect(200);
    let errors = told.body["errors"].to_string();
    assert!(errors.contains("destination_allowlist"), "{errors}");
}
