//! Who is next, and how many may run beside each other. Pure.
//!
//! The worker asks for the accounts' turns, reads what is due in each, and lets [`Shares`] choose. Three
//! bounds hold at every moment: of the node, of an account, and of a lane within an account.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::kind::{Found, Plan};
use crate::ids::AccountId;

/// How many steps of a kind run at the same time on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all accounts together.
    pub node: usize,
    /// Of one account.
    pub account: usize,
    /// Of one account, for what a lane calls scarce; at least 1.
    pub lane: usize,
}

/// What jobs of one account may crowd: a receiver, a thread. Lanes are equal when the same rows are theirs.
pub trait Lane: Clone + PartialEq + Send + Sync + 'static {
    /// What is scarce in it. Several lanes may lead to the same: two addresses at one host. `None`: nothing.
    fn scarce(&self) -> Option<&str>;
}

impl Lane for () {
    fn scarce(&self) -> Option<&str> {
        None
    }
}

/// How long a claim lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// As long as the longest step and the time to write down how it went. It is not renewed.
    Bounded(Duration),
    /// The time after which the job of a process that died is due again. It is renewed while the step runs.
    Renewed(Duration),
}

impl Lease {
    pub const fn length(self) -> Duration {
        match self {
            Self::Bounded(length) | Self::Renewed(length) => length,
        }
    }

    /// How often the claim is renewed: two renewals may fail before it runs out.
    pub fn renewed_every(self) -> Option<Duration> {
        match self {
            Self::Bounded(_) => None,
            Self::Renewed(length) => Some(length / 3),
        }
    }
}

/// The steps in flight, each under a key, and whose turn it is.
#[derive(Debug)]
pub struct Shares<T, L> {
    limits: Limits,
    seats: HashMap<T, Turn<L>>,
    /// The account that was served last: the next one comes first.
    last: AccountId,
}

/// Whose step it is.
#[derive(Debug)]
struct Turn<L> {
    account: AccountId,
    lane: L,
}

impl<T: Eq + Hash, L: Lane> Shares<T, L> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            seats: HashMap::new(),
            last: AccountId::NIL,
        }
    }

    /// Whether the node has no room for another step.
    pub fn is_full(&self) -> bool {
        self.seats.len() >= self.limits.node
    }

    /// The accounts in the order of their turns. They come sorted.
    pub fn turns(&self, mut accounts: Vec<AccountId>) -> Vec<AccountId> {
        let after_last = accounts.partition_point(|account| *account <= self.last);
        accounts.rotate_left(after_last);
        accounts
    }

    /// Notes that it was this account's turn.
    pub fn serve(&mut self, account: AccountId) {
        self.last = account;
    }

    /// How many more steps the account may have in flight.
    pub fn room(&self, account: AccountId) -> usize {
        let own = self.of(account).count();
        let on_node = self.limits.node.saturating_sub(self.seats.len());
        self.limits.account.saturating_sub(own).min(on_node)
    }

    /// The lanes of the account that lead to something which has its share in flight.
    pub fn full(&self, account: AccountId) -> Vec<L> {
        let mut full: Vec<L> = Vec::new();
        for lane in self.of(account) {
            if !full.contains(lane) && self.crowd(account, lane) >= self.limits.lane {
                full.push(lane.clone());
            }
        }
        full
    }

    /// Which of the due rows are claimed or closed now. Lanes that turn out to be full are added to `full`:
    /// others may have taken the share of what they lead to.
    pub fn choose<S>(
        &self,
        account: AccountId,
        found: Vec<Found<L, S>>,
        full: &mut Vec<L>,
    ) -> Vec<Found<L, S>> {
        let room = self.room(account);
        let mut steps = 0;
        let mut chosen: Vec<Found<L, S>> = Vec::new();
        for one in found {
            let Plan::Run(lane) = &one.plan else {
                chosen.push(one);
                continue;
            };
            let beside = chosen.iter().filter(|other| match &other.plan {
                Plan::Run(other) => is_shared(other, lane),
                Plan::Close(_) => false,
            });
            if self.crowd(account, lane) + beside.count() >= self.limits.lane {
                if !full.contains(lane) {
                    full.push(lane.clone());
                }
            } else if steps < room {
                steps += 1;
                chosen.push(one);
            }
        }
        chosen
    }

    /// A step began.
    pub fn take(&mut self, key: T, account: AccountId, lane: L) {
        self.seats.insert(key, Turn { account, lane });
    }

    /// A step is over.
    pub fn give_back(&mut self, key: &T) {
        self.seats.remove(key);
    }

    fn of(&self, account: AccountId) -> impl Iterator<Item = &L> {
        let own = self.seats.values();
        own.filter(move |seat| seat.account == account)
            .map(|seat| &seat.lane)
    }

    /// How many steps in flight use what is scarce in the lane.
    fn crowd(&self, account: AccountId, lane: &L) -> usize {
        let own = self.of(account);
        own.filter(|other| is_shared(*other, lane)).count()
    }
}

fn is_shared<L: Lane>(one: &L, other: &L) -> bool {
    one.scarce().is_some() && one.scarce() == other.scarce()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// A receiver of a test: its own rows, at a host.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct At {
        row: u8,
        host: &'static str,
    }

    impl Lane for At {
        fn scarce(&self) -> Option<&str> {
            (!self.host.is_empty()).then_some(self.host)
        }
    }

    const HOSTS: [&str; 3] = ["a.example", "b.example", ""];

    fn lane(row: u8) -> At {
        At {
            row,
            host: HOSTS[usize::from(row) % 3],
        }
    }

    fn account(number: usize) -> AccountId {
        AccountId(Uuid::from_u128(number as u128 + 1))
    }

    /// Everything that a worker does but for the database: waiting jobs in their order, by account.
    struct Model {
        limits: Limits,
        shares: Shares<u32, At>,
        waiting: BTreeMap<AccountId, VecDeque<u8>>,
        running: Vec<(u32, AccountId, At)>,
        next: u32,
        /// Steps that others began since the account could have begun one.
        passed_over: BTreeMap<AccountId, usize>,
    }

    impl Model {
        fn can_begin(&self, account: AccountId) -> bool {
            let own = || self.running.iter().filter(move |(_, of, _)| *of == account);
            let free = |lane: &At| {
                let crowd =
                    own().filter(|(_, _, other)| !lane.host.is_empty() && other.host == lane.host);
                crowd.count() < self.limits.lane
            };
            own().count() < self.limits.account
                && self.waiting[&account].iter().any(|row| free(&lane(*row)))
        }

        /// As `Worker::fill`, reading `batch` rows at a time.
        fn fill(&mut self, batch: usize) {
            let due = self.waiting.iter().filter(|(_, rows)| !rows.is_empty());
            let due = due.map(|(account, _)| *account).collect();
            for account in self.shares.turns(due) {
                if self.shares.is_full() {
                    break;
                }
                self.shares.serve(account);
                let mut full = self.shares.full(account);
                loop {
                    if self.shares.room(account) == 0 {
                        break;
                    }
                    let rows = self.waiting[&account].iter().map(|row| lane(*row));
                    let rows = rows.filter(|lane| !full.contains(lane)).take(batch);
                    let found: Vec<Found<At, ()>> = rows
                        .map(|lane| Found {
                            id: Uuid::nil(),
                            plan: Plan::Run(lane),
                        })
                        .collect();
                    let (all, known) = (found.len() < batch, full.len());
                    let chosen = self.shares.choose(account, found, &mut full);
                    let more = !all && (!chosen.is_empty() || full.len() > known);
                    for one in chosen {
                        let Plan::Run(lane) = one.plan else { continue };
                        let rows = self.waiting.get_mut(&account).unwrap();
                        let at = rows.iter().position(|row| *row == lane.row).unwrap();
                        rows.remove(at);
                        self.shares.take(self.next, account, lane.clone());
                        self.running.push((self.next, account, lane));
                        self.next += 1;
                        for (other, passed) in &mut self.passed_over {
                            *passed = if *other == account { 0 } else { *passed + 1 };
                        }
                    }
                    if !more {
                        break;
                    }
                }
            }
        }

        fn check(&mut self) {
            assert!(self.running.len() <= self.limits.node);
            let accounts: Vec<AccountId> = self.waiting.keys().copied().collect();
            for account in &accounts {
                let own: Vec<&At> = self
                    .running
                    .iter()
                    .filter(|(_, of, _)| of == account)
                    .map(|(_, _, lane)| lane)
                    .collect();
                assert!(own.len() <= self.limits.account);
                for host in &HOSTS[..2] {
                    let there = own.iter().filter(|lane| lane.host == *host).count();
                    assert!(there <= self.limits.lane, "{there} at {host}");
                }
                let can_begin = self.can_begin(*account);
                assert!(
                    !can_begin || self.running.len() == self.limits.node,
                    "room is left, and a job waits"
                );
                let passed = self.passed_over.get_mut(account).unwrap();
                // Every other account has had its turn once by then.
                assert!(
                    *passed <= accounts.len() * self.limits.account,
                    "{passed} came before"
                );
                if !can_begin {
                    *passed = 0;
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn shares_hold_no_room_is_wasted_and_nobody_is_passed_over(
            jobs in prop::collection::vec(prop::collection::vec(0_u8..9, 0..60), 1..6),
            limits in (1_usize..12, 1_usize..6, 1_usize..4),
            batch in 1_usize..6,
            ends in prop::collection::vec(any::<prop::sample::Index>(), 300),
        ) {
            let limits = Limits { node: limits.0, account: limits.1, lane: limits.2 };
            let waiting: BTreeMap<AccountId, VecDeque<u8>> = jobs
                .into_iter()
                .enumerate()
                .map(|(number, rows)| (account(number), rows.into()))
                .collect();
            let mut model = Model {
                limits,
                shares: Shares::new(limits),
                passed_over: waiting.keys().map(|account| (*account, 0)).collect(),
                waiting,
                running: Vec::new(),
                next: 0,
            };
            let all: usize = model.waiting.values().map(VecDeque::len).sum();
            for end in ends {
                model.fill(batch);
                model.check();
                if model.running.is_empty() {
                    break;
                }
                let (key, ..) = model.running.swap_remove(end.index(model.running.len()));
                model.shares.give_back(&key);
            }
            prop_assert!(model.waiting.values().all(VecDeque::is_empty));
            prop_assert_eq!(model.next as usize, all);
        }
    }

    #[test]
    fn what_is_closed_takes_no_room() {
        let limits = Limits {
            node: 1,
            account: 1,
            lane: 1,
        };
        let shares: Shares<u32, ()> = Shares::new(limits);
        let plans = [Plan::Close(7), Plan::Run(()), Plan::Close(8), Plan::Run(())];
        let found = plans.map(|plan| Found {
            id: Uuid::nil(),
            plan,
        });
        let mut full = Vec::new();
        let chosen = shares.choose(account(0), found.into(), &mut full);
        let plans: Vec<_> = chosen.into_iter().map(|one| one.plan).collect();
        assert_eq!(plans, [Plan::Close(7), Plan::Run(()), Plan::Close(8)]);
        assert!(full.is_empty());
    }

    #[test]
    fn a_renewed_claim_outlives_two_failures() {
        let minute = Duration::from_secs(60);
        assert_eq!(
            Lease::Renewed(minute).renewed_every(),
            Some(Duration::from_secs(20))
        );
        assert_eq!(Lease::Bounded(minute).renewed_every(), None);
        assert_eq!(Lease::Bounded(minute).length(), minute);
    }
}
