//! A telephone of our own: our SIP stack as a caller or as who is called, and one socket for its audio.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use media::audio::g711;
use media::rtp::dtmf::{self, Event as Key};
use media::rtp::packet::{self, Header, Packet};
use media::rtp::sdp::{self, Agreed, Codec, Encryption, Flow, Local};
use media::rtp::srtp::{Opener, Sealer};
use sip::endpoint::Config;
use sip::event::{CallId, Command, Event, Place};
use sip::message::{Body, Host, Transport};
use sip::shell::{Listen, Settings, Sip};
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};
use tokio::time::{Instant, sleep, timeout_at};

use crate::offer_answer;

/// A telephone in a call.
pub struct Telephone {
    sip: Sip,
    line: CallId,
    socket: tokio::net::UdpSocket,
    local: Local,
    agreed: Agreed,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    sequence: u16,
    timestamp: u32,
    next: Instant,
    /// What was heard, 8 kHz.
    pub heard: Vec<i16>,
    /// The codec of the last packet of it.
    pub heard_in: Option<Codec>,
    /// When each packet of it came.
    pub came: Vec<Instant>,
    /// The other side has hung up, or the call ended in another way.
    over: bool,
}

/// A telephone that waits for a call.
pub struct Waiting(Sip);

/// A telephone that rings.
pub struct Ringing {
    sip: Sip,
    line: CallId,
    offer: Body,
}

const CALL: CallId = CallId(1);

/// The trunk of [`stack`].
pub(crate) const TRUNK: TrunkId = TrunkId(1);

/// How long the other side has to answer, or to call.
const PATIENCE: Duration = Duration::from_secs(20);

impl Waiting {
    pub fn new() -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    /// At this address of the machine.
    pub fn at(own: IpAddr) -> Self {
        Self(stack(own, None))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.addresses()[0].addr
    }

    /// Rings, once a call comes.
    pub async fn rings(self) -> Ringing {
        let (sip, (line, offer)) = event(self.0, |event| match event {
            Event::Incoming(line, incoming) => Some((line, incoming.offer)),
            _ => None,
        })
        .await;
        sip.command(Command::Ring(line, None)).unwrap();
        let offer = offer.expect("an offer");
        Ringing { sip, line, offer }
    }
}

impl Ringing {
    pub fn answer(self) -> Telephone {
        let own = self.sip.addresses()[0].addr.ip();
        let (socket, local) = audio(own, Encryption::Disable);
        let answer = sdp::answer(&self.offer.bytes, &local, Flow::SendRecv);
        let (text, agreed) = answer.expect("an agreement");
        let answer = Command::Answer(self.line, Body::sdp(text));
        self.sip.command(answer).unwrap();
        Telephone::up(self.sip, self.line, socket, local, agreed)
    }

    /// Refuses the call with this code, and has told it.
    pub async fn refuse(self, code: u16) {
        let refusal = Command::Reject(self.line, code, None);
        self.sip.command(refusal).unwrap();
        let (sip, ()) = event(self.sip, |event| {
            matches!(event, Event::Ended { .. }).then_some(())
        })
        .await;
        sleep(Duration::from_millis(300)).await;
        drop(sip);
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self::new()
    }
}

impl Telephone {
    /// Calls; `Err`: the code that it was refused with.
    pub async fn call(target: SocketAddr, encryption: Encryption) -> Result<Self, u16> {
        Self::call_number(target, "100", encryption, PATIENCE).await
    }

    /// Calls this number as this caller, who is answered.
    pub async fn call_as(from: &str, target: SocketAddr, number: &str) -> Self {
        let called = Self::dial(from, target, number, Encryption::Disable, PATIENCE).await;
        called.unwrap_or_else(|code| panic!("{from}: {code}"))
    }

    /// Calls this number, and rings for so long.
    pub async fn call_number(
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
        let own: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let sip = stack(own, Some(target));
        let (socket, local) = audio(own, encryption);
        let offered = sdp::offer(&local, Flow::SendRecv);
        let place = Place {
            trunk: TRUNK,
            to: number.to_owned(),
            from: from.to_owned(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(offered.text.clone()),
            ring_for,
            forwarded: None,
        };
        sip.command(Command::Place(CALL, Box::new(place))).unwrap();
        let (sip, answer) = event(sip, |event| match event {
            Event::Answered { body, .. } => Some(Ok(body)),
            Event::Ended { code, .. } => Some(Err(code.unwrap_or(0))),
            _ => None,
        })
        .await;
        let answer = answer?.expect("an answer");
        check(&offered.text, &answer);
        let agreed = offered.accept(&answer.bytes).expect("an agreement");
        assert_eq!(agreed.keys.is_some(), encryption == Encryption::Require);
        Ok(Self::up(sip, CALL, socket, local, agreed))
    }

    fn up(
        sip: Sip,
        line: CallId,
        socket: tokio::net::UdpSocket,
        local: Local,
        agreed: Agreed,
    ) -> Self {
        let keys = agreed.keys.as_ref();
        Self {
            sip,
            line,
            socket,
            local,
            sealer: keys.map(|keys| Sealer::new(&keys.ours)),
            opener: keys.map(|keys| Opener::new(&keys.theirs)),
            agreed,
            sequence: 65_500,
            timestamp: 1_000,
            next: Instant::now(),
            heard: Vec::new(),
            heard_in: None,
            came: Vec::new(),
            over: false,
        }
    }

    /// Where the other side's audio is.
    pub fn remote(&self) -> SocketAddr {
        self.agreed.remote
    }

    /// Whether the call has ended.
    pub fn is_over(&mut self) -> bool {
        self.over |= self
            .sip
            .events()
            .try_iter()
            .any(|event| matches!(event, Event::Ended { .. }));
        self.over
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
    pub async fn speak(&mut self, samples: &[i16]) {
        self.catch_up();
        for frame in samples.chunks(160) {
            let mut payload = vec![0; frame.len()];
            match self.agreed.codec {
                Codec::Pcmu => g711::ulaw_encode(frame, &mut payload),
                Codec::Pcma => g711::alaw_encode(frame, &mut payload),
                other => panic!("{other:?} is not spoken here"),
            }
            let payload_type = self.agreed.payload_type;
            self.send(payload_type, self.timestamp, &payload).await;
            self.step(frame.len() as u32).await;
        }
    }

    /// Of a time in which nothing was said, nothing is sent later.
    fn catch_up(&mut self) {
        let late = Instant::now().saturating_duration_since(self.next);
        let pieces = (late.as_millis() / 20) as u32;
        if pieces > 10 {
            self.timestamp = self.timestamp.wrapping_add(160 * pieces);
            self.next += Duration::from_millis(20) * pieces;
        }
    }

    pub async fn silence(&mut self, ms: usize) {
        self.speak(&vec![0; 8 * ms]).await;
    }

    pub async fn press(&mut self, key: char) {
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
        while let Ok(read) = timeout_at(self.next, self.socket.recv_from(&mut buffer)).await {
            let (mut length, from) = read.unwrap();
            assert_eq!(from, self.agreed.remote, "audio from elsewhere");
            if packet::is_rtcp(&buffer[..length]) {
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
            let mut samples = vec![0; packet.payload.len()];
            let codec = match packet.payload_type {
                0 => {
                    g711::ulaw_decode(packet.payload, &mut samples);
                    Codec::Pcmu
                }
                8 => {
                    g711::alaw_decode(packet.payload, &mut samples);
                    Codec::Pcma
                }
                other => panic!("payload type {other} was never offered"),
            };
            assert!(
                self.local.codecs.contains(&codec),
                "{codec:?} is not offered"
            );
            self.heard_in = Some(codec);
            self.heard.extend(samples);
            self.came.push(Instant::now());
        }
    }

    /// Holds the call, or takes it up again.
    pub async fn flow(&mut self, flow: Flow) {
        self.offer(self.agreed.codec, flow).await;
    }

    /// Takes a call that is held, so that nothing is on its way, up again in this codec.
    pub async fn resume_in(&mut self, codec: Codec) {
        self.offer(codec, Flow::SendRecv).await;
    }

    async fn offer(&mut self, codec: Codec, flow: Flow) {
        self.local.version += 1;
        self.local.codecs = vec![codec];
        let offered = sdp::offer(&self.local, flow);
        let body = Body::sdp(offered.text.clone());
        self.sip.command(Command::Offer(self.line, body)).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            self.silence(20).await;
            match self.sip.events().try_recv() {
                Ok(Event::OfferAccepted { body, .. }) => {
                    let body = body.expect("an answer");
                    check(&offered.text, &body);
                    self.agreed = offered.accept(&body.bytes).expect("an agreement");
                    return;
                }
                Ok(Event::Ended { code, .. }) => panic!("ended: {code:?}"),
                _ => assert!(Instant::now() < until, "no answer to a re-INVITE"),
            }
        }
    }

    /// Offers to go on in plain; the code that this is refused with, 200 if it is not.
    pub async fn offer_plain(&mut self) -> u16 {
        let plain = Local {
            encryption: Encryption::Disable,
            version: self.local.version + 1,
            ..self.local.clone()
        };
        let body = Body::sdp(sdp::offer(&plain, Flow::SendRecv).text);
        self.sip.command(Command::Offer(self.line, body)).unwrap();
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
    pub async fn wait_for_goodbye(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.is_over() {
            self.silence(20).await;
            assert!(Instant::now() < until, "nobody hangs up");
        }
    }

    pub async fn hang_up(self) {
        self.sip.command(Command::HangUp(self.line, None)).unwrap();
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
            let event = sip.events().recv_timeout(PATIENCE);
            if let Some(found) = wanted(event.expect("an event within 20 s")) {
                return (sip, found);
            }
        }
    })
    .await
    .unwrap()
}

/// A stack that listens on an address of loopback, with a trunk that is there, or one that calls come over.
pub(crate) fn stack(own: IpAddr, target: Option<SocketAddr>) -> Sip {
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
            addr: SocketAddr::new(own, 0),
        }],
        tls: None,
        dns: Vec::new(),
    })
    .unwrap();
    let trunk = Trunk {
        id: TRUNK,
        tenant: Tenant::default(),
        host: target.map(|target| Host::Ip(target.ip())),
        port: target.map(|target| target.port()),
        transport: Transport::Udp,
        allowed: vec![Net::parse(&own.to_string()).unwrap()],
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        outbound: Outbound::Host,
        register: None,
        registrar_realms: RegistrarRealms::Unknown,
        keep_alive: None,
    };
    sip.command(Command::SetTrunk(Box::new(trunk))).unwrap();
    sip
}

/// A socket for audio, and what is said of it.
fn audio(own: IpAddr, encryption: Encryption) -> (tokio::net::UdpSocket, Local) {
    let socket = UdpSocket::bind((own, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let local = Local {
        address: own,
        port: socket.local_addr().unwrap().port(),
        session: 1,
        version: 1,
        codecs: vec![Codec::Pcmu],
        encryption,
        random: [0x5a; 46],
    };
    (tokio::net::UdpSocket::from_std(socket).unwrap(), local)
}

/// Holds an answer of the server against the rules.
fn check(offer: &str, answer: &Body) {
    offer_answer::check(offer, &String::from_utf8_lossy(&answer.bytes));
}
