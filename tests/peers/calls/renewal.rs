//! Sessions that change while a telephone call rings or is up, keys that its signalling tells, and addresses
//! that a carrier may not name. SIPp is the other side; its audio comes to sockets of the test.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::json;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::outbound::{self, answer, bye_taken, carrier, over, place, recv, standing};
use super::trunks::{
    ANSWERED, NUMBER, ack, by_address, caller, calls, goodbye, invite, line, scenario, server,
    until, well,
};
use crate::stage;

/// A socket for audio, and its port.
async fn ear(address: &str) -> (UdpSocket, String) {
    let ear = UdpSocket::bind((address, 0)).await.unwrap();
    let port = ear.local_addr().unwrap().port().to_string();
    (ear, port)
}

/// Whether a packet of audio comes within so long.
async fn hears(ear: &UdpSocket, patience: Duration) -> bool {
    let mut packet = [0; 2_048];
    match timeout(patience, ear.recv_from(&mut packet)).await {
        Ok(read) => media::rtp::packet::Packet::parse(&packet[..read.unwrap().0]).is_some(),
        Err(_) => false,
    }
}

/// Throws away what has come.
fn forget(ear: &UdpSocket) {
    while ear.try_recv(&mut [0; 2_048]).is_ok() {}
}

fn pause(ms: u32) -> String {
    format!("<pause milliseconds=\"{ms}\"/>\n")
}

/// A request in the caller's dialog, without a body.
fn request(method: &str) -> String {
    format!(
        "<send retrans=\"500\"><![CDATA[
      {method} sip:[service]@[remote_ip]:[remote_port] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From: <sip:+15550100@[local_ip]:[local_port]>;tag=[call_number]
      To: <sip:{NUMBER}@[remote_ip]:[remote_port]>[peer_tag_param]
      Call-ID: [call_id]
      CSeq: [cseq] {method}
      Contact: <sip:carrier@[local_ip]:[local_port]>
      Max-Forwards: 70
      Content-Length: 0
    ]]></send>"
    )
}

/// The same with a body.
fn with(message: &str, kind: &str, body: &str) -> String {
    let body = body.replace('\n', "\n      ");
    message.replace(
        "Content-Length: 0",
        &format!("Content-Type: {kind}\n      Content-Length: [len]\n\n      {body}"),
    )
}

fn audio_at(port: &str) -> String {
    format!(
        "v=0\no=carrier 1 2 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\n\
         m=audio {port} RTP/AVP 0\na=rtpmap:0 PCMU/8000"
    )
}

/// A 200 whose body has this, as a regular expression.
fn taken_with(body: &str) -> String {
    format!(
        "<recv response=\"200\"><action><ereg regexp=\"{body}\" search_in=\"body\" check_it=\"true\" \
         assign_to=\"9\"/></action></recv><nop><action><log message=\"[$9]\"/></action></nop>"
    )
}

#[tokio::test]
async fn a_caller_that_asks_for_our_offer_hears_where_its_answer_says() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), json!({})).await;
    let ((before, first), (after, second)) = (ear("127.0.0.1").await, ear("127.0.0.1").await);
    let steps = scenario(&[
        invite(NUMBER, "").replace("[media_port]", &first),
        ANSWERED.to_owned(),
        ack(NUMBER, ""),
        pause(1_500),
        request("INVITE"),
        "<recv response=\"100\" optional=\"true\"/>".to_owned(),
        taken_with("m=audio [0-9]+ RTP/AVP 0"),
        with(&ack(NUMBER, ""), "application/sdp", &audio_at(&second)),
        pause(2_500),
        goodbye(NUMBER),
    ]);
    let file = server.data.join("asks.xml");
    std::fs::write(&file, steps).unwrap();
    let call = caller(&server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
    assert!(hears(&before, Duration::from_secs(10)).await);
    assert!(
        hears(&after, Duration::from_secs(10)).await,
        "{}",
        server.log()
    );
    forget(&before);
    assert!(hears(&after, Duration::from_secs(2)).await);
    assert!(
        !hears(&before, Duration::from_millis(300)).await,
        "the old address is let go of"
    );
    assert!(well(call).await, "{}", server.log());
    let call = calls(&client, 1).await.remove(0);
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("completed"), &json!("caller_hangup")),
        "{call}"
    );
}

#[tokio::test]
async fn keys_that_come_in_info_reach_the_agent() {
    let _together = stage::together().await;
    let (server, listen) = server().await;
    let client = server.client();
    line(&client, by_address(), json!({})).await;
    let (_ear, port) = ear("127.0.0.1").await;
    let key = |signal: char| {
        let body = format!("Signal={signal}\nDuration=160");
        with(&request("INFO"), "application/dtmf-relay", &body)
    };
    let steps = scenario(&[
        invite(NUMBER, "").replace("[media_port]", &port),
        ANSWERED.to_owned(),
        ack(NUMBER, ""),
        pause(3_500),
        key('5'),
        "<recv response=\"200\"/>".to_owned(),
        key('#'),
        "<recv response=\"200\"/>".to_owned(),
        pause(2_000),
        goodbye(NUMBER),
    ]);
    let file = server.data.join("keys.xml");
    std::fs::write(&file, steps).unwrap();
    let call = caller(&server, listen, NUMBER, &["-sf", file.to_str().unwrap()]);
    assert!(well(call).await, "{}", server.log());
    let id = calls(&client, 1).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let call = stage::over(&client, &id, Duration::from_secs(10)).await;
    let turns = call["transcript"].as_array().unwrap();
    let keys: Vec<_> = turns
        .iter()
        .filter(|turn| turn["source"] == "keypad")
        .map(|turn| &turn["text"])
        .collect();
    assert_eq!(keys, [&json!("5#")], "{call}");
}

/// A carrier's answer in a reliable 183 (RFC 3262), another offer in an UPDATE while it rings (RFC 3311), and
/// a 200 that says nothing more of the audio.
fn updates(first: &str, second: &str) -> String {
    let saved = |name: &str, to: &str| {
        format!(
            "<ereg regexp=\".*\" search_in=\"hdr\" header=\"{name}:\" check_it=\"true\" assign_to=\"{to}\"/>"
        )
    };
    let early = answer(first)
        .replace("200 OK", "183 Session Progress")
        .replace(
            "Content-Type",
            "Require: 100rel\n      RSeq: 1\n      Content-Type",
        );
    let update = "<send retrans=\"500\"><![CDATA[
      UPDATE sip:+15550100@[local_ip] SIP/2.0
      Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
      From:[$2];tag=carrier[call_number]
      To:[$3]
      Call-ID: [call_id]
      CSeq: 7 UPDATE
      Contact: <sip:[local_ip]:[local_port]>
      Max-Forwards: 70
      Content-Length: 0
    ]]></send>";
    let answered = "<send><![CDATA[
      SIP/2.0 200 OK
      Via:[$1]
      From:[$3]
      To:[$2];tag=carrier[call_number]
      Call-ID: [call_id]
      CSeq: 1 INVITE
      Contact: <sip:[local_ip]:[local_port]>
      Content-Length: 0
    ]]></send>";
    scenario(&[
        format!(
            "<recv request=\"INVITE\"><action>{}{}{}</action></recv>",
            saved("Via", "1"),
            saved("To", "2"),
            saved("From", "3")
        ),
        early,
        recv("PRACK"),
        bye_taken(),
        with(update, "application/sdp", &audio_at(second)),
        taken_with("m=audio [0-9]+ RTP/AVP 0"),
        pause(300),
        answered.to_owned(),
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ])
}

#[tokio::test]
async fn an_offer_that_comes_while_it_rings_is_answered_and_holds() {
    let _together = stage::together().await;
    let (server, _) = server().await;
    let client = server.client();
    let ((before, first), (after, second)) = (ear("127.0.0.1").await, ear("127.0.0.1").await);
    let (sipp, address) = carrier(&server, &updates(&first, &second), "u1");
    let wish = outbound::line(&client, address, json!({})).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "in_progress").await;
    assert!(
        hears(&after, Duration::from_secs(10)).await,
        "{}",
        server.log()
    );
    assert!(!hears(&before, Duration::from_millis(100)).await);
    let ended = client.post(&format!("/calls/{id}/end"), &json!({})).await;
    ended.expect(200);
    let call = over(&server, &id).await;
    assert_eq!(call["status"], "completed", "{call}");
    outbound::well(sipp, &server).await;
}

#[tokio::test]
async fn a_carrier_leads_no_call_to_an_address_inside() {
    let _together = stage::together().await;
    // Its own address is allowed, another one of this machine is not.
    let (server, _) = server().await;
    let client = server.client();
    let inside = TcpListener::bind("127.0.0.2:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let (ear, port) = ear("127.0.0.2").await;
    let contact = format!(
        "<sip:x@127.0.0.2:{};transport=tcp>",
        inside.local_addr().unwrap().port()
    );
    let steps = scenario(&[
        recv("INVITE"),
        answer(&port)
            .replace(
                "<sip:[local_ip]:[local_port];transport=[transport]>",
                &contact,
            )
            .replace("[media_ip]", "127.0.0.2"),
        // They come to where the answer came from.
        recv("ACK"),
        recv("BYE"),
        bye_taken(),
    ]);
    assert!(steps.contains(&contact) && steps.contains("c=IN IP4 127.0.0.2"));
    let (sipp, address): (_, SocketAddr) = carrier(&server, &steps, "u1");
    let wish = outbound::line(&client, address, json!({})).await;
    let id = place(&client, &wish).await;
    standing(&client, &id, "in_progress").await;
    let path = format!("/conversations/{id}/transcript");
    until(&client, &path, |transcript| {
        !transcript["turns"].as_array().unwrap().is_empty()
    })
    .await;
    let ended = client.post(&format!("/calls/{id}/end"), &json!({})).await;
    ended.expect(200);
    outbound::well(sipp, &server).await;
    over(&server, &id).await;
    assert!(
        ear.try_recv(&mut [0; 2_048]).is_err(),
        "audio was sent inside"
    );
    assert!(inside.accept().is_err(), "something connected inside");
}
