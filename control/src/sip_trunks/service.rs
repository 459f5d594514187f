//! Trunks as they are made and changed: what a rule of one field cannot tell, and the SIP stack's word.

use super::Trunks;
use super::auth::{self, Given};
use super::entries::{as_written, check_addresses, check_host, distinct};
use super::rules::{
    AuthMode, FromUser, MediaEncryption, OutboundAuth, REGISTER_EXPIRES, RegistrationStatus,
    Status, Transport, TrunkType, host_and_port,
};
use super::store::{self, Registration, Trunk};
use super::wire::{CreateTrunk, OnboardTrunk, PatchTrunk};
use crate::db::Tx;
use crate::http::validate::FieldError;
use crate::http::{ApiError, Found};
use crate::ids::{AccountId, TrunkId};
use crate::node::Node;
use crate::numbers::{DialFormat, digits};
use crate::phone_numbers::wire::RegisterSipNumber;
use crate::phone_numbers::{self, PhoneNumber};

/// Calls at the same time over a trunk that does not say.
const CONCURRENT_CALLS: u32 = 10;

/// Before a registrar has answered.
const UNREGISTERED: Registration = Registration {
    status: RegistrationStatus::Unregistered,
    expires_at: None,
    last_error: None,
    last_failure: None,
    realms: None,
};

/// An outbound trunk with its numbers, all or nothing.
pub async fn onboard(
    app: &Trunks,
    account: AccountId,
    body: OnboardTrunk,
) -> Result<(Trunk, Vec<PhoneNumber>), ApiError> {
    let OnboardTrunk {
        name,
        outbound_address,
        numbers,
        auth_mode,
        auth_username,
        auth_password,
        allow_md5_without_qop,
        follow_redirects,
        transport,
        media_encryption,
        outbound_dial_format,
        agent_id,
        inbound,
        outbound_enabled,
        destination_allowlist,
        max_concurrent_calls,
        calls_per_hour_limit,
        set_as_tenant_default,
    } = body;
    let mut wrong = distinct(&numbers, digits);
    if let Some(Err(why)) = inbound.as_ref().map(|rules| rules.check()) {
        wrong.push(FieldError::body("inbound.fallback_number", "missing", why));
    }
    let trunk = new_trunk(
        app,
        account,
        CreateTrunk {
            name,
            kind: TrunkType::Outbound,
            numbers: numbers.clone(),
            allowed_addresses: Vec::new(),
            auth_mode,
            outbound_auth: None,
            outbound_from_user: None,
            auth_username,
            auth_password,
            allow_md5_without_qop,
            follow_redirects,
            outbound_address: Some(outbound_address),
            realm: None,
            register_expires: None,
            transport,
            media_encryption,
            outbound_dial_format,
            destination_allowlist,
            max_concurrent_calls,
            calls_per_hour_limit,
        },
        wrong,
    )?;
    let edge = edge(app, Some(trunk.transport)).await;
    let mut tx = app.db.begin_write().await?;
    has_room(app, &mut tx, account).await?;
    phone_numbers::service::hold_agent(&mut tx, account, agent_id).await?;
    edge?;
    fits(store::insert(&mut tx, account, &trunk).await?)?;
    let mut registered = Vec::with_capacity(numbers.len());
    for number in &numbers {
        let number = RegisterSipNumber {
            phone_number: number.clone(),
            trunk_id: trunk.id,
            friendly_name: None,
            agent_id,
            outbound_enabled: outbound_enabled.unwrap_or(true),
            inbound: inbound.clone(),
        };
        registered.push(phone_numbers::register(app, &mut tx, account, number).await?);
    }
    let mut trunk = trunk;
    if set_as_tenant_default {
        store::set_default_outbound(&mut tx, account, trunk.id).await?;
        trunk.is_default_outbound = true;
    }
    commit(app, tx).await?;
    Ok((trunk, registered))
}

/// A trunk by itself.
pub async fn create(
    app: &Trunks,
    account: AccountId,
    body: CreateTrunk,
) -> Result<Trunk, ApiError> {
    let wrong = match body.kind {
        TrunkType::Inbound => distinct(&body.numbers, as_written),
        TrunkType::Outbound => distinct(&body.numbers, digits),
    };
    let trunk = new_trunk(app, account, body, wrong)?;
    edge(app, Some(trunk.transport)).await?;
    let mut tx = app.db.begin_write().await?;
    has_room(app, &mut tx, account).await?;
    not_elsewhere(&mut tx, account, &trunk.numbers).await?;
    fits(store::insert(&mut tx, account, &trunk).await?)?;
    commit(app, tx).await?;
    Ok(trunk)
}

/// Changes a trunk: only what is given.
pub async fn change(
    app: &Trunks,
    account: AccountId,
    id: TrunkId,
    body: PatchTrunk,
) -> Result<Trunk, ApiError> {
    let PatchTrunk {
        name,
        numbers,
        allowed_addresses,
        destination_allowlist,
        max_concurrent_calls,
        calls_per_hour_limit,
        outbound_dial_format,
        auth_mode,
        auth_username,
        auth_password,
        allow_md5_without_qop,
        follow_redirects,
        status,
    } = body;
    let mut tx = app.db.begin_write().await?;
    let old: Trunk = tx.of(account).hold(id).await?.found()?;
    let mut trunk = old.clone();
    let mut wrong = Vec::new();
    let replace = "An outbound trunk keeps this: make a new trunk in its place";
    if old.kind == TrunkType::Outbound {
        for (field, given) in [
            ("numbers", numbers.is_some()),
            ("allowed_addresses", allowed_addresses.is_some()),
            ("auth_mode", auth_mode.is_some()),
        ] {
            if given {
                wrong.push(FieldError::value(field, replace));
            }
        }
    }
    if let Some(mode) = auth_mode
        && old.kind == TrunkType::Inbound
        && mode != old.auth_mode
        && [mode, old.auth_mode].contains(&AuthMode::Register)
    {
        let why = "A trunk neither begins nor ceases to register: make a new one in its place";
        wrong.push(FieldError::value("auth_mode", why));
    }
    if let Some(addresses) = &allowed_addresses {
        wrong.extend(check_addresses(addresses, &app.config.egress.allow));
    }
    wrong.extend(distinct(numbers.as_deref().unwrap_or_default(), as_written));
    if !wrong.is_empty() {
        return Err(ApiError::Fields(wrong));
    }
    trunk.name = name.unwrap_or(trunk.name);
    trunk.outbound_dial_format = outbound_dial_format.unwrap_or(trunk.outbound_dial_format);
    trunk.status = status.unwrap_or(trunk.status);
    let renumbered = numbers.is_some();
    trunk.numbers = numbers.unwrap_or(trunk.numbers);
    trunk.allowed_addresses = allowed_addresses.unwrap_or(trunk.allowed_addresses);
    trunk.allow_md5_without_qop = allow_md5_without_qop.unwrap_or(trunk.allow_md5_without_qop);
    trunk.follow_redirects = follow_redirects.unwrap_or(trunk.follow_redirects);
    trunk.destinations = destination_allowlist.or(trunk.destinations);
    let caps = &app.config.sip;
    if let Some(calls) = max_concurrent_calls {
        trunk.max_concurrent_calls = calls.min(caps.trunk_calls);
    }
    trunk.calls_per_hour_limit = calls_per_hour_limit
        .map(|calls| calls.min(caps.trunk_calls_per_hour))
        .or(trunk.calls_per_hour_limit);
    reauthenticate(app, &mut trunk, auth_mode, auth_username, auth_password)?;
    if trunk.status != Status::Active {
        trunk.is_default_outbound = false;
    }
    if trunk == old {
        return Ok(old);
    }
    // Whatever the settings say by now, one that stands may be renamed or disabled.
    let begins = trunk.status == Status::Active && old.status != Status::Active;
    edge(app, begins.then_some(trunk.transport)).await?;
    if renumbered {
        not_elsewhere(&mut tx, account, &trunk.numbers).await?;
    }
    if trunk.status != old.status && trunk.registration.is_some() {
        trunk.registration = Some(UNREGISTERED);
        store::unregister(&mut tx, account, id).await?;
    }
    trunk.updated_at = app.clock.now().max(old.updated_at);
    fits(store::update(&mut tx, account, &trunk).await?)?;
    commit(app, tx).await?;
    Ok(trunk)
}

/// 409 where the account has as many trunks as it may; disabled ones are among them. Whoever adds one to an account
/// comes here one after the other.
async fn has_room(app: &Node, tx: &mut Tx, account: AccountId) -> Result<(), ApiError> {
    store::hold_account(tx, account).await?;
    let most = app.config.sip.account_trunks;
    match tx.of::<Trunk>(account).count().await? < u64::from(most) {
        true => Ok(()),
        false => Err(ApiError::conflict(
            "trunk_limit_reached",
            format!(
                "The account has {most} SIP trunks, as many as it may (sip.account_trunks): delete one first"
            ),
        )),
    }
}

/// Gives a changed trunk its mode and credentials, if they go together with the rest of it.
fn reauthenticate(
    app: &Node,
    trunk: &mut Trunk,
    mode: Option<AuthMode>,
    username: Option<String>,
    password: Option<String>,
) -> Result<(), ApiError> {
    let (has_username, has_password) = (username.is_some(), password.is_some());
    let Some(mode) = mode else {
        if has_username || has_password {
            return Err(inconsistent(
                "Credentials are changed together with auth_mode",
            ));
        }
        return check_auth(
            trunk,
            trunk.auth_username.is_some(),
            trunk.password_sealed.is_some(),
        );
    };
    trunk.auth_mode = mode;
    check_auth(trunk, has_username, has_password)?;
    trunk.auth_username = username;
    trunk.password_sealed = seal(app, trunk.id, password.as_deref())?;
    Ok(())
}

fn check_auth(trunk: &Trunk, username: bool, password: bool) -> Result<(), ApiError> {
    let given = Given {
        kind: trunk.kind,
        mode: trunk.auth_mode,
        username,
        password,
        addresses: !trunk.allowed_addresses.is_empty(),
        register_only: false,
    };
    auth::check(given).map_err(inconsistent)
}

/// Makes an active outbound trunk the account's default.
pub async fn set_default_outbound(
    app: &Node,
    account: AccountId,
    id: TrunkId,
) -> Result<Trunk, ApiError> {
    let mut tx = app.db.begin_write().await?;
    store::hold_account(&mut tx, account).await?;
    let mut trunk: Trunk = tx.of(account).hold(id).await?.found()?;
    if trunk.kind != TrunkType::Outbound || trunk.status != Status::Active {
        return Err(ApiError::unprocessable(
            "trunk_inactive",
            "Only an active outbound trunk can be the default",
        ));
    }
    store::set_default_outbound(&mut tx, account, id).await?;
    commit(app, tx).await?;
    trunk.is_default_outbound = true;
    Ok(trunk)
}

/// Deletes a trunk, if it is there; its numbers stay, without a trunk.
pub async fn delete(app: &Node, account: AccountId, id: TrunkId) -> Result<(), ApiError> {
    let mut tx = app.db.begin_write().await?;
    if store::delete(&mut tx, account, id, app.clock.now()).await? {
        phone_numbers::store::leave_trunk(&mut tx, account, id, app.clock.now()).await?;
        commit(app, tx).await?;
    }
    Ok(())
}

/// What a body makes, with the defaults of the document. `wrong`: what the caller found already.
fn new_trunk(
    app: &Node,
    account: AccountId,
    body: CreateTrunk,
    mut wrong: Vec<FieldError>,
) -> Result<Trunk, ApiError> {
    let CreateTrunk {
        name,
        kind,
        numbers,
        allowed_addresses,
        auth_mode,
        outbound_auth,
        outbound_from_user,
        auth_username,
        auth_password,
        allow_md5_without_qop,
        follow_redirects,
        outbound_address,
        realm,
        register_expires,
        transport,
        media_encryption,
        outbound_dial_format,
        destination_allowlist,
        max_concurrent_calls,
        calls_per_hour_limit,
    } = body;
    let allow = &app.config.egress.allow;
    let mode = auth_mode.unwrap_or(AuthMode::Digest);
    let registers = mode == AuthMode::Register;
    wrong.extend(check_addresses(&allowed_addresses, allow));
    match &outbound_address {
        None if kind == TrunkType::Outbound || registers => {
            wrong.push(FieldError::missing("outbound_address"));
        }
        Some(_) if kind == TrunkType::Inbound && !registers => {
            let why = "Only outbound trunks and those that register have one";
            wrong.push(FieldError::value("outbound_address", why));
        }
        Some(address) => wrong.extend(check_host("outbound_address", address, allow)),
        None => {}
    }
    if let Some(realm) = &realm {
        wrong.extend(check_host("realm", realm, allow));
    }
    let register_only = realm.is_some()
        || register_expires.is_some()
        || outbound_auth.is_some()
        || outbound_from_user.is_some();
    // Where it registers, its domain is its registrar's host unless it is told.
    let registrar = outbound_address.as_deref().filter(|_| registers);
    let host = registrar.and_then(|address| Some(host_and_port(address)?.0.to_owned()));
    let trunk = Trunk {
        id: TrunkId::new(&app.clock),
        account,
        name,
        kind,
        numbers,
        allowed_addresses,
        auth_mode: mode,
        auth_username,
        password_sealed: None,
        allow_md5_without_qop,
        follow_redirects,
        outbound_address,
        realm: realm.or(host),
        register_expires: registers.then(|| register_expires.unwrap_or(REGISTER_EXPIRES)),
        outbound_auth: outbound_auth.or(registers.then_some(OutboundAuth::Proxy)),
        outbound_from_user: outbound_from_user.or(registers.then_some(FromUser::Number)),
        transport: transport.unwrap_or(Transport::Udp),
        media_encryption: media_encryption.unwrap_or(MediaEncryption::Allow),
        outbound_dial_format: outbound_dial_format.unwrap_or(DialFormat::E164),
        destinations: destination_allowlist,
        max_concurrent_calls: max_concurrent_calls
            .unwrap_or(CONCURRENT_CALLS)
            .min(app.config.sip.trunk_calls),
        calls_per_hour_limit: calls_per_hour_limit
            .map(|calls| calls.min(app.config.sip.trunk_calls_per_hour)),
        is_default_outbound: false,
        status: Status::Active,
        registration: registers.then_some(UNREGISTERED),
        refused_challenge: None,
        refused_message: None,
        created_at: app.clock.now(),
        updated_at: app.clock.now(),
    };
    if !wrong.is_empty() {
        return Err(ApiError::Fields(wrong));
    }
    let given = Given {
        kind,
        mode,
        username: trunk.auth_username.is_some(),
        password: auth_password.is_some(),
        addresses: !trunk.allowed_addresses.is_empty(),
        register_only,
    };
    auth::check(given).map_err(inconsistent)?;
    Ok(Trunk {
        password_sealed: seal(app, trunk.id, auth_password.as_deref())?,
        ..trunk
    })
}

/// The SIP stack of this node, listening, over the transport of a trunk that begins to be used too: 502 when
/// it does not. What a carrier asks for over TCP or TLS comes to where we listen (RFC 3261 section 18).
async fn edge(app: &Trunks, transport: Option<Transport>) -> Result<(), ApiError> {
    let failed = |why: String| ApiError::Upstream {
        code: "provisioning_failed",
        message: format!("The SIP stack does not listen: {why}"),
    };
    // Whatever it listens over, it has to be there.
    let asked = transport.unwrap_or(Transport::Udp);
    let listens = app.stack.listens(&app.node, asked).await;
    let listens = listens.map_err(|error| failed(error.to_string()))?;
    match transport {
        Some(transport) if !listens => {
            Err(failed(format!("sip.listen names no {transport} address")))
        }
        _ => Ok(()),
    }
}

/// Commits, and tells every node.
async fn commit(app: &Node, mut tx: Tx) -> Result<(), ApiError> {
    store::changed(&mut tx).await?;
    tx.commit().await?;
    app.trunks_changed.notify_one();
    Ok(())
}

/// Refuses numbers that another account has registered.
async fn not_elsewhere(
    tx: &mut Tx,
    account: AccountId,
    numbers: &[String],
) -> Result<(), ApiError> {
    for number in numbers {
        if phone_numbers::store::is_elsewhere(tx, account, number).await? {
            return Err(ApiError::conflict(
                "number_already_registered",
                format!("{number} belongs to another account"),
            ));
        }
    }
    Ok(())
}

fn seal(app: &Node, id: TrunkId, password: Option<&str>) -> Result<Option<String>, ApiError> {
    password
        .map(|password| store::seal(&app.master_key, id, password))
        .transpose()
        .map_err(ApiError::internal)
}

fn inconsistent(why: &str) -> ApiError {
    ApiError::BadRequest {
        code: "trunk_auth_inconsistent",
        message: why.to_owned(),
    }
}

/// 409 where another trunk has the user name of the one that is written.
fn fits(written: bool) -> Result<(), ApiError> {
    let why =
        "Another inbound trunk of this account is known by this auth_username: choose another";
    let taken = || ApiError::conflict("name_taken", why);
    written.then_some(()).ok_or_else(taken)
}
