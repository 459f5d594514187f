//! Whether the machine itself stood still: a thread on the server's processor that wants nothing but to wake every
//! millisecond, before everything else. What makes it late (a hypervisor that gives the processor to another guest,
//! most often) makes the server late too, and is no work of the server's.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::ear::FRAME_US;
use super::times::Times;

const BEAT: Duration = Duration::from_millis(1);
const BEAT_US: u64 = 1_000;
/// Later than this is a stall.
const STALL: Duration = Duration::from_millis(1);
/// Above everything that is not real-time (`setpriority(2)`).
const FIRST_OF_ALL: i32 = -20;
/// As many stalls as a run may have. A machine that has more is not measured with.
const MOST: usize = 100_000;
/// Of a run that was disturbed for a larger share, nothing is said.
const TOO_MUCH: f64 = 0.1;

/// The machine gave this processor to nobody here, μs of the run's clock.
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
    let mut stalls = Vec::new();
    while !over.load(Ordering::Relaxed) && stalls.len() < MOST {
        let due = Instant::now() + BEAT;
        thread::sleep(BEAT);
        let woke = Instant::now();
        if woke.saturating_duration_since(due) > STALL {
            stalls.push(Stall {
                from: micros(due),
                until: micros(woke),
            });
        }
    }
    Ok(stalls)
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
