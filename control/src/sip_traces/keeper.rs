//! The messages of the calls that this process hosts, until they are written down and the call is long
//! over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sip::event::{CallId as SipLegId, Traced};
use sip::time::Time;

use super::store::{self, Kept};
use super::wire::SipMessage;
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::time::{Clock, Moment, Timestamp};

/// Messages of one call: a call has about eight, one with holds, refreshes and losses some dozens.
const MOST_MESSAGES: usize = 64;

/// Their text, bytes: 64 usual messages have about 40 KiB.
const MOST_BYTES: usize = 64 << 10;

/// Of these the first: how the call began is not given up for how it went on.
const FIRST: usize = 24;

/// The text of all calls of the process, bytes: 10,000 usual calls. Beyond it nothing is added.
const MOST_IN_ALL: usize = 96 << 20;

/// How often what is new is written down.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Traces written in one transaction.
const BATCH: usize = 256;

/// How long after its last message a call that is over may have another one (64 T1 and a little).
const LINGER: Duration = Duration::from_secs(35);

/// How long a caller may ring before the call has a record, and a call may take to its first message:
/// longer than any routing rule or look-up lets it.
const UNNAMED: Duration = Duration::from_secs(180);

/// The traces of this process.
#[derive(Default)]
pub struct Keeper(Mutex<Held>);

#[derive(Default)]
struct Held {
    lines: HashMap<SipLegId, Trace>,
    /// Of all texts.
    bytes: usize,
    /// The stack's clock and this process's at the same moment.
    origin: Option<(Time, Moment)>,
}

#[derive(Default)]
struct Trace {
    /// When the first message was, by this process's clock and by the wall.
    first: Option<(Moment, Timestamp)>,
    /// Once the call has a record.
    whose: Option<(AccountId, CallId)>,
    kept: Kept,
    bytes: usize,
    /// Not written down yet.
    is_new: bool,
    is_over: bool,
    last: Moment,
}

impl Keeper {
    /// A message was received or sent. The first of a call has the wall's time of when the stack had it, and
    /// the later ones what has passed since: nobody who sets the wall clock moves them.
    pub fn saw(&self, clock: &Clock, traced: &Traced) {
        let (now, wall) = (clock.moment(), clock.now());
        let mut held = self.held();
        let (origin, at_origin) = *held.origin.get_or_insert((traced.at, now));
        let had = match traced.at >= origin {
            true => at_origin.plus(traced.at.since(origin)),
            false => at_origin.minus(origin.since(traced.at)),
        };
        let room = held.bytes + traced.text.len() <= MOST_IN_ALL;
        let trace = held.lines.entry(traced.call).or_default();
        let told_late = wall.minus(now.since(had)).plus(had.since(now));
        let (first, at_first) = *trace.first.get_or_insert((had, told_late));
        let at = at_first.plus(had.since(first)).minus(first.since(had));
        let before = trace.bytes;
        trace.add(room.then(|| SipMessage::new(at, traced)));
        trace.last = now;
        let after = trace.bytes;
        held.bytes = held.bytes + after - before;
    }

    /// The record of the call that came in on that line. Nothing for a line that is forgotten already.
    pub fn belongs(&self, line: SipLegId, account: AccountId, call: CallId) {
        if let Some(trace) = self.held().lines.get_mut(&line) {
            trace.whose = Some((account, call));
            trace.is_new = true;
        }
    }

    /// A call is placed on that line.
    pub fn begins(&self, now: Moment, line: SipLegId, account: AccountId, call: CallId) {
        let trace = Trace {
            whose: Some((account, call)),
            last: now,
            ..Trace::default()
        };
        self.held().lines.insert(line, trace);
    }

    /// The call on that line has ended; its last messages may follow.
    pub fn over(&self, now: Moment, line: SipLegId) {
        if let Some(trace) = self.held().lines.get_mut(&line) {
            trace.is_over = true;
            trace.last = now;
        }
    }

    /// Another call is placed on a line whose first one has ended; both are of one record.
    pub fn goes_on(&self, line: SipLegId) {
        if let Some(trace) = self.held().lines.get_mut(&line) {
            trace.is_over = false;
        }
    }

    /// Whose the call on that line is, as long as its messages are held.
    pub fn whose(&self, line: SipLegId) -> Option<(AccountId, CallId)> {
        self.held().lines.get(&line)?.whose
    }

    /// What is held of a call's messages.
    pub fn of(&self, account: AccountId, call: CallId) -> Option<Kept> {
        let held = self.held();
        let trace = held
            .lines
            .values()
            .find(|trace| trace.whose == Some((account, call)))?;
        Some(trace.kept.clone())
    }

    /// What is to be written down now; it counts as written.
    fn take_new(&self) -> Vec<(SipLegId, AccountId, CallId, Kept)> {
        let mut held = self.held();
        let new = held.lines.iter_mut().filter_map(|(line, trace)| {
            let (account, call) = trace.whose.filter(|_| trace.is_new)?;
            trace.is_new = false;
            Some((*line, account, call, trace.kept.clone()))
        });
        new.take(BATCH).collect()
    }

    /// It could not be written.
    fn put_back(&self, lines: impl Iterator<Item = SipLegId>) {
        let mut held = self.held();
        for line in lines {
            if let Some(trace) = held.lines.get_mut(&line) {
                trace.is_new = true;
            }
        }
    }

    /// Lets go of calls that are over, once they are written down.
    fn forget(&self, now: Moment) {
        let mut held = self.held();
        held.lines.retain(|_, trace| !trace.is_done(now));
        held.bytes = held.lines.values().map(|trace| trace.bytes).sum();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Whole after any panic, but for a count that is made anew each second.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trace {
    /// `None`: there is no room for it.
    fn add(&mut self, message: Option<SipMessage>) {
        self.is_new = true;
        let Some(message) = message else {
            self.kept.left_out += 1;
            return;
        };
        self.bytes += message.message.len();
        let messages = &mut self.kept.messages;
        messages.push(message);
        while messages.len() > MOST_MESSAGES || (self.bytes > MOST_BYTES && messages.len() > 2) {
            // The oldest after the first ones; of few and long ones the last but one.
            let gone = messages.remove(FIRST.min(messages.len() - 2));
            self.bytes -= gone.message.len();
            self.kept.left_out += 1;
        }
    }

    fn is_done(&self, now: Moment) -> bool {
        let quiet = now.since(self.last);
        match self.whose {
            Some(_) if self.kept.messages.is_empty() => quiet >= UNNAMED,
            Some(_) => self.is_over && !self.is_new && quiet >= LINGER,
            None => self.is_over || quiet >= UNNAMED,
        }
    }
}

/// Writes down what is new, each second, until the process ends.
pub async fn run(app: Node, keeper: std::sync::Arc<Keeper>) {
    let mut tick = tokio::time::interval(WRITE_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failed = false;
    loop {
        tick.tick().await;
        match write(&app, &keeper).await {
            Ok(()) => failed = false,
            // Said once, not every second.
            Err(error) if !failed => {
                failed = true;
                tracing::error!(%error, "the SIP messages of calls cannot be written down");
            }
            Err(_) => {}
        }
        keeper.forget(app.clock.moment());
    }
}

/// Writes down all that is new.
pub async fn write(app: &Node, keeper: &Keeper) -> Result<(), DbError> {
    loop {
        let new = keeper.take_new();
        if new.is_empty() {
            return Ok(());
        }
        let written = async {
            let now = app.clock.now();
            let mut tx = app.db.begin_write().await?;
            for (_, account, call, kept) in &new {
                store::keep(&mut tx, *account, *call, kept, now).await?;
            }
            tx.commit().await
        };
        if let Err(error) = written.await {
            keeper.put_back(new.into_iter().map(|(line, ..)| line));
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use sip::endpoint::Peer;
    use sip::event::Direction;
    use sip::message::Transport;

    use super::*;
    use crate::testing::TestApp;

    const LINE: SipLegId = SipLegId(7);

    fn traced(second: u64, text: &str) -> Traced {
        Traced {
            call: LINE,
            at: Time::from_secs(second),
            direction: Direction::Sent,
            peer: Peer::new(Transport::Tcp, "198.51.100.7:5060".parse().unwrap()),
            text: text.to_owned(),
        }
    }

    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(START.micros() + second * 1_000_000)
    }

    fn moment(second: i64) -> Moment {
        Moment::from_micros(second * 1_000_000)
    }

    /// A clock that has run for so long.
    fn clock(second: u64) -> Clock {
        let clock = Clock::fixed(START);
        clock.advance(Duration::from_secs(second));
        clock
    }

    fn ids() -> (AccountId, CallId) {
        (AccountId::NIL, CallId::NIL)
    }

    #[test]
    fn messages_have_their_own_time_and_their_calls() {
        let keeper = Keeper::default();
        let (account, call) = ids();
        keeper.saw(&clock(0), &traced(100, "INVITE"));
        assert!(keeper.take_new().is_empty(), "it is nobody's yet");
        keeper.belongs(LINE, account, call);
        // Told late: the stack's clock counts.
        keeper.saw(&clock(9), &traced(103, "BYE"));
        let kept = keeper.of(account, call).unwrap();
        let told: Vec<_> = kept.messages.iter().map(|m| (m.at, &*m.message)).collect();
        assert_eq!(told, [(at(0), "INVITE"), (at(3), "BYE")]);
        assert_eq!(kept.messages[0].peer, "198.51.100.7:5060");
        assert_eq!(kept.messages[0].transport.name(), "tcp");
        assert_eq!(keeper.take_new().len(), 1);
        assert!(keeper.take_new().is_empty());
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_no_message_and_forgets_no_call() {
        for seconds in [3_600, -3_600, 86_400, -86_400] {
            let (keeper, clock) = (Keeper::default(), clock(0));
            let (account, call) = ids();
            keeper.saw(&clock, &traced(100, "INVITE"));
            keeper.belongs(LINE, account, call);
            clock.step(seconds);
            clock.advance(Duration::from_secs(5));
            keeper.saw(&clock, &traced(105, "BYE"));
            keeper.over(clock.moment(), LINE);
            // A call that comes after it has the time that the wall shows then.
            let later = Traced {
                call: SipLegId(8),
                ..traced(106, "INVITE")
            };
            clock.advance(Duration::from_secs(1));
            keeper.saw(&clock, &later);
            keeper.belongs(SipLegId(8), account, CallId(uuid::Uuid::from_u128(8)));
            let times = |call| {
                let kept = keeper.of(account, call).unwrap();
                kept.messages.iter().map(|m| m.at).collect::<Vec<_>>()
            };
            assert_eq!(times(call), [at(0), at(5)], "{seconds} s");
            let second = times(CallId(uuid::Uuid::from_u128(8)));
            assert_eq!(second, [at(6 + seconds)], "{seconds} s");
            assert_eq!(keeper.take_new().len(), 2);
            clock.advance(LINGER.saturating_sub(Duration::from_secs(2)));
            clock.step(-seconds);
            keeper.forget(clock.moment());
            assert!(keeper.of(account, call).is_some(), "its BYE may come again");
            clock.advance(Duration::from_secs(1));
            keeper.forget(clock.moment());
            assert!(keeper.of(account, call).is_none(), "{seconds} s");
        }
    }

    #[test]
    fn a_call_keeps_its_beginning_and_its_end() {
        let keeper = Keeper::default();
        let (account, call) = ids();
        for number in 0..200_u64 {
            keeper.saw(&clock(number), &traced(number, &number.to_string()));
        }
        keeper.belongs(LINE, account, call);
        let kept = keeper.of(account, call).unwrap();
        let told: Vec<u64> = kept
            .messages
            .iter()
            .map(|m| m.message.parse().unwrap())
            .collect();
        assert_eq!((told.len(), kept.left_out), (64, 136));
        assert_eq!(told, (0..24).chain(160..200).collect::<Vec<u64>>());

        let keeper = Keeper::default();
        for number in 0..20_u64 {
            let long = format!("{number}{}", "x".repeat(10_000));
            keeper.saw(&clock(number), &traced(number, &long));
        }
        keeper.belongs(LINE, account, call);
        let kept = keeper.of(account, call).unwrap();
        let bytes: usize = kept.messages.iter().map(|m| m.message.len()).sum();
        assert!(bytes <= MOST_BYTES && bytes > MOST_BYTES / 2, "{bytes}");
        assert!(kept.messages[0].message.starts_with("0x"));
        assert!(kept.messages.last().unwrap().message.starts_with("19x"));
        assert_eq!(kept.messages.len() as u32 + kept.left_out, 20);
    }

    #[test]
    fn what_is_over_is_forgotten_once_it_is_written() {
        let keeper = Keeper::default();
        let (account, call) = ids();
        keeper.begins(moment(-100), LINE, account, call);
        keeper.forget(moment(0));
        keeper.saw(&clock(0), &traced(1, "BYE"));
        keeper.over(moment(0), LINE);
        keeper.forget(moment(60));
        assert!(keeper.of(account, call).is_some(), "it is not written");
        let new = keeper.take_new();
        keeper.put_back(new.into_iter().map(|(line, ..)| line));
        assert_eq!(keeper.take_new().len(), 1, "a failed write is tried again");
        keeper.forget(moment(30));
        assert!(keeper.of(account, call).is_some(), "its BYE may come again");
        keeper.forget(moment(36));
        assert!(keeper.of(account, call).is_none());
        // A call that was never let in.
        keeper.saw(&clock(40), &traced(40, "INVITE"));
        keeper.over(moment(40), LINE);
        keeper.forget(moment(41));
        let held = keeper.held();
        assert_eq!((held.lines.len(), held.bytes), (0, 0));
    }

    #[tokio::test]
    async fn a_trace_is_written_for_its_account_and_its_call_alone() {
        let test = TestApp::new().await;
        let keeper = Keeper::default();
        keeper.saw(&clock(0), &traced(1, "INVITE \0"));
        keeper.belongs(LINE, test.account, CallId::NIL);
        // There is no such call: nothing is written, and nothing fails.
        write(&test.app, &keeper).await.unwrap();
        let kept = store::get(&test.app.db, test.account, CallId::NIL).await;
        assert!(kept.unwrap().is_none());
    }
}
