//! What of one call is not in the database yet, and what of that is on the disk. Pure.

use std::time::Duration;

use super::journal::Entry;

/// First and longest pause between two tries, while the database is there but refuses.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Entries that wait, oldest first. Bounded by the call's own length. It has no `Debug`: a turn is spoken
/// words.
#[derive(Default)]
pub struct Backlog {
    pending: Vec<Entry>,
    /// So many of the first are in the journal.
    kept: usize,
    /// The call has a journal.
    journaled: bool,
    /// Tries in a row that failed.
    failed: u32,
}

impl Backlog {
    /// Adds what just happened. Whether to try to write it at once: nothing older waits.
    pub fn push(&mut self, entry: Entry) -> bool {
        let first = self.is_empty();
        self.pending.push(entry);
        first
    }

    /// What is to be written, in this order.
    pub fn entries(&self) -> &[Entry] {
        &self.pending
    }

    /// The first `count` are in the database.
    pub fn took(&mut self, count: usize) {
        self.pending.drain(..count);
        self.kept = self.kept.saturating_sub(count);
        self.failed = 0;
    }

    /// What is neither in the database nor in the journal.
    pub fn unkept(&self) -> &[Entry] {
        &self.pending[self.kept..]
    }

    /// What there is now was handed to the journal; `whole`: and is on the disk.
    pub fn handed(&mut self, whole: bool) {
        self.journaled = true;
        if whole {
            self.kept = self.pending.len();
        }
    }

    /// Whether the journal has to go: all of it is in the database. Says so once.
    pub fn leaves_journal(&mut self) -> bool {
        self.is_empty() && std::mem::take(&mut self.journaled)
    }

    /// A try failed: how long to wait for the next.
    pub fn pause(&mut self) -> Duration {
        let pause = RETRY.0.saturating_mul(2_u32.saturating_pow(self.failed));
        self.failed += 1;
        pause.min(RETRY.1)
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the end of the call waits.
    pub fn holds_end(&self) -> bool {
        let is_end = |entry: &Entry| matches!(entry, Entry::End { .. });
        self.pending.iter().any(is_end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Ending;
    use super::*;
    use crate::time::Timestamp;

    fn turn(index: u32) -> Entry {
        Entry::Turn {
            index,
            body: String::new(),
            text: String::new(),
            at: Timestamp(1),
        }
    }

    #[test]
    fn each_entry_goes_to_the_journal_once() {
        let mut backlog = Backlog::default();
        assert!(backlog.push(turn(0)), "nothing older waits");
        assert_eq!(backlog.unkept().len(), 1);
        backlog.handed(true);
        assert!(!backlog.push(turn(1)));
        assert_eq!(backlog.unkept().len(), 1);
        // A disk that failed is given the same once more.
        backlog.handed(false);
        assert!(!backlog.push(turn(2)));
        assert_eq!(backlog.unkept().len(), 2);
        backlog.handed(true);
        backlog.took(2);
        assert!(backlog.unkept().is_empty() && !backlog.leaves_journal());
        backlog.took(1);
        assert!(backlog.leaves_journal() && !backlog.leaves_journal());
    }

    #[test]
    fn pauses_double_up_to_five_seconds_and_begin_anew() {
        let mut backlog = Backlog::default();
        let pauses: Vec<u128> = (0..9).map(|_| backlog.pause().as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backlog.took(0);
        assert_eq!(backlog.pause().as_millis(), 50);
    }

    #[test]
    fn the_end_waits_until_it_is_written() {
        let mut backlog = Backlog::default();
        backlog.push(turn(0));
        assert!(!backlog.holds_end());
        backlog.push(Entry::End {
            ending: Ending::session_expired(),
            recording: false,
            at: Timestamp(1),
        });
        assert!(backlog.holds_end());
        backlog.took(2);
        assert!(!backlog.holds_end() && backlog.is_empty());
    }
}
