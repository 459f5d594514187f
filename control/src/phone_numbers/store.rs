//! The `phone_numbers` table.

use super::rules::{Provider, RoutingRules, digits};
use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, AgentId, PhoneNumberId, TrunkId};
use crate::time::Timestamp;

/// A number that is not released. It has no `Debug`: it is a phone number.
#[derive(Clone, PartialEq)]
pub struct PhoneNumber {
    pub id: PhoneNumberId,
    pub account: AccountId,
    /// As it was given: E.164, or digits as the carrier writes them.
    pub phone_number: String,
    pub provider: Provider,
    pub friendly_name: String,
    /// Who answers.
    pub agent_id: Option<AgentId>,
    /// Whether calls may be placed from it.
    pub outbound_enabled: bool,
    pub trunk_id: Option<TrunkId>,
    pub routing_rules: Option<RoutingRules>,
    pub telco_account_id: Option<String>,
    pub messaging_account_id: Option<String>,
    pub sms_sender: bool,
    pub sms_sender_default: bool,
    pub sms_inbound: bool,
    pub replies_acknowledged_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The number of this id.
pub async fn get(
    db: &Db,
    account: AccountId,
    id: PhoneNumberId,
) -> Result<Option<PhoneNumber>, DbError> {
    db.query(
        "select * from phone_numbers where account_id = $1 and id = $2 and released_at is null",
    )
    .bind(account)
    .bind(id)
    .optional(read)
    .await
}

/// A page of numbers, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<PhoneNumber>, u64), DbError> {
    let total = db
        .query(
            "select count(*) as total from phone_numbers
             where account_id = $1 and released_at is null",
        )
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    let numbers = db
        .query(
            "select * from phone_numbers where account_id = $1 and released_at is null
             order by created_at desc, id desc limit $2 offset $3",
        )
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((numbers, total.unsigned_abs()))
}

/// The account's number, however it is written (with or without the plus).
pub async fn find_active_by_number(
    db: &Db,
    account: AccountId,
    number: &str,
) -> Result<Option<PhoneNumber>, DbError> {
    db.query(
        "select * from phone_numbers where account_id = $1 and digits = $2 and released_at is null
            and provider in ('telco', 'sip')",
    )
    .bind(account)
    .bind(digits(number))
    .optional(read)
    .await
}

/// The numbers that this agent answers, oldest first.
pub async fn of_agent(
    db: &Db,
    account: AccountId,
    agent: AgentId,
) -> Result<Vec<PhoneNumberId>, DbError> {
    db.query(
        "select id from phone_numbers where account_id = $1 and agent_id = $2
            and released_at is null order by created_at, id",
    )
    .bind(account)
    .bind(agent)
    .all(|row| row.parse("id"))
    .await
}

/// Adds a number; `false`: it is somebody's already.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    number: &PhoneNumber,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "insert into phone_numbers (id, account_id, phone_number, digits, provider, friendly_name,
                agent_id, outbound_enabled, trunk_id, routing_rules, created_at, updated_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             on conflict do nothing",
        )
        .bind(number.id)
        .bind(account)
        .bind(&number.phone_number)
        .bind(digits(&number.phone_number))
        .bind(number.provider.name())
        .bind(&number.friendly_name)
        .bind(number.agent_id)
        .bind(number.outbound_enabled)
        .bind(number.trunk_id)
        .bind(rules_text(number))
        .bind(number.created_at)
        .bind(number.updated_at)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// The number of this id, which stays as it is until the transaction ends.
pub async fn hold(
    tx: &mut Tx,
    account: AccountId,
    id: PhoneNumberId,
) -> Result<Option<PhoneNumber>, DbError> {
    let lock = tx.engine().for_update();
    tx.query_built(format!(
        "select * from phone_numbers
         where account_id = $1 and id = $2 and released_at is null{lock}"
    ))
    .bind(account)
    .bind(id)
    .optional(read)
    .await
}

/// Writes a changed number.
pub async fn update(tx: &mut Tx, account: AccountId, number: &PhoneNumber) -> Result<(), DbError> {
    tx.query(
        "update phone_numbers set friendly_name = $3, agent_id = $4, outbound_enabled = $5,
            trunk_id = $6, routing_rules = $7, updated_at = $8
         where account_id = $1 and id = $2 and released_at is null",
    )
    .bind(account)
    .bind(number.id)
    .bind(&number.friendly_name)
    .bind(number.agent_id)
    .bind(number.outbound_enabled)
    .bind(number.trunk_id)
    .bind(rules_text(number))
    .bind(number.updated_at)
    .execute()
    .await?;
    Ok(())
}

/// Releases a number; `false`: there was none.
pub async fn release(
    db: &Db,
    account: AccountId,
    id: PhoneNumberId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update phone_numbers set released_at = $3, updated_at = $3
             where account_id = $1 and id = $2 and released_at is null",
        )
        .bind(account)
        .bind(id)
        .bind(now)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// The account's own number of these digits, inside a transaction.
pub async fn own(
    tx: &mut Tx,
    account: AccountId,
    number: &str,
) -> Result<Option<PhoneNumberId>, DbError> {
    tx.query(
        "select id from phone_numbers where account_id = $1 and digits = $2 and released_at is null
            and provider in ('telco', 'sip')",
    )
    .bind(account)
    .bind(digits(number))
    .optional(|row| row.parse("id"))
    .await
}

/// Whether another account has this number.
pub async fn is_elsewhere(tx: &mut Tx, account: AccountId, number: &str) -> Result<bool, DbError> {
    let found = tx
        .query(
            "select id from phone_numbers where account_id <> $1 and digits = $2
                and released_at is null and provider in ('telco', 'sip')",
        )
        .bind(account)
        .bind(digits(number))
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// The numbers of other accounts that end with these digits, as they were given: all of them, so that nobody
/// hides one behind many.
pub async fn elsewhere_ending_with(
    tx: &mut Tx,
    account: AccountId,
    ending: &str,
) -> Result<Vec<String>, DbError> {
    tx.query(
        "select phone_number from phone_numbers where account_id <> $1 and digits like $2
            and released_at is null and provider in ('telco', 'sip')",
    )
    .bind(account)
    .bind(format!("%{ending}"))
    .all(|row| row.text("phone_number"))
    .await
}

/// Numbers that end alike: hardly ever more than one for each country.
const MOST_ENDINGS: u32 = 256;

/// The numbers on this trunk that end with these digits; on any trunk when `None`.
pub async fn ending_with(
    db: &Db,
    account: AccountId,
    trunk: Option<TrunkId>,
    ending: &str,
) -> Result<Vec<PhoneNumber>, DbError> {
    db.query(
        "select * from phone_numbers where account_id = $1 and digits like $2
            and ($3 is null or trunk_id = $3) and released_at is null and provider = 'sip'
         order by id limit $4",
    )
    .bind(account)
    .bind(format!("%{ending}"))
    .bind(trunk)
    .bind(MOST_ENDINGS)
    .all(read)
    .await
}

/// Numbers of one trunk are of one country, or of few.
const MOST_NEIGHBOURS: u32 = 32;

/// The first numbers on this trunk that are registered in E.164.
pub async fn whole_of_trunk(
    db: &Db,
    account: AccountId,
    trunk: TrunkId,
) -> Result<Vec<String>, DbError> {
    db.query(
        "select phone_number from phone_numbers where account_id = $1 and trunk_id = $2
            and phone_number like '+%' and released_at is null order by created_at, id limit $3",
    )
    .bind(account)
    .bind(trunk)
    .bind(MOST_NEIGHBOURS)
    .all(|row| row.text("phone_number"))
    .await
}

/// The number on this trunk, where there is one alone.
pub async fn only_of_trunk(
    db: &Db,
    account: AccountId,
    trunk: TrunkId,
) -> Result<Option<PhoneNumber>, DbError> {
    let found = db
        .query(
            "select * from phone_numbers where account_id = $1 and trunk_id = $2
                and released_at is null and provider = 'sip' order by id limit 2",
        )
        .bind(account)
        .bind(trunk)
        .all(read)
        .await?;
    let mut found = found.into_iter();
    Ok(found.next().filter(|_| found.next().is_none()))
}

/// Takes a trunk from its numbers: it is deleted.
pub async fn leave_trunk(
    tx: &mut Tx,
    account: AccountId,
    trunk: TrunkId,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "update phone_numbers set trunk_id = null, updated_at = $3
         where account_id = $1 and trunk_id = $2",
    )
    .bind(account)
    .bind(trunk)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

/// Takes an agent from its numbers: it is deleted. How many numbers it answered.
pub async fn leave_agent(
    tx: &mut Tx,
    account: AccountId,
    agent: AgentId,
    now: Timestamp,
) -> Result<u64, DbError> {
    tx.query(
        "update phone_numbers set agent_id = null, updated_at = $3
         where account_id = $1 and agent_id = $2 and released_at is null",
    )
    .bind(account)
    .bind(agent)
    .bind(now)
    .execute()
    .await
}

fn rules_text(number: &PhoneNumber) -> Option<String> {
    let rules = number.routing_rules.as_ref()?;
    let text = serde_json::json!({
        "fallback_action": rules.fallback_action.name(),
        "fallback_number": rules.fallback_number,
        "max_ring_seconds": rules.max_ring_seconds,
    });
    Some(text.to_string())
}

pub(super) fn read(row: &Row) -> Result<PhoneNumber, DbError> {
    Ok(PhoneNumber {
        id: row.parse("id")?,
        account: row.parse("account_id")?,
        phone_number: row.text("phone_number")?,
        provider: row.parse("provider")?,
        friendly_name: row.text("friendly_name")?,
        agent_id: row.opt_parse("agent_id")?,
        outbound_enabled: row.bool("outbound_enabled")?,
        trunk_id: row.opt_parse("trunk_id")?,
        routing_rules: row.opt_json("routing_rules")?,
        telco_account_id: row.opt_text("telco_account_id")?,
        messaging_account_id: row.opt_text("messaging_account_id")?,
        sms_sender: row.bool("sms_sender")?,
        sms_sender_default: row.bool("sms_sender_default")?,
        sms_inbound: row.bool("sms_inbound")?,
        replies_acknowledged_at: row.opt_time("replies_acknowledged_at")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
