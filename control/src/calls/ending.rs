//! The end of a call: one transaction that writes the row, what the call used and cost, its
//! `call.ended` event and the recording that is to come. A second end finds the row ended and writes nothing.

use super::latency;
use super::rules::{self, CallStatus, Channel, Direction, Ending};
use super::store::{self, CallRow};
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, CallId, EventId, RecordingId};
use crate::node::Node;
use crate::recordings;
use crate::time::Timestamp;
use crate::usage;
use crate::webhooks::bodies;
use crate::webhooks::event::EventType;
use crate::webhooks::outbox::{self, NewEvent, Target};

/// What else the end of a call brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Also {
    /// Tell the agent's webhook. Not for sessions that merely expired.
    pub event: bool,
    /// A recording of the call is being finished.
    pub recording: bool,
}

/// A call whose end was written, for the counters. It counts once its transaction is committed.
#[derive(Clone, Debug)]
#[must_use]
pub struct Written {
    reason: String,
    channel: Channel,
    duration_ms: Option<u64>,
    /// Over a SIP trunk, and it failed or nobody answered: its direction and the final response.
    trunk_failure: Option<(Direction, Option<u32>)>,
}

impl Written {
    /// Counts it.
    pub fn count(&self, app: &Node) {
        app.metrics
            .call_ended(&self.reason, self.channel.name(), self.duration_ms);
        if let Some((direction, code)) = self.trunk_failure {
            app.metrics.trunk_failed(direction.name(), code);
        }
    }
}

/// Ends a call that `incarnation` hosts (0: nobody joined yet). `false`: it had ended already, or
/// has another host, and nothing was written.
pub async fn end(
    app: &Node,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    ending: &Ending,
    also: Also,
) -> Result<bool, DbError> {
    let mut tx = app.db.begin_write().await?;
    let now = app.clock.now();
    let written = end_in(app, &mut tx, account, id, incarnation, ending, also, now).await?;
    let Some(written) = written else {
        return Ok(false);
    };
    tx.commit().await?;
    written.count(app);
    app.webhooks.wake();
    Ok(true)
}

/// The same inside a transaction, of a call that ended at `now`. `None`: nothing was written.
#[expect(
    clippy::too_many_arguments,
    reason = "whose call, under which claim, how, when"
)]
pub async fn end_in(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    ending: &Ending,
    also: Also,
    now: Timestamp,
) -> Result<Option<Written>, DbError> {
    let mut turns = store::turns_in(tx, account, id).await?;
    for turn in &mut turns {
        if rules::forget_place(turn, ending.offsets) {
            store::replace_turn(tx, account, id, incarnation, turn).await?;
        }
    }
    let summary = latency::summarise(&turns);
    if !store::finish(tx, account, id, incarnation, ending, summary.as_ref(), now).await? {
        return Ok(None);
    }
    store::sessions::close(tx, account, id, now).await?;
    let Some(mut call) = store::get_in(tx, account, id).await? else {
        return Ok(None);
    };
    if let Some(used) = ending.used {
        let who = (id, call.agent_id);
        let cost = usage::record_call(app, tx, account, who, used, now).await?;
        call.cost_cents = usage::rules::cents(cost);
        store::set_cost(tx, account, id, call.cost_cents).await?;
    }
    if also.event {
        event(app, tx, &call, &turns, now).await?;
    }
    if also.recording {
        let recording = RecordingId::new(&app.clock);
        let region = app.storage.region();
        recordings::store::insert(tx, account, recording, id, call.agent_id, region, now).await?;
    }
    let failed = matches!(
        ending.status,
        CallStatus::Failed | CallStatus::NoAnswer | CallStatus::Busy
    );
    let over_trunk = call.trunk_id.is_some();
    Ok(Some(Written {
        reason: ending.reason.to_string(),
        trunk_failure: (failed && over_trunk).then_some((call.direction, call.sip_code)),
        channel: call.channel,
        duration_ms: ending.duration_ms,
    }))
}

/// Adds `call.ended` with its frozen body.
async fn event(
    app: &Node,
    tx: &mut Tx,
    call: &CallRow,
    turns: &[serde_json::Value],
    now: Timestamp,
) -> Result<(), DbError> {
    let id = EventId::new(&app.clock);
    let (transcript, transcript_truncated) = bodies::fit_transcript(turns);
    let (metadata, metadata_truncated) = bodies::fit_metadata(call.metadata.clone());
    let body = bodies::CallEnded {
        event_id: id,
        timestamp: now.seconds(),
        call_id: call.id,
        conversation_id: call.id,
        agent_id: call.agent_id,
        status: call.status.name(),
        direction: call.direction,
        from_number: call.from_number.as_deref(),
        to_number: call.to_number.as_deref(),
        duration_seconds: seconds(call.duration_ms),
        cost_cents: call.cost_cents,
        started_at: call.started_at,
        ended_at: now,
        transcript,
        transcript_text: &rules::transcript_text(transcript),
        batch_id: call.batch_id.as_deref(),
        batch_recipient_index: call.batch_recipient_index,
        metadata,
        metadata_truncated,
        transcript_truncated,
    };
    let event = NewEvent {
        id,
        r#type: EventType::CallEnded,
        target: Target::Agent(call.agent_id),
        call: Some(call.id),
        body: serde_json::to_string(&body).unwrap_or_default(),
    };
    outbox::insert(tx, call.account, &event, now, app.clock.shared()).await
}

/// Milliseconds as the API's seconds.
pub fn seconds(ms: Option<i64>) -> f64 {
    // A call's length is far below 2^52 ms, so the number is exact.
    ms.unwrap_or(0) as f64 / 1000.0
}
