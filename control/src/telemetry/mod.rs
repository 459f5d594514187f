//! Traces of calls, sent to an OpenTelemetry collector (OTLP over HTTP) where one is named. Off by default.
//!
//! One trace a call: a span for the call, under it one a turn, under that of an agent's turn one for each
//! part of the time until it was heard (`stt`, `llm`, `tool`, `tts` and the engine's own), one a tool and
//! one for the speech. Times are those of the recording's sample clock, laid onto wall time where the call
//! began. No span holds what was said, a number, a prompt, or what a tool was asked or answered.
//!
//! The trace's id is the call's, so that it is found by it; a `traceparent` that came with `connect` is
//! continued. [`spans`] makes the spans, [`export`] sends them.

pub mod export;
pub mod parent;
pub mod spans;

pub use export::Telemetry;
pub use parent::TraceParent;

use crate::ids::{AccountId, CallId};

/// What every line of the log about a call carries: its id and its account. It holds at any level of the
/// filter.
pub fn span(account: AccountId, call: CallId) -> tracing::Span {
    tracing::error_span!("call", %call, %account)
}
