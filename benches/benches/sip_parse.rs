//! SIP: one INVITE read, read and checked for its transaction, written; and a whole call between two
//! endpoints, from the command to the last answer.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sip::endpoint::{Advertised, Config, Endpoint, Input, Output};
use sip::event::{CallId, Command, Event, Place};
use sip::message::parse::{Framing, parse};
use sip::message::{Body, Host, Message, Transport};
use sip::time::Time;
use sip::transaction::key::ServerKey;
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};

const SDP: &str = "v=0\r\no=- 3724394400 3724394400 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\n\
    t=0 0\r\nm=audio 20000 RTP/AVP 8 0 101\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\n\
    a=ptime:20\r\na=sendrecv\r\n";

/// As a carrier sends it: three hops, a body.
fn invite() -> Vec<u8> {
    format!(
        "INVITE sip:+15550100@192.0.2.1:5060 SIP/2.0\r\n\
         Record-Route: <sip:192.0.2.9;lr;ftag=as5f1c>\r\n\
         Via: SIP/2.0/UDP 192.0.2.9:5060;branch=z9hG4bK1f3a.7d9c1f62.0;rport\r\n\
         Via: SIP/2.0/UDP 198.51.100.4:5060;received=198.51.100.4;branch=z9hG4bK0aa3\r\n\
         Max-Forwards: 68\r\n\
         From: \"+15550123\" <sip:+15550123@carrier.example;user=phone>;tag=as5f1c7ab1\r\n\
         To: <sip:+15550100@192.0.2.1>\r\n\
         Call-ID: 3a1f9b2c5d@198.51.100.4\r\n\
         CSeq: 102 INVITE\r\n\
         Contact: <sip:+15550123@198.51.100.4:5060>\r\n\
         User-Agent: carrier\r\n\
         Allow: INVITE, ACK, CANCEL, OPTIONS, BYE, REFER, INFO, UPDATE\r\n\
         Supported: replaces, timer\r\n\
         P-Asserted-Identity: <sip:+15550123@carrier.example>\r\n\
         Content-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{SDP}",
        SDP.len()
    )
    .into_bytes()
}

fn addr(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([192, 0, 2, last]), 5060)
}

fn endpoint(own: u8, other: u8) -> Endpoint {
    let advertised = Advertised {
        transport: Transport::Udp,
        host: Host::Ip(addr(own).ip()),
        port: 5060,
    };
    let mut endpoint = Endpoint::new(Config::new(vec![advertised]), [own; 32]);
    let trunk = Trunk {
        id: TrunkId(1),
        tenant: Tenant::default(),
        host: Some(Host::Ip(addr(other).ip())),
        port: Some(5060),
        transport: Transport::Udp,
        allowed: Net::parse(&addr(other).ip().to_string())
            .into_iter()
            .collect(),
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        outbound: Outbound::Host,
        register: None,
        registrar_realms: RegistrarRealms::Unknown,
        keep_alive: None,
    };
    let command = Command::SetTrunk(Box::new(trunk));
    endpoint.handle(Time::from_secs(1), Input::Command(command));
    while !matches!(endpoint.poll(), Output::Wait(_)) {}
    endpoint
}

/// Both ends, and what each wants done.
struct Pair {
    ends: [Endpoint; 2],
    now: Time,
    next: u64,
    messages: usize,
}

impl Pair {
    fn new() -> Self {
        Self {
            ends: [endpoint(1, 2), endpoint(2, 1)],
            now: Time::from_secs(2),
            next: 1,
            messages: 0,
        }
    }

    /// A call that is placed, rung, answered and hung up; every transaction runs to its end.
    fn call(&mut self) {
        let call = CallId(self.next);
        self.next += 1;
        let place = Place {
            trunk: TrunkId(1),
            to: "+15550100".to_owned(),
            from: "+15550123".to_owned(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(SDP),
            ring_for: Duration::from_secs(60),
            forwarded: None,
        };
        self.tell(0, Command::Place(call, Box::new(place)));
        self.tell(0, Command::HangUp(call, None));
        // The longest timer of a transaction is 32 s.
        self.now = self.now + Duration::from_secs(40);
        for end in 0..2 {
            self.ends[end].handle(self.now, Input::Timeout);
            self.drain(end);
        }
    }

    fn tell(&mut self, end: usize, command: Command) {
        self.ends[end].handle(self.now, Input::Command(command));
        self.drain(end);
    }

    fn drain(&mut self, end: usize) {
        loop {
            match self.ends[end].poll() {
                Output::Wait(_) => return,
                Output::Transmit { wire, .. } => {
                    self.messages += 1;
                    let from = addr(if end == 0 { 1 } else { 2 });
                    let bytes = &wire;
                    self.ends[1 - end].handle(self.now, Input::Datagram { from, bytes });
                    self.drain(1 - end);
                }
                Output::Event(Event::Incoming(call, _)) => {
                    self.tell(end, Command::Ring(call, None));
                    self.tell(end, Command::Answer(call, Body::sdp(SDP)));
                }
                _ => {}
            }
        }
    }
}

fn sip_parse(c: &mut Criterion) {
    let bytes = invite();
    let mut group = c.benchmark_group("sip");
    group.bench_function("invite_read", |b| {
        b.iter(|| parse(black_box(&bytes), Framing::Datagram));
    });
    let Ok(Some(Message::Request(request))) = parse(&bytes, Framing::Datagram) else {
        return;
    };
    group.bench_function("invite_key", |b| {
        b.iter(|| ServerKey::of(black_box(&request)))
    });
    group.bench_function("invite_write", |b| {
        b.iter(|| black_box(&request).to_bytes())
    });
    let mut stranger = endpoint(1, 2);
    let from = addr(77);
    group.bench_function("stranger_silenced", |b| {
        b.iter(|| {
            stranger.handle(
                Time::from_secs(3),
                Input::Datagram {
                    from,
                    bytes: black_box(&bytes),
                },
            );
            stranger.poll()
        });
    });
    let mut probe = Pair::new();
    probe.call();
    println!("a call is {} messages", probe.messages);
    group.bench_function("whole_call_both_ends", |b| {
        b.iter_batched_ref(Pair::new, Pair::call, BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, sip_parse);
criterion_main!(benches);
