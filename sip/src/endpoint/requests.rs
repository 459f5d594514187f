//! Requests of others (RFC 3261 8.2): whose they are, what is wrong with them, who serves them.

use core::net::{IpAddr, SocketAddr};

use sha2::{Digest as _, Sha256};

use super::{Endpoint, Output, Peer, Who};
use crate::auth::Verdict;
use crate::call::{ALLOW, RETRY_AFTER, SUPPORTED, ServerId, too_brief};
use crate::event::{CallId, Event, Hops, Incoming, MOST_ENTRIES};
use crate::gate::Admission;
use crate::message::header::AuthValue;
use crate::message::print::field;
use crate::message::{Headers, Method, Name, NameAddr, Request, Response, Transport, Via};
use crate::time::Time;
use crate::transaction::key::ServerKey;
use crate::transaction::{AnyServer, Output as Step, ServerInput};
use crate::trunk::{InboundAuth, TrunkId};

#[derive(Debug)]
pub(super) struct ServerRecord {
    machine: AnyServer,
    key: ServerKey,
    /// Where the answers go.
    reply_to: Peer,
    /// Where they go once the connection that the request came over is gone.
    fallback: Peer,
    /// Of an INVITE that makes a call.
    call: Option<CallId>,
    /// Its key among the INVITEs being served.
    inviting: Option<(String, String, u32)>,
    armed: Time,
}

/// What shows over which trunk a call comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// It gave the credentials of the first.
    Password,
    /// Its address. `may_prove`: a password would make it one of another trunk.
    Address { may_prove: bool },
}

/// No server transaction: what an ACK comes with.
const NO_SERVER: ServerId = ServerId(0);

/// Extensions that a 420 names. Nobody means more of them, and what separates them makes it longer than they came.
const MOST_UNSUPPORTED: usize = 32;

/// The largest message that is sent: what a datagram holds over IPv4.
const MOST_SENT: usize = 65_507;

/// What an answer of ours may say besides what it echoes: our Contact, the methods and extensions that we know,
/// challenges, a session of some 2 KiB.
const ROOM: usize = 4_096;

impl Endpoint {
    pub(super) fn request(
        &mut self,
        now: Time,
        peer: &Peer,
        mut request: Request,
        admission: Admission,
    ) {
        mark_source(&mut request.headers, peer);
        let Some(key) = ServerKey::of(&request) else {
            self.refusals.malformed += 1;
            return;
        };
        if request.method == Method::Ack {
            return self.ack(now, &key, &request, peer);
        }
        if let Some(id) = self.server_keys.get(&key).copied() {
            return self.server_input(now, id, ServerInput::Again);
        }
        let in_dialog = self.dialog_of(&request);
        let stranger = admission != Admission::Known && in_dialog.is_none();
        if echoed(&request) + ROOM > MOST_SENT {
            if stranger {
                self.refusals.stray += 1;
                return;
            }
            return self.answer(peer, &request, 513, "");
        }
        if stranger {
            return self.stranger(now, peer, &request, key);
        }
        if self.servers.len() >= self.config.most_transactions {
            self.refusals.overload += 1;
            return self.refuse_for_now(peer, &request);
        }
        if request.method == Method::Cancel {
            return self.cancel(now, peer, &request, key);
        }
        if let Some(refusal) = self.refusal(&request) {
            self.tell_refusal(now, peer, &request, &refusal);
            return self.transmit(peer, refusal);
        }
        if is_passed_over(&request) {
            request.set_body(None);
        }
        match in_dialog {
            Some(call) => {
                let server = self.serve(now, peer, &request, key);
                self.call_request(now, call, server, &request, peer);
                self.settle(server);
            }
            None if has_to_tag(&request) => self.answer(peer, &request, 481, ""),
            None => self.outside(now, peer, &request, key),
        }
    }

    /// A request outside of any dialog, from a source that is known.
    fn outside(&mut self, now: Time, peer: &Peer, request: &Request, key: ServerKey) {
        match request.method {
            Method::Options => {
                let mut response = Response::to(&request.headers, 200, "");
                add_abilities(&mut response.headers);
                self.transmit(peer, response);
            }
            Method::Invite => {
                let source = peer.addr.ip();
                let of_source: Vec<TrunkId> = self.gate.trunks(source).collect();
                let by_address: Vec<TrunkId> = self.with_auth(&of_source, InboundAuth::Address);
                // Those that want credentials too, from here or from anywhere.
                let asks = |auth| !self.with_auth(&of_source, auth).is_empty();
                if asks(InboundAuth::AddressAndDigest) || self.has_open_trunk() {
                    return self.authenticate(now, peer, request, key, by_address);
                }
                if by_address.is_empty() {
                    return self.answer(peer, request, 403, "");
                }
                let proof = Proof::Address { may_prove: false };
                self.invited(now, peer, request, key, by_address, proof);
            }
            // All others live in a dialog (RFC 3261 12.2, 3262, 3311, 3515, 6086).
            _ => self.answer(peer, request, 481, ""),
        }
    }

    /// Strangers are asked who they are when they want to call, and hear nothing else.
    fn stranger(&mut self, now: Time, peer: &Peer, request: &Request, key: ServerKey) {
        let call = request.method == Method::Invite && !has_to_tag(request);
        if call && self.refusal(request).is_none() {
            self.authenticate(now, peer, request, key, Vec::new());
        } else {
            self.refusals.stray += 1;
        }
    }

    fn with_auth(&self, trunks: &[TrunkId], auth: InboundAuth) -> Vec<TrunkId> {
        let is = |id: &TrunkId| {
            self.trunks
                .get(id)
                .is_some_and(|record| record.trunk.inbound == auth)
        };
        trunks.iter().copied().filter(is).collect()
    }

    fn has_open_trunk(&self) -> bool {
        self.trunks
            .values()
            .any(|record| record.trunk.inbound == InboundAuth::Digest)
    }

    /// A call from where a trunk's password may be given. `by_address`: the trunks for which its address is
    /// enough. Who shows no password, or a wrong one, may mean one of these, which the user knows.
    fn authenticate(
        &mut self,
        now: Time,
        peer: &Peer,
        request: &Request,
        key: ServerKey,
        by_address: Vec<TrunkId>,
    ) {
        let source = peer.addr.ip();
        let of_source: Vec<TrunkId> = self.gate.trunks(source).collect();
        let trunks = &self.trunks;
        // Every name costs as many hashes as that which most trunks have.
        let most = self.users.values().max().copied().unwrap_or(0);
        // Trunks whose password this source may give.
        let may = |id: TrunkId, auth: InboundAuth| match auth {
            InboundAuth::Digest => true,
            InboundAuth::AddressAndDigest => of_source.contains(&id),
            InboundAuth::Address => false,
        };
        // Every trunk is looked at, whether the user was found or not: how long it takes tells nobody who is
        // there.
        let find = |username: &str| {
            let each = trunks.values().filter_map(|record| {
                let trunk = &record.trunk;
                let own = trunk.credentials.as_ref()?;
                (own.username == username && may(trunk.id, trunk.inbound))
                    .then_some((trunk.id, own.password.as_str()))
            });
            let mut found = Vec::with_capacity(most);
            found.extend(each);
            found
        };
        let verdict = self.authenticator.verify(
            now,
            source,
            request.method.as_str(),
            &request.uri,
            self.credentials_of(request),
            most,
            find,
        );
        let stale = match verdict {
            Verdict::Known(trunk) => {
                self.gate.proved(now, source);
                let trunks = std::iter::once(trunk).chain(by_address).collect();
                return self.invited(now, peer, request, key, trunks, Proof::Password);
            }
            Verdict::Ambiguous(trunks) => {
                let source = peer.addr;
                self.event(Event::SharedPassword { trunks, source });
                return self.answer(peer, request, 403, "");
            }
            Verdict::Refused if !by_address.is_empty() => {
                let proof = Proof::Address { may_prove: true };
                return self.invited(now, peer, request, key, by_address, proof);
            }
            Verdict::Stale => true,
            Verdict::Refused => false,
        };
        let mut response = Response::to(&request.headers, 401, "");
        self.add_challenges(now, source, stale, &mut response.headers);
        self.transmit(peer, response);
    }

    /// The credentials for us: a caller that crossed several servers gives those of each, told apart by their realms
    /// (RFC 3261 22.3).
    fn credentials_of<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let is_ours = |value: &&str| {
            let read = AuthValue::parse(value);
            read.is_some_and(|read| read.get("realm") == Some(self.config.realm.as_str()))
        };
        let mut all = request.headers.all(&Name::Authorization);
        all.find(is_ours)
            .or_else(|| request.headers.get(&Name::Authorization))
    }

    /// What a 401 has to have (RFC 3261 21.4.2).
    pub(super) fn add_challenges(
        &mut self,
        now: Time,
        source: IpAddr,
        stale: bool,
        headers: &mut Headers,
    ) {
        for challenge in self.authenticator.challenge(now, source, stale) {
            headers.push(Name::WwwAuthenticate, challenge.to_string());
        }
    }

    /// A call comes in over one of `trunks`.
    fn invited(
        &mut self,
        now: Time,
        peer: &Peer,
        request: &Request,
        key: ServerKey,
        trunks: Vec<TrunkId>,
        proof: Proof,
    ) {
        if self.calls.len() >= self.config.most_calls {
            self.refusals.overload += 1;
            return self.refuse_for_now(peer, request);
        }
        if request.contact().is_none() {
            let refusal = Response::to(&request.headers, 400, "Missing Contact");
            self.tell_refusal(now, peer, request, &refusal);
            return self.transmit(peer, refusal);
        }
        if let Some(refusal) = too_brief(request, self.settings.min_se) {
            return self.transmit(peer, refusal);
        }
        let server = self.serve(now, peer, request, key);
        let by_password = proof == Proof::Password;
        let Some(call) = self.new_incoming(server, request, peer, &trunks, by_password) else {
            return self.settle(server);
        };
        if let Some(record) = self.servers.get_mut(&server) {
            record.call = Some(call);
        }
        if let Some(record) = self.calls.get_mut(&call) {
            record.call.expires(now, request);
        }
        let from = request.from();
        // Nobody who came here by the way of others is to know what the caller has the carrier keep (RFC 3325 7).
        let withheld = is_withheld(&request.headers);
        let identities = request.headers.list(&Name::PAssertedIdentity);
        let asserted = identities.filter_map(NameAddr::parse).map(|own| own.uri);
        let extra = request
            .headers
            .iter()
            .filter(|(name, _)| {
                name.as_str()
                    .get(..2)
                    .is_some_and(|begin| begin.eq_ignore_ascii_case("X-"))
            })
            .map(|(name, value)| (name.as_str().to_owned(), value.to_owned()));
        let at_registrar = |trunk: &&TrunkId| self.is_registered_at(**trunk, peer.addr.ip());
        let incoming = Incoming {
            registered: trunks.iter().filter(at_registrar).copied().collect(),
            trunks,
            by_password,
            may_prove: proof == Proof::Address { may_prove: true },
            source: peer.addr,
            to: request.uri.clone(),
            addressed: request
                .to()
                .map_or_else(|| request.uri.clone(), |to| to.uri),
            display: from
                .as_ref()
                .and_then(|from| from.display.clone().filter(|_| !withheld)),
            from: from.map_or_else(|| request.uri.clone(), |from| from.uri),
            asserted: asserted.filter(|_| !withheld).collect(),
            withheld,
            headers: extra.collect(),
            hops: hops(request),
            offer: request.body(),
        };
        self.event(Event::Incoming(call, Box::new(incoming)));
        self.drive_call(now, call);
    }

    fn ack(&mut self, now: Time, key: &ServerKey, request: &Request, peer: &Peer) {
        if let Some(id) = self.server_keys.get(key).copied()
            && let Some(record) = self.servers.get(&id)
            && !record.machine.is_accepted()
        {
            return self.server_input(now, id, ServerInput::Ack);
        }
        // Of a 2xx: it goes to the call, whether its branch is its own, as it should, or the INVITE's.
        match self.dialog_of(request) {
            Some(call) => self.call_request(now, call, NO_SERVER, request, peer),
            None => self.refusals.stray += 1,
        }
    }

    /// CANCEL is answered for itself, then its INVITE (9.2).
    fn cancel(&mut self, now: Time, peer: &Peer, request: &Request, key: ServerKey) {
        let invite = self.server_keys.get(&key.invite()).copied();
        let call = invite.and_then(|id| self.servers.get(&id)?.call);
        let code = if invite.is_some() { 200 } else { 481 };
        let mut response = Response::to(&request.headers, code, "");
        let tag = call.and_then(|call| {
            let record = self.calls.get(&call)?;
            record.call.local_tag().map(str::to_owned)
        });
        match tag {
            Some(tag) => response.set_to_tag(&tag),
            None => response.set_to_tag(&self.stateless_tag(&request.headers)),
        }
        let server = self.serve(now, peer, request, key);
        let wire = response.to_bytes().into();
        self.server_input(now, server, ServerInput::Respond(code, wire));
        if let Some(call) = call {
            self.call_cancelled(now, call);
        }
    }

    /// What is wrong with a request that is well formed (8.2.1 to 8.2.3).
    fn refusal(&self, request: &Request) -> Option<Response> {
        let refuse = |code| Response::to(&request.headers, code, "");
        match &request.method {
            Method::Other(_) => {
                let mut response = refuse(501);
                response.headers.push(Name::Allow, ALLOW);
                return Some(response);
            }
            Method::Register | Method::Subscribe | Method::Message | Method::Publish => {
                let mut response = refuse(405);
                response.headers.push(Name::Allow, ALLOW);
                return Some(response);
            }
            _ => {}
        }
        if !["sip", "sips", "tel"].contains(&request.uri.scheme().as_str()) {
            return Some(refuse(416));
        }
        if request.method == Method::Invite
            && !has_to_tag(request)
            && inviting_key(request).is_some_and(|key| self.inviting.contains_key(&key))
        {
            return Some(refuse(482));
        }
        let unknown: Vec<&str> = request
            .headers
            .list(&Name::Require)
            .filter(|token| !["100rel", "timer"].contains(&token.to_ascii_lowercase().as_str()))
            .take(MOST_UNSUPPORTED)
            .collect();
        if !unknown.is_empty() {
            let mut response = refuse(420);
            response.headers.push(Name::Unsupported, unknown.join(", "));
            return Some(response);
        }
        body_refusal(request).or_else(|| {
            let offers = matches!(request.method, Method::Invite | Method::Update);
            (offers && !accepts_sdp(&request.headers)).then(|| refuse(406))
        })
    }

    /// Begins a server transaction.
    fn serve(&mut self, now: Time, peer: &Peer, request: &Request, key: ServerKey) -> ServerId {
        let id = ServerId(self.number());
        let reliable = peer.transport.is_reliable();
        let machine = AnyServer::new(now, request, reliable, self.config.timing);
        let inviting = match request.method {
            Method::Invite if !has_to_tag(request) => inviting_key(request),
            _ => None,
        };
        if let Some(inviting) = &inviting {
            self.inviting.insert(inviting.clone(), id);
        }
        self.server_keys.insert(key.clone(), id);
        let record = ServerRecord {
            machine,
            key,
            reply_to: reply_to(peer, request.via().as_ref()),
            fallback: fallback(peer, request.via().as_ref()),
            call: None,
            inviting,
            armed: Time::NEVER,
        };
        self.servers.insert(id, record);
        self.settle(id);
        id
    }

    pub(super) fn server_input(&mut self, now: Time, id: ServerId, input: ServerInput) {
        if let Some(record) = self.servers.get_mut(&id) {
            record.machine.handle(now, input);
            self.settle(id);
        }
    }

    /// Does what a server transaction asks for.
    fn settle(&mut self, id: ServerId) {
        while let Some(record) = self.servers.get_mut(&id) {
            match record.machine.poll() {
                Step::Send(wire) => {
                    let own = &record.reply_to;
                    let lost = own.transport.is_reliable() && !self.streams.has(own);
                    let to = if lost { &record.fallback } else { own };
                    self.out.push_back(Output::Transmit {
                        to: to.clone(),
                        wire,
                        client: None,
                    });
                }
                // A server hears no response.
                Step::Response(_) => {}
                Step::Ended(_) => {
                    if let Some(record) = self.servers.remove(&id) {
                        self.server_keys.remove(&record.key);
                        self.deadlines.remove(&(record.armed, Who::Server(id)));
                        if let Some(inviting) = record.inviting {
                            self.inviting.remove(&inviting);
                        }
                    }
                }
                Step::Wait(at) => {
                    let armed = &mut record.armed;
                    Self::set_deadline(&mut self.deadlines, armed, at, Who::Server(id));
                    return;
                }
            }
        }
    }

    fn dialog_of(&self, request: &Request) -> Option<CallId> {
        let tag = request.to()?.tag()?.to_owned();
        self.dialogs
            .get(&(request.call_id().to_owned(), tag))
            .copied()
    }

    fn refuse_for_now(&mut self, peer: &Peer, request: &Request) {
        let mut response = Response::to(&request.headers, 503, "");
        response.headers.push(Name::RetryAfter, RETRY_AFTER);
        response.set_to_tag(&self.stateless_tag(&request.headers));
        self.transmit_response(peer, &response);
    }

    fn answer(&mut self, peer: &Peer, request: &Request, code: u16, reason: &str) {
        self.answer_statelessly(peer, &request.headers, code, reason);
    }

    /// Answers without a transaction (8.2.7): if the answer is lost the request comes again, and is
    /// answered the same way.
    pub(super) fn answer_statelessly(
        &mut self,
        peer: &Peer,
        headers: &Headers,
        code: u16,
        reason: &str,
    ) {
        let mut response = Response::to(headers, code, reason);
        response.set_to_tag(&self.stateless_tag(headers));
        self.transmit_response(peer, &response);
    }

    fn transmit(&mut self, peer: &Peer, mut response: Response) {
        let tag = self.stateless_tag(&response.headers);
        response.set_to_tag(&tag);
        self.transmit_response(peer, &response);
    }

    /// An answer that no datagram holds is left out: its Vias alone, of which none may be missing, are too many.
    fn transmit_response(&mut self, peer: &Peer, response: &Response) {
        if response.length() > MOST_SENT {
            return;
        }
        let to = reply_to(peer, response.via().as_ref());
        let wire = response.to_bytes().into();
        let client = None;
        self.out.push_back(Output::Transmit { to, wire, client });
    }

    /// The same tag for the same request.
    fn stateless_tag(&self, headers: &Headers) -> String {
        let mut hash = Sha256::new();
        hash.update(self.stateless_key.to_le_bytes());
        for name in [Name::Via, Name::CallId, Name::CSeq] {
            hash.update(headers.get(&name).unwrap_or_default());
        }
        hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// What an INVITE says of its way here. That its Max-Forwards is a number of 0 to 255 was seen to before.
fn hops(request: &Request) -> Hops {
    let headers = &request.headers;
    let entries = |name: &Name| -> Vec<String> { headers.list(name).map(str::to_owned).collect() };
    let (mut diversion, mut history) = (entries(&Name::Diversion), entries(&Name::HistoryInfo));
    diversion.truncate(MOST_ENTRIES);
    history.drain(..history.len().saturating_sub(MOST_ENTRIES));
    let branch = |via: &str| Via::parse(via)?.branch().map(str::to_owned);
    Hops {
        max_forwards: headers
            .get(&Name::MaxForwards)
            .and_then(|left| left.trim().parse().ok()),
        diversion,
        history,
        branches: headers.list(&Name::Via).filter_map(branch).collect(),
    }
}

fn has_to_tag(request: &Request) -> bool {
    request.to().is_some_and(|to| to.tag().is_some())
}

/// What an answer to a request may repeat of it, at most.
fn echoed(request: &Request) -> usize {
    let echoes = |name: &Name| {
        matches!(
            name,
            Name::Via
                | Name::From
                | Name::To
                | Name::CallId
                | Name::CSeq
                | Name::Timestamp
                | Name::RecordRoute
                | Name::Require
        )
    };
    let fields = request.headers.iter().filter(|(name, _)| echoes(name));
    let fields: usize = fields.map(|(name, value)| field(name, value)).sum();
    // Our Contact has its user.
    fields + request.uri.user().map_or(0, |user| user.len())
}

fn inviting_key(request: &Request) -> Option<(String, String, u32)> {
    let from = request.from()?;
    Some((
        request.call_id().to_owned(),
        from.tag().unwrap_or_default().to_owned(),
        request.cseq()?.number,
    ))
}

/// A body that nobody could read (8.2.3).
fn body_refusal(request: &Request) -> Option<Response> {
    let mut refusal = Response::to(&request.headers, 415, "");
    let encoded = request
        .headers
        .list(&Name::ContentEncoding)
        .any(|coding| !coding.eq_ignore_ascii_case("identity"));
    if encoded {
        refusal.headers.push(Name::AcceptEncoding, "identity");
        return Some(refusal);
    }
    if !may_describe(request) || request.describes_session() || is_passed_over(request) {
        return None;
    }
    refusal.headers.push(Name::Accept, "application/sdp");
    Some(refusal)
}

/// Whether it has a body where a session is described.
fn may_describe(request: &Request) -> bool {
    let offers = matches!(
        request.method,
        Method::Invite | Method::Update | Method::Prack
    );
    offers && !request.body.is_empty()
}

/// Whether its body is none that we know, and one that need not be known: as if there were none (RFC 3261 8.2.3).
fn is_passed_over(request: &Request) -> bool {
    may_describe(request) && !request.describes_session() && request.has_optional_body()
}

/// Whether the caller's number is withheld: `id` of RFC 3325, `user` and `header` of RFC 3323, `full` of the drafts
/// before it.
pub(super) fn is_withheld(headers: &Headers) -> bool {
    let mut asked = headers
        .list(&Name::Privacy)
        .flat_map(|value| value.split([';', ' ']));
    asked.any(|word| {
        let withholds = ["id", "user", "header", "full"];
        withholds.iter().any(|own| word.eq_ignore_ascii_case(own))
    })
}

fn accepts_sdp(headers: &Headers) -> bool {
    if !headers.has(&Name::Accept) {
        return true;
    }
    headers.list(&Name::Accept).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        ["application/sdp", "application/*", "*/*"]
            .iter()
            .any(|one| kind.eq_ignore_ascii_case(one))
    })
}

fn add_abilities(headers: &mut Headers) {
    headers.push(Name::Allow, ALLOW);
    headers.push(Name::Supported, SUPPORTED);
    headers.push(Name::Accept, "application/sdp");
}

/// Adds what RFC 3261 18.2.1 and RFC 3581 4 want to the topmost Via: where the request really came
/// from.
fn mark_source(headers: &mut Headers, peer: &Peer) {
    let Some(first) = headers.get(&Name::Via) else {
        return;
    };
    let end = crate::message::scan::find_outside(first, b',').unwrap_or(first.len());
    let Some(mut via) = Via::parse(crate::message::scan::trim(&first[..end])) else {
        return;
    };
    let source = peer.addr.ip();
    let asked = via.params.raw("rport") == Some(None);
    if !asked && via.host.ip() == Some(source) {
        return;
    }
    via.params.set("received", Some(&source.to_string()));
    if asked {
        via.params.set("rport", Some(&peer.addr.port().to_string()));
    }
    let marked = format!("{via}{}", &first[end..]);
    headers.set_first(&Name::Via, marked);
}

/// Where an answer goes (18.2.2, RFC 3581 4): always to the address that the request came from, since
/// `maddr` and `sent-by` may name a victim; the port is the one it came from when it asked so, else
/// the one in the Via.
fn reply_to(peer: &Peer, via: Option<&Via>) -> Peer {
    if peer.transport != Transport::Udp {
        return peer.clone();
    }
    match via {
        Some(via) if !via.params.has("rport") => fallback(peer, Some(via)),
        _ => peer.clone(),
    }
}

/// The address that a request came from, at the port that its sender listens on by its Via: behind the one of a
/// connection that is gone nobody is (18.2.2).
fn fallback(peer: &Peer, via: Option<&Via>) -> Peer {
    let port = via.and_then(|via| via.port);
    let port = port.unwrap_or(peer.transport.default_port());
    Peer {
        addr: SocketAddr::new(peer.addr.ip(), port),
        ..peer.clone()
    }
}
