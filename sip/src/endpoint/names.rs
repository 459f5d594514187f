//! The names that requests go to: what is known of each, who wants it looked up, and what waits for it.

use std::time::Duration;

use super::calls::Ack;
use super::clients::{Owner, peers};
use super::reach::is_heard;
use super::trunks::{LOOKUP_INTERVAL, spread};
use super::{Endpoint, Output, Peer};
use crate::locate::{Answers, Lookup, targets};
use crate::lookups::{Refused, Urgency, Wish};
use crate::message::Request;
use crate::time::Time;
use crate::trunk::Tenant;

/// A request whose host is being looked up.
#[derive(Debug)]
pub(super) struct Waiting {
    what: What,
    /// Whose look-up it waits for.
    tenant: Tenant,
    urgency: Urgency,
}

#[derive(Debug)]
enum What {
    Request {
        owner: Owner,
        request: Box<Request>,
        /// Of a request within a dialog: where that was last heard, for a name that leads nowhere.
        flow: Option<Peer>,
    },
    Ack(Box<Ack>),
}

/// A name that was not found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    /// How often, one time after the other.
    times: u32,
    /// Nothing but a call has it looked up again before.
    pub(super) until: Time,
}

/// How soon a name is looked up again that was not found; twice as long each time, up to the interval in which those
/// are that were. One whose look-up found no room comes again as soon each time: the name is not at fault.
const FIRST_LOOKUP_AGAIN: Duration = Duration::from_secs(5);

/// Look-ups that are kept; beyond it the cache is emptied. A node has far fewer carriers.
const MOST_RESOLVED: usize = 4_096;

/// How long answers that are out of date serve.
const MOST_STALE: Duration = Duration::from_secs(3_600);

/// Requests that may wait for one name; more get 503.
const MOST_WAITING: usize = 1_024;

impl Endpoint {
    /// Where a name leads, as far as it was looked up. What is out of date serves while it is looked up
    /// again, so that calls do not wait for a resolver that is slow or away (RFC 8767 5).
    pub(super) fn known_targets(
        &mut self,
        now: Time,
        lookup: &Lookup,
        tenant: Tenant,
    ) -> Option<Vec<core::net::SocketAddr>> {
        let (until, answers) = self.resolved.get(lookup)?;
        let until = *until;
        if until + MOST_STALE <= now {
            return None;
        }
        let found = targets(lookup, answers, &mut self.ids);
        if until <= now {
            self.look_up(now, lookup, tenant, Urgency::Refresh);
        }
        Some(found)
    }

    /// Whose request it is.
    pub(super) fn tenant_of(&self, owner: Owner) -> Tenant {
        let tenant = match owner {
            Owner::Call(call, _) => self.calls.get(&call).map(|record| record.tenant),
            Owner::Registration(id) => self.registrations.get(&id).map(|record| record.tenant),
            Owner::Ping(trunk) => self.trunks.get(&trunk).map(|record| record.trunk.tenant),
            Owner::LeftBehind { .. } | Owner::Nobody => None,
        };
        tenant.unwrap_or_default()
    }

    /// Has a request wait for a name. One of a dialog that was heard over `flow` does not wait for a name that was not
    /// found a moment ago, nor for one that too many wait for.
    pub(super) fn wait_for(
        &mut self,
        now: Time,
        lookup: Lookup,
        owner: Owner,
        request: Request,
        flow: Option<&Peer>,
    ) {
        let flow = flow.filter(|flow| is_heard(flow)).cloned();
        let has_room = self.has_room_to_wait(&lookup);
        if flow.is_some() && !(has_room && self.is_worth_waiting(now, &lookup)) {
            return self.send_back(now, owner, request, flow);
        }
        if !has_room {
            let why = "too many requests wait for one name";
            return self.overloaded(now, owner, &request, why);
        }
        let tenant = self.tenant_of(owner);
        let urgency = match owner {
            Owner::Registration(_) | Owner::Ping(_) => Urgency::Refresh,
            Owner::Call(..) | Owner::LeftBehind { .. } | Owner::Nobody => Urgency::Call,
        };
        if self.look_up(now, &lookup, tenant, urgency) {
            let what = What::Request {
                owner,
                request: Box::new(request),
                flow,
            };
            let waiting = Waiting {
                what,
                tenant,
                urgency,
            };
            return self.waiting.entry(lookup).or_default().push(waiting);
        }
        self.send_back(now, owner, request, flow);
    }

    /// The same of an ACK, which is sent again with each 2xx that comes again: it waits once.
    pub(super) fn wait_to_acknowledge(
        &mut self,
        now: Time,
        lookup: Lookup,
        ack: Ack,
        tenant: Tenant,
    ) {
        let urgency = Urgency::Call;
        let worth = self.is_worth_waiting(now, &lookup) && self.has_room_to_wait(&lookup);
        if !worth || !self.look_up(now, &lookup, tenant, urgency) {
            let to = ack.flow.clone();
            return self.transmit_ack(ack, to);
        }
        let queue = self.waiting.entry(lookup).or_default();
        let waits = |own: &Waiting| matches!(&own.what, What::Ack(own) if own.branch == ack.branch);
        if !queue.iter().any(waits) {
            queue.push(Waiting {
                what: What::Ack(Box::new(ack)),
                tenant,
                urgency,
            });
        }
    }

    fn has_room_to_wait(&self, lookup: &Lookup) -> bool {
        self.waiting.get(lookup).map_or(0, Vec::len) < MOST_WAITING
    }

    fn is_worth_waiting(&self, now: Time, lookup: &Lookup) -> bool {
        self.failing.get(lookup).is_none_or(|own| own.until <= now)
    }

    /// Has a name looked up, unless that is under way. `false`: it was not found a while ago, and is not asked for
    /// again yet. A call has it asked for whatever was found before.
    pub(super) fn look_up(
        &mut self,
        now: Time,
        lookup: &Lookup,
        tenant: Tenant,
        urgency: Urgency,
    ) -> bool {
        let asking = self.asking.get(lookup).map_or(&[][..], Vec::as_slice);
        let as_good = |(whose, of): &(Tenant, Urgency)| *whose == tenant && *of <= urgency;
        if asking.iter().any(as_good) {
            return true;
        }
        let waits = self.failing.get(lookup).is_some_and(|own| own.until > now);
        if asking.is_empty() && urgency == Urgency::Refresh && waits {
            return false;
        }
        let asking = self.asking.entry(lookup.clone()).or_default();
        asking.push((tenant, urgency));
        self.out.push_back(Output::Resolve(Wish {
            lookup: lookup.clone(),
            tenant,
            urgency,
        }));
        true
    }

    /// A name was not found: when it is looked up again.
    fn not_found(&mut self, now: Time, lookup: &Lookup) -> Time {
        if self.failing.len() >= MOST_RESOLVED && !self.failing.contains_key(lookup) {
            self.failing.retain(|_, own| own.until > now);
            if self.failing.len() >= MOST_RESOLVED {
                self.failing.clear();
            }
        }
        let times = self.failing.get(lookup).map_or(0, |own| own.times);
        let wait = FIRST_LOOKUP_AGAIN * 2_u32.saturating_pow(times.min(10));
        let until = now + spread(&mut self.ids, wait.min(LOOKUP_INTERVAL));
        let times = times.saturating_add(1);
        self.failing
            .insert(lookup.clone(), Failing { times, until });
        until
    }

    pub(super) fn resolved(
        &mut self,
        now: Time,
        lookup: Lookup,
        answers: Option<Answers>,
        keep: Duration,
    ) {
        self.asking.remove(&lookup);
        let answers = answers.unwrap_or_default();
        self.admit_resolved(now, &lookup, &answers);
        let waiting = self.waiting.remove(&lookup).unwrap_or_default();
        let found = !targets(&lookup, &answers, &mut self.ids).is_empty();
        if found {
            self.failing.remove(&lookup);
            if self.resolved.len() >= MOST_RESOLVED {
                self.resolved.clear();
            }
            self.resolved
                .insert(lookup.clone(), (now + keep, answers.clone()));
        } else {
            let again = self.not_found(now, &lookup);
            self.look_later(&lookup, None, again);
        }
        for Waiting { what, .. } in waiting {
            // Each draws its own order, so that weights spread the calls.
            let order = targets(&lookup, &answers, &mut self.ids);
            let mut found = peers(&lookup, &order);
            match what {
                What::Request { owner, request, .. } if self.is_let_go(owner) => {
                    self.answer_made_up(now, owner, &request, 487);
                }
                What::Request {
                    owner,
                    request,
                    flow,
                } if found.is_empty() => self.send_back(now, owner, *request, flow),
                What::Request { owner, request, .. } => self.send(now, owner, *request, found),
                What::Ack(ack) => {
                    let to = found.pop_front().unwrap_or_else(|| ack.flow.clone());
                    self.transmit_ack(*ack, to);
                }
            }
        }
    }

    /// A look-up found no room, so nothing is known of its name. The requests of its tenant that waited for it are
    /// answered as in an overload, but for those which another look-up of the tenant serves.
    pub(super) fn look_up_refused(&mut self, now: Time, refused: Refused) {
        let Refused { wish, full } = refused;
        let Wish {
            lookup,
            tenant,
            urgency,
        } = wish;
        let mut asking = self.asking.remove(&lookup).unwrap_or_default();
        asking.retain(|asked| *asked != (tenant, urgency));
        let is_served = |waiting: &Waiting| {
            let mut asking = asking.iter();
            asking.any(|(whose, of)| *whose == waiting.tenant && *of <= waiting.urgency)
        };
        let waiting = self.waiting.remove(&lookup).unwrap_or_default();
        let (served, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_served);
        if urgency == Urgency::Refresh {
            let again = now + spread(&mut self.ids, FIRST_LOOKUP_AGAIN);
            self.look_later(&lookup, Some(tenant), again);
        }
        if !served.is_empty() {
            self.waiting.insert(lookup.clone(), served);
        }
        if !asking.is_empty() {
            self.asking.insert(lookup, asking);
        }
        for Waiting { what, .. } in left {
            match what {
                What::Request { owner, request, .. } if self.is_let_go(owner) => {
                    self.answer_made_up(now, owner, &request, 487);
                }
                What::Request {
                    owner,
                    request,
                    flow: flow @ Some(_),
                } => self.send_back(now, owner, *request, flow),
                What::Request { owner, request, .. } => {
                    self.overloaded(now, owner, &request, &full.to_string());
                }
                What::Ack(ack) => {
                    let to = ack.flow.clone();
                    self.transmit_ack(*ack, to);
                }
            }
        }
    }
}
