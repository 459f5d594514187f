//! Telephone calls to the real program: SIPp calls an agent and echoes what it hears; a telephone of our
//! own speaks, presses keys, holds, and does it all encrypted.

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use kit::client::Client;
use kit::ports::free_port;
use kit::server::Server;
use media::audio::{g711, tones};
use media::rtp::dtmf::{self, Event as Key};
use media::rtp::packet::{Header, Packet};
use media::rtp::sdp::{self, Agreed, Codec, Encryption, Flow, Local, Offered};
use media::rtp::srtp::{Opener, Sealer};
use serde_json::{Value, json};
use sip::endpoint::Config;
use sip::event::{CallId, Command, Event, Place};
use sip::message::{Body, Host, Transport};
use sip::shell::{Listen, Settings, Sip};
use sip::trunk::{InboundAuth, Net, Outbound, Trunk, TrunkId};
use tokio::time::{Instant, sleep, timeout};

use crate::stage;

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

/// Seconds of sound above −40 dBFS.
pub(crate) fn loud(samples: &[i16]) -> f64 {
    let frames = samples.chunks(320);
    let loud = frames.filter(|frame| frame.iter().any(|s| s.unsigned_abs() > 330));
    loud.count() as f64 / 50.0
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

/// A telephone: our own stack as a caller, and one socket for its audio.
pub(crate) struct Telephone {
    sip: Sip,
    socket: tokio::net::UdpSocket,
    offered: Offered,
    local: Local,
    agreed: Agreed,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    sequence: u16,
    timestamp: u32,
    next: Instant,
    /// What was heard, 8 kHz.
    pub(crate) heard: Vec<i16>,
    over: bool,
}

const CALL: CallId = CallId(1);

impl Telephone {
    /// Calls; `Err`: the code that it was refused with.
    async fn call(target: SocketAddr, encryption: Encryption) -> Result<Self, u16> {
        Self::call_number(target, "100", encryption, Duration::from_secs(20)).await
    }

    /// Calls this number as this caller, who is answered.
    pub(crate) async fn call_as(from: &str, target: SocketAddr, number: &str) -> Self {
        let within = Duration::from_secs(20);
        let called = Self::dial(from, target, number, Encryption::Disable, within).await;
        called.unwrap_or_else(|code| panic!("{from}: {code}"))
    }

    /// Calls this number, and rings for so long.
    pub(crate) async fn call_number(
        target: SocketAddr,
        number: &str,
        encryption: Encryption,
        ring_for: Duration,
    ) -> Result<Self, u16> {
        Self::dial("+33123456789", target, number, encryption, ring_for).await
    }

    async fn dial(
        from: &str,
        target: SocketAddr,
        number: &str,
        encryption: Encryption,
        ring_for: Duration,
    ) -> Result<Self, u16> {
        let mut endpoint = Config::new(Vec::new());
        endpoint.session_expires = 0;
        let sip = Sip::start(Settings {
            endpoint,
            // Two telephones are two: a Call-ID that comes again is a merged request (RFC 3261 section 8.2.2.2).
            seed: [*uuid::Uuid::new_v4().as_bytes(); 2]
                .concat()
                .try_into()
                .unwrap(),
            listen: vec![Listen {
                transport: Transport::Udp,
                addr: "127.0.0.1:0".parse().unwrap(),
            }],
            tls: None,
            dns: Vec::new(),
        })
        .unwrap();
        let trunk = Trunk {
            id: TrunkId(1),
            host: Some(Host::Ip(target.ip())),
            port: Some(target.port()),
            transport: Transport::Udp,
            allowed: vec![Net::parse("127.0.0.1").unwrap()],
            inbound: InboundAuth::Address,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            keep_alive: None,
        };
        sip.command(Command::SetTrunk(Box::new(trunk))).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let local = Local {
            address: "127.0.0.1".parse().unwrap(),
            port: socket.local_addr().unwrap().port(),
            session: 1,
            version: 1,
            codecs: vec![Codec::Pcmu],
            encryption,
            random: [0x5a; 46],
        };
        let offered = sdp::offer(&local, Flow::SendRecv);
        let place = Place {
            trunk: TrunkId(1),
            to: number.to_owned(),
            from: from.to_owned(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(offered.text.clone()),
            ring_for,
        };
        sip.command(Command::Place(CALL, Box::new(place))).unwrap();
        let (sip, answer) = event(sip, |event| match event {
            Event::Answered { body, .. } => Some(Ok(body)),
            Event::Ended { code, .. } => Some(Err(code.unwrap_or(0))),
            _ => None,
        })
        .await;
        let answer = answer?.expect("an answer");
        let agreed = offered.accept(&answer.bytes).expect("an agreement");
        assert_eq!(agreed.keys.is_some(), encryption == Encryption::Require);
        let keys = agreed.keys.as_ref();
        Ok(Self {
            sip,
            socket: tokio::net::UdpSocket::from_std(socket).unwrap(),
            offered,
            local,
            sealer: keys.map(|keys| Sealer::new(&keys.ours)),
            opener: keys.map(|keys| Opener::new(&keys.theirs)),
            agreed,
            sequence: 65_500,
            timestamp: 1_000,
            next: Instant::now(),
            heard: Vec::new(),
            over: false,
        })
    }

    async fn send(&mut self, payload_type: u8, timestamp: u32, payload: &[u8]) {
        let mut packet = Vec::new();
        let header = Header {
            payload_type,
            marker: false,
            sequence: self.sequence,
            timestamp,
            ssrc: 0xabcd,
        };
        header.write(&mut packet);
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        if let Some(sealer) = &mut self.sealer {
            sealer.seal(&mut packet);
        }
        self.socket
            .send_to(&packet, self.agreed.remote)
            .await
            .unwrap();
    }

    /// Sends 8 kHz sound in real time, and hears meanwhile.
    pub(crate) async fn speak(&mut self, samples: &[i16]) {
        for frame in samples.chunks(160) {
            let mut payload = vec![0; frame.len()];
            g711::ulaw_encode(frame, &mut payload);
            self.send(0, self.timestamp, &payload).await;
            self.step(frame.len() as u32).await;
        }
    }

    pub(crate) async fn silence(&mut self, ms: usize) {
        self.speak(&vec![0; 8 * ms]).await;
    }

    async fn press(&mut self, key: char) {
        let (number, at) = (dtmf::number(key).unwrap(), self.timestamp);
        let events = self.agreed.events.expect("events were agreed");
        for step in 1..=10_u16 {
            let key = Key {
                number,
                end: step >= 8,
                volume: 10,
                duration: 160 * step.min(8),
            };
            self.send(events, at, &key.to_bytes()).await;
            if step < 8 {
                self.step(160).await;
            }
        }
    }

    /// Waits for the time of so many samples, hearing what comes.
    async fn step(&mut self, samples: u32) {
        self.timestamp = self.timestamp.wrapping_add(samples);
        self.next += Duration::from_micros(u64::from(samples) * 125);
        let mut buffer = [0; 2_048];
        while let Ok(read) =
            tokio::time::timeout_at(self.next, self.socket.recv_from(&mut buffer)).await
        {
            let (mut length, from) = read.unwrap();
            assert_eq!(from, self.agreed.remote, "audio from elsewhere");
            if media::rtp::packet::is_rtcp(&buffer[..length]) {
                continue;
            }
            if let Some(opener) = &mut self.opener {
                length = opener.open(&mut buffer[..length]).expect("authentic");
            }
            let packet = Packet::parse(&buffer[..length]).expect("a packet");
            // Comfort noise: the agent is silent.
            if packet.payload_type == 13 {
                continue;
            }
            assert_eq!(packet.payload_type, 0);
            let mut samples = vec![0; packet.payload.len()];
            g711::ulaw_decode(packet.payload, &mut samples);
            self.heard.extend(samples);
        }
    }

    /// Holds the call, or takes it up again.
    async fn flow(&mut self, flow: Flow) {
        self.local.version += 1;
        self.offered = sdp::offer(&self.local, flow);
        let body = Body::sdp(self.offered.text.clone());
        self.sip.command(Command::Offer(CALL, body)).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            self.silence(20).await;
            match self.sip.events().try_recv() {
                Ok(Event::OfferAccepted { body, .. }) => {
                    let body = body.expect("an answer");
                    self.agreed = self.offered.accept(&body.bytes).expect("an agreement");
                    return;
                }
                Ok(Event::Ended { code, .. }) => panic!("ended: {code:?}"),
                _ => assert!(Instant::now() < until, "no answer to a re-INVITE"),
            }
        }
    }

    /// Offers to go on in plain; the code that this is refused with, 200 if it is not.
    async fn offer_plain(&mut self) -> u16 {
        let plain = Local {
            encryption: Encryption::Disable,
            version: self.local.version + 1,
            ..self.local.clone()
        };
        let body = Body::sdp(sdp::offer(&plain, Flow::SendRecv).text);
        self.sip.command(Command::Offer(CALL, body)).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            // All that comes meanwhile must be authentic.
            self.silence(20).await;
            match self.sip.events().try_recv() {
                Ok(Event::OfferRefused { code, .. }) => return code,
                Ok(Event::OfferAccepted { .. }) => return 200,
                Ok(Event::Ended { code, .. }) => panic!("ended: {code:?}"),
                _ => assert!(Instant::now() < until, "no answer to a re-INVITE"),
            }
        }
    }

    /// Is silent until the other side hangs up.
    async fn wait_for_goodbye(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.over {
            self.silence(20).await;
            self.over = matches!(self.sip.events().try_recv(), Ok(Event::Ended { .. }));
            assert!(Instant::now() < until, "nobody hangs up");
        }
    }

    pub(crate) async fn hang_up(self) {
        self.sip.command(Command::HangUp(CALL, None)).unwrap();
        // The BYE has to go out before the stack is dropped, and an answer tells that it has.
        let (sip, ()) = event(self.sip, |event| {
            matches!(event, Event::Ended { .. }).then_some(())
        })
        .await;
        sleep(Duration::from_millis(300)).await;
        drop(sip);
    }
}

/// Waits for an event of the stack.
async fn event<T: Send + 'static>(
    sip: Sip,
    mut wanted: impl FnMut(Event) -> Option<T> + Send + 'static,
) -> (Sip, T) {
    tokio::task::spawn_blocking(move || {
        loop {
            let event = sip.events().recv_timeout(Duration::from_secs(20));
            if let Some(found) = wanted(event.expect("an event within 20 s")) {
                return (sip, found);
            }
        }
    })
    .await
    .unwrap()
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

/// A stranger who knows the port, the stream and the codec, and sends 1,000 packets of loud sound a second
/// beside the caller's silence: nothing of it is heard or recorded, and nothing is sent there.
#[tokio::test]
async fn a_strangers_packets_are_neither_heard_nor_recorded() {
    let _together = stage::together().await;
    let (server, listen) = listening(json!({}), "allow").await;
    let client = server.client();
    let mut telephone = Telephone::call(listen, Encryption::Disable)
        .await
        .expect("it is taken");
    // Its address is the one of its SDP: the first packet settles it.
    telephone.silence(3_000).await;
    let target = telephone.agreed.remote;
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let flood = std::thread::spawn(move || {
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
            stranger.send_to(&packet, target).unwrap();
            let due = Duration::from_millis(u64::from(count));
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        stranger.set_nonblocking(true).unwrap();
        stranger.recv(&mut [0; 2_048]).is_err()
    });
    while !flood.is_finished() {
        telephone.silence(100).await;
    }
    assert!(flood.join().unwrap(), "the stranger was sent something");
    telephone.silence(1_000).await;
    // The caller itself is heard as before.
    telephone.speak(&voice(600)).await;
    telephone.silence(2_500).await;
    telephone.hang_up().await;
    let call = records(&client, 1).await.remove(0);
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
