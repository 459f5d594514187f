//! Agent audio between the voice and the caller's ear: waiting, sent, played.
//!
//! Every sample has an index: how many were played (or will be) before it. Samples wait, are
//! sent in frames of 20 ms on a grid that runs `lead` ahead of real time, and are played in real time
//! from the first send on, or later when the client (`playback`) or the vendor (`mark`) says so (such
//! news moves the grid only when it would be more than 400 ms ahead of what is played). A
//! sample's place in the recording is where it was played; what was cut before it was played is not
//! recorded.

use std::collections::VecDeque;

use crate::frame::FRAME;

/// How far behind real time a client may claim to be, samples (5 s): more is no truth but a stall.
const MOST_BEHIND: u64 = 80_000;

/// Reports that differ by less are within the noise of the network, samples (10 ms).
const NOISE: u64 = 160;

/// No audio is sent further ahead of its playing time than this, samples (400 ms): an interruption
/// has little to take back.
const MOST_LEAD: u64 = 6_400;

/// Frames beyond those of the lead that may be unplayed: they go out early, or are settled late.
const MORE_UNPLAYED: usize = 4;

/// Sent frames whose message can still be named by a `playback` report. 64 frames are 1.3 s, three
/// times the greatest lead.
const REMEMBERED: usize = 64;

/// A frame that is sent so much after its time (10 ms) still follows the one before: whoever sends wakes up
/// a little late, and would else slow the voice down by that much with each frame.
const LATE: u64 = FRAME as u64 / 2;

/// The queue of one call's agent audio.
#[derive(Debug)]
pub struct Playout {
    lead: u64,
    /// How much sooner than that frames go out, in company with the caller's packets.
    early: u64,
    waiting: VecDeque<i16>,
    /// Index of the next sample to be queued.
    queued: u64,
    /// Index of the next sample to be sent.
    sent: u64,
    /// While audio is under way: sample `i` is played at position `i + base` of the recording.
    run: Option<Run>,
    unplayed: VecDeque<Sent>,
    recent: VecDeque<(u64, u64)>,
    /// The next position of the recording's agent side that is not written.
    recorded: u64,
    /// The caller's ear was dry when the last frame was sent.
    began: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    base: u64,
    /// The base in real time from the first send: no sample is played before that.
    earliest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: u64,
    length: usize,
    samples: [i16; FRAME],
}

/// A part of a frame that has been played: recorded at `at`, its first sample having this index.
#[derive(Debug, PartialEq, Eq)]
pub struct Played<'a> {
    pub at: u64,
    pub index: u64,
    pub samples: &'a [i16],
}

impl Playout {
    /// `lead`: samples at 16 kHz.
    pub fn new(lead: u64) -> Self {
        let lead = lead.clamp(FRAME as u64, MOST_LEAD);
        Self {
            lead,
            early: 0,
            waiting: VecDeque::with_capacity(FRAME * 8),
            queued: 0,
            sent: 0,
            run: None,
            unplayed: VecDeque::with_capacity(lead as usize / FRAME + MORE_UNPLAYED),
            recent: VecDeque::with_capacity(REMEMBERED),
            recorded: 0,
            began: false,
        }
    }

    /// Makes room for `samples` more, and no more than that: a voice may send a whole sentence at once,
    /// and room that doubles would cost a call as much again.
    pub fn expect(&mut self, samples: usize) {
        self.waiting.reserve_exact(samples);
    }

    /// Queues audio and tells the index of its first sample.
    pub fn push(&mut self, samples: &[i16]) -> u64 {
        let index = self.queued;
        self.waiting.extend(samples);
        self.queued += samples.len() as u64;
        index
    }

    /// Fills the last part of a frame with silence: what comes next may be long in coming, and this is not to wait
    /// for it.
    pub fn pad(&mut self) {
        let rest = self.waiting.len() % FRAME;
        if rest > 0 {
            self.push(&[0; FRAME][rest..]);
        }
    }

    /// Index that the next queued sample will have.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Index of the next sample to be sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Samples that wait to be sent.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// All that was queued has been sent and played.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.unplayed.is_empty()
    }

    /// The position of the recording's clock at which the next frame may be sent; `None`: nothing to
    /// send. `tail`: no more audio will follow, so a last part of a frame is sent too.
    pub fn next_send(&self, tail: bool) -> Option<u64> {
        if self.waiting.len() < if tail { 1 } else { FRAME } {
            return None;
        }
        Some(match self.run {
            Some(run) => {
                let next = self.sent + FRAME as u64;
                let grid = (run.earliest + next).saturating_sub(self.lead + self.early);
                grid.max((run.base + next).saturating_sub(MOST_LEAD))
            }
            None => 0,
        })
    }

    /// The position at which the next frame's time is, however early it goes out; `None`: nothing is under way.
    pub fn next_due(&self) -> Option<u64> {
        let run = self.run?;
        Some((run.earliest + self.sent + FRAME as u64).saturating_sub(self.lead))
    }

    /// Frames go out so many samples before their time.
    pub fn go_early(&mut self, samples: u64) {
        self.early = samples;
    }

    /// The beginning of what would be sent next, fading to silence within 10 ms; `None`: nothing waits.
    /// For a stop that shall not click.
    pub fn fade(&self) -> Option<[i16; FRAME]> {
        const FADE: usize = FRAME / 2;
        if self.waiting.is_empty() {
            return None;
        }
        let mut samples = [0; FRAME];
        for (at, (to, from)) in samples.iter_mut().zip(&self.waiting).take(FADE).enumerate() {
            *to = (i32::from(*from) * (FADE - at) as i32 / FADE as i32) as i16;
        }
        Some(samples)
    }

    /// The next frame, if it is due at position `now` (up to which [`settle`](Self::settle) was
    /// called) or within `allowance` of it. The last part of a frame is filled with silence.
    pub fn send(&mut self, now: u64, allowance: u64, tail: bool) -> Option<[i16; FRAME]> {
        if self.next_send(tail)? > now + allowance {
            return None;
        }
        let begins = match self.run {
            // The caller's ear ran dry: what comes now is heard now.
            Some(run) => run.base + self.sent + LATE < now && self.unplayed.is_empty(),
            None => true,
        };
        self.began = begins;
        if begins {
            let base = now.max(self.recorded).saturating_sub(self.sent);
            self.run = Some(Run {
                base,
                earliest: base,
            });
        }
        let mut samples = [0; FRAME];
        let length = self.waiting.len().min(FRAME);
        for (to, from) in samples.iter_mut().zip(self.waiting.drain(..length)) {
            *to = from;
        }
        // The filling is played like the rest, so it has indices too.
        self.queued += (FRAME - length) as u64;
        self.unplayed.push_back(Sent {
            at: self.sent,
            length: FRAME,
            samples,
        });
        self.sent += FRAME as u64;
        Some(samples)
    }

    /// Whether nothing was left to hear when the last frame was sent.
    pub fn began_a_run(&self) -> bool {
        self.began
    }

    /// The frame just sent went out in this message.
    pub fn sent_as(&mut self, event_id: u64) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((event_id, self.sent - FRAME as u64));
    }

    /// The message of the newest frame sent.
    pub fn newest_message(&self) -> Option<u64> {
        self.recent.back().map(|&(event_id, _)| event_id)
    }

    /// Index of the first sample that is not played at position `now`.
    pub fn played(&self, now: u64) -> u64 {
        self.run
            .map_or(self.sent, |run| now.saturating_sub(run.base).min(self.sent))
    }

    /// Where in the recording the sample `index` is (to be) played, as far as is known now.
    pub fn position_of(&self, index: u64) -> Option<u64> {
        self.run.map(|run| run.base + index)
    }

    /// When all that was sent will have been played, as a position; `None`: it has.
    pub fn all_played(&self) -> Option<u64> {
        let run = self.run?;
        (!self.unplayed.is_empty()).then_some(run.base + self.sent)
    }

    /// The client has played `samples` of the message at position `now`.
    pub fn report_message(&mut self, event_id: u64, samples: u64, now: u64) {
        if let Some(&(_, at)) = self.recent.iter().find(|(id, _)| *id == event_id) {
            self.report(at + samples.min(FRAME as u64), now);
        }
    }

    /// The sample before `index` has been played at position `now`.
    pub fn report(&mut self, index: u64, now: u64) {
        let Some(run) = &mut self.run else { return };
        if index > self.sent {
            return;
        }
        let base = now
            .saturating_sub(index)
            .clamp(run.earliest, run.earliest + MOST_BEHIND);
        if base.abs_diff(run.base) > NOISE {
            run.base = base;
        }
    }

    /// Hands out all that has been played at position `now`, once.
    pub fn settle(&mut self, now: u64, mut record: impl FnMut(Played<'_>)) {
        let played = self.played(now);
        let Some(run) = self.run else { return };
        while let Some(first) = self.unplayed.front()
            && first.at + first.length as u64 <= played
        {
            let at = (run.base + first.at).max(self.recorded);
            record(Played {
                at,
                index: first.at,
                samples: &first.samples[..first.length],
            });
            self.recorded = at + first.length as u64;
            self.unplayed.pop_front();
        }
        if self.is_idle() {
            self.run = None;
        }
    }

    /// Cuts at position `now`: hands out what has been played, drops the rest, and tells the index
    /// of the first sample that was not heard.
    pub fn clear(&mut self, now: u64, mut record: impl FnMut(Played<'_>)) -> u64 {
        self.settle(now, &mut record);
        let played = self.played(now);
        if let (Some(run), Some(first)) = (self.run, self.unplayed.front())
            && played > first.at
        {
            let heard = (played - first.at) as usize;
            let at = (run.base + first.at).max(self.recorded);
            record(Played {
                at,
                index: first.at,
                samples: &first.samples[..heard.min(first.length)],
            });
            self.recorded = at + heard as u64;
        }
        self.unplayed.clear();
        self.waiting.clear();
        self.recent.clear();
        // Only what was played keeps its index, so no index runs ahead of the clock.
        self.sent = played;
        self.queued = played;
        self.run = None;
        played
    }

    /// Gives memory back after a long reply.
    pub fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting.shrink_to(FRAME * 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(playout: &mut Playout, now: u64) -> Vec<(u64, u64, usize)> {
        let mut out = Vec::new();
        playout.settle(now, |p| out.push((p.at, p.index, p.samples.len())));
        out
    }

    #[test]
    fn frames_go_out_up_to_the_lead_and_then_on_their_grid() {
        let mut playout = Playout::new(960);
        playout.push(&[1; 3200]);
        let mut sent = 0;
        while playout.send(1000, 0, false).is_some() {
            sent += 1;
        }
        assert_eq!(sent, 3);
        assert_eq!(playout.next_send(false), Some(1000 + 320));
        assert!(playout.send(1319, 0, false).is_none());
        assert!(playout.send(1320, 0, false).is_some());
        assert_eq!(
            settle(&mut playout, 1640),
            [(1000, 0, 320), (1320, 320, 320)]
        );
    }

    #[test]
    fn a_cut_records_just_what_was_played() {
        let mut playout = Playout::new(960);
        playout.push(&[1; 3200]);
        while playout.send(0, 0, false).is_some() {}
        let mut out = Vec::new();
        let heard = playout.clear(500, |p| out.push((p.at, p.samples.len())));
        assert_eq!(heard, 500);
        assert_eq!(out, [(0, 320), (320, 180)]);
        assert!(playout.is_idle());
        assert_eq!(playout.next_send(true), None);
    }

    #[test]
    fn a_report_moves_playing_later_and_never_before_real_time() {
        let mut playout = Playout::new(960);
        playout.push(&[1; 3200]);
        while playout.send(0, 0, false).is_some() {}
        playout.report(960, 100);
        assert_eq!(playout.played(100), 100);
        playout.report(320, 1320);
        assert_eq!(playout.played(1320), 320);
        assert_eq!(
            settle(&mut playout, 1640),
            [(1000, 0, 320), (1320, 320, 320)]
        );
    }

    #[test]
    fn audio_after_a_dry_ear_is_heard_when_it_comes() {
        let mut playout = Playout::new(960);
        playout.push(&[1; 640]);
        assert!(playout.send(0, 0, false).is_some() && playout.began_a_run());
        assert!(playout.send(320, 0, false).is_some() && !playout.began_a_run());
        assert_eq!(settle(&mut playout, 5000), [(0, 0, 320), (320, 320, 320)]);
        playout.push(&[2; 320]);
        assert!(playout.send(5000, 0, false).is_some() && playout.began_a_run());
        assert_eq!(settle(&mut playout, 5320), [(5000, 640, 320)]);
    }

    #[test]
    fn a_sender_that_wakes_up_late_does_not_slow_the_voice_down() {
        let mut playout = Playout::new(FRAME as u64);
        playout.push(&[1; 3200]);
        let mut recorded = Vec::new();
        for frame in 0..10 {
            let now = frame * 320 + frame % 3 * LATE / 2;
            recorded.extend(settle(&mut playout, now));
            assert!(playout.send(now, 0, false).is_some());
            assert_eq!(playout.began_a_run(), frame == 0);
        }
        recorded.extend(settle(&mut playout, 3200));
        let contiguous: Vec<_> = (0..10)
            .map(|frame| (frame * 320, frame * 320, 320))
            .collect();
        assert_eq!(recorded, contiguous);
    }

    #[test]
    fn a_sender_that_is_later_than_that_begins_anew() {
        let mut playout = Playout::new(FRAME as u64);
        playout.push(&[1; 640]);
        assert!(playout.send(0, 0, false).is_some());
        let now = 320 + LATE + 1;
        assert_eq!(settle(&mut playout, now), [(0, 0, 320)]);
        assert!(playout.send(now, 0, false).is_some() && playout.began_a_run());
        assert_eq!(settle(&mut playout, now + 320), [(now, 320, 320)]);
    }

    #[test]
    fn a_tail_is_filled_with_silence() {
        let mut playout = Playout::new(960);
        playout.push(&[7; 100]);
        assert!(playout.send(0, 0, false).is_none());
        let frame = playout.send(0, 0, true).unwrap_or([1; FRAME]);
        assert_eq!((frame[99], frame[100], frame[319]), (7, 0, 0));
        assert_eq!(playout.queued(), 320);
    }

    #[test]
    fn a_frame_that_goes_out_early_is_played_at_its_time() {
        let mut playout = Playout::new(FRAME as u64);
        playout.push(&[1; 960]);
        assert!(playout.send(100, 0, false).is_some());
        assert_eq!(playout.next_due(), Some(420));
        playout.go_early(120);
        assert_eq!(playout.next_send(false), Some(300));
        assert!(playout.send(235, 64, false).is_none());
        assert!(playout.send(236, 64, false).is_some() && !playout.began_a_run());
        assert_eq!(playout.next_due(), Some(740));
        assert!(playout.send(620, 0, false).is_some() && !playout.began_a_run());
        let contiguous = [(100, 0, 320), (420, 320, 320), (740, 640, 320)];
        assert_eq!(settle(&mut playout, 1059), contiguous[..2]);
        assert_eq!(settle(&mut playout, 1060), contiguous[2..]);
    }
}
