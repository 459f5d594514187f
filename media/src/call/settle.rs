//! What becomes of a reply: forgotten, cut where it is being heard, or heard to its end; and what the
//! recording, the transcript and the dialogue keep of it.

use super::Call;
use super::output::{CallEvent, LlmCommand, Side, SynthesiserCommand};
use super::record::{Role, Source, Turn};
use super::reply::{Filler, Kind, Reply, Unheard};
use crate::leg::ws::{Interruption, ServerEvent};
use crate::time::Samples;

impl Call {
    /// Records what has been played.
    pub(super) fn settle(&mut self, position: u64) {
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
        let played = self.playout.played(position);
        if self
            .filler
            .as_ref()
            .is_some_and(|f| f.done && (f.first.is_none() || played >= f.over))
        {
            self.settle_filler();
        }
    }

    /// Forgets a reply of which nothing was heard.
    pub(super) fn cancel_reply(&mut self) {
        let position = self.position(self.now);
        if self.filler.is_some() {
            // The filler is being heard, so the client has to be told to drop it.
            self.cut(position);
        }
        let Some(reply) = self.reply.take() else {
            return;
        };
        self.withdraw(&reply);
        self.clear_playout(position, None);
        self.put_back(reply);
    }

    fn withdraw(&mut self, reply: &Reply) {
        if !reply.text_complete {
            self.out.llm(LlmCommand::Cancel(reply.id));
        }
        if reply.segments.last().is_some_and(|s| !s.done) {
            self.out.tts(SynthesiserCommand::Cancel(reply.id));
        }
    }

    /// Cuts the reply where it is being heard.
    pub(super) fn interrupt(&mut self) {
        self.interruptions += 1;
        let position = self.position(self.now);
        self.cut(position);
    }

    fn cut(&mut self, position: u64) {
        let mut reply = self.reply.take();
        if let Some(reply) = &reply {
            self.withdraw(reply);
        }
        if let Some(filler) = self.filler.as_ref().filter(|filler| !filler.done) {
            self.out.tts(SynthesiserCommand::Cancel(filler.id));
        }
        self.fade();
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
        self.out
            .message(|out| leg.clear(out, &header, &interruption));
        self.settle_filler();
        if let Some(mut reply) = reply {
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
                self.cancel_tools(&mut reply);
                self.settle_reply(reply, Some(played));
            } else {
                self.put_back(reply);
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
            Kind::CheckIn | Kind::Apology | Kind::Reprompt | Kind::Goodbye | Kind::Tone => {
                Source::System
            }
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
            self.out.tts(SynthesiserCommand::Cancel(filler.id));
        }
        let whole = self.playout.is_idle();
        let played = self.clear_playout(position, reply.as_mut());
        let heard = match reply {
            Some(reply) if reply.start.is_none() => {
                self.put_back(reply);
                None
            }
            heard => heard,
        };
        if heard.is_none() {
            self.settle_caller_turn();
        }
        self.settle_filler();
        if let Some(mut reply) = heard {
            let complete = whole && reply.is_complete();
            self.cancel_tools(&mut reply);
            self.settle_reply(reply, (!complete).then_some(played));
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
