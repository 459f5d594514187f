//! The `phone_numbers` table.

use super::rules::{Provider, RoutingRules, digits};
use crate::db::{self, Db, Tx, args, json_column, named, record, text_column};
use crate::ids::{AccountId, AgentId, PhoneNumberId, TrunkId};
use crate::time::Timestamp;

record! {
    /// A number that is not released. It has no `Debug`: it is a phone number.
    #[derive(Clone, PartialEq)]
    pub struct PhoneNumber in "phone_numbers" where "released_at is null" {
        id: PhoneNumberId,
        account: AccountId as "account_id",
        /// As it was given: E.164, or digits as the carrier writes them.
        phone_number: String,
        provider: Provider,
        friendly_name: String,
        /// Who answers.
        agent_id: Option<AgentId>,
        /// Whether calls may be placed from it.
        outbound_enabled: bool,
        trunk_id: Option<TrunkId>,
        routing_rules: Option<RoutingRules>,
        telco_account_id: Option<String>,
        messaging_account_id: Option<String>,
        sms_sender: bool,
        sms_sender_default: bool,
        sms_inbound: bool,
        replies_acknowledged_at: Option<Timestamp>,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

text_column!(Provider);
json_column!(RoutingRules);

/// Numbers that a call can reach; short codes are their carrier's.
const VOICE: &str = "provider in ('telco', 'sip')";

/// The number of this id.
pub async fn get(
    db: &Db,
    account: AccountId,
    id: PhoneNumberId,
) -> db::Result<Option<PhoneNumber>> {
    db.of(account).get(id).await
}

/// The account's number, however it is written (with or without the plus).
pub async fn find_active_by_number(
    db: &Db,
    account: AccountId,
    number: &str,
) -> db::Result<Option<PhoneNumber>> {
    let numbers = db.of(account).whose("digits", digits(number));
    numbers.only(VOICE).first().await
}

/// The numbers that this agent answers, oldest first.
pub async fn of_agent(
    db: &Db,
    account: AccountId,
    agent: AgentId,
) -> db::Result<Vec<PhoneNumberId>> {
    let numbers = db.of::<PhoneNumber>(account).whose("agent_id", agent);
    let found = numbers.all("created_at, id").await?;
    Ok(found.into_iter().map(|number| number.id).collect())
}

/// Adds a number; `false`: it is somebody's already.
pub async fn insert(tx: &mut Tx, account: AccountId, number: &PhoneNumber) -> db::Result<bool> {
    let insert = tx.insert(account, number);
    let insert = insert.also("digits", digits(&number.phone_number));
    insert.unless("on conflict do nothing").run().await
}

/// Releases a number; `false`: there was none.
pub async fn release(
    db: &Db,
    account: AccountId,
    id: PhoneNumberId,
    now: Timestamp,
) -> db::Result<bool> {
    let number = db.of::<PhoneNumber>(account).whose("id", id);
    let released = named! { released_at: now, updated_at: now };
    Ok(number.set(released).await? == 1)
}

/// The account's own number of these digits, inside a transaction.
pub async fn own(
    tx: &mut Tx,
    account: AccountId,
    number: &str,
) -> db::Result<Option<PhoneNumberId>> {
    let numbers = tx.of(account).whose("digits", digits(number));
    let found: Option<PhoneNumber> = numbers.only(VOICE).first().await?;
    Ok(found.map(|number| number.id))
}

/// Whether another account has this number.
pub async fn is_elsewhere(tx: &mut Tx, account: AccountId, number: &str) -> db::Result<bool> {
    let found = tx
        .query(
            "select id from phone_numbers where account_id <> $1 and digits = $2
                and released_at is null and provider in ('telco', 'sip')",
        )
        .bind_all(args![account, digits(number)])
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
) -> db::Result<Vec<String>> {
    tx.query(
        "select phone_number from phone_numbers where account_id <> $1 and digits like $2
            and released_at is null and provider in ('telco', 'sip')",
    )
    .bind_all(args![account, format!("%{ending}")])
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
) -> db::Result<Vec<PhoneNumber>> {
    let numbers = db
        .of(account)
        .whose_if("trunk_id", trunk)
        .only("provider = 'sip'");
    let found = numbers.like("digits", format!("%{ending}"));
    found.some("id", MOST_ENDINGS).await
}

/// Numbers of one trunk are of one country, or of few.
const MOST_NEIGHBOURS: u32 = 32;

/// The first numbers on this trunk that are registered in E.164.
pub async fn whole_of_trunk(
    db: &Db,
    account: AccountId,
    trunk: TrunkId,
) -> db::Result<Vec<String>> {
    let numbers = db.of::<PhoneNumber>(account).whose("trunk_id", trunk);
    let whole = numbers.only("phone_number like '+%'");
    let found = whole.some("created_at, id", MOST_NEIGHBOURS).await?;
    Ok(found
        .into_iter()
        .map(|number| number.phone_number)
        .collect())
}

/// The number on this trunk, where there is one alone.
pub async fn only_of_trunk(
    db: &Db,
    account: AccountId,
    trunk: TrunkId,
) -> db::Result<Option<PhoneNumber>> {
    let numbers = db
        .of(account)
        .whose("trunk_id", trunk)
        .only("provider = 'sip'");
    let found = numbers.some("id", 2).await?;
    let mut found = found.into_iter();
    Ok(found.next().filter(|_| found.next().is_none()))
}

/// Takes a trunk from its numbers: it is deleted.
pub async fn leave_trunk(
    tx: &mut Tx,
    account: AccountId,
    trunk: TrunkId,
    now: Timestamp,
) -> db::Result<()> {
    tx.query(
        "update phone_numbers set trunk_id = null, updated_at = $3
         where account_id = $1 and trunk_id = $2",
    )
    .bind_all(args![account, trunk, now])
    .execute()
    .await
    .map(drop)
}

/// Takes an agent from its numbers: it is deleted. How many numbers it answered.
pub async fn leave_agent(
    tx: &mut Tx,
    account: AccountId,
    agent: AgentId,
    now: Timestamp,
) -> db::Result<u64> {
    let numbers = tx.of::<PhoneNumber>(account).whose("agent_id", agent);
    numbers
        .set(named! { agent_id: None::<AgentId>, updated_at: now })
        .await
}

/// Whether the agent is there, and stays so until the transaction ends.
pub async fn hold_agent(tx: &mut Tx, account: AccountId, agent: AgentId) -> db::Result<bool> {
    let lock = tx.engine().for_share();
    let found = tx.query_built(format!(
        "select id from agents where account_id = $1 and id = $2{lock}"
    ));
    let found = found.bind(account).bind(agent);
    Ok(found.optional(|row| row.text("id")).await?.is_some())
}

/// Whether calls may go over the trunk, which stays as it is until the transaction ends; `None`: there is no such
/// trunk.
pub async fn hold_trunk(
    tx: &mut Tx,
    account: AccountId,
    trunk: TrunkId,
) -> db::Result<Option<bool>> {
    let lock = tx.engine().for_update();
    let found = tx.query_built(format!(
        "select status from sip_trunks where account_id = $1 and id = $2 and deleted_at is null{lock}"
    ));
    let found = found.bind(account).bind(trunk);
    found
        .optional(|row| Ok(row.text("status")? == "active"))
        .await
}
