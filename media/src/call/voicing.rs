//! From the text of a reply to its sound: what the voice is asked for, and what it sends.

use std::time::Duration;

use super::Call;
use super::output::{LlmCommand, SynthesiserCommand};
use super::record::Owner;
use super::reply::{Kind, Reply, Spoken};
use crate::audio::resample::Resampler;
use crate::speech::{ReplyId, SynthesiserEvent};
use crate::time::{RATE, Time};
use crate::turn::Cue;

/// The voice is asked for the next segment when less than this waits to be sent (500 ms): enough for
/// a slow voice, little to hold and to throw away.
const REFILL: u64 = 8_000;

/// How long the voice may take to its next piece of audio.
pub(super) const VOICE_DEADLINE: Duration = Duration::from_secs(8);

/// Samples of a voice that are converted at once.
const PART: usize = 1024;

/// Room is made for at most this at once, samples (10 s): more is no sentence.
const MOST_EXPECTED: usize = 160_000;

/// Louder than this is audible: −50 dBFS.
const AUDIBLE: i16 = 104;

/// Kept before the first audible sample, so that no attack is clipped (5 ms).
const ATTACK: usize = 80;

impl Call {
    /// The voice said something.
    pub(super) fn voice(&mut self, id: ReplyId, segment: u32, event: SynthesiserEvent) {
        if self.filler.as_ref().is_some_and(|filler| filler.id == id) {
            self.filler_voice(event);
            return;
        }
        let now = self.now;
        let Some(reply) = self.reply.as_mut().filter(|reply| reply.id == id) else {
            return;
        };
        if reply
            .segments
            .last()
            .is_none_or(|s| s.segment.index != segment || s.done)
        {
            return;
        }
        match event {
            SynthesiserEvent::Audio { rate, samples } => {
                reply.voice_since = Some(now);
                self.playout.expect(at_engine_rate(samples.len(), rate));
                // In parts, so that the buffer between stays small whatever the voice sends at once.
                for part in samples.chunks(PART) {
                    let Some(reply) = &mut self.reply else { return };
                    if resample(&mut reply.resampler, rate, part, &mut self.resampled) {
                        self.queue_audio();
                    } else {
                        return self.voice_failed(&format!("the voice sent audio at {rate} Hz"));
                    }
                }
            }
            SynthesiserEvent::Done => {
                if let Some(spoken) = reply.speaking() {
                    spoken.done = true;
                }
                reply.voice_since = None;
            }
            SynthesiserEvent::Failed { message } => self.voice_failed(&message),
        }
    }

    /// Queues what stands in `self.resampled` for the reply.
    fn queue_audio(&mut self) {
        let now = self.now;
        let Some(reply) = &mut self.reply else { return };
        let mut samples = self.resampled.as_slice();
        if reply.marks.first_audio.is_none() {
            reply.marks.first_audio = Some(now);
        }
        if reply.first_audible.is_none() {
            let Some(audible) = samples
                .iter()
                .position(|s| s.unsigned_abs() > AUDIBLE as u16)
            else {
                reply.trimmed += samples.len() as u64;
                return;
            };
            let from = audible.saturating_sub(ATTACK);
            reply.trimmed += from as u64;
            samples = &samples[from..];
            reply.first_audible = Some(self.playout.queued() + (audible - from) as u64);
            reply.marks.step("tts_ttfb", Owner::Tts, now);
            if let Some(spoken) = reply.speaking() {
                spoken.first = self.playout.queued();
            }
        }
        self.playout.push(samples);
        if let Some(spoken) = reply.speaking() {
            spoken.length += samples.len() as u64;
        }
    }

    fn voice_failed(&mut self, message: &str) {
        self.note(&format!("voice: {message}"));
        let Some(reply) = &mut self.reply else { return };
        if reply.first_audible.is_none() {
            let committed = reply.committed;
            self.cancel_reply();
            if committed {
                self.cue(Cue::ReplyFailed);
            }
        } else {
            // What was heard stays; the rest will not come.
            if let Some(spoken) = reply.speaking() {
                spoken.done = true;
            }
            reply.text.cut_here();
            reply.text_complete = true;
            reply.voice_since = None;
            let id = reply.id;
            self.out.llm(LlmCommand::Cancel(id));
        }
    }

    fn filler_voice(&mut self, event: SynthesiserEvent) {
        let Some(filler) = &mut self.filler else {
            return;
        };
        match event {
            SynthesiserEvent::Audio { rate, samples } => {
                for part in samples.chunks(PART) {
                    if resample(&mut filler.resampler, rate, part, &mut self.resampled) {
                        let first = self.playout.push(&self.resampled);
                        filler.first.get_or_insert(first);
                        filler.length += self.resampled.len() as u64;
                    }
                }
            }
            SynthesiserEvent::Done | SynthesiserEvent::Failed { .. } => {
                filler.done = true;
                self.playout.pad();
                filler.over = self.playout.queued();
            }
        }
    }

    /// Asks the voice for the next segment when little waits.
    pub(super) fn refill(&mut self) {
        let now = self.now;
        let most = self.config.agent.response_max_sentences;
        let waiting = self.playout.waiting();
        let filling = self.filler.as_ref().is_some_and(|filler| !filler.done);
        let Some(reply) = &mut self.reply else { return };
        if filling || waiting >= REFILL || reply.segments.last().is_some_and(|s| !s.done) {
            return;
        }
        let enough =
            |reply: &Reply| reply.kind == Kind::Answer && most > 0 && reply.text.is_enough(most);
        if enough(reply) {
            return self.long_enough();
        }
        let Some(segment) = reply.text.take() else {
            return;
        };
        let text = reply.text.text()[segment.start..segment.end].to_owned();
        if reply.marks.first_clause.is_none() {
            reply.marks.first_clause = Some(now);
            reply.marks.spoken = Some(now);
            reply.marks.step("llm_first_clause", Owner::Llm, now);
        }
        reply.voice_since = Some(now);
        let first = self.playout.queued();
        reply.segments.push(Spoken {
            segment,
            first,
            length: 0,
            done: false,
        });
        let id = reply.id;
        self.out.tts(SynthesiserCommand::Speak {
            reply: id,
            segment: segment.index,
            text,
        });
        if enough(reply) {
            self.long_enough();
        }
    }

    /// What the model still says is not wanted.
    fn long_enough(&mut self) {
        let Some(reply) = &mut self.reply else { return };
        reply.text.cut_here();
        if !std::mem::replace(&mut reply.text_complete, true) {
            let id = reply.id;
            self.out.llm(LlmCommand::Cancel(id));
        }
    }

    pub(super) fn voice_overdue(&mut self) {
        let overdue = |since: Time| self.now - since >= VOICE_DEADLINE;
        if self
            .reply
            .as_ref()
            .and_then(|reply| reply.voice_since)
            .is_some_and(overdue)
        {
            self.voice_failed("no audio within the deadline");
        }
    }
}

/// How many samples so many of a voice become, with what its resampler may still hold.
fn at_engine_rate(samples: usize, rate: u32) -> usize {
    let expected = samples as u64 * u64::from(RATE) / u64::from(rate.max(1));
    usize::try_from(expected)
        .unwrap_or(usize::MAX)
        .min(MOST_EXPECTED)
        + PART
}

/// Puts `samples` at 16 kHz into `out`. `false`: the rate cannot be converted.
fn resample(
    resampler: &mut Option<(u32, Resampler)>,
    rate: u32,
    samples: &[i16],
    out: &mut Vec<i16>,
) -> bool {
    out.clear();
    if resampler.as_ref().is_none_or(|(from, _)| *from != rate) {
        match Resampler::new(rate, RATE) {
            Ok(new) => *resampler = Some((rate, new)),
            Err(_) => return false,
        }
    }
    if let Some((_, resampler)) = resampler {
        resampler.process(samples, out);
    }
    true
}
