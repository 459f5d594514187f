//! How late passes are, over the last ten seconds: fixed buckets, one writer, no lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::time::Time;

/// How late the media threads served what was due, over about the last ten seconds.
///
/// One pass counts from the earliest deadline it served to the end of its last write: what a
/// listener feels. Passes that only answered input are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// Passes counted.
    pub passes: u64,
}

/// All passes since the start, in coarse buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessTotals {
    /// Passes by lateness: up to each of [`LATENESS_BOUNDS`], and beyond the last.
    pub counts: [u64; LATENESS_BOUNDS.len() + 1],
    pub sum_us: u64,
}

/// Upper bounds of the coarse buckets, seconds. A frame is 20 ms; beyond 10 ms a listener's buffer is
/// strained.
pub const LATENESS_BOUNDS: &[f64] = &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];

/// The same in microseconds.
const BOUNDS_US: [u64; LATENESS_BOUNDS.len()] =
    [500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000];

/// Seconds kept.
const WINDOWS: usize = 10;

/// Eight buckets an octave (12 % wide) from 8 us up to 16 s, and one for each us below 8.
const BUCKETS: usize = 8 * 22;

pub(super) struct Histogram {
    windows: Vec<Window>,
    totals: [AtomicU64; LATENESS_BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

struct Window {
    /// The second that this window counts.
    second: AtomicU64,
    buckets: Vec<AtomicU32>,
    max: AtomicU64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        let window = || Window {
            second: AtomicU64::new(u64::MAX),
            buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            max: AtomicU64::new(0),
        };
        Self {
            windows: (0..WINDOWS).map(|_| window()).collect(),
            totals: Default::default(),
            sum_us: AtomicU64::new(0),
        }
    }

    /// Counts one pass. Called by the owning thread only.
    pub(super) fn add(&self, now: Time, late_us: u64) {
        let second = now.as_millis() / 1000;
        let window = &self.windows[(second % WINDOWS as u64) as usize];
        if window.second.load(Relaxed) != second {
            window
                .buckets
                .iter()
                .for_each(|bucket| bucket.store(0, Relaxed));
            window.max.store(0, Relaxed);
            window.second.store(second, Relaxed);
        }
        window.buckets[bucket(late_us)].fetch_add(1, Relaxed);
        window.max.fetch_max(late_us, Relaxed);
        let at = BOUNDS_US.partition_point(|bound| *bound < late_us);
        self.totals[at].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(late_us, Relaxed);
    }

    /// Sums several threads' passes since the start.
    pub(super) fn totals<'a>(histograms: impl Iterator<Item = &'a Self>) -> LatenessTotals {
        let mut totals = LatenessTotals::default();
        for histogram in histograms {
            for (sum, count) in totals.counts.iter_mut().zip(&histogram.totals) {
                *sum += count.load(Relaxed);
            }
            totals.sum_us += histogram.sum_us.load(Relaxed);
        }
        totals
    }

    /// Sums several threads' histograms.
    pub(super) fn sum<'a>(histograms: impl Iterator<Item = &'a Self>, now: Time) -> Lateness {
        let second = now.as_millis() / 1000;
        let mut counts = [0_u64; BUCKETS];
        let mut lateness = Lateness::default();
        for window in histograms.flat_map(|histogram| &histogram.windows) {
            let age = second.wrapping_sub(window.second.load(Relaxed));
            if age >= WINDOWS as u64 {
                continue;
            }
            for (sum, bucket) in counts.iter_mut().zip(&window.buckets) {
                *sum += u64::from(bucket.load(Relaxed));
            }
            lateness.max_us = lateness.max_us.max(window.max.load(Relaxed));
        }
        lateness.passes = counts.iter().sum();
        lateness.p50_us = quantile(&counts, lateness.passes.div_ceil(2)).min(lateness.max_us);
        lateness.p99_us =
            quantile(&counts, (lateness.passes * 99).div_ceil(100)).min(lateness.max_us);
        lateness
    }
}

fn bucket(us: u64) -> usize {
    if us < 8 {
        return us as usize;
    }
    let octave = us.ilog2() as usize;
    (((octave - 2) * 8) + ((us >> (octave - 3)) & 7) as usize).min(BUCKETS - 1)
}

/// The upper edge of the bucket that holds the `rank`th smallest.
fn quantile(counts: &[u64; BUCKETS], rank: u64) -> u64 {
    let mut seen = 0;
    for (index, count) in counts.iter().enumerate() {
        seen += count;
        if seen >= rank && rank > 0 {
            let (octave, part) = (index / 8, index as u64 % 8);
            return if octave == 0 {
                part
            } else {
                ((9 + part) << (octave - 1)) - 1
            };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_their_upper_edges_hold() {
        let mut last = 0;
        for us in 0..1_000_000 {
            let index = bucket(us);
            assert!(index == last || index == last + 1, "{us}");
            last = index;
            let mut counts = [0; BUCKETS];
            counts[index] = 1;
            let edge = quantile(&counts, 1);
            assert!(
                edge >= us && edge - us <= us / 8,
                "{us} in bucket up to {edge}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn totals_stay() {
        for (bound, micros) in LATENESS_BOUNDS.iter().zip(BOUNDS_US) {
            assert_eq!((bound * 1e6).round() as u64, micros);
        }
        let histogram = Histogram::new();
        for us in [3, 500, 501, 2_000_000] {
            histogram.add(Time::from_millis(us), us);
        }
        let totals = Histogram::totals([&histogram, &Histogram::new()].into_iter());
        assert_eq!(totals.counts, [2, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(totals.sum_us, 2_001_004);
    }

    #[test]
    fn old_seconds_fall_out() {
        let histogram = Histogram::new();
        for ms in 0..1000 {
            histogram.add(Time::from_millis(ms), ms);
        }
        let near = Histogram::sum([&histogram].into_iter(), Time::from_millis(5000));
        assert_eq!((near.passes, near.max_us), (1000, 999));
        assert!(
            near.p50_us.abs_diff(500) < 64 && near.p99_us.abs_diff(990) < 80,
            "{near:?}"
        );
        let later = Histogram::sum([&histogram].into_iter(), Time::from_millis(10_000));
        assert_eq!(later, Lateness::default());
    }
}
