//! The faces of the speech providers: recogniser, language model, voice.
//!
//! Each provider lives outside the engine (an HTTP service, a worker thread, a script). The engine
//! calls these traits from its media thread, so no method may block or allocate much; answers come
//! back later as [`SpeechEvent`]s through the [`SpeechSink`] that the provider was made with. Every
//! answer names the utterance or the reply it belongs to, so late words of a cancelled reply are
//! recognised and dropped.

pub mod script;
pub mod words;

use serde::{Deserialize, Serialize};

/// One stretch of caller audio given to the recogniser. A caller turn has one or more.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UtteranceId(pub u32);

/// One reply of the agent. Increases by one with each reply, so a smaller id is stale.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ReplyId(pub u32);

/// Where providers send their answers. Cloned into worker threads and tasks.
pub trait SpeechSink: Send + Sync {
    /// Hands the event to the call. `false`: the call is gone, or its queue is full: stop working
    /// for it.
    fn send(&self, event: SpeechEvent) -> bool;

    /// As [`send`](Self::send), but never waits: for tasks that share their thread with others.
    fn offer(&self, event: SpeechEvent) -> Result<(), NotTaken> {
        if self.send(event) {
            Ok(())
        } else {
            Err(NotTaken::Gone)
        }
    }
}

/// Why a [`SpeechSink`] did not take an event.
#[derive(Clone, Debug, PartialEq)]
pub enum NotTaken {
    /// The call's queue is full; the event comes back, to be offered again a moment later.
    Full(Box<SpeechEvent>),
    /// The call is gone.
    Gone,
}

/// All that providers can say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SpeechEvent {
    Recogniser(RecogniserEvent),
    Llm {
        reply: ReplyId,
        event: LlmEvent,
    },
    Synthesiser {
        reply: ReplyId,
        segment: u32,
        event: SynthesiserEvent,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RecogniserEvent {
    /// The words so far; each interim replaces the one before.
    Interim {
        utterance: UtteranceId,
        text: String,
    },
    /// The last word on this utterance; empty when nothing was recognised.
    Final {
        utterance: UtteranceId,
        text: String,
        confidence: Option<f32>,
    },
    /// No text will come for this utterance.
    Failed {
        utterance: UtteranceId,
        message: String,
    },
}

/// In a model's text: what it said before, in this step, turned out not to be meant for the caller. What of it has not
/// gone to the voice is not said.
pub const TAKEN_BACK: char = '\u{18}';

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LlmEvent {
    /// More text of the reply; it may hold [`TAKEN_BACK`].
    Text(String),
    /// The model wants a tool run; the reply goes on after its result, in a new request.
    ToolCall(ToolCall),
    /// The reply (or this step of it) is complete.
    Done,
    /// No (more) text will come.
    Failed { message: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SynthesiserEvent {
    /// PCM16 mono at `rate` Hz, any length; in order.
    Audio { rate: u32, samples: Vec<i16> },
    /// The segment is complete.
    Done,
    /// No (more) audio will come for the segment.
    Failed { message: String },
}

/// A model's wish to run a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// What a language model is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    pub messages: Vec<Message>,
    /// What was said before these messages is left out: there was no room for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    pub tools: Vec<crate::config::ToolSpec>,
    pub temperature: Option<f64>,
    pub max_tokens: u32,
    pub frequency_penalty: f64,
    pub presence_penalty: f64,
}

/// One line of the dialogue as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// The agent's prompt, and background that came during the call.
    System {
        content: String,
    },
    /// How to speak and what to keep away from: for models that follow instructions, who take it as
    /// another system message. Models that answer with the prompt's own sentences leave it out.
    Instructions {
        content: String,
    },
    User {
        content: String,
    },
    Assistant {
        content: String,
        tool_calls: Vec<ToolCall>,
    },
    Tool {
        tool_call_id: String,
        content: String,
        is_error: bool,
    },
}

/// Speech to text, one per call. Audio comes as 16 kHz PCM16 between `begin` and `finish`.
pub trait Recogniser: Send {
    /// The caller's voice began. Pre-roll follows as the first audio.
    fn begin(&mut self, utterance: UtteranceId);
    fn audio(&mut self, utterance: UtteranceId, pcm: &[i16]);
    /// The voice stopped: answer with [`RecogniserEvent::Final`] (or `Failed`) as soon as possible.
    fn finish(&mut self, utterance: UtteranceId);
    /// Nobody wants this utterance any more; no answer is expected.
    fn cancel(&mut self, utterance: UtteranceId);
    /// Whether its texts carry sentence marks (`. ? !`), which endpointing then trusts.
    fn punctuates(&self) -> bool {
        true
    }
}

/// A language model, one per call.
pub trait LanguageModel: Send {
    /// Start a reply. Text comes as [`LlmEvent::Text`], then `Done` or `Failed`.
    fn start(&mut self, reply: ReplyId, request: ModelRequest);
    /// Drop what is under way for this reply.
    fn cancel(&mut self, reply: ReplyId);
}

/// Text to speech, one per call.
pub trait Synthesiser: Send {
    /// Speak one segment (a clause or sentence). The engine asks for the next one only when little
    /// of the one before is left to play.
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str);
    /// Drop what is under way for this reply.
    fn cancel(&mut self, reply: ReplyId);
}

/// The three providers of one call.
pub struct Providers {
    pub stt: Box<dyn Recogniser>,
    pub llm: Box<dyn LanguageModel>,
    pub tts: Box<dyn Synthesiser>,
}
