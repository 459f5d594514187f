//! The torture messages of RFC 4475 at the program itself, from a carrier and from a stranger, beside a call that
//! goes on as if nothing were.

#[path = "../../../sip/src/endpoint/tests/torture/messages.rs"]
mod messages;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use kit::telephone::Telephone;
use media::audio::tones::goertzel;
use serde_json::json;

use super::trunks::{NUMBER, by_address, line, server_with};
use crate::stage;

/// The messages ask for answers at the usual port: addresses of loopback that nobody else has.
const CARRIER: &str = "127.0.4.75";
const STRANGER: &str = "127.0.4.76";

/// Between two messages, ms.
const PAUSE: usize = 40;

/// The usual port of an address. A scanner beside this test may have it on all addresses for a while.
async fn usual_port(address: &str) -> UdpSocket {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match UdpSocket::bind((address, 5060)) {
            Ok(socket) => {
                socket.set_nonblocking(true).unwrap();
                return socket;
            }
            Err(error) => assert!(Instant::now() < until, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The status lines of what has come.
fn answers(socket: &UdpSocket) -> BTreeSet<String> {
    let mut buffer = [0; 65_535];
    let mut lines = BTreeSet::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        lines.extend(text.lines().next().map(str::to_owned));
    }
    lines
}

#[tokio::test]
async fn torture_messages_are_answered_to_a_carrier_and_hurt_no_call() {
    let _together = stage::together().await;
    let (server, listen) = server_with(&[("EGRESS__ALLOW", "127.0.0.0/8")]).await;
    let client = server.client();
    let mut trunk = by_address();
    trunk["allowed_addresses"] = json!(["127.0.0.1", CARRIER]);
    let (_, agent, _) = line(&client, trunk, json!({})).await;
    let sockets = [usual_port(CARRIER).await, usual_port(STRANGER).await];
    let cases = messages::cases();
    // It speaks for longer than they take: four seconds a sentence.
    let ms = cases.len() * 2 * PAUSE;
    let sentence = format!("{}. ", "o".repeat(62));
    let long = json!({"first_message": sentence.repeat(ms / 4_000 + 2)});
    client
        .patch(&format!("/agents/{agent}"), &long)
        .await
        .expect(200);
    let mut phone = Telephone::call_as("+33123456789", listen, NUMBER).await;
    phone.silence(500).await;
    let before = phone.heard.len();
    let mut told = [BTreeSet::new(), BTreeSet::new()];
    for case in &cases {
        for (socket, told) in sockets.iter().zip(&mut told) {
            let sent = socket.send_to(&case.bytes, listen);
            assert!(sent.is_ok(), "{}: {sent:?}", case.name);
            phone.silence(PAUSE).await;
            told.append(&mut answers(socket));
        }
    }
    let [carrier, stranger] = told;
    println!("{carrier:#?}");
    assert_eq!(stranger, BTreeSet::new());
    // Of each kind that the messages deserve, but for what an unknown number is answered before.
    for code in ["200", "400", "405", "416", "420", "505"] {
        assert!(
            cases.iter().any(|case| case.answer.starts_with(code)),
            "{code}"
        );
        let line = format!("SIP/2.0 {code} ");
        assert!(
            carrier.iter().any(|answer| answer.starts_with(&line)),
            "{code}: {carrier:?}"
        );
    }
    // All that was said in the meantime came, piece by piece.
    let pieces = phone.heard[before..].chunks_exact(160);
    let heard = pieces
        .filter(|piece| goertzel(piece, 8_000, 440.0) > 0.001)
        .count();
    assert!(heard + 15 >= ms / 20, "{heard} of {}", ms / 20);
    phone.hang_up().await;
    // And the next one is served.
    let mut next = Telephone::call_as("+33123456780", listen, NUMBER).await;
    next.silence(500).await;
    assert!(!next.is_over());
    next.hang_up().await;
}
