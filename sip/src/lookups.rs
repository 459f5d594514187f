//! Which look-up a thread asks next.
//!
//! A name whose server is silent holds one of the few threads for seconds. So that one account's names cannot hold
//! up the calls of others, every look-up is somebody's (a [`Tenant`]) and has an [`Urgency`], and
//!
//! - calls come before refreshes, but for one thread: where refreshes wait, one of them is always under way. They
//!   never have more than half of the threads;
//! - within each of the two the tenants take turns, and one has at most two threads. A turn of the one kind costs none
//!   of the other;
//! - the look-ups of one tenant that wait are bounded, and so are those of all. One that finds no room is [`Refused`]:
//!   nobody asked for its name, so nothing is known of it.
//!
//! A tenant's own calls never wait for its refreshes. Several tenants may want one name, each with a place of its
//! own: whoever's turn comes first has it looked up for all.

use core::fmt;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::locate::Lookup;
use crate::trunk::Tenant;

/// Look-ups at a time.
pub const THREADS: usize = 8;

/// Look-ups of one tenant at a time, of either urgency: a quarter, so that it takes four tenants with nothing but
/// silent names to have a call wait.
const SHARE: usize = THREADS / 4;

/// Refreshes at a time: whatever they ask for, half of the threads are there for calls.
const REFRESHES: usize = THREADS / 2;

/// Calls at a time where refreshes wait: one thread is left to those, so that calls with nothing but silent names
/// cannot keep the addresses of carriers from being renewed.
const CALLS: usize = THREADS - 1;

/// Look-ups that wait in all. One has a name of at most 255 bytes, so that is about 1 MiB. One more is refused; a
/// refresh makes room for a call.
const MOST_WAITING: usize = 4_096;

/// Tenants who may fill their bounds before others find no room: eight times as many as can hold all threads.
const FILLED: usize = 8 * THREADS / SHARE;

/// Look-ups of one tenant that wait, of either urgency: 128, its part of the room. That is more than the 100 trunks
/// which an account may have by default, whose names are all wanted when a server starts. An account with more names
/// has the rest looked up seconds later: 128 names that are answered within 20 ms take its two threads 1.3 s.
const MOST_OF_ONE: usize = MOST_WAITING / FILLED;

/// What a look-up is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Somebody waits for it: a call, or a request within one.
    Call,
    /// A registration, a carrier that is asked whether it is there, a name that is looked up again.
    Refresh,
}

/// A look-up that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub lookup: Lookup,
    pub tenant: Tenant,
    pub urgency: Urgency,
}

/// A look-up that found no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub wish: Wish,
    pub full: Full,
}

/// What was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The tenant's own part.
    Tenant,
    /// All there is.
    Queue,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "too many look-ups of this account are waiting",
            Self::Queue => "too many look-ups are waiting",
        })
    }
}

/// The look-ups that wait, and those that are under way.
#[derive(Debug, Default)]
pub struct Queue {
    calls: Turns,
    refreshes: Turns,
    /// Whose lanes a look-up waits in.
    places: FxHashMap<Lookup, Vec<(Tenant, Urgency)>>,
    running: FxHashMap<Lookup, (Tenant, Urgency)>,
}

/// The look-ups of one urgency that wait.
#[derive(Debug, Default)]
struct Turns {
    lanes: FxHashMap<Tenant, VecDeque<Lookup>>,
    /// The tenants that have lanes, in the order of their turns.
    order: VecDeque<Tenant>,
}

impl Turns {
    fn waiting(&self, tenant: Tenant) -> usize {
        self.lanes.get(&tenant).map_or(0, VecDeque::len)
    }

    fn push(&mut self, tenant: Tenant, lookup: Lookup) {
        let lane = self.lanes.entry(tenant).or_default();
        if lane.is_empty() {
            self.order.push_back(tenant);
        }
        lane.push_back(lookup);
    }

    /// The next look-up of a tenant, whose turn comes again after all others.
    fn take_turn(&mut self, tenant: Tenant) -> Option<Lookup> {
        self.order.retain(|other| *other != tenant);
        self.order.push_back(tenant);
        self.lanes.get(&tenant)?.front().cloned()
    }

    /// Takes a look-up out of a tenant's lane. A tenant that waits for nothing has no lane and no turn.
    fn remove(&mut self, tenant: Tenant, lookup: &Lookup) {
        let Some(lane) = self.lanes.get_mut(&tenant) else {
            return;
        };
        lane.retain(|other| other != lookup);
        if lane.is_empty() {
            self.lanes.remove(&tenant);
            self.order.retain(|other| *other != tenant);
        }
    }
}

impl Queue {
    /// Puts a wish into its tenant's lane, unless the look-up is under way or has a place there that is as good.
    /// Gives back the wish that has no room: this one, or a refresh that makes room for it.
    pub fn push(&mut self, wish: Wish) -> Option<Refused> {
        let (tenant, urgency) = (wish.tenant, wish.urgency);
        if self.running.contains_key(&wish.lookup) {
            return None;
        }
        let taken = self.places.get(&wish.lookup);
        let taken = taken.map_or(&[][..], Vec::as_slice);
        let as_good = |(whose, place): &(Tenant, Urgency)| *whose == tenant && *place <= urgency;
        if taken.iter().any(as_good) {
            return None;
        }
        if self.turns(urgency).waiting(tenant) >= MOST_OF_ONE {
            let full = Full::Tenant;
            return Some(Refused { wish, full });
        }
        let mut out = None;
        if taken.is_empty() && self.places.len() >= MOST_WAITING {
            let full = Full::Queue;
            out = match urgency {
                Urgency::Call => self.drop_refresh().map(|wish| Refused { wish, full }),
                Urgency::Refresh => None,
            };
            if out.is_none() {
                return Some(Refused { wish, full });
            }
        }
        self.turns_mut(urgency).push(tenant, wish.lookup.clone());
        let places = self.places.entry(wish.lookup).or_default();
        places.push((tenant, urgency));
        out
    }

    /// The look-up that is asked next, if a thread is free for one.
    pub fn take_next(&mut self) -> Option<Lookup> {
        if self.running.len() >= THREADS {
            return None;
        }
        let of = |urgency: Urgency| {
            let running = self.running.values();
            running.filter(|(_, of)| *of == urgency).count()
        };
        let refreshes = match of(Urgency::Refresh) < REFRESHES {
            true => self.whose_turn(Urgency::Refresh),
            false => None,
        };
        let starved = refreshes.is_some() && of(Urgency::Refresh) == 0;
        let calls = match starved && of(Urgency::Call) >= CALLS {
            true => None,
            false => self.whose_turn(Urgency::Call),
        };
        let (tenant, urgency) = match calls {
            Some(tenant) => (tenant, Urgency::Call),
            None => (refreshes?, Urgency::Refresh),
        };
        let lookup = self.turns_mut(urgency).take_turn(tenant)?;
        self.leave(&lookup);
        self.running.insert(lookup.clone(), (tenant, urgency));
        Some(lookup)
    }

    /// A look-up that was under way has its answer.
    pub fn done(&mut self, lookup: &Lookup) {
        self.running.remove(lookup);
    }

    /// How many look-ups wait.
    pub fn waiting(&self) -> usize {
        self.places.len()
    }

    fn turns(&self, urgency: Urgency) -> &Turns {
        match urgency {
            Urgency::Call => &self.calls,
            Urgency::Refresh => &self.refreshes,
        }
    }

    fn turns_mut(&mut self, urgency: Urgency) -> &mut Turns {
        match urgency {
            Urgency::Call => &mut self.calls,
            Urgency::Refresh => &mut self.refreshes,
        }
    }

    /// The first in turn that waits for such a look-up and may have another thread.
    fn whose_turn(&self, urgency: Urgency) -> Option<Tenant> {
        let may_run = |tenant: &&Tenant| {
            let running = self.running.values();
            let own = running.filter(|by| **by == (**tenant, urgency));
            own.count() < SHARE
        };
        self.turns(urgency).order.iter().find(may_run).copied()
    }

    /// Takes a look-up out of all lanes.
    fn leave(&mut self, lookup: &Lookup) {
        for (tenant, urgency) in self.places.remove(lookup).unwrap_or_default() {
            self.turns_mut(urgency).remove(tenant, lookup);
        }
    }

    /// Takes out the latest refresh of whoever has the most of them, if nobody else waits for it.
    fn drop_refresh(&mut self) -> Option<Wish> {
        let lanes = self.refreshes.lanes.iter();
        let (tenant, lane) = lanes.max_by_key(|(_, lane)| lane.len())?;
        let alone = |lookup: &&Lookup| self.places.get(*lookup).is_some_and(|own| own.len() == 1);
        let (tenant, lookup) = (*tenant, lane.iter().rev().find(alone).cloned()?);
        self.leave(&lookup);
        Some(Wish {
            lookup,
            tenant,
            urgency: Urgency::Refresh,
        })
    }
}

#[cfg(test)]
mod tests;
