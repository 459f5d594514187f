//! The `sip_trunks` table.

use std::collections::HashMap;
use std::time::Duration;

use super::rules::{
    AuthMode, Destinations, DialFormat, FromUser, MediaEncryption, OutboundAuth,
    RegistrationStatus, Status, Transport, TrunkType,
};
use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, CallId, TrunkId};
use crate::phone_numbers::PhoneNumber;
use crate::secret::{MasterKey, Purpose, Secret};
use crate::time::Timestamp;

/// A trunk. It has no `Debug`: it holds phone numbers.
#[derive(Clone, PartialEq)]
pub struct Trunk {
    pub id: TrunkId,
    pub account: AccountId,
    pub name: String,
    pub kind: TrunkType,
    /// Outbound: the first is presented as caller id. Inbound: the called numbers that are taken, as
    /// the carrier writes them; empty for all.
    pub numbers: Vec<String>,
    /// Addresses and blocks that inbound calls come from.
    pub allowed_addresses: Vec<String>,
    pub auth_mode: AuthMode,
    pub auth_username: Option<String>,
    /// See [`Trunk::password`].
    pub password_sealed: Option<String>,
    /// Whether a challenge with MD5 and without qop is answered.
    pub allow_md5_without_qop: bool,
    /// The carrier's host or `host:port`; of a trunk that registers, the registrar's.
    pub outbound_address: Option<String>,
    /// The host of the address of record of a trunk that registers; that of `outbound_address` when
    /// `None`.
    pub realm: Option<String>,
    /// Seconds.
    pub register_expires: Option<u32>,
    pub outbound_auth: Option<OutboundAuth>,
    pub outbound_from_user: Option<FromUser>,
    pub transport: Transport,
    pub media_encryption: MediaEncryption,
    pub outbound_dial_format: DialFormat,
    pub destinations: Option<Destinations>,
    pub max_concurrent_calls: u32,
    pub calls_per_hour_limit: Option<u32>,
    pub is_default_outbound: bool,
    pub status: Status,
    pub registration: Option<Registration>,
    /// The latest challenge to a request over it that was not answered.
    pub refused_challenge: Option<Failure>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Where a trunk that registers stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub status: RegistrationStatus,
    /// When it runs out unless it is renewed.
    pub expires_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// Kept while it is registered since.
    pub last_failure: Option<Failure>,
}

/// A registration that failed, or a challenge that was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: Timestamp,
    /// The response; `None`: there was none.
    pub code: Option<u16>,
    pub reason: String,
}

impl Failure {
    /// Code and reason in one text.
    fn text(&self) -> String {
        match self.code {
            Some(code) => format!("{code} {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

impl Trunk {
    /// Whether calls may be placed over it: it is active, and an outbound one or one that registers.
    pub fn can_dial(&self) -> bool {
        self.status == Status::Active
            && (self.kind == TrunkType::Outbound || self.auth_mode == AuthMode::Register)
    }

    /// Whether a call to this number is taken, as an inbound trunk's carrier writes it.
    pub fn takes(&self, number: &str) -> bool {
        self.numbers.is_empty() || self.numbers.iter().any(|own| own == number)
    }

    /// The password in the clear. `None`: there is none, or no master key that is known opens it.
    pub fn password(&self, key: &MasterKey) -> Option<Secret<String>> {
        let sealed = self.password_sealed.as_deref()?;
        let plain = key.open(Purpose::TrunkPassword, &self.id.to_string(), sealed)?;
        String::from_utf8(plain.expose().clone())
            .ok()
            .map(Secret::new)
    }

    /// Whether this number (E.164) may be called over it.
    pub fn may_call(&self, number: &str) -> bool {
        self.destinations
            .as_ref()
            .is_none_or(|destinations| destinations.allow(number))
    }
}

/// Seals a password for the trunk of this id.
pub fn seal(key: &MasterKey, id: TrunkId, password: &str) -> std::io::Result<String> {
    key.seal(Purpose::TrunkPassword, &id.to_string(), password.as_bytes())
}

/// The trunk of this id; a deleted one is none.
pub async fn get(db: &Db, account: AccountId, id: TrunkId) -> Result<Option<Trunk>, DbError> {
    db.query("select * from sip_trunks where account_id = $1 and id = $2 and deleted_at is null")
        .bind(account)
        .bind(id)
        .optional(read)
        .await
}

/// The same inside a transaction, and it stays as it is until that ends.
pub async fn hold(tx: &mut Tx, account: AccountId, id: TrunkId) -> Result<Option<Trunk>, DbError> {
    let lock = tx.engine().for_update();
    tx.query_built(format!(
        "select * from sip_trunks where account_id = $1 and id = $2 and deleted_at is null{lock}"
    ))
    .bind(account)
    .bind(id)
    .optional(read)
    .await
}

/// A page of trunks, newest first, and how many there are.
pub async fn list(
    db: &Db,
    account: AccountId,
    limit: u32,
    offset: u32,
) -> Result<(Vec<Trunk>, u64), DbError> {
    let total = db
        .query(
            "select count(*) as total from sip_trunks where account_id = $1 and deleted_at is null",
        )
        .bind(account)
        .one(|row| row.i64("total"))
        .await?;
    let trunks = db
        .query(
            "select * from sip_trunks where account_id = $1 and deleted_at is null
             order by created_at desc, id desc limit $2 offset $3",
        )
        .bind(account)
        .bind(limit)
        .bind(offset)
        .all(read)
        .await?;
    Ok((trunks, total.unsigned_abs()))
}

/// The account's active default outbound trunk.
pub async fn find_default_outbound(db: &Db, account: AccountId) -> Result<Option<Trunk>, DbError> {
    db.query(
        "select * from sip_trunks where account_id = $1 and is_default_outbound
            and status = 'active' and deleted_at is null",
    )
    .bind(account)
    .optional(read)
    .await
}

/// The trunk over which a call from this number goes: the number's own, else the agent's, else the
/// account's default; one over which nothing may be placed now is passed over. `None`: there is none.
pub async fn for_number(
    db: &Db,
    account: AccountId,
    number: &PhoneNumber,
    of_agent: Option<TrunkId>,
) -> Result<Option<Trunk>, DbError> {
    for id in [number.trunk_id, of_agent].into_iter().flatten() {
        if let Some(trunk) = get(db, account, id).await?.filter(Trunk::can_dial) {
            return Ok(Some(trunk));
        }
    }
    find_default_outbound(db, account).await
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// Another inbound trunk of the account is found by this user name.
    UserTaken,
}

/// Adds a trunk.
pub async fn insert(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> Result<Written, DbError> {
    if is_user_taken(tx, account, trunk).await? {
        return Ok(Written::UserTaken);
    }
    let rows = tx
        .query(
            "insert into sip_trunks (id, account_id, name, type, numbers, allowed_addresses, auth_mode,
                auth_username, password_sealed, outbound_address, realm, register_expires, outbound_auth,
                outbound_from_user, transport, media_encryption, outbound_dial_format,
                destination_allowlist, max_concurrent_calls, calls_per_hour_limit, is_default_outbound,
                status, registration_status, created_at, updated_at, allow_md5_without_qop)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                $20, $21, $22, $23, $24, $25, $26)
             on conflict do nothing",
        )
        .bind(trunk.id)
        .bind(account)
        .bind(&trunk.name)
        .bind(trunk.kind.name())
        .bind(list_text(&trunk.numbers))
        .bind(list_text(&trunk.allowed_addresses))
        .bind(trunk.auth_mode.name())
        .bind(trunk.auth_username.as_deref())
        .bind(trunk.password_sealed.as_deref())
        .bind(trunk.outbound_address.as_deref())
        .bind(trunk.realm.as_deref())
        .bind(trunk.register_expires)
        .bind(trunk.outbound_auth.map(OutboundAuth::name))
        .bind(trunk.outbound_from_user.map(FromUser::name))
        .bind(trunk.transport.name())
        .bind(trunk.media_encryption.name())
        .bind(trunk.outbound_dial_format.name())
        .bind(destinations_text(trunk))
        .bind(trunk.max_concurrent_calls)
        .bind(trunk.calls_per_hour_limit)
        .bind(trunk.is_default_outbound)
        .bind(trunk.status.name())
        .bind(trunk.registration.as_ref().map(|r| r.status.name()))
        .bind(trunk.created_at)
        .bind(trunk.updated_at)
        .bind(trunk.allow_md5_without_qop)
        .execute()
        .await?;
    // Somebody took the name between the look and the write.
    Ok(if rows == 1 {
        Written::Done
    } else {
        Written::UserTaken
    })
}

/// Writes a changed trunk: what a PATCH may change.
pub async fn update(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> Result<Written, DbError> {
    if is_user_taken(tx, account, trunk).await? {
        return Ok(Written::UserTaken);
    }
    let written = tx
        .query(
            "update sip_trunks set name = $3, numbers = $4, allowed_addresses = $5, auth_mode = $6,
            auth_username = $7, password_sealed = $8, outbound_dial_format = $9,
            destination_allowlist = $10, max_concurrent_calls = $11, calls_per_hour_limit = $12,
            is_default_outbound = $13, status = $14, updated_at = $15, allow_md5_without_qop = $16
         where account_id = $1 and id = $2 and deleted_at is null",
        )
        .bind(account)
        .bind(trunk.id)
        .bind(&trunk.name)
        .bind(list_text(&trunk.numbers))
        .bind(list_text(&trunk.allowed_addresses))
        .bind(trunk.auth_mode.name())
        .bind(trunk.auth_username.as_deref())
        .bind(trunk.password_sealed.as_deref())
        .bind(trunk.outbound_dial_format.name())
        .bind(destinations_text(trunk))
        .bind(trunk.max_concurrent_calls)
        .bind(trunk.calls_per_hour_limit)
        .bind(trunk.is_default_outbound)
        .bind(trunk.status.name())
        .bind(trunk.updated_at)
        .bind(trunk.allow_md5_without_qop)
        .execute()
        .await;
    match written {
        Ok(_) => Ok(Written::Done),
        // Somebody took the name between the look and the write.
        Err(error) if error.is_unique_violation() => Ok(Written::UserTaken),
        Err(error) => Err(error),
    }
}

/// Whether another inbound trunk of the account is found by this one's user name.
async fn is_user_taken(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> Result<bool, DbError> {
    let by_user = trunk.kind == TrunkType::Inbound
        && matches!(
            trunk.auth_mode,
            AuthMode::Digest | AuthMode::DigestPlusIpAcl
        );
    if !by_user {
        return Ok(false);
    }
    let found = tx
        .query(
            "select id from sip_trunks where account_id = $1 and auth_username = $3 and type = 'inbound'
                and auth_mode in ('digest', 'digest_plus_ip_acl') and deleted_at is null and id <> $2",
        )
        .bind(account)
        .bind(trunk.id)
        .bind(trunk.auth_username.as_deref())
        .optional(|row| row.text("id"))
        .await?;
    Ok(found.is_some())
}

/// How many trunks the account has, inside a transaction that holds it ([`hold_account`]).
pub async fn count(tx: &mut Tx, account: AccountId) -> Result<i64, DbError> {
    tx.query(
        "select count(*) as total from sip_trunks where account_id = $1 and deleted_at is null",
    )
    .bind(account)
    .one(|row| row.i64("total"))
    .await
}

/// Lets one request at a time choose the account's default, or add a trunk to it. To be asked first: who holds a
/// trunk and waits here would be waited for.
pub async fn hold_account(tx: &mut Tx, account: AccountId) -> Result<(), DbError> {
    let lock = tx.engine().for_no_key_update();
    tx.query_built(format!("select id from accounts where id = $1{lock}"))
        .bind(account)
        .optional(|row| row.text("id"))
        .await?;
    Ok(())
}

/// Makes this trunk the account's default, and no other. [`hold_account`] comes before.
pub async fn set_default_outbound(
    tx: &mut Tx,
    account: AccountId,
    id: TrunkId,
) -> Result<(), DbError> {
    tx.query(
        "update sip_trunks set is_default_outbound = false
         where account_id = $1 and is_default_outbound",
    )
    .bind(account)
    .execute()
    .await?;
    tx.query("update sip_trunks set is_default_outbound = true where account_id = $1 and id = $2")
        .bind(account)
        .bind(id)
        .execute()
        .await?;
    Ok(())
}

/// Deletes a trunk and its password; `false`: there was none.
pub async fn delete(
    tx: &mut Tx,
    account: AccountId,
    id: TrunkId,
    now: Timestamp,
) -> Result<bool, DbError> {
    let rows = tx
        .query(
            "update sip_trunks set deleted_at = $3, updated_at = $3, is_default_outbound = false,
                password_sealed = null, registrar = null, registrar_until = null
             where account_id = $1 and id = $2 and deleted_at is null",
        )
        .bind(account)
        .bind(id)
        .bind(now)
        .execute()
        .await?;
    Ok(rows == 1)
}

/// What goes over a trunk, and what went wrong over it lately.
#[derive(Default)]
pub struct Traffic {
    /// Calls that are not over.
    pub active: u32,
    pub failed: Option<Failed>,
}

/// The traffic of each trunk of the account that has any; failures, of the calls made since then.
pub async fn traffic(
    db: &Db,
    account: AccountId,
    since: Timestamp,
) -> Result<HashMap<TrunkId, Traffic>, DbError> {
    let mut traffic: HashMap<TrunkId, Traffic> = HashMap::new();
    for (trunk, calls) in active_calls(db, account).await? {
        traffic.entry(trunk).or_default().active = calls;
    }
    for (trunk, failed) in failed_calls(db, account, since).await? {
        traffic.entry(trunk).or_default().failed = Some(failed);
    }
    Ok(traffic)
}

/// How many calls over each trunk are not over.
async fn active_calls(db: &Db, account: AccountId) -> Result<Vec<(TrunkId, u32)>, DbError> {
    db.query(
        "select trunk_id, count(*) as calls from calls
             where account_id = $1 and trunk_id is not null and ended_at is null group by trunk_id",
    )
    .bind(account)
    .all(|row| Ok((row.parse("trunk_id")?, row.u32("calls")?)))
    .await
}

/// The calls over a trunk that failed lately: its carrier refused them, nobody answered, or they broke off.
pub struct Failed {
    pub calls: u32,
    pub last: FailedCall,
}

/// The one of them that ended last.
pub struct FailedCall {
    pub call: CallId,
    pub at: Timestamp,
    pub status: String,
    /// The final response, when there was one.
    pub code: Option<u32>,
}

/// What failed over each trunk of the account, of the calls made since then.
async fn failed_calls(
    db: &Db,
    account: AccountId,
    since: Timestamp,
) -> Result<Vec<(TrunkId, Failed)>, DbError> {
    db.query(
        "select * from (
                select c.trunk_id, c.id, c.ended_at, c.status, c.sip_code,
                    count(*) over (partition by c.trunk_id) as calls,
                    row_number() over (
                        partition by c.trunk_id order by c.ended_at desc, c.id desc
                    ) as place
                from calls c join sip_trunks t on t.id = c.trunk_id
                where t.account_id = $1 and t.deleted_at is null and c.created_at >= $2
                    and c.status in ('failed', 'no-answer', 'busy') and c.ended_at is not null
             ) as failed where place = 1",
    )
    .bind(account)
    .bind(since)
    .all(|row| {
        let last = FailedCall {
            call: row.parse("id")?,
            at: row.time("ended_at")?,
            status: row.text("status")?,
            code: opt_u32(row, "sip_code")?,
        };
        let calls = row.u32("calls")?;
        Ok((row.parse("trunk_id")?, Failed { calls, last }))
    })
    .await
}

/// How many trunks of all accounts there are in which state: how those that are active and register
/// stand, and `active` or `disabled` for the others.
pub async fn states(db: &Db) -> Result<Vec<(String, u32)>, DbError> {
    db.query(
        "select case when status = 'active' then coalesce(registration_status, status) else status end
            as state, count(*) as trunks
         from sip_trunks where deleted_at is null group by 1",
    )
    .all(|row| Ok((row.text("state")?, row.u32("trunks")?)))
    .await
}

/// How many calls over trunks of all accounts are not over, by their direction.
pub async fn calls(db: &Db) -> Result<Vec<(String, u32)>, DbError> {
    db.query(
        "select direction, count(*) as calls from calls where ended_at is null and trunk_id is not null
         group by direction",
    )
    .all(|row| Ok((row.text("direction")?, row.u32("calls")?)))
    .await
}

fn list_text(list: &[String]) -> String {
    serde_json::Value::from(list).to_string()
}

fn destinations_text(trunk: &Trunk) -> Option<String> {
    let list = trunk.destinations.as_ref()?;
    let text = serde_json::json!({"mode": list.mode.name(), "entries": list.entries});
    Some(text.to_string())
}

/// Grows with every change of any trunk; see [`changed`].
pub async fn version(db: &Db) -> Result<i64, DbError> {
    db.query("select value from counters where name = 'sip_trunks'")
        .one(|row| row.i64("value"))
        .await
}

/// Tells all nodes, once the transaction is committed, that a trunk has changed.
pub async fn changed(tx: &mut Tx) -> Result<(), DbError> {
    tx.query("update counters set value = value + 1 where name = 'sip_trunks'")
        .execute()
        .await?;
    Ok(())
}

/// The active trunks of all accounts: what a SIP stack is told.
pub async fn all_active(db: &Db) -> Result<Vec<Trunk>, DbError> {
    db.query("select * from sip_trunks where status = 'active' and deleted_at is null order by id")
        .all(read)
        .await
}

/// Claims for this node what registers and nobody else registers, in all accounts; gives all that it
/// holds. A claim is renewed when half of it is over. One that ends further ahead than two of them last is
/// of a clock that was ahead, and holds nobody back. `now`: the time that all nodes share.
pub async fn claim_registrations(
    db: &Db,
    node: &str,
    now: Timestamp,
    lasts: Duration,
) -> Result<Vec<TrunkId>, DbError> {
    db.query(
        "update sip_trunks set registrar = $1, registrar_until = $3
         where auth_mode = 'register' and status = 'active' and deleted_at is null
            and (registrar is null or registrar_until <= $2
                or (registrar = $1 and registrar_until <= $4) or registrar_until > $5)",
    )
    .bind(node)
    .bind(now)
    .bind(now.plus(lasts))
    .bind(now.plus(lasts / 2))
    .bind(now.plus(lasts * 2))
    .execute()
    .await?;
    db.query("select id from sip_trunks where registrar = $1 and registrar_until > $2")
        .bind(node)
        .bind(now)
        .all(|row| row.parse("id"))
        .await
}

/// Lets go of this node's claims: another may register at once.
pub async fn release_registrations(db: &Db, node: &str) -> Result<(), DbError> {
    db.query("update sip_trunks set registrar = null, registrar_until = null where registrar = $1")
        .bind(node)
        .execute()
        .await?;
    Ok(())
}

/// Forgets how the registration went: the trunk begins or ceases to register.
pub async fn unregister(tx: &mut Tx, account: AccountId, id: TrunkId) -> Result<(), DbError> {
    tx.query(
        "update sip_trunks set registration_status = 'unregistered', registration_expires_at = null,
            registration_error = null, failure_at = null, failure_code = null, failure_reason = null
         where account_id = $1 and id = $2 and registration_status is not null",
    )
    .bind(account)
    .bind(id)
    .execute()
    .await?;
    Ok(())
}

/// Writes down how a registration by this node went: until when it holds, or why it failed. `false`: the trunk is
/// not this node's to register any more. One that slept past its claim writes over no word of the node that has
/// taken it since.
pub async fn registered(
    db: &Db,
    account: AccountId,
    id: TrunkId,
    node: &str,
    outcome: Result<Timestamp, Failure>,
) -> Result<bool, DbError> {
    let status = match outcome {
        Ok(_) => RegistrationStatus::Registered,
        Err(_) => RegistrationStatus::Failed,
    };
    let (expires_at, failure) = match outcome {
        Ok(until) => (Some(until), None),
        Err(failure) => (None, Some(failure)),
    };
    let rows = db
        .query(
            "update sip_trunks set registration_status = $4, registration_expires_at = $5,
                registration_error = $6, failure_at = coalesce($7, failure_at),
                failure_code = case when $7 is null then failure_code else $8 end,
                failure_reason = coalesce($9, failure_reason)
             where account_id = $1 and id = $2 and registrar = $3 and auth_mode = 'register'
                and status = 'active' and deleted_at is null",
        )
        .bind(account)
        .bind(id)
        .bind(node)
        .bind(status.name())
        .bind(expires_at)
        .bind(failure.as_ref().map(Failure::text))
        .bind(failure.as_ref().map(|failure| failure.at))
        .bind(
            failure
                .as_ref()
                .and_then(|failure| failure.code)
                .map(u32::from),
        )
        .bind(failure.map(|failure| failure.reason))
        .execute()
        .await?;
    Ok(rows == 1)
}

/// Writes down that a challenge to a request over a trunk was not answered.
pub async fn challenge_refused(
    db: &Db,
    account: AccountId,
    id: TrunkId,
    refused: Failure,
) -> Result<(), DbError> {
    db.query(
        "update sip_trunks set challenge_at = $3, challenge_code = $4, challenge_reason = $5
         where account_id = $1 and id = $2 and deleted_at is null",
    )
    .bind(account)
    .bind(id)
    .bind(refused.at)
    .bind(refused.code.map(u32::from))
    .bind(refused.reason)
    .execute()
    .await?;
    Ok(())
}

pub(super) fn read(row: &Row) -> Result<Trunk, DbError> {
    let registration = match row.opt_parse("registration_status")? {
        Some(status) => Some(Registration {
            status,
            expires_at: row.opt_time("registration_expires_at")?,
            last_error: row.opt_text("registration_error")?,
            last_failure: failure(row, "failure")?,
        }),
        None => None,
    };
    Ok(Trunk {
        id: row.parse("id")?,
        account: row.parse("account_id")?,
        name: row.text("name")?,
        kind: row.parse("type")?,
        numbers: row.json("numbers")?,
        allowed_addresses: row.json("allowed_addresses")?,
        auth_mode: row.parse("auth_mode")?,
        auth_username: row.opt_text("auth_username")?,
        password_sealed: row.opt_text("password_sealed")?,
        allow_md5_without_qop: row.bool("allow_md5_without_qop")?,
        outbound_address: row.opt_text("outbound_address")?,
        realm: row.opt_text("realm")?,
        register_expires: opt_u32(row, "register_expires")?,
        outbound_auth: row.opt_parse("outbound_auth")?,
        outbound_from_user: row.opt_parse("outbound_from_user")?,
        transport: row.parse("transport")?,
        media_encryption: row.parse("media_encryption")?,
        outbound_dial_format: row.parse("outbound_dial_format")?,
        destinations: row.opt_json("destination_allowlist")?,
        max_concurrent_calls: row.u32("max_concurrent_calls")?,
        calls_per_hour_limit: opt_u32(row, "calls_per_hour_limit")?,
        is_default_outbound: row.bool("is_default_outbound")?,
        status: row.parse("status")?,
        registration,
        refused_challenge: failure(row, "challenge")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// What stands in the columns of a failure whose names begin so.
fn failure(row: &Row, begin: &str) -> Result<Option<Failure>, DbError> {
    let Some(at) = row.opt_time(&format!("{begin}_at"))? else {
        return Ok(None);
    };
    Ok(Some(Failure {
        at,
        // A response has three digits.
        code: opt_u32(row, &format!("{begin}_code"))?.and_then(|code| u16::try_from(code).ok()),
        reason: row
            .opt_text(&format!("{begin}_reason"))?
            .unwrap_or_default(),
    }))
}

fn opt_u32(row: &Row, column: &str) -> Result<Option<u32>, DbError> {
    row.opt_i64(column)?
        .map(|value| {
            u32::try_from(value).map_err(|error| DbError::Column {
                column: column.to_owned(),
                why: error.to_string(),
            })
        })
        .transpose()
}
