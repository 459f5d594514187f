//! The trace of a call, as its record and its session say.

use std::time::{Duration, UNIX_EPOCH};

use super::store;
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::telemetry::TraceParent;
use crate::telemetry::spans::{About, CallTrace};

/// The trace of a call that begins now; `None`: traces are off, or this call is not traced.
pub(super) async fn begin(app: &Node, account: AccountId, id: CallId) -> Option<CallTrace> {
    let percent = app.telemetry.sample_percent()?;
    let began = UNIX_EPOCH + Duration::from_micros(app.clock.now().0.max(0).unsigned_abs());
    let read = async {
        let call = store::get(&app.db, account, id).await?;
        let session = store::sessions::get(&app.db, account, id).await?;
        Ok::<_, DbError>((call, session))
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
