//! The tokens that a call's language models used. Written by the models as they work, read when the call
//! is over. Characters spoken and audio heard are counted by the engine, which gives them to the voice
//! and the recogniser (`media::call::record::Summary`).

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one call, shared with its providers.
#[derive(Debug, Default)]
pub struct SpeechUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    estimated_tokens: AtomicU64,
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
}

impl SpeechUsage {
    /// The counts as they stand.
    pub fn read(&self) -> Used {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Used {
            prompt_tokens: of(&self.prompt_tokens),
            completion_tokens: of(&self.completion_tokens),
            estimated_tokens: of(&self.estimated_tokens),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_estimates_are_told_apart() {
        let usage = SpeechUsage::default();
        usage.add_tokens(10, 5);
        usage.estimate_tokens(9, 4);
        let used = Used {
            prompt_tokens: 13,
            completion_tokens: 6,
            estimated_tokens: 4,
        };
        assert_eq!(usage.read(), used);
    }
}
