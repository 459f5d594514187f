//! Whose look-ups are begun in which order, against a time of their own.

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
    /// Whose look-ups were begun, one after the other.
    begun: Vec<(Tenant, Urgency)>,
    /// When each look-up was over.
    over: BTreeMap<String, Time>,
    refused: usize,
}

impl Threads {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            now: Time::from_secs(1),
            busy: Vec::new(),
            begun: Vec::new(),
            over: BTreeMap::new(),
            refused: 0,
        }
    }

    /// A tenant may wish for more than it has room for, and nothing else is refused.
    fn push(&mut self, wish: Wish) {
        if let Some(refused) = self.queue.push(wish.clone()) {
            let full = Full::Tenant;
            assert_eq!(refused, Refused { wish, full });
            self.refused += 1;
        }
        self.dispatch();
    }

    fn push_silent(&mut self, tenant: u64, urgency: Urgency, count: usize) {
        for at in 0..count {
            let host = format!("silent{at}.{urgency:?}.of{tenant}");
            self.push(wish(tenant, urgency, &host));
        }
    }

    fn dispatch(&mut self) {
        while let Some(lookup) = self.queue.take_next() {
            let takes = match lookup.host.starts_with("silent") {
                true => 4_000,
                false => 20,
            };
            self.begun.push(self.queue.running[&lookup]);
            let until = self.now + std::time::Duration::from_millis(takes);
            self.busy.push((until, lookup));
        }
        assert!(self.busy.len() <= THREADS);
    }

    fn running(&self, urgency: Urgency) -> usize {
        let running = self.queue.running.values();
        running.filter(|(_, of)| *of == urgency).count()
    }

    /// How long a look-up took that was asked for then, ms.
    fn took(&self, host: &str, asked: Time) -> Option<u128> {
        self.over.get(host).map(|at| at.since(asked).as_millis())
    }

    /// The look-up that is over next, if it is by then.
    fn finish_one(&mut self, until: Time) -> bool {
        self.busy.sort_by_key(|(at, _)| *at);
        match self.busy.first() {
            Some((at, _)) if *at <= until => {}
            _ => return false,
        }
        let (at, lookup) = self.busy.remove(0);
        self.now = at;
        self.queue.done(&lookup);
        self.over.insert(lookup.host, at);
        self.dispatch();
        true
    }

    fn run_until(&mut self, until: Time) {
        while self.finish_one(until) {}
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
        assert_eq!(threads.took(host, began), Some(20), "{host}");
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
    let refused = |wish: &Wish, full| {
        let wish = wish.clone();
        Some(Refused { wish, full })
    };
    let more = wish(1, Urgency::Refresh, "more");
    assert_eq!(queue.push(more.clone()), refused(&more, Full::Tenant));
    // Though another one waits for the same name.
    assert_eq!(queue.push(wish(2, Urgency::Refresh, "more")), None);
    assert_eq!(queue.push(more.clone()), refused(&more, Full::Tenant));
    // What is known stays known, and calls have a bound of their own.
    assert_eq!(queue.push(wish(1, Urgency::Refresh, "0")), None);
    assert_eq!(queue.push(wish(1, Urgency::Call, "call")), None);
    let mut tenant = 3;
    while queue.waiting() < MOST_WAITING {
        for at in 0..MOST_OF_ONE {
            let host = format!("{at}.of{tenant}");
            queue.push(wish(tenant, Urgency::Refresh, &host));
        }
        tenant += 1;
    }
    let late = wish(99, Urgency::Refresh, "late");
    assert_eq!(queue.push(late.clone()), refused(&late, Full::Queue));
    let out = queue.push(wish(99, Urgency::Call, "urgent")).unwrap();
    assert_eq!(
        (out.wish.urgency, out.full),
        (Urgency::Refresh, Full::Queue)
    );
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
    for turns in [&queue.calls, &queue.refreshes] {
        assert!(turns.lanes.is_empty() && turns.order.is_empty());
    }
    assert!(queue.places.is_empty() && queue.running.is_empty());
}

/// One account has 300 silent names; each of the others has one call, and one name to refresh.
#[test]
fn every_other_account_waits_one_turn_of_each_at_most() {
    for others in [1_u64, 7, 60, 400] {
        let mut threads = Threads::new();
        for urgency in [Urgency::Refresh, Urgency::Call] {
            threads.push_silent(1, urgency, 300);
        }
        assert_eq!(threads.refused, 2 * (300 - MOST_OF_ONE - SHARE));
        let (asked, before) = (threads.now, threads.begun.len());
        for tenant in 2..2 + others {
            threads.push(wish(tenant, Urgency::Call, &format!("call.{tenant}")));
            threads.push(wish(tenant, Urgency::Refresh, &format!("refresh.{tenant}")));
        }
        threads.run_for(60_000);
        for urgency in [Urgency::Call, Urgency::Refresh] {
            let begun = threads.begun[before..].iter();
            let begun: Vec<Tenant> = begun
                .filter(|(_, of)| *of == urgency)
                .map(|(own, _)| *own)
                .collect();
            for tenant in 2..2 + others {
                let turns = begun.iter().position(|own| *own == Tenant(tenant)).unwrap();
                assert!(
                    turns <= usize::try_from(others).unwrap(),
                    "{turns} of {others}"
                );
            }
        }
        // Two threads of each kind are the silent names', at the worst.
        let took = threads
            .took(&format!("call.{}", 1 + others), asked)
            .unwrap();
        assert!(took <= u128::from(others) * 20, "{took} ms");
        let took = threads
            .took(&format!("refresh.{}", 1 + others), asked)
            .unwrap();
        assert!(took <= u128::from(others) * 20, "{took} ms");
    }
}

/// However many calls with silent names come, and go on coming.
#[test]
fn calls_that_hold_all_threads_leave_one_to_refreshes() {
    let mut threads = Threads::new();
    let calls = |threads: &mut Threads| {
        for tenant in 1..=20 {
            threads.push_silent(tenant, Urgency::Call, MOST_OF_ONE);
        }
    };
    calls(&mut threads);
    assert_eq!(threads.running(Urgency::Call), THREADS);
    let asked = threads.now;
    for tenant in 30..90 {
        threads.push(wish(tenant, Urgency::Refresh, &format!("refresh.{tenant}")));
    }
    threads.run_for(4_000);
    for _ in 0..20 {
        calls(&mut threads);
        threads.run_for(100);
    }
    for tenant in 30..90 {
        let took = threads.took(&format!("refresh.{tenant}"), asked).unwrap();
        assert!(took <= 4_000 + 60 * 20, "{took} ms");
    }
    // Silent ones have that thread and no more.
    threads.push_silent(30, Urgency::Refresh, 10);
    threads.run_for(40_000);
    let of = |urgency| {
        threads
            .begun
            .iter()
            .filter(|(_, of)| *of == urgency)
            .count()
    };
    assert_eq!(threads.running(Urgency::Refresh), 1);
    assert_eq!(threads.running(Urgency::Call), CALLS);
    assert!(of(Urgency::Refresh) > 60 + 8, "{}", of(Urgency::Refresh));
    // A thread that no refresh wants is the calls'.
    threads.run_for(40_000);
    assert_eq!(threads.running(Urgency::Call), THREADS);
}

#[test]
fn a_turn_of_a_refresh_costs_no_turn_of_a_call() {
    let mut queue = Queue::default();
    for tenant in [1, 2] {
        queue.push(wish(tenant, Urgency::Refresh, &format!("refresh.{tenant}")));
    }
    assert_eq!(queue.take_next(), Some(name("refresh.1")));
    for tenant in [1, 2] {
        queue.push(wish(tenant, Urgency::Call, &format!("call.{tenant}")));
    }
    // Tenant 2 has waited for its refresh for longer, and tenant 1 for its call.
    assert_eq!(queue.take_next(), Some(name("call.1")));
    assert_eq!(queue.take_next(), Some(name("call.2")));
    assert_eq!(queue.take_next(), Some(name("refresh.2")));
}

/// Accounts that ask at random, for names that answer and names that do not: no thread is idle while somebody may
/// have it, the bounds hold, and nobody has two turns before one who waits for as long.
#[test]
fn turns_are_fair_whoever_asks_for_what() {
    use crate::ids::Ids;
    for seed in 0..40 {
        let mut ids = Ids::from_number(seed);
        let mut threads = Threads::new();
        let tenants = 2 + ids.below(12);
        // Who had a turn since the tenant waits and may have one itself.
        let mut passed: BTreeMap<(Tenant, Urgency), Vec<Tenant>> = BTreeMap::new();
        for at in 0..600 {
            let before = threads.begun.len();
            if ids.below(3) > 0 {
                let tenant = 1 + ids.below(tenants);
                let urgency = [Urgency::Call, Urgency::Refresh][usize::from(ids.below(2) == 0)];
                let kind = ["silent", "quick"][usize::from(ids.below(3) == 0)];
                threads.push(wish(tenant, urgency, &format!("{kind}{at}")));
            } else {
                threads.finish_one(Time::NEVER);
            }
            let queue = &threads.queue;
            let of = |tenant, urgency| {
                let running = queue.running.values();
                running.filter(|by| **by == (tenant, urgency)).count()
            };
            for (had, urgency) in &threads.begun[before..] {
                passed.remove(&(*had, *urgency));
                for ((tenant, kind), passed) in &mut passed {
                    if kind == urgency {
                        assert!(!passed.contains(had), "{had:?} twice before {tenant:?}");
                        passed.push(*had);
                    }
                }
            }
            for urgency in [Urgency::Call, Urgency::Refresh] {
                for tenant in (1..=tenants).map(Tenant) {
                    let running = of(tenant, urgency);
                    assert!(running <= SHARE);
                    let waits = queue.turns(urgency).waiting(tenant) > 0 && running < SHARE;
                    match waits {
                        true => _ = passed.entry((tenant, urgency)).or_default(),
                        false => _ = passed.remove(&(tenant, urgency)),
                    }
                    let idle = threads.busy.len() < THREADS
                        && (urgency == Urgency::Call || threads.running(urgency) < REFRESHES);
                    assert!(
                        !(waits && idle),
                        "{tenant:?} waits for a thread that is free"
                    );
                }
            }
            assert!(threads.running(Urgency::Refresh) <= REFRESHES);
        }
    }
}
