//! What was said to a live recogniser and what of it came back. Pure: time is an argument, and what is
//! to be done comes out as [`Act`]s.
//!
//! Positions are samples of all audio of the call, one utterance after the other: the recogniser hears
//! nothing of the silence between. Audio that no final result covers is kept, so that a new connection
//! gets it again and no word is lost. Where another recogniser may take over, the audio of an utterance without words is
//! kept until that utterance is complete, whatever is heard of later ones; a new connection gets none of it again that
//! lies before words which are final, or those would be written twice. `Finalize` follows the last sample of each utterance.

use std::collections::VecDeque;
use std::time::Duration;

use media::speech::words::{has_words, names_a_noise};
use media::speech::{RecogniserEvent, UtteranceId};
use media::time::RATE;
use tokio::time::Instant;

use super::super::mute::{Muteness, Verdict};
use super::super::plan::Fault;
use super::finals::{Finals, Span};

/// The most audio that is kept for a new connection or for the one that takes over, samples: 30 s. A recogniser gives
/// a final result every few seconds, so that only a mute one makes this fill; what is older is lost.
const RING: usize = 30 * RATE as usize;

/// How long the answer to `Finalize` is waited for when there are words: then they are the answer. Not
/// every server answers when it had nothing left to say.
const ANSWER: Duration = Duration::from_millis(1_000);

/// The same when there are no words.
const EMPTY_ANSWER: Duration = Duration::from_millis(2_000);

/// The same of a recogniser that was found mute, where another takes over: who is well has said something by the
/// utterance's end.
const MUTE_ANSWER: Duration = Duration::from_millis(300);

/// How long an utterance waits for a connection after its end, and with somebody to take over. The hastiest turn waits
/// for words for 4 s.
const NO_ANSWER: Duration = Duration::from_millis(3_500);
const HAND_OVER: Duration = Duration::from_millis(1_500);

/// Results may end a little beyond the audio that they were asked to finish.
const SLACK: u64 = RATE as u64 / 20;

/// The most utterances that are waited for. A turn has a few.
const MOST: usize = 16;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    Audio(Vec<i16>),
    Finalize,
    Say(RecogniserEvent),
    /// The other recogniser is to hear this utterance.
    HandOver(UtteranceId, Vec<i16>),
    /// The provider failed, though its connection stands.
    Fault(Fault),
    /// The connection answers nothing at all: another may.
    Reconnect,
}

/// A result of the recogniser.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recognition {
    /// Where it lies in the connection's audio, seconds, if the server tells.
    pub(super) span: Option<(f64, f64)>,
    pub(super) is_final: bool,
    pub(super) from_finalize: bool,
    pub(super) text: String,
    pub(super) confidence: Option<f32>,
}

/// A call's utterances at its live recogniser.
pub(super) struct Session {
    utterances: VecDeque<Utterance>,
    /// The one that was completed last on this connection: final words of it may still come.
    late: Option<Utterance>,
    ring: VecDeque<i16>,
    /// The position of the ring's first sample.
    ring_from: u64,
    /// The position up to which this connection has been sent the audio.
    sent: u64,
    /// The position at which this connection began.
    base: u64,
    /// The position before which a new connection hears nothing again: final words cover it, or nobody waits for it.
    settled: u64,
    connected: bool,
    /// The provider refuses: waiting is of no use.
    refused: Option<String>,
    /// What the provider said when it gave up, before it had a result again.
    complaint: Option<String>,
    fallback: bool,
    muteness: Muteness,
    acts: VecDeque<Act>,
}

struct Utterance {
    id: UtteranceId,
    from: u64,
    /// The position after its last sample, once it is finished.
    until: Option<u64>,
    finished: Option<Instant>,
    /// When `Finalize` was sent for it on this connection.
    asked: Option<Instant>,
    finals: Finals,
    interim: String,
    confidence: Option<f32>,
    /// This connection had a result for it, be it without words.
    answered: bool,
    /// The recogniser has named a noise in it.
    noise: bool,
    /// Nobody wants its words.
    cancelled: bool,
}

impl Utterance {
    fn text(&self) -> String {
        joined(&self.finals.text(), &self.interim)
    }

    /// Takes a result that lies in it.
    fn hear(&mut self, heard: &Recognition, span: Option<Span>) {
        self.answered = true;
        let has_words = has_words(&heard.text);
        self.noise |= heard.is_final && names_a_noise(&heard.text);
        if !heard.is_final {
            // What had words has not lost them because a later guess has none.
            if has_words {
                heard.text.trim().clone_into(&mut self.interim);
            }
            return;
        }
        if self.finals.repeats(span, &heard.text) {
            return;
        }
        let interim = std::mem::take(&mut self.interim);
        if has_words {
            self.finals.push(span, heard.text.trim().to_owned());
            self.confidence = lower(self.confidence, heard.confidence, &heard.text);
        } else if !interim.is_empty() && !names_a_noise(&heard.text) {
            // A final result that merely has no words takes none back.
            self.finals.push(span, interim);
        }
    }

    /// Whether another recogniser, if there is one, may have to hear it.
    fn waits(&self, fallback: bool) -> bool {
        fallback && !self.cancelled && !has_words(&self.text())
    }
}

impl Session {
    pub(super) fn new(fallback: bool) -> Self {
        Self {
            utterances: VecDeque::new(),
            late: None,
            ring: VecDeque::new(),
            ring_from: 0,
            sent: 0,
            base: 0,
            settled: 0,
            connected: false,
            refused: None,
            complaint: None,
            fallback,
            muteness: Muteness::new(fallback),
            acts: VecDeque::new(),
        }
    }

    pub(super) fn begin(&mut self, id: UtteranceId) {
        while self.utterances.len() >= MOST {
            self.utterances.pop_front();
        }
        self.utterances.push_back(Utterance {
            id,
            from: self.end(),
            until: None,
            finished: None,
            asked: None,
            finals: Finals::default(),
            interim: String::new(),
            confidence: None,
            answered: false,
            noise: false,
            cancelled: false,
        });
    }

    pub(super) fn audio(&mut self, now: Instant, id: UtteranceId, pcm: &[i16]) {
        let open = self.utterances.back();
        if !open.is_some_and(|u| u.id == id && u.until.is_none()) {
            return;
        }
        self.ring.extend(pcm);
        let over = self.ring.len().saturating_sub(RING);
        self.drop_until(self.ring_from + over as u64);
        self.pump(now);
    }

    pub(super) fn finish(&mut self, now: Instant, id: UtteranceId) {
        let end = self.end();
        let Some(utterance) = self.utterances.iter_mut().find(|u| u.id == id) else {
            return;
        };
        utterance.until = Some(end);
        utterance.finished = Some(now);
        self.pump(now);
        self.tick(now);
    }

    /// Nobody wants its words. The recogniser still has to let go of its audio, so that none of them
    /// come up in the next utterance.
    pub(super) fn cancel(&mut self, now: Instant, id: UtteranceId) {
        let end = self.end();
        if let Some(utterance) = self.utterances.iter_mut().find(|u| u.id == id) {
            utterance.cancelled = true;
            utterance.until.get_or_insert(end);
            utterance.finished.get_or_insert(now);
        }
        self.pump(now);
    }

    /// A connection is there: it gets all that no final result covers. An utterance of which nothing is sent again is
    /// complete: the new connection has nothing to say of it.
    pub(super) fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.refused = None;
        self.late = None;
        // What the lost connection did not take any more is among what this one gets.
        self.acts
            .retain(|act| !matches!(act, Act::Audio(_) | Act::Finalize | Act::Reconnect));
        while let Some(first) = self.utterances.front_mut()
            && first.until.is_some_and(|until| until <= self.settled)
        {
            // Recognisers answer in order: the words of later sound are an answer to this utterance, too.
            first.answered = true;
            first.asked.get_or_insert(now);
            self.complete_first(now);
        }
        self.base = self.settled.max(self.ring_from);
        self.sent = self.base;
        for utterance in &mut self.utterances {
            utterance.asked = None;
            utterance.answered = false;
            // What comes again is written again.
            utterance.interim.clear();
        }
        self.pump(now);
    }

    /// The connection is gone; `why`, if the provider has said so.
    pub(super) fn lost(&mut self, why: Option<String>) {
        self.connected = false;
        self.complaint = why.or(self.complaint.take());
    }

    /// The provider refuses connections for good (a wrong key).
    pub(super) fn refused(&mut self, now: Instant, why: String) {
        self.connected = false;
        self.refused = Some(why);
        self.tick(now);
    }

    pub(super) fn result(&mut self, now: Instant, heard: Recognition) {
        self.complaint = None;
        if has_words(&heard.text) {
            self.muteness.words();
        }
        let at = |seconds: f64| self.base + (seconds.max(0.0) * f64::from(RATE)).round() as u64;
        let span = heard.span.map(|(start, length)| Span {
            from: at(start),
            until: at(start + length),
        });
        let middle = heard.span.map(|(start, length)| at(start + length / 2.0));
        let end = span.map(|span| span.until);
        // An utterance whose `Finalize` was not answered is over when a later one's is.
        if let (true, Some(end)) = (heard.from_finalize, end) {
            while self.utterances.len() > 1
                && let Some(first) = self.utterances.front_mut()
                && first.until.is_some_and(|until| until + SLACK < end)
            {
                first.answered = true;
                self.complete_first(now);
            }
        }
        let place = match middle {
            Some(at) => self
                .utterances
                .iter()
                .rposition(|u| u.from <= at && u.until.is_none_or(|until| at < until + SLACK)),
            // Without a place it is of the first that is waited for.
            None => (!self.utterances.is_empty()).then_some(0),
        };
        // Another recogniser may have to hear what this one has no words for, and a new connection hears it first.
        let mut wanted = false;
        if let Some(utterance) = place.and_then(|place| self.utterances.get_mut(place)) {
            let before = utterance.text();
            utterance.hear(&heard, span);
            let text = utterance.text();
            wanted = utterance.waits(self.fallback);
            if text != before && !utterance.cancelled && !heard.from_finalize {
                let event = RecogniserEvent::Interim {
                    utterance: utterance.id,
                    text,
                };
                self.acts.push_back(Act::Say(event));
            }
        } else {
            self.hear_late(&heard, span, middle);
        }
        if heard.is_final
            && !wanted
            && let Some(end) = end
        {
            self.settled = self.settled.max(end.min(self.sent));
            self.release();
        }
        // A late answer to an utterance that is not waited for any longer completes nobody else's.
        let completes = |first: &Utterance| {
            let reached = end.is_none_or(|end| end + SLACK >= first.until.unwrap_or(u64::MAX));
            first.asked.is_some() && (reached || place == Some(0))
        };
        if let Some(first) = self.utterances.front_mut()
            && heard.from_finalize
            && completes(first)
        {
            first.answered = true;
            self.complete_first(now);
        }
        self.tick(now);
    }

    /// Takes final words of the utterance that was completed last: the call takes them as long as it can.
    fn hear_late(&mut self, heard: &Recognition, span: Option<Span>, middle: Option<u64>) {
        let Some(late) = self.late.as_mut().filter(|_| heard.is_final) else {
            return;
        };
        let until = late.until.unwrap_or(late.from) + SLACK;
        if middle.is_some_and(|at| at < late.from || at >= until) {
            return;
        }
        let before = late.text();
        late.hear(heard, span);
        let text = late.text();
        if text != before {
            self.acts.push_back(Act::Say(RecogniserEvent::Final {
                utterance: late.id,
                text,
                confidence: late.confidence,
            }));
        }
    }

    /// Time passed.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some(due) = self.first_due() {
            if due > now {
                return;
            }
            self.complete_first(now);
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.first_due()
    }

    pub(super) fn take(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// When the first utterance is not waited for any longer.
    fn first_due(&self) -> Option<Instant> {
        let first = self.utterances.front()?;
        let finished = first.finished?;
        if self.refused.is_some() {
            return Some(finished);
        }
        if let Some(asked) = first.asked.filter(|_| self.connected) {
            let patience = if !first.text().is_empty() {
                ANSWER
            } else if self.fallback && self.muteness.is_mute() {
                MUTE_ANSWER
            } else {
                EMPTY_ANSWER
            };
            return Some(asked + patience);
        }
        Some(finished + if self.fallback { HAND_OVER } else { NO_ANSWER })
    }

    /// The first utterance has got what it will get.
    fn complete_first(&mut self, now: Instant) {
        let Some(first) = self.utterances.pop_front() else {
            return;
        };
        let until = first.until.unwrap_or(first.from);
        let handed_over = !first.cancelled && self.answer(now, &first, until);
        let waits = self.connected && !first.cancelled && !handed_over;
        self.late = Some(first).filter(|_| waits);
        self.settled = self.settled.max(until);
        self.release();
        // While nobody speaks, nothing needs to be kept ready.
        if self.ring.is_empty() && self.utterances.is_empty() {
            self.ring.shrink_to(RATE as usize);
        }
    }

    /// What the call is told of an utterance that ends here. Whether another recogniser hears it instead.
    fn answer(&mut self, now: Instant, utterance: &Utterance, until: u64) -> bool {
        let text = utterance.text();
        let asked = utterance.asked.filter(|_| self.connected);
        let mut fault = None;
        let failed = if has_words(&text) {
            // Words that the recogniser has not taken back are words, but it was asked to be sure of them.
            let unsure = asked.is_some() && !utterance.interim.is_empty();
            fault = unsure.then_some(Fault::Stalled(ANSWER));
            false
        } else if asked.is_some() {
            let length = until.saturating_sub(utterance.from);
            let verdict = match utterance.noise {
                true => Verdict::Believed,
                false => self.muteness.no_words(now, length, utterance.answered),
            };
            fault = (verdict == Verdict::Mute).then(|| match utterance.answered {
                true => Fault::Wrong("no words came for a voice".to_owned()),
                false => Fault::Stalled(EMPTY_ANSWER),
            });
            verdict != Verdict::Believed
        } else {
            true
        };
        let silent = failed && matches!(fault, Some(Fault::Stalled(_)));
        let act = if !failed {
            Act::Say(RecogniserEvent::Final {
                utterance: utterance.id,
                text,
                confidence: utterance.confidence,
            })
        } else if self.fallback {
            Act::HandOver(utterance.id, self.sound(utterance.from, until))
        } else {
            let message = match (&fault, &self.refused) {
                // Said here, and not by the provider.
                (Some(fault), _) => fault.words(str::to_owned),
                (None, Some(why)) => why.clone(),
                (None, None) => match &self.complaint {
                    Some(why) => why.clone(),
                    None => "there is no connection".to_owned(),
                },
            };
            Act::Say(RecogniserEvent::Failed {
                utterance: utterance.id,
                message,
            })
        };
        let handed_over = matches!(act, Act::HandOver(..));
        self.acts.push_back(act);
        self.acts.extend(fault.map(Act::Fault));
        self.acts.extend(silent.then_some(Act::Reconnect));
        handed_over
    }

    /// What is kept of the sound between these positions.
    fn sound(&self, from: u64, until: u64) -> Vec<i16> {
        let from = from.max(self.ring_from);
        let skip = (from - self.ring_from) as usize;
        let length = until.saturating_sub(from) as usize;
        self.ring.iter().skip(skip).take(length).copied().collect()
    }

    /// Sends what this connection has not had yet, with `Finalize` where an utterance ends.
    fn pump(&mut self, now: Instant) {
        if !self.connected {
            return;
        }
        for place in 0..self.utterances.len() {
            let Utterance { until, asked, .. } = self.utterances[place];
            if asked.is_some() {
                continue;
            }
            let Some(until) = until else { break };
            self.send_until(until);
            self.acts.push_back(Act::Finalize);
            self.utterances[place].asked = Some(now);
        }
        self.send_until(self.end());
    }

    fn send_until(&mut self, until: u64) {
        let from = self.sent.max(self.ring_from);
        if until > from {
            let (skip, count) = ((from - self.ring_from) as usize, (until - from) as usize);
            let samples = self.ring.iter().skip(skip).take(count).copied().collect();
            self.acts.push_back(Act::Audio(samples));
            self.sent = until;
        }
    }

    /// The position after the last sample.
    fn end(&self) -> u64 {
        self.ring_from + self.ring.len() as u64
    }

    /// Lets go of what is settled, up to the first utterance that another recogniser may have to hear.
    fn release(&mut self) {
        let mut waiting = self.utterances.iter().filter(|u| u.waits(self.fallback));
        let kept = waiting.next().map_or(u64::MAX, |utterance| utterance.from);
        self.drop_until(self.settled.min(kept));
    }

    fn drop_until(&mut self, position: u64) {
        let count = position.saturating_sub(self.ring_from) as usize;
        let count = count.min(self.ring.len());
        self.ring.drain(..count);
        self.ring_from += count as u64;
        self.sent = self.sent.max(self.ring_from);
    }
}

pub(super) fn joined(first: &str, second: &str) -> String {
    let (first, second) = (first.trim(), second.trim());
    if first.is_empty() || second.is_empty() {
        return format!("{first}{second}");
    }
    format!("{first} {second}")
}

/// The least sure of the parts that have words.
fn lower(before: Option<f32>, new: Option<f32>, text: &str) -> Option<f32> {
    match (before, new) {
        _ if text.trim().is_empty() => before,
        (Some(before), Some(new)) => Some(before.min(new)),
        (before, new) => before.or(new),
    }
}
