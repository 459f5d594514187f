//! Carriers whose names nobody answers for: they hold up nobody else's calls.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use kit::telephone::Waiting;
use serde_json::json;
use tokio::time::Instant;

use super::trunks::server_with;
use crate::stage;

/// A name server that knows where `sip.carrier.example` is, and is silent when it is asked for anything else.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..length]) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    address
}

/// RFC 1035 section 4.1: the question again, and behind it an address where one is asked for.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    const KNOWN: &[u8] = b"\x03sip\x07carrier\x07example\x00";
    let asked = question.get(12..12 + KNOWN.len())?;
    if !asked.eq_ignore_ascii_case(KNOWN) {
        return None;
    }
    let end = 12 + KNOWN.len() + 4;
    let is_address = question.get(end - 4..end - 2)? == [0, 1];
    let mut answer = question.get(..end)?.to_vec();
    // A response, without an error; one question, no other records.
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer[6..12].copy_from_slice(&[0, u8::from(is_address), 0, 0, 0, 0]);
    if is_address {
        // The name of the question, A, IN, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

#[tokio::test]
async fn three_hundred_trunks_whose_name_server_is_silent_hold_up_no_call_of_another_account() {
    let _together = stage::together().await;
    let (server, _) = server_with(&[
        ("EGRESS__DNS", &name_server().to_string()),
        ("SIP__ACCOUNT_TRUNKS", "300"),
        ("LIMITS__WRITES_PER_MINUTE", "10000"),
        ("LIMITS__ACCOUNT_CALLS", "100"),
    ])
    .await;
    let client = server.client();
    let silent = stage::agent(&client, json!({})).await;
    for at in 0..300 {
        let address = format!("sip{at}.silent.example");
        let body = match at % 3 {
            // It registers.
            0 => json!({"name": "silent", "type": "inbound", "auth_mode": "register",
                "auth_username": format!("user{at}"), "auth_password": "secret", "outbound_address": address}),
            1 => json!({"name": "silent", "type": "outbound", "auth_mode": "ip_acl",
                "outbound_address": address}),
            _ => {
                let number = format!("+49301234{at:03}");
                let trunk = json!({"name": "silent", "auth_mode": "ip_acl", "outbound_address": address,
                    "numbers": [number]});
                client.post("/sip-trunks/onboard", &trunk).await.expect(201);
                continue;
            }
        };
        client.post("/sip-trunks", &body).await.expect(201);
    }
    // Calls over forty of them are under way, too.
    for at in (0..120).filter(|at| at % 3 == 2) {
        let wish = json!({"agent_id": silent, "to_number": "+4989654321",
            "from_number": format!("+49301234{at:03}")});
        client.post("/calls", &wish).await.expect(202);
    }
    server.command(&["accounts", "create", "acme"]);
    let key = server.command(&[
        "keys",
        "create",
        "all",
        "--account",
        "acme",
        "--scopes",
        "all",
    ]);
    let other = server.client().with_key(key.trim_end());
    let agent = stage::agent(&other, json!({})).await;
    let carrier = Waiting::new();
    let address = format!("sip.carrier.example:{}", carrier.address().port());
    let trunk = json!({"name": "carrier", "auth_mode": "ip_acl", "outbound_address": address,
        "numbers": ["+15550100"]});
    other.post("/sip-trunks/onboard", &trunk).await.expect(201);
    let wish = json!({"agent_id": agent, "to_number": "+4930123456", "from_number": "+15550100"});
    let began = Instant::now();
    other.post("/calls", &wish).await.expect(202);
    let rings = carrier.rings().await;
    let took = began.elapsed();
    rings.refuse(486).await;
    // One thread is free at any time, or will be within the four seconds of a look-up.
    assert!(took < Duration::from_secs(3), "{took:?}: {}", server.log());
}
