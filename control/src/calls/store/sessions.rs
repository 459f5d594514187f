//! The `sessions` table: who may join a call, once. `expires_at` and every `now` that it is compared with are
//! of the time that all processes of one database share ([`crate::time::Clock::shared`]).

use uuid::Uuid;

use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

/// How one session may be joined.
#[derive(Clone, Debug)]
pub struct SessionRow {
    pub id: CallId,
    pub account: AccountId,
    pub transport: String,
    pub protocol: String,
    pub audio_format: String,
    /// Opened without an API key.
    pub keyless: bool,
    /// The call token that opened it; `None`: an API key did.
    pub opened_by: Option<Uuid>,
    pub expires_at: Timestamp,
    pub spent_at: Option<Timestamp>,
    /// Of the trace that its call belongs to, as `connect` was given it.
    pub traceparent: Option<String>,
}

/// A session at its creation.
pub struct NewSession<'a> {
    pub id: CallId,
    pub transport: &'a str,
    pub protocol: &'a str,
    pub audio_format: &'a str,
    /// SHA-256 of the one-time token, hex; empty where none joins it.
    pub token_hash: &'a str,
    pub keyless: bool,
    pub opened_by: Option<Uuid>,
    /// What a visitor of a public agent is counted by.
    pub visitor: Option<&'a str>,
    pub expires_at: Timestamp,
}

/// Adds a session to its call, in the transaction that makes the call.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    session: &NewSession<'_>,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "insert into sessions (id, account_id, transport, protocol, audio_format, token_hash, keyless, opened_by,
            visitor, expires_at, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(session.id)
    .bind(account)
    .bind(session.transport)
    .bind(session.protocol)
    .bind(session.audio_format)
    .bind(session.token_hash)
    .bind(session.keyless)
    .bind(session.opened_by.map(|id| id.to_string()))
    .bind(session.visitor)
    .bind(session.expires_at)
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

/// One session of the account.
pub async fn get(db: &Db, account: AccountId, id: CallId) -> Result<Option<SessionRow>, DbError> {
    db.query("select * from sessions where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .optional(SessionRow::read)
        .await
}

/// Whether another account has a session of this id.
pub async fn is_of_another(db: &Db, account: AccountId, id: CallId) -> Result<bool, DbError> {
    let found = db
        .query("select id from sessions where id = $1 and account_id <> $2")
        .bind(id)
        .bind(account)
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Uses up a session that is joined by an offer: `false` when it was joined, has expired or is over.
pub async fn join(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update sessions set spent_at = $1
             where account_id = $2 and id = $3 and spent_at is null and expires_at > $1",
        )
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// How many calls of this visitor are open, whoever's agents they are with. Of two transactions that ask
/// for one visitor, one waits for the other's end.
pub async fn open_of_visitor(tx: &mut Tx, visitor: &str) -> Result<u64, DbError> {
    tx.alone_at(&format!("visitor {visitor}")).await?;
    let open = tx
        .query(
            "select count(*) as open from sessions s join calls c on c.id = s.id
             where s.visitor = $1 and c.ended_at is null",
        )
        .bind(visitor)
        .one(|row| row.i64("open"))
        .await?;
    Ok(open.unsigned_abs())
}

/// Uses up the one-time token: of any number of racers one gets the session, the others `None`, as
/// does who comes late or with another token. The account follows from the token, whose holder has
/// no key.
pub async fn consume(
    tx: &mut Tx,
    id: CallId,
    token_hash: &str,
    now: Timestamp,
) -> Result<Option<SessionRow>, DbError> {
    tx.query(
        "update sessions set spent_at = $1
         where id = $2 and token_hash = $3 and spent_at is null and expires_at > $1
         returning *",
    )
    .bind(now)
    .bind(id)
    .bind(token_hash)
    .optional(SessionRow::read)
    .await
}

/// Whether this one-time token would open its session now. Who asks has no key: the account follows from the
/// token.
pub async fn is_open(
    db: &Db,
    id: CallId,
    token_hash: &str,
    now: Timestamp,
) -> Result<bool, DbError> {
    let found = db
        .query(
            "select id from sessions
             where id = $1 and token_hash = $2 and spent_at is null and expires_at > $3",
        )
        .bind(id)
        .bind(token_hash)
        .bind(now)
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Whether this is a session of the telephony protocol that may still be joined. Who asks has no key
/// yet: the account follows from the session.
pub async fn is_open_for_telco(db: &Db, id: CallId, now: Timestamp) -> Result<bool, DbError> {
    let found = db
        .query(
            "select id from sessions
             where id = $1 and protocol = 'telco' and spent_at is null and expires_at > $2",
        )
        .bind(id)
        .bind(now)
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Notes whose trace the session's call belongs to.
pub async fn set_traceparent(
    db: &Db,
    account: AccountId,
    id: CallId,
    traceparent: &str,
) -> Result<(), DbError> {
    db.query("update sessions set traceparent = $1 where account_id = $2 and id = $3")
        .bind(traceparent)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
}

/// Closes a session to everybody, because its call is over.
pub async fn close(
    tx: &mut Tx,
    account: AccountId,
    id: CallId,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "update sessions set spent_at = coalesce(spent_at, $1) where account_id = $2 and id = $3",
    )
    .bind(now)
    .bind(account)
    .bind(id)
    .execute()
    .await?;
    Ok(())
}

/// Sessions of all accounts that nobody joined in time, oldest first: the sweeper's work.
pub async fn expired(
    db: &Db,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(AccountId, CallId)>, DbError> {
    db.query(
        "select account_id, id from sessions where spent_at is null and expires_at <= $1
         order by expires_at limit $2",
    )
    .bind(now)
    .bind(limit)
    .all(|row| Ok((row.parse("account_id")?, row.parse("id")?)))
    .await
}

impl SessionRow {
    fn read(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.parse("id")?,
            account: row.parse("account_id")?,
            transport: row.text("transport")?,
            protocol: row.text("protocol")?,
            audio_format: row.text("audio_format")?,
            keyless: row.bool("keyless")?,
            opened_by: row.opt_parse("opened_by")?,
            expires_at: row.time("expires_at")?,
            spent_at: row.opt_time("spent_at")?,
            traceparent: row.opt_text("traceparent")?,
        })
    }
}
