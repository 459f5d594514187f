//! The rules of the lease book one by one, and that no order of events breaks its counts.

#![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::http::error::Reason;

const CAPS: Caps = Caps {
    account: 2,
    pool: 3,
    node: 3,
};
const T0: Moment = Moment::from_micros(1_000_000_000);

fn request(lease: u128, owner: &str, account: u128, state: State) -> Request {
    Request {
        lease: CallId(Uuid::from_u128(lease)),
        owner: Owner::new(owner, 1),
        account: AccountId(Uuid::from_u128(account)),
        agent: None,
        trunk: None,
        beyond: false,
        state,
    }
}

#[test]
fn a_full_account_is_named_with_its_numbers() {
    let mut book = Book::new(CAPS);
    for lease in 1..=2 {
        assert_eq!(
            book.acquire(&request(lease, "a", 7, State::Live), T0),
            Ok(())
        );
    }
    let refusal = book.acquire(&request(3, "a", 7, State::Live), T0).err();
    assert_eq!(
        refusal,
        Some(Refusal {
            reason: Reason::Capacity,
            resource: Some("account"),
            current: Some(2),
            cap: Some(2),
            retry_after: 5
        })
    );
    assert_eq!(book.acquire(&request(4, "a", 8, State::Live), T0), Ok(()));
    let pool = book.acquire(&request(5, "a", 9, State::Live), T0).err();
    assert_eq!(pool.and_then(|refusal| refusal.resource), Some("pool"));
}

#[test]
fn a_full_node_is_the_servers_fault() {
    let mut book = Book::new(Caps { node: 1, ..CAPS });
    assert_eq!(book.acquire(&request(1, "a", 1, State::Live), T0), Ok(()));
    let refusal = book.acquire(&request(2, "a", 2, State::Live), T0).err();
    assert_eq!(
        refusal.map(|refusal| (refusal.reason, refusal.resource)),
        Some((Reason::ServiceUnavailable, Some("node")))
    );
}

#[test]
fn a_clock_that_goes_back_prolongs_no_lease_for_longer_than_one_lasts() {
    for seconds in [3_600, 86_400] {
        let mut book = Book::new(CAPS);
        let late = T0.plus(Duration::from_secs(seconds));
        book.acquire(&request(1, "a", 1, State::Live), late)
            .unwrap();
        book.acquire(&request(2, "a", 1, State::Pending), late)
            .unwrap();
        book.expire(T0);
        let at = |after: u64| T0.plus(Duration::from_secs(after));
        let counted = [0, 14, 15, 59, 60].map(|after| {
            book.expire(at(after));
            let counts = book.counts();
            (counts.pending, counts.live)
        });
        assert_eq!(counted, [(1, 1), (1, 1), (1, 0), (1, 0), (0, 0)]);
    }
}

#[test]
fn the_same_owner_may_ask_twice_and_another_may_not() {
    let mut book = Book::new(CAPS);
    for _ in 0..3 {
        assert_eq!(book.acquire(&request(1, "a", 1, State::Live), T0), Ok(()));
    }
    assert_eq!(
        book.counts(),
        Counts {
            pending: 0,
            live: 1
        }
    );
    let refusal = book.acquire(&request(1, "b", 1, State::Live), T0).err();
    assert_eq!(
        refusal.map(|refusal| refusal.reason),
        Some(Reason::DuplicateLease)
    );
}

#[test]
fn a_pending_lease_is_adopted_once() {
    let mut book = Book::new(CAPS);
    assert_eq!(
        book.acquire(&request(1, "a", 1, State::Pending), T0),
        Ok(())
    );
    assert_eq!(book.adopt(&request(1, "b", 1, State::Live), T0), Ok(()));
    assert_eq!(
        book.counts(),
        Counts {
            pending: 0,
            live: 1
        }
    );
    let late = book.adopt(&request(1, "a", 1, State::Live), T0).err();
    assert_eq!(
        late.map(|refusal| refusal.reason),
        Some(Reason::DuplicateLease)
    );
    assert_eq!(
        book.adopt(&request(1, "b", 1, State::Live), T0),
        Ok(()),
        "again by its owner"
    );
}

#[test]
fn leases_run_out_and_renewal_brings_them_back() {
    let mut book = Book::new(CAPS);
    assert_eq!(
        book.acquire(&request(1, "a", 1, State::Pending), T0),
        Ok(())
    );
    assert_eq!(book.acquire(&request(2, "a", 1, State::Live), T0), Ok(()));
    book.expire(T0.plus(Duration::from_secs(15)));
    assert_eq!(
        book.counts(),
        Counts {
            pending: 1,
            live: 0
        }
    );
    book.expire(T0.plus(Duration::from_secs(60)));
    assert_eq!(book.counts(), Counts::default());
    let renewal = Renewal {
        lease: CallId(Uuid::from_u128(2)),
        account: AccountId(Uuid::from_u128(1)),
        agent: None,
        trunk: None,
        state: State::Live,
    };
    book.renew(
        &Owner::new("a", 1),
        &[renewal],
        T0.plus(Duration::from_secs(61)),
    );
    assert_eq!(
        book.counts(),
        Counts {
            pending: 0,
            live: 1
        }
    );
}

#[test]
fn a_stranger_cannot_release() {
    let mut book = Book::new(CAPS);
    assert_eq!(book.acquire(&request(1, "a", 1, State::Live), T0), Ok(()));
    book.release(CallId(Uuid::from_u128(1)), &Owner::new("a", 2), T0);
    assert_eq!(book.counts().live, 1);
    book.release(CallId(Uuid::from_u128(1)), &Owner::new("a", 1), T0);
    assert_eq!(book.counts().live, 0);
}

#[test]
fn what_was_released_cannot_be_taken_by_a_request_of_the_past() {
    let mut book = Book::new(CAPS);
    let wish = request(1, "a", 1, State::Pending);
    book.release(wish.lease, &wish.owner, T0);
    let late = book.acquire(&wish, T0).err();
    assert_eq!(late, Some(Refusal::duplicate()));
    assert_eq!(book.adopt(&wish, T0).err(), Some(Refusal::duplicate()));
    assert_eq!(book.acquire(&wish, T0.plus(GONE_FOR)), Ok(()));
}

#[test]
fn a_keyless_session_waits_half_as_long_and_a_trunk_has_its_cap() {
    let mut book = Book::new(CAPS);
    let trunk = Some((TrunkId(Uuid::from_u128(9)), 1));
    let first = Request {
        trunk,
        ..request(1, "a", 1, State::Keyless)
    };
    let second = Request {
        trunk,
        ..request(2, "a", 2, State::Pending)
    };
    assert_eq!(book.acquire(&first, T0), Ok(()));
    assert_eq!(
        book.acquire(&second, T0).err(),
        Some(Refusal::full("trunk", 1, 1))
    );
    assert_eq!(
        book.acquire(&second, T0.plus(Duration::from_secs(30))),
        Ok(())
    );
}

#[test]
fn a_session_that_waits_is_anybodys_to_release_and_no_renewal_holds_it() {
    let mut book = Book::new(CAPS);
    let wish = request(1, "a", 1, State::Pending);
    assert_eq!(book.acquire(&wish, T0), Ok(()));
    let waiting = Renewal {
        lease: wish.lease,
        account: wish.account,
        agent: None,
        trunk: None,
        state: State::Pending,
    };
    book.renew(&wish.owner, &[waiting], T0.plus(Duration::from_secs(30)));
    book.expire(T0.plus(Duration::from_secs(60)));
    assert_eq!(book.counts(), Counts::default());
    book.renew(&wish.owner, &[waiting], T0.plus(Duration::from_secs(61)));
    assert_eq!(book.counts().pending, 1, "a forgotten one is taken up");
    book.release(
        wish.lease,
        &Owner::new("b", 1),
        T0.plus(Duration::from_secs(62)),
    );
    assert_eq!(book.counts(), Counts::default());
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(u128, &'static str, State),
    Adopt(u128, &'static str),
    Release(u128, &'static str),
    Renew(u128),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = || prop_oneof![Just("a"), Just("b")];
    prop_oneof![
        (
            0..8_u128,
            owner(),
            prop_oneof![Just(State::Pending), Just(State::Live)]
        )
            .prop_map(|(lease, owner, state)| Step::Acquire(lease, owner, state)),
        (0..8_u128, owner()).prop_map(|(lease, owner)| Step::Adopt(lease, owner)),
        (0..8_u128, owner()).prop_map(|(lease, owner)| Step::Release(lease, owner)),
        (0..8_u128).prop_map(Step::Renew),
        (0..40_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// No cap is ever passed, and every count is what the leases say.
    #[test]
    fn no_order_of_events_breaks_the_counts(steps in prop::collection::vec(step(), 1..200)) {
        let mut book = Book::new(CAPS);
        let mut now = T0;
        for step in steps {
            // A lease's account follows from its number: two leases an account and more.
            match step {
                Step::Acquire(lease, owner, state) => drop(book.acquire(&request(lease, owner, lease % 3, state), now)),
                Step::Adopt(lease, owner) => drop(book.adopt(&request(lease, owner, lease % 3, State::Live), now)),
                Step::Release(lease, owner) => book.release(CallId(Uuid::from_u128(lease)), &Owner::new(owner, 1), now),
                Step::Renew(lease) => {
                    let id = CallId(Uuid::from_u128(lease));
                    // Only what is live in the book: re-asserting a forgotten call may pass a cap.
                    if let Some(entry) = book.leases.get(&id).filter(|entry| entry.state == State::Live).cloned() {
                        book.renew(&entry.owner, &[Renewal { lease: id, account: entry.account, agent: None, trunk: None, state: State::Live }], now);
                    }
                }
                Step::Pass(seconds) => now = now.plus(Duration::from_secs(seconds)),
            }
            prop_assert!(book.leases.len() <= CAPS.pool as usize);
            prop_assert!(book.accounts.values().all(|count| (1..=CAPS.account).contains(count)));
            prop_assert!(book.owners.values().all(|count| (1..=CAPS.node).contains(count)));
            prop_assert_eq!(book.accounts.values().sum::<u32>() as usize, book.leases.len());
            prop_assert_eq!(book.owners.values().sum::<u32>() as usize, book.leases.len());
            let ends = book.leases.iter().map(|(lease, entry)| (entry.until, *lease));
            prop_assert_eq!(&book.ends, &ends.collect());
            let forgotten = book.gone.iter().map(|(lease, until)| (*until, *lease));
            prop_assert_eq!(&book.forgotten, &forgotten.collect());
            let live = book.leases.values().filter(|entry| entry.state == State::Live).count();
            prop_assert_eq!(book.counts().live as usize, live);
        }
    }
}

#[test]
fn a_message_passes_over_the_caps_of_account_and_agent_and_no_others() {
    let caps = Caps {
        account: 1,
        pool: 4,
        node: 3,
    };
    let mut book = Book::new(caps);
    let (agent, trunk) = (AgentId(Uuid::from_u128(1)), TrunkId(Uuid::from_u128(1)));
    let wish = |lease, beyond| Request {
        agent: Some((agent, 1)),
        trunk: Some((trunk, 2)),
        beyond,
        ..request(lease, "a", 1, State::Live)
    };
    let refused = |book: &mut Book, wish: &Request| book.acquire(wish, T0).err();
    assert_eq!(refused(&mut book, &wish(1, false)), None);
    let full = refused(&mut book, &wish(2, false));
    assert_eq!(full, Some(Refusal::full("account", 1, 1)));
    assert_eq!(refused(&mut book, &wish(2, true)), None);
    let full = refused(&mut book, &wish(3, true));
    assert_eq!(full, Some(Refusal::full("trunk", 2, 2)));
    let elsewhere = |lease| Request {
        beyond: true,
        ..request(lease, "a", 1, State::Live)
    };
    assert_eq!(refused(&mut book, &elsewhere(4)), None);
    let full = refused(&mut book, &elsewhere(5));
    assert_eq!(full, Some(Refusal::full("node", 3, 3)));
}
