//! The calls: commands and messages to them, what they ask for into the world.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use super::challenges::{Said, without_credentials};
use super::clients::{ClientId, Owner, is_alike, peers};
use super::reach::is_heard;
use super::trace::withheld_numbers;
use super::{Endpoint, Output, Peer, Who};
use crate::auth::Realms;
use crate::call::{Call, Input as CallInput, Out, Purpose, ServerId};
use crate::dialog::MAX_FORWARDS;
use crate::event::{CallId, Command, EndedBy, Event, Place};
use crate::locate::{Located, locate_host};
use crate::message::{Host, Method, Name, NameAddr, Request, Response, SipUri, Uri};
use crate::time::Time;
use crate::transaction::ServerInput;
use crate::trunk::{Tenant, TrunkId};

#[derive(Debug)]
pub(super) struct CallRecord {
    pub(super) call: Call,
    /// Its key among the dialogs.
    key: (String, String),
    /// How its peer was last spoken with.
    pub(super) flow: Peer,
    /// Whose credentials it may give. Of a call of ours: where its INVITE goes.
    pub(super) trunk: Option<TrunkId>,
    /// Whose it is, where that is known.
    pub(super) tenant: Tenant,
    /// What the branches of its INVITEs have behind a dot.
    pub(super) mark: Option<String>,
    /// In which realms its carrier asks, since it has given them.
    pub(super) realms: Option<Realms>,
    /// Its latest INVITE.
    invite: Option<ClientId>,
    /// Where the INVITE that makes the call went last, and where it goes if that fails; of a call of theirs, where it
    /// came from if that is its carrier.
    pub(super) route: VecDeque<Peer>,
    /// Addresses let in for its sake.
    peers: Vec<IpAddr>,
    armed: Time,
}

/// An ACK on its way.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    request: Request,
    pub(super) branch: String,
    /// How its dialog was last spoken with.
    pub(super) flow: Peer,
    /// `None`: it is gone.
    call: Option<CallId>,
}

/// What is known of a call beside what it is.
#[derive(Default)]
struct Whose {
    trunk: Option<TrunkId>,
    tenant: Tenant,
    mark: Option<String>,
    /// Numbers that its messages are not told with; `None`: its caller withholds nothing.
    withheld: Option<Vec<String>>,
}

/// Addresses that one call lets in: its way in, its Contact, its first route.
const MOST_PEERS: usize = 4;

impl Endpoint {
    pub(super) fn command(&mut self, now: Time, command: Command) {
        let call = match &command {
            Command::Place(call, place) => {
                let (call, place) = (*call, Place::clone(place));
                return self.place(now, call, place);
            }
            Command::SetTrunk(trunk) => return self.set_trunk(now, trunk.as_ref().clone()),
            Command::RemoveTrunk(trunk) => return self.remove_trunk(now, *trunk),
            Command::Register(trunk) => return self.register_again(now, *trunk),
            Command::Ring(call, _)
            | Command::Answer(call, _)
            | Command::Reject(call, ..)
            | Command::HangUp(call, _)
            | Command::Offer(call, _)
            | Command::AcceptOffer(call, _)
            | Command::RefuseOffer(call, _)
            | Command::Refer(call, ..)
            | Command::AnswerRefer(call, _)
            | Command::NotifyRefer(call, _)
            | Command::Info(call, _) => *call,
        };
        self.call_input(now, call, CallInput::Command(command));
    }

    fn place(&mut self, now: Time, id: CallId, place: Place) {
        if self.calls.contains_key(&id) || id.0 >= CallId::FIRST_INCOMING {
            return self.not_placed(id, 400, "Call Number In Use");
        }
        if self.calls.len() >= self.config.most_calls {
            self.refusals.overload += 1;
            return self.not_placed(id, 503, "Too Many Calls");
        }
        let Some(record) = self.trunks.get(&place.trunk) else {
            return self.not_placed(id, 404, "Unknown Trunk");
        };
        let trunk = record.trunk.clone();
        let (Some(host), Some((named, port))) = (trunk.host.clone(), trunk.called_at()) else {
            return self.not_placed(id, 404, "Trunk Has No Address");
        };
        let mut ids = self.ids.fork();
        let (call_id, tag) = (ids.call_id(), ids.tag());
        let mut uri = SipUri::new(Some(&place.to), named.clone(), port);
        if trunk.transport != crate::message::Transport::Udp {
            uri.params.set("transport", Some(trunk.transport.param()));
        }
        let domain = trunk.domain.clone().unwrap_or(host);
        let address = |user: &str, domain: Host| {
            NameAddr::new(Uri::Sip(SipUri::new(Some(user), domain, None)))
        };
        let mut from = address(&place.from, domain.clone());
        from.display.clone_from(&place.display);
        let left = match &place.forwarded {
            Some(forwarded) => forwarded.max_forwards.to_string(),
            None => MAX_FORWARDS.to_owned(),
        };
        let mark = place.forwarded.map(|forwarded| forwarded.mark);
        let mark = mark.filter(|mark| crate::message::scan::is_token(mark));
        let mut invite = Request::new(Method::Invite, Uri::Sip(uri));
        let headers = &mut invite.headers;
        headers.push(Name::MaxForwards, left);
        headers.push(Name::From, from.with_tag(&tag).to_string());
        headers.push(Name::To, address(&place.to, domain).to_string());
        headers.push(Name::CallId, call_id.as_str());
        headers.push(Name::CSeq, "1 INVITE");
        for (name, value) in &place.headers {
            if crate::message::scan::is_token(name) {
                headers.push(Name::parse(name), value.as_str());
            }
        }
        let hop = trunk.next_hop();
        let theirs = hop.map_or_else(Vec::new, |(host, port)| {
            self.addresses(&locate_host(host, port, trunk.transport))
        });
        let contact = self.contact(trunk.transport, &theirs, Some(&place.from));
        let call = Call::place(
            now,
            id,
            Arc::clone(&self.settings),
            contact,
            ids,
            trunk.credentials.clone(),
            invite,
            place.offer,
            place.ring_for,
        );
        let nowhere = core::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let flow = Peer::new(trunk.transport, nowhere);
        let whose = Whose {
            trunk: Some(place.trunk),
            tenant: trunk.tenant,
            mark,
            withheld: None,
        };
        self.keep_call(call, (call_id, tag), flow, whose, VecDeque::new());
        self.drive_call(now, id);
    }

    fn not_placed(&mut self, call: CallId, code: u16, reason: &str) {
        self.event(Event::Ended {
            call,
            by: EndedBy::Local,
            code: Some(code),
            reason: reason.to_owned(),
        });
    }

    fn keep_call(
        &mut self,
        call: Call,
        key: (String, String),
        flow: Peer,
        whose: Whose,
        route: VecDeque<Peer>,
    ) {
        let id = call.id();
        self.dialogs.insert(key.clone(), id);
        self.tracer.begin(&key, id, whose.withheld);
        let record = CallRecord {
            call,
            key,
            flow,
            trunk: whose.trunk,
            tenant: whose.tenant,
            mark: whose.mark,
            realms: None,
            invite: None,
            route,
            peers: Vec::new(),
            armed: Time::NEVER,
        };
        self.calls.insert(id, record);
    }

    /// An INVITE that makes a call over one of `trunks`. `None` when it has no Contact.
    pub(super) fn new_incoming(
        &mut self,
        server: ServerId,
        request: &Request,
        peer: &Peer,
        trunks: &[TrunkId],
        by_password: bool,
    ) -> Option<CallId> {
        let id = CallId(self.next_incoming);
        let theirs = [peer.addr.ip()];
        let user = request.uri.user();
        let contact = self.contact(peer.transport, &theirs, user.as_deref());
        let ids = self.ids.fork();
        let settings = Arc::clone(&self.settings);
        // Where the call may be of several trunks, none answers a challenge: a carrier that several accounts share is
        // not given one's answer in another's call.
        let trunk = match trunks {
            [trunk] => self.trunks.get(trunk).map(|record| &record.trunk),
            _ => None,
        };
        let route = self.carrier_of_incoming(trunk, by_password, peer);
        let credentials = trunk.and_then(|trunk| trunk.credentials.clone());
        let trunk = trunk.map(|trunk| trunk.id);
        let call = Call::incoming(id, settings, contact, ids, credentials, server, request)?;
        self.next_incoming += 1;
        let key = (request.call_id().to_owned(), call.local_tag()?.to_owned());
        let whose = Whose {
            trunk,
            tenant: self.tenant_among(trunks),
            withheld: withheld_numbers(&request.headers),
            ..Whose::default()
        };
        self.keep_call(call, key, peer.clone(), whose, route);
        self.let_in(id, peer.addr.ip());
        self.let_in_target(id, request.contact());
        Some(id)
    }

    /// Whose all of these trunks are. What may be several tenants' is nobody's in particular: none of them can hold
    /// up the others' requests with its own names.
    fn tenant_among(&self, trunks: &[TrunkId]) -> Tenant {
        let mut tenants = trunks
            .iter()
            .filter_map(|trunk| Some(self.trunks.get(trunk)?.trunk.tenant));
        let first = tenants.next().unwrap_or_default();
        match tenants.all(|tenant| tenant == first) {
            true => first,
            false => Tenant::default(),
        }
    }

    fn let_in(&mut self, id: CallId, ip: IpAddr) {
        if let Some(record) = self.calls.get_mut(&id)
            && record.peers.len() < MOST_PEERS
            && !record.peers.contains(&ip)
        {
            record.peers.push(ip);
            self.gate.add_peer(ip);
        }
    }

    fn let_in_target(&mut self, id: CallId, address: Option<NameAddr>) {
        let ip = match address.map(|address| address.uri) {
            Some(Uri::Sip(uri)) => uri.host.ip(),
            _ => None,
        };
        if let Some(ip) = ip {
            self.let_in(id, ip);
        }
    }

    /// A request of a call leaves for `peer`.
    pub(super) fn call_sends(
        &mut self,
        id: CallId,
        purpose: Purpose,
        client: ClientId,
        peer: &Peer,
        others: &VecDeque<Peer>,
    ) {
        let Some(record) = self.calls.get_mut(&id) else {
            return;
        };
        if matches!(purpose, Purpose::Invite | Purpose::Reinvite) {
            record.invite = Some(client);
        }
        if purpose == Purpose::Invite {
            record.flow = peer.clone();
            record.route = std::iter::once(peer).chain(others).cloned().collect();
            self.let_in(id, peer.addr.ip());
        }
    }

    /// A request of one of its dialogs came over `peer`.
    pub(super) fn call_request(
        &mut self,
        now: Time,
        id: CallId,
        server: ServerId,
        request: &Request,
        peer: &Peer,
    ) {
        if let Some(record) = self.calls.get_mut(&id)
            && peer.transport == record.flow.transport
        {
            record.flow = peer.clone();
        }
        self.call_input(now, id, CallInput::Request(server, request));
    }

    pub(super) fn call_cancelled(&mut self, now: Time, id: CallId) {
        self.call_input(now, id, CallInput::Cancelled);
    }

    pub(super) fn call_response(
        &mut self,
        now: Time,
        id: CallId,
        purpose: Purpose,
        request: &Request,
        response: &Response,
        said: Option<&Said>,
    ) {
        let (challenge, response) = self.judge_for_call(id, purpose, request, response, said);
        if purpose == Purpose::Invite && (101..300).contains(&response.code) {
            self.let_in_target(id, response.contact());
            let route = response.headers.list(&Name::RecordRoute).last();
            self.let_in_target(id, route.and_then(NameAddr::parse));
        }
        let input = CallInput::Response(purpose, request, &response, challenge);
        self.call_input(now, id, input);
    }

    /// Its INVITE goes to the next address.
    pub(super) fn call_tries_next(&mut self, now: Time, id: CallId) {
        self.call_input(now, id, CallInput::TriesNext);
    }

    pub(super) fn call_timeout(&mut self, now: Time, id: CallId) {
        self.call_input(now, id, CallInput::Timeout);
    }

    fn call_input(&mut self, now: Time, id: CallId, input: CallInput<'_>) {
        if let Some(record) = self.calls.get_mut(&id) {
            record.call.handle(now, input);
            self.drive_call(now, id);
        }
    }

    pub(super) fn drive_call(&mut self, now: Time, id: CallId) {
        while let Some(record) = self.calls.get_mut(&id) {
            match record.call.poll() {
                Out::Request(purpose, request) => {
                    let (flow, trunk) = (record.flow.clone(), record.trunk);
                    let owner = Owner::Call(id, purpose);
                    match (purpose, trunk) {
                        (Purpose::Invite, Some(trunk)) => {
                            let route = record.route.clone();
                            self.send_invite(now, owner, request, trunk, route);
                        }
                        _ => self.send_by_uri(now, owner, request, &flow),
                    }
                }
                Out::Cancel(reason) => {
                    if let Some(invite) = record.invite {
                        self.send_cancel(now, invite, reason);
                    }
                }
                Out::Ack(request, branch) => {
                    let (flow, tenant) = (record.flow.clone(), record.tenant);
                    self.send_ack(now, request, &branch, &flow, tenant, Some(id));
                }
                Out::Respond(server, mut response) => {
                    if response.code == 401 {
                        let source = record.flow.addr.ip();
                        self.add_challenges(now, source, false, &mut response.headers);
                    }
                    let (code, wire) = (response.code, response.to_bytes().into());
                    self.server_input(now, server, ServerInput::Respond(code, wire));
                }
                Out::Event(event) => self.event(event),
                Out::Wait(at) => {
                    let armed = &mut record.armed;
                    Self::set_deadline(&mut self.deadlines, armed, at, Who::Call(id));
                    return;
                }
                Out::Over => return self.forget_call(now, id),
            }
        }
    }

    fn forget_call(&mut self, now: Time, id: CallId) {
        let Some(record) = self.calls.remove(&id) else {
            return;
        };
        self.deadlines.remove(&(record.armed, Who::Call(id)));
        self.dialogs.remove(&record.key);
        self.tracer.end(&record.key.0, id);
        for ip in record.peers {
            self.gate.remove_peer(ip);
        }
        if let Some(invite) = record.invite {
            self.give_up_inviting(now, invite);
        }
    }

    /// What is asked for on behalf of a call that is gone, whose INVITE went to `flow`.
    pub(super) fn perform_stray(&mut self, now: Time, out: Out, flow: &Peer) {
        match out {
            Out::Ack(request, branch) => {
                self.send_ack(now, request, &branch, flow, Tenant::default(), None);
            }
            Out::Request(_, request) => self.send_by_uri(now, Owner::Nobody, request, flow),
            _ => {}
        }
    }

    /// An ACK has no transaction. One whose target is a name that is not known waits for it, and goes to where its
    /// dialog was heard when the name leads nowhere. The credentials of its INVITE go to who
    /// asked for them, and not to whomever the answer named: a host of the trunk of `call`, or of a call that is gone
    /// where its INVITE went.
    fn send_ack(
        &mut self,
        now: Time,
        request: Request,
        branch: &str,
        flow: &Peer,
        tenant: Tenant,
        call: Option<CallId>,
    ) {
        let located = self.way(&request, flow);
        let ack = Ack {
            request,
            branch: branch.to_owned(),
            flow: flow.clone(),
            call,
        };
        let to = match located {
            // Nobody was heard yet, and nobody waits for it.
            None => return,
            Some(Located::At(transport, addr)) => self.over_flow(flow, transport, addr),
            Some(Located::Ask(lookup)) => {
                let known = self.known_targets(now, &lookup, tenant);
                match known.and_then(|found| peers(&lookup, &found).pop_front()) {
                    Some(peer) => peer,
                    None => return self.wait_to_acknowledge(now, lookup, ack, tenant),
                }
            }
        };
        self.transmit_ack(ack, to);
    }

    /// Nobody would be told that an ACK is lost. So where its target is of another transport or family than its dialog's,
    /// which may be one that cannot be spoken at all, it goes both ways: one that comes twice does no harm.
    pub(super) fn transmit_ack(&mut self, ack: Ack, to: Peer) {
        let flow = ack.flow.clone();
        let other = is_heard(&flow) && !is_alike(&to, &flow);
        let again = other.then(|| ack.clone());
        self.transmit_ack_to(ack, to);
        if let Some(ack) = again {
            self.transmit_ack_to(ack, flow);
        }
    }

    fn transmit_ack_to(&mut self, ack: Ack, to: Peer) {
        let Ack {
            mut request,
            branch,
            flow,
            call,
        } = ack;
        let may = match call {
            Some(call) => self.is_host_of_call(call, &to),
            None => to.addr == flow.addr && to.transport == flow.transport,
        };
        if !may {
            without_credentials(&mut request);
        }
        self.add_via(&mut request, &to, &branch);
        self.out.push_back(Output::Transmit {
            to,
            wire: request.to_bytes().into(),
            client: None,
        });
    }
}
