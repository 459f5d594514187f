//! What a node makes of what it sees of itself and of the others. Pure.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::time::Duration;

use crate::admission::{Held, LIVE_TTL, OpenCall, Owner, RENEW_EVERY, Renewal, State};
use crate::calls::store::OpenRow;
use crate::ids::CallId;
use crate::time::Timestamp;

/// A lease this young may have no record yet: its request is still writing it, and may wait ten
/// seconds for the database.
pub const GRACE: Duration = Duration::from_secs(12);
/// A live lease that has less left than this was not renewed in time: its host does not reach the lease
/// store. Between two looks of a reconciler (five seconds) every such lease is seen before it runs out.
const UNRENEWED: Duration = LIVE_TTL
    .saturating_sub(RENEW_EVERY)
    .saturating_sub(Duration::from_secs(1));

/// Where a node stands after a beat of its heart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The others see that it lives.
    Well,
    /// It has taken its leave.
    Gone,
    /// The others took it for dead, and ended its calls: it lets go of them.
    Lost,
    /// The same, and it hosts none any more: it may come back.
    Free,
}

/// `beaten`: the others had not taken it for dead; `calls`: how many it hosts.
pub const fn standing(beaten: bool, draining: bool, calls: usize) -> Standing {
    match (beaten, calls) {
        (true, _) => Standing::Well,
        (false, 0) if draining => Standing::Gone,
        (false, 0) => Standing::Free,
        (false, _) => Standing::Lost,
    }
}

/// What a cold lease store is told of a call that the database has.
pub fn open_call(call: &OpenRow, now: Timestamp) -> OpenCall {
    let owner = call
        .host
        .as_ref()
        .map(|(node, incarnation)| Owner::new(node, *incarnation));
    OpenCall {
        lease: call.id,
        account: call.account,
        left: match (&owner, call.expires_at) {
            (None, Some(expires_at)) => expires_at.since(now),
            _ => LIVE_TTL,
        },
        owner,
    }
}

/// Leases that are old enough to have a record.
pub fn old(held: &[Held]) -> Vec<&Held> {
    held.iter().filter(|held| held.age >= GRACE).collect()
}

/// Those of them whose call is over, or was never written.
pub fn without_call<'a, S: BuildHasher>(
    old: &[&'a Held],
    open: &HashSet<CallId, S>,
) -> Vec<&'a Held> {
    let over = old.iter().filter(|held| !open.contains(&held.lease));
    over.copied().collect()
}

/// Live leases of others that they did not renew in time.
pub fn unrenewed<'a>(held: &'a [Held], own: &Owner) -> Vec<&'a Held> {
    held.iter()
        .filter(|held| held.live && held.left < UNRENEWED && held.owner != *own)
        .collect()
}

/// What to renew for them: leases of calls that this very host has. It lives, for calls of the dead were
/// ended a moment ago.
pub fn vouched(unrenewed: &[&Held], open: &[OpenRow]) -> Vec<(Owner, Renewal)> {
    let hosted = |held: &Held| {
        open.iter().find(|call| {
            let host = call.host.as_ref();
            call.id == held.lease
                && host.is_some_and(|(node, number)| Owner::new(node, *number) == held.owner)
        })
    };
    let renewals = unrenewed.iter().filter_map(|held| {
        let renewal = Renewal {
            lease: held.lease,
            account: hosted(held)?.account,
            agent: None,
            trunk: None,
            state: State::Live,
        };
        Some((held.owner.clone(), renewal))
    });
    renewals.collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::AccountId;

    fn held(number: u128, age: u64, left: u64, live: bool) -> Held {
        Held {
            lease: CallId(Uuid::from_u128(number)),
            owner: Owner::new("a", 1),
            live,
            age: Duration::from_secs(age),
            left: Duration::from_secs(left),
        }
    }

    #[test]
    fn a_node_that_was_taken_for_dead_comes_back_without_calls() {
        assert_eq!(standing(true, false, 3), Standing::Well);
        assert_eq!(standing(false, false, 3), Standing::Lost);
        assert_eq!(standing(false, true, 3), Standing::Lost);
        assert_eq!(standing(false, false, 0), Standing::Free);
        assert_eq!(standing(false, true, 0), Standing::Gone);
    }

    #[test]
    fn leases_of_calls_that_are_over_are_found_once_they_are_old() {
        let all = [
            held(1, 11, 9, false),
            held(2, 12, 9, false),
            held(3, 60, 9, true),
        ];
        let old = old(&all);
        assert_eq!(old.len(), 2);
        let open = HashSet::from([all[2].lease]);
        assert_eq!(without_call(&old, &open), [&all[1]]);
    }

    #[test]
    fn a_lease_that_its_host_did_not_renew_is_seen_before_it_runs_out() {
        let all = [
            held(1, 20, 10, true),
            held(2, 20, 8, true),
            held(3, 20, 8, false),
        ];
        assert_eq!(unrenewed(&all, &Owner::new("b", 1)), [&all[1]]);
        assert!(unrenewed(&all, &Owner::new("a", 1)).is_empty());
        assert!(UNRENEWED > RENEW_EVERY);
    }

    #[test]
    fn a_session_that_waits_holds_its_lease_until_it_expires() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let mut call = OpenRow {
            id: CallId(Uuid::from_u128(1)),
            account: AccountId(Uuid::from_u128(2)),
            host: None,
            expires_at: Some(at(70)),
        };
        let told = open_call(&call, at(50));
        assert_eq!((told.owner, told.left), (None, Duration::from_secs(20)));
        call.host = Some(("a".to_owned(), 1));
        let told = open_call(&call, at(50));
        assert_eq!(
            (told.owner, told.left),
            (Some(Owner::new("a", 1)), LIVE_TTL)
        );
    }
}
