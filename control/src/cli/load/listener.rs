//! What a caller of a load run hears, and when: pacing, answers, interruptions. Pure: time comes in as μs
//! since the run's start.

use std::collections::VecDeque;

use super::stimulus::Event;
use super::times::Times;

/// A frame, μs.
pub(super) const FRAME_US: u64 = 20_000;
/// What a telephone's jitter buffer hides: a frame that comes later than this is an underrun.
const JITTER_BUFFER_US: u64 = 40_000;
/// A hole longer than this parts two replies; a shorter one is an underrun inside a reply.
const REPLY_GAP_US: u64 = 200_000;
/// An agent that has less than this left to say may have said it before the voice is told from noise:
/// there is nothing to clear.
const NEARLY_DONE_US: u64 = 80_000;
/// A reply that is spoken for so long into the caller's voice was not cut.
const HEARS_OUT_US: u64 = 500_000;
/// The frames that a reply is sent ahead come closer together than this; pacing begins after them.
const BURST_GAP_US: u64 = 5_000;
/// A frame that comes later than this after it was due is noted.
const LATE_US: u64 = 1_000;
/// So many are noted at most: a hundred seconds of 200 calls that are never in time.
const MOST_LATE: usize = 1 << 20;

/// What all calls of a run add up to.
pub(super) struct Figures {
    /// Between two frames of one reply, after those sent ahead.
    pub gaps: Times,
    /// Of the gaps that were too long by more than [`LATE_US`]: when the frame was due, and when it came.
    pub late: Vec<(u64, u64)>,
    /// From the caller's last voiced sample to the answer's first frame.
    pub turns: Times,
    /// From the first voiced sample of an interrupting caller to `clear`.
    pub barge_ins: Times,
    /// How late this generator sent its own frames.
    pub own_lateness: Times,
    pub frames_in: u64,
    pub frames_out: u64,
    /// Frames that came after the time at which they had to be played.
    pub underruns: u64,
    /// The caller spoke into a reply, and it went on to its end.
    pub uncleared: u64,
    /// The caller spoke again before an answer came.
    pub unanswered: u64,
}

impl Figures {
    pub(super) fn new() -> Self {
        Self {
            gaps: Times::new(),
            late: Vec::new(),
            turns: Times::new(),
            barge_ins: Times::new(),
            own_lateness: Times::new(),
            frames_in: 0,
            frames_out: 0,
            underruns: 0,
            uncleared: 0,
            unanswered: 0,
        }
    }

    /// Between two frames of a reply, the second of which came now.
    fn gap(&mut self, now: u64, gap: u64) {
        self.gaps.add(gap);
        if gap > FRAME_US + LATE_US && self.late.len() < MOST_LATE {
            self.late.push((now - gap + FRAME_US, now));
        }
    }

    /// Forgets the warm-up.
    pub(super) fn clear(&mut self) {
        for times in [
            &mut self.gaps,
            &mut self.turns,
            &mut self.barge_ins,
            &mut self.own_lateness,
        ] {
            times.clear();
        }
        self.late.clear();
        (
            self.frames_in,
            self.frames_out,
            self.underruns,
            self.uncleared,
            self.unanswered,
        ) = (0, 0, 0, 0, 0);
    }
}

/// What a caller hears, and the clockwork that times it.
#[derive(Default)]
pub(super) struct Listener {
    /// When the audio that has arrived will have been played.
    plays_until: u64,
    last_frame: u64,
    /// Frames still come closer than they are played: they are sent ahead.
    in_burst: bool,
    /// Marks, each with the time at which all before it was played.
    marks: VecDeque<(u64, String)>,
    /// The caller's last voiced sample, while its answer has not come.
    asked: Option<u64>,
    /// The first voiced sample of a caller who speaks into a reply, while it has not been cleared.
    interrupting: Option<u64>,
    /// Nothing is sent ahead, so that nobody can tell how much of a reply is still to come.
    no_lead: bool,
    /// The same of a caller who may have spoken into its very end.
    perhaps: Option<u64>,
}

impl Listener {
    /// Of a line over which each frame comes when it is to be played.
    pub(super) fn without_lead() -> Self {
        Self {
            no_lead: true,
            ..Self::default()
        }
    }

    pub(super) fn frame(&mut self, now: u64, length: u64, figures: &mut Figures) {
        figures.frames_in += 1;
        if now > self.plays_until + REPLY_GAP_US || self.last_frame == 0 {
            self.plays_until = now;
            self.in_burst = true;
            self.perhaps = None;
            if let Some(asked) = self.asked.take() {
                figures.turns.add(now.saturating_sub(asked));
            }
        } else {
            let spoken_on = |onset: &mut u64| now > *onset + HEARS_OUT_US;
            figures.uncleared += u64::from(self.perhaps.take_if(spoken_on).is_some());
            let gap = now.saturating_sub(self.last_frame);
            self.in_burst &= gap < BURST_GAP_US;
            if !self.in_burst {
                figures.gap(now, gap);
            }
            if now > self.plays_until + JITTER_BUFFER_US {
                figures.underruns += 1;
            }
            self.plays_until = self.plays_until.max(now);
        }
        self.plays_until += length;
        self.last_frame = now;
    }

    pub(super) fn mark(&mut self, name: String) {
        self.marks.push_back((self.plays_until, name));
    }

    pub(super) fn played_mark(&mut self, now: u64) -> Option<String> {
        self.marks
            .pop_front_if(|mark| mark.0 <= now)
            .map(|mark| mark.1)
    }

    pub(super) fn clear(&mut self, now: u64, figures: &mut Figures) {
        if let Some(onset) = self.interrupting.take().or(self.perhaps.take()) {
            figures.barge_ins.add(now.saturating_sub(onset));
        }
        self.plays_until = self.plays_until.min(now);
        // What comes next is a new reply, however soon.
        self.last_frame = 0;
    }

    /// The marks that nothing is played for any more.
    pub(super) fn take_marks(&mut self) -> impl Iterator<Item = String> + use<> {
        std::mem::take(&mut self.marks)
            .into_iter()
            .map(|mark| mark.1)
    }

    /// What comes next begins anew after a silence, however short.
    pub(super) fn resume(&mut self) {
        self.last_frame = 0;
    }

    /// The caller sends a frame, in which this happens.
    pub(super) fn caller(&mut self, now: u64, event: Option<Event>, figures: &mut Figures) {
        match event {
            Some(Event::Onset { before_end }) => {
                self.caller_begins(now, now.saturating_sub(before_end), figures);
            }
            Some(Event::Offset { before_end }) => self.caller_ends(now.saturating_sub(before_end)),
            None => {}
        }
    }

    fn caller_begins(&mut self, now: u64, onset: u64, figures: &mut Figures) {
        if self.asked.take().is_some() {
            figures.unanswered += 1;
        }
        if self.interrupting.take().is_some() {
            figures.uncleared += 1;
        }
        // A reply whose end came by itself is not told of: what is not cleared is nothing then.
        self.perhaps = (self.no_lead && now < self.plays_until + FRAME_US).then_some(onset);
        if !self.no_lead && now + NEARLY_DONE_US < self.plays_until {
            self.interrupting = Some(onset);
        }
    }

    fn caller_ends(&mut self, offset: u64) {
        self.asked = Some(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    #[test]
    fn frames_sent_ahead_do_not_count_as_pacing() {
        let (mut ear, mut figures) = (Listener::default(), Figures::new());
        ear.caller_ends(500 * MS);
        for burst in 0..5 {
            ear.frame(1000 * MS + burst * 100, FRAME_US, &mut figures);
        }
        for paced in 1..=10 {
            ear.frame(1000 * MS + 400 + paced * FRAME_US, FRAME_US, &mut figures);
        }
        assert_eq!(
            (figures.gaps.count(), figures.gaps.quantile_ms(0.5)),
            (10, Some(20.0))
        );
        assert_eq!(figures.turns.quantile_ms(0.5), Some(500.0));
        assert_eq!(figures.underruns, 0);
    }

    #[test]
    fn a_late_frame_is_an_underrun_and_a_long_pause_a_new_reply() {
        let (mut ear, mut figures) = (Listener::default(), Figures::new());
        ear.frame(1000 * MS, FRAME_US, &mut figures);
        ear.frame(1061 * MS, FRAME_US, &mut figures);
        assert_eq!((figures.underruns, figures.gaps.count()), (1, 1));
        ear.frame(2000 * MS, FRAME_US, &mut figures);
        assert_eq!((figures.underruns, figures.gaps.count()), (1, 1));
    }

    #[test]
    fn a_barge_in_lasts_from_the_onset_to_the_clear() {
        let (mut ear, mut figures) = (Listener::default(), Figures::new());
        for _ in 0..10 {
            ear.frame(1000 * MS, FRAME_US, &mut figures);
        }
        ear.mark("end".to_owned());
        ear.caller_begins(1100 * MS, 1085 * MS, &mut figures);
        ear.clear(1180 * MS, &mut figures);
        assert_eq!(figures.barge_ins.quantile_ms(0.5), Some(95.0));
        // A caller who speaks into silence interrupts nothing.
        ear.caller_begins(3000 * MS, 3000 * MS, &mut figures);
        ear.clear(3100 * MS, &mut figures);
        assert_eq!((figures.barge_ins.count(), figures.uncleared), (1, 0));
    }

    #[test]
    fn a_barge_in_over_a_line_without_lead_is_one_when_it_is_cleared() {
        let (mut ear, mut figures) = (Listener::without_lead(), Figures::new());
        let speak = |ear: &mut Listener, figures: &mut Figures, from: u64, frames: u64| {
            for frame in 0..frames {
                ear.frame((from + 20 * frame) * MS, FRAME_US, figures);
            }
        };
        speak(&mut ear, &mut figures, 1000, 10);
        ear.caller_begins(1185 * MS, 1180 * MS, &mut figures);
        ear.clear(1250 * MS, &mut figures);
        assert_eq!(figures.barge_ins.quantile_ms(0.5), Some(70.0));
        // Into the last frame of a reply that ends by itself, and into silence.
        speak(&mut ear, &mut figures, 3000, 10);
        ear.caller_begins(3185 * MS, 3180 * MS, &mut figures);
        speak(&mut ear, &mut figures, 3800, 5);
        ear.caller_begins(4000 * MS, 4000 * MS, &mut figures);
        assert_eq!((figures.barge_ins.count(), figures.uncleared), (1, 0));
        // Into one that is spoken on.
        speak(&mut ear, &mut figures, 6000, 10);
        ear.caller_begins(6185 * MS, 6180 * MS, &mut figures);
        speak(&mut ear, &mut figures, 6200, 30);
        assert_eq!((figures.barge_ins.count(), figures.uncleared), (1, 1));
    }

    #[test]
    fn marks_are_echoed_when_their_audio_was_played() {
        let (mut ear, mut figures) = (Listener::default(), Figures::new());
        ear.frame(1000 * MS, FRAME_US, &mut figures);
        ear.mark("a".to_owned());
        assert_eq!(ear.played_mark(1019 * MS), None);
        assert_eq!(ear.played_mark(1020 * MS), Some("a".to_owned()));
    }
}
