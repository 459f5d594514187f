//! Requests of ours: where they go, their transactions, the next address when one fails (RFC 3263 4.3).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::challenges::Said;
use super::reach::is_heard;
use super::trunks::RegistrationId;
use super::{Endpoint, Output, Peer, Who};
use crate::call::{
    Purpose, farewell, is_made_up, is_own_overload, late_ack, make_up, make_up_overload,
};
use crate::event::{CallId, Event};
use crate::locate::{Located, Lookup, locate_host};
use crate::message::{CSeq, Method, Name, Request, Response, Transport, Via};
use crate::time::Time;
use crate::transaction::key::ClientKey;
use crate::transaction::{AnyClient, ClientInput, End, Output as Step};
use crate::trunk::TrunkId;

/// A client transaction, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u64);

/// Who hears the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Call(CallId, Purpose),
    Registration(RegistrationId),
    Ping(TrunkId),
    /// An INVITE of which nothing was heard, so that it went to another address. Who answers it after all
    /// is sent away, who rings is cancelled, once.
    LeftBehind {
        cancelled: bool,
    },
    /// A CANCEL, whose answer says nothing.
    Nobody,
}

#[derive(Debug)]
pub(super) struct ClientRecord {
    machine: AnyClient,
    pub(super) request: Arc<Request>,
    key: ClientKey,
    pub(super) peer: Peer,
    /// Where its latest response came from.
    said_by: Option<Peer>,
    pub(super) owner: Owner,
    /// Where it is sent if this peer fails.
    others: VecDeque<Peer>,
    /// A response came, if only 100: somebody is there.
    spoke: bool,
    /// More than 100 came: there is no other way to try.
    heard: bool,
    /// Until when a peer may say nothing, where there is another one.
    silent_until: Time,
    armed: Time,
}

/// How long an INVITE waits for any response before it goes to the next address: four sendings. Timer B
/// (RFC 3261 17.1.1.2) would let a caller listen to nothing for 32 seconds at each.
const SILENCE: Duration = Duration::from_secs(4);

impl Endpoint {
    /// Sends a request to where its Route or Request-URI leads. `flow` is the connection that its
    /// dialog came over, which is used again while it leads to the same place, and where it leads nowhere.
    pub(super) fn send_by_uri(&mut self, now: Time, owner: Owner, request: Request, flow: &Peer) {
        match self.way(&request, flow) {
            Some(located) => self.send_located(now, owner, request, located, Some(flow)),
            None => self.unsendable(now, owner, &request),
        }
    }

    /// Sends a request to a trunk's carrier.
    pub(super) fn send_to_trunk(&mut self, now: Time, owner: Owner, request: Request, id: TrunkId) {
        let located = self.trunks.get(&id).and_then(|record| {
            let trunk = &record.trunk;
            let (host, port) = match owner {
                Owner::Call(..) => trunk.next_hop()?,
                _ => (trunk.host.as_ref()?, trunk.port),
            };
            Some(locate_host(host, port, trunk.transport))
        });
        match located {
            Some(located) => self.send_located(now, owner, request, located, None),
            None => self.unsendable(now, owner, &request),
        }
    }

    /// Sends the INVITE that makes a call. One that goes again, with credentials or for a longer interval, goes
    /// where the one before it went: `route`. Addresses could be drawn anew (RFC 3263 4), but of a challenge only
    /// the server that made it is sure to know the nonce.
    pub(super) fn send_invite(
        &mut self,
        now: Time,
        owner: Owner,
        request: Request,
        id: TrunkId,
        route: VecDeque<Peer>,
    ) {
        match route.is_empty() {
            true => self.send_to_trunk(now, owner, request, id),
            false => self.send(now, owner, request, route),
        }
    }

    pub(super) fn send_located(
        &mut self,
        now: Time,
        owner: Owner,
        request: Request,
        located: Located,
        flow: Option<&Peer>,
    ) {
        match located {
            Located::At(transport, addr) => {
                let peers = match flow {
                    Some(flow) => {
                        let peer = self.over_flow(flow, transport, addr);
                        // Another transport or family than the dialog's may be one that cannot be spoken at all.
                        let other = is_heard(flow) && !is_alike(&peer, flow);
                        std::iter::once(peer)
                            .chain(other.then(|| flow.clone()))
                            .collect()
                    }
                    None => VecDeque::from([Peer::new(transport, addr)]),
                };
                self.send(now, owner, request, peers);
            }
            Located::Ask(lookup) => match self.known_targets(now, &lookup, self.tenant_of(owner)) {
                Some(found) => self.send(now, owner, request, peers(&lookup, &found)),
                None => self.wait_for(now, lookup, owner, request, flow),
            },
        }
    }

    /// An address that a request goes to: over the connection that its dialog came over, while that leads
    /// there.
    pub(super) fn over_flow(
        &self,
        flow: &Peer,
        transport: Transport,
        addr: core::net::SocketAddr,
    ) -> Peer {
        let same =
            flow.transport == transport && flow.addr.ip() == addr.ip() && self.streams.has(flow);
        match same {
            true => flow.clone(),
            false => flow.moved(transport, addr),
        }
    }

    /// Sends a request whose name leads nowhere to where its dialog was last heard.
    pub(super) fn send_back(
        &mut self,
        now: Time,
        owner: Owner,
        request: Request,
        flow: Option<Peer>,
    ) {
        match flow.filter(is_heard) {
            Some(flow) => self.send(now, owner, request, VecDeque::from([flow])),
            None => self.unsendable(now, owner, &request),
        }
    }

    /// Our user hung up while its INVITE waited for an address.
    pub(super) fn is_let_go(&self, owner: Owner) -> bool {
        match owner {
            Owner::Call(call, Purpose::Invite) => self
                .calls
                .get(&call)
                .is_none_or(|record| record.call.is_leaving()),
            _ => false,
        }
    }

    pub(super) fn unsendable(&mut self, now: Time, owner: Owner, request: &Request) {
        self.answer_made_up(now, owner, request, 503);
    }

    /// Something here is full, and the request is not sent.
    pub(super) fn overloaded(&mut self, now: Time, owner: Owner, request: &Request, why: &str) {
        self.refusals.overload += 1;
        let response = make_up_overload(request, why);
        self.give(now, owner, &Arc::new(request.clone()), &response, None);
    }

    pub(super) fn answer_made_up(&mut self, now: Time, owner: Owner, request: &Request, code: u16) {
        let response = make_up(request, code);
        self.give(now, owner, &Arc::new(request.clone()), &response, None);
    }

    /// Begins the transaction with the first of `peers`.
    pub(super) fn send(
        &mut self,
        now: Time,
        owner: Owner,
        mut request: Request,
        mut peers: VecDeque<Peer>,
    ) {
        if let Owner::Call(call, _) = owner {
            peers = self.keep_to_hosts(call, &mut request, peers);
        }
        let Some(peer) = peers.pop_front() else {
            return self.unsendable(now, owner, &request);
        };
        if self.clients.len() >= self.config.most_transactions {
            return self.overloaded(now, owner, &request, "too many transactions");
        }
        let mut branch = self.ids.branch();
        if let Some(mark) = self.mark_of(owner) {
            branch.push('.');
            branch.push_str(mark);
        }
        request.headers.remove(&Name::Via);
        self.add_via(&mut request, &peer, &branch);
        let key = ClientKey::new(&branch, request.method.clone());
        self.begin(now, owner, request, key, peer, peers);
    }

    /// What the branch of an INVITE says of the call that it carries on.
    fn mark_of(&self, owner: Owner) -> Option<&str> {
        match owner {
            Owner::Call(call, Purpose::Invite) => self.calls.get(&call)?.mark.as_deref(),
            _ => None,
        }
    }

    fn begin(
        &mut self,
        now: Time,
        owner: Owner,
        request: Request,
        key: ClientKey,
        peer: Peer,
        others: VecDeque<Peer>,
    ) {
        let id = ClientId(self.number());
        let silent_until = match owner {
            Owner::Call(_, Purpose::Invite) if !others.is_empty() => now + SILENCE,
            _ => Time::NEVER,
        };
        let reliable = peer.transport.is_reliable();
        let machine = AnyClient::new(now, &request, reliable, self.config.timing);
        self.gate.add_peer(peer.addr.ip());
        match owner {
            Owner::Call(call, purpose) => self.call_sends(call, purpose, id, &peer, &others),
            Owner::Registration(registration) => {
                self.registration_sends(registration, &peer, &others)
            }
            Owner::Ping(_) | Owner::LeftBehind { .. } | Owner::Nobody => {}
        }
        self.client_keys.insert(key.clone(), id);
        let record = ClientRecord {
            machine,
            request: Arc::new(request),
            key,
            peer,
            said_by: None,
            owner,
            others,
            spoke: false,
            heard: false,
            silent_until,
            armed: Time::NEVER,
        };
        self.clients.insert(id, record);
        self.drive_client(now, id);
    }

    pub(super) fn add_via(&self, request: &mut Request, to: &Peer, branch: &str) {
        let (host, port) = self.advertised(to.transport, &[to.addr.ip()]);
        let via = Via::new(to.transport, host, Some(port), branch);
        request.headers.push_front(Name::Via, via.to_string());
    }

    /// CANCEL of an INVITE: its own branch, its own way (RFC 3261 9.1).
    pub(super) fn send_cancel(&mut self, now: Time, invite: ClientId, reason: Option<String>) {
        let Some(record) = self.clients.get(&invite) else {
            return;
        };
        if !record.machine.is_inviting() {
            return;
        }
        let (peer, invite) = (record.peer.clone(), Arc::clone(&record.request));
        let mut cancel = Request::new(Method::Cancel, invite.uri.clone());
        let via = invite.via();
        let headers = &mut cancel.headers;
        for name in [
            Name::Via,
            Name::Route,
            Name::MaxForwards,
            Name::From,
            Name::To,
            Name::CallId,
        ] {
            headers.copy(&name, &invite.headers);
        }
        let Some((cseq, branch)) = invite.cseq().zip(via.as_ref().and_then(|via| via.branch()))
        else {
            return;
        };
        let cseq = CSeq {
            method: Method::Cancel,
            ..cseq
        };
        headers.push(Name::CSeq, cseq.to_string());
        if let Some(reason) = reason {
            headers.push(Name::Reason, reason);
        }
        let key = ClientKey::new(branch, Method::Cancel);
        self.begin(now, Owner::Nobody, cancel, key, peer, VecDeque::new());
    }

    pub(super) fn response(&mut self, now: Time, from: &Peer, response: Response) {
        let id = ClientKey::of(&response).and_then(|key| self.client_keys.get(&key).copied());
        let Some(id) = id else {
            self.refusals.stray += 1;
            return;
        };
        if let Some(record) = self.clients.get_mut(&id) {
            record.said_by = Some(from.clone());
        }
        self.client_input(now, id, ClientInput::Response(response));
    }

    pub(super) fn client_timeout(&mut self, now: Time, id: ClientId) {
        let silent = |record: &ClientRecord| !record.spoke && record.silent_until <= now;
        if self.clients.get(&id).is_some_and(silent) {
            self.leave_behind(now, id);
        }
        self.client_input(now, id, ClientInput::Timeout);
    }

    /// Nothing was heard of a peer, and there is another one.
    fn leave_behind(&mut self, now: Time, id: ClientId) {
        if let Some(record) = self.clients.get_mut(&id) {
            record.silent_until = Time::NEVER;
        }
        if self.try_next(now, id) {
            if let Some(record) = self.clients.get_mut(&id) {
                record.owner = Owner::LeftBehind { cancelled: false };
            }
            self.client_input(now, id, ClientInput::GiveUp);
        }
    }

    /// A peer that was left behind has something to say after all.
    fn heard_behind(&mut self, now: Time, id: ClientId, response: &Response) {
        let Some(record) = self.clients.get_mut(&id) else {
            return;
        };
        if (200..300).contains(&response.code) {
            let (request, peer) = (Arc::clone(&record.request), record.peer.clone());
            for out in farewell(&request, response, &mut self.ids) {
                self.perform_stray(now, out, &peer);
            }
        } else if response.code < 200 && record.owner == (Owner::LeftBehind { cancelled: false }) {
            record.owner = Owner::LeftBehind { cancelled: true };
            record.machine.handle(now, ClientInput::GiveUp);
            self.send_cancel(now, id, None);
        }
    }

    fn client_input(&mut self, now: Time, id: ClientId, input: ClientInput) {
        if let Some(record) = self.clients.get_mut(&id) {
            record.machine.handle(now, input);
            self.drive_client(now, id);
        }
    }

    /// A peer cannot be reached any more.
    pub(super) fn failed(&mut self, now: Time, peer: Peer) {
        self.streams.remove(&peer);
        let mut hit: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, record)| record.peer == peer)
            .map(|(id, _)| *id)
            .collect();
        hit.sort_unstable();
        for id in hit {
            self.client_input(now, id, ClientInput::Failed);
            // No ringing bounds how long a re-INVITE is under way.
            let bounded = |record: &ClientRecord| {
                matches!(record.owner, Owner::Call(_, Purpose::Reinvite))
                    && record.machine.is_inviting()
            };
            if self.clients.get(&id).is_some_and(bounded) {
                self.client_input(now, id, ClientInput::GiveUp);
            }
        }
        if peer.transport.is_reliable() {
            self.flow_lost(now, &peer);
        }
    }

    /// A message of that transaction could not be sent.
    pub(super) fn unsent(&mut self, now: Time, id: ClientId) {
        self.client_input(now, id, ClientInput::Failed);
    }

    fn drive_client(&mut self, now: Time, id: ClientId) {
        while let Some(record) = self.clients.get_mut(&id) {
            match record.machine.poll() {
                Step::Send(wire) => self.out.push_back(Output::Transmit {
                    to: record.peer.clone(),
                    wire,
                    client: Some(id),
                }),
                Step::Response(response) => {
                    let fresh = !record.heard;
                    record.spoke = true;
                    record.heard |= response.code > 100;
                    let (owner, request) = (record.owner, Arc::clone(&record.request));
                    let to = record.peer.clone();
                    let said = record.said_by.clone().map(|by| Said { to, by });
                    if matches!(owner, Owner::LeftBehind { .. }) {
                        self.heard_behind(now, id, &response);
                    // 503 alone sends a request elsewhere (RFC 3263 4.3).
                    } else if !(response.code == 503 && fresh && self.try_next(now, id)) {
                        self.give(now, owner, &request, &response, said.as_ref());
                    }
                }
                Step::Ended(end) => {
                    let code = match end {
                        End::Done => None,
                        End::TimedOut => Some(408),
                        End::Failed => Some(503),
                    };
                    let fresh = !record.heard;
                    let (owner, request) = (record.owner, Arc::clone(&record.request));
                    if let Some(code) = code
                        && !(fresh && self.try_next(now, id))
                    {
                        self.forget_client(id);
                        self.give(now, owner, &request, &make_up(&request, code), None);
                    }
                    self.forget_client(id);
                }
                Step::Wait(at) => {
                    let at = match record.spoke {
                        true => at,
                        false => at.min(record.silent_until),
                    };
                    let (armed, who) = (&mut record.armed, Who::Client(id));
                    Self::set_deadline(&mut self.deadlines, armed, at, who);
                    return;
                }
            }
        }
    }

    /// The same request, a new transaction, the next address.
    fn try_next(&mut self, now: Time, id: ClientId) -> bool {
        let Some(record) = self.clients.get_mut(&id) else {
            return false;
        };
        let others = std::mem::take(&mut record.others);
        if others.is_empty() || self.is_let_go_of(id) {
            return false;
        }
        let Some(record) = self.clients.get(&id) else {
            return false;
        };
        let (owner, request) = (record.owner, Request::clone(&record.request));
        if let Owner::Call(call, Purpose::Invite) = owner {
            self.call_tries_next(now, call);
        }
        self.send(now, owner, request, others);
        true
    }

    fn is_let_go_of(&self, id: ClientId) -> bool {
        self.clients
            .get(&id)
            .is_some_and(|record| self.is_let_go(record.owner))
    }

    pub(super) fn forget_client(&mut self, id: ClientId) {
        if let Some(record) = self.clients.remove(&id) {
            // A request that was tried elsewhere has another key.
            self.client_keys.remove(&record.key);
            self.gate.remove_peer(record.peer.addr.ip());
            self.deadlines.remove(&(record.armed, Who::Client(id)));
        }
    }

    /// The call of an INVITE that has no final response is over: it is awaited for 64 T1 and no longer.
    pub(super) fn give_up_inviting(&mut self, now: Time, id: ClientId) {
        self.client_input(now, id, ClientInput::GiveUp);
    }

    /// `said`: how it came; nobody said one that is made up.
    fn give(
        &mut self,
        now: Time,
        owner: Owner,
        request: &Arc<Request>,
        response: &Response,
        said: Option<&Said>,
    ) {
        match owner {
            Owner::Call(call, purpose) if self.calls.contains_key(&call) => {
                if said.is_none() && purpose != Purpose::Invite && is_made_up(response) {
                    let why = unreached(request, response);
                    self.event(Event::Unreached { call, why });
                }
                self.call_response(now, call, purpose, request, response, said);
            }
            // The call is over, but somebody answered it after all.
            Owner::Call(_, purpose) if (200..300).contains(&response.code) => {
                let outs = match purpose {
                    Purpose::Invite => farewell(request, response, &mut self.ids),
                    Purpose::Reinvite => Vec::from_iter(late_ack(request, &mut self.ids)),
                    _ => Vec::new(),
                };
                if let Some(said) = said {
                    for out in outs {
                        self.perform_stray(now, out, &said.to);
                    }
                }
            }
            Owner::Registration(id) => {
                self.registration_response(now, id, request, response, said);
            }
            Owner::Ping(trunk) => self.ping_response(trunk, response),
            Owner::Call(..) | Owner::LeftBehind { .. } | Owner::Nobody => {}
        }
    }
}

/// Why a request within a call came to nothing.
fn unreached(request: &Request, response: &Response) -> String {
    let why = match response.code {
        408 => "no answer came",
        503 if is_own_overload(response) => response.reason.as_str(),
        _ => "it could not be sent",
    };
    format!("{}: {why}", request.method)
}

/// Whether both are spoken with over the same transport and the same family of addresses.
pub(super) fn is_alike(one: &Peer, other: &Peer) -> bool {
    let family = |peer: &Peer| peer.addr.ip().to_canonical().is_ipv4();
    one.transport == other.transport && family(one) == family(other)
}

/// The peers at the addresses that a look-up brought.
pub(super) fn peers(lookup: &Lookup, addresses: &[core::net::SocketAddr]) -> VecDeque<Peer> {
    let name = (lookup.transport == Transport::Tls).then(|| Arc::from(lookup.host.as_str()));
    addresses
        .iter()
        .map(|addr| Peer {
            transport: lookup.transport,
            addr: *addr,
            name: name.clone(),
        })
        .collect()
}
