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
/// Calls that speak in company wake their thread 60 times a second each, and a thread that is woken less than a thousand
/// times sleeps longer without a pace. But what strangers send may come at any rate: once so many passes in a row were
/// called for within the pace, it is kept.
const FEW: usize = 20;
const DENSE: u32 = 4;
/// What still counts as within the pace: a sleep that ends late.
const LATE: Duration = Duration::from_micros(200);

/// A thread of this many calls is never without work. Its passes begin at multiples of a beat, however close its
/// deadlines are, for a processor that slept has to learn anew what a pass needs. What is due in between is late by
/// the same each time, as frames and beats keep their phase.
const MANY: usize = 100;
const BEAT: Duration = Duration::from_millis(1);

/// With this many, half as many sleeps: what is due waits up to a millisecond more, and so does what comes.
const CROWD: usize = 250;
const SLOW_BEAT: Duration = Duration::from_millis(2);

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
    /// work left. The time that the pass which follows is told; it never goes back.
    pub(super) fn sleep(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        (calls, until): (usize, Time),
        more: bool,
    ) -> io::Result<Time> {
        let (at_once, slept_until) = if more {
            (true, None)
        } else {
            self.rest(calls, until)?
        };
        let timeout = if at_once {
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
        polled.map(|()| told(slept_until, woken))
    }

    /// Keeps the pace: of many calls until the next beat, of fewer never beyond `until`. Whether that has come, and until
    /// which beat it slept.
    fn rest(&self, calls: usize, until: Time) -> io::Result<(bool, Option<Time>)> {
        if let Some(beat) = beat(calls) {
            let next = next_beat(beat, self.woken);
            let slept = self.nap(next)?;
            return Ok((true, slept.then_some(next)));
        }
        if calls >= FEW || self.dense >= DENSE {
            self.nap(until.min(self.woken + PACE))?;
        }
        Ok((until <= self.clock.now(), None))
    }

    /// `false`: it has come already.
    fn nap(&self, until: Time) -> io::Result<bool> {
        let early = self.clock.now() < until;
        if early {
            match clock_nanosleep_absolute(ClockId::Monotonic, &self.on_the_clock(until)) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(early)
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

/// What the time is in a pass that began at `now`, after a sleep until that beat. What begins in it (an answer's first
/// frame) is then due at beats, too; by the clock it would be due a little after them, and wait for the next.
fn told(slept_until: Option<Time>, now: Time) -> Time {
    slept_until
        .filter(|beat| *beat <= now && now.since(*beat) <= LATE)
        .unwrap_or(now)
}

/// How far the passes of a thread with so many calls begin from each other; `None`: whenever there is work.
const fn beat(calls: usize) -> Option<Duration> {
    match calls {
        ..MANY => None,
        MANY..CROWD => Some(BEAT),
        CROWD.. => Some(SLOW_BEAT),
    }
}

/// The first beat after `woken`.
fn next_beat(beat: Duration, woken: Time) -> Time {
    let beat = beat.as_micros() as u64;
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
        for beat in [BEAT, SLOW_BEAT] {
            let us = beat.as_micros() as u64;
            for (woken, next) in [(0, us), (us - 1, us), (us, 2 * us), (us + 7, 2 * us)] {
                let told = next_beat(beat, Time::from_micros(woken));
                assert_eq!(told, Time::from_micros(next));
            }
            // Frames of 20 ms meet the same part of a beat each time, so they are late by the same.
            assert_eq!(20_000 % us, 0);
        }
    }

    #[test]
    fn a_pass_has_the_time_of_its_beat_unless_it_is_late() {
        let (beat, us) = (Time::from_millis(40), Duration::from_micros);
        assert_eq!(told(Some(beat), beat), beat);
        assert_eq!(told(Some(beat), beat + LATE), beat);
        let late = beat + LATE + us(1);
        assert_eq!(told(Some(beat), late), late);
        // A signal ended the sleep.
        let early = Time::from_micros(39_999);
        assert_eq!(told(Some(beat), early), early);
        assert_eq!(told(None, late), late);
    }

    #[test]
    fn sleeps_end_at_beats_and_the_time_that_is_told_only_grows() {
        let clock = Clock::start();
        let mut poll = Poll::new().expect("a poll");
        let mut alarm = Alarm::new(clock, poll.registry(), Token(0)).expect("a timer");
        let mut events = Events::with_capacity(1);
        let mut before = clock.now();
        // Between two beats there is work left, and it is looked at at once.
        for (calls, beat) in [(MANY, BEAT), (CROWD, SLOW_BEAT), (MANY, BEAT)] {
            let mut at_beats = 0;
            // A machine that is busy with something else wakes it late.
            for pass in 0..2000 {
                if at_beats == 20 {
                    break;
                }
                let (until, more) = (before + Duration::from_millis(50), pass % 2 == 1);
                let told = alarm.sleep(&mut poll, &mut events, (calls, until), more);
                let told = told.expect("a sleep");
                assert!(told >= before && told <= clock.now());
                before = clock.now();
                let at_beat = told.as_micros().is_multiple_of(beat.as_micros() as u64);
                at_beats += u32::from(at_beat && !more);
            }
            assert!(at_beats > 0, "of {calls} calls no pass began at a beat");
        }
    }

    #[test]
    fn the_more_calls_the_slower_the_beat() {
        for (calls, told) in [
            (0, None),
            (99, None),
            (100, Some(1)),
            (249, Some(1)),
            (250, Some(2)),
            (100_000, Some(2)),
        ] {
            assert_eq!(beat(calls), told.map(Duration::from_millis), "{calls}");
        }
    }
}
