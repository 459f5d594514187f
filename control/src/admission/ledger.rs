//! What one node holds in a lease store that it shares with others, as the node itself knows it. Pure.
//!
//! A store that forgot is told of what was granted and of nothing else: it takes up what it is told
//! whatever the caps say, so a wish that is still on its way has to be judged by them. When such a store
//! was told while a wish was on its way, a grant that comes after all may be one that the store no longer
//! knows: it counts as none, and a new lease is given back. So is one whose answer never comes.

use std::collections::BTreeMap;

use super::command::{RenewalPart, Word};
use super::{Refusal, Renewal, Request};
use crate::ids::CallId;

/// The leases of one node. Bounded by the node's cap and the requests under way.
#[derive(Debug, Default)]
pub struct Ledger {
    mine: BTreeMap<CallId, Renewal>,
    /// Wishes on their way.
    sent: BTreeMap<CallId, Renewal>,
    /// How often a cold store was told of them.
    told: u64,
}

/// A wish on its way to the store.
#[derive(Debug)]
#[must_use = "the answer has to be heard"]
pub struct Sent {
    lease: CallId,
    told: u64,
    new: bool,
}

/// No lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub refusal: Refusal,
    /// It may have been granted all the same: to be released.
    pub give_back: bool,
}

impl Ledger {
    /// Notes a wish that is about to be sent. `new`: a lease that nobody holds; one that is adopted has a
    /// session, whose end gives it back.
    pub fn send(&mut self, request: &Request, new: bool) -> Sent {
        self.sent.insert(request.lease, request.into());
        Sent {
            lease: request.lease,
            told: self.told,
            new,
        }
    }

    /// What became of it: a word of the store, or why there is none. What was held of the lease before
    /// is held still when it is denied.
    pub fn heard(&mut self, sent: Sent, answer: Result<Word, Refusal>) -> Result<(), Denied> {
        let wish = self.sent.remove(&sent.lease);
        let told = self.told != sent.told;
        let (refusal, unsure) = match answer {
            Ok(word) => match word.refusal() {
                None if !told => {
                    // Unless its session ended meanwhile.
                    self.mine.extend(wish.map(|wish| (sent.lease, wish)));
                    return Ok(());
                }
                None => (Refusal::error(), true),
                Some(refusal) => (refusal, false),
            },
            Err(refusal) => (refusal, refusal == Refusal::error()),
        };
        Err(Denied {
            refusal,
            give_back: unsure && sent.new,
        })
    }

    /// Forgets a lease that is given back, or stands by itself.
    pub fn forget(&mut self, lease: CallId) {
        self.mine.remove(&lease);
        self.sent.remove(&lease);
    }

    /// All that a cold store has to be told, in parts of at most `batch` leases.
    pub fn tell(&mut self, batch: usize) -> Vec<(RenewalPart, Vec<Renewal>)> {
        self.told += 1;
        let all: Vec<Renewal> = self.mine.values().copied().collect();
        if all.is_empty() {
            return vec![(RenewalPart::Only, all)];
        }
        let parts: Vec<&[Renewal]> = all.chunks(batch).collect();
        let count = parts.len();
        let named = parts.into_iter().enumerate();
        named
            .map(|(index, part)| (RenewalPart::of(index, count), part.to_vec()))
            .collect()
    }

    /// How many leases it knows of.
    pub fn len(&self) -> usize {
        self.mine.len()
    }

    pub fn is_empty(&self) -> bool {
        self.mine.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use uuid::Uuid;

    use super::super::{Owner, State};
    use super::*;
    use crate::ids::AccountId;

    fn wish(number: u128, state: State) -> Request {
        Request {
            lease: CallId(Uuid::from_u128(number)),
            owner: Owner::new("a", 1),
            account: AccountId(Uuid::from_u128(1)),
            agent: None,
            trunk: None,
            beyond: false,
            state,
        }
    }

    #[test]
    fn a_wish_that_may_have_been_granted_is_given_back() {
        let cases = [
            (Ok(Word::Duplicate), false),
            (Ok(Word::Cold), false),
            (Err(Refusal::unavailable()), false),
            (Err(Refusal::error()), true),
        ];
        for (answer, give_back) in cases {
            let mut ledger = Ledger::default();
            let sent = ledger.send(&wish(1, State::Pending), true);
            let denied = ledger.heard(sent, answer).unwrap_err();
            assert_eq!(denied.give_back, give_back, "{answer:?}");
            assert!(ledger.is_empty());
        }
    }

    #[test]
    fn a_wish_on_its_way_is_told_to_nobody_and_a_grant_after_that_is_none() {
        for new in [true, false] {
            let mut ledger = Ledger::default();
            let sent = ledger.send(&wish(1, State::Live), new);
            assert_eq!(ledger.tell(250), [(RenewalPart::Only, vec![])]);
            let denied = ledger.heard(sent, Ok(Word::Ok)).unwrap_err();
            assert_eq!((denied.refusal, denied.give_back), (Refusal::error(), new));
            assert!(ledger.is_empty());
            // Asked again, it is granted as it is known now.
            let sent = ledger.send(&wish(1, State::Live), new);
            ledger.heard(sent, Ok(Word::Ok)).unwrap();
            assert_eq!(ledger.len(), 1);
        }
    }

    #[test]
    fn one_whose_session_ended_on_its_way_is_not_held() {
        let mut ledger = Ledger::default();
        let sent = ledger.send(&wish(1, State::Live), false);
        ledger.forget(CallId(Uuid::from_u128(1)));
        ledger.heard(sent, Ok(Word::Ok)).unwrap();
        assert!(ledger.is_empty());
    }

    #[test]
    fn an_adoption_that_fails_leaves_what_was_held() {
        let mut ledger = Ledger::default();
        let sent = ledger.send(&wish(1, State::Pending), true);
        ledger.heard(sent, Ok(Word::Ok)).unwrap();
        let sent = ledger.send(&wish(1, State::Live), false);
        let denied = ledger.heard(sent, Err(Refusal::error())).unwrap_err();
        assert!(!denied.give_back);
        let told = ledger.tell(250);
        assert_eq!(told[0].1[0].state, State::Pending);
    }

    #[test]
    fn a_cold_store_is_told_in_parts() {
        let mut ledger = Ledger::default();
        for number in 0..5 {
            let sent = ledger.send(&wish(number, State::Live), true);
            ledger.heard(sent, Ok(Word::Ok)).unwrap();
        }
        let parts = ledger.tell(2);
        let told: Vec<_> = parts.iter().map(|(part, of)| (*part, of.len())).collect();
        assert_eq!(
            told,
            [
                (RenewalPart::First, 2),
                (RenewalPart::Next, 2),
                (RenewalPart::Last, 1)
            ]
        );
        assert_eq!(ledger.tell(9)[0].0, RenewalPart::Only);
    }
}
