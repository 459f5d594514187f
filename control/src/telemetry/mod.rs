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

use std::time::{Duration, UNIX_EPOCH};

use self::spans::{About, CallTrace};
use crate::app::App;
use crate::calls;
use crate::ids::{AccountId, CallId};
use crate::sessions;

/// The trace of a call that begins now; `None`: traces are off, or this call is not traced.
pub async fn begin(app: &App, account: AccountId, id: CallId) -> Option<CallTrace> {
    let percent = app.telemetry.sample_percent()?;
    let began = UNIX_EPOCH + Duration::from_micros(app.clock.now().0.max(0).unsigned_abs());
    let read = async {
        let call = calls::store::get(&app.db, account, id).await?;
        let session = sessions::store::get(&app.db, account, id).await?;
        Ok::<_, crate::db::DbError>((call, session))
    };
    let (call, session) = match read.await {
        Ok((Some(call), session)) => (call, session),
        Ok((None, _)) => return None,
        Err(error) => {
            tracing::warn!(%error, "a call is not traced: its record cannot be read");
            return None;
        }
    };
    let parent = session
        .and_then(|session| session.traceparent)
        .and_then(|text| TraceParent::parse(&text));
    let about = About {
        call: id.0,
        account: account.to_string(),
        agent: call.agent_id.to_string(),
        channel: call.channel.to_string(),
        direction: call.direction.to_string(),
    };
    CallTrace::begin(about, parent, began, percent)
}
