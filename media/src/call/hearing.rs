//! What the caller says: frames to the turn taker and the recogniser, words to the turn.

use std::time::Duration;

use super::Call;
use super::caller_audio::CallerFrame;
use super::output::{CallEvent, Side};
use super::record::{EndReason, Role, Source, Turn};
use super::work::Work;
use crate::bucket::Bucket;
use crate::frame::FRAME;
use crate::leg::ws::ServerEvent;
use crate::record::timeline::{Piece, Place};
use crate::speech::UtteranceId;
use crate::speech::words as spoken;
use crate::time::{RATE, Samples, Time};
use crate::turn::endpoint::{Shape, is_acknowledgement, is_stop};
use crate::turn::{Cue, State, Words};

/// A caller that sends over 1.5 times real time for so long is not speaking: the call ends.
const TOO_FAST: Duration = Duration::from_secs(5);

/// What a client may ask for in messages: each typed turn is a request to the model, each piece of background
/// is kept. Four a second, more than anybody types.
pub(super) const REQUESTS: Bucket = Bucket::new(4, 8);

/// This long after a voice (500 ms), and softer than this (-36 dBFS), the caller's sound may be shortened or parted by
/// a few milliseconds, so that its place is right.
const SETTLED: u64 = RATE as u64 / 2;
const SOFT: u16 = 512;

/// Audio that came too fast, and was dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropping {
    since: Time,
    /// Dropped since then.
    samples: u64,
}

/// Pieces of speech over the agent with less than this between them belong to one turn: a voice over the agent's
/// own comes cut to pieces where the caller's side cancels echo.
const TOGETHER: u64 = RATE as u64;

/// How often a turn is answered anew because the recogniser changed its mind: each is a request to the model.
const MOST_ASKED_ANEW: u8 = 3;

/// One stretch of voice at the recogniser.
#[derive(Debug)]
pub(super) struct Utterance {
    id: UtteranceId,
    /// When the turn taker noticed it.
    noticed: Time,
    /// Its first sample in the recording, and the one after its last: once it is finished.
    onset: u64,
    end: u64,
    text: String,
    confidence: Option<f32>,
    stage: Stage,
    /// The recogniser gave up on it.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is being fed.
    Open,
    /// Its final words are awaited.
    Finishing,
    Final,
}

impl Utterance {
    /// Whether `next`, which began a while after it, may go on with what it said.
    fn leads_to(&self, next: &Self) -> bool {
        let said_nothing = self.stage == Stage::Final && self.text.is_empty();
        next.onset.saturating_sub(self.end) < TOGETHER
            && !said_nothing
            && !is_acknowledgement(&self.text)
    }
}

/// The caller's turn under way, or committed and not yet answered.
#[derive(Debug)]
pub(super) struct CallerTurn {
    pub(super) id: String,
    onset: Option<u64>,
    end: u64,
    /// Keys pressed, or text typed.
    keys: String,
    typed: String,
    committed: bool,
    /// The newest utterance when it was committed.
    newest: u32,
    /// How often it was answered anew because its words came late.
    asked_anew: u8,
    /// What was done for it before it went on.
    pub(super) work: Work,
}

impl CallerTurn {
    /// Whether it was said, not typed or keyed.
    pub(super) fn is_spoken(&self) -> bool {
        self.typed.is_empty() && self.keys.is_empty()
    }
}

/// How far the caller's sound has been given to the recogniser: positions in the recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    /// After the last sample.
    until: u64,
    /// After the last voice of the last utterance that was finished.
    voice: u64,
}

impl Call {
    /// Audio of the caller, in `self.incoming`.
    pub(super) fn hear(&mut self, from: usize, to: usize) {
        let now = self.now;
        let incoming = std::mem::take(&mut self.incoming);
        let samples = incoming.get(from..to).unwrap_or_default();
        let piece = Piece {
            now: self.position(now),
            length: samples.len() as u64,
            stamped: self.leg.is_stamped(),
        };
        let quiet = || {
            !self.turn.voice_on()
                && piece.now > self.last_voice_at + SETTLED
                && samples.iter().all(|sample| sample.unsigned_abs() < SOFT)
        };
        match self.timeline.place(piece, quiet) {
            Place::TooFast => self.too_fast(now, piece.length),
            Place::At {
                position,
                silence,
                skip,
            } => {
                self.silence(position - silence, silence);
                let skip = usize::try_from(skip).unwrap_or(0);
                self.take(samples.get(skip..).unwrap_or_default(), position);
            }
        }
        self.incoming = incoming;
    }

    /// Audio was lost on the way; its place is here.
    pub(super) fn lost(&mut self, samples: u64) {
        let position = self.timeline.next();
        let silence = self.timeline.lost(self.position(self.now), samples);
        self.silence(position, silence);
    }

    /// Silence of this length stands at `position`. A frame that was begun is completed; the rest is not worth frames.
    fn silence(&mut self, position: u64, length: u64) {
        if length < FRAME as u64 {
            self.take(&[0; FRAME][..length as usize], position);
        } else if let Some(heard) = self.ear.pad() {
            self.heard(heard, self.now);
        }
    }

    /// Frames of what is heard at `position`, which ends now.
    fn take(&mut self, mut samples: &[i16], mut position: u64) {
        let (now, delay) = (self.now, self.leg.delay());
        while !samples.is_empty() && !self.ended {
            let before = samples.len();
            let heard = self.ear.take(&mut samples, position);
            position += (before - samples.len()) as u64;
            if let Some(heard) = heard {
                // The frame ended when the samples after it began, and was said before the codec had it:
                // of the silence that ends a turn, that much has gone by.
                let behind = Samples(samples.len() as u64).duration();
                self.heard(heard, now.before(behind + delay));
            }
        }
    }

    fn too_fast(&mut self, now: Time, samples: u64) {
        match &mut self.dropping {
            Some(dropping) if now - dropping.since < TOO_FAST => dropping.samples += samples,
            // What was taken came at real time: half as much again was dropped.
            Some(dropping) if 2 * Samples(dropping.samples).duration() > now - dropping.since => {
                self.out.close(1008, "audio_too_fast");
                self.cue(Cue::End(EndReason::MediaTimeout));
            }
            _ => {
                self.dropping = Some(Dropping {
                    since: now,
                    samples,
                });
                self.note("audio came faster than real time and was dropped");
                self.refuse(
                    "audio_too_fast",
                    "Audio arrives faster than real time; what is over 2.5 s ahead is dropped",
                    None,
                );
            }
        }
    }

    fn heard(&mut self, heard: CallerFrame, at: Time) {
        let at = at.max(self.last_frame);
        self.last_frame = at;
        if self.config.recording {
            self.out.record(Side::Caller, heard.at, self.ear.newest());
        }
        if heard.voiced {
            self.last_voice_at = heard.at + FRAME as u64;
            self.voice_held = self.held;
        }
        if heard.quiet > 0 {
            self.last_voice_at = self.last_voice_at.saturating_sub(heard.quiet);
            let frame = Samples(FRAME as u64 + heard.quiet).duration();
            self.cue(Cue::VoiceEnded {
                at: at.before(frame),
            });
        }
        let fed = self.open_utterance();
        self.cue(Cue::Frame {
            at,
            voiced: heard.voiced,
        });
        // A recogniser that was just begun has this frame as the end of the pre-roll.
        if let Some(utterance) = fed
            && self.open_utterance() == fed
        {
            self.out.stt_audio(utterance, self.ear.newest());
            self.given.until = heard.at + FRAME as u64;
        }
    }

    fn open_utterance(&self) -> Option<UtteranceId> {
        self.utterances
            .iter()
            .find(|u| u.stage == Stage::Open)
            .map(|u| u.id)
    }

    pub(super) fn begin_utterance(&mut self) {
        if self.open_utterance().is_some() {
            return;
        }
        let onset = self.ear.onset();
        if self.caller_turn.is_none() {
            // Words over the agent that came to nothing.
            self.utterances
                .retain(|u| u.stage != Stage::Final || onset.saturating_sub(u.end) < TOGETHER);
        }
        self.utterance_ids += 1;
        let id = UtteranceId(self.utterance_ids);
        self.utterances.push(Utterance {
            id,
            noticed: self.turn.voice_onset(),
            onset,
            end: onset,
            text: String::new(),
            confidence: None,
            stage: Stage::Open,
            failed: false,
        });
        // After a short pause the last 300 ms reach back into the utterance before, whose words would be
        // heard twice. Only a soft beginning that it took for silence is given again.
        let fresh = onset.min(self.given.until).max(self.given.voice);
        self.out.stt_begin(id);
        self.out.stt_audio(id, self.ear.pre_roll_from(fresh));
        self.given.until = self.ear.end();
        if let Some(turn) = &mut self.caller_turn
            && turn.onset.is_none()
            && turn.keys.is_empty()
            && turn.typed.is_empty()
        {
            turn.onset = Some(onset);
        }
    }

    pub(super) fn finish_utterance(&mut self) {
        for utterance in &mut self.utterances {
            if utterance.stage == Stage::Open {
                utterance.stage = Stage::Finishing;
                utterance.end = self.last_voice_at;
                self.out.stt_finish(utterance.id);
                self.given.voice = self.last_voice_at;
            }
        }
    }

    /// The recogniser's words.
    pub(super) fn words(
        &mut self,
        id: UtteranceId,
        text: String,
        confidence: Option<f32>,
        is_final: bool,
    ) {
        // Who names a noise has judged that what they took for words was none.
        let noise = is_final && spoken::names_a_noise(&text);
        let text = spoken::words(&text);
        // A recogniser may know better after its last word: as long as nothing of the answer was heard, that counts.
        let Some(utterance) = self
            .utterances
            .iter_mut()
            .find(|u| u.id == id && (is_final || u.stage != Stage::Final))
        else {
            return;
        };
        // Words are not taken back by a result that merely has none.
        if !text.is_empty() || utterance.text.is_empty() || noise {
            utterance.text = text.into_owned();
            utterance.confidence = confidence;
        }
        if is_final {
            utterance.stage = Stage::Final;
            utterance.failed = false;
        }
        if let Some(turn) = &self.caller_turn
            && !turn.committed
        {
            let (text, turn_id) = (self.turn_text(), turn.id.clone());
            if !text.is_empty() {
                self.send_transcript(&text, &turn_id, false);
            }
        }
        self.cue_words(id);
        if is_final {
            self.late_words(id);
        }
    }

    /// Final words of a turn that is being answered already: it is answered anew, with all that was said. Not while a tool
    /// runs: what it does would be done twice. One that has answered stands with the turn ([`Work`]).
    fn late_words(&mut self, id: UtteranceId) {
        let text = self.turn_text();
        let unheard = self.reply.as_ref().is_some_and(|r| {
            r.committed && r.tools.is_empty() && r.is_answer_to_other_words(&text)
        });
        let thinks = matches!(self.turn.state(), State::Thinking { .. });
        if let Some(turn) = &mut self.caller_turn
            && turn.committed
            && turn.newest >= id.0
            && turn.asked_anew < MOST_ASKED_ANEW
            && thinks
            && unheard
        {
            turn.asked_anew += 1;
            self.cue(Cue::LateWords);
        }
    }

    /// Tells the turn taker of words that came for this utterance.
    fn cue_words(&mut self, id: UtteranceId) {
        // Over the agent each piece is judged by itself: "mhm" does not take the edge off the "stop" after it.
        let piece = self.utterances.iter().find(|u| u.id == id);
        let text = match piece.filter(|_| self.caller_turn.is_none()) {
            Some(piece) => piece.text.clone(),
            None => self.turn_text(),
        };
        // Pieces long before the newest will be no part of a turn.
        let newest = self.utterances.last().map_or(0, |u| u.onset);
        let is_final = self.utterances.iter().all(|u| {
            let apart = self.caller_turn.is_none() && newest.saturating_sub(u.end) >= TOGETHER;
            u.stage == Stage::Final || apart
        });
        // Words may still come of another piece; only without any has nobody heard the turn.
        let failed = self.utterances.iter().any(|u| u.failed);
        let in_turn = matches!(self.turn.state(), State::Caller(_));
        if is_final && failed && in_turn && text.is_empty() {
            return self.cue(Cue::NotHeard);
        }
        self.cue(Cue::Words(Words {
            is_final,
            shape: Shape::of(&text, self.punctuates),
            acknowledgement: is_acknowledgement(&text),
            stop: is_stop(&text),
        }));
    }

    pub(super) fn recogniser_failed(&mut self, id: UtteranceId, message: &str) {
        let Some(utterance) = self
            .utterances
            .iter_mut()
            .find(|u| u.id == id && u.stage != Stage::Final)
        else {
            return;
        };
        utterance.stage = Stage::Final;
        utterance.failed = true;
        self.recogniser_failures += 1;
        self.note(&format!("recogniser: {message}"));
        self.cue_words(id);
    }

    pub(super) fn open_turn(&mut self, onset: Option<Time>) {
        self.settle_caller_turn();
        self.speculations = 0;
        let onset = onset.map(|at| self.keep_from(at));
        if onset.is_none() {
            self.forget_utterances();
        }
        self.caller_turn = Some(CallerTurn {
            id: self.new_turn_id(),
            onset,
            end: self.last_voice_at,
            keys: std::mem::take(&mut self.pending_keys),
            typed: std::mem::take(&mut self.pending_text),
            committed: false,
            newest: 0,
            asked_anew: 0,
            work: Work::default(),
        });
    }

    /// Keeps the words of the voice that was noticed at this time, and of what led to it: they are a turn's. Its first
    /// sample.
    fn keep_from(&mut self, noticed: Time) -> u64 {
        let Some(last) = self.utterances.iter().rposition(|u| u.noticed == noticed) else {
            self.forget_utterances();
            return self.ear.onset();
        };
        let leads = |at: usize| match self.utterances.get(at - 1..=at) {
            Some([before, next]) => before.leads_to(next),
            _ => false,
        };
        let first = (1..=last).rev().find(|&at| !leads(at)).unwrap_or(0);
        for utterance in self.utterances.drain(..first) {
            if utterance.stage == Stage::Finishing {
                self.out.stt_cancel(utterance.id);
            }
        }
        self.utterances.first().map_or(0, |first| first.onset)
    }

    pub(super) fn key(&mut self, digit: char) {
        if !self.config.agent.keypad_capture_enabled {
            return;
        }
        // An entry ends at once as often as a turn may be typed, else after the pause.
        let last = digit == '#' && self.requests.take(self.now, 1);
        if self.takes_new_turn() {
            self.pending_keys.push(digit);
        } else if let Some(turn) = &mut self.caller_turn {
            turn.keys.push(digit);
        }
        self.cue(Cue::Key { last });
    }

    /// Background of the client.
    pub(super) fn context(&mut self, text: &str) {
        if self.is_allowed() && !self.dialog.add_context(text) {
            self.refuse(
                "context_full",
                "The background of a call is over 64 KiB: its oldest was dropped",
                None,
            );
        }
    }

    pub(super) fn typed(&mut self, text: String) {
        let text = text.trim().to_owned();
        if text.is_empty() || !self.is_allowed() {
            return;
        }
        if self.takes_new_turn() {
            self.pending_text = text;
        } else if let Some(turn) = &mut self.caller_turn {
            if !turn.typed.is_empty() {
                turn.typed.push(' ');
            }
            turn.typed.push_str(&text);
        }
        self.cue(Cue::Typed);
    }

    /// Whether another message of the client is taken; else it is told.
    fn is_allowed(&mut self) -> bool {
        let allowed = self.requests.take(self.now, 1);
        if !allowed {
            let most = "Over 4 user_message and contextual_update a second: this one was not taken";
            self.refuse("rate_limited", most, Some(1));
        }
        allowed
    }

    fn takes_new_turn(&self) -> bool {
        !matches!(self.turn.state(), State::Caller(_)) || self.caller_turn.is_none()
    }

    /// The words of the turn so far: what was recognised, typed and keyed.
    pub(super) fn turn_text(&self) -> String {
        self.text_of(self.caller_turn.as_ref())
    }

    fn text_of(&self, turn: Option<&CallerTurn>) -> String {
        let mut text = String::new();
        let typed = turn
            .into_iter()
            .flat_map(|t| [t.typed.as_str(), t.keys.as_str()]);
        for part in self.utterances.iter().map(|u| u.text.as_str()).chain(typed) {
            if !part.is_empty() {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(part);
            }
        }
        text
    }

    /// The caller spoke on: the turn is open again.
    pub(super) fn reopen_turn(&mut self) {
        if let Some(turn) = &mut self.caller_turn {
            turn.committed = false;
        }
    }

    /// The turn is over for now: its words are told to the client, and to the model.
    pub(super) fn commit_turn(&mut self) -> String {
        let text = self.turn_text();
        if let Some(turn) = &mut self.caller_turn {
            turn.committed = true;
            turn.newest = self.utterance_ids;
            turn.end = turn.end.max(self.last_voice_at);
            let id = turn.id.clone();
            self.send_transcript(&text, &id, true);
        }
        text
    }

    fn send_transcript(&mut self, text: &str, turn_id: &str, is_final: bool) {
        let whole = self.timeline.is_whole();
        let turn = self.caller_turn.as_ref();
        let start_ms = turn
            .and_then(|t| t.onset)
            .filter(|_| whole)
            .map(|at| Samples(at).ms());
        let end_ms = start_ms.map(|_| Samples(self.last_voice_at).ms());
        let confidence = self.confidence();
        self.send(&ServerEvent::UserTranscript {
            text,
            is_final,
            turn_id,
            start_ms,
            end_ms,
            confidence,
        });
    }

    /// The least sure of its parts.
    fn confidence(&self) -> Option<f32> {
        self.utterances
            .iter()
            .filter_map(|u| u.confidence)
            .min_by(f32::total_cmp)
    }

    pub(super) fn drop_turn(&mut self) {
        self.caller_turn = None;
        self.forget_utterances();
    }

    /// The caller's turn has been answered, or never will be: it goes into the transcript and the
    /// dialogue, and will not change.
    pub(super) fn settle_caller_turn(&mut self) {
        let Some(turn) = self.caller_turn.take() else {
            return;
        };
        let text = self.text_of(Some(&turn));
        let confidence = self.confidence();
        self.forget_utterances();
        if text.is_empty() {
            return;
        }
        let tool_calls = match &self.reply {
            // The rest of the words comes with what its answer has done.
            Some(reply) if reply.opening != reply.asked => {
                self.dialog.caller_said(&reply.opening);
                Vec::new()
            }
            _ => turn.work.settle(&text, &mut self.dialog),
        };
        let source = match (&turn.typed, &turn.keys) {
            (typed, _) if !typed.is_empty() => Source::Text,
            (_, keys) if !keys.is_empty() => Source::Keypad,
            _ => Source::Speech,
        };
        let start = turn
            .onset
            .filter(|_| source == Source::Speech && self.timeline.is_whole());
        let index = self.turn_index;
        self.turn_index += 1;
        self.out.event(CallEvent::Turn(Box::new(Turn {
            index,
            turn_id: turn.id,
            role: Role::User,
            text,
            text_raw: None,
            language: self.language().to_owned(),
            start_ms: start.map(|at| Samples(at).ms()),
            end_ms: start.map(|_| Samples(turn.end).ms()),
            interrupted: false,
            interrupted_after_ms: None,
            estimated_text_spoken: None,
            source,
            confidence,
            latency: None,
            tool_calls,
        })));
    }

    pub(super) fn language(&self) -> &'static str {
        match self.config.agent.language {
            crate::config::Language::English => "english",
            crate::config::Language::French => "french",
        }
    }

    /// The call is over: no words are wanted.
    pub(super) fn cancel_utterances(&mut self) {
        for utterance in self.utterances.drain(..) {
            if utterance.stage != Stage::Final {
                self.out.stt_cancel(utterance.id);
            }
        }
    }

    /// Forgets all words but those of a voice that is still on (it belongs to what comes next).
    fn forget_utterances(&mut self) {
        for utterance in &self.utterances {
            if utterance.stage == Stage::Finishing {
                self.out.stt_cancel(utterance.id);
            }
        }
        self.utterances.retain(|u| u.stage == Stage::Open);
    }
}
