//! Who has died: nodes whose number stands still while somebody looks. Pure.

use std::collections::HashMap;
use std::time::Duration;

/// Silence after which a node is dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(6);
/// A gap between two looks counts as this much silence at most: who did not look (the database was
/// away, this process slept) cannot tell that nobody beat meanwhile.
const GAP: Duration = Duration::from_secs(3);

/// What one node has seen of the others.
#[derive(Debug, Default)]
pub struct Watch {
    seen: HashMap<i64, Seen>,
    last: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    beats: i64,
    silent: Duration,
}

impl Watch {
    /// One look at `now` (monotonic): incarnations with their beats. Those that are dead.
    pub fn look(
        &mut self,
        nodes: impl IntoIterator<Item = (i64, i64)>,
        now: Duration,
    ) -> Vec<(i64, i64)> {
        let gap = self
            .last
            .map_or(Duration::ZERO, |last| now.saturating_sub(last).min(GAP));
        self.last = Some(now);
        let mut dead = Vec::new();
        let mut seen = HashMap::new();
        for (incarnation, beats) in nodes {
            let silent = match self.seen.get(&incarnation) {
                Some(before) if before.beats == beats => before.silent + gap,
                _ => Duration::ZERO,
            };
            if silent >= DEAD_AFTER {
                dead.push((incarnation, beats));
            }
            seen.insert(incarnation, Seen { beats, silent });
        }
        self.seen = seen;
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_number_that_stands_still_for_six_seconds_is_a_death() {
        let mut watch = Watch::default();
        assert!(watch.look([(1, 7), (2, 3)], s(0)).is_empty());
        assert!(watch.look([(1, 8), (2, 3)], s(2)).is_empty());
        assert!(watch.look([(1, 9), (2, 3)], s(4)).is_empty());
        assert_eq!(watch.look([(1, 10), (2, 3)], s(6)), [(2, 3)]);
        assert_eq!(watch.look([(1, 10)], s(8)), []);
    }

    #[test]
    fn who_did_not_look_buries_nobody() {
        let mut watch = Watch::default();
        assert!(watch.look([(1, 7)], s(0)).is_empty());
        assert!(watch.look([(1, 7)], s(600)).is_empty());
        assert!(watch.look([(1, 8)], s(602)).is_empty());
        assert!(watch.look([(1, 8)], s(604)).is_empty());
    }

    #[test]
    fn a_beat_in_between_begins_anew() {
        let mut watch = Watch::default();
        for second in 0..3 {
            assert!(watch.look([(1, 7)], s(second * 2)).is_empty());
        }
        assert!(watch.look([(1, 8)], s(6)).is_empty());
        assert!(watch.look([(1, 8)], s(8)).is_empty());
    }
}
