//! The `sip_trunks` table.

use std::time::Duration;

use super::rules::{
    AuthMode, Destinations, DialFormat, FromUser, MediaEncryption, OutboundAuth,
    RegistrationStatus, Status, Transport, TrunkType,
};
use crate::db::{Db, DbError, Row, Tx};
use crate::ids::{AccountId, TrunkId};
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
/// holds. A claim is renewed when half of it is over.
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
                or (registrar = $1 and registrar_until <= $4))",
    )
    .bind(node)
    .bind(now)
    .bind(now.plus(lasts))
    .bind(now.plus(lasts / 2))
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

/// Writes down how a registration went: until when it holds, or why it failed.
pub async fn registered(
    db: &Db,
    account: AccountId,
    id: TrunkId,
    outcome: Result<Timestamp, String>,
) -> Result<(), DbError> {
    let status = match outcome {
        Ok(_) => RegistrationStatus::Registered,
        Err(_) => RegistrationStatus::Failed,
    };
    let (expires_at, error) = match outcome {
        Ok(until) => (Some(until), None),
        Err(error) => (None, Some(error)),
    };
    db.query(
        "update sip_trunks set registration_status = $3, registration_expires_at = $4,
            registration_error = $5
         where account_id = $1 and id = $2 and auth_mode = 'register' and deleted_at is null",
    )
    .bind(account)
    .bind(id)
    .bind(status.name())
    .bind(expires_at)
    .bind(error)
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
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
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
