//! The whole of SIP, told operations: messages of a few dialogs in any order and shape, the user's commands,
//! and time. It always comes to an end of its outputs, waits for no time that is past, and once all calls
//! are hung up and time has gone by nothing of them is left.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use arbitrary::Arbitrary;
use sip::endpoint::{Advertised, Config, Endpoint, Input, Output, Peer};
use sip::event::{CallId, Command, Event, Place};
use sip::message::{Body, Host, Transport};
use sip::time::Time;
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};

#[derive(Arbitrary, Debug)]
enum Step {
    Request(Shape),
    Response(u16, Shape),
    /// Any bytes, as a datagram or on a connection.
    Bytes(bool, Vec<u8>),
    Failed,
    /// The user asks for something of the latest call.
    Answer,
    Reject(u16),
    HangUp,
    Offer,
    AcceptOffer,
    RefuseOffer,
    Refer,
    AnswerRefer(u16),
    Info,
    Ring(bool),
    Place,
    Wait(u16),
}

/// A message with numbers out of small rooms, so that they meet.
#[derive(Arbitrary, Debug)]
struct Shape {
    method: u8,
    branch: u8,
    call: u8,
    /// Tags: none, one of a few, or the one that we gave last.
    from_tag: u8,
    to_tag: u8,
    cseq: u8,
    body: bool,
    extra: u8,
}

const METHODS: [&str; 12] = [
    "INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "PRACK", "UPDATE", "INFO", "REFER", "NOTIFY",
    "REGISTER", "STRANGE",
];

const EXTRAS: [&str; 8] = [
    "",
    "Require: 100rel\r\nRAck: 1 1 INVITE\r\n",
    "Supported: timer, 100rel\r\nSession-Expires: 90;refresher=uac\r\nMin-SE: 90\r\n",
    "Require: unheard-of\r\n",
    "Refer-To: <sip:c@192.0.2.7>\r\n",
    "Event: refer\r\nSubscription-State: active\r\n",
    "Record-Route: <sip:192.0.2.50;lr>\r\n",
    "Replaces: c1;to-tag=a;from-tag=b\r\nReason: Q.850;cause=16\r\n",
];

const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";

struct World {
    endpoint: Endpoint,
    now: Time,
    wait: Time,
    latest: CallId,
    placed: u64,
    /// What we sent last says which branch, tag and number are known.
    sent: String,
}

/// Runs the body on what `bytes` spell.
pub fn fuzz(bytes: &[u8]) {
    let Some(steps) = crate::spelled::<Vec<Step>>(bytes) else {
        return;
    };
    let mut world = World::new();
    for step in steps.into_iter().take(60) {
        world.step(step);
    }
    // Everything is given up, and all timers run out.
    for call in 0..=world.placed {
        world.tell(Input::Command(Command::HangUp(CallId(call), None)));
    }
    for call in 0..64 {
        let incoming = CallId((1 << 63) + call);
        world.tell(Input::Command(Command::Reject(incoming, 486, None)));
        world.tell(Input::Command(Command::HangUp(incoming, None)));
    }
    world.tell(Input::Command(Command::RemoveTrunk(TrunkId(1))));
    world.go_by(Duration::from_secs(7_200));
    let counts = world.endpoint.counts();
    assert_eq!((counts.calls, counts.clients, counts.servers), (0, 0, 0));
}

fn from() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], 5060))
}

impl World {
    fn new() -> Self {
        let mut config = Config::new(vec![Advertised {
            transport: Transport::Udp,
            host: Host::Ip([192, 0, 2, 1].into()),
            port: 5060,
        }]);
        config.most_calls = 32;
        let mut world = Self {
            endpoint: Endpoint::new(config, [7; 32]),
            now: Time::from_millis(10_000),
            wait: Time::NEVER,
            latest: CallId(1 << 63),
            placed: 0,
            sent: String::new(),
        };
        let trunk = Trunk {
            id: TrunkId(1),
            tenant: Tenant::default(),
            host: Some(Host::Ip(from().ip())),
            port: Some(5060),
            transport: Transport::Udp,
            allowed: Net::parse("192.0.2.0/24").into_iter().collect(),
            inbound: InboundAuth::Address,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            registrar_realms: RegistrarRealms::Unknown,
            keep_alive: None,
        };
        world.tell(Input::Command(Command::SetTrunk(Box::new(trunk))));
        world
    }

    fn step(&mut self, step: Step) {
        let call = self.latest;
        let peer = Peer::new(Transport::Tcp, from());
        let command = match step {
            Step::Request(shape) => {
                let method = METHODS[usize::from(shape.method) % METHODS.len()];
                let first = format!("{method} sip:a@192.0.2.1 SIP/2.0\r\n");
                let text = self.message(&first, method, &shape);
                return self.datagram(text.as_bytes());
            }
            Step::Response(code, shape) => {
                let method = METHODS[usize::from(shape.method) % METHODS.len()];
                let first = format!("SIP/2.0 {} Said\r\n", 100 + code % 600);
                let text = self.message(&first, method, &shape);
                return self.datagram(text.as_bytes());
            }
            Step::Bytes(true, bytes) => return self.datagram(&bytes),
            Step::Bytes(false, bytes) => {
                return self.tell(Input::Stream {
                    peer,
                    bytes: &bytes,
                });
            }
            Step::Failed => return self.tell(Input::Failed(peer)),
            Step::Wait(ms) => return self.go_by(Duration::from_millis(u64::from(ms) * 4)),
            Step::Answer => Command::Answer(call, Body::sdp(SDP)),
            Step::Reject(code) => Command::Reject(call, 300 + code % 400, None),
            Step::HangUp => Command::HangUp(call, Some("Q.850;cause=16".to_owned())),
            Step::Offer => Command::Offer(call, Body::sdp(SDP)),
            Step::AcceptOffer => Command::AcceptOffer(call, Body::sdp(SDP)),
            Step::RefuseOffer => Command::RefuseOffer(call, 488),
            Step::Refer => Command::Refer(call, "sip:c@192.0.2.7".to_owned(), None),
            Step::AnswerRefer(code) => Command::AnswerRefer(call, 200 + code % 500),
            Step::Info => Command::Info(call, Body::new("application/dtmf-relay", "Signal=1\r\n")),
            Step::Ring(body) => Command::Ring(call, body.then(|| Body::sdp(SDP))),
            Step::Place => {
                self.placed += 1;
                self.latest = CallId(self.placed);
                Command::Place(self.latest, Box::new(place()))
            }
        };
        self.tell(Input::Command(command));
    }

    fn message(&self, first: &str, method: &str, shape: &Shape) -> String {
        let mut text = first.to_owned();
        // An even branch and call are those of what we sent last, if it had them.
        let ours = |name: &str, end: &[char]| {
            let at = self.sent.find(name)? + name.len();
            self.sent[at..].split(end).next()
        };
        let own = shape.branch.is_multiple_of(2);
        let branch = ours("branch=", &[';', '\r', ',']).filter(|_| own);
        let branch = branch.map_or(format!("z9hG4bK{}", shape.branch % 8), str::to_owned);
        let via = if first.starts_with("SIP") {
            "192.0.2.1"
        } else {
            "192.0.2.9"
        };
        let id = ours("Call-ID: ", &['\r']).filter(|_| shape.call.is_multiple_of(2));
        let id = id.map_or(format!("c{}", shape.call % 4), str::to_owned);
        let tag = |number: u8| match number % 4 {
            0 => String::new(),
            1 => ours("To: <sip:a@192.0.2.1>;tag=", &['\r', ';'])
                .map_or(String::new(), |tag| format!(";tag={tag}")),
            number => format!(";tag=t{number}"),
        };
        let (from_tag, to_tag) = (tag(shape.from_tag), tag(shape.to_tag));
        let cseq = shape.cseq % 8;
        let extra = EXTRAS[usize::from(shape.extra) % EXTRAS.len()];
        let body = if shape.body { SDP } else { "" };
        let kind = if shape.body {
            "Content-Type: application/sdp\r\n"
        } else {
            ""
        };
        // Writing to a String cannot fail.
        _ = write!(
            text,
            "Via: SIP/2.0/UDP {via}:5060;branch={branch};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:b@192.0.2.9>{from_tag}\r\nTo: <sip:a@192.0.2.1>{to_tag}\r\nCall-ID: {id}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:b@192.0.2.9:5060>\r\n{extra}{kind}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        text
    }

    fn datagram(&mut self, bytes: &[u8]) {
        self.tell(Input::Datagram {
            from: from(),
            bytes,
        });
    }

    fn go_by(&mut self, time: Duration) {
        let until = self.now + time;
        let mut turns = 0;
        while self.wait <= until {
            self.now = self.now.max(self.wait);
            self.tell(Input::Timeout);
            turns += 1;
            assert!(turns < 100_000, "timers do not come to an end");
        }
        self.now = until;
    }

    fn tell(&mut self, input: Input<'_>) {
        self.endpoint.handle(self.now, input);
        for _ in 0..10_000 {
            match self.endpoint.poll() {
                Output::Wait(at) => {
                    assert!(at > self.now, "it waits for the past");
                    self.wait = at;
                    return;
                }
                Output::Transmit { wire, .. } => {
                    self.sent = String::from_utf8_lossy(&wire).into_owned();
                }
                Output::Event(Event::Incoming(call, _)) => self.latest = call,
                Output::Event(_) | Output::Close(_) | Output::Resolve(_) => {}
            }
        }
        panic!("polling does not end");
    }
}

fn place() -> Place {
    Place {
        trunk: TrunkId(1),
        to: "callee".to_owned(),
        from: "caller".to_owned(),
        display: None,
        headers: Vec::new(),
        offer: Body::sdp(SDP),
        ring_for: Duration::from_secs(50),
        forwarded: None,
    }
}
