//! The speech of a call that only takes a message: a voice that announces it, and nobody who listens or
//! answers.

use std::sync::Arc;

use media::speech::{
    LanguageModel, ModelRequest, Providers, Recogniser, ReplyId, SpeechEvent, SpeechSink,
    Synthesiser, SynthesiserEvent, UtteranceId,
};

use super::Make;

/// The providers; without a voice the announcement fails, and only the tone after it is heard.
pub(super) fn providers(
    voice: Option<Make<dyn Synthesiser>>,
    sink: &Arc<dyn SpeechSink>,
) -> Providers {
    let tts = match voice {
        Some(make) => make(Arc::clone(sink)),
        None => Box::new(Mute(Arc::clone(sink))),
    };
    Providers {
        stt: Box::new(Deaf),
        llm: Box::new(Wordless),
        tts,
    }
}

/// Hears nothing: a call that takes a message gives it nothing.
struct Deaf;

impl Recogniser for Deaf {
    fn begin(&mut self, _utterance: UtteranceId) {}

    fn audio(&mut self, _utterance: UtteranceId, _pcm: &[i16]) {}

    fn finish(&mut self, _utterance: UtteranceId) {}

    fn cancel(&mut self, _utterance: UtteranceId) {}
}

/// Is asked nothing.
struct Wordless;

impl LanguageModel for Wordless {
    fn start(&mut self, _reply: ReplyId, _request: ModelRequest) {}

    fn cancel(&mut self, _reply: ReplyId) {}
}

/// Says at once that it cannot speak.
struct Mute(Arc<dyn SpeechSink>);

impl Synthesiser for Mute {
    fn speak(&mut self, reply: ReplyId, segment: u32, _text: &str) {
        let message = "no voice is installed that could announce the message".to_owned();
        self.0.send(SpeechEvent::Synthesiser {
            reply,
            segment,
            event: SynthesiserEvent::Failed { message },
        });
    }

    fn cancel(&mut self, _reply: ReplyId) {}
}
