//! The `calls` and `turns` tables: a call's row, and the lists of them.
//!
//! `progress.rs` writes what becomes of a call, `turns.rs` what is said in it; `unended.rs` asks which calls of all
//! accounts have not ended. [`sessions`] is who may join a call.

mod progress;
pub mod sessions;
mod turns;
mod unended;

use serde_json::Value;

use super::rules::{CallStatus, Channel, ConversationStatus, Direction};
use crate::db::{self, Db, Row, Tx, Window, record};
use crate::ids::{AccountId, AgentId, CallId, PhoneNumberId, RecordingId, TrunkId};
use crate::numbers::digits;
use crate::time::Timestamp;
use crate::webhooks::event;

pub(super) use progress::hosted;
pub use progress::{
    NewCall, add_error, finish, insert, refused, rings, set_cost, take, take_ringing,
};
pub use turns::{
    NewTurn, insert_lone_turn, insert_turn, replace_turn, turns, turns_in, turns_with,
};
pub use unended::{OpenRow, open, open_among, orphans, without_node};

record! {
    /// One call with its delivery state. Call, conversation and session read the same row. It has no
    /// `Debug`: it holds phone numbers.
    #[derive(Clone)]
    pub struct CallRow in "calls"
        from "(select c.*, e.status as webhook_status, e.delivered_at as webhook_delivered_at,
                coalesce(e.attempts, 0) as webhook_attempts,
                exists (select 1 from turns t where t.call_id = c.id) as has_transcript
            from calls c left join events e on e.call_id = c.id and e.type = 'call.ended') as calls" {
        id: CallId,
        account: AccountId as "account_id",
        /// Nil where no agent answered.
        agent_id: AgentId,
        agent_name: String,
        status: CallStatus,
        conversation_status: ConversationStatus,
        direction: Direction,
        channel: Channel,
        language: String,
        from_number: Option<String>,
        to_number: Option<String>,
        phone_number_id: Option<PhoneNumberId>,
        trunk_id: Option<TrunkId>,
        /// A [`MatchedBy`](crate::calls::matched::MatchedBy).
        matched_by: Option<Value>,
        from_withheld: bool,
        dynamic_variables: Value,
        metadata: Value,
        batch_id: Option<String>,
        batch_recipient_index: Option<i64>,
        started_at: Option<Timestamp>,
        /// When the other side first said that it rings.
        rang_at: Option<Timestamp>,
        answered_at: Option<Timestamp>,
        ended_at: Option<Timestamp>,
        duration_ms: Option<i64>,
        end_reason: Option<String>,
        ended_by: Option<String>,
        /// The final response to our INVITE.
        sip_code: Option<u32> => |row| small(row, "sip_code"),
        /// In place of the agent's.
        max_duration_seconds: Option<u32> => |row| small(row, "max_duration_seconds"),
        turn_count: i64,
        /// Some of what was said is kept, in a call that goes on as well.
        has_transcript: bool,
        latency_summary: Option<Value>,
        cost_cents: i64,
        has_recording: bool,
        recording_id: Option<RecordingId>,
        feedback: Option<Feedback> => Feedback::read,
        /// 0 until somebody joined.
        incarnation: i64 => incarnation,
        /// The name of the node that hosts it, once somebody joined.
        node: Option<String> as "owner_node",
        webhook_status: Option<event::Status>,
        webhook_delivered_at: Option<Timestamp>,
        webhook_attempts: i64,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

/// What somebody thought of a conversation.
#[derive(Clone)]
pub struct Feedback {
    pub rating: i64,
    pub comment: Option<String>,
    pub at: Timestamp,
}

impl Feedback {
    fn read(row: &Row) -> db::Result<Option<Self>> {
        let rated = row.opt_i64("feedback_rating")?;
        let Some((rating, at)) = rated.zip(row.opt_time("feedback_at")?) else {
            return Ok(None);
        };
        let comment = row.opt_text("feedback_comment")?;
        Ok(Some(Self {
            rating,
            comment,
            at,
        }))
    }
}

/// One call of the account.
pub async fn get(db: &Db, account: AccountId, id: CallId) -> db::Result<Option<CallRow>> {
    db.of(account).get(id).await
}

/// The call row inside a transaction.
pub async fn get_in(tx: &mut Tx, account: AccountId, id: CallId) -> db::Result<Option<CallRow>> {
    tx.of(account).get(id).await
}

/// What a list of calls may be narrowed by; `None` narrows nothing.
#[derive(Clone, Default)]
pub struct Filter {
    pub status: Option<CallStatus>,
    pub direction: Option<Direction>,
    pub agent: Option<AgentId>,
    pub batch: Option<String>,
    /// Created at or after.
    pub from: Option<Timestamp>,
    /// Created before.
    pub to: Option<Timestamp>,
    /// Either number of the call, with or without its plus: telephone calls have numbers as their carriers
    /// write them.
    pub phone: Option<String>,
    /// Each of these was said in some turn: lower-case text.
    pub said: Vec<String>,
}

/// The account's calls, newest first, and how many there are in all.
pub async fn list(
    db: &Db,
    account: AccountId,
    filter: &Filter,
    limit: u32,
    offset: u32,
) -> db::Result<(Vec<CallRow>, u64)> {
    const EITHER_NUMBER: &str = "(ltrim(from_number, '+') = $? or ltrim(to_number, '+') = $?)";
    const SAID: &str = "exists (select 1 from turns t where t.account_id = calls.account_id
        and t.call_id = calls.id and t.words like $? escape '\\')";
    let Filter {
        status,
        direction,
        agent,
        batch,
        from,
        to,
        phone,
        said,
    } = filter;
    let mut calls = db
        .of::<CallRow>(account)
        .whose_if("status", *status)
        .whose_if("direction", *direction)
        .whose_if("agent_id", *agent)
        .whose_if("batch_id", batch.as_deref())
        .such_if("created_at >= $?", *from)
        .such_if("created_at < $?", *to)
        .such_if(EITHER_NUMBER, phone.as_deref().map(digits));
    for text in said {
        calls = calls.such(SAID, containing(text));
    }
    calls.page(Window { limit, offset }).await
}

/// The `like` pattern of texts that contain this one.
fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

fn incarnation(row: &Row) -> db::Result<i64> {
    Ok(row.opt_i64("owner_incarnation")?.unwrap_or(0))
}

/// A small number that may be missing.
fn small(row: &Row, column: &str) -> db::Result<Option<u32>> {
    Ok(row
        .opt_i64(column)?
        .and_then(|number| u32::try_from(number).ok()))
}

#[cfg(test)]
mod tests;
