//! A flood of calls from an address that no trunk names: it is dropped before a byte of it is read, nothing is
//! answered, and a call that is there goes on as if nothing were.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use kit::telephone::Telephone;
use media::audio::tones::goertzel;
use serde_json::json;

use super::trunks::{NUMBER, by_address, line, server};
use crate::stage;

/// INVITEs a second.
const RATE: u32 = 10_000;

fn seconds() -> u32 {
    match std::env::var_os("SIDETONE_SOAK") {
        Some(_) => 30,
        None => 3,
    }
}

/// Sends INVITEs at the rate; how many came to be sent, and how many bytes came back.
fn flood(target: SocketAddr) -> (u32, usize) {
    let socket = UdpSocket::bind("127.0.0.2:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let own = socket.local_addr().unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    while sent < RATE * seconds() {
        let request = format!(
            "INVITE sip:{NUMBER}@{target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK{sent};rport\r\n\
             From: <sip:+15550{sent}@{own}>;tag={sent}\r\nTo: <sip:{NUMBER}@{target}>\r\n\
             Call-ID: flood{sent}\r\nCSeq: 1 INVITE\r\nMax-Forwards: 70\r\nContact: <sip:a@{own}>\r\n\
             Content-Length: 0\r\n\r\n"
        );
        // What the kernel has no room for was sent all the same, and lost on the way.
        let _ = socket.send_to(request.as_bytes(), target);
        sent += 1;
        if sent.is_multiple_of(RATE / 1_000) {
            let due = Duration::from_secs(1) * sent / RATE;
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("{sent} INVITEs in {took:.1} s");
    let mut answered = 0;
    let mut buffer = [0; 2_048];
    while let Ok(length) = socket.recv(&mut buffer) {
        answered += length;
    }
    (sent, answered)
}

#[tokio::test]
async fn a_flood_of_calls_from_an_unknown_address_is_not_answered_and_hurts_none() {
    let _alone = stage::alone().await;
    let (server, listen) = server().await;
    let client = server.client();
    let (_, agent, _) = line(&client, by_address(), json!({})).await;
    // It speaks for longer than the flood lasts: four seconds a sentence.
    let sentence = format!("{}. ", "o".repeat(62));
    let long = json!({"first_message": sentence.repeat(seconds() as usize / 4 + 2)});
    client
        .patch(&format!("/agents/{agent}"), &long)
        .await
        .expect(200);
    let mut phone = Telephone::call_as("+33123456789", listen, NUMBER).await;
    let before = server.cpu_ns();
    let began = Instant::now();
    let flooding = std::thread::spawn(move || flood(listen));
    while !flooding.is_finished() {
        phone.silence(100).await;
    }
    let used = (server.cpu_ns() - before) as f64 / began.elapsed().as_nanos() as f64;
    let (sent, answered) = flooding.join().unwrap();
    println!("the server used {:.0} % of a core", 100.0 * used);
    assert_eq!((sent, answered), (RATE * seconds(), 0));
    // All that was said in the meantime came, piece by piece.
    let pieces = phone.heard.chunks_exact(160);
    let heard = pieces
        .filter(|piece| goertzel(piece, 8_000, 440.0) > 0.001)
        .count();
    let expected = seconds() as usize * 50;
    assert!(heard + 15 >= expected, "{heard} of {expected}");
    phone.hang_up().await;
    assert!(used < 0.5, "{used}");
    let list = client.get("/calls").await.expect(200).body;
    assert_eq!(list["total"], 1, "{list}");
}
