//! Who serves one part of a call's speech, and who takes over: one rule for recogniser, model and voice.
//!
//! The first provider is asked everything. One outside this process may fail: it then hands that one
//! question (an utterance, a reply, a segment) to the second, and gets the next question itself again.
//! Answers of both reach the call through the first's sink. A question that is handed over counts as
//! failed for the first and as asked for the second. What is built in has nobody behind it.

use std::sync::{Arc, Mutex};

use media::frame::FRAME;
use media::speech::{Recogniser, SpeechSink, UtteranceId};

use super::Make;
use super::meter::{Counted, Meter};
use super::queue::lock;
use crate::metrics::providers::ProviderMetrics;

/// Makes a provider of one call, given how the one that takes over is made, and where the answers go.
pub(super) type MakeBacked<P> =
    Box<dyn FnOnce(Option<Make<P>>, Arc<dyn SpeechSink>) -> Box<P> + Send>;

/// A provider that can serve a part of a call's speech.
pub(super) struct Candidate<P: ?Sized> {
    /// As it is counted: the name in the settings, or that of a built-in provider.
    name: String,
    maker: Maker<P>,
}

enum Maker<P: ?Sized> {
    BuiltIn(Make<P>),
    Remote(MakeBacked<P>),
}

impl<P: Counted + ?Sized + 'static> Candidate<P> {
    pub(super) fn built_in(name: &str, make: Make<P>) -> Self {
        let (name, maker) = (name.to_owned(), Maker::BuiltIn(make));
        Self { name, maker }
    }

    pub(super) fn remote(name: &str, make: MakeBacked<P>) -> Self {
        let (name, maker) = (name.to_owned(), Maker::Remote(make));
        Self { name, maker }
    }

    /// Makes this provider, with the one from `second` behind it. A built-in provider needs none, and
    /// `second` is not called.
    pub(super) fn backed<E>(
        self,
        metrics: &Arc<ProviderMetrics>,
        second: impl FnOnce() -> Result<Option<Self>, E>,
    ) -> Result<Make<P>, E> {
        let second = match &self.maker {
            Maker::BuiltIn(_) => None,
            Maker::Remote(_) => second()?,
        };
        let first = Arc::new(Meter::new(metrics, P::STAGE, &self.name));
        let second = second.map(|other| {
            let failed = Arc::clone(&first);
            let meter = Arc::new(Meter::new(metrics, P::STAGE, &other.name));
            let make: Make<P> = Box::new(move |sink| {
                meter.watch(Some(failed), sink, |sink| other.maker.make(None, sink))
            });
            make
        });
        Ok(Box::new(move |sink| {
            first.watch(None, sink, |sink| self.maker.make(second, sink))
        }))
    }
}

impl<P: ?Sized> Maker<P> {
    fn make(self, second: Option<Make<P>>, sink: Arc<dyn SpeechSink>) -> Box<P> {
        match self {
            Self::BuiltIn(make) => make(sink),
            Self::Remote(make) => make(second, sink),
        }
    }
}

/// The provider that takes over, as the one before it holds it. Locked while one question is handed over.
pub(super) struct Fallback<T>(Option<Mutex<T>>);

impl<T> Fallback<T> {
    pub(super) fn new(other: Option<T>) -> Self {
        Self(other.map(Mutex::new))
    }

    pub(super) const fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Tells it something, where it is there.
    pub(super) fn tell(&self, what: impl FnOnce(&mut T)) {
        if let Some(other) = &self.0 {
            what(&mut lock(other));
        }
    }
}

impl<P: ?Sized> Fallback<Box<P>> {
    pub(super) fn made(make: Option<Make<P>>, sink: &Arc<dyn SpeechSink>) -> Self {
        Self::new(make.map(|make| make(Arc::clone(sink))))
    }
}

impl Fallback<Box<dyn Recogniser>> {
    /// Has it listen to a whole utterance.
    pub(super) fn hear(&self, utterance: UtteranceId, samples: &[i16]) {
        self.tell(|other| {
            other.begin(utterance);
            for part in samples.chunks(FRAME) {
                other.audio(utterance, part);
            }
            other.finish(utterance);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use media::speech::{LanguageModel, LlmEvent, ModelRequest, ReplyId, SpeechEvent, SpeechSink};

    use super::*;
    use crate::metrics::text::Text;

    /// Answers every question at once, or has the one behind it do so.
    enum Model {
        Well(Arc<dyn SpeechSink>),
        Failing(Fallback<Box<dyn LanguageModel>>),
    }

    impl LanguageModel for Model {
        fn start(&mut self, reply: ReplyId, request: ModelRequest) {
            match self {
                Self::Well(sink) => {
                    let event = LlmEvent::Done;
                    assert!(sink.send(SpeechEvent::Llm { reply, event }));
                }
                Self::Failing(other) => other.tell(|other| other.start(reply, request)),
            }
        }

        fn cancel(&mut self, _: ReplyId) {}
    }

    /// Keeps what comes.
    #[derive(Default)]
    struct Kept(Mutex<Vec<SpeechEvent>>);

    impl SpeechSink for Kept {
        fn send(&self, event: SpeechEvent) -> bool {
            lock(&self.0).push(event);
            true
        }
    }

    fn well(name: &str) -> Candidate<dyn LanguageModel> {
        Candidate::built_in(name, Box::new(|sink| Box::new(Model::Well(sink))))
    }

    fn failing(name: &str) -> Candidate<dyn LanguageModel> {
        let make = |second, sink: Arc<dyn SpeechSink>| -> Box<dyn LanguageModel> {
            Box::new(Model::Failing(Fallback::made(second, &sink)))
        };
        Candidate::remote(name, Box::new(make))
    }

    /// Asks one question. How many answers came, and what was counted.
    fn ask(
        first: Candidate<dyn LanguageModel>,
        second: impl FnOnce() -> Result<Option<Candidate<dyn LanguageModel>>, Infallible>,
    ) -> (usize, String) {
        let (metrics, kept) = (
            Arc::new(ProviderMetrics::default()),
            Arc::new(Kept::default()),
        );
        let make = first.backed(&metrics, second).unwrap();
        let mut model = make(Arc::clone(&kept) as Arc<dyn SpeechSink>);
        let request = ModelRequest {
            left_out: false,
            messages: Vec::new(),
            tools: Vec::new(),
            temperature: None,
            max_tokens: 1,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
        };
        model.start(ReplyId(1), request);
        drop(model);
        let mut text = Text::default();
        metrics.write(&mut text);
        let counted = text.finish();
        let counted = counted
            .lines()
            .filter(|line| line.starts_with("sidetone_provider_requests_total{"));
        (lock(&kept.0).len(), counted.collect::<Vec<_>>().join("\n"))
    }

    fn line(provider: &str, outcome: &str) -> String {
        format!(
            "sidetone_provider_requests_total{{stage=\"llm\",provider=\"{provider}\",outcome=\"{outcome}\"}} 1"
        )
    }

    #[test]
    fn a_question_that_is_handed_over_is_failed_by_the_first_and_answered_by_the_second() {
        let (answers, counted) = ask(failing("cloud"), || Ok(Some(well("faq"))));
        assert_eq!(answers, 1, "through the first's sink, once");
        let lines: Vec<&str> = counted.lines().collect();
        assert_eq!(lines.len(), 2, "{counted}");
        for expected in [line("cloud", "failed"), line("faq", "answered")] {
            assert!(
                lines.contains(&expected.as_str()),
                "{expected} in {counted}"
            );
        }
    }

    #[test]
    fn nobody_is_behind_what_is_built_in_or_behind_the_last() {
        let (answers, counted) = ask(well("faq"), || unreachable!("it was asked for"));
        assert_eq!((answers, counted), (1, line("faq", "answered")));
        let (answers, counted) = ask(failing("cloud"), || Ok(None));
        assert_eq!((answers, counted), (0, line("cloud", "unanswered")));
        let (answers, _) = ask(failing("cloud"), || Ok(Some(failing("other"))));
        assert_eq!(answers, 0);
    }
}
