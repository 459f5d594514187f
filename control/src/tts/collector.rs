//! Hears the voice of a request on the voice's own thread, and stops one that does not come to an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use media::speech::{SpeechEvent, SpeechSink, SynthesiserEvent};
use tokio::sync::{mpsc, watch};

/// How much one sentence sounded, against how much it may.
#[derive(Debug)]
pub(super) struct Meter {
    left_us: AtomicU64,
    over: watch::Sender<bool>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            left_us: AtomicU64::new(0),
            over: watch::Sender::new(false),
        }
    }
}

impl Meter {
    /// A sentence begins that may sound so long.
    pub(super) fn reset(&self, longest: Duration) {
        let us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        self.left_us.store(us, Ordering::SeqCst);
    }

    /// Whether the voice was stopped.
    pub(super) fn was_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Resolves when the voice was stopped.
    pub(super) async fn is_over(&self) {
        // The sender is this meter, so there is no other end.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn stop(&self) {
        self.over.send_replace(true);
    }

    /// Takes the length of some sound; `false` when there was too much.
    fn take(&self, rate: u32, samples: usize) -> bool {
        let us = samples as u64 * 1_000_000 / u64::from(rate.max(1));
        let enough = self
            .left_us
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(us)
            })
            .is_ok();
        if !enough {
            self.stop();
        }
        enough
    }
}

/// Hears one voice, on the voice's thread; never waits.
pub(super) struct SpeechCollector {
    pub(super) pieces: mpsc::Sender<(u32, SynthesiserEvent)>,
    pub(super) meter: Arc<Meter>,
}

impl SpeechSink for SpeechCollector {
    fn send(&self, event: SpeechEvent) -> bool {
        let SpeechEvent::Synthesiser { segment, event, .. } = event else {
            return true;
        };
        if let SynthesiserEvent::Audio { rate, samples } = &event
            && !self.meter.take(*rate, samples.len())
        {
            return false;
        }
        match self.pieces.try_send((segment, event)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.meter.stop();
                false
            }
            // Whoever listened is gone.
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}
