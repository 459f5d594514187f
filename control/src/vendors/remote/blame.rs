//! A provider's name, and what is counted and logged of its faults.

use std::fmt;
use std::sync::Arc;

use super::plan::Fault;
use crate::metrics::providers::{ProviderMetrics, Stage};

/// A provider in one of its parts. Shown, it is its name.
#[derive(Clone)]
pub(super) struct Blame {
    name: String,
    stage: Stage,
    metrics: Arc<ProviderMetrics>,
}

impl Blame {
    pub(super) fn new(name: &str, stage: Stage, metrics: &Arc<ProviderMetrics>) -> Self {
        Self {
            name: name.to_owned(),
            stage,
            metrics: Arc::clone(metrics),
        }
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
