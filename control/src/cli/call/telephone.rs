//! `sidetone call --sip`: a telephone in the terminal. Our own SIP stack calls an address, the leg that the
//! server has for its callers speaks and hears, and what happens is printed.

mod talk;
mod target;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use media::leg::rtp::RtpLeg;
use media::rtp::sdp::{self, Agreed, Encryption, Flow, Local, Offered};
use media::time::RATE;
use sip::auth::Credentials;
use sip::endpoint::{Advertised, Config};
use sip::event::{CallId, Command, Direction, EndedBy, Event, Place, Traced};
use sip::message::{Body, Host, Transport};
use sip::shell::{Listen, Settings, Sip};
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::screen::line;
use super::{CallArgs, CallError, FRAME_MS};
use crate::calls::bridge::transports;
use crate::secret;
use talk::Talk;
use target::Target;

const CALL: CallId = CallId(1);
const CARRIER: TrunkId = TrunkId(1);

/// Events of the stack that wait for us; one call has few.
const EVENTS: usize = 256;

/// The answer to our goodbye is waited for so long.
const GOODBYE: Duration = Duration::from_secs(2);

/// Calls, talks and hangs up. Fails when nobody answers, or when the line breaks.
pub(super) async fn call(uri: &str, args: &CallArgs) -> Result<(), CallError> {
    let target = Target::parse(uri)?;
    let voice = match &args.wav {
        Some(path) => Some(super::read_wav(path, RATE)?),
        None => None,
    };
    let mut line = Signalling::dial(&target, args).await?;
    line.say(&format!("calling {target}"));
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
struct Signalling {
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

impl Signalling {
    /// Sends the INVITE.
    async fn dial(target: &Target, args: &CallArgs) -> Result<Self, CallError> {
        let broken = |error: std::io::Error| CallError::Socket(error.to_string());
        let own = target.seen_from().await?;
        let audio = UdpSocket::bind((own, 0)).await.map_err(broken)?;
        let sip = stack(own, target.transport).map_err(broken)?;
        let carrier = Trunk {
            id: CARRIER,
            tenant: Tenant::default(),
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
                // Whoever calls has named this host and its password by hand.
                md5_without_qop: true,
            }),
            domain: None,
            outbound: Outbound::Host,
            register: None,
            registrar_realms: RegistrarRealms::Unknown,
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
            forwarded: None,
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
