//! Telephones over IPv6 beside those over IPv4: at a server that listens on an address of each, and at one that
//! listens on all addresses with one socket. Where signalling and audio are of two families the call is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use kit::ports::free_port;
use kit::server::Server;
use kit::telephone::{Telephone, Waiting};
use media::audio::tones;
use media::rtp::sdp::Encryption;
use serde_json::{Value, json};

use crate::outbound::{self, answer, bye_taken, carrier, place, recv};
use crate::stage::{self, loud, loud_at};
use crate::telephone::records;
use crate::trunks::{NUMBER, line, scenario};

const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// A server that listens there and is told to be there, and has carriers on this machine.
async fn server(listen: &str, public: &str) -> Server {
    stage::setup()
        .set("SIP__LISTEN", listen)
        .set("SIP__PUBLIC_ADDRESS", public)
        .set("EGRESS__ALLOW", "127.0.0.1,::1")
        .start()
        .await
}

/// A trunk whose carrier calls from either address.
fn by_address() -> Value {
    json!({"name": "by address", "type": "inbound", "auth_mode": "ip_acl",
        "allowed_addresses": ["127.0.0.1", "::1"]})
}

fn voice() -> Vec<i16> {
    tones::sine(8_000, 500.0, -12.0, 8 * 600)
}

#[tokio::test]
async fn telephones_of_both_families_are_greeted_and_heard() {
    let _together = stage::together().await;
    let [four, six, all] = [(); 3].map(|()| free_port());
    for (listen, public, ports) in [
        (
            format!("udp:127.0.0.1:{four},udp:[::1]:{six}"),
            "",
            [four, six],
        ),
        (format!("udp:[::]:{all}"), "127.0.0.1,::1", [all, all]),
    ] {
        let server = server(&listen, public).await;
        let client = server.client();
        line(&client, by_address(), json!({})).await;
        for (ip, port) in [FOUR, SIX].into_iter().zip(ports) {
            let target = SocketAddr::new(ip, port);
            let within = Duration::from_secs(20);
            let called = Telephone::call_number(target, NUMBER, Encryption::Disable, within).await;
            let mut phone = called.unwrap_or_else(|code| panic!("{code}: {}", server.log()));
            assert_eq!(phone.remote().ip(), ip, "{listen}");
            phone.silence(4_000).await;
            let greeting = loud_at(&phone.heard, 8_000);
            assert!(greeting > 1.0, "{greeting} s at {target} of {listen}");
            phone.speak(&voice()).await;
            phone.silence(2_500).await;
            phone.hang_up().await;
        }
        for call in records(&client, 2).await {
            assert_eq!(
                (&call["status"], &call["end_reason"]),
                (&json!("completed"), &json!("caller_hangup")),
                "{call}"
            );
            let id = call["id"].as_str().unwrap();
            let mut said = stage::said(&client, id).await;
            said.retain(|(role, _)| role == "user");
            let words: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(words, ["hello there"], "{listen}");
            let [caller, agent] = stage::recording(&client, id).await;
            let (caller, agent) = (loud(&caller), loud(&agent));
            assert!((0.5..0.8).contains(&caller), "{caller} s in {listen}");
            assert!(agent > 1.0, "{agent} s in {listen}");
        }
    }
}

#[tokio::test]
async fn an_agent_calls_a_telephone_over_ipv6() {
    let _together = stage::together().await;
    let port = free_port();
    let server = server(&format!("udp:127.0.0.1:{port},udp:[::1]:{port}"), "").await;
    let client = server.client();
    let waiting = Waiting::at(SIX);
    let wish = outbound::line(&client, waiting.address(), json!({})).await;
    let id = place(&client, &wish).await;
    let mut phone = waiting.rings().await.answer();
    assert_eq!(phone.remote().ip(), SIX);
    phone.silence(500).await;
    phone.speak(&voice()).await;
    phone.silence(5_000).await;
    let heard = loud_at(&phone.heard, 8_000);
    assert!(heard > 1.0, "{heard} s; {}", server.log());
    phone.hang_up().await;
    let call = outbound::over(&server, &id).await;
    assert_eq!(call["status"], "completed", "{call}");
    let [callee, _] = stage::recording(&client, &id).await;
    assert!((0.5..0.8).contains(&loud(&callee)), "{}", loud(&callee));
}

/// Calls with audio there (`IP6 ::1`); the final answer.
fn invite(target: SocketAddr, audio: &str) -> String {
    let socket = UdpSocket::bind((target.ip(), 0)).unwrap();
    let patience = Duration::from_secs(1);
    socket.set_read_timeout(Some(patience)).unwrap();
    let (own, id) = (socket.local_addr().unwrap(), uuid::Uuid::new_v4());
    let offer = format!(
        "v=0\r\no=- 1 1 IN {audio}\r\ns=-\r\nc=IN {audio}\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n"
    );
    let length = offer.len();
    let request = format!(
        "INVITE sip:{NUMBER}@{target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{id}\r\n\
         From: <sip:+33123456789@{own}>;tag=1\r\nTo: <sip:{NUMBER}@{target}>\r\nCall-ID: {id}\r\n\
         CSeq: 1 INVITE\r\nMax-Forwards: 70\r\nContact: <sip:+33123456789@{own}>\r\n\
         Content-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{offer}"
    );
    let mut buffer = [0; 4_096];
    // The server hears of its trunk within moments.
    for _ in 0..20 {
        socket.send_to(request.as_bytes(), target).unwrap();
        while let Ok(length) = socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if !text.starts_with("SIP/2.0 1") {
                return text;
            }
        }
    }
    panic!("no answer");
}

#[tokio::test]
async fn audio_of_the_other_family_is_refused_by_name_and_nothing_is_spent_on_it() {
    let _together = stage::together().await;
    for (ip, audio) in [(FOUR, "IP6 ::1"), (SIX, "IP4 127.0.0.1")] {
        let target = SocketAddr::new(ip, free_port());
        let server = server(&format!("udp:{target}"), "").await;
        let client = server.client();
        line(&client, by_address(), json!({})).await;
        let refused = invite(target, audio);
        assert!(
            refused.starts_with("SIP/2.0 488 Not Acceptable Here\r\n"),
            "{refused}"
        );
        let warning = "\r\nWarning: 301 sidetone \"Incompatible network address formats\"\r\n";
        assert!(refused.contains(warning), "{refused}");
        let calls = client.get("/calls").await.expect(200).body;
        assert_eq!(calls["total"], 0, "{calls}");
    }
}

#[tokio::test]
async fn an_answer_of_the_other_family_ends_a_call_that_was_placed() {
    let _together = stage::together().await;
    let server = server(&format!("udp:127.0.0.1:{}", free_port()), "").await;
    let client = server.client();
    let six = answer("[media_port]").replace("c=IN IP4 [media_ip]", "c=IN IP6 ::1");
    let steps = [recv("INVITE"), six, recv("ACK"), recv("BYE"), bye_taken()];
    let (carrier, address) = carrier(&server, &scenario(&steps), "u1");
    let wish = outbound::line(&client, address, json!({})).await;
    let id = place(&client, &wish).await;
    let call = outbound::over(&server, &id).await;
    outbound::well(carrier, &server).await;
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("failed"), &json!("carrier_error")),
        "{call}"
    );
    let path = format!("/conversations/{id}/diagnostics");
    let told = client.get(&path).await.expect(200).body.to_string();
    let why = "the answer cannot be used: the SDP's audio is where the call's cannot go";
    assert!(told.contains(why), "{told}");
}
