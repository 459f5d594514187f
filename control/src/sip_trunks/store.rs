//! The `sip_trunks` table.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::{
    AuthMode, Destinations, FromUser, MediaEncryption, OutboundAuth, RegistrationStatus, Status,
    Transport, TrunkType,
};
use crate::db::{self, Db, Record, Row, Tx, args, json_column, named, record};
use crate::ids::{AccountId, CallId, TrunkId};
use crate::numbers::DialFormat;
use crate::phone_numbers::PhoneNumber;
use crate::secret::{MasterKey, Purpose, Secret};
use crate::time::Timestamp;

record! {
    /// A trunk. It has no `Debug`: it holds phone numbers.
    #[derive(Clone, PartialEq)]
    pub struct Trunk in "sip_trunks" where "deleted_at is null" {
        id: TrunkId,
        account: AccountId as "account_id",
        name: String,
        kind: TrunkType as "type",
        /// Outbound: the first is presented as caller id. Inbound: the called numbers that are taken, as
        /// the carrier writes them; empty for all.
        numbers: Vec<String>,
        /// Addresses and blocks that inbound calls come from.
        allowed_addresses: Vec<String>,
        auth_mode: AuthMode,
        auth_username: Option<String>,
        /// See [`Trunk::password`].
        password_sealed: Option<String>,
        /// Whether a challenge with MD5 and without qop is answered.
        allow_md5_without_qop: bool,
        /// Whether a call goes where the carrier redirects it.
        follow_redirects: bool,
        /// The carrier's host or `host:port`; of a trunk that registers, the registrar's.
        outbound_address: Option<String>,
        /// The host of the address of record of a trunk that registers; that of `outbound_address` when
        /// `None`.
        realm: Option<String>,
        /// Seconds.
        register_expires: Option<u32>,
        outbound_auth: Option<OutboundAuth>,
        outbound_from_user: Option<FromUser>,
        transport: Transport,
        media_encryption: MediaEncryption,
        outbound_dial_format: DialFormat,
        destinations: Option<Destinations> as "destination_allowlist",
        max_concurrent_calls: u32,
        calls_per_hour_limit: Option<u32>,
        is_default_outbound: bool,
        status: Status,
        registration: Option<Registration> => Registration::read,
        /// The latest challenge to a request over it that was not answered.
        refused_challenge: Option<Failure> => Failure::of_challenge,
        /// The latest message of its carrier that was not used.
        refused_message: Option<Box<RefusedMessage>> => RefusedMessage::read,
        created_at: Timestamp,
        updated_at: Timestamp,
    }
}

json_column!(Destinations);

/// Where a trunk that registers stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub status: RegistrationStatus,
    /// When it runs out unless it is renewed.
    pub expires_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// Kept while it is registered since.
    pub last_failure: Option<Failure>,
    /// In which realms the registrar asks for the password; empty where it asks for none. `None`: no node has heard
    /// it, or one of a version that writes it nowhere.
    pub realms: Option<Vec<String>>,
}

impl Registration {
    fn read(row: &Row) -> db::Result<Option<Self>> {
        let Some(status) = row.opt_parse("registration_status")? else {
            return Ok(None);
        };
        Ok(Some(Self {
            status,
            expires_at: row.opt_time("registration_expires_at")?,
            last_error: row.opt_text("registration_error")?,
            last_failure: Failure::read(row, ["failure_at", "failure_code", "failure_reason"])?,
            realms: row.opt_json("registrar_realms")?,
        }))
    }
}

/// The longest realm that is kept, bytes. Real ones are names.
const LONGEST_REALM: usize = 255;

/// What a registrar said last to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Until when the trunk is registered, or why it is not.
    pub outcome: Result<Timestamp, Failure>,
    /// In which realms the registrar asks for the password. `None`: nothing new is known of them.
    pub realms: Option<Vec<String>>,
}

impl From<Result<Timestamp, Failure>> for Standing {
    fn from(outcome: Result<Timestamp, Failure>) -> Self {
        Self {
            outcome,
            realms: None,
        }
    }
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
    fn of_challenge(row: &Row) -> db::Result<Option<Self>> {
        Self::read(row, ["challenge_at", "challenge_code", "challenge_reason"])
    }

    fn read(row: &Row, [at, code, reason]: [&str; 3]) -> db::Result<Option<Self>> {
        let Some(at) = row.opt_time(at)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            at,
            // A response has three digits.
            code: row.opt_u32(code)?.and_then(|code| u16::try_from(code).ok()),
            reason: row.opt_text(reason)?.unwrap_or_default(),
        }))
    }

    /// Code and reason in one text.
    fn text(&self) -> String {
        match self.code {
            Some(code) => format!("{code} {}", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// A message of a carrier that was not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedMessage {
    pub at: Timestamp,
    pub source: String,
    pub method: String,
    pub call_id: String,
    pub header: Option<String>,
    /// Our answer; `None`: there was none.
    pub code: Option<u16>,
    pub reason: String,
}

impl RefusedMessage {
    fn read(row: &Row) -> db::Result<Option<Box<Self>>> {
        let kept = row.opt_json("refused_message")?;
        // Of a later version, say: nothing hangs on it.
        Ok(kept.and_then(|kept| serde_json::from_value(kept).ok()))
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
pub async fn get(db: &Db, account: AccountId, id: TrunkId) -> db::Result<Option<Trunk>> {
    db.of(account).get(id).await
}

/// The same inside a transaction, and it stays as it is until that ends.
pub async fn hold(tx: &mut Tx, account: AccountId, id: TrunkId) -> db::Result<Option<Trunk>> {
    tx.of(account).hold(id).await
}

/// The account's active default outbound trunk.
pub async fn find_default_outbound(db: &Db, account: AccountId) -> db::Result<Option<Trunk>> {
    let trunks = db.of(account).whose("status", Status::Active);
    trunks.only("is_default_outbound").first().await
}

/// The trunk over which a call from this number goes: the number's own, else the agent's, else the
/// account's default; one over which nothing may be placed now is passed over. `None`: there is none.
pub async fn for_number(
    db: &Db,
    account: AccountId,
    number: &PhoneNumber,
    of_agent: Option<TrunkId>,
) -> db::Result<Option<Trunk>> {
    for id in [number.trunk_id, of_agent].into_iter().flatten() {
        if let Some(trunk) = get(db, account, id).await?.filter(Trunk::can_dial) {
            return Ok(Some(trunk));
        }
    }
    find_default_outbound(db, account).await
}

/// Adds a trunk; `false`: another inbound trunk of the account is found by its user name.
pub async fn insert(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> db::Result<bool> {
    if is_user_taken(tx, account, trunk).await? {
        return Ok(false);
    }
    let status = trunk.registration.as_ref().map(|r| r.status);
    let insert = tx.insert(account, trunk);
    let insert = insert.also("registration_status", status);
    // Somebody may take the name between the look and the write.
    insert.unless("on conflict do nothing").run().await
}

/// Writes a changed trunk; `false` as of [`insert`].
pub async fn update(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> db::Result<bool> {
    if is_user_taken(tx, account, trunk).await? {
        return Ok(false);
    }
    match tx.update(account, trunk).await {
        Ok(_) => Ok(true),
        // Somebody took the name between the look and the write.
        Err(error) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another inbound trunk of the account is found by this one's user name.
async fn is_user_taken(tx: &mut Tx, account: AccountId, trunk: &Trunk) -> db::Result<bool> {
    let by_user = trunk.kind == TrunkType::Inbound
        && matches!(
            trunk.auth_mode,
            AuthMode::Digest | AuthMode::DigestPlusIpAcl
        );
    if !by_user {
        return Ok(false);
    }
    let inbound = tx.of::<Trunk>(account).only("type = 'inbound'");
    let of_users = inbound.only("auth_mode in ('digest', 'digest_plus_ip_acl')");
    let named = of_users.whose("auth_username", trunk.auth_username.as_deref());
    let found = named.all("id").await?;
    Ok(found.iter().any(|other| other.id != trunk.id))
}

/// Lets one request at a time choose the account's default, or add a trunk to it. To be asked first: who holds a
/// trunk and waits here would be waited for.
pub async fn hold_account(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let lock = tx.engine().for_no_key_update();
    tx.query_built(format!("select id from accounts where id = $1{lock}"))
        .bind(account)
        .optional(|row| row.text("id"))
        .await?;
    Ok(())
}

/// Makes this trunk the account's default, and no other. [`hold_account`] comes before.
pub async fn set_default_outbound(tx: &mut Tx, account: AccountId, id: TrunkId) -> db::Result<()> {
    let default = tx.of::<Trunk>(account).only("is_default_outbound");
    default.set(named! { is_default_outbound: false }).await?;
    let trunk = tx.of::<Trunk>(account).whose("id", id);
    let set = trunk.set(named! { is_default_outbound: true });
    set.await.map(drop)
}

/// Deletes a trunk and its password; `false`: there was none.
pub async fn delete(
    tx: &mut Tx,
    account: AccountId,
    id: TrunkId,
    now: Timestamp,
) -> db::Result<bool> {
    let trunk = tx.of::<Trunk>(account).whose("id", id);
    let deleted = named! {
        deleted_at: now,
        updated_at: now,
        is_default_outbound: false,
        password_sealed: None::<String>,
        registrar: None::<String>,
        registrar_until: None::<Timestamp>,
    };
    Ok(trunk.set(deleted).await? == 1)
}

/// What goes over a trunk, and what went wrong over it lately.
#[derive(Default)]
pub struct Traffic {
    /// Calls that are not over.
    pub active: u32,
    /// Calls that its carrier refused, that nobody answered, or that broke off.
    pub failed: u32,
    /// The one of them that ended last.
    pub last_failed: Option<FailedCall>,
}

/// A call over a trunk that failed.
pub struct FailedCall {
    pub call: CallId,
    pub at: Timestamp,
    pub status: String,
    /// The final response, when there was one.
    pub code: Option<u32>,
}

/// The traffic of each trunk of the account that has any; failures, of the calls made since then.
pub async fn traffic(
    db: &Db,
    account: AccountId,
    since: Timestamp,
) -> db::Result<HashMap<TrunkId, Traffic>> {
    let mut traffic: HashMap<TrunkId, Traffic> = HashMap::new();
    for (trunk, calls) in active_calls(db, account).await? {
        traffic.entry(trunk).or_default().active = calls;
    }
    for (trunk, calls, last) in failed_calls(db, account, since).await? {
        let traffic = traffic.entry(trunk).or_default();
        (traffic.failed, traffic.last_failed) = (calls, Some(last));
    }
    Ok(traffic)
}

/// How many calls over each trunk are not over.
async fn active_calls(db: &Db, account: AccountId) -> db::Result<Vec<(TrunkId, u32)>> {
    db.query(
        "select trunk_id, count(*) as calls from calls
             where account_id = $1 and trunk_id is not null and ended_at is null group by trunk_id",
    )
    .bind(account)
    .all(|row| Ok((row.parse("trunk_id")?, row.u32("calls")?)))
    .await
}

/// What failed over each trunk of the account, of the calls made since then.
async fn failed_calls(
    db: &Db,
    account: AccountId,
    since: Timestamp,
) -> db::Result<Vec<(TrunkId, u32, FailedCall)>> {
    db.query(
        "select * from (
                select c.trunk_id, c.id, c.ended_at, c.status, c.sip_code,
                    count(*) over (partition by c.trunk_id) as calls,
                    row_number() over (
                        partition by c.trunk_id order by c.ended_at desc, c.id desc
                    ) as place
                from calls c join sip_trunks t on t.id = c.trunk_id
                where t.account_id = $1 and t.deleted_at is null and c.created_at >= $2
                    -- Both, so that the index of a trunk's calls by direction and time serves.
                    and c.direction in ('inbound', 'outbound')
                    and c.status in ('failed', 'no-answer', 'busy') and c.ended_at is not null
             ) as failed where place = 1",
    )
    .bind_all(args![account, since])
    .all(|row| {
        let last = FailedCall {
            call: row.parse("id")?,
            at: row.time("ended_at")?,
            status: row.text("status")?,
            code: row.opt_u32("sip_code")?,
        };
        Ok((row.parse("trunk_id")?, row.u32("calls")?, last))
    })
    .await
}

/// How many trunks of all accounts there are in which state: how those that are active and register
/// stand, and `active` or `disabled` for the others.
pub async fn states(db: &Db) -> db::Result<Vec<(String, u32)>> {
    db.query(
        "select case when status = 'active' then coalesce(registration_status, status) else status end
            as state, count(*) as trunks
         from sip_trunks where deleted_at is null group by 1",
    )
    .all(|row| Ok((row.text("state")?, row.u32("trunks")?)))
    .await
}

/// How many calls over trunks of all accounts are not over, by their direction.
pub async fn calls(db: &Db) -> db::Result<Vec<(String, u32)>> {
    db.query(
        "select direction, count(*) as calls from calls where ended_at is null and trunk_id is not null
         group by direction",
    )
    .all(|row| Ok((row.text("direction")?, row.u32("calls")?)))
    .await
}

/// Grows with every change of any trunk; see [`changed`].
pub async fn version(db: &Db) -> db::Result<i64> {
    db.query("select value from counters where name = 'sip_trunks'")
        .one(|row| row.i64("value"))
        .await
}

/// Tells all nodes, once the transaction is committed, that a trunk has changed.
pub async fn changed(tx: &mut Tx) -> db::Result<()> {
    tx.query("update counters set value = value + 1 where name = 'sip_trunks'")
        .execute()
        .await?;
    Ok(())
}

/// The active trunks of all accounts: what a SIP stack is told.
pub async fn all_active(db: &Db) -> db::Result<Vec<Trunk>> {
    db.query("select * from sip_trunks where status = 'active' and deleted_at is null order by id")
        .all(Trunk::read)
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
) -> db::Result<Vec<TrunkId>> {
    db.query(
        "update sip_trunks set registrar = $1, registrar_until = $3
         where auth_mode = 'register' and status = 'active' and deleted_at is null
            and (registrar is null or registrar_until <= $2
                or (registrar = $1 and registrar_until <= $4) or registrar_until > $5)",
    )
    .bind_all(args![node, now, now.plus(lasts)])
    .bind_all(args![now.plus(lasts / 2), now.plus(lasts * 2)])
    .execute()
    .await?;
    db.query("select id from sip_trunks where registrar = $1 and registrar_until > $2")
        .bind_all(args![node, now])
        .all(|row| row.parse("id"))
        .await
}

/// Lets go of this node's claims: another may register at once.
pub async fn release_registrations(db: &Db, node: &str) -> db::Result<()> {
    db.query("update sip_trunks set registrar = null, registrar_until = null where registrar = $1")
        .bind(node)
        .execute()
        .await?;
    Ok(())
}

/// Forgets how the registration went: the trunk begins or ceases to register.
pub async fn unregister(tx: &mut Tx, account: AccountId, id: TrunkId) -> db::Result<()> {
    let trunk = tx.of::<Trunk>(account).whose("id", id);
    let unregistered = named! {
        registration_status: RegistrationStatus::Unregistered,
        registration_expires_at: None::<Timestamp>,
        registration_error: None::<String>,
        failure_at: None::<Timestamp>,
        failure_code: None::<u32>,
        failure_reason: None::<String>,
        registrar_realms: None::<String>,
    };
    let registers = trunk.only("registration_status is not null");
    registers.set(unregistered).await.map(drop)
}

/// Writes down how a registration by this node went: until when it holds, or why it failed. `false`: the trunk is
/// not this node's to register any more. One that slept past its claim writes over no word of the node that has
/// taken it since. All nodes are told of realms that are new.
pub async fn registered(
    db: &Db,
    account: AccountId,
    id: TrunkId,
    node: &str,
    standing: Standing,
) -> db::Result<bool> {
    let Standing { outcome, realms } = standing;
    let (status, expires_at, failure) = match outcome {
        Ok(until) => (RegistrationStatus::Registered, Some(until), None),
        Err(failure) => (RegistrationStatus::Failed, None, Some(failure)),
    };
    let text = failure.as_ref().map(Failure::text);
    let (at, code, reason) = match failure {
        Some(Failure { at, code, reason }) => (Some(at), code.map(u32::from), Some(reason)),
        None => (None, None, None),
    };
    let mut tx = db.begin_write().await?;
    let rows = tx
        .query(
            "update sip_trunks set registration_status = $4, registration_expires_at = $5,
                registration_error = $6, failure_at = coalesce($7, failure_at),
                failure_code = case when $7 is null then failure_code else $8 end,
                failure_reason = coalesce($9, failure_reason)
             where account_id = $1 and id = $2 and registrar = $3 and auth_mode = 'register'
                and status = 'active' and deleted_at is null",
        )
        .bind_all(args![
            account, id, node, status, expires_at, text, at, code, reason
        ])
        .execute()
        .await?;
    if rows == 1
        && let Some(realms) = realms
        && keep_realms(&mut tx, account, id, &realms).await?
    {
        changed(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(rows == 1)
}

/// Keeps the realms of a trunk's registrar; whether they are others than before.
async fn keep_realms(
    tx: &mut Tx,
    account: AccountId,
    id: TrunkId,
    realms: &[String],
) -> db::Result<bool> {
    if realms.iter().any(|realm| realm.len() > LONGEST_REALM) {
        tracing::warn!(trunk = %id, "a registrar's realm is too long to be kept: other nodes are not told of it");
        return Ok(false);
    }
    let kept = serde_json::json!(realms).to_string();
    let rows = tx
        .query(
            "update sip_trunks set registrar_realms = $3
             where account_id = $1 and id = $2 and (registrar_realms is null or registrar_realms <> $3)",
        )
        .bind_all(args![account, id, kept])
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
) -> db::Result<()> {
    let trunk = db.of::<Trunk>(account).whose("id", id);
    let challenge = named! {
        challenge_at: refused.at,
        challenge_code: refused.code.map(u32::from),
        challenge_reason: refused.reason,
    };
    trunk.set(challenge).await.map(drop)
}

/// Writes down that a message of a trunk's carrier was not used.
pub async fn message_refused(
    db: &Db,
    account: AccountId,
    id: TrunkId,
    refused: &RefusedMessage,
) -> db::Result<()> {
    let trunk = db.of::<Trunk>(account).whose("id", id);
    let message = named! { refused_message: serde_json::json!(refused).to_string() };
    trunk.set(message).await.map(drop)
}
