//! How much the caller has spoken over the agent.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::FRAME_MS;
use crate::time::Time;

/// Sums voiced frames in a sliding window of max(1 s, 1.5 × the limit), so that a cough long ago
/// does not count towards an interruption now.
#[derive(Debug)]
pub(super) struct BargeIn {
    limit: Duration,
    window: Duration,
    /// Ends of the voiced frames in the window. At most the limit's worth: reaching it interrupts.
    voiced: VecDeque<Time>,
}

impl BargeIn {
    /// `seconds` of voiced speech interrupt; 0 = the first voiced frame.
    pub(super) fn new(seconds: f64) -> Self {
        let limit = Duration::from_millis((seconds.clamp(0.0, 3.0) * 1000.0).round() as u64);
        let window = Duration::from_secs(1).max(limit * 3 / 2);
        let frames = (window.as_millis() as u64 / FRAME_MS) as usize + 2;
        Self {
            limit,
            window,
            voiced: VecDeque::with_capacity(frames),
        }
    }

    /// A voiced frame ended at `at`. Whether the limit is reached with it.
    pub(super) fn voiced(&mut self, at: Time) -> bool {
        while self
            .voiced
            .front()
            .is_some_and(|&first| at - first >= self.window)
        {
            self.voiced.pop_front();
        }
        if self.voiced.len() == self.voiced.capacity() {
            self.voiced.pop_front();
        }
        self.voiced.push_back(at);
        Duration::from_millis(self.voiced.len() as u64 * FRAME_MS) >= self.limit
    }

    pub(super) fn reset(&mut self) {
        self.voiced.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_until(seconds: f64) -> usize {
        let mut barge_in = BargeIn::new(seconds);
        (1..1000)
            .find(|&n| barge_in.voiced(Time::from_millis(n as u64 * 20)))
            .unwrap_or(1000)
    }

    #[test]
    fn interrupts_at_the_configured_amount_within_a_frame() {
        assert_eq!(frames_until(0.0), 1);
        assert_eq!(frames_until(0.6), 30);
        assert_eq!(frames_until(3.0), 150);
        assert_eq!(frames_until(0.25), 13);
    }

    #[test]
    fn speech_outside_the_window_does_not_count() {
        let mut barge_in = BargeIn::new(0.6);
        for n in 0..29 {
            assert!(!barge_in.voiced(Time::from_millis(n * 20)));
        }
        assert!(!barge_in.voiced(Time::from_millis(3000)));
    }
}
