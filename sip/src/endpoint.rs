//! The whole of SIP as one machine: bytes, commands and time in; bytes, events and one deadline out.
//!
//! The contract of a core: [`Endpoint::handle`] is told one thing, then [`Endpoint::poll`] until it
//! says [`Output::Wait`]. `now` never goes back, `Wait` is never earlier than it; an early timeout
//! changes nothing, a late one applies all that is due in order. The same inputs and seed give the same
//! outputs, byte for byte.
//!
//! ```text
//!             gate (who may speak) ── parse ── servers ──┐
//!   Input ──┤                                            ├── calls ── events
//!             responses ───────────── clients ───────────┘
//! ```
//!
//! This file holds the tables and routes what comes in; `requests` serves requests, `clients` sends
//! ours, `names` has their hosts looked up, `reach` judges where others lead them and `challenges` who is given
//! credentials, `calls` drives the calls, `streams` bounds connections, `trace` tells what was said in calls, `trunks`
//! registers and asks whether carriers are there.

mod calls;
mod challenges;
mod clients;
mod names;
mod reach;
mod refusals;
mod requests;
mod streams;
mod trace;
mod trunks;

#[cfg(test)]
mod tests;

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use self::calls::CallRecord;
pub use self::clients::ClientId;
use self::clients::ClientRecord;
use self::names::{Failing, Waiting};
pub use self::reach::Reach;
use self::requests::ServerRecord;
use self::streams::Streams;
pub use self::trace::MOST_TEXT;
use self::trace::Tracer;
use self::trunks::{RegistrationId, RegistrationRecord, TrunkRecord};
use crate::auth::Authenticator;
use crate::call::{ServerId, Settings};
use crate::event::{CallId, Command, Event};
use crate::gate::{Admission, Gate};
use crate::ids::Ids;
use crate::locate::{Answers, Lookup};
use crate::lookups::{Refused, Urgency, Wish};
use crate::message::parse::{Framing, parse};
use crate::message::stream::Framed;
use crate::message::{Host, Message, Transport};
use crate::time::Time;
use crate::transaction::key::{ClientKey, ServerKey};
use crate::transaction::{ServerInput, Timing, Wire};
use crate::trunk::{Tenant, TrunkId};

/// The other end of a datagram or a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    pub transport: Transport,
    pub addr: SocketAddr,
    /// Over TLS, where a connection is ours to make: the host that was looked up, whose certificate is
    /// expected (RFC 5922 7.1). A connection that bears one name is not spoken over for another, though both
    /// may lead to one address.
    pub name: Option<Arc<str>>,
}

impl Peer {
    /// A peer that is known by its address.
    pub fn new(transport: Transport, addr: SocketAddr) -> Self {
        Self {
            transport,
            addr,
            name: None,
        }
    }

    /// That address, over the connection with this peer's host where it is at the same one.
    fn moved(&self, transport: Transport, addr: SocketAddr) -> Self {
        let same = self.transport == transport && self.addr.ip() == addr.ip();
        Self {
            transport,
            addr,
            name: self.name.clone().filter(|_| same),
        }
    }
}

/// Under which address others reach us over a transport: what Via and Contact say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    pub transport: Transport,
    pub host: Host,
    pub port: u16,
}

impl Advertised {
    /// Whether it is for somebody at that address: it is a name, or an address of the same family.
    pub(crate) fn is_for(&self, theirs: IpAddr) -> bool {
        let own = self.host.ip();
        own.is_none_or(|own| own.is_ipv4() == theirs.is_ipv4())
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    /// One for each transport that is spoken, and for each family of addresses that it is spoken over; the
    /// first is taken where none fits.
    pub advertised: Vec<Advertised>,
    /// Of the challenges that we give.
    pub realm: String,
    pub user_agent: String,
    pub timing: Timing,
    /// Seconds between session refreshes that are asked for; 0 for no session timer (RFC 4028).
    pub session_expires: u32,
    /// Calls at a time; one more gets 503.
    pub most_calls: usize,
    /// Transactions at a time, each about 1 KiB and kept for 32 s; one more gets 503.
    pub most_transactions: usize,
    /// Whether each message of a call is told as an event.
    pub trace: bool,
}

impl Config {
    pub fn new(advertised: Vec<Advertised>) -> Self {
        Self {
            advertised,
            realm: "sidetone".to_owned(),
            user_agent: "sidetone".to_owned(),
            timing: Timing::default(),
            session_expires: 1_800,
            most_calls: 10_000,
            most_transactions: 400_000,
            trace: false,
        }
    }
}

/// All that an endpoint is told.
#[derive(Debug)]
pub enum Input<'a> {
    Datagram {
        from: SocketAddr,
        bytes: &'a [u8],
    },
    /// What was read from a connection, at most 64 KiB at a time.
    Stream {
        peer: Peer,
        bytes: &'a [u8],
    },
    /// A connection is gone, or could not be made.
    Failed(Peer),
    /// A message of that transaction could not be sent: it was too large, or there is no way to its peer. Nobody
    /// else is told (RFC 3261 18.4).
    Unsent(ClientId),
    /// What the resolver found; `None` when it failed. Kept for `keep`.
    Resolved {
        lookup: Lookup,
        answers: Option<Answers>,
        keep: Duration,
    },
    /// A look-up that was asked for found no room in the resolver.
    LookupRefused(Refused),
    Command(Command),
    Timeout,
}

/// All that an endpoint asks for.
#[derive(Debug)]
pub enum Output {
    /// Send this; over a stream, on the connection with that peer, which is made if there is none.
    Transmit {
        to: Peer,
        wire: Wire,
        /// Of a request of ours: who is told when it cannot be sent. A response that cannot be is lost, as a
        /// datagram may be.
        client: Option<ClientId>,
    },
    /// Close the connection after what was sent.
    Close(Peer),
    /// A name is wanted. One that is asked for already is asked for again by another tenant, or more urgently; one
    /// answer is enough for all.
    Resolve(Wish),
    Event(Event),
    Wait(Time),
}

/// How much is alive: zero of all when nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub calls: usize,
    pub clients: usize,
    pub servers: usize,
    pub dialogs: usize,
    /// Addresses let in for the sake of a call or request.
    pub peers: usize,
    /// Requests that wait for an address.
    pub resolving: usize,
}

/// What was not served, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// From strangers, dropped unread.
    pub silenced: u64,
    /// No SIP, or not well formed.
    pub malformed: u64,
    /// Responses and ACKs to nothing that we know.
    pub stray: u64,
    /// Beyond a bound: answered with 503.
    pub overload: u64,
}

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Client(ClientId),
    Server(ServerId),
    Call(CallId),
    Registration(RegistrationId),
    Trunk(TrunkId),
}

pub struct Endpoint {
    config: Config,
    settings: Arc<Settings>,
    ids: Ids,
    gate: Gate,
    authenticator: Authenticator,
    /// Makes the tags of answers that are given without keeping state.
    stateless_key: u64,

    clients: FxHashMap<ClientId, ClientRecord>,
    client_keys: FxHashMap<ClientKey, ClientId>,
    servers: FxHashMap<ServerId, ServerRecord>,
    server_keys: FxHashMap<ServerKey, ServerId>,
    calls: FxHashMap<CallId, CallRecord>,
    /// By Call-ID and our tag.
    dialogs: FxHashMap<(String, String), CallId>,
    /// INVITEs being served by Call-ID, From tag and CSeq: the same one over another way is merged
    /// (RFC 3261 8.2.2.2).
    inviting: FxHashMap<(String, String, u32), ServerId>,
    trunks: BTreeMap<TrunkId, TrunkRecord>,
    /// How many trunks are known by each user name.
    users: FxHashMap<String, usize>,
    registrations: BTreeMap<RegistrationId, RegistrationRecord>,
    streams: Streams,
    waiting: FxHashMap<Lookup, Vec<Waiting>>,
    /// Look-ups under way, and who asked for them.
    asking: FxHashMap<Lookup, Vec<(Tenant, Urgency)>>,
    /// Names that were not found, each until it is or another takes its place.
    failing: FxHashMap<Lookup, Failing>,
    resolved: FxHashMap<Lookup, (Time, Answers)>,

    deadlines: BTreeSet<(Time, Who)>,
    next_number: u64,
    next_incoming: u64,
    reach: Option<Reach>,
    out: VecDeque<Output>,
    tracer: Tracer,
    refusals: Refusals,
    told_refusals: refusals::Told,
}

impl Endpoint {
    /// `seed`: 32 random bytes, of which all tags, branches and nonces are made.
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let mut ids = Ids::new(seed);
        Self {
            settings: Arc::new(Settings {
                timing: config.timing,
                session_expires: config.session_expires,
                min_se: 90,
                user_agent: config.user_agent.clone(),
            }),
            authenticator: Authenticator::new(config.realm.clone(), ids.fork()),
            stateless_key: ids.number(),
            ids,
            gate: Gate::default(),
            clients: FxHashMap::default(),
            client_keys: FxHashMap::default(),
            servers: FxHashMap::default(),
            server_keys: FxHashMap::default(),
            calls: FxHashMap::default(),
            dialogs: FxHashMap::default(),
            inviting: FxHashMap::default(),
            trunks: BTreeMap::new(),
            users: FxHashMap::default(),
            registrations: BTreeMap::new(),
            streams: Streams::default(),
            waiting: FxHashMap::default(),
            asking: FxHashMap::default(),
            failing: FxHashMap::default(),
            resolved: FxHashMap::default(),
            deadlines: BTreeSet::new(),
            next_number: 0,
            next_incoming: CallId::FIRST_INCOMING,
            reach: None,
            out: VecDeque::new(),
            tracer: Tracer::new(config.trace),
            refusals: Refusals::default(),
            told_refusals: refusals::Told::default(),
            config,
        }
    }

    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.tracer.at(now);
        self.fire_due(now);
        match input {
            Input::Datagram { from, bytes } => self.datagram(now, from, bytes),
            Input::Stream { peer, bytes } => self.stream(now, peer, bytes),
            Input::Failed(peer) => self.failed(now, peer),
            Input::Unsent(client) => self.unsent(now, client),
            Input::Resolved {
                lookup,
                answers,
                keep,
            } => self.resolved(now, lookup, answers, keep),
            Input::LookupRefused(refused) => self.look_up_refused(now, refused),
            Input::Command(command) => self.command(now, command),
            Input::Timeout => {}
        }
    }

    pub fn poll(&mut self) -> Output {
        let Some(out) = self.out.pop_front() else {
            let next = self.deadlines.first();
            let next = next.map_or(Time::NEVER, |(at, _)| *at);
            return Output::Wait(next.min(self.streams.next()));
        };
        if let Output::Transmit { to, wire, .. } = &out
            && let Some(event) = self.tracer.sent(to, wire)
        {
            self.out.push_front(Output::Event(event));
        }
        out
    }

    /// Whether a connection that somebody made is worth keeping. Poll after it: one that stays silent is
    /// closed. [`Input::Failed`] tells that it is gone.
    pub fn accepts(&mut self, now: Time, peer: &Peer) -> bool {
        match self.gate.judge(now, peer.addr.ip()) {
            Admission::Silence => false,
            admission => {
                let of_stranger = admission != Admission::Known;
                self.streams.accept(now, peer, of_stranger)
            }
        }
    }

    /// The connections that calls and registrations were last spoken over. They are kept however silent
    /// they are: a telephone or a registrar behind a NAT or a firewall is reached over nothing else.
    pub fn flows(&self) -> FxHashSet<&Peer> {
        let of_calls = self.calls.values().map(|own| &own.flow);
        let registrations = self.registrations.values();
        let of_registrations = registrations.filter_map(|own| own.flow.as_ref());
        of_calls
            .chain(of_registrations)
            .filter(|peer| peer.transport.is_reliable())
            .collect()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            calls: self.calls.len(),
            clients: self.clients.len(),
            servers: self.servers.len(),
            dialogs: self.dialogs.len(),
            peers: self.gate.peers(),
            resolving: self.waiting.values().map(Vec::len).sum(),
        }
    }

    pub fn refusals(&self) -> Refusals {
        Refusals {
            silenced: self.gate.silenced,
            ..self.refusals
        }
    }

    fn fire_due(&mut self, now: Time) {
        while let Some(peer) = self.streams.take_silent(now) {
            self.out.push_back(Output::Close(peer));
        }
        while let Some((_, who)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_first();
            match who {
                Who::Client(id) => self.client_timeout(now, id),
                Who::Server(id) => self.server_input(now, id, ServerInput::Timeout),
                Who::Call(id) => self.call_timeout(now, id),
                Who::Registration(id) => self.registration_timeout(now, id),
                Who::Trunk(id) => self.trunk_timeout(now, id),
            }
        }
    }

    /// Moves a deadline; `armed` is where its owner remembers it.
    fn set_deadline(deadlines: &mut BTreeSet<(Time, Who)>, armed: &mut Time, at: Time, who: Who) {
        if *armed == at && deadlines.contains(&(at, who)) {
            return;
        }
        deadlines.remove(&(*armed, who));
        *armed = at;
        if at != Time::NEVER {
            deadlines.insert((at, who));
        }
    }

    fn datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        let admission = self.gate.judge(now, from.ip());
        if admission == Admission::Silence {
            return;
        }
        let peer = Peer::new(Transport::Udp, from);
        match parse(bytes, Framing::Datagram) {
            Ok(Some(message)) => self.message(now, &peer, message, admission),
            Ok(None) => {}
            Err(malformed) => self.malformed(now, &peer, &malformed, admission),
        }
    }

    fn stream(&mut self, now: Time, peer: Peer, bytes: &[u8]) {
        let mut admission = self.gate.judge(now, peer.addr.ip());
        if admission == Admission::Silence || !self.streams.push(&peer, bytes) {
            return self.close(peer);
        }
        let (mut judged, mut ponged) = (true, false);
        while let Some(framed) = self.streams.next_of(&peer) {
            // What was read of a stranger had a turn for one message. Each further one has its own, as if it had
            // come as a datagram.
            if admission == Admission::Challenge
                && !matches!(framed, Framed::Ping)
                && !std::mem::take(&mut judged)
            {
                admission = self.gate.judge(now, peer.addr.ip());
                if admission == Admission::Silence {
                    return self.close(peer);
                }
            }
            match framed {
                Framed::Message(message) => self.message(now, &peer, message, admission),
                // One answer tells all of them that we are there (RFC 5626 3.5.1); strangers are not told.
                Framed::Ping if admission == Admission::Known && !ponged => {
                    ponged = true;
                    self.out.push_back(Output::Transmit {
                        to: peer.clone(),
                        wire: Arc::from(&b"\r\n"[..]),
                        client: None,
                    });
                }
                Framed::Ping => {}
                Framed::Malformed(malformed) => {
                    self.malformed(now, &peer, &malformed, admission);
                }
                Framed::Lost(malformed) => {
                    self.malformed(now, &peer, &malformed, admission);
                    self.close(peer.clone());
                }
            }
        }
    }

    fn close(&mut self, peer: Peer) {
        self.streams.remove(&peer);
        self.out.push_back(Output::Close(peer));
    }

    fn message(&mut self, now: Time, peer: &Peer, message: Message, admission: Admission) {
        // The call of an INVITE is known when it has been served; before what was said to it then.
        let before = self.out.len();
        let seen = self.tracer.is_on().then(|| message.clone());
        match message {
            Message::Request(request) => self.request(now, peer, request, admission),
            // Strangers have nothing of ours to answer.
            Message::Response(_) if admission != Admission::Known => {
                self.refusals.stray += 1;
                return;
            }
            Message::Response(response) => self.response(now, peer, response),
        }
        if let Some(event) = seen.and_then(|message| self.tracer.received(peer, message)) {
            self.out.insert(before, Output::Event(event));
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Where we are over a transport for somebody at one of `theirs`, the first that we are anywhere for.
    fn advertised(&self, transport: Transport, theirs: &[IpAddr]) -> (Host, u16) {
        let all = &self.config.advertised;
        let over = || all.iter().filter(move |own| own.transport == transport);
        let own = theirs
            .iter()
            .find_map(|ip| over().find(|own| own.is_for(*ip)))
            .or_else(|| over().next())
            .or(all.first());
        match own {
            Some(own) => (own.host.clone(), own.port),
            None => (
                Host::Ip(IpAddr::from([127, 0, 0, 1])),
                transport.default_port(),
            ),
        }
    }

    /// Our Contact over a transport for somebody at one of `theirs`, with its brackets.
    fn contact(&self, transport: Transport, theirs: &[IpAddr], user: Option<&str>) -> String {
        let (host, port) = self.advertised(transport, theirs);
        let mut uri = crate::message::SipUri::new(user, host, Some(port));
        if transport != Transport::Udp {
            uri.params.set("transport", Some(transport.param()));
        }
        format!("<{uri}>")
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({:?})", self.counts())
    }
}
