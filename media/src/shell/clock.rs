//! The engine's clock, and a timer that wakes a thread's poll at one of its times.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::io::Errno;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::time::Time;

/// `CLOCK_MONOTONIC`, counted from the engine's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Duration,
}

impl Clock {
    pub(super) fn start() -> Self {
        // A second back, so that no call is made at time zero.
        Self {
            origin: monotonic().saturating_sub(Duration::from_secs(1)),
        }
    }

    /// Time zero on the clock of the standard library, which is the same clock.
    pub(super) fn origin(&self) -> Instant {
        let now = Instant::now();
        let since = monotonic().saturating_sub(self.origin);
        now.checked_sub(since).unwrap_or(now)
    }

    pub(super) fn now(&self) -> Time {
        let since = monotonic().saturating_sub(self.origin);
        Time::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Between the beginnings of two passes, unless a deadline comes before: what arrives in the meantime waits and is
/// served by one wake-up.
const PACE: Duration = Duration::from_millis(1);

/// With fewer calls than this a pace does not pay: in most milliseconds nothing comes, and its end is one more wake-up.
/// But what strangers send may come at any rate: once so many passes in a row were called for within the pace, it is kept.
const FEW: usize = 10;
const DENSE: u32 = 4;
/// What still counts as within the pace: a sleep that ends late.
const LATE: Duration = Duration::from_micros(200);

/// A thread of this many calls is never without work. Its passes begin at multiples of [`BEAT`], however close its
/// deadlines are, for a processor that slept has to learn anew what a pass needs. What is due in between is late by
/// the same each time, as frames and beats keep their phase.
const MANY: usize = 100;
const BEAT: Duration = Duration::from_millis(1);

/// A timerfd on the same clock. The poll's own timeout counts whole milliseconds, and is rounded up:
/// too coarse for pacing.
pub(super) struct Alarm {
    fd: OwnedFd,
    clock: Clock,
    set: Time,
    /// When the last sleep was over.
    woken: Time,
    /// Passes in a row that were called for within the pace.
    dense: u32,
}

impl Alarm {
    pub(super) fn new(clock: Clock, registry: &Registry, token: Token) -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self {
            fd,
            clock,
            set: Time::NEVER,
            woken: Time::from_micros(0),
            dense: 0,
        })
    }

    /// Waits for an event of one of so many calls, at the longest until this time. `more`: not at all, as there is
    /// work left.
    pub(super) fn sleep(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        (calls, until): (usize, Time),
        more: bool,
    ) -> io::Result<()> {
        let timeout = if more || self.rest(calls, until)? {
            Some(Duration::ZERO)
        } else {
            self.set(until)?;
            None
        };
        let polled = match poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other,
        };
        let woken = self.clock.now();
        self.dense = row(self.dense, woken.since(self.woken));
        self.woken = woken;
        polled
    }

    /// Keeps the pace, but never beyond `until`. Whether that has come, or the next beat.
    fn rest(&self, calls: usize, until: Time) -> io::Result<bool> {
        if calls >= MANY {
            self.nap(next_beat(self.woken))?;
            return Ok(true);
        }
        if calls >= FEW || self.dense >= DENSE {
            self.nap(until.min(self.woken + PACE))?;
        }
        Ok(until <= self.clock.now())
    }

    fn nap(&self, until: Time) -> io::Result<()> {
        if self.clock.now() < until {
            match clock_nanosleep_absolute(ClockId::Monotonic, &self.on_the_clock(until)) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A time of the engine as the system counts it.
    fn on_the_clock(&self, at: Time) -> Timespec {
        let at = self.clock.origin + Duration::from_micros(at.as_micros());
        Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at.subsec_nanos()),
        }
    }

    /// Wakes the poll at this time, instead of at the one before. A set alarm that has gone off need
    /// not be read: setting it anew makes the next edge.
    fn set(&mut self, at: Time) -> io::Result<()> {
        if at == self.set {
            return Ok(());
        }
        let value = if at == Time::NEVER {
            Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }
        } else {
            self.on_the_clock(at)
        };
        let once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            &self.fd,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: once,
                it_value: value,
            },
        )?;
        self.set = at;
        Ok(())
    }

    /// The alarm has gone off: the same time may be set again.
    pub(super) fn rang(&mut self) {
        self.set = Time::NEVER;
    }
}

/// Passes in a row that were called for within the pace, after one that came so long after the one before.
fn row(before: u32, since: Duration) -> u32 {
    if since <= PACE + LATE {
        before.saturating_add(1)
    } else {
        0
    }
}

/// The first beat after `woken`.
fn next_beat(woken: Time) -> Time {
    let beat = BEAT.as_micros() as u64;
    Time::from_micros((woken.as_micros() / beat + 1) * beat)
}

/// The calling thread's sleeps end when they should, not up to 50 µs later for the sake of company.
pub(super) fn wake_in_time() {
    if let Err(error) = set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "sleeps end up to 50 µs late");
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_are_called_for_at_once_are_counted_until_one_is_not() {
        let at_once = Duration::from_micros(30);
        let counted = (0..5).fold(0, |row_so_far, _| row(row_so_far, at_once));
        assert_eq!(counted, 5);
        // The pace was kept, and there was work again when it was over.
        assert_eq!(row(counted, PACE + Duration::from_micros(60)), 6);
        assert_eq!(row(counted, PACE + LATE + Duration::from_micros(1)), 0);
        assert_eq!(row(u32::MAX, at_once), u32::MAX);
    }

    #[test]
    fn a_busy_thread_wakes_at_the_beats_of_one_grid_whenever_it_was_done() {
        let beat = BEAT.as_micros() as u64;
        for (woken, next) in [
            (0, beat),
            (beat - 1, beat),
            (beat, 2 * beat),
            (beat + 7, 2 * beat),
        ] {
            assert_eq!(next_beat(Time::from_micros(woken)), Time::from_micros(next));
        }
        // Frames of 20 ms meet the same part of a beat each time, so they are late by the same.
        assert_eq!(20_000 % beat, 0);
    }
}
