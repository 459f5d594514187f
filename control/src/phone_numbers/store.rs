//! The `phone_numbers` table.

use super::rules::{Provider, RoutingRules, digits};
use crate::db::{Db, DbError, Row};
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

/// Whose number was called, in whichever account: only the network asks, which has no key.
pub async fn whose(db: &Db, number: &str) -> Result<Option<PhoneNumber>, DbError> {
    db.query(
        "select * from phone_numbers where digits = $1 and released_at is null
            and provider in ('telco', 'sip')",
    )
    .bind(digits(number))
    .optional(read)
    .await
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
