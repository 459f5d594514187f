//! The caller's side on the call's one sample clock.
//!
//! A socket delivers audio in pieces that come early or late. Their place is contiguous with the
//! piece before, unless the sender paused: then the silence between them is as long as the clock
//! says. The agent's side is placed by [`Playout`](crate::audio::playout::Playout), where it is
//! played.

/// A piece this much later than its place (200 ms) comes after a pause and not after jitter.
const PAUSE: u64 = 3_200;

/// A sender may be this far ahead of the clock (2.5 s): a second in one message, and as much again
/// that was held back on the way. More is not a caller speaking.
const MOST_AHEAD: u64 = 40_000;

/// Where the caller's next samples belong.
#[derive(Debug, Default)]
pub struct Timeline {
    next: u64,
    began: bool,
    /// Audio was lost at a place that nothing tells.
    unplaced: bool,
    /// The media was connected anew.
    reconnected: bool,
}

/// The place of a piece of audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It goes at this position; so many samples of silence stand before it.
    At { position: u64, silence: u64 },
    /// It is too far ahead of real time and has to be dropped.
    TooFast,
}

impl Timeline {
    /// `length` samples of the caller arrived, the last of them at position `now` of the clock.
    pub fn place(&mut self, now: u64, length: u64) -> Place {
        let natural = now.saturating_sub(length);
        if !self.began {
            self.began = true;
            self.next = self.next.max(natural);
        }
        if self.next + length > now + MOST_AHEAD {
            self.unplaced = true;
            return Place::TooFast;
        }
        let silence = if natural > self.next + PAUSE {
            natural - self.next
        } else {
            0
        };
        let position = self.next + silence;
        self.next = position + length;
        Place::At { position, silence }
    }

    /// Audio was lost on the way, and its length is known: silence stands in its place.
    pub fn lost(&mut self, now: u64, samples: u64) {
        self.began = true;
        self.next = (self.next + samples).min(now + MOST_AHEAD);
    }

    /// The media was connected anew: the places of what came before and after are unrelated.
    pub fn reconnect(&mut self) {
        self.unplaced = true;
        self.reconnected = true;
    }

    /// Whether the media was connected anew during the call.
    pub fn is_reconnected(&self) -> bool {
        self.reconnected
    }

    /// Whether caller positions can be trusted: no audio is missing at an unknown place.
    pub fn is_whole(&self) -> bool {
        !self.unplaced
    }

    /// The position after the caller's last sample.
    pub fn next(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_pieces_together_and_a_pause_parts_them() {
        let mut line = Timeline::default();
        assert_eq!(
            line.place(1000, 320),
            Place::At {
                position: 680,
                silence: 0
            }
        );
        assert_eq!(
            line.place(3000, 320),
            Place::At {
                position: 1000,
                silence: 0
            }
        );
        assert_eq!(
            line.place(3001, 320),
            Place::At {
                position: 1320,
                silence: 0
            }
        );
        assert_eq!(
            line.place(20_000, 320),
            Place::At {
                position: 19_680,
                silence: 18_040
            }
        );
        assert!(line.is_whole());
    }

    #[test]
    fn a_sender_far_ahead_is_dropped_and_the_places_are_no_longer_known() {
        let mut line = Timeline::default();
        let dropped = (0..10)
            .filter(|_| line.place(16_000, 16_000) == Place::TooFast)
            .count();
        assert_eq!(dropped, 7);
        assert!(!line.is_whole());
    }

    #[test]
    fn known_losses_are_silence_of_their_length() {
        let mut line = Timeline::default();
        line.place(320, 320);
        line.lost(1000, 640);
        assert_eq!(
            line.place(1280, 320),
            Place::At {
                position: 960,
                silence: 0
            }
        );
    }
}
