//! Counts what a call, or a request for speech, asks of a provider, and how soon the answer begins.
//!
//! It stands between the engine and the provider: it sees the question go out and the answers come in
//! through the sink, whoever gives them. On a media thread that is a short lock an utterance, a reply or
//! a segment, never one a frame.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use media::speech::{
    LanguageModel, LlmEvent, ModelRequest, NotTaken, Recogniser, RecogniserEvent, ReplyId,
    SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent, UtteranceId,
};

use crate::metrics::providers::{Outcome, ProviderMetrics, Stage};

/// Questions of one call to one provider that are open at a time: an utterance or two, a reply, a
/// segment and a filler. Of more the oldest is given up as unanswered.
const OPEN: usize = 8;

/// A call that takes back an utterance this long after its end has waited in vain: the hastiest turn waits for words for
/// 4 s from its voice's end on.
pub(super) const IN_VAIN: Duration = Duration::from_millis(3_500);

/// One provider of one call.
pub(super) struct Meter {
    metrics: Arc<ProviderMetrics>,
    stage: Stage,
    /// As in the settings, or that of a built-in one.
    provider: String,
    open: Mutex<Vec<Question>>,
}

/// What was asked and is not over.
struct Question {
    id: (u32, u32),
    asked: Instant,
    begun: bool,
}

/// What an event means for its question.
#[derive(Clone, Copy)]
enum Sign {
    Begun,
    Over,
    BegunAndOver,
    Failed,
}

impl Meter {
    pub(super) fn new(metrics: &Arc<ProviderMetrics>, stage: Stage, provider: &str) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            stage,
            provider: provider.to_owned(),
            open: Mutex::new(Vec::with_capacity(OPEN)),
        }
    }

    /// A provider that `make` makes, with its questions and answers counted here. `failed` counts the one
    /// that hands its questions over to it, each of which that one has failed.
    pub(super) fn watch<P: Counted + ?Sized>(
        self: Arc<Self>,
        failed: Option<Arc<Self>>,
        sink: Arc<dyn SpeechSink>,
        make: impl FnOnce(Arc<dyn SpeechSink>) -> Box<P>,
    ) -> Box<P> {
        let inner = make(Arc::new(MeteredSink {
            meter: Arc::clone(&self),
            inner: sink,
        }));
        P::counted(Metered {
            meter: self,
            failed,
            inner,
        })
    }

    fn asked(&self, id: (u32, u32)) {
        let mut open = self.open();
        if open.len() == OPEN {
            open.remove(0);
            self.count(Outcome::Unanswered);
        }
        open.push(Question {
            id,
            asked: Instant::now(),
            begun: false,
        });
    }

    fn cancelled(&self, id: impl Fn(u32) -> bool) {
        self.open().retain(|question| {
            let stays = !id(question.id.0);
            if !stays {
                // Nobody takes an utterance back for so long but who has waited in vain for its words.
                let in_vain = self.stage == Stage::Stt && question.asked.elapsed() >= IN_VAIN;
                self.count(match in_vain {
                    true => Outcome::Failed,
                    false => Outcome::Cancelled,
                });
            }
            stays
        });
    }

    fn told(&self, id: (u32, u32), sign: Sign) {
        let mut open = self.open();
        let Some(at) = open.iter().position(|question| question.id == id) else {
            return;
        };
        let question = &mut open[at];
        if matches!(sign, Sign::Begun | Sign::BegunAndOver) && !question.begun {
            question.begun = true;
            self.metrics
                .first(self.stage, &self.provider, question.asked.elapsed());
        }
        let outcome = match sign {
            Sign::Begun => return,
            Sign::Over | Sign::BegunAndOver => Outcome::Answered,
            Sign::Failed => Outcome::Failed,
        };
        open.remove(at);
        self.count(outcome);
    }

    fn count(&self, outcome: Outcome) {
        self.metrics.request(self.stage, &self.provider, outcome);
    }

    fn open(&self) -> MutexGuard<'_, Vec<Question>> {
        // Whole after any panic: each use is one operation.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        for _ in 0..self.open().len() {
            self.count(Outcome::Unanswered);
        }
    }
}

/// A kind of provider whose questions can be counted: recogniser, language model, synthesiser.
pub(super) trait Counted {
    const STAGE: Stage;

    fn counted(metered: Metered<Self>) -> Box<Self>;
}

impl Counted for dyn Recogniser {
    const STAGE: Stage = Stage::Stt;

    fn counted(metered: Metered<Self>) -> Box<Self> {
        Box::new(metered)
    }
}

impl Counted for dyn LanguageModel {
    const STAGE: Stage = Stage::Llm;

    fn counted(metered: Metered<Self>) -> Box<Self> {
        Box::new(metered)
    }
}

impl Counted for dyn Synthesiser {
    const STAGE: Stage = Stage::Tts;

    fn counted(metered: Metered<Self>) -> Box<Self> {
        Box::new(metered)
    }
}

/// A provider whose questions are counted.
pub(super) struct Metered<P: ?Sized> {
    meter: Arc<Meter>,
    /// Counts the provider that this one takes over from.
    failed: Option<Arc<Meter>>,
    inner: Box<P>,
}

impl<P: ?Sized> Metered<P> {
    /// Notes that a question comes here because the provider before has failed it.
    fn taken_over(&self, id: (u32, u32)) {
        if let Some(failed) = &self.failed {
            failed.told(id, Sign::Failed);
        }
    }
}

impl Recogniser for Metered<dyn Recogniser> {
    fn begin(&mut self, utterance: UtteranceId) {
        self.taken_over((utterance.0, 0));
        self.inner.begin(utterance);
    }

    fn audio(&mut self, utterance: UtteranceId, pcm: &[i16]) {
        self.inner.audio(utterance, pcm);
    }

    fn finish(&mut self, utterance: UtteranceId) {
        self.meter.asked((utterance.0, 0));
        self.inner.finish(utterance);
    }

    fn cancel(&mut self, utterance: UtteranceId) {
        self.meter.cancelled(|id| id == utterance.0);
        self.inner.cancel(utterance);
    }

    fn punctuates(&self) -> bool {
        self.inner.punctuates()
    }
}

impl LanguageModel for Metered<dyn LanguageModel> {
    fn start(&mut self, reply: ReplyId, request: ModelRequest) {
        self.taken_over((reply.0, 0));
        self.meter.asked((reply.0, 0));
        self.inner.start(reply, request);
    }

    fn cancel(&mut self, reply: ReplyId) {
        self.meter.cancelled(|id| id == reply.0);
        self.inner.cancel(reply);
    }
}

impl Synthesiser for Metered<dyn Synthesiser> {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        self.taken_over((reply.0, segment));
        self.meter.asked((reply.0, segment));
        self.inner.speak(reply, segment, text);
    }

    fn cancel(&mut self, reply: ReplyId) {
        self.meter.cancelled(|id| id == reply.0);
        self.inner.cancel(reply);
    }
}

/// A sink that looks at what goes through it.
struct MeteredSink {
    meter: Arc<Meter>,
    inner: Arc<dyn SpeechSink>,
}

impl SpeechSink for MeteredSink {
    fn send(&self, event: SpeechEvent) -> bool {
        let sign = sign(&event);
        let taken = self.inner.send(event);
        self.note(sign, taken);
        taken
    }

    fn offer(&self, event: SpeechEvent) -> Result<(), NotTaken> {
        let sign = sign(&event);
        let taken = self.inner.offer(event);
        self.note(sign, taken.is_ok());
        taken
    }
}

impl MeteredSink {
    fn note(&self, sign: Option<((u32, u32), Sign)>, taken: bool) {
        if let Some((id, sign)) = sign.filter(|_| taken) {
            self.meter.told(id, sign);
        }
    }
}

fn sign(event: &SpeechEvent) -> Option<((u32, u32), Sign)> {
    Some(match event {
        SpeechEvent::Recogniser(RecogniserEvent::Interim { .. }) => return None,
        SpeechEvent::Recogniser(RecogniserEvent::Final { utterance, .. }) => {
            ((utterance.0, 0), Sign::BegunAndOver)
        }
        SpeechEvent::Recogniser(RecogniserEvent::Failed { utterance, .. }) => {
            ((utterance.0, 0), Sign::Failed)
        }
        SpeechEvent::Llm { reply, event } => {
            let sign = match event {
                LlmEvent::Text(_) | LlmEvent::ToolCall(_) => Sign::Begun,
                LlmEvent::Done => Sign::Over,
                LlmEvent::Failed { .. } => Sign::Failed,
            };
            ((reply.0, 0), sign)
        }
        SpeechEvent::Synthesiser {
            reply,
            segment,
            event,
        } => {
            let sign = match event {
                SynthesiserEvent::Audio { .. } => Sign::Begun,
                SynthesiserEvent::Done => Sign::Over,
                SynthesiserEvent::Failed { .. } => Sign::Failed,
            };
            ((reply.0, *segment), sign)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::text::Text;

    /// Takes everything; a model that says nothing by itself.
    struct Quiet;

    impl SpeechSink for Quiet {
        fn send(&self, _: SpeechEvent) -> bool {
            true
        }
    }

    impl LanguageModel for Quiet {
        fn start(&mut self, _: ReplyId, _: ModelRequest) {}
        fn cancel(&mut self, _: ReplyId) {}
    }

    #[test]
    fn every_question_ends_in_one_way_and_the_first_of_an_answer_is_timed_once() {
        let metrics = Arc::new(ProviderMetrics::default());
        let meter = Arc::new(Meter::new(&metrics, Stage::Llm, "cloud"));
        let mut answers: Option<Arc<dyn SpeechSink>> = None;
        let make = |sink| -> Box<dyn LanguageModel> {
            answers = Some(sink);
            Box::new(Quiet)
        };
        let mut model = Arc::clone(&meter).watch(None, Arc::new(Quiet), make);
        let say = |reply, event| {
            let reply = ReplyId(reply);
            answers
                .as_ref()
                .is_some_and(|sink| sink.send(SpeechEvent::Llm { reply, event }))
        };
        let request = || ModelRequest {
            left_out: false,
            messages: Vec::new(),
            tools: Vec::new(),
            temperature: None,
            max_tokens: 1,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
        };
        for reply in 1..=4 {
            model.start(ReplyId(reply), request());
        }
        assert!(say(1, LlmEvent::Text("a".into())) && say(1, LlmEvent::Text("b".into())));
        assert!(say(1, LlmEvent::Done) && say(1, LlmEvent::Done));
        let message = "no".to_owned();
        assert!(say(2, LlmEvent::Failed { message }));
        model.cancel(ReplyId(3));
        assert!(say(3, LlmEvent::Done), "its late words are nobody's");
        drop((model, answers, meter));
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for outcome in ["answered", "failed", "cancelled", "unanswered"] {
            let line = format!(
                "sidetone_provider_requests_total{{stage=\"llm\",provider=\"cloud\",outcome=\"{outcome}\"}} 1\n"
            );
            assert!(text.contains(&line), "{outcome} in {text}");
        }
        assert!(
            text.contains(
                "sidetone_provider_first_answer_seconds_count{stage=\"llm\",provider=\"cloud\"} 1\n"
            ),
            "{text}"
        );
    }
}
