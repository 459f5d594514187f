//! The `sessions` table: who may join a call, once. `expires_at` and every `now` that it is compared with are
//! of the time that all processes of one database share ([`crate::time::Clock::shared`]).

use uuid::Uuid;

use crate::calls::rules::Transport;
use crate::db::{self, Db, Record, Tx, args, named, record};
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

record! {
    /// How one session may be joined.
    #[derive(Clone, Debug)]
    pub struct SessionRow in "sessions" {
        id: CallId,
        account: AccountId as "account_id",
        transport: Transport,
        protocol: String,
        audio_format: String,
        /// Opened without an API key.
        keyless: bool,
        /// The call token that opened it; `None`: an API key did.
        opened_by: Option<Uuid>,
        expires_at: Timestamp,
        spent_at: Option<Timestamp>,
        /// Of the trace that its call belongs to, as `connect` was given it.
        traceparent: Option<String>,
    }
}

/// A session at its creation.
pub struct NewSession<'a> {
    pub id: CallId,
    pub transport: Transport,
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
) -> db::Result<()> {
    let row = named! {
        id: session.id,
        account_id: account,
        transport: session.transport,
        protocol: session.protocol,
        audio_format: session.audio_format,
        token_hash: session.token_hash,
        keyless: session.keyless,
        opened_by: session.opened_by,
        visitor: session.visitor,
        expires_at: session.expires_at,
        created_at: now,
    };
    tx.insert_into("sessions", row).run().await.map(drop)
}

/// One session of the account.
pub async fn get(db: &Db, account: AccountId, id: CallId) -> db::Result<Option<SessionRow>> {
    db.of(account).get(id).await
}

/// Whether another account has a session of this id.
pub async fn is_of_another(db: &Db, account: AccountId, id: CallId) -> db::Result<bool> {
    let found = db
        .query("select id from sessions where id = $1 and account_id <> $2")
        .bind_all(args![id, account])
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Uses up a session that is joined by an offer: `false` when it was joined, has expired or is over.
pub async fn join(tx: &mut Tx, account: AccountId, id: CallId, now: Timestamp) -> db::Result<bool> {
    let session = tx.of::<SessionRow>(account).whose("id", id);
    let open = session
        .only("spent_at is null")
        .such("expires_at > $?", now);
    Ok(open.set(named! { spent_at: now }).await? == 1)
}

/// How many calls of this visitor are open, whoever's agents they are with. Of two transactions that ask
/// for one visitor, one waits for the other's end.
pub async fn open_of_visitor(tx: &mut Tx, visitor: &str) -> db::Result<u64> {
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
) -> db::Result<Option<SessionRow>> {
    tx.query(
        "update sessions set spent_at = $1
         where id = $2 and token_hash = $3 and spent_at is null and expires_at > $1
         returning *",
    )
    .bind_all(args![now, id, token_hash])
    .optional(SessionRow::read)
    .await
}

/// Whether this one-time token would open its session now. Who asks has no key: the account follows from the
/// token.
pub async fn is_open(db: &Db, id: CallId, token_hash: &str, now: Timestamp) -> db::Result<bool> {
    let found = db
        .query(
            "select id from sessions
             where id = $1 and token_hash = $2 and spent_at is null and expires_at > $3",
        )
        .bind_all(args![id, token_hash, now])
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// Whether this is a session of the telephony protocol that may still be joined. Who asks has no key
/// yet: the account follows from the session.
pub async fn is_open_for_telco(db: &Db, id: CallId, now: Timestamp) -> db::Result<bool> {
    let found = db
        .query(
            "select id from sessions
             where id = $1 and protocol = 'telco' and spent_at is null and expires_at > $2",
        )
        .bind_all(args![id, now])
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
) -> db::Result<()> {
    let session = db.of::<SessionRow>(account).whose("id", id);
    let traced = named! { traceparent: traceparent };
    session.set(traced).await.map(drop)
}

/// Closes a session to everybody, because its call is over.
pub async fn close(tx: &mut Tx, account: AccountId, id: CallId, now: Timestamp) -> db::Result<()> {
    let session = tx.of::<SessionRow>(account).whose("id", id);
    let open = session.only("spent_at is null");
    open.set(named! { spent_at: now }).await.map(drop)
}

/// Sessions of all accounts that nobody joined in time, oldest first: the sweeper's work.
pub async fn expired(db: &Db, now: Timestamp, limit: u32) -> db::Result<Vec<(AccountId, CallId)>> {
    db.query(
        "select account_id, id from sessions where spent_at is null and expires_at <= $1
         order by expires_at limit $2",
    )
    .bind_all(args![now, limit])
    .all(|row| Ok((row.parse("account_id")?, row.parse("id")?)))
    .await
}
