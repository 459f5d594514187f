//! Scripted providers on virtual time: what the recogniser hears, what the model says, how the voice
//! sounds, and how long each takes. Public, for tests, benches and simulations; no clock, no thread.
//!
//! A driver gives every output of a call to [`Script::react`], asks [`Script::next`] for the time of
//! the next answer and takes it with [`Script::take_due`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::{
    LlmEvent, ModelRequest, RecogniserEvent, ReplyId, SpeechEvent, SynthesiserEvent, ToolCall,
    UtteranceId,
};
use crate::call::output::{LlmCommand, Output, RecogniserCommand, SynthesiserCommand};
use crate::time::Time;

/// What the model does when it is asked.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Says this, word by word.
    Say(String),
    /// Calls a tool, then is asked again.
    Call(ToolCall),
    /// Says this and calls a tool.
    SayAndCall(String, ToolCall),
    /// Never answers.
    Stall,
    Fail,
}

/// What the recogniser makes of an utterance.
#[derive(Clone, Debug)]
pub enum Hearing {
    Words(String),
    /// Says these, one after the other: how long after the voice, the words, and whether they are final.
    Many(Vec<(Duration, String, bool)>),
    /// Never answers.
    Stall,
    Fail,
}

/// The scripted providers of one call.
#[derive(Clone, Debug)]
pub struct Script {
    /// From the end of the voice to the final words.
    pub stt_delay: Duration,
    /// One for each utterance in turn; when they run out, [`Script::always_heard`].
    pub hearings: VecDeque<Hearing>,
    pub always_heard: Hearing,
    /// From the request to the first word, and between words.
    pub llm_delay: Duration,
    pub llm_pace: Duration,
    /// One for each request in turn; when they run out, [`Script::always_said`].
    pub lines: VecDeque<Answer>,
    pub always_said: Answer,
    /// From the segment's text to its first sound.
    pub tts_delay: Duration,
    /// Segments that fail at the voice.
    pub broken_segments: BTreeSet<String>,
    /// How long a character sounds.
    pub character: Duration,
    /// The rate of the voice, Hz.
    pub tts_rate: u32,
    /// What the model was asked, in order.
    pub requests: Vec<ModelRequest>,
    /// What the voice was asked to say, in order.
    pub spoken: Vec<(ReplyId, u32, String)>,
    /// What is on its way.
    pub answers: Answers,
}

/// Answers on their way to the call.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pending: Vec<Pending>,
    order: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    at: Time,
    order: u64,
    event: SpeechEvent,
}

impl Default for Script {
    /// Quick providers that hear "Hello." and say "Hello there." again and again.
    fn default() -> Self {
        Self {
            stt_delay: Duration::from_millis(50),
            hearings: VecDeque::new(),
            always_heard: Hearing::Words("Hello.".to_owned()),
            llm_delay: Duration::from_millis(80),
            llm_pace: Duration::from_millis(5),
            lines: VecDeque::new(),
            always_said: Answer::Say("Hello there.".to_owned()),
            tts_delay: Duration::from_millis(40),
            broken_segments: BTreeSet::new(),
            character: Duration::from_millis(60),
            tts_rate: 16_000,
            requests: Vec::new(),
            spoken: Vec::new(),
            answers: Answers::default(),
        }
    }
}

impl Script {
    /// Answers an output of the call, later.
    pub fn react(&mut self, now: Time, output: &Output<'_>) {
        match output {
            Output::Recogniser(RecogniserCommand::Finish(utterance)) => self.hear(now, *utterance),
            Output::Recogniser(RecogniserCommand::Cancel(utterance)) => self.forget(|event| {
                matches!(event, SpeechEvent::Recogniser(RecogniserEvent::Final { utterance: u, .. } | RecogniserEvent::Failed { utterance: u, .. }) if u == utterance)
            }),
            Output::Llm(LlmCommand::Start(reply, request)) => {
                self.requests.push((**request).clone());
                self.think(now, *reply);
            }
            Output::Llm(LlmCommand::Cancel(reply)) => {
                self.forget(|event| matches!(event, SpeechEvent::Llm { reply: r, .. } if r == reply));
            }
            Output::Synthesiser(SynthesiserCommand::Speak { reply, segment, text }) => self.speak(now, *reply, *segment, text),
            Output::Synthesiser(SynthesiserCommand::Cancel(reply)) => {
                self.forget(|event| matches!(event, SpeechEvent::Synthesiser { reply: r, .. } if r == reply));
            }
            _ => {}
        }
    }

    /// When the next answer comes.
    pub fn next(&self) -> Option<Time> {
        self.answers.pending.iter().map(|p| p.at).min()
    }

    /// The next answer, if its time has come.
    pub fn take_due(&mut self, now: Time) -> Option<SpeechEvent> {
        let (place, _) = self
            .answers
            .pending
            .iter()
            .enumerate()
            .filter(|(_, p)| p.at <= now)
            .min_by_key(|(_, p)| (p.at, p.order))?;
        Some(self.answers.pending.remove(place).event)
    }

    fn hear(&mut self, now: Time, utterance: UtteranceId) {
        let hearing = self
            .hearings
            .pop_front()
            .unwrap_or_else(|| self.always_heard.clone());
        let at = now + self.stt_delay;
        match hearing {
            Hearing::Words(text) => {
                self.later(
                    at,
                    SpeechEvent::Recogniser(RecogniserEvent::Final {
                        utterance,
                        text,
                        confidence: Some(0.9),
                    }),
                );
            }
            Hearing::Many(results) => {
                for (after, text, is_final) in results {
                    let event = if is_final {
                        RecogniserEvent::Final {
                            utterance,
                            text,
                            confidence: Some(0.9),
                        }
                    } else {
                        RecogniserEvent::Interim { utterance, text }
                    };
                    self.later(now + after, SpeechEvent::Recogniser(event));
                }
            }
            Hearing::Fail => {
                let message = "scripted".to_owned();
                self.later(
                    at,
                    SpeechEvent::Recogniser(RecogniserEvent::Failed { utterance, message }),
                );
            }
            Hearing::Stall => {}
        }
    }

    fn think(&mut self, now: Time, reply: ReplyId) {
        let line = self
            .lines
            .pop_front()
            .unwrap_or_else(|| self.always_said.clone());
        let mut at = now + self.llm_delay;
        let mut events = Vec::new();
        match line {
            Answer::Say(text) => {
                events.extend(words(&text));
                events.push(LlmEvent::Done);
            }
            Answer::Call(call) => events.extend([LlmEvent::ToolCall(call), LlmEvent::Done]),
            Answer::SayAndCall(text, call) => {
                events.extend(words(&text));
                events.extend([LlmEvent::ToolCall(call), LlmEvent::Done]);
            }
            Answer::Fail => events.push(LlmEvent::Failed {
                message: "scripted".to_owned(),
            }),
            Answer::Stall => {}
        }
        for event in events {
            self.later(at, SpeechEvent::Llm { reply, event });
            at = at + self.llm_pace;
        }
    }

    fn speak(&mut self, now: Time, reply: ReplyId, segment: u32, text: &str) {
        self.spoken.push((reply, segment, text.to_owned()));
        let at = now + self.tts_delay;
        if self.broken_segments.contains(text) {
            let event = SynthesiserEvent::Failed {
                message: "scripted".to_owned(),
            };
            self.later(
                at,
                SpeechEvent::Synthesiser {
                    reply,
                    segment,
                    event,
                },
            );
            return;
        }
        let length = self.character * u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let samples = (length.as_micros() as u64 * u64::from(self.tts_rate) / 1_000_000) as usize;
        // A loud square wave of 500 Hz: every cut in it can be found again in a recording.
        let half = (self.tts_rate / 1000).max(1) as usize;
        let sound = (0..samples)
            .map(|n| {
                if (n / half).is_multiple_of(2) {
                    8000
                } else {
                    -8000
                }
            })
            .collect::<Vec<i16>>();
        for piece in sound.chunks(self.tts_rate as usize / 10) {
            let event = SynthesiserEvent::Audio {
                rate: self.tts_rate,
                samples: piece.to_vec(),
            };
            self.later(
                at,
                SpeechEvent::Synthesiser {
                    reply,
                    segment,
                    event,
                },
            );
        }
        self.later(
            at,
            SpeechEvent::Synthesiser {
                reply,
                segment,
                event: SynthesiserEvent::Done,
            },
        );
    }

    fn later(&mut self, at: Time, event: SpeechEvent) {
        self.answers.order += 1;
        self.answers.pending.push(Pending {
            at,
            order: self.answers.order,
            event,
        });
    }

    fn forget(&mut self, is: impl Fn(&SpeechEvent) -> bool) {
        self.answers.pending.retain(|pending| !is(&pending.event));
    }
}

fn words(text: &str) -> impl Iterator<Item = LlmEvent> + '_ {
    text.split_inclusive(' ')
        .map(|word| LlmEvent::Text(word.to_owned()))
}
