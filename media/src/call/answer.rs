//! What the agent is to say: answers of the model, and lines of its own.

use super::Call;
use super::latency::Marks;
use super::output::{LlmCommand, SynthesiserCommand};
use super::record::{EndReason, Owner};
use super::reply::{Filler, Kind, Reply, Spoken};
use crate::audio::tones::sine;
use crate::config::Language;
use crate::dialog::clean::Cleaner;
use crate::dialog::ends_call;
use crate::dialog::plain::Plain;
use crate::dialog::sentences::Segment;
use crate::speech::{LlmEvent, ReplyId, SynthesiserEvent};
use crate::time::RATE;
use crate::turn::Cue;

/// The tone after which a message is taken: 300 ms, of whole periods.
const TONE_HZ: f64 = 1000.0;
const TONE_DBFS: f64 = -14.0;
const TONE_SAMPLES: usize = 4_800;

impl Call {
    /// The caller's turn is over: answer it, or end the call if its words say so.
    pub(super) fn commit(&mut self) {
        let text = self.commit_turn();
        self.unheard = None;
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
        if !committed {
            self.speculations += 1;
        }
        let marks = Marks {
            voice_end: spoken.then(|| self.turn.last_voice()),
            voice_held: self.voice_held,
            endpoint: self.turn.end_of_turn_delay(),
            voice_stop: self.turn.voice_stop_delay(),
            committed: committed.then_some(self.now),
            asked: Some(self.now),
            attempts: self.speculations,
            ..Marks::default()
        };
        let mut reply = self.new_reply(Kind::Answer, marks);
        reply.committed = committed;
        reply.opening = asked.clone();
        reply.asked = asked;
        if let Some(turn) = &mut self.caller_turn {
            std::mem::take(&mut turn.work).go_on(&mut reply);
        }
        reply.plain = Some(Plain::new(self.config.agent.language));
        reply.cleaner = self
            .config
            .agent
            .content_guardrail_enabled
            .then(Cleaner::default);
        let request = self
            .dialog
            .request(&self.config.agent, &reply.opening, &reply.steps);
        self.out.llm(LlmCommand::Start(reply.id, Box::new(request)));
        self.reply = Some(reply);
    }

    /// Says a line of the agent's own.
    pub(super) fn say_line(&mut self, kind: Kind) {
        self.cancel_reply();
        let french = self.config.agent.language == Language::French;
        let line = match (kind, french) {
            (Kind::Greeting, _) => {
                let line = self.config.agent.first_message.as_deref();
                Plain::text(line.unwrap_or_default(), self.config.agent.language)
            }
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
            (Kind::Tone, _) => return self.sound_tone(),
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

    /// Sounds the tone after which a message is taken.
    pub(super) fn sound_tone(&mut self) {
        self.cancel_reply();
        let marks = Marks {
            asked: Some(self.now),
            ..Marks::default()
        };
        let mut reply = self.new_reply(Kind::Tone, marks);
        let id = reply.id;
        reply.text_complete = true;
        let segment = Segment {
            index: 0,
            start: 0,
            end: 0,
        };
        reply.segments.push(Spoken {
            segment,
            first: self.playout.queued(),
            length: 0,
            done: false,
        });
        self.reply = Some(reply);
        let tone = SynthesiserEvent::Audio {
            rate: RATE,
            samples: sine(RATE, TONE_HZ, TONE_DBFS, TONE_SAMPLES),
        };
        self.voice(id, 0, tone);
        self.voice(id, 0, SynthesiserEvent::Done);
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
        let text = Plain::text(&text, self.config.agent.language);
        if begun || self.filler.is_some() || text.is_empty() {
            return false;
        }
        let id = self.new_reply_id();
        let turn_id = self.new_turn_id();
        self.out.tts(SynthesiserCommand::Speak {
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
                reply.end_step();
                reply.step_done = true;
                self.step_over();
            }
            LlmEvent::Failed { message } => self.model_failed(&message),
        }
    }

    pub(super) fn model_failed(&mut self, message: &str) {
        self.note(&format!("model: {message}"));
        let Some(reply) = &mut self.reply else { return };
        reply.end_step();
        if reply.has_words() {
            reply.text_over();
        } else if !reply.retried {
            reply.retried = true;
            reply.start_over();
            let request = self
                .dialog
                .request(&self.config.agent, &reply.opening, &reply.steps);
            self.out.llm(LlmCommand::Start(reply.id, Box::new(request)));
        } else if reply.committed {
            self.cancel_reply();
            self.cue(Cue::ReplyFailed);
        } else {
            self.cancel_reply();
        }
    }
}
