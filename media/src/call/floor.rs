//! Who speaks, which reply is current, what was heard of it.

use std::time::Duration;

use super::Call;
use super::latency::Marks;
use super::output::{CallEvent, LlmCommand, Side, TtsCommand};
use super::record::{EndReason, Owner, Role, Source, Turn};
use super::reply::{Filler, Kind, Reply, Spoken, Unheard};
use crate::audio::resample::Resampler;
use crate::config::Language;
use crate::dialog::clean::Cleaner;
use crate::dialog::ends_call;
use crate::frame::FRAME;
use crate::leg::ws::{Interruption, ServerEvent};
use crate::speech::{LlmEvent, ReplyId, TtsEvent};
use crate::time::{RATE, Samples, Time};
use crate::turn::Cue;

/// The voice is asked for the next segment when less than this waits to be sent (500 ms): enough for
/// a slow voice, little to hold and to throw away.
const REFILL: u64 = 8_000;

/// How long the voice may take to its next piece of audio.
const VOICE_DEADLINE: Duration = Duration::from_secs(8);

/// Samples of a voice that are converted at once.
const PART: usize = 1024;

/// Louder than this is audible: −50 dBFS.
const AUDIBLE: i16 = 104;

/// Kept before the first audible sample, so that no attack is clipped (5 ms).
const ATTACK: usize = 80;

/// A telephony mark every so many samples of agent audio (200 ms).
const MARK_EVERY: u64 = 3_200;

impl Call {
    /// The caller's turn is over: answer it, or end the call if its words say so.
    pub(super) fn commit(&mut self) {
        let text = self.commit_turn();
        if ends_call(&text, &self.config.agent.end_call_phrases) {
            self.cancel_reply();
            self.cue(Cue::Goodbye(EndReason::Phrase));
            return;
        }
        let adopts = self
            .reply
            .as_ref()
            .is_some_and(|r| !r.committed && r.kind == Kind::Answer && r.asked == text);
        if !adopts {
            self.cancel_reply();
            self.begin_answer(true);
            return;
        }
        let now = self.now;
        let Some(reply) = &mut self.reply else { return };
        reply.committed = true;
        reply.marks.committed = Some(now);
        reply.marks.speculative = true;
        let held = std::mem::take(&mut reply.held);
        for call in held {
            self.run_tool(call);
        }
        self.step_over();
    }

    /// Asks the model. `committed: false`: nobody hears it before the turn is committed.
    pub(super) fn begin_answer(&mut self, committed: bool) {
        self.cancel_reply();
        let asked = self.turn_text();
        let spoken = self
            .caller_turn
            .as_ref()
            .is_some_and(|turn| turn.is_spoken());
        self.speculations = if committed && self.speculations == 0 {
            0
        } else {
            self.speculations + 1
        };
        let marks = Marks {
            voice_end: spoken.then(|| self.turn.last_voice()),
            endpoint: self.turn.end_of_turn_delay(),
            voice_stop: self.turn.voice_stop_delay(),
            committed: committed.then_some(self.now),
            asked: Some(self.now),
            attempts: self.speculations,
            ..Marks::default()
        };
        if committed {
            self.speculations = 0;
        }
        let mut reply = self.new_reply(Kind::Answer, marks);
        reply.committed = committed;
        reply.asked = asked;
        reply.cleaner = self
            .config
            .agent
            .content_guardrail_enabled
            .then(Cleaner::default);
        let request = self.dialog.request(&self.config.agent, &reply.asked, &[]);
        self.out.llm(LlmCommand::Start(reply.id, Box::new(request)));
        self.reply = Some(reply);
    }

    /// Says a line of the agent's own.
    pub(super) fn say_line(&mut self, kind: Kind) {
        self.cancel_reply();
        let french = self.config.agent.language == Language::French;
        let line = match (kind, french) {
            (Kind::Greeting, _) => self.config.agent.first_message.clone().unwrap_or_default(),
            (Kind::CheckIn, false) => "Are you still there?".to_owned(),
            (Kind::CheckIn, true) => "Êtes-vous toujours là ?".to_owned(),
            (Kind::Apology, false) => "I am sorry, I cannot answer that right now.".to_owned(),
            (Kind::Apology, true) => {
                "Je suis désolé, je ne peux pas répondre pour le moment.".to_owned()
            }
            (Kind::Reprompt, false) => {
                "Sorry, I did not catch that. Could you say it again?".to_owned()
            }
            (Kind::Reprompt, true) => {
                "Pardon, je n'ai pas compris. Pouvez-vous répéter ?".to_owned()
            }
            (Kind::Goodbye | Kind::Answer | Kind::Resume, false) => "Goodbye.".to_owned(),
            (Kind::Goodbye | Kind::Answer | Kind::Resume, true) => "Au revoir.".to_owned(),
        };
        self.say(kind, &line);
    }

    /// Says what the interrupted reply still had to say.
    pub(super) fn resume(&mut self) {
        self.cancel_reply();
        match self.unheard.take() {
            Some(unheard) => self.say(Kind::Resume, &unheard.text),
            None => self.cue(Cue::ReplyOver),
        }
    }

    fn say(&mut self, kind: Kind, line: &str) {
        let marks = Marks {
            asked: Some(self.now),
            ..Marks::default()
        };
        let mut reply = self.new_reply(kind, marks);
        reply.text.push(line);
        reply.text.finish();
        reply.text_complete = true;
        self.reply = Some(reply);
    }

    fn new_reply(&mut self, kind: Kind, marks: Marks) -> Reply {
        let id = self.new_reply_id();
        let turn_id = self.new_turn_id();
        Reply::new(id, kind, turn_id, marks)
    }

    fn new_reply_id(&mut self) -> ReplyId {
        self.reply_ids += 1;
        ReplyId(self.reply_ids)
    }

    /// The filler line of the soft timeout.
    pub(super) fn say_filler(&mut self) {
        let line = match (
            self.config.agent.soft_timeout_message.trim(),
            self.config.agent.language,
        ) {
            ("", Language::English) => "One moment, please.".to_owned(),
            ("", Language::French) => "Un instant, s'il vous plaît.".to_owned(),
            (line, _) => line.to_owned(),
        };
        self.fill(line);
    }

    /// Speaks a line while the reply is awaited, if nothing of it was begun. Whether it does.
    pub(super) fn fill(&mut self, text: String) -> bool {
        let begun = self
            .reply
            .as_ref()
            .is_some_and(|reply| !reply.segments.is_empty());
        if begun || self.filler.is_some() || text.is_empty() {
            return false;
        }
        let id = self.new_reply_id();
        let turn_id = self.new_turn_id();
        self.out.tts(TtsCommand::Speak {
            reply: id,
            segment: 0,
            text: text.clone(),
        });
        self.filler = Some(Filler::new(id, turn_id, text));
        true
    }

    /// The model said something.
    pub(super) fn model(&mut self, id: ReplyId, event: LlmEvent) {
        let now = self.now;
        let Some(reply) = self
            .reply
            .as_mut()
            .filter(|reply| reply.id == id && !reply.text_complete)
        else {
            return;
        };
        match event {
            LlmEvent::Text(text) => {
                if reply.marks.first_word.is_none() && !text.trim().is_empty() {
                    reply.marks.first_word = Some(now);
                    reply.marks.step("llm_ttft", Owner::Llm, now);
                }
                reply.say(&text);
            }
            LlmEvent::ToolCall(call) if reply.committed => self.run_tool(call),
            LlmEvent::ToolCall(call) => reply.held.push(call),
            LlmEvent::Done => {
                reply.step_done = true;
                self.step_over();
            }
            LlmEvent::Failed { message } => self.model_failed(&message),
        }
    }

    fn model_failed(&mut self, message: &str) {
        self.note(&format!("model: {message}"));
        let Some(reply) = &mut self.reply else { return };
        if !reply.text.text().is_empty() {
            reply.text_over();
        } else if !reply.retried {
            reply.retried = true;
            let request = self
                .dialog
                .request(&self.config.agent, &reply.asked, &reply.steps);
            self.out.llm(LlmCommand::Start(reply.id, Box::new(request)));
        } else if reply.committed {
            self.cancel_reply();
            self.cue(Cue::ReplyFailed);
        } else {
            self.cancel_reply();
        }
    }

    /// The voice said something.
    pub(super) fn voice(&mut self, id: ReplyId, segment: u32, event: TtsEvent) {
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
            TtsEvent::Audio { rate, samples } => {
                reply.voice_since = Some(now);
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
            TtsEvent::Done => {
                if let Some(spoken) = reply.speaking() {
                    spoken.done = true;
                }
                reply.voice_since = None;
            }
            TtsEvent::Failed { message } => self.voice_failed(&message),
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
        if reply.first_audible.is_none() && reply.committed {
            self.abandon_reply();
            self.cue(Cue::ReplyFailed);
        } else if reply.first_audible.is_none() {
            self.cancel_reply();
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

    fn filler_voice(&mut self, event: TtsEvent) {
        let Some(filler) = &mut self.filler else {
            return;
        };
        match event {
            TtsEvent::Audio { rate, samples } => {
                for part in samples.chunks(PART) {
                    if resample(&mut filler.resampler, rate, part, &mut self.resampled) {
                        let first = self.playout.push(&self.resampled);
                        filler.first.get_or_insert(first);
                        filler.length += self.resampled.len() as u64;
                    }
                }
            }
            TtsEvent::Done | TtsEvent::Failed { .. } => filler.done = true,
        }
    }

    /// Moves audio on: what was played into the recording, what is due to the caller, what is
    /// needed from the voice.
    pub(super) fn pump(&mut self) {
        if !self.started || self.ended {
            return;
        }
        let position = self.position(self.now);
        self.settle(position);
        self.tell_text();
        self.send_due(position);
        self.voice_overdue();
        self.refill();
        self.tell_text();
        self.reply_over();
    }

    /// When the floor has something to do next.
    pub(super) fn floor_deadline(&self) -> Option<Time> {
        if !self.started {
            return None;
        }
        let send = self
            .may_be_heard()
            .then(|| self.playout.next_send(self.tail()))
            .flatten();
        let filler = self.filler.as_ref().filter(|filler| filler.done);
        let filled =
            filler.and_then(|filler| self.playout.position_of(filler.first? + filler.length));
        let positions = [send, self.playout.all_played(), filled];
        let voice = self
            .reply
            .as_ref()
            .and_then(|r| r.voice_since)
            .map(|since| since + VOICE_DEADLINE);
        positions
            .into_iter()
            .flatten()
            .map(|at| self.time_of(at))
            .chain(voice)
            .min()
    }

    fn may_be_heard(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| reply.committed)
    }

    /// No more audio will follow what is queued.
    fn tail(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| filler.done)
            && self
                .reply
                .as_ref()
                .is_none_or(|reply| reply.is_complete() || reply.segments.is_empty())
    }

    /// Records what has been played.
    fn settle(&mut self, position: u64) {
        let mut spans = Spans {
            reply: self.reply.as_mut(),
            filler: self.filler.as_mut(),
        };
        let (out, recording) = (&mut self.out, self.config.recording);
        self.playout.settle(position, |played| {
            spans.heard(played.index, played.at, played.samples.len() as u64);
            if recording {
                out.record(Side::Agent, played.at, played.samples);
            }
        });
        if self.filler.as_ref().is_some_and(|f| {
            f.done
                && f.first
                    .is_none_or(|at| self.playout.played(position) >= at + f.length)
        }) {
            self.settle_filler();
        }
    }

    /// Asks the voice for the next segment when little waits.
    fn refill(&mut self) {
        let now = self.now;
        let most = self.config.agent.response_max_sentences;
        let waiting = self.playout.waiting();
        let filling = self.filler.as_ref().is_some_and(|filler| !filler.done);
        let Some(reply) = &mut self.reply else { return };
        if filling || waiting >= REFILL || reply.segments.last().is_some_and(|s| !s.done) {
            return;
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
        self.out.tts(TtsCommand::Speak {
            reply: id,
            segment: segment.index,
            text,
        });
        if reply.kind == Kind::Answer
            && most > 0
            && reply.text.sentences() >= most
            && !reply.text_complete
        {
            // Long enough: what the model still says is not wanted.
            reply.text.cut_here();
            reply.text_complete = true;
            self.out.llm(LlmCommand::Cancel(id));
        } else if reply.kind == Kind::Answer && most > 0 && reply.text.sentences() >= most {
            reply.text.cut_here();
        }
    }

    /// Tells the client the reply's text as far as it went to the voice.
    fn tell_text(&mut self) {
        let Some(reply) = self.reply.as_mut().filter(|reply| reply.committed) else {
            return;
        };
        let end = reply.segments.last().map_or(0, |s| s.segment.end);
        let is_final = reply.text_complete && end >= reply.text.text().len();
        if end == 0 || (end == reply.told && is_final == reply.told_final) {
            return;
        }
        reply.told = end;
        reply.told_final = is_final;
        let text = reply.text.text()[..end].to_owned();
        let turn_id = reply.turn_id.clone();
        self.send(&ServerEvent::AgentResponse {
            text: &text,
            turn_id: &turn_id,
            is_final,
        });
    }

    fn send_due(&mut self, position: u64) {
        if !self.may_be_heard() {
            return;
        }
        let tail = self.tail();
        while let Some(frame) = self.playout.send(position, tail) {
            let index = self.playout.sent() - FRAME as u64;
            let header = self.header();
            let (leg, out) = (&mut self.leg, &mut self.out);
            let (turn_id, first) = match (&self.filler, &self.reply) {
                (Some(filler), _) if filler.first.is_some_and(|at| index < at + filler.length) => {
                    (filler.turn_id.as_str(), filler.first)
                }
                (_, Some(reply)) => (
                    reply.turn_id.as_str(),
                    reply.segments.first().map(|s| s.first),
                ),
                (_, None) => ("", None),
            };
            let offset_ms = Samples(index.saturating_sub(first.unwrap_or(index))).ms();
            out.message(|out| {
                leg.audio(out, &header, &frame, turn_id, offset_ms);
                true
            });
            self.playout.sent_as(header.event_id);
            let sent = self.playout.sent();
            if sent / MARK_EVERY != index / MARK_EVERY || self.playout.waiting() == 0 {
                let leg = &mut self.leg;
                self.out.message(|out| leg.mark(out, sent));
            }
            self.first_sound(sent);
        }
    }

    /// The reply's first audible sample went out.
    fn first_sound(&mut self, sent: u64) {
        let Some(reply) = &mut self.reply else { return };
        let Some(first) = reply
            .first_audible
            .filter(|&first| first < sent && !reply.announced)
        else {
            return;
        };
        reply.announced = true;
        let (trimmed, turn_id) = (reply.trimmed, reply.turn_id.clone());
        let heard = self
            .playout
            .position_of(first)
            .map_or(self.now, |at| self.time_of(at));
        let Some(reply) = &mut self.reply else { return };
        reply.latency = reply.marks.latency(heard, trimmed);
        let latency = reply.latency.clone();
        self.settle_caller_turn();
        self.cue(Cue::ReplyHeard);
        if let Some(latency) = latency
            && self.config.events.turn_metrics
        {
            self.send(&ServerEvent::TurnMetrics {
                turn_id: &turn_id,
                latency: &latency,
            });
        }
    }

    fn voice_overdue(&mut self) {
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

    /// Whether the reply is complete and played.
    fn reply_over(&mut self) {
        let over = self
            .reply
            .as_ref()
            .is_some_and(|reply| reply.committed && reply.is_complete());
        if !over || !self.playout.is_idle() || self.filler.is_some() {
            return;
        }
        let Some(reply) = self.reply.take() else {
            return;
        };
        let end_after = reply.end_after;
        self.settle_caller_turn();
        self.settle_reply(reply, None);
        self.playout.shrink();
        match end_after {
            Some(reason) => self.cue(Cue::End(reason)),
            None => self.cue(Cue::ReplyOver),
        }
        if !self.ended {
            self.refill();
        }
    }

    /// Forgets a reply of which nothing was heard.
    pub(super) fn cancel_reply(&mut self) {
        let position = self.position(self.now);
        if self.filler.is_some() {
            // The filler is being heard, so the client has to be told to drop it.
            self.cut(position);
        }
        self.abandon_reply();
    }

    fn abandon_reply(&mut self) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        self.withdraw(&reply);
        let position = self.position(self.now);
        self.clear_playout(position, None);
        self.cancel_tools(reply);
    }

    fn withdraw(&mut self, reply: &Reply) {
        if !reply.text_complete {
            self.out.llm(LlmCommand::Cancel(reply.id));
        }
        if reply.segments.last().is_some_and(|s| !s.done) {
            self.out.tts(TtsCommand::Cancel(reply.id));
        }
    }

    /// Cuts the reply where it is being heard.
    pub(super) fn interrupt(&mut self) {
        let position = self.position(self.now);
        self.cut(position);
    }

    fn cut(&mut self, position: u64) {
        let mut reply = self.reply.take();
        if let Some(reply) = &reply {
            self.withdraw(reply);
        }
        if let Some(filler) = self.filler.as_ref().filter(|filler| !filler.done) {
            self.out.tts(TtsCommand::Cancel(filler.id));
        }
        let up_to_event_id = self.playout.newest_message().unwrap_or(self.event_id);
        let played = self.clear_playout(position, reply.as_mut());
        let (turn_id, spoken_ms, heard) = match (&reply, &self.filler) {
            (Some(reply), _) if reply.announced => (
                reply.turn_id.clone(),
                reply.spoken_ms(played),
                reply.heard_text(played).to_owned(),
            ),
            (_, Some(filler)) => (
                filler.turn_id.clone(),
                Samples(played.saturating_sub(filler.first.unwrap_or(played))).ms(),
                String::new(),
            ),
            (Some(reply), None) => (reply.turn_id.clone(), 0, String::new()),
            (None, None) => return,
        };
        let header = self.header();
        let leg = &mut self.leg;
        let interruption = Interruption {
            up_to_event_id,
            turn_id: &turn_id,
            spoken_ms,
            estimated_text_spoken: &heard,
        };
        self.out.message(|out| {
            leg.clear(out, &header, &interruption);
            true
        });
        self.settle_filler();
        if let Some(reply) = reply {
            if self.config.events.agent_response_correction && reply.announced {
                let original = reply.text.text().to_owned();
                self.send(&ServerEvent::AgentResponseCorrection {
                    original: &original,
                    corrected: &heard,
                    turn_id: &turn_id,
                });
            }
            let rest = reply
                .text
                .text()
                .get(heard.len()..)
                .unwrap_or_default()
                .trim()
                .to_owned();
            self.unheard = (!rest.is_empty()).then_some(Unheard { text: rest });
            if reply.announced {
                self.settle_reply(reply, Some(played));
            } else {
                self.cancel_tools(reply);
            }
        }
    }

    /// Drops all queued audio; what was played is recorded. The index of the first unheard sample.
    fn clear_playout(&mut self, position: u64, reply: Option<&mut Reply>) -> u64 {
        let mut spans = Spans {
            reply,
            filler: self.filler.as_mut(),
        };
        let (out, recording) = (&mut self.out, self.config.recording);
        self.playout.clear(position, |played| {
            spans.heard(played.index, played.at, played.samples.len() as u64);
            if recording {
                out.record(Side::Agent, played.at, played.samples);
            }
        })
    }

    /// A reply goes into the transcript, and into the dialogue as far as it was heard.
    /// `cut`: the index of the first sample that was not heard.
    pub(super) fn settle_reply(&mut self, mut reply: Reply, cut: Option<u64>) {
        let heard = cut.map(|index| reply.heard_text(index).to_owned());
        self.dialog.steps(std::mem::take(&mut reply.steps));
        self.dialog
            .agent_said(heard.as_deref().unwrap_or(reply.text.text()));
        let tool_calls = std::mem::take(&mut reply.tool_records);
        if reply.text.text().is_empty() && tool_calls.is_empty() {
            return;
        }
        let source = match reply.kind {
            Kind::Answer | Kind::Greeting | Kind::Resume => Source::Speech,
            Kind::CheckIn | Kind::Apology | Kind::Reprompt | Kind::Goodbye => Source::System,
        };
        let interrupted_after_ms = cut.map(|index| reply.spoken_ms(index));
        let index = self.turn_index;
        self.turn_index += 1;
        self.out.event(CallEvent::Turn(Box::new(Turn {
            index,
            turn_id: reply.turn_id.clone(),
            role: Role::Assistant,
            text: reply.text.text().to_owned(),
            text_raw: None,
            language: self.language().to_owned(),
            start_ms: reply.start.map(|at| Samples(at).ms()),
            end_ms: reply.start.map(|_| Samples(reply.end).ms()),
            interrupted: cut.is_some(),
            interrupted_after_ms,
            estimated_text_spoken: heard,
            source,
            confidence: None,
            latency: reply.latency.take(),
            tool_calls,
        })));
    }

    fn settle_filler(&mut self) {
        let Some(filler) = self.filler.take() else {
            return;
        };
        let Some(start) = filler.start else { return };
        let index = self.turn_index;
        self.turn_index += 1;
        let cut = filler.end < start + filler.length;
        self.out.event(CallEvent::Turn(Box::new(Turn {
            index,
            turn_id: filler.turn_id,
            role: Role::Assistant,
            text: filler.text,
            text_raw: None,
            language: self.language().to_owned(),
            start_ms: Some(Samples(start).ms()),
            end_ms: Some(Samples(filler.end).ms()),
            interrupted: cut,
            interrupted_after_ms: cut.then(|| Samples(filler.end - start).ms()),
            estimated_text_spoken: cut.then(String::new),
            source: Source::System,
            confidence: None,
            latency: None,
            tool_calls: Vec::new(),
        })));
    }

    /// The call is over: what was being said ends here.
    pub(super) fn end_speech(&mut self) {
        let position = self.position(self.now);
        let mut reply = self.reply.take();
        if let Some(reply) = &reply {
            self.withdraw(reply);
        }
        if let Some(filler) = self.filler.as_ref().filter(|filler| !filler.done) {
            self.out.tts(TtsCommand::Cancel(filler.id));
        }
        let whole = self.playout.is_idle();
        let played = self.clear_playout(position, reply.as_mut());
        let heard = reply.as_ref().is_some_and(|reply| reply.start.is_some());
        if !heard {
            self.settle_caller_turn();
        }
        self.settle_filler();
        if let Some(reply) = reply {
            if heard {
                let complete = whole && reply.is_complete();
                self.settle_reply(reply, (!complete).then_some(played));
            } else {
                self.cancel_tools(reply);
            }
        }
        self.settle_caller_turn();
    }
}

/// Where in the recording the things under way were heard.
struct Spans<'a> {
    reply: Option<&'a mut Reply>,
    filler: Option<&'a mut Filler>,
}

impl Spans<'_> {
    fn heard(&mut self, index: u64, at: u64, length: u64) {
        if let Some(filler) = &mut self.filler
            && let Some(first) = filler.first
            && index < first + filler.length
        {
            filler.start.get_or_insert(at + first.saturating_sub(index));
            filler.end = at + length.min(first + filler.length - index);
            return;
        }
        if let Some(reply) = &mut self.reply
            && let Some(first) = reply.first_audible
            && index + length > first
        {
            reply.start.get_or_insert(at + first.saturating_sub(index));
            reply.end = at + length;
        }
    }
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
