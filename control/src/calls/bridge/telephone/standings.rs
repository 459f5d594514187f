//! How trunks stand with their carriers, on its way to the database. The stack's events wait for no database,
//! so the latest word of each trunk is kept until one task has written it: of its registration, of the challenges
//! that were not answered, and of the messages that were not used. With them go the requests that did not reach a call's
//! other side.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Exchange;
use crate::calls;
use crate::ids::{AccountId, CallId, TrunkId};
use crate::node::Node;
use crate::sip_trunks::store::{self, Failure, RefusedMessage, Standing};

/// The latest word of each trunk.
type Latest<T> = HashMap<TrunkId, (AccountId, T)>;

/// Calls whose failures wait for a database that is away: their words are for people who look for a reason.
const MOST_UNREACHED: usize = 1_024;

/// How often a refused message of one trunk is written down: a carrier may send them without end.
const MESSAGE_EVERY: Duration = Duration::from_secs(10);

/// What is not written yet: one word of each kind of each trunk.
#[derive(Default)]
pub(super) struct Standings {
    latest: Mutex<Latest<Standing>>,
    refused: Mutex<Latest<Failure>>,
    messages: Mutex<Latest<RefusedMessage>>,
    /// The trunks of which a message was written down within [`MESSAGE_EVERY`], and when.
    written: Mutex<HashMap<TrunkId, Instant>>,
    /// Calls that are over, and what of them came to nothing; the latest of each, of [`MOST_UNREACHED`] calls.
    unreached: Mutex<HashMap<CallId, (AccountId, String)>>,
    changed: Notify,
}

impl Standings {
    /// In place of what was said of this trunk before. Realms that it names are not forgotten for a word that names
    /// none.
    pub(super) fn put(&self, account: AccountId, trunk: TrunkId, standing: impl Into<Standing>) {
        let mut standing = standing.into();
        let mut latest = self.latest();
        if let Some((_, before)) = latest.remove(&trunk) {
            standing.realms = standing.realms.or(before.realms);
        }
        latest.insert(trunk, (account, standing));
        drop(latest);
        self.changed.notify_one();
    }

    /// A challenge that was not answered, in place of the one before.
    pub(super) fn put_refused(&self, account: AccountId, trunk: TrunkId, refused: Failure) {
        whole(&self.refused).insert(trunk, (account, refused));
        self.changed.notify_one();
    }

    /// A message of the carrier's that was not used, in place of the one before.
    pub(super) fn put_message(&self, account: AccountId, trunk: TrunkId, refused: RefusedMessage) {
        whole(&self.messages).insert(trunk, (account, refused));
        self.changed.notify_one();
    }

    /// What was to be told to a call's other side and came to nothing.
    pub(super) fn put_unreached(&self, account: AccountId, call: CallId, why: String) {
        let mut unreached = whole(&self.unreached);
        if unreached.len() < MOST_UNREACHED || unreached.contains_key(&call) {
            unreached.insert(call, (account, why));
            self.changed.notify_one();
        }
    }

    fn take(&self) -> Option<(TrunkId, (AccountId, Standing))> {
        first(&self.latest)
    }

    fn latest(&self) -> MutexGuard<'_, Latest<Standing>> {
        whole(&self.latest)
    }

    /// The messages of those trunks that have had none written down for a while; others wait.
    fn take_messages(&self, now: Instant) -> Latest<RefusedMessage> {
        let mut written = whole(&self.written);
        written.retain(|_, at| now.saturating_duration_since(*at) < MESSAGE_EVERY);
        let mut messages = whole(&self.messages);
        let due: Latest<RefusedMessage> = messages
            .extract_if(|trunk, _| !written.contains_key(trunk))
            .collect();
        written.extend(due.keys().map(|trunk| (*trunk, now)));
        due
    }

    fn messages_wait(&self) -> bool {
        !whole(&self.messages).is_empty()
    }
}

fn first<K: Copy + Eq + Hash, T>(words: &Mutex<HashMap<K, T>>) -> Option<(K, T)> {
    let mut words = whole(words);
    let key = words.keys().next().copied()?;
    words.remove_entry(&key)
}

fn whole<K, T>(words: &Mutex<HashMap<K, T>>) -> MutexGuard<'_, HashMap<K, T>> {
    // Whole after any panic: entries are only added and removed.
    words.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down what is put, until the process ends.
pub(super) async fn follow(app: Node, exchange: Arc<Exchange>) {
    loop {
        let changed = exchange.standings.changed.notified();
        match exchange.standings.messages_wait() {
            // Whether anything changes or not, theirs is the next turn.
            true => drop(timeout(MESSAGE_EVERY, changed).await),
            false => changed.await,
        }
        write(&app, &exchange.standings).await;
    }
}

/// Writes down what is there: registrations, on which calls depend, and then what else was there at that moment. What
/// comes meanwhile has its turn after the next registrations.
pub(super) async fn write(app: &Node, standings: &Standings) {
    registrations(app, standings).await;
    let refused = std::mem::take(&mut *whole(&standings.refused));
    for (trunk, (account, refused)) in refused {
        let written = store::challenge_refused(&app.db, account, trunk, refused).await;
        if let Err(error) = written {
            tracing::error!(%error, %trunk, "a challenge that was not answered could not be written down");
        }
    }
    for (trunk, (account, refused)) in standings.take_messages(Instant::now()) {
        let written = store::message_refused(&app.db, account, trunk, &refused).await;
        if let Err(error) = written {
            tracing::error!(%error, %trunk, "a message that was refused could not be written down");
        }
    }
    let unreached = std::mem::take(&mut *whole(&standings.unreached));
    for (call, (account, why)) in unreached {
        let now = app.clock.now();
        let written = calls::store::add_error(&app.db, account, call, &why, now).await;
        if let Err(error) = written {
            tracing::error!(%error, %call, "what did not reach a call's other side could not be written down");
        }
    }
}

async fn registrations(app: &Node, standings: &Standings) {
    while let Some((trunk, (account, standing))) = standings.take() {
        let node = &app.config.cluster.node;
        match store::registered(&app.db, account, trunk, node, standing).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(%trunk, "a trunk's registration is not written down: this node holds its claim no more");
            }
            Err(error) => {
                tracing::error!(%error, %trunk, "a trunk's registration could not be written down");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, Timestamp};

    #[test]
    fn of_each_trunk_the_latest_word_waits() {
        let clock = Clock::fixed(Timestamp(1));
        let account = AccountId::new(&clock);
        let [one, other] = [(); 2].map(|()| TrunkId::new(&clock));
        let standings = Standings::default();
        let failure = Failure {
            at: Timestamp(3),
            code: Some(503),
            reason: "Busy".to_owned(),
        };
        for _ in 0..1_000 {
            standings.put(account, one, Err(failure.clone()));
            standings.put(account, other, Ok(Timestamp(7)));
        }
        let named = Standing {
            outcome: Ok(Timestamp(8)),
            realms: Some(vec!["acme".to_owned()]),
        };
        standings.put(account, one, named.clone());
        standings.put(account, one, Ok(Timestamp(9)));
        let mut taken = [standings.take(), standings.take()];
        taken.sort_by_key(|taken| taken.as_ref().map(|(trunk, _)| *trunk == other));
        let latest = Standing {
            outcome: Ok(Timestamp(9)),
            ..named
        };
        assert_eq!(taken[0], Some((one, (account, latest))));
        assert_eq!(taken[1], Some((other, (account, Ok(Timestamp(7)).into()))));
        assert_eq!(standings.take(), None);
    }

    /// A carrier that sends what is refused without end has one message of each trunk written down in ten seconds, and
    /// holds up none of another's.
    #[test]
    fn messages_without_end_are_written_down_now_and_then() {
        let clock = Clock::fixed(Timestamp(1));
        let account = AccountId::new(&clock);
        let [one, other] = [(); 2].map(|()| TrunkId::new(&clock));
        let standings = Standings::default();
        let put = |trunk, call_id: &str| {
            let refused = RefusedMessage {
                at: Timestamp(3),
                source: "192.0.2.1:5060".to_owned(),
                method: "BYE".to_owned(),
                call_id: call_id.to_owned(),
                header: None,
                code: None,
                reason: String::new(),
            };
            standings.put_message(account, trunk, refused);
        };
        let began = Instant::now();
        let taken = |after: u64| {
            let taken = standings.take_messages(began + Duration::from_secs(after));
            let mut taken: Vec<(bool, String)> = taken
                .into_iter()
                .map(|(trunk, (_, refused))| (trunk == other, refused.call_id))
                .collect();
            taken.sort();
            taken
        };
        let told = |other: bool, call_id: &str| (other, call_id.to_owned());
        put(one, "a");
        assert_eq!(taken(0), [told(false, "a")]);
        assert!(!standings.messages_wait());
        for at in 0..1_000 {
            put(one, &at.to_string());
            assert!(taken(1).is_empty(), "{at}");
        }
        put(other, "b");
        assert_eq!(taken(9), [told(true, "b")]);
        assert!(standings.messages_wait());
        assert_eq!(taken(10), [told(false, "999")]);
        put(one, "c");
        put(other, "d");
        assert_eq!(taken(19), [told(true, "d")]);
        assert_eq!(taken(20), [told(false, "c")]);
        assert!(taken(60).is_empty() && whole(&standings.written).is_empty());
    }
}
