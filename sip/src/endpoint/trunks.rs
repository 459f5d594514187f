//! Trunks that come and go, their registrations, and whether their carriers are there.

use core::net::IpAddr;
use std::collections::VecDeque;
use std::time::Duration;

use super::challenges::Said;
use super::clients::Owner;
use super::{Endpoint, Peer, Who};
use crate::auth::Realms;
use crate::call::is_own_overload;
use crate::dialog::MAX_FORWARDS;
use crate::event::Event;
use crate::ids::Ids;
use crate::locate::{Answers, Located, Lookup, locate_host};
use crate::lookups::Urgency;
use crate::message::{CSeq, Method, Name, NameAddr, Request, Response, SipUri, Uri};
use crate::register::{Out, Registration, Settings};
use crate::time::Time;
use crate::trunk::{Tenant, Trunk, TrunkId};

/// A registration, by a number that is never used again: it outlives its trunk by one REGISTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RegistrationId(u64);

#[derive(Debug)]
pub(super) struct RegistrationRecord {
    pub(super) registration: Registration,
    pub(super) trunk: TrunkId,
    /// Whose it is, and where it goes: the trunk may be gone.
    pub(super) tenant: Tenant,
    pub(super) located: Located,
    /// Where its latest REGISTER went: the carrier's calls may come over that connection.
    pub(super) flow: Option<Peer>,
    /// The same, and where it goes if that fails.
    pub(super) route: VecDeque<Peer>,
    /// Which host took the binding that stands.
    taken_by: Option<IpAddr>,
    armed: Time,
}

#[derive(Debug)]
pub(super) struct TrunkRecord {
    pub(super) trunk: Trunk,
    /// In which realms its carrier asks. They are remembered while the trunk stays as it is.
    pub(super) realms: Realms,
    pub(super) registration: Option<RegistrationId>,
    /// It is registered as soon as its former binding is taken back.
    registers_later: bool,
    /// When OPTIONS are sent next.
    next_ping: Time,
    /// OPTIONS that had no answer, one after the other.
    misses: u32,
    reachable: Option<bool>,
    /// Where its host was found, and may call from.
    addresses: Vec<Resolved>,
    /// When its host is looked up again.
    next_lookup: Time,
    armed: Time,
}

/// An address of a trunk's host.
#[derive(Debug)]
struct Resolved {
    ip: IpAddr,
    /// Since when answers lack it.
    gone: Option<Time>,
}

/// How long an address is let in after answers ceased to name it. Names with many addresses show some of
/// them at a time.
const GRACE: Duration = Duration::from_secs(300);

/// Addresses of one trunk's host; beyond it those go first that were gone longest.
const MOST_ADDRESSES: usize = 64;

/// A carrier is gone when so many OPTIONS one after the other had no answer.
const MISSES: u32 = 2;

/// How often a trunk's name is looked up, so that new addresses of the carrier are let in.
pub(super) const LOOKUP_INTERVAL: Duration = Duration::from_secs(300);

#[cfg(test)]
impl TrunkRecord {
    /// How many addresses are let in for its host.
    pub(super) fn addresses(&self) -> usize {
        self.addresses.len()
    }
}

impl Endpoint {
    pub(super) fn set_trunk(&mut self, now: Time, trunk: Trunk) {
        let id = trunk.id;
        // Nothing else is new: its registration goes on as it is.
        if let Some(own) = self.trunks.get_mut(&id)
            && own.trunk.differs_in_realms_alone(&trunk)
        {
            let registers = trunk.register.is_some();
            own.realms.tell(trunk.registrar_realms.clone(), registers);
            own.trunk = trunk;
            return;
        }
        let settings = self.registration_settings(&trunk);
        let kept = self.keep_registration(now, id, settings.as_ref());
        let before = self.trunks.get(&id);
        let same = before.filter(|own| own.trunk.is_same_carrier(&trunk));
        let apart = trunk.next_hop() != trunk.host.as_ref().map(|host| (host, trunk.port));
        let mut realms = match same {
            Some(own) => own.realms.clone(),
            None => Realms::new(apart, trunk.names()),
        };
        realms.tell(trunk.registrar_realms.clone(), trunk.register.is_some());
        self.remove_trunk(now, id);
        self.gate.add_trunk(&trunk);
        self.count_user(&trunk, true);
        let (mut next_lookup, mut addresses) = (Time::NEVER, Vec::new());
        match located(&trunk) {
            Some(Located::At(_, addr)) => self.gate.add_address(addr.ip(), id),
            Some(Located::Ask(lookup)) => {
                next_lookup = now;
                if let Some((_, answers)) = self.resolved.get(&lookup) {
                    renew(&mut addresses, now, &found(answers));
                }
                for own in &addresses {
                    self.gate.add_address(own.ip, id);
                }
            }
            None => {}
        }
        // A binding that is being taken back is gone before another is made: the registrar may take the two
        // REGISTERs in either order, and Expires: 0 for the later one.
        let leaving = self.registrations.values().any(|own| own.trunk == id);
        let registers_later = kept.is_none() && leaving && settings.is_some();
        let registration = match (kept, settings) {
            (None, Some(settings)) if !leaving => {
                Some(self.new_registration(id, trunk.tenant, settings))
            }
            (kept, _) => kept,
        };
        let next_ping = match (trunk.keep_alive, &trunk.register) {
            (None, _) => Time::NEVER,
            // Its REGISTER asks first.
            (Some(interval), Some(_)) => now + interval,
            (Some(_), None) => now,
        };
        let record = TrunkRecord {
            trunk,
            realms,
            registration,
            registers_later,
            next_ping,
            misses: 0,
            reachable: None,
            addresses,
            next_lookup,
            armed: Time::NEVER,
        };
        self.trunks.insert(id, record);
        if let Some(registration) = registration.filter(|_| kept.is_none()) {
            self.drive_registration(now, registration);
        }
        self.trunk_timeout(now, id);
    }

    pub(super) fn remove_trunk(&mut self, now: Time, id: TrunkId) {
        let Some(record) = self.trunks.remove(&id) else {
            return;
        };
        self.gate.remove_trunk(&record.trunk);
        self.count_user(&record.trunk, false);
        self.deadlines.remove(&(record.armed, Who::Trunk(id)));
        if let Some(registration) = record.registration
            && let Some(own) = self.registrations.get_mut(&registration)
        {
            own.registration.leave();
            self.drive_registration(now, registration);
        }
    }

    /// Counts the trunks that are known by one user name.
    fn count_user(&mut self, trunk: &Trunk, comes: bool) {
        let Some(own) = &trunk.credentials else {
            return;
        };
        if !trunk.is_known_by_password() {
            return;
        }
        let count = self.users.entry(own.username.clone()).or_default();
        *count = match comes {
            true => *count + 1,
            false => count.saturating_sub(1),
        };
        self.users.retain(|_, count| *count > 0);
    }

    pub(super) fn register_again(&mut self, now: Time, id: TrunkId) {
        if let Some(registration) = self.trunks.get(&id).and_then(|record| record.registration)
            && let Some(own) = self.registrations.get_mut(&registration)
        {
            own.registration.again();
            self.drive_registration(now, registration);
        }
    }

    /// What a trunk registers, and where.
    fn registration_settings(&self, trunk: &Trunk) -> Option<(Settings, Located)> {
        let register = trunk.register.as_ref()?;
        let (host, located) = (trunk.host.clone()?, located(trunk)?);
        let theirs = self.addresses(&located);
        let settings = Settings {
            registrar: host.clone(),
            port: trunk.port,
            user: register.user.clone(),
            domain: trunk.domain.clone().unwrap_or(host),
            contact: self.contact(trunk.transport, &theirs, Some(&register.user)),
            expires: register.expires,
            credentials: trunk.credentials.clone(),
        };
        Some((settings, located))
    }

    fn new_registration(
        &mut self,
        trunk: TrunkId,
        tenant: Tenant,
        (settings, located): (Settings, Located),
    ) -> RegistrationId {
        let id = RegistrationId(self.number());
        let record = RegistrationRecord {
            registration: Registration::new(settings, self.ids.fork()),
            trunk,
            tenant,
            located,
            flow: None,
            route: VecDeque::new(),
            taken_by: None,
            armed: Time::NEVER,
        };
        self.registrations.insert(id, record);
        id
    }

    /// The registration of a trunk that changes, if the binding stays the same: it is refreshed with the
    /// new settings, and not taken back with the trunk as it was.
    fn keep_registration(
        &mut self,
        now: Time,
        trunk: TrunkId,
        settings: Option<&(Settings, Located)>,
    ) -> Option<RegistrationId> {
        let (settings, located) = settings?;
        let id = self.trunks.get(&trunk)?.registration?;
        let own = self.registrations.get_mut(&id)?;
        if own.located != *located || !own.registration.is_of(settings) {
            return None;
        }
        own.registration.renew(settings.clone());
        if let Some(record) = self.trunks.get_mut(&trunk) {
            record.registration = None;
        }
        self.drive_registration(now, id);
        Some(id)
    }

    /// The last binding of a trunk was taken back: the one that waited for this is made.
    fn register_later(&mut self, now: Time, trunk: TrunkId) {
        if self.registrations.values().any(|own| own.trunk == trunk) {
            return;
        }
        let Some(record) = self.trunks.get(&trunk).filter(|own| own.registers_later) else {
            return;
        };
        let Some(settings) = self.registration_settings(&record.trunk) else {
            return;
        };
        let id = self.new_registration(trunk, record.trunk.tenant, settings);
        if let Some(record) = self.trunks.get_mut(&trunk) {
            record.registers_later = false;
            record.registration = Some(id);
        }
        self.drive_registration(now, id);
    }

    /// A REGISTER leaves for `peer`.
    pub(super) fn registration_sends(
        &mut self,
        id: RegistrationId,
        peer: &Peer,
        others: &VecDeque<Peer>,
    ) {
        if let Some(record) = self.registrations.get_mut(&id) {
            record.flow = Some(peer.clone());
            record.route = std::iter::once(peer).chain(others).cloned().collect();
        }
    }

    /// Whether the binding that a trunk registered is held by the host at this address: its calls come from there.
    pub(super) fn is_registered_at(&self, trunk: TrunkId, ip: IpAddr) -> bool {
        let id = self.trunks.get(&trunk).and_then(|own| own.registration);
        let record = id.and_then(|id| self.registrations.get(&id));
        record.is_some_and(|record| record.taken_by == Some(ip))
    }

    /// A connection is gone: what was registered over it is registered again soon.
    pub(super) fn flow_lost(&mut self, now: Time, peer: &Peer) {
        let hit: Vec<RegistrationId> = self
            .registrations
            .iter()
            .filter(|(_, own)| own.flow.as_ref() == Some(peer))
            .map(|(id, _)| *id)
            .collect();
        for id in hit {
            if let Some(own) = self.registrations.get_mut(&id) {
                own.registration.flow_lost(now);
                self.drive_registration(now, id);
            }
        }
    }

    pub(super) fn registration_timeout(&mut self, now: Time, id: RegistrationId) {
        if let Some(record) = self.registrations.get_mut(&id) {
            record.registration.timeout(now);
            self.drive_registration(now, id);
        }
    }

    pub(super) fn registration_response(
        &mut self,
        now: Time,
        id: RegistrationId,
        request: &Request,
        response: &Response,
        said: Option<&Said>,
    ) {
        let (challenge, response) = self.judge_for_registration(id, request, response, said);
        if let Some(record) = self.registrations.get_mut(&id) {
            match response.code {
                200..300 => record.taken_by = said.map(|said| said.to.addr.ip()),
                401 | 407 if challenge.is_some() => {}
                // The registrar was not asked: what it took, it still has.
                _ if is_own_overload(&response) => {}
                _ => record.taken_by = None,
            }
            // Who asked for credentials gets them; all else is drawn anew.
            let route = match response.code {
                401 | 407 => std::mem::take(&mut record.route),
                _ => VecDeque::new(),
            };
            let own = &mut record.registration;
            own.response(now, request, &response, challenge);
            self.drive_registration_over(now, id, route);
        }
    }

    fn drive_registration(&mut self, now: Time, id: RegistrationId) {
        self.drive_registration_over(now, id, VecDeque::new());
    }

    /// A REGISTER that leaves now goes over `route`, if there is one.
    fn drive_registration_over(
        &mut self,
        now: Time,
        id: RegistrationId,
        mut route: VecDeque<Peer>,
    ) {
        while let Some(record) = self.registrations.get_mut(&id) {
            let trunk = record.trunk;
            match record.registration.poll() {
                Out::Request(request) => {
                    let located = record.located.clone();
                    let owner = Owner::Registration(id);
                    match std::mem::take(&mut route) {
                        route if route.is_empty() => {
                            self.send_located(now, owner, request, located, None);
                        }
                        route => self.send(now, owner, request, route),
                    }
                }
                Out::Registered { expires } => {
                    let mut own = self.trunks.get_mut(&trunk);
                    if let Some(own) = &mut own {
                        own.realms.registered();
                    }
                    let realms = registrar_realms(own.as_deref());
                    self.event(Event::Registered {
                        trunk,
                        expires,
                        realms,
                    });
                }
                Out::Failed {
                    code,
                    reason,
                    retry_in,
                } => {
                    let realms = registrar_realms(self.trunks.get(&trunk));
                    self.event(Event::RegistrationFailed {
                        trunk,
                        realms,
                        code,
                        reason,
                        retry_in,
                    });
                }
                Out::Wait(at) => {
                    if record.registration.is_over() {
                        self.deadlines
                            .remove(&(record.armed, Who::Registration(id)));
                        self.registrations.remove(&id);
                        return self.register_later(now, trunk);
                    }
                    let (armed, who) = (&mut record.armed, Who::Registration(id));
                    Self::set_deadline(&mut self.deadlines, armed, at, who);
                    return;
                }
                Out::Over => {}
            }
        }
    }

    pub(super) fn trunk_timeout(&mut self, now: Time, id: TrunkId) {
        let Some(record) = self.trunks.get_mut(&id) else {
            return;
        };
        let mut lookup = None;
        if record.next_lookup <= now {
            // The answer says when the next one is, however long it waits for its turn.
            record.next_lookup = now + spread(&mut self.ids, LOOKUP_INTERVAL);
            if let Some(Located::Ask(name)) = located(&record.trunk) {
                match self.failing.get(&name).map(|own| own.until) {
                    Some(until) if until > now => record.next_lookup = until,
                    _ => lookup = Some((name, record.trunk.tenant)),
                }
            }
        }
        let mut ping = false;
        if record.next_ping <= now
            && let Some(interval) = record.trunk.keep_alive
        {
            record.next_ping = now + interval.max(Duration::from_secs(1));
            ping = true;
        }
        let next = record.next_ping.min(record.next_lookup);
        let (armed, who) = (&mut record.armed, Who::Trunk(id));
        Self::set_deadline(&mut self.deadlines, armed, next, who);
        if let Some((lookup, tenant)) = lookup {
            self.look_up(now, &lookup, tenant, Urgency::Refresh);
        }
        if ping {
            self.ping(now, id);
        }
    }

    /// The addresses of a trunk's host are let in, and those that it left are not any more. An answer
    /// without any changes nothing: the resolver may be away, and is asked again soon.
    pub(super) fn admit_resolved(&mut self, now: Time, lookup: &Lookup, answers: &Answers) {
        let found = found(answers);
        if found.is_empty() {
            return;
        }
        let own = Some(Located::Ask(lookup.clone()));
        for (id, record) in &mut self.trunks {
            if located(&record.trunk) == own {
                record.next_lookup = now + spread(&mut self.ids, LOOKUP_INTERVAL);
                let next = record.next_ping.min(record.next_lookup);
                let (armed, who) = (&mut record.armed, Who::Trunk(*id));
                Self::set_deadline(&mut self.deadlines, armed, next, who);
                for ip in renew(&mut record.addresses, now, &found) {
                    self.gate.remove_address(ip, &record.trunk);
                }
                for own in &record.addresses {
                    self.gate.add_address(own.ip, record.trunk.id);
                }
            }
        }
    }

    /// A name was not looked up, or not found: its trunks have it looked up again then. `tenant`: those of this one.
    pub(super) fn look_later(&mut self, lookup: &Lookup, tenant: Option<Tenant>, again: Time) {
        let own = Some(Located::Ask(lookup.clone()));
        for (id, record) in &mut self.trunks {
            let is_meant = tenant.is_none_or(|tenant| record.trunk.tenant == tenant);
            if is_meant && located(&record.trunk) == own {
                record.next_lookup = again;
                let next = record.next_ping.min(again);
                let (armed, who) = (&mut record.armed, Who::Trunk(*id));
                Self::set_deadline(&mut self.deadlines, armed, next, who);
            }
        }
    }

    /// The addresses of a host, as far as they are known.
    pub(super) fn addresses(&self, located: &Located) -> Vec<IpAddr> {
        match located {
            Located::At(_, addr) => vec![addr.ip()],
            Located::Ask(lookup) => {
                let known = self.resolved.get(lookup);
                known.map_or_else(Vec::new, |(_, answers)| found(answers))
            }
        }
    }

    /// OPTIONS to the carrier itself: any answer shows that it is there.
    fn ping(&mut self, now: Time, id: TrunkId) {
        let Some(trunk) = self.trunks.get(&id).map(|record| record.trunk.clone()) else {
            return;
        };
        let theirs = located(&trunk).map_or_else(Vec::new, |located| self.addresses(&located));
        let Some(host) = trunk.host else {
            return;
        };
        let uri = Uri::Sip(SipUri::new(None, host.clone(), trunk.port));
        let mut request = Request::new(Method::Options, uri.clone());
        let domain = trunk.domain.unwrap_or(host);
        let from = NameAddr::new(Uri::Sip(SipUri::new(None, domain, None)));
        let (tag, call_id) = (self.ids.tag(), self.ids.call_id());
        let cseq = CSeq {
            number: 1,
            method: Method::Options,
        };
        let headers = &mut request.headers;
        headers.push(Name::MaxForwards, MAX_FORWARDS);
        headers.push(Name::From, from.with_tag(&tag).to_string());
        headers.push(Name::To, NameAddr::new(uri).to_string());
        headers.push(Name::CallId, call_id);
        headers.push(Name::CSeq, cseq.to_string());
        let contact = self.contact(trunk.transport, &theirs, None);
        headers.push(Name::Contact, contact);
        self.send_to_trunk(now, Owner::Ping(id), request, id);
    }

    pub(super) fn ping_response(&mut self, id: TrunkId, response: &Response) {
        // What was not sent says nothing of the carrier.
        if response.code < 200 || is_own_overload(response) {
            return;
        }
        let Some(record) = self.trunks.get_mut(&id) else {
            return;
        };
        // What was made up here has no Via.
        let answered = response.headers.has(&Name::Via);
        record.misses = if answered { 0 } else { record.misses + 1 };
        let reachable = match record.misses {
            0 => true,
            misses if misses >= MISSES => false,
            _ => return,
        };
        if record.reachable != Some(reachable) {
            record.reachable = Some(reachable);
            self.event(Event::Reachable {
                trunk: id,
                reachable,
            });
        }
    }
}

/// A fifth of a wait is drawn: trunks that were made at once, and look-ups that found no room together, do
/// not all come back at once.
pub(super) fn spread(ids: &mut Ids, wait: Duration) -> Duration {
    ids.between(wait * 4 / 5, wait)
}

/// All addresses that a look-up brought.
fn found(answers: &Answers) -> Vec<IpAddr> {
    let of_srv = answers.srv.iter().flat_map(|srv| &srv.addresses);
    let mut found: Vec<IpAddr> = Vec::new();
    for ip in of_srv.chain(&answers.addresses) {
        if !found.contains(ip) && found.len() < MOST_ADDRESSES {
            found.push(*ip);
        }
    }
    found
}

/// Takes over what was found now; gives the addresses that are let in no more.
fn renew(known: &mut Vec<Resolved>, now: Time, found: &[IpAddr]) -> Vec<IpAddr> {
    for own in known.iter_mut() {
        own.gone = match found.contains(&own.ip) {
            true => None,
            false => own.gone.or(Some(now)),
        };
    }
    for ip in found {
        if !known.iter().any(|own| own.ip == *ip) {
            known.push(Resolved {
                ip: *ip,
                gone: None,
            });
        }
    }
    // Those that are there first, then those that were there last.
    known.sort_by_key(|own| std::cmp::Reverse(own.gone.unwrap_or(Time::NEVER)));
    let stays = |own: &Resolved| own.gone.is_none_or(|gone| now.since(gone) < GRACE);
    let count = known.iter().take_while(|own| stays(own)).count();
    known
        .split_off(count.min(MOST_ADDRESSES))
        .into_iter()
        .map(|own| own.ip)
        .collect()
}

/// In which realms a trunk's registrar asks, as far as it is known.
fn registrar_realms(record: Option<&TrunkRecord>) -> Vec<String> {
    let realms = record.and_then(|own| own.realms.of_registrar());
    realms.unwrap_or_default().to_vec()
}

fn located(trunk: &Trunk) -> Option<Located> {
    let host = trunk.host.as_ref()?;
    Some(locate_host(host, trunk.port, trunk.transport))
}
