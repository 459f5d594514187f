//! What kinds of event there are, and how hard each is delivered (document 1, Event types). Pure.

use super::schedule::Class;
use crate::words::words;

words! {
    /// The events of this server, by the word in their header.
    pub enum EventType {
        CallEnded = "call.ended",
        RecordingReady = "recording.ready",
        KnowledgeDocumentCreated = "knowledge.document.created",
        KnowledgeDocumentDeleted = "knowledge.document.deleted",
        TranscriptionCompleted = "transcription.completed",
        TtsBatchCompleted = "tts.batch.completed",
        TtsBatchFailed = "tts.batch.failed",
        UsageThresholdCrossed = "usage.threshold.crossed",
        PromptVariablesUnfilled = "agent.prompt_variables.unfilled",
    }

    /// Where the delivery of an event stands (document 1, Delivery, rule 2).
    pub enum Status {
        Pending = "pending",
        Delivering = "delivering",
        /// To be tried again.
        Failed = "failed",
        Delivered = "delivered",
        /// The address breaks the network-safety policy.
        Unsafe = "unsafe",
        /// There is no address any more, or never was.
        Skipped = "skipped",
        /// Tried as often as its class allows.
        Exhausted = "exhausted",
    }
}

impl EventType {
    /// How hard it is delivered.
    pub const fn class(self) -> Class {
        match self {
            Self::CallEnded => Class::Durable,
            Self::RecordingReady
            | Self::TranscriptionCompleted
            | Self::TtsBatchCompleted
            | Self::TtsBatchFailed
            | Self::UsageThresholdCrossed => Class::Short,
            Self::KnowledgeDocumentCreated
            | Self::KnowledgeDocumentDeleted
            | Self::PromptVariablesUnfilled => Class::BestEffort,
        }
    }
}
