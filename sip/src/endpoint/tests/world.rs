//! Two endpoints and a network between them, under virtual time that jumps from event to event.

pub(super) use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::fmt::Write as _;
pub(super) use std::time::Duration;

pub(super) use super::super::*;
use crate::event::Place;
pub(super) use crate::message::Name;
use crate::message::{Body, Method, Response};
use crate::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk};

/// The caller's side and the callee's, in most scripts.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// The call that A places first.
pub(super) const CALL: CallId = CallId(1);

/// What happens to a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Of a thousand.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) delay: (Duration, Duration),
}

pub(super) const CALM: Weather = Weather {
    lost: 0,
    doubled: 0,
    delay: (Duration::from_millis(10), Duration::from_millis(10)),
};

/// What was seen, in its order.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Sent { from: usize, message: Message },
    Arrived { to: usize, message: Message },
    Event { at: usize, event: Event },
}

pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) addr: SocketAddr,
    wait: Time,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) nodes: Vec<Node>,
    pub(super) weather: Weather,
    ids: Ids,
    sequence: u64,
    /// Under way: when, which in order, to whom, from where, over what.
    network: BTreeMap<(Time, u64), (usize, Peer, Wire)>,
    /// What users will ask for.
    commands: BTreeMap<(Time, u64), (usize, Command)>,
    pub(super) seen: Vec<(Time, Seen)>,
    /// Drops the datagrams for which it says so, in a script.
    pub(super) censor: Option<fn(&Message, usize) -> bool>,
    censored: usize,
}

pub(super) fn address(index: usize) -> SocketAddr {
    let last = u8::try_from(index + 1).unwrap();
    SocketAddr::new(IpAddr::from([192, 0, 2, last]), 5060)
}

/// A trunk to the other node.
pub(super) fn trunk(id: u64, to: usize, transport: Transport) -> Trunk {
    Trunk {
        id: TrunkId(id),
        tenant: Tenant::default(),
        host: Some(Host::Ip(address(to).ip())),
        port: Some(5060),
        transport,
        allowed: vec![Net::parse(&address(to).ip().to_string()).unwrap()],
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        outbound: Outbound::Host,
        register: None,
        registrar_realms: RegistrarRealms::Unknown,
        keep_alive: None,
    }
}

impl World {
    pub(super) fn new(seed: u64, session_expires: u32, transport: Transport) -> Self {
        Self::with(seed, session_expires, transport, false)
    }

    /// A world whose endpoints tell each message of a call.
    pub(super) fn traced(transport: Transport) -> Self {
        Self::with(1, 0, transport, true)
    }

    fn with(seed: u64, session_expires: u32, transport: Transport, trace: bool) -> Self {
        let mut ids = Ids::from_number(seed);
        let nodes = [A, B]
            .into_iter()
            .map(|index| {
                let addr = address(index);
                let mut config = Config::new(
                    [Transport::Udp, Transport::Tcp]
                        .into_iter()
                        .map(|transport| Advertised {
                            transport,
                            host: Host::Ip(addr.ip()),
                            port: 5060,
                        })
                        .collect(),
                );
                config.session_expires = session_expires;
                config.trace = trace;
                let mut seed = [0; 32];
                seed[..8].copy_from_slice(&ids.number().to_le_bytes());
                Node {
                    endpoint: Endpoint::new(config, seed),
                    addr,
                    wait: Time::NEVER,
                }
            })
            .collect();
        let mut world = Self {
            now: Time::from_secs(1),
            nodes,
            weather: CALM,
            ids,
            sequence: 0,
            network: BTreeMap::new(),
            commands: BTreeMap::new(),
            seen: Vec::new(),
            censor: None,
            censored: 0,
        };
        world.do_now(A, Command::SetTrunk(Box::new(trunk(1, B, transport))));
        world.do_now(B, Command::SetTrunk(Box::new(trunk(2, A, transport))));
        world
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.ids.below(bound)
    }

    pub(super) fn between(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        self.ids
            .between(Duration::from_millis(from_ms), Duration::from_millis(to_ms))
    }

    pub(super) fn do_now(&mut self, node: usize, command: Command) {
        self.step(node, Input::Command(command));
    }

    pub(super) fn do_in(&mut self, wait: Duration, node: usize, command: Command) {
        self.sequence += 1;
        self.commands
            .insert((self.now + wait, self.sequence), (node, command));
    }

    pub(super) fn step(&mut self, index: usize, input: Input<'_>) {
        let now = self.now;
        self.nodes[index].endpoint.handle(now, input);
        for _ in 0..10_000 {
            match self.nodes[index].endpoint.poll() {
                Output::Wait(at) => {
                    assert!(at >= now, "waits for the past");
                    self.nodes[index].wait = at;
                    return;
                }
                Output::Event(event) => self.seen.push((now, Seen::Event { at: index, event })),
                Output::Transmit { to, wire, .. } => self.transmit(index, to, wire),
                Output::Close(_) => {}
                Output::Resolve(lookup) => panic!("asks for {lookup:?}"),
            }
        }
        panic!("poll does not end");
    }

    fn transmit(&mut self, from: usize, to: Peer, wire: Wire) {
        let message = match parse(&wire, Framing::Datagram) {
            Ok(Some(message)) => message,
            // An answer to what is malformed echoes it.
            _ => Message::Response(echo(&wire)),
        };
        let seen = message.clone();
        self.seen.push((
            self.now,
            Seen::Sent {
                from,
                message: seen,
            },
        ));
        let Some(index) = self.nodes.iter().position(|node| node.addr == to.addr) else {
            return;
        };
        if self
            .censor
            .is_some_and(|censor| censor(&message, self.censored))
        {
            self.censored += 1;
            return;
        }
        let peer = Peer::new(to.transport, self.nodes[from].addr);
        let reliable = to.transport.is_reliable();
        let copies = match self.ids.below(1_000) {
            draw if !reliable && draw < self.weather.lost => 0,
            draw if !reliable && draw < self.weather.lost + self.weather.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let (least, most) = self.weather.delay;
            let delay = if reliable {
                most
            } else {
                self.ids.between(least, most)
            };
            self.sequence += 1;
            self.network.insert(
                (self.now + delay, self.sequence),
                (index, peer.clone(), Wire::clone(&wire)),
            );
        }
    }

    /// The time of the next thing to happen.
    fn next(&self) -> Time {
        let network = self.network.first_key_value().map(|((at, _), _)| *at);
        let commands = self.commands.first_key_value().map(|((at, _), _)| *at);
        let waits = self.nodes.iter().map(|node| node.wait);
        waits
            .chain(network)
            .chain(commands)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Lets the next thing happen. `false` when nothing will.
    pub(super) fn advance(&mut self) -> bool {
        let next = self.next();
        if next == Time::NEVER {
            return false;
        }
        self.now = self.now.max(next);
        if let Some(entry) = self
            .network
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (to, peer, wire) = entry.remove();
            if let Ok(Some(message)) = parse(&wire, Framing::Datagram) {
                self.seen.push((self.now, Seen::Arrived { to, message }));
            }
            match peer.transport {
                Transport::Udp => self.step(
                    to,
                    Input::Datagram {
                        from: peer.addr,
                        bytes: &wire,
                    },
                ),
                _ => self.step(to, Input::Stream { peer, bytes: &wire }),
            }
        } else if let Some(entry) = self
            .commands
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (node, command) = entry.remove();
            self.step(node, Input::Command(command));
        } else {
            for index in 0..self.nodes.len() {
                if self.nodes[index].wait <= self.now {
                    self.step(index, Input::Timeout);
                }
            }
        }
        true
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.next() <= until && self.advance() {}
        self.now = until;
    }

    /// Runs until nothing will happen any more.
    pub(super) fn run_out(&mut self) {
        for _ in 0..200_000 {
            if !self.advance() {
                return;
            }
        }
        panic!("does not come to rest");
    }

    /// Runs until that node's user heard something that fits.
    pub(super) fn until<T>(&mut self, node: usize, mut fits: impl FnMut(&Event) -> Option<T>) -> T {
        let mut from = 0;
        for _ in 0..100_000 {
            let news = self.seen[from..].iter().filter_map(|(_, seen)| match seen {
                Seen::Event { at, event } if *at == node => Some(event),
                _ => None,
            });
            if let Some(found) = news.into_iter().find_map(&mut fits) {
                return found;
            }
            from = self.seen.len();
            assert!(self.advance(), "nothing more happens:\n{}", self.story());
        }
        panic!("too long:\n{}", self.story());
    }

    /// A call from A to B; gives B's number for it.
    pub(super) fn place(&mut self) -> CallId {
        self.do_now(A, placing(Duration::from_secs(120)));
        self.until(B, |event| match event {
            Event::Incoming(call, _) => Some(*call),
            _ => None,
        })
    }

    /// A call that is up at both ends.
    pub(super) fn up(&mut self) -> CallId {
        let call = self.place();
        self.do_now(B, Command::Answer(call, sdp("answer")));
        self.until(B, |event| {
            matches!(event, Event::Established { .. }).then_some(())
        });
        call
    }

    /// Everything that users heard and what was sent, to be read aloud.
    pub(super) fn story(&self) -> String {
        let mut story = String::new();
        for (at, seen) in &self.seen {
            let ms = at.as_micros() / 1_000 - 1_000;
            match seen {
                Seen::Sent { from, message } => {
                    _ = writeln!(story, "{ms} {} sends {}", name(*from), title(message));
                }
                Seen::Event { at, event } => {
                    _ = writeln!(story, "{ms} {} hears {}", name(*at), told(event));
                }
                Seen::Arrived { .. } => {}
            }
        }
        story
    }

    /// What was sent and heard since `from`, without times, in one line.
    pub(super) fn line(&self, from: usize) -> String {
        let mut parts = Vec::new();
        for (_, seen) in &self.seen[from..] {
            match seen {
                Seen::Sent { from, message } => {
                    parts.push(format!("{}:{}", name(*from), title(message)));
                }
                Seen::Event { at, event } => parts.push(format!("{}[{}]", name(*at), told(event))),
                Seen::Arrived { .. } => {}
            }
        }
        parts.join(" ")
    }

    pub(super) fn mark(&self) -> usize {
        self.seen.len()
    }

    /// Nothing is left at either end.
    pub(super) fn assert_empty(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let counts = node.endpoint.counts();
            assert_eq!(
                counts,
                Counts::default(),
                "left at {}:\n{}",
                name(index),
                self.story()
            );
        }
    }
}

pub(super) fn placing(ring_for: Duration) -> Command {
    place_as(CALL, ring_for)
}

pub(super) fn place_as(call: CallId, ring_for: Duration) -> Command {
    let place = Place {
        trunk: TrunkId(1),
        to: "+15550100".to_owned(),
        from: "+15550123".to_owned(),
        display: None,
        headers: vec![("X-Session".to_owned(), call.0.to_string())],
        offer: sdp("offer"),
        ring_for,
        forwarded: None,
    };
    Command::Place(call, Box::new(place))
}

pub(super) fn is(message: &Message, method: Method) -> bool {
    matches!(message, Message::Request(request) if request.method == method)
}

/// A request of the first call's dialog as the other side would send it, with a number of its own.
pub(super) fn in_dialog(
    world: &World,
    from: usize,
    method: &str,
    number: u32,
    body: &str,
) -> String {
    let answer = world.seen.iter().find_map(|(_, seen)| match seen {
        Seen::Sent {
            message: Message::Response(response),
            ..
        } if response.code == 200 => Some(response),
        _ => None,
    });
    let answer = answer.unwrap();
    let (caller, callee) = (
        answer.headers.get(&Name::From).unwrap(),
        answer.headers.get(&Name::To).unwrap(),
    );
    let (own, other) = if from == A {
        (caller, callee)
    } else {
        (callee, caller)
    };
    let kind = if body.is_empty() {
        ""
    } else {
        "Content-Type: application/sdp\r\n"
    };
    format!(
        "{method} sip:{to} SIP/2.0\r\nVia: SIP/2.0/UDP {addr};branch=z9hG4bK{method}{number}\r\n\
         Max-Forwards: 70\r\nFrom: {own}\r\nTo: {other}\r\nCall-ID: {id}\r\n\
         CSeq: {number} {method}\r\nContact: <sip:{addr}>\r\nContent-Length: {length}\r\n{kind}\r\n{body}",
        to = address(1 - from),
        addr = address(from),
        id = answer.call_id(),
        length = body.len(),
    )
}

/// What that datagram brings about.
pub(super) fn inject(world: &mut World, from: usize, text: &str) -> String {
    let mark = world.mark();
    world.step(
        1 - from,
        Input::Datagram {
            from: address(from),
            bytes: text.as_bytes(),
        },
    );
    world.line(mark)
}

pub(super) fn sdp(text: &str) -> Body {
    Body::sdp(text.as_bytes())
}

fn name(index: usize) -> char {
    if index == A { 'A' } else { 'B' }
}

/// `INVITE`, `200 INVITE`.
fn title(message: &Message) -> String {
    match message {
        Message::Request(request) => request.method.to_string(),
        Message::Response(response) => {
            let cseq = response.headers.get(&Name::CSeq).unwrap_or_default();
            let method = cseq.rsplit(' ').next().unwrap_or_default();
            format!("{}/{method}", response.code)
        }
    }
}

/// A 4xx or 5xx with fields that do not parse.
fn echo(wire: &[u8]) -> Response {
    let text = String::from_utf8_lossy(wire);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("SIP/2.0 "));
    let (code, reason) = status.unwrap().split_once(' ').unwrap();
    let code: u16 = code.parse().unwrap();
    assert!(code >= 400, "sends what it cannot read: {text}");
    let mut response = Response::to(&crate::message::Headers::default(), code, reason);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        response.headers.push(Name::parse(name), value);
    }
    response
}

fn said(body: &Option<Body>) -> String {
    body.as_ref().map_or_else(String::new, |body| {
        format!(" \"{}\"", String::from_utf8_lossy(&body.bytes))
    })
}

pub(super) fn told(event: &Event) -> String {
    match event {
        Event::Incoming(_, incoming) => format!("incoming{}", said(&incoming.offer)),
        Event::Progress { code, body, .. } => format!("{code}{}", said(body)),
        Event::Answered { body, .. } => format!("answered{}", said(body)),
        Event::Established { body, .. } => format!("established{}", said(body)),
        Event::Offer { body, .. } => format!("offer{}", said(body)),
        Event::OfferAccepted { body, .. } => format!("accepted{}", said(body)),
        Event::OfferRefused { code, .. } => format!("refused {code}"),
        Event::Refreshed { body, .. } => format!("refreshed{}", said(&Some(body.clone()))),
        Event::Digit {
            digit, duration_ms, ..
        } => format!("digit {digit} {duration_ms} ms"),
        Event::Referred { target, .. } => format!("referred to {target}"),
        Event::ReferProgress { code, .. } => format!("refer {code}"),
        Event::Ended { by, code, .. } => match code {
            Some(code) => format!("ended by {by:?} {code}"),
            None => format!("ended by {by:?}"),
        },
        Event::Registered { expires, .. } => format!("registered {expires}"),
        Event::RegistrationFailed { code, reason, .. } => match code {
            Some(code) => format!("not registered {code}"),
            None => format!("not registered: {reason}"),
        },
        Event::Message(traced) => format!("{:?}", traced.direction),
        Event::Reachable { reachable, .. } => format!("reachable {reachable}"),
        Event::ChallengeWithheld { code, reason, .. } => format!("withheld {code} {reason}"),
        Event::MessageRefused(refused) => {
            let header = refused.header.unwrap_or("-");
            let code = refused.code.unwrap_or(0);
            let (method, why) = (&refused.method, &refused.why);
            format!(
                "refused {method} of {} {code} {header}: {why}",
                refused.call_id
            )
        }
        Event::Unreached { why, .. } => format!("unreached {why}"),
        Event::Redirected { to, .. } => {
            let to: Vec<String> = to.iter().map(ToString::to_string).collect();
            format!("redirected to {}", to.join(" "))
        }
        Event::SharedPassword { trunks, .. } => {
            let trunks: Vec<u64> = trunks.iter().map(|trunk| trunk.0).collect();
            format!("shared by {trunks:?}")
        }
    }
}
