//! What the engine counts, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A reading of the engine's counters, all since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls taken.
    pub calls: u64,
    /// Wake-ups of the media threads.
    pub passes: u64,
    /// Bytes read from callers' sockets.
    pub bytes_in: u64,
    /// Bytes written to them.
    pub bytes_out: u64,
    /// Panics caught; each ended its call.
    pub panics: u64,
    /// Callers that stopped reading: sockets that were closed with 1011, and connections of browsers that were
    /// given up.
    pub stalled: u64,
    /// Callers that were closed for how they sent: too many messages (1008), too large ones (1009),
    /// invalid text (1007) or broken frames (1002).
    pub violations: u64,
    /// Datagrams at the media ports that were for no call, or from strangers, and were dropped.
    pub strangers: u64,
    /// Answers of providers that were dropped: the call's queue stayed full for a second.
    pub dropped_events: u64,
    /// Sound that did not fit into the ring to the disk, ms.
    pub record_gap_ms: u64,
    /// Tapes that were stopped early: too large, or the ring was full.
    pub stopped_tapes: u64,
    /// Recordings that failed (disk full and the like).
    pub failed_recordings: u64,
    /// Recordings that were not begun because the disk was nearly full.
    pub refused_recordings: u64,
}

macro_rules! tallies {
    ($($name:ident),*) => {
        /// The counters themselves, shared by all threads of the engine.
        #[derive(Debug, Default)]
        pub(super) struct Tallies {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Tallies {
            pub(super) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Relaxed),)* }
            }
        }
    };
}

tallies!(
    calls,
    passes,
    bytes_in,
    bytes_out,
    panics,
    stalled,
    violations,
    strangers,
    dropped_events,
    record_gap_ms,
    stopped_tapes,
    failed_recordings,
    refused_recordings
);

/// Adds to a counter.
pub(super) fn count(tally: &AtomicU64, n: u64) {
    tally.fetch_add(n, Relaxed);
}
