//! The caller's side on the call's one sample clock.
//!
//! Where timestamps tell a piece's place (RTP, a telephony vendor's messages), a piece stands right behind the one
//! before: the leg has filled what was lost between them, or told its length ([`Timeline::lost`]), once. The clock is
//! asked where timestamps tell nothing: at the beginning, when they begin anew, and on a socket without timestamps.
//! There a piece is contiguous with the piece before, unless the sender paused: then the silence between them is as
//! long as the clock says.
//!
//! Two clocks do not run alike, a first packet may be slow, and some senders' timestamps stand still in a pause: a long
//! one is told by the leg ([`JitterBuffer`](crate::audio::jitter::JitterBuffer)), short ones add up. So the clock watches
//! over a stream with timestamps ([`Lags`]), and its place is put right while the caller is silent.
//!
//! The agent's side is placed by [`Playout`](crate::audio::playout::Playout), where it is played.

use crate::frame::FRAME;

/// A piece without a timestamp this much later than its place (200 ms) comes after a pause and not after jitter.
const PAUSE: u64 = 3_200;

/// A place may be off by so much (10 ms) before it is corrected.
const CLOSE: u64 = 160;

/// A sender may be this far ahead of the clock (2.5 s): a second in one message, and as much again
/// that was held back on the way. More is not a caller speaking.
const MOST_AHEAD: u64 = 40_000;

/// What comes within so much (100 ms) after a piece that the clock placed, and is ahead of the clock by more than this
/// (60 ms), was held back with that piece. No sender is so fast.
const TOGETHER: u64 = 1_600;
const BURST: u64 = 960;

/// The fastest of the pieces within a span (3 s) shows where the stream stands, if there are enough of them. Two spans
/// that agree show that it stays there: a network that is slow for a while is no slow clock, and a sender that sends
/// faster than real time has no late beginning.
const SPAN: u64 = 48_000;
const ENOUGH: u32 = 25;

/// Where the caller's next samples belong.
#[derive(Debug, Default)]
pub struct Timeline {
    next: u64,
    /// When the piece came that the clock placed.
    placed: u64,
    /// The length of the newest piece.
    length: u64,
    began: bool,
    ask: Ask,
    lags: Lags,
    /// Samples of silence to be put before a piece when nobody hears it; below zero: to be left out.
    owed: i64,
    /// Audio was lost at a place that nothing tells.
    unplaced: bool,
    /// The media was connected anew.
    reconnected: bool,
}

/// What the next piece with a timestamp is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ask {
    /// Its timestamp alone tells its place.
    #[default]
    Nothing,
    /// Its timestamp tells its place, unless the clock says that the sender paused meanwhile.
    Pause,
    /// The clock alone tells its place.
    Clock,
}

/// Audio of the caller that has just come.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The position of the clock.
    pub now: u64,
    /// In samples.
    pub length: u64,
    /// Timestamps tell that it follows the piece before.
    pub stamped: bool,
}

/// The place of a piece of audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its first `skip` samples are left out. The rest goes at this position, and so many samples of silence stand
    /// before it.
    At {
        position: u64,
        silence: u64,
        skip: u64,
    },
    /// It is too far ahead of real time and has to be dropped.
    TooFast,
}

impl Timeline {
    /// Audio of the caller came. `quiet`: nobody misses a little of it, and nobody hears a little silence before it.
    pub fn place(&mut self, piece: Piece, quiet: impl Fn() -> bool) -> Place {
        let Piece {
            now,
            length,
            stamped,
        } = piece;
        let natural = now.saturating_sub(length);
        if !self.began {
            self.began = true;
            self.ask = Ask::Nothing;
            self.next = natural;
            self.placed = now;
        }
        let end = self.next + length;
        if end > now + MOST_AHEAD {
            // Cut to what is allowed, a stream is as far ahead as that, whenever it began.
            (self.lags, self.owed) = (Lags::default(), 0);
            self.unplaced = true;
            return Place::TooFast;
        }
        let ask = match std::mem::take(&mut self.ask) {
            Ask::Nothing if !stamped => Ask::Pause,
            ask => ask,
        };
        let behind = natural.saturating_sub(self.next);
        let (silence, skip) = match ask {
            Ask::Pause if behind > PAUSE => (behind, 0),
            Ask::Clock if behind > CLOSE => (behind, 0),
            Ask::Pause | Ask::Clock => (0, 0),
            Ask::Nothing => self.correct(now, length, quiet),
        };
        if ask != Ask::Nothing {
            (self.lags, self.owed, self.placed) = (Lags::default(), 0, now);
        }
        let position = self.next + silence;
        self.next = position + length - skip;
        self.length = length;
        Place::At {
            position,
            silence,
            skip,
        }
    }

    /// How much silence is put before a piece with a timestamp, and how much of it is left out, so that the stream keeps
    /// up with the clock.
    fn correct(&mut self, now: u64, length: u64, quiet: impl Fn() -> bool) -> (u64, u64) {
        let end = self.next + length;
        if now.saturating_sub(self.placed) <= TOGETHER {
            // Sound that comes before it was said, all at once with the piece that the clock placed: the network had held
            // that one back.
            let lag = now as i64 - end as i64;
            if lag < -(BURST as i64) {
                self.owed = self.owed.min(lag);
            }
        }
        if self.owed == 0 {
            self.lags.note(now, end);
            let lag = self.lags.lasting();
            if lag.unsigned_abs() <= CLOSE {
                return (0, 0);
            }
            self.owed = lag;
            self.lags = Lags::default();
        }
        if !quiet() {
            return (0, 0);
        }
        if self.owed > 0 {
            return (std::mem::take(&mut self.owed).unsigned_abs(), 0);
        }
        // An eighth of a piece stays: it shows that the stream lives.
        let skip = self.owed.unsigned_abs().min(length - length / 8);
        self.owed += skip as i64;
        (0, skip)
    }

    /// Audio was lost on the way, and its length is known: silence stands in its place. Returns how much silence.
    pub fn lost(&mut self, now: u64, samples: u64) -> u64 {
        // Where the clock tells the place of what follows, it tells that of the loss, too.
        if !self.began || self.ask == Ask::Clock {
            return 0;
        }
        let owed = self.owed.max(-(samples.min(MOST_AHEAD) as i64));
        self.owed -= owed;
        // What was lost cannot have been said after now, nor after the piece behind it, which is here: one like the
        // newest, and no longer than most senders' are.
        let room = now.saturating_sub(self.next + self.length.min(FRAME as u64));
        let silence = samples.saturating_add_signed(owed).min(room);
        self.next += silence;
        silence
    }

    /// The timestamps begin anew: the clock tells where the next piece belongs.
    pub fn begin_anew(&mut self) {
        self.ask = Ask::Clock;
    }

    /// The caller held the call. Not every sender's timestamps go on meanwhile.
    pub fn resume(&mut self) {
        if self.ask == Ask::Nothing {
            self.ask = Ask::Pause;
        }
    }

    /// The media was connected anew: the places of what came before and after are unrelated.
    pub fn reconnect(&mut self) {
        self.unplaced = true;
        self.reconnected = true;
        self.begin_anew();
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

/// How far a stream's pieces end behind the clock. Sound cannot come before it was said, and the fastest packet of many
/// is as fast as the network: where it is early, the stream was placed too late, and where even it is late, too early.
#[derive(Clone, Copy, Debug, Default)]
struct Lags {
    /// The newest first.
    spans: [Span; 2],
    /// When the newest began.
    since: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Below zero: ahead of the clock.
    least: i64,
    pieces: u32,
}

impl Lags {
    /// A piece came at `now` that ends at `end`.
    fn note(&mut self, now: u64, end: u64) {
        if now.saturating_sub(self.since) >= SPAN {
            self.spans = [Span::default(), self.spans[0]];
            self.since = now;
        }
        let lag = now as i64 - end as i64;
        let newest = &mut self.spans[0];
        if newest.pieces == 0 || lag < newest.least {
            newest.least = lag;
        }
        newest.pieces += 1;
    }

    /// How far the stream is behind for good; 0: that is not known.
    fn lasting(&self) -> i64 {
        let [newest, before] = self.spans;
        let enough = newest.pieces >= ENOUGH && before.pieces >= ENOUGH;
        let agree = newest.least.abs_diff(before.least) <= CLOSE;
        if enough && agree { newest.least } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = crate::frame::FRAME as u64;

    fn place(line: &mut Timeline, now: u64, length: u64, stamped: bool) -> Place {
        let piece = Piece {
            now,
            length,
            stamped,
        };
        line.place(piece, || true)
    }

    fn at(position: u64, silence: u64, skip: u64) -> Place {
        Place::At {
            position,
            silence,
            skip,
        }
    }

    #[test]
    fn without_timestamps_jitter_keeps_pieces_together_and_a_pause_parts_them() {
        let mut line = Timeline::default();
        assert_eq!(place(&mut line, 1000, 320, false), at(680, 0, 0));
        assert_eq!(place(&mut line, 3000, 320, false), at(1000, 0, 0));
        assert_eq!(place(&mut line, 3001, 320, false), at(1320, 0, 0));
        assert_eq!(place(&mut line, 20_000, 320, false), at(19_680, 18_040, 0));
        assert!(line.is_whole());
    }

    #[test]
    fn a_sender_far_ahead_is_dropped_and_the_places_are_no_longer_known() {
        let mut line = Timeline::default();
        let dropped = (0..10)
            .filter(|_| place(&mut line, 16_000, 16_000, false) == Place::TooFast)
            .count();
        assert_eq!(dropped, 7);
        assert!(!line.is_whole());
    }

    #[test]
    fn known_losses_are_silence_of_their_length() {
        let mut line = Timeline::default();
        place(&mut line, 320, 320, true);
        assert_eq!(line.lost(1280, 640), 640);
        assert_eq!(place(&mut line, 1280, 320, true), at(960, 0, 0));
        // Two seconds that nobody can have said yet.
        assert_eq!(line.lost(1920, 32_000), 320);
        assert_eq!(place(&mut line, 1920, 320, true), at(1600, 0, 0));
    }

    #[test]
    fn what_was_filled_before_a_late_packet_is_not_counted_again() {
        let mut line = Timeline::default();
        place(&mut line, FRAME, FRAME, true);
        // 800 ms are lost. Six frames of them are made up when the packet behind them comes.
        let now = 42 * FRAME;
        for made_up in 1..=6 {
            assert_eq!(
                place(&mut line, now, FRAME, true),
                at(made_up * FRAME, 0, 0)
            );
        }
        assert_eq!(line.lost(now, 34 * FRAME), 34 * FRAME);
        assert_eq!(place(&mut line, now, FRAME, true), at(41 * FRAME, 0, 0));
    }

    #[test]
    fn a_loss_before_the_first_piece_or_a_restart_is_the_clocks_matter() {
        let mut line = Timeline::default();
        assert_eq!(line.lost(8000, 640), 0);
        assert_eq!(place(&mut line, 8320, 320, true), at(8000, 0, 0));
        line.begin_anew();
        assert_eq!(line.lost(16_000, 640), 0);
        assert_eq!(place(&mut line, 16_320, 320, true), at(16_000, 7680, 0));
        line.begin_anew();
        assert_eq!(place(&mut line, 16_700, 320, true), at(16_320, 0, 0));
        assert!(line.is_whole());
    }

    #[test]
    fn after_a_hold_timestamps_are_believed_unless_they_stood_still() {
        let mut line = Timeline::default();
        place(&mut line, FRAME, FRAME, true);
        line.resume();
        line.lost(100 * FRAME, 98 * FRAME);
        assert_eq!(
            place(&mut line, 100 * FRAME, FRAME, true),
            at(99 * FRAME, 0, 0)
        );
        line.resume();
        let silence = 99 * FRAME;
        assert_eq!(
            place(&mut line, 200 * FRAME, FRAME, true),
            at(199 * FRAME, silence, 0)
        );
    }

    /// The greatest error after frames that are stretched by so many parts in a million, the first one late.
    fn worst(frames: u64, ppm: i64, late: u64) -> u64 {
        let mut line = Timeline::default();
        let mut worst = 0;
        for frame in 1..=frames {
            let said =
                (frame * FRAME).saturating_add_signed((frame * FRAME) as i64 * ppm / 1_000_000);
            let now = 16_000 + said + if frame == 1 { late } else { frame * 7 % 13 };
            let Place::At { position, skip, .. } = place(&mut line, now, FRAME, true) else {
                unreachable!("nothing is fast");
            };
            if frame > 400 {
                worst = worst.max((position - skip).abs_diff(16_000 + said - FRAME));
            }
        }
        worst
    }

    #[test]
    fn a_clock_that_drifts_and_a_late_beginning_are_put_right() {
        for (ppm, late) in [(0, 1600), (100, 0), (-100, 0), (100, 1600), (-100, 1600)] {
            let worst = worst(180_000, ppm, late);
            assert!(worst <= 320, "{ppm} ppm, {late} late: {worst} samples");
        }
    }

    #[test]
    fn short_pauses_in_which_timestamps_stood_still_are_put_right_together() {
        let mut line = Timeline::default();
        let mut paused = 0;
        for frame in 1..=2_000 {
            // Ten pauses of 60 ms, with a second between them.
            if (500..1_000).contains(&frame) && frame % 50 == 0 {
                paused += 960;
            }
            let now = 16_000 + paused + frame * FRAME;
            let Place::At { position, .. } = place(&mut line, now, FRAME, true) else {
                unreachable!("nothing is fast");
            };
            if !(500..=1_500).contains(&frame) {
                assert_eq!(position, now - FRAME, "frame {frame}");
            }
        }
    }

    #[test]
    fn a_pause_takes_what_is_owed() {
        let mut line = Timeline::default();
        // The first packet is 100 ms late, and there are no others but those of a voice.
        place(&mut line, 16_000 + FRAME + 1_600, FRAME, true);
        for frame in 2..=400 {
            let piece = Piece {
                now: 16_000 + frame * FRAME,
                length: FRAME,
                stamped: true,
            };
            line.place(piece, || false);
        }
        let now = 16_000 + 450 * FRAME;
        assert_eq!(line.lost(now, 49 * FRAME), 49 * FRAME - 1_600);
        assert_eq!(
            place(&mut line, now, FRAME, true),
            at(16_000 + 449 * FRAME, 0, 0)
        );
    }

    #[test]
    fn a_sender_that_is_faster_than_real_time_is_cut_and_not_shortened() {
        for percent in [105, 150] {
            let mut line = Timeline::default();
            for frame in 1..=2_000 {
                let now = 16_000 + frame * FRAME * 100 / percent;
                match place(&mut line, now, FRAME, true) {
                    Place::At { skip, .. } => assert_eq!(skip, 0, "{percent} %, frame {frame}"),
                    Place::TooFast => assert!(!line.is_whole()),
                }
            }
        }
    }

    #[test]
    fn nothing_is_put_right_while_the_caller_speaks() {
        let mut line = Timeline::default();
        for frame in 1..=2_000 {
            // By one in a thousand slow, then fast.
            let said = if frame < 1_000 { frame } else { 2_000 - frame };
            let piece = Piece {
                now: 16_000 + frame * FRAME + said / 3,
                length: FRAME,
                stamped: true,
            };
            assert!(matches!(
                line.place(piece, || false),
                Place::At {
                    silence: 0,
                    skip: 0,
                    ..
                }
            ));
        }
    }
}
