//! An endpoint alone with its time, and the carriers and strangers that speak with it.

pub(super) use super::world::*;
pub(super) use crate::auth::{Challenge, Credentials};
use crate::event::Incoming;
pub(super) use crate::locate::{Answers, Srv};
pub(super) use crate::lookups::{Urgency, Wish};
pub(super) use crate::message::{Method, Request, Response};
pub(super) use crate::trunk::{InboundAuth, Register, Tenant, Trunk};

/// An endpoint alone with its time; what it sends is answered by hand.
pub(super) struct Alone {
    pub(super) now: Time,
    pub(super) endpoint: Endpoint,
    pub(super) sent: Vec<(Peer, Message)>,
    pub(super) told: Vec<String>,
    /// The reasons of the calls that ended.
    pub(super) reasons: Vec<String>,
    /// The realms that events of registrations told.
    pub(super) realms: Vec<Vec<String>>,
    /// The calls that came in.
    pub(super) incoming: Vec<Incoming>,
    /// Messages of calls, as they are told to people.
    pub(super) traced: Vec<String>,
    /// Names that are wanted and have no answer, each once.
    pub(super) asked: Vec<Lookup>,
    /// Every time that one was wanted.
    pub(super) wishes: Vec<Wish>,
    pub(super) closed: Vec<Peer>,
    /// How often a ping was answered.
    pub(super) pongs: usize,
    /// Who would be told that the last message could not be sent.
    pub(super) client: Option<ClientId>,
    pub(super) wait: Time,
}

impl Alone {
    pub(super) fn new() -> Self {
        let mut config = Config::new(vec![Advertised {
            transport: Transport::Udp,
            host: Host::Ip(address(B).ip()),
            port: 5060,
        }]);
        config.trace = true;
        Self {
            now: Time::from_secs(1),
            endpoint: Endpoint::new(config, [7; 32]),
            sent: Vec::new(),
            told: Vec::new(),
            reasons: Vec::new(),
            realms: Vec::new(),
            incoming: Vec::new(),
            traced: Vec::new(),
            asked: Vec::new(),
            wishes: Vec::new(),
            closed: Vec::new(),
            pongs: 0,
            client: None,
            wait: Time::NEVER,
        }
    }

    pub(super) fn step(&mut self, input: Input<'_>) {
        self.endpoint.handle(self.now, input);
        loop {
            match self.endpoint.poll() {
                Output::Wait(at) => {
                    self.wait = at;
                    return;
                }
                Output::Transmit { to, wire, client } => {
                    self.client = client;
                    self.pongs += usize::from(*wire == *b"\r\n");
                    if let Ok(Some(message)) = parse(&wire, Framing::Datagram) {
                        self.sent.push((to, message));
                    }
                }
                Output::Event(Event::Message(traced)) => self.traced.push(traced.text),
                Output::Event(event) => {
                    self.told.push(told(&event));
                    match event {
                        Event::Incoming(_, incoming) => self.incoming.push(*incoming),
                        Event::Ended { reason, .. } => self.reasons.push(reason),
                        Event::Registered { realms, .. }
                        | Event::RegistrationFailed { realms, .. } => self.realms.push(realms),
                        _ => {}
                    }
                }
                Output::Resolve(wish) => {
                    if !self.asked.contains(&wish.lookup) {
                        self.asked.push(wish.lookup.clone());
                    }
                    self.wishes.push(wish);
                }
                Output::Close(peer) => self.closed.push(peer),
            }
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.wait <= until {
            self.now = self.now.max(self.wait);
            self.step(Input::Timeout);
        }
        self.now = until;
    }

    pub(super) fn bytes(&mut self, from: &str, text: &str) {
        let text = text.replace('\n', "\r\n");
        let from = from.parse().unwrap();
        self.step(Input::Datagram {
            from,
            bytes: text.as_bytes(),
        });
    }

    /// The last request that was sent, and where to.
    pub(super) fn last(&self) -> (Peer, Request) {
        match self.sent.last() {
            Some((peer, Message::Request(request))) => (peer.clone(), request.clone()),
            other => panic!("not a request: {other:?}"),
        }
    }

    pub(super) fn last_response(&self) -> Response {
        match self.sent.last() {
            Some((_, Message::Response(response))) => response.clone(),
            other => panic!("not a response: {other:?}"),
        }
    }

    /// Answers the last request from where it went.
    pub(super) fn answer(&mut self, code: u16, fields: &[(Name, &str)]) {
        let (peer, request) = self.last();
        self.answer_to(&peer, &request, code, fields);
    }

    /// Answers that request from where it went.
    pub(super) fn answer_to(
        &mut self,
        peer: &Peer,
        request: &Request,
        code: u16,
        fields: &[(Name, &str)],
    ) {
        let bytes = answering(request, code, fields);
        self.step(Input::Datagram {
            from: peer.addr,
            bytes: &bytes,
        });
    }

    /// Answers that request over the connection that it went over.
    pub(super) fn answer_over(
        &mut self,
        peer: &Peer,
        request: &Request,
        code: u16,
        fields: &[(Name, &str)],
    ) {
        let bytes = answering(request, code, fields);
        let peer = peer.clone();
        self.step(Input::Stream {
            peer,
            bytes: &bytes,
        });
    }
}

fn answering(request: &Request, code: u16, fields: &[(Name, &str)]) -> Vec<u8> {
    let mut response = Response::to(&request.headers, code, "");
    response.set_to_tag("there");
    for (name, value) in fields {
        response.headers.push(name.clone(), *value);
    }
    response.to_bytes()
}

pub(super) fn credentials() -> Credentials {
    Credentials::new("alice", "secret")
}

pub(super) fn named(id: u64) -> Trunk {
    Trunk {
        host: Host::parse("carrier.example"),
        port: None,
        allowed: Vec::new(),
        credentials: Some(credentials()),
        ..trunk(id, A, Transport::Udp)
    }
}

/// The same of another tenant.
pub(super) fn named_of(id: u64, tenant: u64) -> Trunk {
    Trunk {
        tenant: Tenant(tenant),
        ..named(id)
    }
}

pub(super) fn srv(priority: u16, last: u8) -> Srv {
    Srv {
        priority,
        weight: 0,
        port: 5080,
        addresses: vec![IpAddr::from([198, 51, 100, last])],
    }
}

pub(super) fn resolve(alone: &mut Alone, srv: Vec<Srv>) {
    let lookup = alone.asked.pop().unwrap();
    alone.step(Input::Resolved {
        lookup,
        answers: Some(Answers {
            srv,
            addresses: Vec::new(),
        }),
        keep: Duration::from_secs(600),
    });
}

/// The addresses that a name leads to, one a line of a test.
pub(super) fn leads_to(alone: &mut Alone, last: &[u8]) {
    let records = last.iter().map(|last| srv(10, *last)).collect();
    resolve(alone, records);
}

pub(super) const CHALLENGE: &str =
    "Digest realm=\"r\", nonce=\"n\", qop=\"auth\", algorithm=SHA-256";

pub(super) fn invite(authorization: &str, branch: u32) -> String {
    format!(
        "INVITE sip:+15550100@192.0.2.2 SIP/2.0\nTo: <sip:+15550100@carrier.example>\n\
         From: <sip:+15550123@carrier.example>;tag=far{branch}\n\
         Via: SIP/2.0/UDP 192.0.2.1;rport;branch=z9hG4bKt{branch}\n\
         Call-ID: digest{branch}\nCSeq: {branch} INVITE\nMax-Forwards: 70\n{authorization}\
         Contact: <sip:+15550123@192.0.2.1>\nContent-Length: 0\n\n"
    )
}

pub(super) fn authorization(challenge: &str, user: &str, password: &str) -> String {
    let given = Credentials::new(user, password);
    let uri = "sip:+15550100@192.0.2.2";
    let answer = Challenge::parse(challenge)
        .unwrap()
        .answer(&given, "INVITE", uri, 1, "cn");
    format!("Authorization: {answer}\n")
}

pub(super) trait IntoRequest {
    fn into_request(self) -> Request;
}

impl IntoRequest for Message {
    fn into_request(self) -> Request {
        match self {
            Self::Request(request) => request,
            Self::Response(_) => panic!("a response"),
        }
    }
}
