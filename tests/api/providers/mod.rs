//! Speech providers outside the process, asked by their adapters as a call asks them, and played by
//! servers with all their habits and faults.

mod ears;
mod models;
mod voices;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::config::Config;
use control::metrics::text::Text;
use control::vendors::usage::{SpeechUsage, Used};
use control::vendors::{CallSpeech, Speech, SpeechSettings};
use control::voices::{Engine, Voice};
use media::config::AgentConfig;
use media::speech::{
    LlmEvent, Message, ModelRequest, Providers, RecogniserEvent, ReplyId, SpeechEvent, SpeechSink,
    SynthesiserEvent, ToolCall, UtteranceId,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// No answer on loopback takes longer than the adapters' own deadlines.
const PATIENCE: Duration = Duration::from_secs(12);

/// A call's providers, and what they say.
pub(crate) struct Call {
    providers: Option<Providers>,
    events: mpsc::UnboundedReceiver<(Instant, SpeechEvent)>,
    usage: Arc<SpeechUsage>,
    speech: Arc<Speech>,
    _folder: tempfile::TempDir,
}

struct EventSink(mpsc::UnboundedSender<(Instant, SpeechEvent)>);

impl SpeechSink for EventSink {
    fn send(&self, event: SpeechEvent) -> bool {
        self.0.send((Instant::now(), event)).is_ok()
    }
}

impl Call {
    /// A call under these settings (TOML). `voice`: what the provider `x` calls it.
    pub(crate) fn new(settings: &str, model: &str, voice: Option<&'static str>) -> Self {
        let _ = rustls_provider();
        let config = Config::load(Some(settings), &BTreeMap::new()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let speech = SpeechSettings {
            recogniser: config.speech.recogniser,
            recogniser_fallback: config.speech.recogniser_fallback,
            remote: config.speech.remote,
            recogniser_threads: 1,
            voice_threads: 1,
            request_threads: 1,
            ..SpeechSettings::default()
        };
        let speech = Speech::start(speech, folder.path()).unwrap();
        let tone = control::voices::find("scripted-tone").unwrap();
        let engine = match voice {
            Some(voice) => Engine::Provider {
                provider: "x",
                voice,
            },
            None => tone.engine,
        };
        let voice = Voice { engine, ..*tone };
        let made = speech.providers(&voice, model, &AgentConfig::default());
        let CallSpeech { providers, usage } = made.unwrap_or_else(|why| panic!("{why}"));
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            providers: Some(providers(Arc::new(EventSink(sender)))),
            events,
            usage,
            speech,
            _folder: folder,
        }
    }

    pub(crate) fn used(&self) -> Used {
        self.usage.read()
    }

    /// What is counted of the providers, as it is scraped.
    pub(crate) fn metrics(&self) -> String {
        let mut text = Text::default();
        self.speech.metrics().write(&mut text);
        text.finish()
    }

    fn providers(&mut self) -> &mut Providers {
        self.providers.as_mut().unwrap()
    }

    /// The next thing that a provider says.
    pub(crate) async fn next(&mut self) -> (Instant, SpeechEvent) {
        let event = timeout(PATIENCE, self.events.recv()).await;
        event.expect("in time").expect("the providers live")
    }

    /// Whether nothing is said within `time`.
    pub(crate) async fn is_silent(&mut self, time: Duration) -> bool {
        timeout(time, self.events.recv()).await.is_err()
    }

    /// Asks the model; what it says until it is done: the text, the tool calls, and how it ended.
    pub(crate) async fn answer(&mut self, reply: u32) -> Answered {
        self.answer_to(reply, request()).await
    }

    pub(crate) async fn answer_to(&mut self, reply: u32, request: ModelRequest) -> Answered {
        self.providers().llm.start(ReplyId(reply), request);
        self.answer_of(reply).await
    }

    pub(crate) async fn answer_of(&mut self, reply: u32) -> Answered {
        let began = Instant::now();
        let mut answered = Answered::default();
        loop {
            let (at, event) = self.next().await;
            let SpeechEvent::Llm { reply: of, event } = event else {
                panic!("{event:?}")
            };
            assert_eq!(of, ReplyId(reply));
            match event {
                LlmEvent::Text(text) => answered.text.push_str(&text),
                LlmEvent::ToolCall(call) => answered.calls.push(call),
                LlmEvent::Done => return answered,
                LlmEvent::Failed { message } => {
                    answered.failed = Some(message);
                    answered.after = at - began;
                    return answered;
                }
            }
        }
    }

    /// Has a segment spoken: its milliseconds of sound by rate, in order, and how it ended.
    pub(crate) async fn speak(&mut self, reply: u32, text: &str) -> Spoken {
        self.providers().tts.speak(ReplyId(reply), 0, text);
        let began = Instant::now();
        let mut spoken = Spoken::default();
        let mut last = began;
        loop {
            let (at, event) = self.next().await;
            let SpeechEvent::Synthesiser {
                reply: of,
                segment: 0,
                event,
            } = event
            else {
                panic!("{event:?}")
            };
            assert_eq!(of, ReplyId(reply));
            spoken.longest_wait = spoken.longest_wait.max(at - last);
            last = at;
            match event {
                SynthesiserEvent::Audio { rate, samples } => {
                    spoken.ms += samples.len() as f64 * 1000.0 / f64::from(rate);
                    spoken.rates.push(rate);
                }
                SynthesiserEvent::Done => break,
                SynthesiserEvent::Failed { message } => {
                    spoken.failed = Some(message);
                    break;
                }
            }
        }
        spoken.rates.dedup();
        spoken
    }

    /// Says a voice of `ms` to the recogniser.
    pub(crate) fn say(&mut self, utterance: u32, pcm: &[i16]) {
        let id = UtteranceId(utterance);
        let stt = &mut self.providers().stt;
        stt.begin(id);
        for frame in pcm.chunks(320) {
            stt.audio(id, frame);
        }
        stt.finish(id);
    }

    /// The recogniser's last word on the utterance.
    pub(crate) async fn heard(&mut self, utterance: u32) -> Result<String, String> {
        loop {
            match self.next().await.1 {
                SpeechEvent::Recogniser(RecogniserEvent::Interim { .. }) => {}
                SpeechEvent::Recogniser(RecogniserEvent::Final {
                    utterance: of,
                    text,
                    ..
                }) if of == UtteranceId(utterance) => return Ok(text),
                SpeechEvent::Recogniser(RecogniserEvent::Failed {
                    utterance: of,
                    message,
                }) if of == UtteranceId(utterance) => return Err(message),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn cancel_reply(&mut self, reply: u32) {
        self.providers().llm.cancel(ReplyId(reply));
        self.providers().tts.cancel(ReplyId(reply));
    }

    pub(crate) fn cancel_utterance(&mut self, utterance: u32) {
        self.providers().stt.cancel(UtteranceId(utterance));
    }

    pub(crate) fn begin_answer(&mut self, reply: u32) {
        self.providers().llm.start(ReplyId(reply), request());
    }

    /// The call is over.
    pub(crate) fn hang_up(&mut self) {
        self.providers = None;
    }
}

/// What a model said.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) failed: Option<String>,
    /// How long it took to fail.
    pub(crate) after: Duration,
}

/// What a voice said.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    pub(crate) ms: f64,
    pub(crate) rates: Vec<u32>,
    pub(crate) failed: Option<String>,
    pub(crate) longest_wait: Duration,
}

pub(crate) fn request() -> ModelRequest {
    ModelRequest {
        left_out: false,
        messages: vec![
            Message::System {
                content: "You are kind.".into(),
            },
            Message::User {
                content: "Good day?".into(),
            },
        ],
        tools: Vec::new(),
        temperature: Some(0.3),
        max_tokens: 200,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
    }
}

/// A provider `x` of the openai kind at `url`, with more lines.
pub(crate) fn openai(url: &str, more: &str) -> String {
    format!(
        "[speech]\nrecogniser = \"scripted\"\n[providers.x]\nkind = \"openai\"\nbase_url = \"{url}\"\napi_key = \"sk-canary\"\n{more}"
    )
}

fn rustls_provider() -> Result<(), Arc<rustls::crypto::CryptoProvider>> {
    // Another test of this process may have installed it.
    rustls::crypto::ring::default_provider().install_default()
}
