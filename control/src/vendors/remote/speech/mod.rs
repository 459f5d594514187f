//! A voice behind `/audio/speech`: one request a segment, its sound handed on as it comes. A segment that
//! stalls, breaks off or is silent is asked for again, and what was heard of it is not repeated.

mod audio;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use media::audio::resample::Resampler;
use media::speech::{ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent};
use media::time::RATE;
use reqwest::header;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, Span};

use self::audio::Sound;
use super::blame::Blame;
use super::complaint;
use super::deliver::deliver;
use super::http::{Endpoint, broken};
use super::plan::{Fault, Next, Plan, Try};
use super::segment::{Other, SpokenSegment};
use super::settings::SoundFormat;
use crate::vendors::fallback::Fallback;

/// The longest pause within a segment: what the caller has of it may be played by then.
const STALL: Duration = Duration::from_millis(1_500);

/// Segments under way at once: the reply's, and a filler's.
const MOST: usize = 8;

/// A provider's voice, for any number of calls.
pub(super) struct Speaker {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) provider: Blame,
    pub(super) model: String,
    pub(super) voice: String,
    pub(super) format: SoundFormat,
    pub(super) sample_rate: u32,
}

/// The voice of one call.
pub(super) struct RemoteVoice {
    shared: Arc<Shared>,
    runtime: Handle,
    running: Vec<(ReplyId, AbortHandle)>,
    /// The call's, for the log.
    span: Span,
}

struct Shared {
    speaker: Arc<Speaker>,
    sink: Arc<dyn SpeechSink>,
    /// Speaks on where this one fails.
    fallback: Fallback<Other>,
}

impl RemoteVoice {
    pub(super) fn new(
        speaker: Arc<Speaker>,
        fallback: Fallback<Other>,
        runtime: Handle,
        sink: Arc<dyn SpeechSink>,
    ) -> Self {
        let endpoint = Arc::clone(&speaker.endpoint);
        runtime.spawn(async move { endpoint.warm_up().await });
        Self {
            span: Span::current(),
            shared: Arc::new(Shared {
                speaker,
                sink,
                fallback,
            }),
            runtime,
            running: Vec::with_capacity(MOST),
        }
    }

    fn stop(&mut self, up_to: ReplyId) {
        self.running.retain(|(reply, task)| {
            let stays = *reply > up_to;
            if !stays {
                task.abort();
            }
            stays
        });
    }
}

impl Synthesiser for RemoteVoice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        self.running.retain(|(_, task)| !task.is_finished());
        if self.running.len() >= MOST {
            let message = "too many sentences wait for the voice".to_owned();
            self.shared.sink.send(SpeechEvent::Synthesiser {
                reply,
                segment,
                event: SynthesiserEvent::Failed { message },
            });
            return;
        }
        let (shared, text) = (Arc::clone(&self.shared), text.to_owned());
        let task = self.runtime.spawn(
            async move { shared.speak(reply, segment, &text).await }.instrument(self.span.clone()),
        );
        self.running.push((reply, task.abort_handle()));
    }

    fn cancel(&mut self, reply: ReplyId) {
        self.stop(reply);
        self.shared.fallback.tell(|other| other.cancel(reply));
    }
}

impl Drop for RemoteVoice {
    fn drop(&mut self) {
        self.stop(ReplyId(u32::MAX));
    }
}

impl Shared {
    async fn speak(&self, reply: ReplyId, segment: u32, text: &str) {
        let began = Instant::now();
        let mut plan = Plan::sound(self.fallback.is_there());
        let mut next = plan.first();
        let mut heard = SpokenSegment::new(text);
        loop {
            sleep(next.pause).await;
            heard.again();
            let mut turn = Speaking {
                shared: self,
                reply,
                segment,
                heard: &mut heard,
            };
            let fault = match turn.run(text, next).await {
                Ok(true) => {
                    turn.send(SynthesiserEvent::Done).await;
                    return;
                }
                Ok(false) => return,
                Err(fault) => fault,
            };
            let provider = &self.speaker.provider;
            provider.fault_about(&fault, [text], "a voice did not speak");
            // Sound that came before the fault took its time; only silence spends the budget.
            let spent = if heard.any() {
                Duration::ZERO
            } else {
                began.elapsed()
            };
            match plan.next(spent, &fault) {
                Next::Again(again) => next = again,
                Next::HandOver => {
                    let known = heard.micros();
                    self.fallback
                        .tell(|other| other.take_over(reply, segment, text, known));
                    return;
                }
                Next::GiveUp => {
                    let message = self.speaker.provider.told(&fault);
                    self.send(reply, segment, SynthesiserEvent::Failed { message })
                        .await;
                    return;
                }
            }
        }
    }

    async fn send(&self, reply: ReplyId, segment: u32, event: SynthesiserEvent) -> bool {
        let event = SpeechEvent::Synthesiser {
            reply,
            segment,
            event,
        };
        deliver(&*self.sink, event).await
    }
}

/// One try at a segment.
struct Speaking<'a> {
    shared: &'a Shared,
    reply: ReplyId,
    segment: u32,
    heard: &'a mut SpokenSegment,
}

impl Speaking<'_> {
    /// `false`: the call is gone.
    async fn run(&mut self, text: &str, turn: Try) -> Result<bool, Fault> {
        let Speaker {
            endpoint,
            provider,
            model,
            voice,
            format,
            sample_rate,
            ..
        } = &*self.shared.speaker;
        let format = match format {
            SoundFormat::Pcm => "pcm",
            SoundFormat::Wav => "wav",
        };
        let body = json!({
            "model": model, "voice": voice, "input": text, "response_format": format,
        });
        let began = Instant::now();
        let sent = endpoint.post("audio/speech").json(&body);
        let response = endpoint.send(provider, sent, turn.within).await?;
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|value| value.to_str().ok()).unwrap_or("");
        let mut sound = match Sound::new(kind, *sample_rate) {
            Ok(sound) => sound,
            Err(Fault::Garbage { what, .. }) => {
                let page = complaint::page(&endpoint.beginning(response).await);
                return Err(Fault::Garbage { what, page });
            }
            Err(fault) => return Err(fault),
        };
        let mut bytes = response.bytes_stream();
        let mut came = false;
        loop {
            let within = if came {
                STALL
            } else {
                turn.within.saturating_sub(began.elapsed())
            };
            let mut samples = Vec::new();
            let over = match timeout(within, bytes.next()).await {
                Err(_) => return Err(Fault::Stalled(if came { STALL } else { turn.within })),
                Ok(Some(Err(error))) => return Err(broken(error)),
                Ok(Some(Ok(part))) => {
                    sound.push(&part, &mut samples)?;
                    sound.is_over()
                }
                Ok(None) => true,
            };
            if over {
                sound.finish(&mut samples)?;
            }
            came |= !samples.is_empty();
            if came && Resampler::new(sound.rate(), RATE).is_err() {
                let rate = sound.rate();
                return Err(Fault::Wrong(format!("the voice sent sound at {rate} Hz")));
            }
            let rate = sound.rate();
            if let Some(samples) = self.heard.take(rate, samples)?
                && !self.send(SynthesiserEvent::Audio { rate, samples }).await
            {
                return Ok(false);
            }
            if over {
                self.heard.finish()?;
                return Ok(true);
            }
        }
    }

    async fn send(&self, event: SynthesiserEvent) -> bool {
        self.shared.send(self.reply, self.segment, event).await
    }
}
