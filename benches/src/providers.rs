//! Providers for a call that goes on by itself: a model that never answers, and a voice that never tires.

use std::sync::Arc;

use media::audio::tones::noise;
use media::speech::{
    LanguageModel, ModelRequest, ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent,
};

/// A model that says nothing.
pub struct Silent;

impl LanguageModel for Silent {
    fn start(&mut self, _: ReplyId, _: ModelRequest) {}
    fn cancel(&mut self, _: ReplyId) {}
}

/// A voice that makes so many seconds of any text, at once.
pub struct Talking {
    pub sink: Arc<dyn SpeechSink>,
    pub seconds: u64,
}

impl Synthesiser for Talking {
    fn speak(&mut self, reply: ReplyId, segment: u32, _: &str) {
        let sound = (0..self.seconds).map(|seed| SynthesiserEvent::Audio {
            rate: 16_000,
            samples: noise(seed, -20.0, 16_000),
        });
        for event in sound.chain([SynthesiserEvent::Done]) {
            self.sink.send(SpeechEvent::Synthesiser {
                reply,
                segment,
                event,
            });
        }
    }
    fn cancel(&mut self, _: ReplyId) {}
}
