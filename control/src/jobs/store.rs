//! The statements on a kind's table: what is due, the claim, its renewal, the finish.
//!
//! On SQLite there is one writer. On PostgreSQL a claim leaves out rows that another process is claiming at
//! this moment, so that nobody waits for anybody.

use std::time::Duration;

use uuid::Uuid;

use super::kind::{Finished, Held, Kind, Table, Then};
use crate::db::{Arg, Db, DbError, Query, Row, Tx, args};
use crate::ids::AccountId;
use crate::time::Timestamp;

/// A look at what is due in an account.
#[derive(Debug)]
pub struct Look<'a> {
    pub db: &'a Db,
    pub account: AccountId,
    pub now: Timestamp,
    limit: u32,
    table: &'static Table,
}

impl<'a> Look<'a> {
    /// A look at a kind's table that reads `limit` rows at most.
    pub fn new<K: Kind>(db: &'a Db, account: AccountId, now: Timestamp, limit: u32) -> Self {
        Self {
            db,
            account,
            now,
            limit,
            table: K::TABLE,
        }
    }

    /// The place of the first value of `except` in [`Look::rows`].
    pub const FIRST: usize = 4;

    /// Columns of the rows that are due, oldest first. `except` is empty or a further condition that begins
    /// with ` and `, whose `values` begin at `$4` ([`Look::FIRST`]).
    pub async fn rows<T>(
        &self,
        columns: &'static str,
        except: &str,
        values: Vec<Arg>,
        read: impl FnMut(&Row) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let Table { name, open, .. } = self.table;
        self.db
            .query_built(format!(
                "select {columns} from {name}
                 where account_id = $1 and {open} and next_attempt_at <= $2{except}
                 order by next_attempt_at, id limit $3"
            ))
            .bind_all(args![self.account, self.now, self.limit])
            .bind_all(values)
            .all(read)
            .await
    }
}

/// The accounts that have something due, sorted: the node's own housekeeping, of all accounts.
pub async fn due_accounts<K: Kind>(db: &Db, now: Timestamp) -> Result<Vec<AccountId>, DbError> {
    let Table { name, open, .. } = K::TABLE;
    db.query_built(format!(
        "select a.id from accounts a where exists (select 1 from {name} j
            where j.account_id = a.id and j.{open} and j.next_attempt_at <= $1) order by a.id"
    ))
    .bind(now)
    .all(|row| row.parse("id"))
    .await
}

/// Takes a due row until `lease_end`. `None`: another process has it, or it is settled.
pub async fn claim<K: Kind>(
    tx: &mut Tx,
    account: AccountId,
    id: Uuid,
    now: Timestamp,
    lease_end: Timestamp,
) -> Result<Option<(Held, K::Job)>, DbError> {
    let Table {
        name,
        open,
        claimed,
        columns,
        ..
    } = K::TABLE;
    let skip = tx.engine().skip_locked();
    let intended = match K::UNKNOWN {
        Some(_) => "intended_at, ",
        None => "",
    };
    tx.query_built(format!(
        "update {name} set status = '{claimed}', claim_token = claim_token + 1, attempts = attempts + 1,
            next_attempt_at = $1, updated_at = $2
         where id = (select id from {name}
            where account_id = $3 and id = $4 and {open} and next_attempt_at <= $2{skip})
         returning claim_token, attempts, {intended}{columns}"
    ))
    .bind_all(args![lease_end, now, account, id])
    .optional(|row| {
        let held = Held {
            account,
            id,
            token: row.i64("claim_token")?,
            attempts: row.u32("attempts")?,
            intended_at: match K::UNKNOWN {
                Some(_) => row.opt_time("intended_at")?,
                None => None,
            },
        };
        Ok((held, K::read(row)?))
    })
    .await
}

/// What people read of a job that ended as unknown.
pub(super) const NOBODY_KNOWS: &str =
    "The server stopped while this was being done. It may have been done; it was not repeated.";

/// Settles a due row without a step, as `status`; as unknown where its deed may have been done. How it was
/// settled. `None`: it was settled or taken meanwhile.
pub async fn close<K: Kind>(
    tx: &mut Tx,
    account: AccountId,
    id: Uuid,
    status: K::Status,
    now: Timestamp,
) -> Result<Option<K::Status>, DbError> {
    let Table { name, open, .. } = K::TABLE;
    let ends: &[(K::Status, &str, Option<&str>)] = match K::UNKNOWN {
        None => &[(status, "", None)],
        Some(unknown) => &[
            (status, " and intended_at is null", None),
            (unknown, " and intended_at is not null", Some(NOBODY_KNOWS)),
        ],
    };
    for (status, which, error) in ends {
        let rows = tx
            .query_built(format!(
                "update {name} set status = $1, next_attempt_at = null, claim_token = claim_token + 1,
                    updated_at = $2, last_error = coalesce($5, last_error)
                 where account_id = $3 and id = $4 and {open} and next_attempt_at <= $2{which}"
            ))
            .bind_all(args![K::word(*status), now, account, id, *error])
            .execute()
            .await?;
        if rows == 1 {
            return Ok(Some(*status));
        }
    }
    Ok(None)
}

/// Moves the end of a claim. `false`: the claim is lost.
pub async fn renew<K: Kind>(db: &Db, held: &Held, lease_end: Timestamp) -> Result<bool, DbError> {
    move_end::<K>(db, held, lease_end, None).await
}

/// Notes that the holder of a claim is about to do what must not be repeated, and gives it a whole claim of
/// time for that. `false`: the claim is lost.
pub async fn intend<K: Kind>(
    db: &Db,
    held: &Held,
    now: Timestamp,
    lease_end: Timestamp,
) -> Result<bool, DbError> {
    const {
        assert!(
            K::UNKNOWN.is_some(),
            "a kind that intends has a word for unknown"
        )
    };
    move_end::<K>(db, held, lease_end, Some(now)).await
}

/// Moves the end of a claim, of a deed that is intended then.
async fn move_end<K: Kind>(
    db: &Db,
    held: &Held,
    lease_end: Timestamp,
    intended_at: Option<Timestamp>,
) -> Result<bool, DbError> {
    let Table { name, claimed, .. } = K::TABLE;
    // Only tables of kinds that intend have the column.
    let intended = match intended_at {
        Some(_) => ", intended_at = $5",
        None => "",
    };
    let rows = db
        .query_built(format!(
            "update {name} set next_attempt_at = $1{intended}
             where account_id = $2 and id = $3 and claim_token = $4 and status = '{claimed}'"
        ))
        .bind_all(args![lease_end, held.account, held.id, held.token])
        .bind_all(intended_at.map(Arg::from))
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes down how a claimed job went. `false`: the claim ran out and another has it; nothing was written.
pub async fn finish<K: Kind>(
    db: &Db,
    held: &Held,
    finished: &Finished<K::Status>,
    then: Then,
    now: Timestamp,
) -> Result<bool, DbError> {
    let query = db.query_built(finishing::<K>(then));
    Ok(bound::<K>(query, held, finished, now).execute().await? == 1)
}

/// As [`finish`], in the transaction of the step's effect.
pub async fn finish_in<K: Kind>(
    tx: &mut Tx,
    held: &Held,
    finished: &Finished<K::Status>,
    then: Then,
    now: Timestamp,
) -> Result<bool, DbError> {
    let query = tx.query_built(finishing::<K>(then));
    Ok(bound::<K>(query, held, finished, now).execute().await? == 1)
}

fn finishing<K: Kind>(then: Then) -> String {
    let Table {
        name,
        claimed,
        done,
        ..
    } = K::TABLE;
    let done = done.map_or_else(String::new, |(_, at)| format!(", {at} = $8"));
    let intended = match (K::UNKNOWN, then) {
        (None, _) | (Some(_), Then::Ask) => "",
        (Some(_), Then::Attempt | Then::Step) => ", intended_at = null",
    };
    let attempts = match then {
        Then::Step => ", attempts = 0",
        Then::Attempt | Then::Ask => "",
    };
    format!(
        "update {name} set status = $1, next_attempt_at = $2, last_error = $3, updated_at = $4{done}{intended}{attempts}
         where account_id = $5 and id = $6 and claim_token = $7 and status = '{claimed}'"
    )
}

fn bound<'a, K: Kind>(
    query: Query<'a>,
    held: &Held,
    finished: &Finished<K::Status>,
    now: Timestamp,
) -> Query<'a> {
    let Finished {
        status,
        next_attempt_at,
        error,
    } = finished;
    let word = K::word(*status);
    let query = query
        .bind_all(args![
            word,
            *next_attempt_at,
            error.as_deref(),
            now,
            held.account,
            held.id
        ])
        .bind(held.token);
    match K::TABLE.done {
        Some((done, _)) => query.bind((word == done).then_some(now)),
        None => query,
    }
}

/// Makes due what waits for longer than any pause or claim lasts: its time was written by a clock that was
/// ahead, of an earlier process or of another node. How many rows there were. The node's own housekeeping, of
/// all accounts.
pub async fn mend<K: Kind>(db: &Db, now: Timestamp, longest: Duration) -> Result<u64, DbError> {
    let Table { name, open, .. } = K::TABLE;
    db.query_built(format!(
        "update {name} set next_attempt_at = $1 where {open} and next_attempt_at > $2"
    ))
    .bind_all(args![now, now.plus(longest)])
    .execute()
    .await
}
