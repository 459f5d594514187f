//! One call of a load run, as a telephony vendor would make it: what is sent when, and what is measured
//! on what comes back. Pure: time comes in as μs since the run's start.

use std::collections::VecDeque;

use super::frames::{self, Opcode};
use super::stimulus::{Event, Stimulus};
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
/// The frames that a reply is sent ahead come closer together than this; pacing begins after them.
const BURST_GAP_US: u64 = 5_000;

/// What all calls of a run add up to.
pub(super) struct Figures {
    /// Between two frames of one reply, after those sent ahead.
    pub gaps: Times,
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
        (
            self.frames_in,
            self.frames_out,
            self.underruns,
            self.uncleared,
            self.unanswered,
        ) = (0, 0, 0, 0, 0);
    }
}

/// One call.
pub(super) struct Line {
    stream: String,
    sequence: u64,
    chunk: u64,
    timestamp_ms: u64,
    /// The next frame of the stimulus.
    at: usize,
    mask: u32,
    incoming: Vec<u8>,
    /// Bytes for the socket.
    pub outgoing: Vec<u8>,
    /// Reused for every message.
    text: String,
    ear: Ear,
}

impl Line {
    /// A call that starts its stimulus at that frame.
    pub(super) fn new(session: &str, at: usize, mask: u32) -> Self {
        let stream = format!("MZ{}", session.replace('-', ""));
        let mut line = Self {
            sequence: 1,
            chunk: 0,
            timestamp_ms: 0,
            at,
            mask,
            incoming: Vec::with_capacity(4096),
            outgoing: Vec::with_capacity(4096),
            text: String::with_capacity(512),
            ear: Ear::default(),
            stream,
        };
        line.say(format_args!(
            r#"{{"event":"connected","protocol":"Call","version":"1.0.0"}}"#
        ));
        let stream = line.stream.clone();
        line.say(format_args!(
            concat!(
                r#"{{"event":"start","sequenceNumber":"1","streamSid":"{stream}","start":{{"streamSid":"{stream}","#,
                r#""accountSid":"AC0","callSid":"CA0","tracks":["inbound"],"mediaFormat":{{"encoding":"audio/x-mulaw","#,
                r#""sampleRate":8000,"channels":1}},"customParameters":{{}}}}}}"#
            ),
            stream = stream
        ));
        line
    }

    /// Puts the echoes of marks whose audio was played by now. The server takes them for the truth about
    /// what was heard, so they may not come late.
    pub(super) fn echo_played(&mut self, now: u64) {
        while let Some(name) = self.ear.played_mark(now) {
            self.echo(&name);
        }
    }

    /// Puts the next frame of caller audio.
    pub(super) fn tick(&mut self, now: u64, stimulus: &Stimulus, figures: &mut Figures) {
        let frame = self.at % stimulus.frames.len();
        self.at = frame + 1;
        match stimulus.events[frame] {
            Some(Event::Onset { before_end }) => {
                self.ear
                    .caller_begins(now, now.saturating_sub(before_end), figures)
            }
            Some(Event::Offset { before_end }) => {
                self.ear.caller_ends(now.saturating_sub(before_end))
            }
            None => {}
        }
        self.sequence += 1;
        self.chunk += 1;
        let (sequence, chunk, timestamp) = (self.sequence, self.chunk, self.timestamp_ms);
        self.timestamp_ms += FRAME_US / 1000;
        let stream = std::mem::take(&mut self.stream);
        self.say(format_args!(
            concat!(
                r#"{{"event":"media","sequenceNumber":"{}","media":{{"track":"inbound","chunk":"{}","timestamp":"{}","#,
                r#""payload":"{}"}},"streamSid":"{}"}}"#
            ),
            sequence, chunk, timestamp, stimulus.frames[frame], stream
        ));
        self.stream = stream;
        figures.frames_out += 1;
    }

    /// Takes bytes of the server. An error means that the line is lost.
    pub(super) fn receive(
        &mut self,
        now: u64,
        bytes: &[u8],
        figures: &mut Figures,
    ) -> Result<(), String> {
        // The usual case, whole frames, is read where it lies.
        if self.incoming.is_empty() {
            let used = self.read(now, bytes, figures)?;
            self.incoming.extend_from_slice(&bytes[used..]);
        } else {
            let mut joined = std::mem::take(&mut self.incoming);
            joined.extend_from_slice(bytes);
            let used = self.read(now, &joined, figures)?;
            joined.drain(..used);
            self.incoming = joined;
        }
        Ok(())
    }

    /// Says goodbye as the vendor does.
    pub(super) fn stop(&mut self) {
        self.sequence += 1;
        let (sequence, stream) = (self.sequence, std::mem::take(&mut self.stream));
        self.say(format_args!(
            r#"{{"event":"stop","sequenceNumber":"{sequence}","streamSid":"{stream}"}}"#
        ));
        self.stream = stream;
    }

    fn read(&mut self, now: u64, buffer: &[u8], figures: &mut Figures) -> Result<usize, String> {
        let mut used = 0;
        while let Some(frame) = frames::first(&buffer[used..])? {
            used += frame.length;
            match frame.opcode {
                Opcode::Text => self.message(now, frame.payload, figures),
                Opcode::Ping => {
                    let mask = self.next_mask();
                    frames::put(&mut self.outgoing, Opcode::Pong, mask, frame.payload);
                }
                Opcode::Close => {
                    let code = frame
                        .payload
                        .get(..2)
                        .map_or(1005, |code| u16::from_be_bytes([code[0], code[1]]));
                    let reason =
                        String::from_utf8_lossy(frame.payload.get(2..).unwrap_or_default());
                    return Err(format!("the server closed a line: {code} {reason}"));
                }
                Opcode::Pong | Opcode::Other => {}
            }
        }
        Ok(used)
    }

    fn message(&mut self, now: u64, payload: &[u8], figures: &mut Figures) {
        let Ok(text) = std::str::from_utf8(payload) else {
            return;
        };
        match field(text, "event") {
            Some("media") => {
                let base64 = field(text, "payload").unwrap_or_default();
                let bytes = base64.trim_end_matches('=').len() * 3 / 4;
                self.ear.frame(now, bytes as u64 * 125, figures);
            }
            Some("mark") => {
                let name = field(text, "name").unwrap_or_default().to_owned();
                self.ear.mark(name);
            }
            Some("clear") => {
                self.ear.clear(now, figures);
                for name in std::mem::take(&mut self.ear.marks) {
                    self.echo(&name.1);
                }
            }
            _ => {}
        }
    }

    fn echo(&mut self, name: &str) {
        self.sequence += 1;
        let (sequence, stream) = (self.sequence, std::mem::take(&mut self.stream));
        self.say(format_args!(
            r#"{{"event":"mark","sequenceNumber":"{sequence}","streamSid":"{stream}","mark":{{"name":"{name}"}}}}"#
        ));
        self.stream = stream;
    }

    fn say(&mut self, message: std::fmt::Arguments<'_>) {
        self.text.clear();
        // Writing into a String cannot fail.
        let _ = std::fmt::write(&mut self.text, message);
        let mask = self.next_mask();
        frames::put(&mut self.outgoing, Opcode::Text, mask, self.text.as_bytes());
    }

    /// Any changing number will do here: the mask protects old proxies (RFC 6455 section 10.3), and there
    /// is none between.
    fn next_mask(&mut self) -> [u8; 4] {
        self.mask = self
            .mask
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        self.mask.to_be_bytes()
    }
}

/// What a caller hears, and the clockwork that times it.
#[derive(Default)]
struct Ear {
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
}

impl Ear {
    fn frame(&mut self, now: u64, length: u64, figures: &mut Figures) {
        figures.frames_in += 1;
        if now > self.plays_until + REPLY_GAP_US || self.last_frame == 0 {
            self.plays_until = now;
            self.in_burst = true;
            if let Some(asked) = self.asked.take() {
                figures.turns.add(now.saturating_sub(asked));
            }
        } else {
            let gap = now - self.last_frame;
            self.in_burst &= gap < BURST_GAP_US;
            if !self.in_burst {
                figures.gaps.add(gap);
            }
            if now > self.plays_until + JITTER_BUFFER_US {
                figures.underruns += 1;
            }
            self.plays_until = self.plays_until.max(now);
        }
        self.plays_until += length;
        self.last_frame = now;
    }

    fn mark(&mut self, name: String) {
        self.marks.push_back((self.plays_until, name));
    }

    fn played_mark(&mut self, now: u64) -> Option<String> {
        self.marks
            .pop_front_if(|mark| mark.0 <= now)
            .map(|mark| mark.1)
    }

    fn clear(&mut self, now: u64, figures: &mut Figures) {
        if let Some(onset) = self.interrupting.take() {
            figures.barge_ins.add(now.saturating_sub(onset));
        }
        self.plays_until = self.plays_until.min(now);
        // What comes next is a new reply, however soon.
        self.last_frame = 0;
    }

    fn caller_begins(&mut self, now: u64, onset: u64, figures: &mut Figures) {
        if self.asked.take().is_some() {
            figures.unanswered += 1;
        }
        if self.interrupting.take().is_some() {
            figures.uncleared += 1;
        }
        if now + NEARLY_DONE_US < self.plays_until {
            self.interrupting = Some(onset);
        }
    }

    fn caller_ends(&mut self, offset: u64) {
        self.asked = Some(offset);
    }
}

/// The text of a string field, wherever it stands. The messages of this protocol name each key once, and
/// their values need no escapes.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find(key)?;
        let quoted = rest[..at].ends_with('"') && rest[at + key.len()..].starts_with('"');
        rest = &rest[at + key.len()..];
        if quoted && let Some(value) = rest[1..].trim_start().strip_prefix(':') {
            return value.trim_start().strip_prefix('"')?.split('"').next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    #[test]
    fn fields_are_found_in_any_order_and_spacing() {
        let text = r#"{ "streamSid" : "MZ", "media":{"payload": "AAA="}, "event" :"media" }"#;
        assert_eq!(field(text, "event"), Some("media"));
        assert_eq!(field(text, "payload"), Some("AAA="));
        assert_eq!(field(text, "name"), None);
        assert_eq!(field(r#"{"event":7}"#, "event"), None);
    }

    #[test]
    fn frames_sent_ahead_do_not_count_as_pacing() {
        let (mut ear, mut figures) = (Ear::default(), Figures::new());
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
        let (mut ear, mut figures) = (Ear::default(), Figures::new());
        ear.frame(1000 * MS, FRAME_US, &mut figures);
        ear.frame(1061 * MS, FRAME_US, &mut figures);
        assert_eq!((figures.underruns, figures.gaps.count()), (1, 1));
        ear.frame(2000 * MS, FRAME_US, &mut figures);
        assert_eq!((figures.underruns, figures.gaps.count()), (1, 1));
    }

    #[test]
    fn a_barge_in_lasts_from_the_onset_to_the_clear() {
        let (mut ear, mut figures) = (Ear::default(), Figures::new());
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
    fn marks_are_echoed_when_their_audio_was_played() {
        let (mut ear, mut figures) = (Ear::default(), Figures::new());
        ear.frame(1000 * MS, FRAME_US, &mut figures);
        ear.mark("a".to_owned());
        assert_eq!(ear.played_mark(1019 * MS), None);
        assert_eq!(ear.played_mark(1020 * MS), Some("a".to_owned()));
    }
}
