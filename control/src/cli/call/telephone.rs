//! `sidetone call --sip`: a telephone in the terminal. Our own SIP stack calls an address, the leg that the
//! server has for its callers speaks and hears, and what happens is printed.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use media::audio::level;
use media::frame::FRAME;
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::leg::{LegEvent, RtpPacket};
use media::rtp::packet::{Header, Packet, is_rtcp};
use media::rtp::sdp::{self, Agreed, Codec, Encryption, Flow, Local, Offered};
use media::rtp::srtp::{Opener, Sealer};
use media::time::{RATE, Time};
use sip::auth::Credentials;
use sip::endpoint::{Advertised, Config};
use sip::event::{CallId, Command, Direction, EndedBy, Event, Place, Traced};
use sip::message::{Body, Host, Transport, Uri};
use sip::shell::{Listen, Settings, Sip};
use sip::trunk::{InboundAuth, Net, Trunk, TrunkId};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::player::Player;
use super::screen::line;
use super::script::{Act, Ears, Script};
use super::{CallArgs, CallError, FRAME_MS};
use crate::calls::bridge::transports;
use crate::secret;

const CALL: CallId = CallId(1);
const CARRIER: TrunkId = TrunkId(1);

/// Events of the stack that wait for us; one call has few.
const EVENTS: usize = 256;

/// The answer to our goodbye is waited for so long.
const GOODBYE: Duration = Duration::from_secs(2);

/// A voice that pauses for longer begins anew, ms: shorter than between two sentences of an agent's turn
/// and the caller's.
const PAUSE_MS: u64 = 600;

/// What counts as voice on a line: above −40 dBFS.
const LOUD: u16 = 330;

/// Whom to call.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    user: String,
    host: Host,
    port: Option<u16>,
    transport: Transport,
}

impl Target {
    /// `sip:number@host[:port][;transport=tcp]`, or `sips:`.
    fn parse(text: &str) -> Result<Self, CallError> {
        let wrong = || {
            let why = format!("{text}: no SIP address, as in sip:+4930123456@203.0.113.5:5060");
            CallError::Failed(why)
        };
        let Ok(Uri::Sip(uri)) = Uri::parse(text) else {
            return Err(wrong());
        };
        let transport = match uri.transport().as_deref() {
            _ if uri.secure => Transport::Tls,
            None | Some("udp") => Transport::Udp,
            Some("tcp") => Transport::Tcp,
            Some("tls") => Transport::Tls,
            Some(_) => return Err(wrong()),
        };
        Ok(Self {
            user: uri.user().ok_or_else(wrong)?,
            host: uri.host.clone(),
            port: uri.port,
            transport,
        })
    }

    /// Our address as that host sees it: what the system would send from.
    async fn seen_from(&self) -> Result<IpAddr, CallError> {
        let wrong = |error: std::io::Error| CallError::Socket(format!("{}: {error}", self.host));
        let port = self.port.unwrap_or(self.transport.default_port());
        let target = match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, port),
            Host::Name(name) => {
                let found = tokio::net::lookup_host((name.as_str(), port)).await;
                let nowhere = || std::io::Error::other("the name has no address");
                found
                    .and_then(|mut found| found.next().ok_or_else(nowhere))
                    .map_err(wrong)?
            }
        };
        let any: IpAddr = match target.is_ipv4() {
            true => [0, 0, 0, 0].into(),
            false => [0; 16].into(),
        };
        let probe = UdpSocket::bind((any, 0)).await.map_err(wrong)?;
        probe.connect(target).await.map_err(wrong)?;
        Ok(probe.local_addr().map_err(wrong)?.ip())
    }
}

/// Calls, talks and hangs up. Fails when nobody answers, or when the line breaks.
pub(super) async fn call(uri: &str, args: &CallArgs) -> Result<(), CallError> {
    let target = Target::parse(uri)?;
    let voice = match &args.wav {
        Some(path) => Some(super::read_wav(path, RATE)?),
        None => None,
    };
    let mut line = Line::dial(&target, args).await?;
    line.say(&format!("calling {uri}"));
    let agreed = line.ring().await?;
    let mut talk = Talk::new(&agreed, args, voice)?;
    line.say(&format!("answered: {}", spoken(&agreed)));
    let ended = line.talk(&mut talk).await;
    line.say(&talk.summary());
    if let Some(path) = &args.out {
        super::write_wav(path, RATE, talk.player.sound())?;
        eprintln!("What the caller heard is in {}", path.display());
    }
    ended
}

/// What was agreed, in words.
fn spoken(agreed: &Agreed) -> String {
    let keys = match agreed.events {
        Some(_) => "keypad events",
        None => "no keypad events",
    };
    let how = match agreed.keys {
        Some(_) => "SRTP",
        None => "RTP",
    };
    format!("{} over {how}, {keys}", agreed.codec.name())
}

/// The signalling of the call.
struct Line {
    sip: Sip,
    events: mpsc::Receiver<Event>,
    audio: UdpSocket,
    local: Local,
    offered: Offered,
    began: Instant,
    /// Print every message.
    trace: bool,
    goodbye_answered: bool,
}

impl Line {
    /// Sends the INVITE.
    async fn dial(target: &Target, args: &CallArgs) -> Result<Self, CallError> {
        let broken = |error: std::io::Error| CallError::Socket(error.to_string());
        let own = target.seen_from().await?;
        let audio = UdpSocket::bind((own, 0)).await.map_err(broken)?;
        let sip = stack(own, target.transport).map_err(broken)?;
        let carrier = Trunk {
            id: CARRIER,
            host: Some(target.host.clone()),
            port: target.port,
            transport: target.transport,
            allowed: target
                .host
                .ip()
                .and_then(|ip| Net::parse(&ip.to_string()))
                .into_iter()
                .collect(),
            inbound: InboundAuth::Address,
            credentials: args.sip_user.as_ref().map(|user| Credentials {
                username: user.clone(),
                password: args.sip_password.clone().unwrap_or_default(),
                realm: None,
            }),
            domain: None,
            register: None,
            keep_alive: None,
        };
        let local = Local {
            address: own,
            port: audio.local_addr().map_err(broken)?.port(),
            session: 1,
            version: 1,
            codecs: match args.codec {
                Some(codec) => vec![codec.of_line()],
                None => RtpLeg::CODECS.to_vec(),
            },
            encryption: match args.srtp {
                true => Encryption::Require,
                false => Encryption::Allow,
            },
            random: secret::random_bytes().map_err(broken)?,
        };
        let offered = sdp::offer(&local, Flow::SendRecv);
        let place = Place {
            trunk: CARRIER,
            to: target.user.clone(),
            from: args.from.clone(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(offered.text.clone()),
            ring_for: Duration::from_secs(args.ring),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        let told = sip.events().clone();
        std::thread::Builder::new()
            .name("sip-events".to_owned())
            .spawn(move || {
                while let Ok(event) = told.recv() {
                    if sender.blocking_send(event).is_err() {
                        return;
                    }
                }
            })
            .map_err(broken)?;
        let line = Self {
            sip,
            events,
            audio,
            local,
            offered,
            began: Instant::now(),
            trace: args.trace,
            goodbye_answered: false,
        };
        line.tell(Command::SetTrunk(Box::new(carrier)))?;
        line.tell(Command::Place(CALL, Box::new(place)))?;
        Ok(line)
    }

    /// Waits for the answer; what was agreed in it.
    async fn ring(&mut self) -> Result<Agreed, CallError> {
        // Of a reliable provisional response: then the answer itself may have none (RFC 3262 section 5).
        let mut early = None;
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let event = tokio::select! {
                event = self.next() => event?,
                _ = &mut interrupted => {
                    self.hang_up().await?;
                    return Err(CallError::Failed("canceled while it rang".to_owned()));
                }
            };
            match event {
                Event::Progress { code, body, .. } => {
                    let media = if body.is_some() {
                        ", with early media"
                    } else {
                        ""
                    };
                    self.say(&format!(
                        "{code} {}{media}",
                        sip::message::usual_reason(code)
                    ));
                    early = body.or(early);
                }
                Event::Answered { body, .. } => {
                    let agreed = match body.or(early) {
                        Some(body) => self
                            .offered
                            .accept(&body.bytes)
                            .map_err(|refusal| refusal.to_string()),
                        None => Err("it says nothing of the audio".to_owned()),
                    };
                    match agreed {
                        Ok(agreed) => return Ok(agreed),
                        Err(why) => {
                            self.hang_up().await?;
                            return Err(CallError::Failed(format!("answered, but {why}")));
                        }
                    }
                }
                Event::Ended { code, reason, .. } => {
                    let code = code.map_or_else(String::new, |code| format!("{code} "));
                    return Err(CallError::Failed(format!("not answered: {code}{reason}")));
                }
                _ => {}
            }
        }
    }

    /// Speaks and hears until one side hangs up.
    async fn talk(&mut self, talk: &mut Talk) -> Result<(), CallError> {
        let mut frames = interval(Duration::from_millis(FRAME_MS));
        frames.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut datagram = [0; 2_048];
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            tokio::select! {
                _ = frames.tick() => {
                    let done = talk.frame();
                    for packet in talk.out.drain(..) {
                        // One that cannot be sent is lost, as it may be anywhere on its way.
                        drop(self.audio.send_to(&packet, talk.agreed.remote).await);
                    }
                    for note in std::mem::take(&mut talk.notes) {
                        self.say(&note);
                    }
                    if let Some(why) = done {
                        self.say(why);
                        self.hang_up().await?;
                        return match talk.is_deaf {
                            true => Err(CallError::Failed("nothing was heard any more".to_owned())),
                            false => Ok(()),
                        };
                    }
                }
                read = self.audio.recv_from(&mut datagram) => {
                    // An error is one of a datagram sent before: a port that nobody has open.
                    if let Ok((length, from)) = read {
                        talk.datagram(&mut datagram[..length], from);
                    }
                }
                event = self.events.recv() => match self.sift(event)? {
                    Some(Event::Ended { by, code, reason, .. }) => return self.ended(by, code, &reason),
                    Some(Event::Offer { body, .. }) => self.renew(talk, body)?,
                    Some(Event::Referred { .. }) => self.tell(Command::AnswerRefer(CALL, 603))?,
                    Some(Event::Digit { digit, .. }) => self.say(&format!("key {digit} (INFO)")),
                    _ => {}
                },
                _ = &mut interrupted => {
                    self.say("hanging up");
                    return self.hang_up().await;
                }
            }
        }
    }

    fn ended(&self, by: EndedBy, code: Option<u16>, reason: &str) -> Result<(), CallError> {
        if by == EndedBy::Network {
            let code = code.map_or_else(String::new, |code| format!("{code} "));
            return Err(CallError::Failed(format!(
                "the call was lost: {code}{reason}"
            )));
        }
        let reason = if reason.is_empty() {
            String::new()
        } else {
            format!(": {reason}")
        };
        self.say(&format!("the other side hung up{reason}"));
        Ok(())
    }

    /// The other side offers another session, or asks for our offer.
    fn renew(&mut self, talk: &mut Talk, body: Option<Body>) -> Result<(), CallError> {
        self.local.version += 1;
        let Some(body) = body else {
            self.local.codecs = vec![talk.agreed.codec];
            self.offered = sdp::offer(&self.local, Flow::SendRecv);
            let ours = Body::sdp(self.offered.text.clone());
            return self.tell(Command::AcceptOffer(CALL, ours));
        };
        match sdp::answer(&body.bytes, &self.local, Flow::SendRecv) {
            Ok((text, agreed)) => {
                self.tell(Command::AcceptOffer(CALL, Body::sdp(text)))?;
                self.say(&format!(
                    "goes on: {}, {}",
                    spoken(&agreed),
                    agreed.flow.name()
                ));
                talk.renew(agreed)
            }
            Err(refusal) => {
                self.say(&format!("what it offers now is refused: {refusal}"));
                self.tell(Command::RefuseOffer(CALL, 488))
            }
        }
    }

    /// Cancels or says goodbye, and waits for the answer so that it is known to have arrived.
    async fn hang_up(&mut self) -> Result<(), CallError> {
        self.tell(Command::HangUp(CALL, Some("Q.850;cause=16".to_owned())))?;
        let answered = async {
            while !self.goodbye_answered {
                self.next().await?;
            }
            Ok::<(), CallError>(())
        };
        match timeout(GOODBYE, answered).await {
            Ok(answered) => answered,
            Err(_) => {
                self.say("the other side does not answer our goodbye");
                Ok(())
            }
        }
    }

    /// The next event that is no message, or the message that answers our goodbye.
    async fn next(&mut self) -> Result<Event, CallError> {
        loop {
            let event = self.events.recv().await;
            if let Some(event) = self.sift(event)? {
                return Ok(event);
            }
        }
    }

    /// Prints messages if that was asked for; gives what is none, and what answers our goodbye.
    fn sift(&mut self, event: Option<Event>) -> Result<Option<Event>, CallError> {
        match event {
            None => Err(CallError::Socket("the SIP stack is gone".to_owned())),
            Some(Event::Message(traced)) => {
                if self.trace {
                    self.say(&shown(&traced));
                }
                self.goodbye_answered |= answers_goodbye(&traced);
                Ok(answers_goodbye(&traced).then_some(Event::Message(traced)))
            }
            event => Ok(event),
        }
    }

    fn tell(&self, command: Command) -> Result<(), CallError> {
        let told = self.sip.command(command);
        told.map_err(|refused| CallError::Socket(refused.to_string()))
    }

    fn say(&self, text: &str) {
        let at = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        println!("{}", line(at, "", text));
    }
}

/// A stack of our own with one address.
fn stack(own: IpAddr, transport: Transport) -> std::io::Result<Sip> {
    let advertised = Advertised {
        transport,
        host: Host::Ip(own),
        port: transport.default_port(),
    };
    // Over TLS nothing is listened on, for want of a certificate: what the other side asks in the call
    // comes over the connection that we made.
    let (listen, advertised, tls) = match transport {
        Transport::Tls => (
            Vec::new(),
            vec![advertised],
            Some(transports::client_tls()?),
        ),
        _ => {
            let addr = SocketAddr::new(own, 0);
            (vec![Listen { transport, addr }], Vec::new(), None)
        }
    };
    let mut endpoint = Config::new(advertised);
    endpoint.trace = true;
    Sip::start(Settings {
        endpoint,
        seed: secret::random_bytes()?,
        listen,
        tls,
        dns: Vec::new(),
    })
}

fn answers_goodbye(traced: &Traced) -> bool {
    let cseq = traced.text.lines().find(|line| line.starts_with("CSeq:"));
    traced.direction == Direction::Received
        && traced.text.starts_with("SIP/2.0 ")
        && cseq.is_some_and(|cseq| cseq.ends_with(" BYE") || cseq.ends_with(" CANCEL"))
}

fn shown(traced: &Traced) -> String {
    let way = match traced.direction {
        Direction::Received => "from",
        Direction::Sent => "to",
    };
    format!("{way} {}\n\n{}", traced.peer.addr, traced.text)
}

/// The sound of the call.
struct Talk {
    leg: RtpLeg,
    plan: RtpPlan,
    agreed: Agreed,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    began: Instant,
    player: Player,
    ears: Ears,
    /// `None`: there is nothing to say, and the other side hangs up.
    script: Option<Script>,
    voice: Vec<i16>,
    /// The next sample of the voice to be spoken.
    at: usize,
    /// Hang up then, ms.
    until_ms: u64,
    /// Keys that are still to be pressed, and when the next one is.
    keys: VecDeque<char>,
    next_key_ms: u64,
    /// Packets that are to be sent.
    out: Vec<Vec<u8>>,
    notes: Vec<String>,
    /// The other side sends nothing any more.
    is_deaf: bool,
}

/// Between two keys, ms, and before the first.
const KEY_EVERY_MS: u64 = 500;
const FIRST_KEY_MS: u64 = 1_000;

impl Talk {
    fn new(agreed: &Agreed, args: &CallArgs, voice: Option<Vec<i16>>) -> Result<Self, CallError> {
        let seed = secret::random_bytes().map_err(|error| CallError::Socket(error.to_string()))?;
        let plan = RtpPlan::new(agreed, seed);
        let mut leg = RtpLeg::new(plan).map_err(|_| no_codec(agreed.codec))?;
        leg.start(time(Duration::ZERO));
        let linger_ms = (args.linger.clamp(0.0, 3600.0) * 1000.0) as u64;
        let script = voice.as_ref().map(|voice| {
            let file_ms = voice.len() as u64 * 1000 / u64::from(RATE);
            Script::new(file_ms, linger_ms, args.barge_in_at)
        });
        let keys = args.press.as_deref().unwrap_or_default();
        Ok(Self {
            leg,
            plan,
            agreed: agreed.clone(),
            sealer: agreed.keys.as_ref().map(|keys| Sealer::new(&keys.ours)),
            opener: agreed.keys.as_ref().map(|keys| Opener::new(&keys.theirs)),
            began: Instant::now(),
            player: Player::new(RATE),
            ears: Ears::default(),
            script,
            voice: voice.unwrap_or_default(),
            at: 0,
            until_ms: args.seconds.map_or(u64::MAX, |seconds| seconds * 1000),
            keys: keys.chars().collect(),
            next_key_ms: FIRST_KEY_MS,
            out: Vec::new(),
            notes: Vec::new(),
            is_deaf: false,
        })
    }

    /// 20 ms: what is said in them into `out`. `Some`: it is time to hang up, and why.
    fn frame(&mut self) -> Option<&'static str> {
        let passed = self.began.elapsed();
        let (now, now_ms) = (
            time(passed),
            u64::try_from(passed.as_millis()).unwrap_or(u64::MAX),
        );
        // The position is all that is wanted here: nobody has to be told of what was played.
        drop(self.player.advance(samples(passed)));
        self.hear(|leg, sink| leg.timeout(now, sink), passed);
        if self.is_deaf {
            return Some("hanging up: nothing comes any more");
        }
        if now_ms >= self.until_ms {
            return Some("hanging up: the time is over");
        }
        match self
            .script
            .as_mut()
            .map(|script| script.act(now_ms, self.ears))
        {
            Some(Act::HangUp) => return Some("hanging up"),
            Some(Act::Begin) => {
                self.notes.push("speaking".to_owned());
                self.at = 0;
            }
            Some(Act::Silence) => self.at = self.voice.len(),
            Some(Act::Speak) | None => {}
        }
        if now_ms >= self.next_key_ms
            && let Some(key) = self.keys.pop_front()
        {
            self.next_key_ms = now_ms + KEY_EVERY_MS;
            let note = match self.leg.press(now, key) {
                true => format!("pressing {key}"),
                false => format!(
                    "{key} cannot be pressed: no keypad events were agreed, or it is no key"
                ),
            };
            self.notes.push(note);
        }
        let mut frame = [0; FRAME];
        let spoken = self.voice.len().saturating_sub(self.at).min(FRAME);
        frame[..spoken].copy_from_slice(&self.voice[self.at..self.at + spoken]);
        self.at += spoken;
        let (out, sealer) = (&mut self.out, &mut self.sealer);
        let mut send = |packet: RtpPacket<'_>| out.push(sealed(&packet, sealer.as_mut()));
        self.leg.audio(now, &frame, false, &mut send);
        // Keys take the place of audio.
        self.leg.send_due(now, &mut send);
        None
    }

    /// A datagram that came.
    fn datagram(&mut self, datagram: &mut [u8], from: SocketAddr) {
        if from.ip() != self.agreed.remote.ip() || is_rtcp(datagram) {
            return;
        }
        let length = match &mut self.opener {
            // A packet that is not authentic is nobody's.
            Some(opener) => match opener.open(datagram) {
                Ok(length) => length,
                Err(_) => return,
            },
            None => datagram.len(),
        };
        let Some(packet) = Packet::parse(&datagram[..length]) else {
            return;
        };
        let packet = RtpPacket {
            payload_type: packet.payload_type,
            marker: packet.marker,
            sequence: packet.sequence,
            timestamp: packet.timestamp,
            ssrc: packet.ssrc,
            payload: packet.payload,
        };
        let passed = self.began.elapsed();
        self.hear(|leg, sink| leg.packet(time(passed), &packet, sink), passed);
    }

    /// Lets the leg tell what can be heard now.
    fn hear(
        &mut self,
        run: impl FnOnce(&mut RtpLeg, &mut dyn FnMut(LegEvent<'_>)),
        passed: Duration,
    ) {
        let Self {
            leg,
            player,
            ears,
            notes,
            is_deaf,
            ..
        } = self;
        let now = samples(passed);
        run(leg, &mut |event| match event {
            LegEvent::Audio(sound) => {
                let start = player.play(now, 0, sound) * 1000 / u64::from(RATE);
                if sound.iter().any(|sample| sample.unsigned_abs() > LOUD) {
                    if ears.voice_since.is_none() || start > ears.voice_until + PAUSE_MS {
                        ears.voice_since = Some(start);
                        notes.push("the other side speaks".to_owned());
                    }
                    ears.voice_until = player.end() * 1000 / u64::from(RATE);
                }
            }
            LegEvent::Digit(key) => notes.push(format!("key {key}")),
            LegEvent::Silent => *is_deaf = true,
            // What was lost is silence on the call's own time line; a stream that begins anew goes on there.
            _ => {}
        });
    }

    fn renew(&mut self, agreed: Agreed) -> Result<(), CallError> {
        self.plan = self.plan.renewed(&agreed);
        let renewed = self.leg.renew(time(self.began.elapsed()), self.plan);
        renewed.map_err(|_| no_codec(agreed.codec))?;
        if agreed.keys != self.agreed.keys {
            self.sealer = agreed.keys.as_ref().map(|keys| Sealer::new(&keys.ours));
            self.opener = agreed.keys.as_ref().map(|keys| Opener::new(&keys.theirs));
        }
        self.agreed = agreed;
        Ok(())
    }

    /// What the network did, and how loud it was.
    fn summary(&self) -> String {
        let totals = self.leg.totals();
        let sound = self.player.sound();
        let loudness = match sound.iter().any(|sample| *sample != 0) {
            true => format!("{:.0} dBFS", level::rms_dbfs(sound)),
            false => "silence".to_owned(),
        };
        format!(
            "heard {:.1} s ({loudness}): {} packets, {} lost, {} late, jitter {:.1} ms",
            sound.len() as f64 / f64::from(RATE),
            totals.packets,
            totals.lost,
            totals.late,
            self.leg.jitter().as_secs_f64() * 1000.0
        )
    }
}

/// A packet as it goes over the wire.
fn sealed(packet: &RtpPacket<'_>, sealer: Option<&mut Sealer>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.payload.len() + 32);
    let header = Header {
        payload_type: packet.payload_type,
        marker: packet.marker,
        sequence: packet.sequence,
        timestamp: packet.timestamp,
        ssrc: packet.ssrc,
    };
    header.write(&mut bytes);
    bytes.extend_from_slice(packet.payload);
    if let Some(sealer) = sealer {
        sealer.seal(&mut bytes);
    }
    bytes
}

fn no_codec(codec: Codec) -> CallError {
    CallError::Failed(format!("the codec {} cannot be set up", codec.name()))
}

/// The leg's time. It does not begin at zero, where no time has passed.
fn time(passed: Duration) -> Time {
    Time::from_millis(1_000) + passed
}

/// Samples since the call was answered.
fn samples(passed: Duration) -> u64 {
    u64::try_from(passed.as_micros()).unwrap_or(u64::MAX) * u64::from(RATE) / 1_000_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn an_address_says_whom_where_and_over_what() {
        let target = |text: &str| Target::parse(text).map_err(|error| error.to_string());
        let one = target("sip:+4930123456@203.0.113.5:5070;transport=TCP").unwrap();
        assert_eq!(
            one,
            Target {
                user: "+4930123456".to_owned(),
                host: Host::Ip([203, 0, 113, 5].into()),
                port: Some(5070),
                transport: Transport::Tcp,
            }
        );
        assert_eq!(
            target("sip:100@pbx.example.com").unwrap().transport,
            Transport::Udp
        );
        assert_eq!(
            target("sips:100@pbx.example.com").unwrap().transport,
            Transport::Tls
        );
        for wrong in [
            "",
            "100",
            "tel:+4930123456",
            "sip:203.0.113.5",
            "sip:100@",
            "sip:100@h;transport=sctp",
        ] {
            assert!(
                target(wrong).unwrap_err().contains("no SIP address"),
                "{wrong}"
            );
        }
    }
}
