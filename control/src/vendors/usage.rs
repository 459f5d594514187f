//! The tokens that a call's language models used, what its providers call their answers, and what they did wrong.
//! Written by the providers as they work, read when the call is over. Characters spoken and audio heard are counted
//! by the engine, which gives them to the voice and the recogniser (`media::call::record::Summary`).

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::faults::FaultLog;
use super::queue::lock;

/// The most request ids that are kept of a call: about twenty turns. What somebody asks a provider about
/// is why a call went wrong in the end, so the newest stay.
const REQUEST_IDS: usize = 64;

/// The longest request id, characters: twice that of any provider known. A longer one is none.
const LONGEST_ID: usize = 128;

/// The counters of one call, shared with its providers.
#[derive(Debug)]
pub struct SpeechUsage {
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    estimated_tokens: AtomicU64,
    /// Oldest first. Held for a few instructions, a few times a turn.
    request_ids: Mutex<VecDeque<String>>,
    pub faults: FaultLog,
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

impl Default for SpeechUsage {
    fn default() -> Self {
        Self {
            prompt_tokens: AtomicU64::default(),
            completion_tokens: AtomicU64::default(),
            estimated_tokens: AtomicU64::default(),
            request_ids: Mutex::default(),
            faults: FaultLog::new(Instant::now()),
        }
    }
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

    /// Notes what a provider calls one of its answers, once each. What is not plain ASCII is no name.
    pub fn add_request_id(&self, id: &str) {
        let plain = id.bytes().all(|byte| byte.is_ascii_graphic());
        if id.is_empty() || id.len() > LONGEST_ID || !plain {
            return;
        }
        let mut ids = lock(&self.request_ids);
        if ids.iter().any(|known| known == id) {
            return;
        }
        if ids.len() == REQUEST_IDS {
            ids.pop_front();
        }
        ids.push_back(id.to_owned());
    }

    /// What the providers call their answers, oldest first.
    pub fn request_ids(&self) -> Vec<String> {
        lock(&self.request_ids).iter().cloned().collect()
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

    #[test]
    fn a_call_keeps_the_newest_request_ids_once_each() {
        let usage = SpeechUsage::default();
        for id in ["req_1", "", "two words", "req\u{e9}", "req_1", "req_2"] {
            usage.add_request_id(id);
        }
        usage.add_request_id(&"x".repeat(LONGEST_ID + 1));
        assert_eq!(usage.request_ids(), ["req_1", "req_2"]);
        for number in 3..=REQUEST_IDS + 2 {
            usage.add_request_id(&format!("req_{number}"));
        }
        let ids = usage.request_ids();
        assert_eq!((ids.len(), ids[0].as_str()), (REQUEST_IDS, "req_3"));
    }
}
