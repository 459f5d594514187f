//! What a call's speech used: the counts that metering starts from. Written by the providers as they
//! work, read when the call is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::speech::{Recogniser, ReplyId, Synthesiser, UtteranceId};
use media::time::RATE;

/// The counters of one call, shared with its providers.
#[derive(Debug, Default)]
pub struct SpeechUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    estimated_tokens: AtomicU64,
    characters: AtomicU64,
    samples: AtomicU64,
}

/// What was used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens that language models outside this process read. The built-in models use none.
    pub prompt_tokens: u64,
    /// Tokens that they wrote.
    pub completion_tokens: u64,
    /// How many of both are estimates, for answers without a count (servers that send none, replies
    /// that were interrupted).
    pub estimated_tokens: u64,
    /// Characters given to the voice.
    pub tts_characters: u64,
    /// Caller audio given to the recogniser, ms.
    pub transcription_ms: u64,
}

impl SpeechUsage {
    /// The counts as they stand.
    pub fn read(&self) -> Used {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Used {
            prompt_tokens: of(&self.prompt_tokens),
            completion_tokens: of(&self.completion_tokens),
            estimated_tokens: of(&self.estimated_tokens),
            tts_characters: of(&self.characters),
            transcription_ms: of(&self.samples) * 1000 / u64::from(RATE),
        }
    }

    /// Tokens as a provider counted them.
    pub fn add_tokens(&self, prompt: u64, completion: u64) {
        self.prompt_tokens.fetch_add(prompt, Ordering::Relaxed);
        self.completion_tokens
            .fetch_add(completion, Ordering::Relaxed);
    }

    /// Tokens of an answer that came without a count: four characters make one, on average of English
    /// and French text.
    pub fn estimate_tokens(&self, prompt_chars: usize, completion_chars: usize) {
        let tokens = |chars: usize| chars.div_ceil(4) as u64;
        let (prompt, completion) = (tokens(prompt_chars), tokens(completion_chars));
        self.add_tokens(prompt, completion);
        self.estimated_tokens
            .fetch_add(prompt + completion, Ordering::Relaxed);
    }

    fn add_characters(&self, text: &str) {
        let count = text.chars().count() as u64;
        self.characters.fetch_add(count, Ordering::Relaxed);
    }

    fn add_samples(&self, samples: usize) {
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
    }
}

/// A recogniser whose audio is counted.
pub(super) struct CountedEars {
    pub(super) inner: Box<dyn Recogniser>,
    pub(super) usage: Arc<SpeechUsage>,
}

impl Recogniser for CountedEars {
    fn begin(&mut self, utterance: UtteranceId) {
        self.inner.begin(utterance);
    }

    fn audio(&mut self, utterance: UtteranceId, pcm: &[i16]) {
        self.usage.add_samples(pcm.len());
        self.inner.audio(utterance, pcm);
    }

    fn finish(&mut self, utterance: UtteranceId) {
        self.inner.finish(utterance);
    }

    fn cancel(&mut self, utterance: UtteranceId) {
        self.inner.cancel(utterance);
    }

    fn punctuates(&self) -> bool {
        self.inner.punctuates()
    }
}

/// A voice whose characters are counted.
pub(super) struct CountedVoice {
    pub(super) inner: Box<dyn Synthesiser>,
    pub(super) usage: Arc<SpeechUsage>,
}

impl Synthesiser for CountedVoice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        self.usage.add_characters(text);
        self.inner.speak(reply, segment, text);
    }

    fn cancel(&mut self, reply: ReplyId) {
        self.inner.cancel(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_estimates_are_told_apart() {
        let usage = SpeechUsage::default();
        usage.add_tokens(10, 5);
        usage.estimate_tokens(9, 4);
        usage.add_characters("où ?");
        usage.add_samples(24_000);
        let used = Used {
            prompt_tokens: 13,
            completion_tokens: 6,
            estimated_tokens: 4,
            tts_characters: 4,
            transcription_ms: 1500,
        };
        assert_eq!(usage.read(), used);
    }
}
