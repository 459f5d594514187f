//! Where memory is taken: the call stacks of the allocations of a watched thread.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

static SEEN: Mutex<Vec<Backtrace>> = Mutex::new(Vec::new());

/// Whether the places where the current thread allocates are noted, from here on.
pub fn watch(on: bool) {
    WATCHED.set(on);
}

/// A place that was noted.
#[derive(Debug)]
pub struct Place(String);

/// What was noted since the last time.
pub fn places() -> Vec<Place> {
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    // All of it: without, paths are cut short.
    let text = |trace: Backtrace| Place(format!("{trace:#}"));
    seen.into_iter().map(text).collect()
}

impl Place {
    /// The innermost line of source, `path:line:column`, that `is_meant`. Files tell more than functions do: what was
    /// inlined has a name without its crate.
    pub fn innermost(&self, is_meant: impl Fn(&str) -> bool) -> Option<&str> {
        self.0
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("at "))
            .find(|path| is_meant(path))
    }
}

/// The current thread allocates. What it takes to note that is neither noted nor counted.
pub(crate) fn note(count: &Cell<u64>) {
    if !WATCHED.get() {
        return;
    }
    WATCHED.set(false);
    let before = count.get();
    let trace = Backtrace::force_capture();
    SEEN.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(trace);
    count.set(before);
    WATCHED.set(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_by_its_crate_and_function() {
        watch(true);
        drop(std::hint::black_box(vec![1_u8]));
        watch(false);
        drop(std::hint::black_box(vec![1_u8]));
        let seen = places();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        let here = seen[0].innermost(|path| path.contains("/benches/src/"));
        assert!(
            here.is_some_and(|path| path.contains("/places.rs:")),
            "{seen:#?}"
        );
    }
}
