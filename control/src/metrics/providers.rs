//! What providers of speech and language are counted by: stage, name, outcome.

use std::time::Duration;

use super::table;
use super::text::Text;
use super::values::{Counts, Timings};

/// A stage of the speech chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Stt,
    Llm,
    Tts,
}

impl Stage {
    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stt => "stt",
            Self::Llm => "llm",
            Self::Tts => "tts",
        }
    }

    /// The part of the agent that it is, as diagnostics call it.
    pub const fn part(self) -> &'static str {
        match self {
            Self::Stt => "recogniser",
            Self::Llm => "model",
            Self::Tts => "voice",
        }
    }
}

/// How a request to a provider ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    Failed,
    Cancelled,
    /// The call ended first.
    Unanswered,
}

/// The counters of all providers.
#[derive(Debug)]
pub struct ProviderMetrics {
    requests: Counts<3>,
    first: Timings<2>,
    faults: Counts<3>,
}

impl Default for ProviderMetrics {
    fn default() -> Self {
        Self {
            requests: Counts::new(&table::PROVIDER_REQUESTS),
            first: Timings::new(&table::PROVIDER_SECONDS),
            faults: Counts::new(&table::PROVIDER_FAULTS),
        }
    }
}

impl ProviderMetrics {
    /// Counts a request that is over. `provider` comes from the settings or is built in.
    pub fn request(&self, stage: Stage, provider: &str, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Answered => "answered",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Unanswered => "unanswered",
        };
        let labels = [
            stage.name().into(),
            provider.to_owned().into(),
            outcome.into(),
        ];
        self.requests.add(labels, 1);
    }

    /// Counts the first of an answer.
    pub fn first(&self, stage: Stage, provider: &str, took: Duration) {
        self.first
            .observe([stage.name().into(), provider.to_owned().into()], took);
    }

    /// Counts a try that failed.
    pub fn fault(&self, stage: Stage, provider: &str, kind: &'static str) {
        let labels = [stage.name().into(), provider.to_owned().into(), kind.into()];
        self.faults.add(labels, 1);
    }

    pub fn write(&self, text: &mut Text) {
        self.requests.write(text);
        self.first.write(text);
        self.faults.write(text);
    }
}
