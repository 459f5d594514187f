//! Which look-up a thread asks next.
//!
//! A name whose server is silent holds one of the few threads for seconds. So that one account's names cannot hold
//! up the calls of others, every look-up is somebody's (a [`Tenant`]) and has an [`Urgency`], and
//!
//! - calls come before refreshes, and refreshes never have more than half of the threads;
//! - within each of the two the tenants take turns, and one has at most two threads;
//! - the look-ups of one tenant that wait are bounded, and so are those of all.
//!
//! A tenant's own calls never wait for its refreshes. Several tenants may want one name, each with a place of its
//! own: whoever's turn comes first has it looked up for all.

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

/// Look-ups of one tenant that wait, of either urgency: more than the names of the trunks that an account may have by
/// default. One more fails.
const MOST_OF_ONE: usize = 128;

/// Look-ups that wait in all: those of 32 tenants that fill their bounds, about 1 MiB. One more fails; a refresh
/// makes room for a call.
const MOST_WAITING: usize = 4_096;

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

/// The look-ups that wait, and those that are under way.
#[derive(Debug, Default)]
pub struct Queue {
    lanes: FxHashMap<Tenant, Lane>,
    /// The tenants that have lanes, in the order of their turns.
    turns: VecDeque<Tenant>,
    /// Whose lanes a look-up waits in.
    places: FxHashMap<Lookup, Vec<(Tenant, Urgency)>>,
    running: FxHashMap<Lookup, (Tenant, Urgency)>,
}

/// What one tenant waits for.
#[derive(Debug, Default)]
struct Lane {
    calls: VecDeque<Lookup>,
    refreshes: VecDeque<Lookup>,
}

impl Lane {
    fn of(&mut self, urgency: Urgency) -> &mut VecDeque<Lookup> {
        match urgency {
            Urgency::Call => &mut self.calls,
            Urgency::Refresh => &mut self.refreshes,
        }
    }
}

impl Queue {
    /// Puts a wish into its tenant's lane, unless the look-up is under way or has a place there that is as good.
    /// Gives back the look-up that has no room and fails: the one that is wished for, or a refresh that makes room
    /// for it.
    pub fn push(&mut self, wish: Wish) -> Option<Lookup> {
        let Wish {
            lookup,
            tenant,
            urgency,
        } = wish;
        if self.running.contains_key(&lookup) {
            return None;
        }
        let taken = self.places.get(&lookup).map_or(&[][..], Vec::as_slice);
        if taken
            .iter()
            .any(|(whose, place)| *whose == tenant && *place <= urgency)
        {
            return None;
        }
        let known = !taken.is_empty();
        let lane = self.lanes.entry(tenant).or_default();
        if lane.of(urgency).len() >= MOST_OF_ONE {
            self.forget_idle(tenant);
            // Where others wait for it, too, it is looked up in their turn.
            return (!known).then_some(lookup);
        }
        let mut out = None;
        if !known && self.places.len() >= MOST_WAITING {
            out = match urgency {
                Urgency::Call => self.drop_refresh(),
                Urgency::Refresh => None,
            };
            if out.is_none() {
                self.forget_idle(tenant);
                return Some(lookup);
            }
        }
        if !self.turns.contains(&tenant) {
            self.turns.push_back(tenant);
        }
        let lane = self.lanes.entry(tenant).or_default();
        lane.of(urgency).push_back(lookup.clone());
        self.places
            .entry(lookup)
            .or_default()
            .push((tenant, urgency));
        out
    }

    /// The look-up that is asked next, if a thread is free for one.
    pub fn take_next(&mut self) -> Option<Lookup> {
        if self.running.len() >= THREADS {
            return None;
        }
        let refreshing = self
            .running
            .values()
            .filter(|(_, of)| *of == Urgency::Refresh);
        let may_refresh = refreshing.count() < REFRESHES;
        let (tenant, urgency) = match self.whose_turn(Urgency::Call) {
            Some(tenant) => (tenant, Urgency::Call),
            None if may_refresh => (self.whose_turn(Urgency::Refresh)?, Urgency::Refresh),
            None => return None,
        };
        let lookup = self.lanes.get_mut(&tenant)?.of(urgency).front().cloned()?;
        // Its turn comes again after all others.
        self.turns.retain(|other| *other != tenant);
        self.turns.push_back(tenant);
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

    /// The first in turn that waits for such a look-up and may have another thread.
    fn whose_turn(&self, urgency: Urgency) -> Option<Tenant> {
        let has_work = |tenant: &&Tenant| {
            let lane = self.lanes.get(*tenant);
            lane.is_some_and(|lane| match urgency {
                Urgency::Call => !lane.calls.is_empty(),
                Urgency::Refresh => !lane.refreshes.is_empty(),
            })
        };
        let may_run = |tenant: &&Tenant| {
            let own = self
                .running
                .values()
                .filter(|by| **by == (**tenant, urgency));
            own.count() < SHARE
        };
        let mut turns = self.turns.iter();
        turns
            .find(|tenant| has_work(tenant) && may_run(tenant))
            .copied()
    }

    /// Takes a look-up out of all lanes.
    fn leave(&mut self, lookup: &Lookup) {
        for (tenant, urgency) in self.places.remove(lookup).unwrap_or_default() {
            if let Some(lane) = self.lanes.get_mut(&tenant) {
                lane.of(urgency).retain(|other| other != lookup);
            }
            self.forget_idle(tenant);
        }
    }

    /// Takes out the latest refresh of whoever has the most of them, if nobody else waits for it.
    fn drop_refresh(&mut self) -> Option<Lookup> {
        let lane = self
            .lanes
            .values()
            .max_by_key(|lane| lane.refreshes.len())?;
        let alone = |lookup: &&Lookup| self.places.get(*lookup).is_some_and(|own| own.len() == 1);
        let lookup = lane.refreshes.iter().rev().find(alone).cloned()?;
        self.leave(&lookup);
        Some(lookup)
    }

    /// A tenant that waits for nothing has no lane and no turn.
    fn forget_idle(&mut self, tenant: Tenant) {
        let idle = |lane: &Lane| lane.calls.is_empty() && lane.refreshes.is_empty();
        if self.lanes.get(&tenant).is_some_and(idle) {
            self.lanes.remove(&tenant);
            self.turns.retain(|other| *other != tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::message::Transport;
    use crate::time::Time;

    fn name(host: &str) -> Lookup {
        Lookup {
            host: host.to_owned(),
            port: None,
            transport: Transport::Udp,
        }
    }

    fn wish(tenant: u64, urgency: Urgency, host: &str) -> Wish {
        Wish {
            lookup: name(host),
            tenant: Tenant(tenant),
            urgency,
        }
    }

    /// Threads that ask, and a time of their own: a name that begins with `silent` takes four seconds, any other one
    /// twenty milliseconds.
    struct Threads {
        queue: Queue,
        now: Time,
        busy: Vec<(Time, Lookup)>,
        /// When each look-up was over.
        over: BTreeMap<String, Time>,
    }

    impl Threads {
        fn new() -> Self {
            Self {
                queue: Queue::default(),
                now: Time::from_secs(1),
                busy: Vec::new(),
                over: BTreeMap::new(),
            }
        }

        fn push(&mut self, wish: Wish) {
            assert_eq!(self.queue.push(wish), None);
            self.dispatch();
        }

        fn dispatch(&mut self) {
            while let Some(lookup) = self.queue.take_next() {
                let takes = match lookup.host.starts_with("silent") {
                    true => 4_000,
                    false => 20,
                };
                let until = self.now + std::time::Duration::from_millis(takes);
                self.busy.push((until, lookup));
            }
            assert!(self.busy.len() <= THREADS);
        }

        fn run_until(&mut self, until: Time) {
            loop {
                self.busy.sort_by_key(|(at, _)| *at);
                match self.busy.first() {
                    Some((at, _)) if *at <= until => {}
                    _ => break,
                }
                let (at, lookup) = self.busy.remove(0);
                self.now = at;
                self.queue.done(&lookup);
                self.over.insert(lookup.host, at);
                self.dispatch();
            }
            self.now = until;
        }

        fn run_for(&mut self, millis: u64) {
            self.run_until(self.now + std::time::Duration::from_millis(millis));
        }
    }

    #[test]
    fn the_silent_names_of_one_tenant_hold_up_nobody_elses_look_ups() {
        let mut threads = Threads::new();
        for at in 0..100 {
            threads.push(wish(1, Urgency::Refresh, &format!("silent{at}")));
        }
        for at in 100..200 {
            threads.push(wish(1, Urgency::Call, &format!("silent{at}")));
        }
        threads.run_for(1_000);
        let began = threads.now;
        threads.push(wish(2, Urgency::Call, "call.example"));
        threads.push(wish(3, Urgency::Refresh, "refresh.example"));
        threads.run_for(100);
        for host in ["call.example", "refresh.example"] {
            let took = threads.over.get(host).map(|at| at.since(began).as_millis());
            assert_eq!(took, Some(20), "{host}");
        }
    }

    #[test]
    fn a_tenants_calls_do_not_wait_for_its_own_refreshes() {
        let mut threads = Threads::new();
        for at in 0..100 {
            threads.push(wish(1, Urgency::Refresh, &format!("silent{at}")));
        }
        threads.push(wish(1, Urgency::Call, "call.example"));
        threads.run_for(100);
        assert!(threads.over.contains_key("call.example"));
    }

    #[test]
    fn many_tenants_with_silent_names_to_refresh_leave_half_of_the_threads_to_calls() {
        let mut threads = Threads::new();
        for tenant in 1..=50 {
            for at in 0..10 {
                let host = format!("silent{at}.of{tenant}");
                threads.push(wish(tenant, Urgency::Refresh, &host));
            }
        }
        assert_eq!(threads.busy.len(), REFRESHES);
        threads.push(wish(99, Urgency::Call, "call.example"));
        threads.run_for(100);
        assert!(threads.over.contains_key("call.example"));
        // Each tenant has had its turn before any has its second one.
        threads.run_for(4_000 * 15);
        let firsts = (1..=50).filter(|tenant| {
            let own = format!("silent0.of{tenant}");
            threads.over.contains_key(&own)
        });
        assert_eq!(firsts.count(), 50);
    }

    #[test]
    fn calls_take_turns_by_tenant_and_not_by_their_number() {
        let mut threads = Threads::new();
        for tenant in 1..=6 {
            for at in 0..100 {
                let host = format!("silent{at}.of{tenant}");
                threads.push(wish(tenant, Urgency::Call, &host));
            }
        }
        let began = threads.now;
        threads.push(wish(7, Urgency::Call, "call.example"));
        threads.run_for(9_000);
        // All threads are taken: the next that is free is its own.
        let took = threads.over["call.example"].since(began).as_millis();
        assert!(took <= 4_020, "{took} ms");
    }

    #[test]
    fn a_name_that_several_want_is_looked_up_once_in_the_turn_that_comes_first() {
        let mut queue = Queue::default();
        for at in 0..20 {
            assert_eq!(
                queue.push(wish(1, Urgency::Call, &format!("silent{at}"))),
                None
            );
        }
        // Behind the others of its tenant, then wanted by another one, and more urgently.
        assert_eq!(queue.push(wish(1, Urgency::Call, "shared")), None);
        assert_eq!(queue.push(wish(2, Urgency::Refresh, "shared")), None);
        assert_eq!(queue.push(wish(2, Urgency::Call, "shared")), None);
        assert_eq!(queue.waiting(), 21);
        let begun: Vec<Lookup> = std::iter::from_fn(|| queue.take_next()).collect();
        assert_eq!(begun, [name("silent0"), name("shared"), name("silent1")]);
        // Under way, it is not asked for again; afterwards it is.
        assert_eq!(queue.push(wish(3, Urgency::Call, "shared")), None);
        assert_eq!(queue.take_next(), None);
        queue.done(&name("shared"));
        assert_eq!(queue.push(wish(3, Urgency::Call, "shared")), None);
        assert_eq!(queue.take_next(), Some(name("shared")));
    }

    #[test]
    fn one_tenants_wishes_are_bounded_and_a_call_takes_the_place_of_a_refresh() {
        let mut queue = Queue::default();
        for at in 0..MOST_OF_ONE {
            assert_eq!(queue.push(wish(1, Urgency::Refresh, &at.to_string())), None);
        }
        let more = wish(1, Urgency::Refresh, "more");
        assert_eq!(queue.push(more), Some(name("more")));
        // What is known stays known, and calls have a bound of their own.
        assert_eq!(queue.push(wish(1, Urgency::Refresh, "0")), None);
        assert_eq!(queue.push(wish(1, Urgency::Call, "call")), None);
        let mut tenant = 2;
        while queue.waiting() < MOST_WAITING {
            for at in 0..MOST_OF_ONE {
                let host = format!("{at}.of{tenant}");
                queue.push(wish(tenant, Urgency::Refresh, &host));
            }
            tenant += 1;
        }
        let late = wish(99, Urgency::Refresh, "late");
        assert_eq!(queue.push(late), Some(name("late")));
        let out = queue.push(wish(99, Urgency::Call, "urgent"));
        assert!(out.is_some_and(|out| out != name("urgent")));
        assert_eq!(queue.waiting(), MOST_WAITING);
        assert_eq!(queue.take_next(), Some(name("call")));
        assert_eq!(queue.take_next(), Some(name("urgent")));
    }

    #[test]
    fn nothing_is_kept_of_who_waits_for_nothing() {
        let mut threads = Threads::new();
        for tenant in 1..=100 {
            threads.push(wish(tenant, Urgency::Refresh, &format!("of{tenant}")));
        }
        threads.run_for(10_000);
        let queue = &threads.queue;
        assert!(queue.lanes.is_empty() && queue.turns.is_empty());
        assert!(queue.places.is_empty() && queue.running.is_empty());
    }
}
