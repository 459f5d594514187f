//! The `recordings` and `audio_tokens` tables.

use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, AgentId, CallId, RecordingId};
use crate::storage::ObjectKey;
use crate::time::Timestamp;

use super::token::AudioToken;

/// One recording that was not deleted.
#[derive(Clone, Debug)]
pub struct RecordingRow {
    pub id: RecordingId,
    pub account: AccountId,
    pub call_id: CallId,
    pub agent_id: AgentId,
    pub status: String,
    pub sample_rate: i64,
    pub samples: i64,
    pub size_bytes: i64,
    pub sha256: Option<String>,
    pub region: String,
    /// Where the WAV lies, once it is ready.
    pub key: Option<ObjectKey>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub ready_at: Option<Timestamp>,
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

const LIVE: &str = "select * from recordings where deleted_at is null";

/// Adds the recording of a call that has just ended; its file follows.
pub async fn insert(
    tx: &mut Tx,
    account: AccountId,
    id: RecordingId,
    call: CallId,
    agent: AgentId,
    region: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.query(
        "insert into recordings (id, account_id, call_id, agent_id, status, sample_rate, region, created_at, updated_at)
         values ($1, $2, $3, $4, 'uploading', $5, $6, $7, $7)",
    )
    .bind(id)
    .bind(account)
    .bind(call)
    .bind(agent)
    .bind(i64::from(media::time::RATE))
    .bind(region)
    .bind(now)
    .execute()
    .await?;
    tx.query("update calls set recording_id = $1 where account_id = $2 and id = $3")
        .bind(id)
        .bind(account)
        .bind(call)
        .execute()
        .await?;
    Ok(())
}

/// One recording of the account.
pub async fn get(
    db: &Db,
    account: AccountId,
    id: RecordingId,
) -> Result<Option<RecordingRow>, DbError> {
    let sql = format!("{LIVE} and account_id = $1 and id = $2");
    db.query_built(sql)
        .bind(account)
        .bind(id)
        .optional(RecordingRow::read)
        .await
}

/// The recording of one call of the account.
pub async fn of_call(
    db: &Db,
    account: AccountId,
    call: CallId,
) -> Result<Option<RecordingRow>, DbError> {
    let sql = format!("{LIVE} and account_id = $1 and call_id = $2");
    db.query_built(sql)
        .bind(account)
        .bind(call)
        .optional(RecordingRow::read)
        .await
}

/// The account's recordings, newest first, and how many there are in all.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<RecordingRow>, u64), DbError> {
    let sql =
        format!("{LIVE} and account_id = $1 order by created_at desc, id desc limit $2 offset $3");
    let rows = db
        .query_built(sql)
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(RecordingRow::read)
        .await?;
    let total = db
        .query(
            "select count(*) as total from recordings where deleted_at is null and account_id = $1",
        )
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    Ok((rows, total.unsigned_abs()))
}

/// The recording of a call, be it deleted.
pub async fn standing(
    db: &Db,
    account: AccountId,
    call: CallId,
) -> Result<Option<Standing>, DbError> {
    db.query(
        "select id, storage_key, deleted_at from recordings where account_id = $1 and call_id = $2",
    )
    .bind(account)
    .bind(call)
    .optional(|row| {
        let key = row.opt_text("storage_key")?;
        Ok(Standing {
            id: row.parse("id")?,
            deleted: row.opt_time("deleted_at")?.is_some(),
            key: key.and_then(|key| ObjectKey::parse(&key)),
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
) -> Result<(), DbError> {
    db.query(
        "update recordings set storage_key = $1, tape_key = $2
         where account_id = $3 and id = $4 and deleted_at is not null",
    )
    .bind(kept.key.as_str())
    .bind(kept.tape_key.map(ObjectKey::as_str))
    .bind(account)
    .bind(id)
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
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update recordings set status = 'ready', samples = $1, size_bytes = $2, sha256 = $3,
                storage_key = $4, tape_key = $5, ready_at = $6, updated_at = $6
             where account_id = $7 and call_id = $8 and status = 'uploading' and deleted_at is null",
        )
        .bind(i64::try_from(kept.samples).unwrap_or(i64::MAX))
        .bind(i64::try_from(kept.size_bytes).unwrap_or(i64::MAX))
        .bind(kept.sha256)
        .bind(kept.key.as_str())
        .bind(kept.tape_key.map(ObjectKey::as_str))
        .bind(now)
        .bind(account)
        .bind(call)
        .execute()
        .await?;
    if rows == 1 {
        tx.query("update calls set has_recording = true, updated_at = $1 where account_id = $2 and id = $3")
            .bind(now)
            .bind(account)
            .bind(call)
            .execute()
            .await?;
    }
    Ok(rows == 1)
}

/// Turns an uploading recording into a failed one of which the beginning is kept. `false`: as in [`ready`].
pub async fn broken(
    db: &Db,
    account: AccountId,
    call: CallId,
    kept: &Kept<'_>,
    error: &str,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = db
        .query(
            "update recordings set status = 'failed', error = $1, samples = $2, size_bytes = $3, sha256 = $4,
                storage_key = $5, tape_key = $6, updated_at = $7
             where account_id = $8 and call_id = $9 and status = 'uploading' and deleted_at is null",
        )
        .bind(error)
        .bind(i64::try_from(kept.samples).unwrap_or(i64::MAX))
        .bind(i64::try_from(kept.size_bytes).unwrap_or(i64::MAX))
        .bind(kept.sha256)
        .bind(kept.key.as_str())
        .bind(kept.tape_key.map(ObjectKey::as_str))
        .bind(now)
        .bind(account)
        .bind(call)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes down the tape of a call without a recording.
pub async fn insert_tape(
    db: &Db,
    account: AccountId,
    call: CallId,
    key: &ObjectKey,
    now: Timestamp,
) -> Result<(), DbError> {
    db.query(
        "insert into tapes (call_id, account_id, storage_key, created_at) values ($1, $2, $3, $4)
         on conflict (call_id) do nothing",
    )
    .bind(call)
    .bind(account)
    .bind(key.as_str())
    .bind(now)
    .execute()
    .await?;
    Ok(())
}

/// Tapes of calls without recordings that are older than `before`, of all accounts, oldest first: the
/// node's own housekeeping.
pub async fn old_tapes(
    db: &Db,
    before: Timestamp,
    limit: i64,
) -> Result<Vec<(CallId, ObjectKey)>, DbError> {
    db.query(
        "select call_id, storage_key from tapes where created_at < $1 order by created_at limit $2",
    )
    .bind(before)
    .bind(limit)
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
pub async fn forget_tape(db: &Db, call: CallId) -> Result<(), DbError> {
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
) -> Result<(), DbError> {
    db.query(
        "update recordings set status = 'failed', error = $1, updated_at = $2
         where account_id = $3 and call_id = $4 and status = 'uploading'",
    )
    .bind(error)
    .bind(now)
    .bind(account)
    .bind(call)
    .execute()
    .await?;
    Ok(())
}

/// Whose call this is, and what is to become of its files on the disk. `None`: there is no such call.
pub async fn lot(db: &Db, call: CallId) -> Result<Option<(AccountId, Lot)>, DbError> {
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
) -> Result<Option<CallId>, DbError> {
    let call = tx
        .query(
            "update recordings set deleted_at = $1, updated_at = $1
             where account_id = $2 and id = $3 and deleted_at is null returning call_id",
        )
        .bind(now)
        .bind(account)
        .bind(id)
        .optional(|row| row.parse::<CallId>("call_id"))
        .await?;
    if let Some(call) = call {
        tx.query(
            "update recordings set storage_key = coalesce(storage_key, $1)
             where account_id = $2 and id = $3",
        )
        .bind(ObjectKey::recording(account, call).as_str())
        .bind(account)
        .bind(id)
        .execute()
        .await?;
        tx.query(
            "update calls set has_recording = false, recording_id = null, updated_at = $1
             where account_id = $2 and recording_id = $3",
        )
        .bind(now)
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    }
    Ok(call)
}

/// Deleted recordings of all accounts whose objects still lie in the store, oldest first: the node's
/// own housekeeping.
pub async fn leftovers(db: &Db, limit: i64) -> Result<Vec<Leftover>, DbError> {
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
pub async fn leftover(db: &Db, id: RecordingId) -> Result<Option<Leftover>, DbError> {
    db.query(
        "select id, account_id, call_id from recordings
         where id = $1 and deleted_at is not null and storage_key is not null",
    )
    .bind(id)
    .optional(Leftover::read)
    .await
}

impl Leftover {
    fn read(row: &Row) -> Result<Self, DbError> {
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
pub async fn cleared(db: &Db, id: RecordingId) -> Result<(), DbError> {
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
) -> Result<Vec<(AccountId, CallId, Timestamp)>, DbError> {
    db.query(
        "select r.account_id, r.call_id, r.created_at from recordings r join calls c on c.id = r.call_id
         where r.status = 'uploading' and r.deleted_at is null
            and (c.owner_node = $1 and r.created_at < $2 or r.created_at < $3)
         order by r.created_at",
    )
    .bind(node)
    .bind(before)
    .bind(long_ago)
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
) -> Result<(), DbError> {
    tx.query("insert into audio_tokens (id, account_id, call_id, expires_at, created_at) values ($1, $2, $3, $4, $5)")
        .bind(token.id.to_string())
        .bind(account)
        .bind(call)
        .bind(token.expires_at)
        .bind(now)
        .execute()
        .await?;
    Ok(())
}

/// Whose token this is, unless it was revoked or is unknown. The account follows from the token: its
/// holder has no key.
pub async fn token_account(
    db: &Db,
    call: CallId,
    token: AudioToken,
) -> Result<Option<AccountId>, DbError> {
    db.query(
        "select account_id from audio_tokens where id = $1 and call_id = $2 and revoked_at is null",
    )
    .bind(token.id.to_string())
    .bind(call)
    .optional(|row| row.parse("account_id"))
    .await
}

/// As [`token_account`], for a recording: a deleted one has no token any more.
pub async fn recording_token_account(
    db: &Db,
    recording: RecordingId,
    token: AudioToken,
) -> Result<Option<AccountId>, DbError> {
    db.query(
        "select t.account_id from audio_tokens t join recordings r on r.call_id = t.call_id
         where t.id = $1 and r.id = $2 and t.revoked_at is null and r.deleted_at is null",
    )
    .bind(token.id.to_string())
    .bind(recording)
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
) -> Result<(), DbError> {
    db.query(
        "update audio_tokens set revoked_at = coalesce(revoked_at, $1)
         where id = $2 and account_id = $3 and call_id = $4",
    )
    .bind(now)
    .bind(token.id.to_string())
    .bind(account)
    .bind(call)
    .execute()
    .await?;
    Ok(())
}

/// Forgets tokens that ran out: an expired token is refused before its row is looked for.
pub async fn forget_tokens(db: &Db, expired_before: Timestamp) -> Result<(), DbError> {
    db.query("delete from audio_tokens where expires_at < $1")
        .bind(expired_before)
        .execute()
        .await?;
    Ok(())
}

/// Account and agent of a call that died with its node and has no recording. The account follows from the call.
pub async fn lost_with_node(db: &Db, id: CallId) -> Result<Option<(AccountId, AgentId)>, DbError> {
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
) -> Result<Option<AgentId>, DbError> {
    tx.query("select agent_id from calls where account_id = $1 and id = $2")
        .bind(account)
        .bind(call)
        .optional(|row| row.parse("agent_id"))
        .await
}

impl RecordingRow {
    fn read(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            id: row.parse("id")?,
            account: row.parse("account_id")?,
            call_id: row.parse("call_id")?,
            agent_id: row.parse("agent_id")?,
            status: row.text("status")?,
            sample_rate: row.i64("sample_rate")?,
            samples: row.i64("samples")?,
            size_bytes: row.i64("size_bytes")?,
            sha256: row.opt_text("sha256")?,
            region: row.text("region")?,
            key: row
                .opt_text("storage_key")?
                .and_then(|key| ObjectKey::parse(&key)),
            created_at: row.time("created_at")?,
            updated_at: row.time("updated_at")?,
            ready_at: row.opt_time("ready_at")?,
        })
    }
}
