//! Counters and histograms by their labels. None is on the way of an audio frame, so a lock does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::table::{Family, Values};
use super::text::Text;

/// The values of a family's labels, in the order of the table.
pub type Labels<const N: usize> = [Cow<'static, str>; N];

/// A counter for each combination of labels.
#[derive(Debug)]
pub struct Counts<const N: usize> {
    family: &'static Family,
    values: Mutex<BTreeMap<Labels<N>, u64>>,
}

impl<const N: usize> Counts<N> {
    pub fn new(family: &'static Family) -> Self {
        let known = known(family).into_iter().map(|labels| (labels, 0));
        Self {
            family,
            values: Mutex::new(known.collect()),
        }
    }

    /// Counts `more`.
    pub fn add(&self, labels: Labels<N>, more: u64) {
        *lock(&self.values).entry(labels).or_insert(0) += more;
    }

    pub fn write(&self, text: &mut Text) {
        let values = lock(&self.values).clone();
        let mut samples = text.family(self.family);
        for (labels, value) in &values {
            samples.value(&borrowed(labels), *value as f64);
        }
    }
}

/// A histogram for each combination of labels.
#[derive(Debug)]
pub struct Timings<const N: usize> {
    family: &'static Family,
    values: Mutex<BTreeMap<Labels<N>, Histogram>>,
}

impl<const N: usize> Timings<N> {
    pub fn new(family: &'static Family) -> Self {
        let known = known(family).into_iter();
        Self {
            family,
            values: Mutex::new(
                known
                    .map(|labels| (labels, Histogram::new(family)))
                    .collect(),
            ),
        }
    }

    pub fn observe(&self, labels: Labels<N>, took: Duration) {
        lock(&self.values)
            .entry(labels)
            .or_insert_with(|| Histogram::new(self.family))
            .observe(took.as_secs_f64(), self.family);
    }

    pub fn write(&self, text: &mut Text) {
        let values = lock(&self.values).clone();
        let mut samples = text.family(self.family);
        for (labels, histogram) in &values {
            samples.histogram(&borrowed(labels), histogram);
        }
    }
}

/// How often something took how long.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Of each bucket by itself, the infinite one last.
    pub counts: Vec<u64>,
    /// Seconds.
    pub sum: f64,
}

impl Histogram {
    pub fn new(family: &'static Family) -> Self {
        Self {
            counts: vec![0; family.buckets.len() + 1],
            sum: 0.0,
        }
    }

    pub fn observe(&mut self, seconds: f64, family: &'static Family) {
        let at = family.buckets.partition_point(|bound| *bound < seconds);
        self.counts[at] += 1;
        self.sum += seconds;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Combinations of labels that are shown as zero until something is counted.
const SHOWN_EMPTY: usize = 20;

/// What is shown from the start, as zero: all combinations of labels whose values are listed, if they are
/// few. A rate can only be seen of what was there before.
fn known<const N: usize>(family: &'static Family) -> Vec<Labels<N>> {
    let mut known: Vec<Vec<&'static str>> = vec![Vec::new()];
    for label in family.labels {
        let Values::Of(values) = label.values else {
            return Vec::new();
        };
        known = known
            .iter()
            .flat_map(|before: &Vec<&'static str>| {
                values.iter().map(move |value| {
                    let mut labels = before.clone();
                    labels.push(*value);
                    labels
                })
            })
            .collect();
    }
    if known.len() > SHOWN_EMPTY {
        return Vec::new();
    }
    known
        .iter()
        .filter_map(|labels| {
            let labels: [&'static str; N] = labels.as_slice().try_into().ok()?;
            Some(labels.map(Cow::Borrowed))
        })
        .collect()
}

fn borrowed<const N: usize>(labels: &Labels<N>) -> Vec<&str> {
    labels.iter().map(AsRef::as_ref).collect()
}

fn lock<T>(values: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole after any panic: each use is one operation.
    values.lock().unwrap_or_else(PoisonError::into_inner)
}
