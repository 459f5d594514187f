//! Many durations, kept as a histogram of 10 μs steps: exact enough for a gap of 20 ms, and bounded
//! however long a run lasts.

/// One step, μs.
const STEP: u64 = 10;
/// Up to 5 s; what is longer counts as the longest.
const STEPS: usize = 500_000;

/// A set of durations.
#[derive(Clone)]
pub(super) struct Times {
    steps: Vec<u32>,
    count: u64,
    max: u64,
}

impl Times {
    pub(super) fn new() -> Self {
        Self {
            steps: vec![0; STEPS],
            count: 0,
            max: 0,
        }
    }

    pub(super) fn add(&mut self, micros: u64) {
        self.steps[step_of(micros)] += 1;
        self.count += 1;
        self.max = self.max.max(micros);
    }

    /// Takes one of this length out again. The longest stays known.
    pub(super) fn remove(&mut self, micros: u64) {
        let step = step_of(micros);
        if self.steps[step] > 0 {
            self.steps[step] -= 1;
            self.count -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.steps.fill(0);
        self.count = 0;
        self.max = 0;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max_ms(&self) -> f64 {
        self.max as f64 / 1000.0
    }

    /// The duration that this share of all does not exceed, ms; `None` of an empty set.
    pub(super) fn quantile_ms(&self, share: f64) -> Option<f64> {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some((step as u64 * STEP) as f64 / 1000.0);
            }
        }
        None
    }
}

fn step_of(micros: u64) -> usize {
    let step = usize::try_from(micros / STEP).unwrap_or(usize::MAX);
    step.min(STEPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut times = Times::new();
        assert_eq!(times.quantile_ms(0.5), None);
        for ms in 1..=1000 {
            times.add(ms * 1000);
        }
        assert_eq!(times.quantile_ms(0.5), Some(500.0));
        assert_eq!(times.quantile_ms(0.99), Some(990.0));
        assert_eq!(times.quantile_ms(0.999), Some(999.0));
        assert_eq!((times.count(), times.max_ms()), (1000, 1000.0));
        times.add(60_000_000);
        assert_eq!(times.max_ms(), 60_000.0);
    }
}
