//! What kinds of event there are, and how hard each is delivered (document 1, Event types). Pure.

use super::schedule::Class;

/// The events of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    CallEnded,
    RecordingReady,
    KnowledgeDocumentCreated,
    KnowledgeDocumentDeleted,
    TranscriptionCompleted,
    TtsBatchCompleted,
    TtsBatchFailed,
    UsageThresholdCrossed,
    PromptVariablesUnfilled,
}

impl EventType {
    pub const ALL: [Self; 9] = [
        Self::CallEnded,
        Self::RecordingReady,
        Self::KnowledgeDocumentCreated,
        Self::KnowledgeDocumentDeleted,
        Self::TranscriptionCompleted,
        Self::TtsBatchCompleted,
        Self::TtsBatchFailed,
        Self::UsageThresholdCrossed,
        Self::PromptVariablesUnfilled,
    ];

    /// The word in the event header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallEnded => "call.ended",
            Self::RecordingReady => "recording.ready",
            Self::KnowledgeDocumentCreated => "knowledge.document.created",
            Self::KnowledgeDocumentDeleted => "knowledge.document.deleted",
            Self::TranscriptionCompleted => "transcription.completed",
            Self::TtsBatchCompleted => "tts.batch.completed",
            Self::TtsBatchFailed => "tts.batch.failed",
            Self::UsageThresholdCrossed => "usage.threshold.crossed",
            Self::PromptVariablesUnfilled => "agent.prompt_variables.unfilled",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

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

/// Where the delivery of an event stands (document 1, Delivery, rule 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Delivering,
    /// To be tried again.
    Failed,
    Delivered,
    /// The address breaks the network-safety policy.
    Unsafe,
    /// There is no address any more, or never was.
    Skipped,
    /// Tried as often as its class allows.
    Exhausted,
}

impl Status {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivering => "delivering",
            Self::Failed => "failed",
            Self::Delivered => "delivered",
            Self::Unsafe => "unsafe",
            Self::Skipped => "skipped",
            Self::Exhausted => "exhausted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in EventType::ALL {
            assert_eq!(EventType::from_name(kind.name()), Some(kind));
        }
        assert_eq!(EventType::from_name("call.started"), None);
    }
}
