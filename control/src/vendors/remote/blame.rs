//! A provider's name in a call, what is counted and logged of its faults, and what it calls its answers.

use std::fmt;
use std::sync::Arc;

use reqwest::header::HeaderMap;

use super::plan::Fault;
use crate::metrics::providers::{ProviderMetrics, Stage};
use crate::vendors::usage::SpeechUsage;

/// The headers in which providers name their answers, after the first that did so: OpenAI and most that
/// speak its protocol; ElevenLabs and Anthropic; Deepgram; Azure; Amazon.
const REQUEST_ID: [&str; 5] = [
    "x-request-id",
    "request-id",
    "dg-request-id",
    "apim-request-id",
    "x-amzn-requestid",
];

/// A provider in one of a call's parts. Shown, it is its name.
#[derive(Clone)]
pub(super) struct Blame {
    name: String,
    stage: Stage,
    metrics: Arc<ProviderMetrics>,
    usage: Arc<SpeechUsage>,
}

impl Blame {
    pub(super) fn new(
        name: &str,
        stage: Stage,
        metrics: &Arc<ProviderMetrics>,
        usage: &Arc<SpeechUsage>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            stage,
            metrics: Arc::clone(metrics),
            usage: Arc::clone(usage),
        }
    }

    /// The head of an answer came, of a refusal too: the call's diagnostics tell what the provider calls
    /// it.
    pub(super) fn answered(&self, headers: &HeaderMap) {
        let mut names = REQUEST_ID.iter().filter_map(|name| headers.get(*name));
        if let Some(id) = names.find_map(|value| value.to_str().ok()) {
            self.named(id);
        }
    }

    /// As [`answered`](Self::answered), where a message holds the name.
    pub(super) fn named(&self, id: &str) {
        self.usage.add_request_id(id);
    }

    /// Counts a try that failed and says so in the log, without the provider's own words: they may repeat
    /// the caller's. The call's diagnostics have them.
    pub(super) fn fault(&self, fault: &Fault, what: &'static str) {
        self.metrics.fault(self.stage, &self.name, fault.kind());
        tracing::warn!(
            provider = %self.name,
            stage = self.stage.name(),
            kind = fault.kind(),
            status = fault.status(),
            "{what}"
        );
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
