//! Whether the machine itself stood still, or crept: a thread on the server's processor that wants nothing but to wake
//! every millisecond, before everything else, and do the same little work each time. What makes it late or slow (a
//! hypervisor that gives the processor to another guest, most often) does so to the server, too, and is no work of the
//! server's.

use std::hint::black_box;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::listener::FRAME_US;
use super::times::Times;

const BEAT: Duration = Duration::from_millis(1);
const BEAT_US: u64 = 1_000;
/// Later than this is a stall.
const STALL_US: u64 = 1_000;
/// Steps of its work: some ten microseconds, a hundredth of the processor.
const STEPS: u64 = 4_000;
/// How often it is done before the first beat, to know how long it takes.
const TRIALS: usize = 100;
/// Work that takes so many times as long as it mostly does is slow. Once may be an interrupt, and so often in a row is
/// the processor.
const SLOW: u32 = 2;
const IN_A_ROW: usize = 3;
/// Above everything that is not real-time (`setpriority(2)`).
const FIRST_OF_ALL: i32 = -20;
/// As many stalls as a run may have. A machine that has more is not measured with.
const MOST: usize = 100_000;
/// Of a run that was disturbed for a larger share, nothing is said.
const TOO_MUCH: f64 = 0.1;

/// The machine gave this processor, or most of it, to nobody here: μs of the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    pub from: u64,
    pub until: u64,
}

impl Stall {
    pub(super) fn length(self) -> u64 {
        self.until.saturating_sub(self.from)
    }

    /// Whether what was due then and came then was kept up by it: while it lasted, and for as long again, in which
    /// the server catches up.
    fn delays(self, due: u64, came: u64) -> bool {
        due <= self.until + self.length() && came + BEAT_US >= self.from
    }
}

/// The thread that watches.
pub(super) struct Witness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Stall>>>,
}

impl Witness {
    /// Watches the processor of a server that is bound to one; `None` where it is not, or nobody may know.
    /// `micros` reads the run's clock.
    pub(super) fn of(
        server: Option<u32>,
        micros: impl Fn(Instant) -> u64 + Send + 'static,
    ) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(server?).ok()?)?;
        let cpus = sched_getaffinity(Some(pid)).ok()?;
        if cpus.count() != 1 {
            return None;
        }
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = thread::Builder::new()
            .name("witness".to_owned())
            .spawn(move || watch(&cpus, &ends, micros))
            .ok()?;
        Some(Self { over, thread })
    }

    /// What it saw; `None` where it may not go before everything else, so that its being late proves nothing.
    pub(super) fn end(self) -> Option<Vec<Stall>> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().ok()?.ok()
    }
}

fn watch(
    cpus: &CpuSet,
    over: &AtomicBool,
    micros: impl Fn(Instant) -> u64,
) -> io::Result<Vec<Stall>> {
    sched_setaffinity(None, cpus)?;
    setpriority_process(None, FIRST_OF_ALL)?;
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut trials: Vec<Duration> = (0..TRIALS)
        .map(|_| {
            thread::sleep(BEAT);
            work()
        })
        .collect();
    trials.sort();
    let mut pace = Pace::new(trials[TRIALS / 2]);
    while !over.load(Ordering::Relaxed) && pace.stalls.len() < MOST {
        let due = Instant::now() + BEAT;
        thread::sleep(BEAT);
        let woke = Instant::now();
        let took = work();
        pace.beat(micros(due), micros(woke), took);
    }
    Ok(pace.stalls)
}

/// How long the same work takes now.
fn work() -> Duration {
    let began = Instant::now();
    let sum = (0..STEPS).fold(1, |sum: u64, step| {
        // Each step waits for the one before.
        black_box(sum.wrapping_mul(6_364_136_223_846_793_005) ^ step)
    });
    black_box(sum);
    began.elapsed()
}

/// What the beats tell.
struct Pace {
    /// What the work takes mostly.
    typical: Duration,
    /// Since when it is slow, and for how many beats.
    slow: Option<(u64, usize)>,
    stalls: Vec<Stall>,
}

impl Pace {
    const fn new(typical: Duration) -> Self {
        Self {
            typical,
            slow: None,
            stalls: Vec::new(),
        }
    }

    /// A beat that was due then, began then and took so long.
    fn beat(&mut self, due: u64, woke: u64, took: Duration) {
        let until = woke + u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.slow = match self.slow {
            _ if took <= self.typical * SLOW => None,
            None => Some((due, 1)),
            Some((from, beats)) => Some((from, beats + 1)),
        };
        match (self.slow, self.stalls.last_mut()) {
            (Some((_, beats)), Some(stall)) if beats > IN_A_ROW => stall.until = until,
            (Some((from, IN_A_ROW)), _) => self.stalls.push(Stall { from, until }),
            _ if woke.saturating_sub(due) > STALL_US => self.stalls.push(Stall {
                from: due,
                until: woke,
            }),
            _ => {}
        }
    }
}

/// The gaps of a run without those into which a stall fell. `late` are its long ones: when a frame was due, and when
/// it came. `None` where stalls took so much of the run (`seconds`) that the rest says little.
pub(super) fn undisturbed(
    gaps: &Times,
    late: &[(u64, u64)],
    stalls: &[Stall],
    seconds: f64,
) -> Option<Times> {
    let stalled: u64 = stalls.iter().map(|stall| 2 * stall.length()).sum();
    if stalled as f64 > seconds * 1e6 * TOO_MUCH {
        return None;
    }
    let mut rest = gaps.clone();
    for &(due, came) in late {
        if stalls.iter().any(|stall| stall.delays(due, came)) {
            rest.remove(came.saturating_sub(due) + FRAME_US);
        }
    }
    Some(rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    #[test]
    fn gaps_in_which_the_machine_stood_still_are_left_out() {
        let mut gaps = Times::new();
        for _ in 0..998 {
            gaps.add(20 * MS);
        }
        // One frame was due in the stall and came after it, another is the server's own delay.
        let late = [(1_005 * MS, 1_013 * MS), (5_000 * MS, 5_004 * MS)];
        for (due, came) in late {
            gaps.add(20 * MS + came - due);
        }
        let stalls = [Stall {
            from: 1_000 * MS,
            until: 1_012 * MS,
        }];
        let rest = undisturbed(&gaps, &late, &stalls, 30.0).unwrap();
        assert_eq!((gaps.count(), gaps.max_ms()), (1000, 28.0));
        assert_eq!((rest.count(), rest.quantile_ms(1.0)), (999, Some(24.0)));
        // While it catches up it is late for the same reason; afterwards it is not.
        assert!(stalls[0].delays(1_020 * MS, 1_023 * MS));
        assert!(!stalls[0].delays(1_025 * MS, 1_028 * MS));
        assert!(!stalls[0].delays(990 * MS, 998 * MS));
    }

    #[test]
    fn who_is_late_or_slow_for_several_beats_was_stalled() {
        let usual = Duration::from_micros(10);
        let mut pace = Pace::new(usual);
        // Late by 4 ms; slow once, by an interrupt; slow for five beats, the third of which is late, too.
        pace.beat(1_000, 5_000, usual);
        pace.beat(6_000, 6_010, 5 * usual);
        pace.beat(7_000, 7_010, usual);
        assert_eq!(
            pace.stalls,
            [Stall {
                from: 1_000,
                until: 5_000
            }]
        );
        for (due, woke) in [
            (8_000, 8_000),
            (9_000, 9_000),
            (10_000, 12_000),
            (13_000, 13_000),
            (14_000, 14_000),
        ] {
            pace.beat(due, woke, 5 * usual);
        }
        pace.beat(15_000, 15_000, usual);
        let slow = Stall {
            from: 8_000,
            until: 14_050,
        };
        assert_eq!(pace.stalls.len(), 2);
        assert_eq!(pace.stalls.last(), Some(&slow));
    }

    #[test]
    fn a_machine_that_mostly_stands_still_is_not_judged() {
        let stall = Stall {
            from: 0,
            until: 600 * MS,
        };
        assert!(undisturbed(&Times::new(), &[], &[stall], 10.0).is_none());
        assert!(undisturbed(&Times::new(), &[], &[stall], 20.0).is_some());
    }

    #[test]
    fn a_process_of_several_processors_is_not_watched() {
        assert!(Witness::of(None, |_| 0).is_none());
        assert!(Witness::of(Some(u32::MAX), |_| 0).is_none());
    }
}
