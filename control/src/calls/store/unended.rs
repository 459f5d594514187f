//! Calls that have not ended, of all accounts: what the nodes ask for their own housekeeping.

use std::collections::HashSet;

use super::CallRow;
use crate::db::{self, Db, Record, args};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

/// Calls that earlier incarnations of this node hosted and never ended. Of all accounts: this is the
/// node's own housekeeping.
pub async fn orphans(db: &Db, node: &str, incarnation: i64) -> db::Result<Vec<CallRow>> {
    db.query_built(format!(
        "select * from {} where owner_node = $1 and owner_incarnation < $2 and ended_at is null order by id",
        CallRow::SOURCE
    ))
    .bind_all(args![node, incarnation])
    .all(CallRow::read)
    .await
}

/// Calls of all accounts that no living node hosts any more.
pub async fn without_node(db: &Db) -> db::Result<Vec<CallRow>> {
    db.query_built(format!(
        "select * from {} where ended_at is null and owner_incarnation is not null
            and owner_incarnation not in (select incarnation from nodes where lost_at is null)
         order by id",
        CallRow::SOURCE
    ))
    .all(CallRow::read)
    .await
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
pub async fn open(db: &Db, now: Timestamp) -> db::Result<Vec<OpenRow>> {
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
pub async fn open_among(db: &Db, ids: &[CallId]) -> db::Result<HashSet<CallId>> {
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
