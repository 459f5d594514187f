//! Telephone calls to the real program: SIPp calls an agent and echoes what it hears; a telephone of our
//! own speaks, presses keys, holds, and does it all encrypted.

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use kit::client::Client;
use kit::ports::free_port;
use kit::server::Server;
use kit::telephone::Telephone;
use media::audio::{g711, tones};
use media::rtp::packet::Header;
use media::rtp::sdp::{Encryption, Flow};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{self, loud};

/// A server with these settings that takes loopback's calls for its agent, and the agent's id.
pub(crate) async fn server(agent: Value, settings: &[(&str, &str)]) -> (Server, String) {
    let mut setup = stage::setup();
    for (name, value) in settings {
        setup = setup.set(name, value);
    }
    let mut server = setup.start().await;
    let agent = stage::agent(&server.client(), agent).await;
    // An agent has no number yet that would name it: the setting does.
    server.terminate();
    assert_eq!(server.ended(Duration::from_secs(20)).await, Some(0));
    server.set("SIP__SOURCES", "127.0.0.1");
    server.set("SIP__AGENT", &agent);
    server.start_again().await;
    (server, agent)
}

/// The same over UDP and TCP, and where it listens.
async fn listening(agent: Value, encryption: &str) -> (Server, SocketAddr) {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let over = format!("udp:{listen},tcp:{listen}");
    let settings = [
        ("SIP__LISTEN", &*over),
        ("SIP__MEDIA_ENCRYPTION", encryption),
    ];
    (server(agent, &settings).await.0, listen)
}

/// The records of all calls, once so many are over.
pub(crate) async fn records(client: &Client, count: usize) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        let list = client.get("/calls?limit=100").await.expect(200).body;
        let items = list["items"].as_array().unwrap();
        let over = items.iter().filter(|call| !call["ended_at"].is_null());
        if over.count() == count {
            let ids = items.iter().map(|call| call["id"].as_str().unwrap());
            let mut records = Vec::new();
            for id in ids {
                records.push(stage::over(client, id, Duration::from_secs(10)).await);
            }
            return records;
        }
        assert!(Instant::now() < until, "{count} calls are not over: {list}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn sipp_calls_an_agent_and_hears_it() {
    let _together = stage::together().await;
    for transport in ["u1", "t1"] {
        // The echo of its own voice is no interruption.
        let quiet = json!({"interruption_enabled": false});
        let (server, listen) = listening(quiet, "allow").await;
        let client = server.client();
        let (target, media) = (listen.to_string(), free_port().to_string());
        let mut sipp = tokio::process::Command::new("sipp")
            .args(["-sn", "uac", "-t", transport, "-i", "127.0.0.1"])
            .args(["-mi", "127.0.0.1", "-mp", &media, "-rtp_echo"])
            .args(["-s", "+4930123456", "-m", "3", "-r", "1", "-d", "4000"])
            .args(["-nostdin", &target])
            .current_dir(&server.data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("sipp is installed by scripts/setup.sh test");
        let ended = timeout(Duration::from_secs(40), sipp.wait()).await;
        let status = ended.expect("sipp ends").unwrap();
        assert!(status.success(), "{transport}: {status}; {}", server.log());
        for call in records(&client, 3).await {
            assert_eq!(call["status"], "completed", "{call}");
            assert_eq!(call["end_reason"], "caller_hangup");
            assert_eq!(call["direction"], "inbound");
            assert_eq!(call["channel"], "sip");
            assert_eq!(call["to_number"], "+4930123456");
            // SIPp's From has its name, which is no number.
            assert_eq!(call["from_number"], Value::Null);
            assert!((3.9..5.0).contains(&call["duration_seconds"].as_f64().unwrap()));
            let id = call["id"].as_str().unwrap();
            let events = server.events(id, "call.ended").await;
            assert_eq!(events.len(), 1);
            assert_eq!(events[0].0["direction"], "inbound");
            assert_eq!(events[0].0["to_number"], "+4930123456");
            // What SIPp sent back is what it had been sent: the greeting.
            let [caller, agent] = stage::recording(&client, id).await;
            let (said, echoed) = (loud(&agent), loud(&caller));
            assert!(said > 1.0 && (said - echoed).abs() < 0.5, "{said} {echoed}");
        }
    }
}

/// A voice as the energy detector takes it.
fn voice(ms: usize) -> Vec<i16> {
    tones::sine(8_000, 500.0, -12.0, ms * 8)
}

#[tokio::test]
async fn a_telephone_speaks_presses_keys_and_holds_in_plain_and_encrypted() {
    let _together = stage::together().await;
    for (setting, encryption) in [
        ("allow", Encryption::Disable),
        ("require", Encryption::Require),
    ] {
        let (server, listen) = listening(json!({}), setting).await;
        let client = server.client();
        let mut telephone = Telephone::call(listen, encryption)
            .await
            .expect("it is taken");
        telephone.silence(2_500).await;
        let greeting = telephone.heard.len();
        assert!(
            (8 * 1_700..8 * 3_500).contains(&greeting),
            "{greeting} samples of one stream"
        );
        telephone.speak(&voice(600)).await;
        telephone.silence(2_500).await;
        telephone.press('4').await;
        telephone.press('#').await;
        telephone.silence(2_500).await;
        telephone.flow(Flow::SendOnly).await;
        telephone.silence(200).await;
        let held = telephone.heard.len();
        telephone.silence(1_000).await;
        assert_eq!(
            telephone.heard.len(),
            held,
            "nothing is sent to one who holds"
        );
        telephone.flow(Flow::SendRecv).await;
        telephone.speak(&voice(600)).await;
        telephone.silence(2_500).await;
        assert!(telephone.heard.len() > held + 8 * 500, "the line is back");
        telephone.hang_up().await;

        let call = records(&client, 1).await.remove(0);
        assert_eq!(call["status"], "completed", "{call}");
        assert_eq!(call["end_reason"], "caller_hangup");
        assert_eq!(call["from_number"], "+33123456789");
        assert_eq!(call["to_number"], "100");
        let id = call["id"].as_str().unwrap();
        let path = format!("/conversations/{id}/transcript");
        let transcript = client.get(&path).await.expect(200).body;
        let turns: Vec<(&str, &str)> = transcript["turns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|turn| {
                (
                    turn["source"].as_str().unwrap(),
                    turn["text"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            turns[..3],
            [
                ("speech", "Hello, this is the test line."),
                ("speech", "hello there"),
                ("speech", "hello there"),
            ],
            "{transcript}"
        );
        assert_eq!(turns[3], ("keypad", "4#"), "{transcript}");
        let [caller, agent] = stage::recording(&client, id).await;
        assert!((1.0..1.6).contains(&loud(&caller)), "{}", loud(&caller));
        assert!(loud(&agent) > 2.0, "{}", loud(&agent));
    }
}

#[tokio::test]
async fn a_plain_call_to_an_encrypted_line_is_refused_and_an_agent_hangs_up_by_itself() {
    let _together = stage::together().await;
    let (server, listen) = listening(json!({"end_call_phrases": ["hello there"]}), "require").await;
    let client = server.client();
    let refused = Telephone::call(listen, Encryption::Disable).await.err();
    assert_eq!(refused, Some(488));
    assert_eq!(
        records(&client, 0).await.len(),
        0,
        "nothing was spent on it"
    );
    let mut telephone = Telephone::call(listen, Encryption::Require)
        .await
        .expect("it is taken");
    telephone.silence(2_500).await;
    // What was encrypted stays it.
    assert_eq!(telephone.offer_plain().await, 488);
    telephone.speak(&voice(600)).await;
    telephone.wait_for_goodbye().await;
    let call = records(&client, 1).await.remove(0);
    assert_eq!(
        (&call["status"], &call["end_reason"]),
        (&json!("completed"), &json!("phrase")),
        "{call}"
    );
}

/// Strangers who know port, stream and codec of a call, and send 1,000 packets of loud sound a second beside the
/// caller's silence: nothing of it is heard or recorded, and nothing is sent there.
#[tokio::test]
async fn a_strangers_packets_are_neither_heard_nor_recorded() {
    let _few = stage::among_few().await;
    let calls = if stage::soak() { 50 } else { 3 };
    let (server, listen) = listening(json!({}), "allow").await;
    let client = server.client();
    let called = (0..calls).map(|_| Telephone::call(listen, Encryption::Disable));
    let telephones = join_all(called).await;
    // The address of each is the one of its SDP: the first packet settles it.
    let silent = telephones.into_iter().map(async |telephone| {
        let mut telephone = telephone.expect("it is taken");
        telephone.silence(3_000).await;
        telephone
    });
    let telephones = join_all(silent).await;
    let targets: Vec<SocketAddr> = telephones.iter().map(Telephone::remote).collect();
    let strangers = std::thread::spawn(move || flood(&targets));
    let spoke = telephones.into_iter().map(async |mut telephone| {
        while !strangers.is_finished() {
            telephone.silence(100).await;
        }
        telephone.silence(1_000).await;
        // The caller itself is heard as before.
        telephone.speak(&voice(600)).await;
        telephone.silence(2_500).await;
        telephone.hang_up().await;
    });
    join_all(spoke).await;
    let silent = strangers.join().unwrap();
    assert!(silent, "a stranger was sent something");
    for call in records(&client, calls).await {
        let id = call["id"].as_str().unwrap();
        let path = format!("/conversations/{id}/transcript");
        let transcript = client.get(&path).await.expect(200).body;
        let turns = transcript["turns"].as_array().unwrap();
        let heard = turns.iter().filter(|turn| turn["role"] == "user").count();
        assert_eq!(heard, 1, "{transcript}");
        let [caller, _] = stage::recording(&client, id).await;
        let before = caller.len() - 16_000 * 7 / 2;
        assert_eq!(loud(&caller[..before]), 0.0);
        assert!((0.5..0.8).contains(&loud(&caller)), "{}", loud(&caller));
    }
}

/// For three seconds sends each of these 1,000 packets a second, from a port of its own; whether nothing came back.
fn flood(targets: &[SocketAddr]) -> bool {
    let strangers: Vec<UdpSocket> = targets
        .iter()
        .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
        .collect();
    let mut payload = vec![0; 160];
    g711::ulaw_encode(&voice(20), &mut payload);
    let begin = std::time::Instant::now();
    for count in 0..3_000_u32 {
        let mut packet = Vec::new();
        let header = Header {
            payload_type: 0,
            marker: false,
            sequence: count as u16,
            timestamp: 160 * count,
            // Half of them as the caller's own stream.
            ssrc: 0xabcd + count % 2,
        };
        header.write(&mut packet);
        packet.extend_from_slice(&payload);
        for (stranger, target) in strangers.iter().zip(targets) {
            stranger.send_to(&packet, target).unwrap();
        }
        let due = Duration::from_millis(u64::from(count));
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    println!("{} packets in {:?}", 3_000 * targets.len(), begin.elapsed());
    strangers.iter().all(|stranger| {
        stranger.set_nonblocking(true).unwrap();
        stranger.recv(&mut [0; 2_048]).is_err()
    })
}
