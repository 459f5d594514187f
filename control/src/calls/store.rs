//! The `calls` and `turns` tables: a call's row, and the lists of them.
//!
//! `progress.rs` writes what becomes of a call, `turns.rs` what is said in it; `unended.rs` asks which calls of all
//! accounts have not ended.

mod progress;
mod turns;
mod unended;

use serde_json::Value;

use crate::db::{Arg, Db, DbError, Query, Row, Tx};
use crate::ids::{AccountId, AgentId, CallId, PhoneNumberId, RecordingId, TrunkId};
use crate::sip_trunks::rules::digits;
use crate::time::Timestamp;

pub use progress::{
    NewCall, add_error, finish, insert, refused, rings, set_cost, take, take_ringing,
};
pub use turns::{
    NewTurn, insert_lone_turn, insert_turn, replace_turn, turns, turns_in, turns_with,
};
pub use unended::{
    OpenRow, agent_is_live, lost_without_recording, open, open_among, orphans, without_node,
};

/// One call with its delivery state. Call, conversation and session read the same row. It has no
/// `Debug`: it holds phone numbers.
#[derive(Clone)]
pub struct CallRow {
    pub id: CallId,
    pub account: AccountId,
    /// Nil where no agent answered.
    pub agent_id: AgentId,
    pub agent_name: String,
    pub status: String,
    pub conversation_status: String,
    pub direction: String,
    pub channel: String,
    pub language: String,
    pub from_number: Option<String>,
    pub to_number: Option<String>,
    pub phone_number_id: Option<PhoneNumberId>,
    pub trunk_id: Option<TrunkId>,
    /// A [`MatchedBy`].
    pub matched_by: Option<Value>,
    pub from_withheld: bool,
    pub dynamic_variables: Value,
    pub metadata: Value,
    pub batch_id: Option<String>,
    pub batch_recipient_index: Option<i64>,
    pub started_at: Option<Timestamp>,
    /// When the other side first said that it rings.
    pub rang_at: Option<Timestamp>,
    pub answered_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    pub end_reason: Option<String>,
    pub ended_by: Option<String>,
    /// The final response to our INVITE.
    pub sip_code: Option<u32>,
    /// In place of the agent's.
    pub max_duration_seconds: Option<u32>,
    pub turn_count: i64,
    /// Some of what was said is kept, in a call that goes on as well.
    pub has_transcript: bool,
    pub latency_summary: Option<Value>,
    pub cost_cents: i64,
    pub has_recording: bool,
    pub recording_id: Option<RecordingId>,
    pub feedback: Option<Feedback>,
    /// 0 until somebody joined.
    pub incarnation: i64,
    /// The name of the node that hosts it, once somebody joined.
    pub node: Option<String>,
    pub webhook_status: Option<String>,
    pub webhook_delivered_at: Option<Timestamp>,
    pub webhook_attempts: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What somebody thought of a conversation.
#[derive(Clone)]
pub struct Feedback {
    pub rating: i64,
    pub comment: Option<String>,
    pub at: Timestamp,
}

const COLUMNS: &str =
    "select c.*, e.status as webhook_status, e.delivered_at as webhook_delivered_at,
        coalesce(e.attempts, 0) as webhook_attempts,
        exists (select 1 from turns t where t.call_id = c.id) as has_transcript
    from calls c left join events e on e.call_id = c.id and e.type = 'call.ended'";

/// One call of the account.
pub async fn get(db: &Db, account: AccountId, id: CallId) -> Result<Option<CallRow>, DbError> {
    let sql = format!("{COLUMNS} where c.account_id = $1 and c.id = $2");
    db.query_built(sql)
        .bind(account)
        .bind(id)
        .optional(CallRow::read)
        .await
}

/// The call row inside a transaction.
pub async fn get_in(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
) -> Result<Option<CallRow>, DbError> {
    let sql = format!("{COLUMNS} where c.account_id = $1 and c.id = $2");
    tx.query_built(sql)
        .bind(account)
        .bind(id)
        .optional(CallRow::read)
        .await
}

/// What a list of calls may be narrowed by; `None` narrows nothing.
#[derive(Clone, Default)]
pub struct Filter {
    pub status: Option<String>,
    pub direction: Option<String>,
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

const FILTER: &str = "c.account_id = $1
    and ($2 is null or c.status = $2) and ($3 is null or c.direction = $3)
    and ($4 is null or c.agent_id = $4) and ($5 is null or c.batch_id = $5)
    and ($6 is null or c.created_at >= $6) and ($7 is null or c.created_at < $7)
    and ($8 is null or ltrim(c.from_number, '+') = $8 or ltrim(c.to_number, '+') = $8)";

/// How many values [`FILTER`] takes, the account included.
const FILTER_VALUES: usize = 8;

/// The account's calls, newest first, and how many there are in all.
pub async fn list(
    db: &Db,
    account: AccountId,
    filter: &Filter,
    limit: u32,
    offset: u32,
) -> Result<(Vec<CallRow>, u64), DbError> {
    let wanted = filter.sql();
    let page = FILTER_VALUES + filter.said.len();
    let sql = format!(
        "{COLUMNS} where {wanted} order by c.created_at desc, c.id desc limit ${} offset ${}",
        page + 1,
        page + 2
    );
    let rows = filter
        .bind(db.query_built(sql).bind(account))
        .bind(limit)
        .bind(offset)
        .all(CallRow::read)
        .await?;
    let sql = format!("select count(*) as total from calls c where {wanted}");
    let total = filter
        .bind(db.query_built(sql).bind(account))
        .one(|row| row.i64("total"))
        .await?;
    Ok((rows, total.unsigned_abs()))
}

impl Filter {
    /// The condition, with [`FILTER_VALUES`] values and one more for each of `said`.
    fn sql(&self) -> String {
        let mut sql = FILTER.to_owned();
        for place in 1..=self.said.len() {
            let value = FILTER_VALUES + place;
            sql += &format!(
                " and exists (select 1 from turns t where t.account_id = $1 and t.call_id = c.id
                    and t.words like ${value} escape '\\')"
            );
        }
        sql
    }

    fn bind<'q>(&self, query: Query<'q>) -> Query<'q> {
        query
            .bind(self.status.as_deref())
            .bind(self.direction.as_deref())
            .bind(self.agent)
            .bind(self.batch.as_deref())
            .bind(self.from)
            .bind(self.to)
            .bind(self.phone.as_deref().map(digits))
            .bind_all(self.said.iter().map(|text| Arg::from(containing(text))))
    }
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

impl CallRow {
    fn read(row: &Row) -> Result<Self, DbError> {
        let feedback = match (
            row.opt_i64("feedback_rating")?,
            row.opt_time("feedback_at")?,
        ) {
            (Some(rating), Some(at)) => Some(Feedback {
                rating,
                comment: row.opt_text("feedback_comment")?,
                at,
            }),
            _ => None,
        };
        Ok(Self {
            id: row.parse("id")?,
            account: row.parse("account_id")?,
            agent_id: row.parse("agent_id")?,
            agent_name: row.text("agent_name")?,
            status: row.text("status")?,
            conversation_status: row.text("conversation_status")?,
            direction: row.text("direction")?,
            channel: row.text("channel")?,
            language: row.text("language")?,
            from_number: row.opt_text("from_number")?,
            to_number: row.opt_text("to_number")?,
            phone_number_id: row.opt_parse("phone_number_id")?,
            trunk_id: row.opt_parse("trunk_id")?,
            matched_by: row.opt_json("matched_by")?,
            from_withheld: row.bool("from_withheld")?,
            dynamic_variables: row.json("dynamic_variables")?,
            metadata: row.json("metadata")?,
            batch_id: row.opt_text("batch_id")?,
            batch_recipient_index: row.opt_i64("batch_recipient_index")?,
            started_at: row.opt_time("started_at")?,
            rang_at: row.opt_time("rang_at")?,
            answered_at: row.opt_time("answered_at")?,
            ended_at: row.opt_time("ended_at")?,
            duration_ms: row.opt_i64("duration_ms")?,
            end_reason: row.opt_text("end_reason")?,
            ended_by: row.opt_text("ended_by")?,
            sip_code: small(row, "sip_code")?,
            max_duration_seconds: small(row, "max_duration_seconds")?,
            turn_count: row.i64("turn_count")?,
            has_transcript: row.bool("has_transcript")?,
            latency_summary: row.opt_json("latency_summary")?,
            cost_cents: row.i64("cost_cents")?,
            has_recording: row.bool("has_recording")?,
            recording_id: row.opt_parse("recording_id")?,
            feedback,
            incarnation: row.opt_i64("owner_incarnation")?.unwrap_or(0),
            node: row.opt_text("owner_node")?,
            webhook_status: row.opt_text("webhook_status")?,
            webhook_delivered_at: row.opt_time("webhook_delivered_at")?,
            webhook_attempts: row.i64("webhook_attempts")?,
            created_at: row.time("created_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

/// A small number that may be missing.
fn small(row: &Row, column: &str) -> Result<Option<u32>, DbError> {
    Ok(row
        .opt_i64(column)?
        .and_then(|number| u32::try_from(number).ok()))
}
