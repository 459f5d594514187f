//! The timers of a call: an enum, and a table of its size.

use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Timer {
    /// Our 2xx has no ACK: send it again (RFC 3261 13.3.1.4).
    AnswerAgain,
    /// No ACK came within 64 T1: hang up.
    AnswerGiveUp,
    /// Our reliable provisional has no PRACK: send it again (RFC 3262 3).
    ProvisionalAgain,
    ProvisionalGiveUp,
    /// It still rings: say so each minute, or proxies give up (RFC 3261 13.3.1.1).
    RingAgain,
    /// Their INVITE counts no more (RFC 3261 13.3.1).
    InviteExpires,
    /// Our call has rung for as long as it may, or not begun to within that time.
    NoAnswer,
    /// Our CANCEL brought no final answer.
    CancelGiveUp,
    /// Refresh the session (RFC 4028 10).
    Refresh,
    /// The other side did not refresh it.
    Expiry,
    /// Offer again after a 491 (RFC 3261 14.1).
    Glare,
    /// Our user does not say what becomes of their offer.
    OfferGiveUp,
}

const ALL: [Timer; 12] = [
    Timer::AnswerAgain,
    Timer::AnswerGiveUp,
    Timer::ProvisionalAgain,
    Timer::ProvisionalGiveUp,
    Timer::RingAgain,
    Timer::InviteExpires,
    Timer::NoAnswer,
    Timer::CancelGiveUp,
    Timer::Refresh,
    Timer::Expiry,
    Timer::Glare,
    Timer::OfferGiveUp,
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timers([Option<Time>; ALL.len()]);

impl Timers {
    pub(super) fn arm(&mut self, timer: Timer, at: Time) {
        self.0[timer as usize] = Some(at);
    }

    pub(super) fn disarm(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(super) fn is_armed(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0 = [None; ALL.len()];
    }

    /// Disarms all but one.
    pub(super) fn clear_but(&mut self, timer: Timer) {
        let kept = self.0[timer as usize];
        self.clear();
        self.0[timer as usize] = kept;
    }

    pub(super) fn next(&self) -> Time {
        self.0
            .iter()
            .flatten()
            .min()
            .copied()
            .unwrap_or(Time::NEVER)
    }

    /// Takes the earliest timer that is due, with its deadline.
    pub(super) fn take_due(&mut self, now: Time) -> Option<(Timer, Time)> {
        let (at, timer) = ALL
            .iter()
            .filter_map(|timer| self.0[*timer as usize].map(|at| (at, *timer)))
            .min()
            .filter(|(at, _)| *at <= now)?;
        self.disarm(timer);
        Some((timer, at))
    }
}
