//! Calls that are placed over the API: SIPp is the carrier, and answers, is busy, asks for a password, or
//! lets it ring.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use kit::client::Client;
use kit::ports::free_port;
use kit::server::Server;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::timeout;

use crate::stage::{self, loud};
use crate::trunks::{scenario, sipp, until};

const FROM: &str = "+15550100";
pub(crate) const TO: &str = "+4930123456";

/// A server that knows no telephone but what the API tells it.
async fn server() -> Server {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    stage::setup()
        .set("SIP__LISTEN", &format!("udp:{listen},tcp:{listen}"))
        .set("EGRESS__ALLOW", "127.0.0.1")
        .start()
        .await
}

/// The carrier: SIPp with this scenario for one call, on a port of its own.
pub(crate) fn carrier(server: &Server, steps: &str, transport: &str) -> (Child, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let file = server.data.join(format!("carrier-{}.xml", address.port()));
    std::fs::write(&file, steps).unwrap();
    let (port, media) = (address.port().to_string(), free_port().to_string());
    let args = [
        "-sf",
        file.to_str().unwrap(),
        "-t",
        transport,
        "-i",
        "127.0.0.1",
        "-p",
        &port,
        "-mi",
        "127.0.0.1",
        "-mp",
        &media,
        "-rtp_echo",
        "-m",
        "1",
    ];
    (sipp(&server.data, &args), address)
}

/// An agent, a trunk to this carrier and its number; what is asked for to call.
pub(crate) async fn line(client: &Client, carrier: SocketAddr, trunk: Value) -> Value {
    let greeting = "Good day, this is the test line, and we call you because of a test.";
    let agent = json!({"interruption_enabled": false, "first_message": greeting,
        "webhook_url": "https://hooks.acme.com/calls"});
    let agent = stage::agent(client, agent).await;
    let mut body = json!({"name": "carrier", "outbound_address": carrier.to_string(),
        "auth_mode": "ip_acl", "numbers": [FROM]});
    for (name, value) in trunk.as_object().unwrap() {
        body[name] = value.clone();
    }
    client.post("/sip-trunks/onboard", &body).await.expect(201);
    json!({"agent_id": agent, "to_number": TO, "from_number": FROM})
}

pub(crate) async fn place(client: &Client, wish: &Value) -> String {
    client
        .post("/calls", wish)
        .await
        .expect(202)
        .text("call_id")
}

/// The record once the call stands so.
pub(crate) async fn standing(client: &Client, id: &str, status: &str) -> Value {
    until(client, &format!("/calls/{id}"), |call| {
        call["status"] == status
    })
    .await
}

/// The record of a call that is over, told of once, as it is in the record.
pub(crate) async fn over(server: &Server, id: &str) -> Value {
    let call = stage::over(&server.client(), id, Duration::from_secs(60)).await;
    let events = server.events(id, "call.ended").await;
    assert_eq!(events.len(), 1, "{call}");
    for field in [
        "status",
        "direction",
        "from_number",
        "to_number",
        "started_at",
        "ended_at",
        "metadata",
    ] {
        assert_eq!(events[0].0[field], call[field], "{field}");
    }
    call
}

pub(crate) async fn well(mut sipp: Child, server: &Server) {
    let ended = timeout(Duration::from_secs(60), sipp.wait()).await;
    let status = ended.expect("sipp ends").unwrap();
    assert!(status.success(), "{status}: {}", server.log());
}

pub(crate) fn recv(method: &str) -> String {
    format!("<recv request=\"{method}\"/>\n")
}

/// An answer to the last request, with more headers or a body.
pub(crate) fn send(status: &str, more: &str) -> String {
    format!(
        "<send><![CDATA[
      SIP/2.0 {status}
      [last_Via:]
      [last_From:]
      [last_To:];tag=carrier[call_number]
      [last_Call-ID:]
      [last_CSeq:]
      Contact: <sip:[local_ip]:[local_port];transport=[transport]>
      {more}
    ]]></send>\n"
    )
}

pub(crate) const NO_BODY: &str = "Content-Length: 0";

/// The answer to a BYE, whose To has our tag already.
pub(crate) fn bye_taken() -> String {
    send("200 OK", NO_BODY).replace("[last_To:];tag=carrier[call_number]", "[last_To:]")
}

/// An answer whose audio is at the port that stands for `[media_port]`.
pub(crate) fn answer(port: &str) -> String {
    let body = format!(
        "Content-Type: application/sdp
      Content-Length: [len]

      v=0
      o=carrier 1 1 IN IP4 [local_ip]
      s=-
      c=IN IP4 [media_ip]
      t=0 0
      m=audio {port} RTP/AVP 0
      a=rtpmap:0 PCMU/8000"
    );
    send("200 OK", &body)
}

/// Rings, answers, and takes the other side's goodbye.
fn answers() -> String {
    scenario(&[
        recv("INVITE"),
        send("180 Ringing", NO_BODY),
        "<pause milliseconds=\"700\"/>".to_owned(),
        answer("[media_port]"),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ])
}

/// Says no.
pub(crate) fn refuses(status: &str) -> String {
    scenario(&[recv("INVITE"), send(status, NO_BODY), recv("ACK")])
}

/// Rings until it is cancelled.
pub(crate) fn rings() -> String {
    let canceled =
        send("487 Request Terminated", NO_BODY).replace("[last_CSeq:]", "CSeq: 1 INVITE");
    scenario(&[
        recv("INVITE"),
        send("180 Ringing", NO_BODY),
        recv("CANCEL"),
        send("200 OK", NO_BODY),
        canceled,
        recv("ACK"),
    ])
}

#[tokio::test]
async fn a_carrier_that_answers_hears_the_agent_and_is_heard() {
    let _together = stage::together().await;
    for (transport, sipp) in [("udp", "u1"), ("tcp", "t1")] {
        let server = server().await;
        let client = server.client();
        let (carrier, address) = carrier(&server, &answers(), sipp);
        let mut wish = line(&client, address, json!({"transport": transport})).await;
        wish["metadata"] = json!({"order": 4711});
        let id = place(&client, &wish).await;
        standing(&client, &id, "in_progress").await;
        // The callee says nothing, so the agent speaks after three seconds, and hears itself come back.
        let path = format!("/conversations/{id}/transcript");
        until(&client, &path, |transcript| {
            !transcript["turns"].as_array().unwrap().is_empty()
        })
        .await;
        let ended = client.post(&format!("/calls/{id}/end"), &json!({})).await;
        ended.expect(200);
        well(carrier, &server).await;
        let call = over(&server, &id).await;
        for (field, value) in [
            ("status", json!("completed")),
            ("end_reason", json!("ended_by_api")),
            ("direction", json!("outbound")),
            ("channel", json!("sip")),
            ("from_number", json!(FROM)),
            ("to_number", json!(TO)),
            ("sip_code", json!(200)),
            ("metadata", json!({"order": 4711})),
        ] {
            assert_eq!(call[field], value, "{transport} {field}: {call}");
        }
        assert!(call["ring_seconds"].as_f64().unwrap() >= 0.5, "{call}");
        assert!(!call["trunk_id"].is_null() && !call["phone_number_id"].is_null());
        let said = call["transcript"][0]["text"].as_str().unwrap();
        assert!(said.starts_with("Good day"), "{call}");
        let [callee, agent] = stage::recording(&client, &id).await;
        let (said, echoed) = (loud(&agent), loud(&callee));
        assert!(
            said > 1.0 && (said - echoed).abs() < 0.5,
            "{transport}: {said} {echoed}"
        );
        // Nothing is said before the callee could have spoken first.
        let first = agent.iter().position(|s| s.unsigned_abs() > 330).unwrap();
        assert!(first > 16_000 * 5 / 2, "{transport}: after {first} samples");
    }
}

#[tokio::test]
async fn every_no_of_a_carrier_is_in_the_record() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    for (response, status, reason) in [
        ("486 Busy Here", "busy", "busy"),
        ("603 Decline", "busy", "declined"),
        ("404 Not Found", "failed", "invalid_number"),
        ("480 Temporarily Unavailable", "no-answer", "no_answer"),
        ("503 Service Unavailable", "failed", "carrier_error"),
    ] {
        let (carrier, address) = carrier(&server, &refuses(response), "u1");
        let number = format!("+1555{}", address.port());
        let mut wish = line(&client, address, json!({"numbers": [number]})).await;
        wish["from_number"] = json!(number);
        let id = place(&client, &wish).await;
        let call = over(&server, &id).await;
        well(carrier, &server).await;
        let code: u16 = response[..3].parse().unwrap();
        assert_eq!(
            (&call["status"], &call["end_reason"], &call["sip_code"]),
            (&json!(status), &json!(reason), &json!(code)),
            "{call}"
        );
        assert_eq!(call["duration_seconds"], 0.0);
        assert_eq!(call["answered_at"], json!(null));
        assert_eq!(call["has_recording"], false);
        let path = format!("/sip-trunks/{}", call["trunk_id"].as_str().unwrap());
        let trunk = client.get(&path).await.expect(200);
        assert_eq!(trunk.body["failed_calls"], 1, "each carrier is called once");
        let last = json!({"call_id": id, "ended_at": call["ended_at"], "status": status, "sip_code": code});
        assert_eq!(trunk.body["last_failed_call"], last);
    }
}

#[tokio::test]
async fn a_phone_that_nobody_picks_up_rings_as_long_as_it_was_told() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    let (carrier, address) = carrier(&server, &rings(), "u1");
    let mut wish = line(&client, address, json!({})).await;
    wish["ring_timeout_seconds"] = json!(5);
    let id = place(&client, &wish).await;
    let ringing = standing(&client, &id, "ringing").await;
    assert_eq!(ringing["answered_at"], json!(null));
    let call = over(&server, &id).await;
    well(carrier, &server).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["sip_code"]),
        (&json!("no-answer"), &json!("no_answer"), &json!(null)),
        "{call}"
    );
    assert!(call["ring_seconds"].as_f64().unwrap() > 4.0, "{call}");
}

#[tokio::test]
async fn a_call_that_rings_is_canceled_over_the_api_and_at_the_carrier() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    let (carrier, address) = carrier(&server, &rings(), "u1");
    let wish = line(&client, address, json!({"max_concurrent_calls": 1})).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "ringing").await;
    let full = client.post("/calls", &wish).await.expect(429);
    assert_eq!(full.text("resource"), "trunk");
    let ended = client.post(&format!("/calls/{id}/end"), &json!({})).await;
    assert_eq!(ended.expect(200).text("end_reason"), "ended_by_api");
    let call = over(&server, &id).await;
    assert_eq!(
        (&call["status"], &call["ended_by"]),
        (&json!("canceled"), &json!("api")),
        "{call}"
    );
    // It got the CANCEL, and our ACK of its 487.
    well(carrier, &server).await;
    client.post("/calls", &wish).await.expect(202);
}

#[tokio::test]
async fn a_call_that_rings_for_an_account_that_is_blocked_is_canceled() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    let (carrier, address) = carrier(&server, &rings(), "u1");
    let wish = line(&client, address, json!({})).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "ringing").await;
    server.command(&["accounts", "block", "default"]);
    let call = over(&server, &id).await;
    well(carrier, &server).await;
    assert_eq!(
        (&call["status"], &call["end_reason"], &call["ended_by"]),
        (&json!("canceled"), &json!("ended_by_api"), &json!("system")),
        "{call}"
    );
    let refused = client.post("/calls", &wish).await.expect(402);
    assert_eq!(refused.text("code"), "billing.hard_block");
}

#[tokio::test]
async fn a_carrier_that_asks_for_a_password_gets_it() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    let nonce = "nonce=\"47ebe028cda119c35d4877b383027d28\", algorithm=MD5";
    for (status, header, proof) in [
        (
            "407 Proxy Authentication Required",
            format!("Proxy-Authenticate: Digest realm=\"acme\", {nonce}"),
            "<recv request=\"INVITE\"><action><ereg regexp=\"username=.acme., realm=.acme., .*response=.[0-9a-f]{32}.\" \
             search_in=\"hdr\" header=\"Proxy-Authorization:\" check_it=\"true\" assign_to=\"1\"/></action></recv>\
             <nop><action><log message=\"[$1]\"/></action></nop>",
        ),
        (
            "401 Unauthorized",
            format!("WWW-Authenticate: Digest realm=\"acme\", {nonce}"),
            // SIPp itself works the answer out.
            "<recv request=\"INVITE\"><action><verifyauth assign_to=\"ok\" username=\"acme\" password=\"right\"/>\
             </action></recv><nop next=\"1\" test=\"ok\"/><nop><action><exec int_cmd=\"stop_now\"/></action></nop>\
             <label id=\"1\"/>",
        ),
    ] {
        let steps = scenario(&[
            recv("INVITE"),
            send(status, &format!("{header}\n      {NO_BODY}")),
            recv("ACK"),
            proof.to_owned(),
            answer("[media_port]"),
            recv("ACK"),
            recv("BYE"),
            bye_taken(),
        ]);
        let (carrier, address) = carrier(&server, &steps, "u1");
        let number = format!("+1555{}", address.port());
        let trunk = json!({"numbers": [number], "auth_mode": "digest", "auth_username": "acme",
            "auth_password": "right", "allow_md5_without_qop": true});
        let mut wish = line(&client, address, trunk).await;
        wish["from_number"] = json!(number);
        let id = place(&client, &wish).await;
        standing(&client, &id, "in_progress").await;
        client
            .post(&format!("/calls/{id}/end"), &json!({}))
            .await
            .expect(200);
        let call = over(&server, &id).await;
        assert_eq!(call["status"], "completed", "{status}: {call}");
        well(carrier, &server).await;
    }
}

#[tokio::test]
async fn a_trunk_that_requires_encryption_sends_no_plain_audio() {
    let _together = stage::together().await;
    let server = server().await;
    let client = server.client();
    let ear = UdpSocket::bind("127.0.0.1:0").unwrap();
    ear.set_nonblocking(true).unwrap();
    let port = ear.local_addr().unwrap().port().to_string();
    let plain = scenario(&[
        "<recv request=\"INVITE\"><action><ereg regexp=\"m=audio [0-9]+ RTP/SAVP\" search_in=\"body\" \
         check_it=\"true\" assign_to=\"1\"/></action></recv><nop><action><log message=\"[$1]\"/></action></nop>"
            .to_owned(),
        answer(&port),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ]);
    let (carrier, address) = carrier(&server, &plain, "u1");
    let wish = line(&client, address, json!({"media_encryption": "require"})).await;
    let id = place(&client, &wish).await;
    let call = over(&server, &id).await;
    well(carrier, &server).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("carrier_error")),
        "{call}"
    );
    let heard = ear.recv_from(&mut [0; 2_048]).map(|(length, _)| length);
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test]
async fn a_call_that_rings_when_its_server_dies_ends_once() {
    let _together = stage::together().await;
    let mut server = server().await;
    let client = server.client();
    let (_carrier, address) = carrier(&server, &rings(), "u1");
    let wish = line(&client, address, json!({})).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "ringing").await;
    server.kill();
    server.start_again().await;
    let call = over(&server, &id).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("node_lost")),
        "{call}"
    );
}
