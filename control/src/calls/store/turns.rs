//! The turns of a call: what was said in it.

use serde_json::Value;

use super::containing;
use crate::calls::journal::Owner;
use crate::db::{self, Arg, Db, Engine, Query, Tx, args};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

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
) -> db::Result<()> {
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
) -> db::Result<()> {
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
    query.bind_all(args![
        of.call,
        turn.index,
        of.account,
        turn.body,
        now,
        of.incarnation,
        turn.text.to_lowercase()
    ])
}

/// Writes a turn of a call that this incarnation still hosts anew; its words are the same.
pub async fn replace_turn(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
    incarnation: i64,
    turn: &Value,
) -> db::Result<()> {
    tx.query(
        "update turns set body = $1 where account_id = $2 and call_id = $3 and idx = $4
            and exists (select 1 from calls where id = $3 and coalesce(owner_incarnation, 0) = $5 and ended_at is null)",
    )
    .bind_all(args![turn.to_string(), account, call, turn["index"].as_i64(), incarnation])
    .execute()
    .await?;
    Ok(())
}

const IN_ORDER: &str = "select body from turns where account_id = $1 and call_id = $2 order by idx";

/// The turns of a call, in order, as JSON.
pub async fn turns(db: &Db, account: AccountId, id: CallId) -> db::Result<Vec<Value>> {
    let turns = db.query(IN_ORDER).bind_all(args![account, id]);
    turns.all(|row| row.json("body")).await
}

/// The same inside a transaction.
pub async fn turns_in(tx: &mut Tx, account: AccountId, id: CallId) -> db::Result<Vec<Value>> {
    let turns = tx.query(IN_ORDER).bind_all(args![account, id]);
    turns.all(|row| row.json("body")).await
}

/// The first turns of a call in which one of these was said, as JSON.
pub async fn turns_with(
    db: &Db,
    account: AccountId,
    id: CallId,
    said: &[String],
    most: u32,
) -> db::Result<Vec<Value>> {
    let any: Vec<String> = (0..said.len())
        .map(|place| format!("words like ${} escape '\\'", place + 3))
        .collect();
    let sql = format!(
        "select body from turns where account_id = $1 and call_id = $2 and ({}) order by idx limit ${}",
        any.join(" or "),
        said.len() + 3
    );
    db.query_built(sql)
        .bind_all(args![account, id])
        .bind_all(said.iter().map(|text| Arg::from(containing(text))))
        .bind(most)
        .all(|row| row.json("body"))
        .await
}
