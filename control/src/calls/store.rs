//! The `calls` and `turns` tables.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::journal::Owner;
use super::matched::MatchedBy;
use super::rules::{CallStatus, ConversationStatus, Ending};
use crate::db::{Arg, Db, DbError, Engine, Query, Row, Tx};
use crate::ids::{AccountId, AgentId, CallId, PhoneNumberId, RecordingId, TrunkId};
use crate::sip_trunks::rules::digits;
use crate::time::Timestamp;

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

/// What is known of a call at its creation.
pub struct NewCall<'a> {
    pub id: CallId,
    pub agent_id: AgentId,
    pub agent_name: &'a str,
    pub direction: &'a str,
    pub channel: &'a str,
    pub language: &'a str,
    pub from_number: Option<&'a str>,
    pub to_number: Option<&'a str>,
    pub phone_number_id: Option<PhoneNumberId>,
    pub trunk_id: Option<TrunkId>,
    /// Of a call that came in, to a number that is registered.
    pub matched_by: Option<MatchedBy>,
    pub dynamic_variables: &'a Value,
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

const COLUMNS: &str =
    "select c.*, e.status as webhook_status, e.delivered_at as webhook_delivered_at,
        coalesce(e.attempts, 0) as webhook_attempts,
        exists (select 1 from turns t where t.call_id = c.id) as has_transcript
    from calls c left join events e on e.call_id = c.id and e.type = 'call.ended'";

const FILTER: &str = "c.account_id = $1
    and ($2 is null or c.status = $2) and ($3 is null or c.direction = $3)
    and ($4 is null or c.agent_id = $4) and ($5 is null or c.batch_id = $5)
    and ($6 is null or c.created_at >= $6) and ($7 is null or c.created_at < $7)
    and ($8 is null or ltrim(c.from_number, '+') = $8 or ltrim(c.to_number, '+') = $8)";

/// How many values [`FILTER`] takes, the account included.
const FILTER_VALUES: usize = 8;

/// Adds a call that waits for its caller to join.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    call: &NewCall<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "insert into calls (id, account_id, agent_id, agent_name, status, conversation_status, direction,
            channel, language, from_number, to_number, dynamic_variables, phone_number_id, trunk_id,
            created_at, updated_at, matched_by)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15, $16)",
    )
    .bind(call.id)
    .bind(account)
    .bind(call.agent_id)
    .bind(call.agent_name)
    .bind(CallStatus::Queued.name())
    .bind(ConversationStatus::Created.name())
    .bind(call.direction)
    .bind(call.channel)
    .bind(call.language)
    .bind(call.from_number)
    .bind(call.to_number)
    .bind(call.dynamic_variables.to_string())
    .bind(call.phone_number_id)
    .bind(call.trunk_id)
    .bind(now)
    .bind(call.matched_by.map(|matched| json!(matched).to_string()))
    .execute()
    .await?;
    Ok(())
}

/// One call of the account.
pub async fn get(db: &Db, account: AccountId, id: CallId) -> Result<Option<CallRow>, DbError> {
    let sql = format!("{COLUMNS} where c.account_id = $1 and c.id = $2");
    db.query_built(sql)
        .bind(account)
        .bind(id)
        .optional(CallRow::read)
        .await
}

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

/// The turns of a call, in order, as JSON.
pub async fn turns(db: &Db, account: AccountId, id: CallId) -> Result<Vec<Value>, DbError> {
    db.query("select body from turns where account_id = $1 and call_id = $2 order by idx")
        .bind(account)
        .bind(id)
        .all(|row| row.json("body"))
        .await
}

/// The same inside a transaction.
pub async fn turns_in(tx: &mut Tx, account: AccountId, id: CallId) -> Result<Vec<Value>, DbError> {
    tx.query("select body from turns where account_id = $1 and call_id = $2 order by idx")
        .bind(account)
        .bind(id)
        .all(|row| row.json("body"))
        .await
}

/// The first turns of a call in which one of these was said, as JSON.
pub async fn turns_with(
    db: &Db,
    account: AccountId,
    id: CallId,
    said: &[String],
    most: u32,
) -> Result<Vec<Value>, DbError> {
    let any: Vec<String> = (0..said.len())
        .map(|place| format!("words like ${} escape '\\'", place + 3))
        .collect();
    let sql = format!(
        "select body from turns where account_id = $1 and call_id = $2 and ({}) order by idx limit ${}",
        any.join(" or "),
        said.len() + 3
    );
    db.query_built(sql)
        .bind(account)
        .bind(id)
        .bind_all(said.iter().map(|text| Arg::from(containing(text))))
        .bind(most)
        .all(|row| row.json("body"))
        .await
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

/// One finished turn.
pub struct NewTurn<'a> {
    pub index: u32,
    /// The turn as the engine gave it, JSON.
    pub body: &'a str,
    /// What was said in it.
    pub text: &'a str,
}

/// Adds one finished turn to a call that this incarnation still hosts. Written twice, it stands once.
pub async fn insert_turn(
    tx: &mut Tx,
    of: Owner,
    turn: &NewTurn<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    let sql = insert_turn_sql(tx.engine());
    with_turn(tx.query_built(sql), of, turn, now)
        .execute()
        .await?;
    Ok(())
}

/// The same, as the one thing that is written: without a transaction around it, which would take three messages
/// to the database in place of one.
pub async fn insert_lone_turn(
    db: &Db,
    of: Owner,
    turn: &NewTurn<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    let sql = insert_turn_sql(db.engine());
    with_turn(db.query_built(sql), of, turn, now)
        .execute()
        .await?;
    Ok(())
}

fn insert_turn_sql(engine: Engine) -> String {
    let lock = engine.for_share();
    format!(
        "insert into turns (call_id, idx, account_id, body, created_at, words)
         select $1, $2, $3, $4, $5, $7 where exists (select 1 from calls
            where id = $1 and account_id = $3 and owner_incarnation = $6 and ended_at is null{lock})
         on conflict (call_id, idx) do nothing",
    )
}

fn with_turn<'a>(query: Query<'a>, of: Owner, turn: &NewTurn<'_>, now: Timestamp) -> Query<'a> {
    query
        .bind(of.call)
        .bind(i64::from(turn.index))
        .bind(of.account)
        .bind(turn.body)
        .bind(now)
        .bind(of.incarnation)
        .bind(turn.text.to_lowercase())
}

/// Makes this process the host of a call that waits, and which is answered: over SIP with 200. `false`: it
/// ended, or has a host.
pub async fn take(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    node: &str,
    incarnation: i64,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update calls set owner_node = $1, owner_incarnation = $2, status = $3, conversation_status = $4,
                started_at = $5, answered_at = $5, sip_code = case when channel = 'sip' then 200 end, updated_at = $5
             where account_id = $6 and id = $7 and owner_incarnation is null and ended_at is null",
        )
        .bind(node)
        .bind(incarnation)
        .bind(CallStatus::InProgress.name())
        .bind(ConversationStatus::InProgress.name())
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Makes this process the host of a call that was inserted in this transaction, came in and rings since then.
pub async fn rings(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    node: &str,
    incarnation: i64,
    since: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "update calls set owner_node = $1, owner_incarnation = $2, status = $3, started_at = $4, rang_at = $4
         where account_id = $5 and id = $6",
    )
    .bind(node)
    .bind(incarnation)
    .bind(CallStatus::Ringing.name())
    .bind(since)
    .bind(account)
    .bind(id)
    .execute()
    .await?;
    Ok(())
}

/// A call that rings at this incarnation is answered: by the agent of `call`, or to leave a message. `false`: it
/// is over, or not theirs any more.
pub async fn take_ringing(
    tx: &mut Tx,
    account: AccountId,
    call: &NewCall<'_>,
    incarnation: i64,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update calls set agent_id = $1, agent_name = $2, language = $3, status = $4,
                conversation_status = $5, answered_at = $6, sip_code = 200, updated_at = $6
             where account_id = $7 and id = $8 and owner_incarnation = $9 and ended_at is null",
        )
        .bind(call.agent_id)
        .bind(call.agent_name)
        .bind(call.language)
        .bind(CallStatus::InProgress.name())
        .bind(ConversationStatus::InProgress.name())
        .bind(now)
        .bind(account)
        .bind(call.id)
        .bind(incarnation)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes what a caller was told whose call ended before it was answered.
pub async fn refused(db: &Db, account: AccountId, id: CallId, code: u16) -> Result<(), DbError> {
    db.query("update calls set sip_code = $1 where account_id = $2 and id = $3")
        .bind(i64::from(code))
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
}

/// Writes the end of a call that `incarnation` hosts (0: nobody). `false`: it had ended already, or
/// is not theirs any more, and nothing was written.
pub async fn finish(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    incarnation: i64,
    ending: &Ending,
    summary: Option<&Value>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let faults = ending.provider_faults.as_ref();
    let rows = tx
        .query(
            "update calls set status = $1, conversation_status = $2, end_reason = $3, ended_by = $4,
                ended_at = $5, answered_at = case when not $16 then answered_at end,
                duration_ms = coalesce($6, duration_ms,
                    case when not $16 and answered_at <= $5 then $5 / 1000 - answered_at / 1000 end, 0),
                turn_count = coalesce($7, (select count(*) from turns where call_id = $9)),
                latency_summary = $8, errors = $10, network = $13,
                sip_code = coalesce($14, case when not $16 then sip_code end), provider_request_ids = $15,
                provider_faults = $17, updated_at = $5
             where account_id = $11 and id = $9 and coalesce(owner_incarnation, 0) = $12 and ended_at is null",
        )
        .bind(ending.status.name())
        .bind(ending.conversation.name())
        .bind(ending.reason.as_ref())
        .bind(ending.ended_by.as_ref())
        .bind(now)
        .bind(ending.duration_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)))
        .bind(ending.turn_count.map(i64::from))
        .bind(summary.map(ToString::to_string))
        .bind(id)
        .bind(serde_json::json!(ending.errors).to_string())
        .bind(account)
        .bind(incarnation)
        .bind(ending.network.as_ref().map(|network| serde_json::json!(network).to_string()))
        .bind(ending.sip_code.map(i64::from))
        .bind(serde_json::json!(ending.provider_request_ids).to_string())
        .bind(ending.never_answered)
        .bind(faults.map(|faults| serde_json::json!(faults).to_string()))
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes a turn of a call that this incarnation still hosts anew; its words are the same.
pub async fn replace_turn(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
    incarnation: i64,
    turn: &Value,
) -> Result<(), DbError> {
    tx.query(
        "update turns set body = $1 where account_id = $2 and call_id = $3 and idx = $4
            and exists (select 1 from calls where id = $3 and coalesce(owner_incarnation, 0) = $5 and ended_at is null)",
    )
    .bind(turn.to_string())
    .bind(account)
    .bind(call)
    .bind(turn["index"].as_i64())
    .bind(incarnation)
    .execute()
    .await?;
    Ok(())
}

/// Writes what a call cost.
pub async fn set_cost(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    cost_cents: i64,
) -> Result<(), DbError> {
    tx.query("update calls set cost_cents = $1 where account_id = $2 and id = $3")
        .bind(cost_cents)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
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

/// Whether the agent is on a call that has not ended, or that somebody may still join.
pub async fn agent_is_live(
    tx: &mut Tx,
    account: AccountId,
    agent: AgentId,
) -> Result<bool, DbError> {
    tx.query(
        "select count(*) as live from calls where account_id = $1 and agent_id = $2 and ended_at is null",
    )
    .bind(account)
    .bind(agent)
    .one(|row| Ok(row.i64("live")? > 0))
    .await
}

/// Calls that earlier incarnations of this node hosted and never ended. Of all accounts: this is the
/// node's own housekeeping.
pub async fn orphans(db: &Db, node: &str, incarnation: i64) -> Result<Vec<CallRow>, DbError> {
    let sql = format!(
        "{COLUMNS} where c.owner_node = $1 and c.owner_incarnation < $2 and c.ended_at is null order by c.id"
    );
    db.query_built(sql)
        .bind(node)
        .bind(incarnation)
        .all(CallRow::read)
        .await
}

/// Calls of all accounts that no living node hosts any more.
pub async fn without_node(db: &Db) -> Result<Vec<CallRow>, DbError> {
    let sql = format!(
        "{COLUMNS} where c.ended_at is null and c.owner_incarnation is not null
            and c.owner_incarnation not in (select incarnation from nodes where lost_at is null)
         order by c.id"
    );
    db.query_built(sql).all(CallRow::read).await
}

/// A call of any account that has not ended.
pub struct OpenRow {
    pub id: CallId,
    pub account: AccountId,
    /// Name and incarnation of the node that hosts it.
    pub host: Option<(String, i64)>,
    /// Until when somebody may join it.
    pub expires_at: Option<Timestamp>,
}

/// Calls of all accounts that live, or that somebody may still join: the node's own housekeeping.
pub async fn open(db: &Db, now: Timestamp) -> Result<Vec<OpenRow>, DbError> {
    db.query(
        "select c.id, c.account_id, c.owner_node, c.owner_incarnation, s.expires_at
         from calls c left join sessions s on s.id = c.id
         where c.ended_at is null and (c.owner_incarnation is not null or s.expires_at > $1)",
    )
    .bind(now)
    .all(|row| {
        let incarnation = row.opt_i64("owner_incarnation")?;
        Ok(OpenRow {
            id: row.parse("id")?,
            account: row.parse("account_id")?,
            host: row.opt_text("owner_node")?.zip(incarnation),
            expires_at: row.opt_time("expires_at")?,
        })
    })
    .await
}

/// Which of these calls have not ended. The account follows from the lease of the same id.
pub async fn open_among(db: &Db, ids: &[CallId]) -> Result<HashSet<CallId>, DbError> {
    let mut open = HashSet::new();
    // Far below the number of values that one statement takes.
    for some in ids.chunks(500) {
        let places: Vec<String> = (1..=some.len()).map(|at| format!("${at}")).collect();
        let sql = format!(
            "select id from calls where ended_at is null and id in ({})",
            places.join(", ")
        );
        let found = db
            .query_built(sql)
            .bind_all(some.iter().map(|id| (*id).into()))
            .all(|row| row.parse("id"))
            .await?;
        open.extend::<Vec<CallId>>(found);
    }
    Ok(open)
}

/// Ended calls among these that died with their node and have no recording. The account follows from
/// the call.
pub async fn lost_without_recording(
    db: &Db,
    id: CallId,
) -> Result<Option<(AccountId, AgentId)>, DbError> {
    db.query(
        "select account_id, agent_id from calls
         where id = $1 and end_reason = 'node_lost' and recording_id is null and has_recording = false",
    )
    .bind(id)
    .optional(|row| Ok((row.parse("account_id")?, row.parse("agent_id")?)))
    .await
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
