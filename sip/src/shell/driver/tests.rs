//! The driver turned by hand, so that its clock can be put forward.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use crossbeam_channel::bounded;

use super::*;
use crate::endpoint::Config;
use crate::event::CallId;
use crate::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};

/// How long a machine may be busy with something else.
const PATIENCE: Duration = Duration::from_secs(30);

struct Turned {
    driver: Driver,
    commands: Sender<Command>,
    ends: Ends,
    events: Receiver<Event>,
}

impl Turned {
    /// Listens for TCP on loopback, where a carrier is known; nothing else may be called.
    fn new() -> Self {
        let settings = Settings {
            endpoint: Config::new(Vec::new()),
            seed: [3; 32],
            listen: vec![Listen {
                transport: Transport::Tcp,
                addr: (Ipv4Addr::LOCALHOST, 0).into(),
            }],
            tls: None,
            dns: Vec::new(),
        };
        let (commands, commands_in) = bounded(16);
        let (events_out, events) = bounded(64);
        let permit: Permit = Arc::new(|_, ip| ip.is_loopback());
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Ends::default();
        let told = (commands_in, ends.clone());
        let driver = Driver::new(settings, told, events_out, stop, Some(permit)).unwrap();
        let carrier = Trunk {
            id: TrunkId(1),
            tenant: Tenant::default(),
            host: None,
            port: None,
            transport: Transport::Tcp,
            allowed: Net::parse("127.0.0.1").into_iter().collect(),
            inbound: InboundAuth::Address,
            credentials: None,
            domain: None,
            outbound: Outbound::Host,
            register: None,
            registrar_realms: RegistrarRealms::Unknown,
            keep_alive: None,
        };
        commands.send(Command::SetTrunk(Box::new(carrier))).unwrap();
        let mut this = Self {
            driver,
            commands,
            ends,
            events,
        };
        this.turn();
        this
    }

    fn turn(&mut self) {
        let mut events = Events::with_capacity(16);
        assert!(self.driver.turn(&mut events, Duration::from_millis(5)));
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.driver.addresses()[0].addr).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < until, "it does not come to that");
            self.turn();
        }
    }

    /// Turns until a client has heard that; `""` for the end of its connection.
    fn hear(&mut self, client: &mut TcpStream, what: &str) -> String {
        let (mut heard, mut buffer) = (String::new(), [0; 4_096]);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            self.turn();
            match client.read(&mut buffer) {
                Ok(0) if what.is_empty() => return heard,
                Ok(count) => heard.push_str(&String::from_utf8_lossy(&buffer[..count])),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            if !what.is_empty() && heard.contains(what) {
                return heard;
            }
        }
        unreachable!("not heard: {what:?} in {heard}");
    }

    fn wait(&mut self, time: Duration) {
        self.driver.origin -= time;
        self.turn();
    }
}

/// A request of a telephone behind a NAT, which names an address of its own network.
fn request(method: &str, to_tag: &str) -> String {
    format!(
        "{method} sip:service@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 10.0.0.5;branch=z9hG4bK{method}\r\n\
         From: <sip:phone@127.0.0.1>;tag=1\r\nTo: <sip:service@127.0.0.1>{to_tag}\r\nCall-ID: probe\r\n\
         CSeq: 1 {method}\r\nMax-Forwards: 70\r\nContact: <sip:phone@10.0.0.5:5060>\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// An INVITE of a caller whose audio does not matter.
fn invite(call: &str) -> String {
    request("INVITE", "")
        .replace("Call-ID: probe", &format!("Call-ID: {call}"))
        .replace("branch=z9hG4bK", &format!("branch=z9hG4bK{call}"))
}

#[test]
fn a_call_that_is_to_end_does_so_whatever_waits_before_it() {
    let mut turned = Turned::new();
    let mut phone = turned.connect();
    for call in ["one", "two"] {
        phone.write_all(invite(call).as_bytes()).unwrap();
    }
    turned.until(|turned| turned.events.len() >= 2);
    let calls: Vec<CallId> = turned
        .events
        .try_iter()
        .filter_map(|event| match event {
            Event::Incoming(call, _) => Some(call),
            _ => None,
        })
        .collect();
    let [one, two] = calls[..] else {
        unreachable!("{calls:?}");
    };
    // Nobody takes commands: the queue is full, and what is more does not fit.
    while turned.commands.try_send(Command::Ring(one, None)).is_ok() {}
    for call in [one, two, one] {
        turned.ends.add(call);
    }
    let mut heard = turned.hear(&mut phone, "SIP/2.0 503");
    while heard.matches("SIP/2.0 503").count() < 2 {
        heard += &turned.hear(&mut phone, "SIP/2.0 503");
    }
    // What had found room came first.
    let rings = heard.find("SIP/2.0 180").unwrap();
    assert!(heard[rings..].contains("SIP/2.0 503"), "{heard}");
    let mut ended = Vec::new();
    turned.until(|turned| turned.events.len() >= 2);
    for event in turned.events.try_iter() {
        if let Event::Ended { call, code, .. } = event {
            assert_eq!(code, Some(503));
            ended.push(call);
        }
    }
    ended.sort_unstable_by_key(|call| call.0);
    assert_eq!(ended, [one, two]);
}

#[test]
fn a_silent_connection_is_closed_unless_a_call_is_on_it() {
    let mut turned = Turned::new();
    let (mut phone, mut other) = (turned.connect(), turned.connect());
    other.write_all(request("OPTIONS", "").as_bytes()).unwrap();
    turned.hear(&mut other, "200 OK");
    phone.write_all(request("INVITE", "").as_bytes()).unwrap();
    let call = CallId(CallId::FIRST_INCOMING);
    turned.until(|turned| turned.driver.endpoint.counts().calls == 1);
    let answer = Command::Answer(call, crate::message::Body::sdp("offer"));
    turned.commands.send(answer).unwrap();
    let answer = turned.hear(&mut phone, "\r\n\r\noffer");
    let to = answer.lines().rfind(|line| line.starts_with("To:"));
    let tag = to.and_then(|to| to.split_once('>')).unwrap().1;
    phone.write_all(request("ACK", tag).as_bytes()).unwrap();
    let is_up = |event| matches!(event, Event::Established { .. });
    turned.until(|turned| turned.events.try_iter().any(is_up));
    turned.wait(IDLE);
    turned.hear(&mut other, "");
    assert_eq!(turned.driver.connections.len(), 1);
    turned.commands.send(Command::HangUp(call, None)).unwrap();
    turned.hear(&mut phone, "BYE sip:phone@10.0.0.5");
    // Nobody answers: the call is over, and its connection is one of many.
    turned.wait(Duration::from_secs(64));
    assert_eq!(turned.driver.endpoint.counts().calls, 0);
    turned.wait(IDLE);
    turned.hear(&mut phone, "");
    assert!(turned.driver.connections.is_empty());
}
