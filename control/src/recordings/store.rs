//! The `recordings` and `audio_tokens` tables.

use crate::db::{self, Arg, Db, DbError, Row, Rows, Tx, Window, args, named, record};
use crate::ids::{AccountId, AgentId, CallId, RecordingId};
use crate::storage::ObjectKey;
use crate::time::Timestamp;
use crate::words::words;

use super::token::AudioToken;

record! {
    /// One recording that was not deleted.
    #[derive(Clone, Debug)]
    pub struct RecordingRow in "recordings" where "deleted_at is null" {
        id: RecordingId,
        account: AccountId as "account_id",
        call_id: CallId,
        agent_id: AgentId,
        status: Status,
        sample_rate: i64,
        samples: i64,
        size_bytes: i64,
        sha256: Option<String>,
        region: String,
        /// Where the WAV lies, once it is ready.
        key: Option<ObjectKey> => key,
        created_at: Timestamp,
        updated_at: Timestamp,
        ready_at: Option<Timestamp>,
    }
}

words! {
    /// Where a recording stands.
    pub enum Status { Uploading = "uploading", Ready = "ready", Failed = "failed" }
}

/// A key that nobody can read is none: there is nothing to be heard then.
fn key(row: &Row) -> db::Result<Option<ObjectKey>> {
    let key = row.opt_text("storage_key")?;
    Ok(key.and_then(|key| ObjectKey::parse(&key)))
}

/// What is known of a recording once its file is in the store.
pub struct Kept<'a> {
    pub samples: u64,
    pub size_bytes: u64,
    pub sha256: &'a str,
    pub key: &'a ObjectKey,
    pub tape_key: Option<&'a ObjectKey>,
}

/// Objects of a deleted recording that still have to be removed from the store.
pub struct Leftover {
    pub id: RecordingId,
    pub keys: [ObjectKey; 3],
}

/// What is to become of the files that a call left on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lot {
    /// It is not over.
    Open,
    /// Its recording is to be stored, since then.
    Uploading { since: Timestamp },
    /// Its recording is stored, deleted, or given up.
    Settled,
    /// It died with its process then, and has no recording yet.
    Lost { since: Timestamp },
    /// It has no recording.
    Unrecorded,
}

/// Where the recording of a call stands.
#[derive(Clone, Debug)]
pub struct Standing {
    pub id: RecordingId,
    pub deleted: bool,
    /// Where its WAV lies, once that is settled.
    pub key: Option<ObjectKey>,
}

/// Adds the recording of a call that has just ended; its file follows.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    id: RecordingId,
    call: CallId,
    agent: AgentId,
    region: &str,
    now: Timestamp,
) -> db::Result<()> {
    let row = named! {
        id: id,
        account_id: account,
        call_id: call,
        agent_id: agent,
        status: Status::Uploading,
        sample_rate: media::time::RATE,
        region: region,
        created_at: now,
        updated_at: now,
    };
    tx.insert_into("recordings", row).run().await?;
    tx.query("update calls set recording_id = $1 where account_id = $2 and id = $3")
        .bind_all(args![id, account, call])
        .execute()
        .await
        .map(drop)
}

/// One recording of the account.
pub async fn get(db: &Db, account: AccountId, id: RecordingId) -> db::Result<Option<RecordingRow>> {
    db.of(account).get(id).await
}

/// The recording of one call of the account.
pub async fn of_call(
    db: &Db,
    account: AccountId,
    call: CallId,
) -> db::Result<Option<RecordingRow>> {
    db.of(account).whose("call_id", call).first().await
}

/// The account's recordings, newest first, and how many there are in all.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> db::Result<(Vec<RecordingRow>, u64)> {
    db.of(account).page(Window { limit, offset }).await
}

/// The recording of a call, be it deleted.
pub async fn standing(db: &Db, account: AccountId, call: CallId) -> db::Result<Option<Standing>> {
    db.query(
        "select id, storage_key, deleted_at from recordings where account_id = $1 and call_id = $2",
    )
    .bind_all(args![account, call])
    .optional(|row| {
        Ok(Standing {
            id: row.parse("id")?,
            deleted: row.opt_time("deleted_at")?.is_some(),
            key: key(row)?,
        })
    })
    .await
}

/// Writes down where the objects of a deleted recording lie that came after its deletion: [`leftovers`] has them.
pub async fn came_late(
    db: &Db,
    account: AccountId,
    id: RecordingId,
    kept: &Kept<'_>,
) -> db::Result<()> {
    db.query(
        "update recordings set storage_key = $1, tape_key = $2
         where account_id = $3 and id = $4 and deleted_at is not null",
    )
    .bind_all(args![
        kept.key.as_str(),
        kept.tape_key.map(ObjectKey::as_str),
        account,
        id
    ])
    .execute()
    .await?;
    Ok(())
}

/// Turns an uploading recording into a ready one. `false`: it was deleted meanwhile, or is settled, or the call has
/// none.
pub async fn ready(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
    now: Timestamp,
) -> db::Result<bool> {
    let stored = named! { status: Status::Ready, ready_at: now, updated_at: now };
    let recording = uploading(tx.of(account), call);
    let rows = recording.set(stored.into_iter().chain(kept.columns()));
    let is_ready = rows.await? == 1;
    if is_ready {
        tx.query(
            "update calls set has_recording = true, updated_at = $1 where account_id = $2 and id = $3",
        )
        .bind_all(args![now, account, call])
        .execute()
        .await?;
    }
    Ok(is_ready)
}

/// Turns an uploading recording into a failed one of which the beginning is kept. `false`: as in [`ready`].
pub async fn broken(
    db: &Db,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
    error: &str,
    now: Timestamp,
) -> db::Result<bool> {
    let failed = named! { status: Status::Failed, error: error, updated_at: now };
    let recording = uploading(db.of(account), call);
    let rows = recording.set(failed.into_iter().chain(kept.columns()));
    Ok(rows.await? == 1)
}

/// The recording of this call, while its file is awaited.
fn uploading(recordings: Rows<'_, RecordingRow>, call: CallId) -> Rows<'_, RecordingRow> {
    let of_call = recordings.whose("call_id", call);
    of_call.whose("status", Status::Uploading)
}

impl Kept<'_> {
    fn columns(&self) -> [(&'static str, Arg); 5] {
        named! {
            samples: self.samples,
            size_bytes: self.size_bytes,
            sha256: self.sha256,
            storage_key: self.key.as_str(),
            tape_key: self.tape_key.map(ObjectKey::as_str),
        }
    }
}

/// Writes down the tape of a call without a recording.
pub async fn insert_tape(
    db: &Db,
    account: AccountId,
    call: CallId,
    key: &ObjectKey,
    now: Timestamp,
) -> db::Result<()> {
    let tape =
        named! { call_id: call, account_id: account, storage_key: key.as_str(), created_at: now };
    let there = "on conflict (call_id) do nothing";
    let insert = db.insert_into("tapes", tape).unless(there);
    insert.run().await.map(drop)
}

/// Tapes of calls without recordings that are older than `before`, of all accounts, oldest first: the
/// node's own housekeeping.
pub async fn old_tapes(
    db: &Db,
    before: Timestamp,
    limit: i64,
) -> db::Result<Vec<(CallId, ObjectKey)>> {
    db.query(
        "select call_id, storage_key from tapes where created_at < $1 order by created_at limit $2",
    )
    .bind_all(args![before, limit])
    .all(|row| {
        let key = row.text("storage_key")?;
        let key = ObjectKey::parse(&key).ok_or_else(|| DbError::Column {
            column: "storage_key".to_owned(),
            why: "no key".to_owned(),
        })?;
        Ok((row.parse("call_id")?, key))
    })
    .await
}

/// Forgets a tape that is gone: the node's own housekeeping.
pub async fn forget_tape(db: &Db, call: CallId) -> db::Result<()> {
    db.query("delete from tapes where call_id = $1")
        .bind(call)
        .execute()
        .await?;
    Ok(())
}

/// Gives up an uploading recording.
pub async fn failed(
    db: &Db,
    account: AccountId,
    call: CallId,
    error: &str,
    now: Timestamp,
) -> db::Result<()> {
    let failed = named! { status: Status::Failed, error: error, updated_at: now };
    uploading(db.of(account), call).set(failed).await.map(drop)
}

/// Whose call this is, and what is to become of its files on the disk. `None`: there is no such call.
pub async fn lot(db: &Db, call: CallId) -> db::Result<Option<(AccountId, Lot)>> {
    db.query(
        "select c.account_id, c.ended_at, c.end_reason, r.status, r.created_at, r.deleted_at
         from calls c left join recordings r on r.call_id = c.id where c.id = $1",
    )
    .bind(call)
    .optional(|row| {
        let recording = row.opt_text("status")?.zip(row.opt_time("created_at")?);
        let is_deleted = row.opt_time("deleted_at")?.is_some();
        let is_lost = row.opt_text("end_reason")?.as_deref() == Some("node_lost");
        let lot = match (row.opt_time("ended_at")?, recording) {
            (None, _) => Lot::Open,
            (Some(_), Some((status, since))) if status == "uploading" && !is_deleted => {
                Lot::Uploading { since }
            }
            (Some(_), Some(_)) => Lot::Settled,
            (Some(since), None) if is_lost => Lot::Lost { since },
            (Some(_), None) => Lot::Unrecorded,
        };
        Ok((row.parse("account_id")?, lot))
    })
    .await
}

/// Deletes a recording: from here on it is neither listed nor heard. Its call; `None`: there is no such recording. Its
/// objects are removed by [`leftovers`], those of one that is not settled included.
pub async fn delete(
    tx: &mut Tx,
    account: AccountId,
    id: RecordingId,
    now: Timestamp,
) -> db::Result<Option<CallId>> {
    let call = tx
        .query(
            "update recordings set deleted_at = $1, updated_at = $1
             where account_id = $2 and id = $3 and deleted_at is null returning call_id",
        )
        .bind_all(args![now, account, id])
        .optional(|row| row.parse::<CallId>("call_id"))
        .await?;
    if let Some(call) = call {
        let key = ObjectKey::recording(account, call);
        tx.query(
            "update recordings set storage_key = coalesce(storage_key, $1)
             where account_id = $2 and id = $3",
        )
        .bind_all(args![key.as_str(), account, id])
        .execute()
        .await?;
        tx.query(
            "update calls set has_recording = false, recording_id = null, updated_at = $1
             where account_id = $2 and recording_id = $3",
        )
        .bind_all(args![now, account, id])
        .execute()
        .await?;
    }
    Ok(call)
}

/// Deleted recordings of all accounts whose objects still lie in the store, oldest first: the node's
/// own housekeeping.
pub async fn leftovers(db: &Db, limit: i64) -> db::Result<Vec<Leftover>> {
    db.query(
        "select id, account_id, call_id from recordings
         where deleted_at is not null and storage_key is not null
         order by deleted_at limit $1",
    )
    .bind(limit)
    .all(Leftover::read)
    .await
}

/// What the store still holds of one deleted recording, of whichever account: who asks has deleted it.
pub async fn leftover(db: &Db, id: RecordingId) -> db::Result<Option<Leftover>> {
    db.query(
        "select id, account_id, call_id from recordings
         where id = $1 and deleted_at is not null and storage_key is not null",
    )
    .bind(id)
    .optional(Leftover::read)
    .await
}

impl Leftover {
    fn read(row: &Row) -> db::Result<Self> {
        let (account, call): (AccountId, CallId) =
            (row.parse("account_id")?, row.parse("call_id")?);
        // All that may have been stored of it: a process may have died between the store and its row.
        let keys = [
            ObjectKey::recording(account, call),
            ObjectKey::partial(account, call),
            ObjectKey::tape(account, call),
        ];
        Ok(Self {
            id: row.parse("id")?,
            keys,
        })
    }
}

/// Notes that the objects of a deleted recording are gone.
pub async fn cleared(db: &Db, id: RecordingId) -> db::Result<()> {
    db.query("update recordings set storage_key = null, tape_key = null where id = $1 and deleted_at is not null")
        .bind(id)
        .execute()
        .await?;
    Ok(())
}

/// Recordings of ended calls whose file never came, of all accounts: left by a process of this node
/// that died between a call's end and its file, or by any that nobody has heard of since `long_ago`.
pub async fn stranded(
    db: &Db,
    node: &str,
    before: Timestamp,
    long_ago: Timestamp,
) -> db::Result<Vec<(AccountId, CallId, Timestamp)>> {
    db.query(
        "select r.account_id, r.call_id, r.created_at from recordings r join calls c on c.id = r.call_id
         where r.status = 'uploading' and r.deleted_at is null
            and (c.owner_node = $1 and r.created_at < $2 or r.created_at < $3)
         order by r.created_at",
    )
    .bind_all(args![node, before, long_ago])
    .all(|row| {
        let (account, call) = (row.parse("account_id")?, row.parse("call_id")?);
        Ok((account, call, row.time("created_at")?))
    })
    .await
}

/// Keeps a token's row: without it the token is refused.
pub async fn insert_token(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
    token: AudioToken,
    now: Timestamp,
) -> db::Result<()> {
    let row = named! {
        id: token.id,
        account_id: account,
        call_id: call,
        expires_at: token.expires_at,
        created_at: now,
    };
    tx.insert_into("audio_tokens", row).run().await.map(drop)
}

/// Whose token this is, unless it was revoked or is unknown. The account follows from the token: its
/// holder has no key.
pub async fn token_account(
    db: &Db,
    call: CallId,
    token: AudioToken,
) -> db::Result<Option<AccountId>> {
    db.query(
        "select account_id from audio_tokens where id = $1 and call_id = $2 and revoked_at is null",
    )
    .bind_all(args![token.id, call])
    .optional(|row| row.parse("account_id"))
    .await
}

/// As [`token_account`], for a recording: a deleted one has no token any more.
pub async fn recording_token_account(
    db: &Db,
    recording: RecordingId,
    token: AudioToken,
) -> db::Result<Option<AccountId>> {
    db.query(
        "select t.account_id from audio_tokens t join recordings r on r.call_id = t.call_id
         where t.id = $1 and r.id = $2 and t.revoked_at is null and r.deleted_at is null",
    )
    .bind_all(args![token.id, recording])
    .optional(|row| row.parse("account_id"))
    .await
}

/// Takes a token back.
pub async fn revoke_token(
    db: &Db,
    account: AccountId,
    call: CallId,
    token: AudioToken,
    now: Timestamp,
) -> db::Result<()> {
    db.query(
        "update audio_tokens set revoked_at = coalesce(revoked_at, $1)
         where id = $2 and account_id = $3 and call_id = $4",
    )
    .bind_all(args![now, token.id, account, call])
    .execute()
    .await?;
    Ok(())
}

/// Forgets tokens that ran out: an expired token is refused before its row is looked for.
pub async fn forget_tokens(db: &Db, expired_before: Timestamp) -> db::Result<()> {
    db.query("delete from audio_tokens where expires_at < $1")
        .bind(expired_before)
        .execute()
        .await?;
    Ok(())
}

/// Account and agent of a call that died with its node and has no recording. The account follows from the call.
pub async fn lost_with_node(db: &Db, id: CallId) -> db::Result<Option<(AccountId, AgentId)>> {
    db.query(
        "select account_id, agent_id from calls
         where id = $1 and end_reason = 'node_lost' and recording_id is null and has_recording = false",
    )
    .bind(id)
    .optional(|row| Ok((row.parse("account_id")?, row.parse("agent_id")?)))
    .await
}

/// The agent of a call; `None`: there is no such call.
pub async fn agent_of_call(
    tx: &mut Tx,
    account: AccountId,
    call: CallId,
) -> db::Result<Option<AgentId>> {
    tx.query("select agent_id from calls where account_id = $1 and id = $2")
        .bind(account)
        .bind(call)
        .optional(|row| row.parse("agent_id"))
        .await
}
