//! The timers of RFC 3261 table 4 and RFC 6026: an enum, and a table of its size.

use std::time::Duration;

use crate::time::Time;

/// The three estimates that all timers are made of (RFC 3261 17.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Round trip.
    pub t1: Duration,
    /// The longest interval between two sendings.
    pub t2: Duration,
    /// How long a message stays in the network.
    pub t4: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
        }
    }
}

impl Timing {
    /// How long a message is sent again before the other side counts as gone: 64 T1.
    pub fn patience(&self) -> Duration {
        self.t1 * 64
    }

    /// How long a server transaction waits before it says 100 Trying itself (RFC 3261 17.2.1).
    pub const TRYING: Duration = Duration::from_millis(200);

    /// Timer D on a transport that loses: "at least 32 seconds".
    pub const D: Duration = Duration::from_secs(32);
}

/// Every timer of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Timer {
    /// INVITE client: send again, each time after twice as long.
    A,
    /// INVITE client: no answer at all.
    B,
    /// INVITE client: the final response comes no more.
    D,
    /// Client: send again, at most every T2.
    E,
    /// Client: no final answer.
    F,
    /// INVITE server: send the refusal again.
    G,
    /// INVITE server: no ACK came.
    H,
    /// INVITE server: no further ACK comes.
    I,
    /// Server: the request comes no more.
    J,
    /// Client: the final response comes no more.
    K,
    /// INVITE server, accepted: the INVITE comes no more.
    L,
    /// INVITE client, accepted: no further 2xx comes.
    M,
    /// INVITE server: nothing was said yet, say 100.
    Trying,
}

impl Timer {
    pub const ALL: [Self; 13] = [
        Self::A,
        Self::B,
        Self::D,
        Self::E,
        Self::F,
        Self::G,
        Self::H,
        Self::I,
        Self::J,
        Self::K,
        Self::L,
        Self::M,
        Self::Trying,
    ];
}

/// At most three timers of one transaction run at a time, so they are kept as pairs and not by number:
/// a busy endpoint holds a hundred thousand transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers([Option<(Timer, Time)>; 3]);

impl Timers {
    pub fn arm(&mut self, timer: Timer, at: Time) {
        self.disarm(timer);
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some((timer, at));
        }
    }

    pub fn disarm(&mut self, timer: Timer) {
        for slot in &mut self.0 {
            if slot.is_some_and(|(own, _)| own == timer) {
                *slot = None;
            }
        }
    }

    pub fn clear(&mut self) {
        self.0 = [None; 3];
    }

    /// When the next one is due.
    pub fn next(&self) -> Time {
        self.0
            .iter()
            .flatten()
            .map(|(_, at)| *at)
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Takes the earliest timer that is due at `now`, with the time it was due.
    pub fn take_due(&mut self, now: Time) -> Option<(Timer, Time)> {
        let earliest = self
            .0
            .iter()
            .flatten()
            .min_by_key(|(timer, at)| (*at, *timer))
            .copied()
            .filter(|(_, at)| *at <= now)?;
        self.disarm(earliest.0);
        Some(earliest)
    }
}
