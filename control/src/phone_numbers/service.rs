//! Numbers as they are registered and changed: what takes agents and trunks to judge.

use super::rules::{Provider, RoutingRules, digits};
use super::store::{self, PhoneNumber};
use super::wire::{PatchNumber, RegisterSipNumber};
use crate::db::{Db, DbError, Tx};
use crate::http::validate::FieldError;
use crate::http::{ApiError, Found, Patch};
use crate::ids::{AccountId, AgentId, PhoneNumberId, TrunkId};
use crate::node::Node;
use crate::numbers::spelling::{means, right_spelling};

/// So many digits at its end a number has in common with every way to dial it, whatever its country dials before
/// others (8 in Russia); fewer do not tell a number.
const ENDING: usize = 6;

/// Registers a number on a trunk, whose agent and trunk are there: 409 when it is somebody's already.
pub async fn register(
    app: &Node,
    tx: &mut Tx,
    account: AccountId,
    new: RegisterSipNumber,
) -> Result<PhoneNumber, ApiError> {
    let RegisterSipNumber {
        phone_number,
        trunk_id,
        friendly_name,
        agent_id,
        outbound_enabled,
        inbound,
    } = new;
    if is_meant_elsewhere(tx, account, &phone_number).await? {
        return Err(ApiError::conflict(
            "number_already_registered",
            format!(
                "{phone_number} is a spelling of a number that is registered on another account: register yours in E.164"
            ),
        ));
    }
    let now = app.clock.now();
    let number = PhoneNumber {
        id: PhoneNumberId::new(&app.clock),
        account,
        phone_number,
        provider: Provider::Sip,
        friendly_name: friendly_name.unwrap_or_default(),
        agent_id,
        outbound_enabled,
        trunk_id: Some(trunk_id),
        routing_rules: inbound,
        telco_account_id: None,
        messaging_account_id: None,
        sms_sender: false,
        sms_sender_default: false,
        sms_inbound: false,
        replies_acknowledged_at: None,
        created_at: now,
        updated_at: now,
    };
    if store::insert(tx, account, &number).await? {
        return Ok(number);
    }
    let whose = match store::own(tx, account, &number.phone_number).await? {
        Some(id) => format!("on this account: release {id} first"),
        None => "on another account".to_owned(),
    };
    Err(ApiError::conflict(
        "number_already_registered",
        format!("{} is registered {whose}", number.phone_number),
    ))
}

/// `POST /phone-numbers/sip/register`.
pub async fn register_sip(
    app: &Node,
    account: AccountId,
    body: RegisterSipNumber,
) -> Result<PhoneNumber, ApiError> {
    check_rules("inbound", body.inbound.as_ref())?;
    let mut tx = app.db.begin_write().await?;
    hold_trunk(&mut tx, account, body.trunk_id).await?;
    hold_agent(&mut tx, account, body.agent_id).await?;
    let number = register(app, &mut tx, account, body).await?;
    tx.commit().await?;
    Ok(number)
}

/// Changes a number: only what is given.
pub async fn change(
    app: &Node,
    account: AccountId,
    id: PhoneNumberId,
    body: PatchNumber,
) -> Result<PhoneNumber, ApiError> {
    if let Patch::Value(rules) = &body.routing_rules {
        check_rules("routing_rules", Some(rules))?;
    }
    let mut tx = app.db.begin_write().await?;
    let old: PhoneNumber = tx.of(account).hold(id).await?.found()?;
    check_texts(&old, &body)?;
    let PatchNumber {
        friendly_name,
        agent_id,
        routing_rules,
        outbound_enabled,
        trunk_id,
        // Only what is so already has passed.
        sms_sender: _,
        sms_sender_default: _,
        sms_inbound: _,
        acknowledge_no_replies: _,
        messaging_account_id: _,
    } = body;
    if let Some(trunk) = trunk_id {
        if old.provider != Provider::Sip {
            let why = "Only numbers of a trunk have one";
            return Err(ApiError::field("trunk_id", "value_error", why));
        }
        if old.trunk_id != Some(trunk) {
            hold_trunk(&mut tx, account, trunk).await?;
        }
    }
    if let Patch::Value(agent) = agent_id {
        hold_agent(&mut tx, account, Some(agent)).await?;
    }
    let mut number = PhoneNumber {
        friendly_name: friendly_name.unwrap_or_else(|| old.friendly_name.clone()),
        agent_id: agent_id.or(old.agent_id),
        routing_rules: routing_rules.or(old.routing_rules.clone()),
        // It has no effect on a telco number.
        outbound_enabled: outbound_enabled
            .filter(|_| old.provider == Provider::Sip)
            .unwrap_or(old.outbound_enabled),
        trunk_id: trunk_id.or(old.trunk_id),
        ..old.clone()
    };
    if number == old {
        return Ok(old);
    }
    number.updated_at = app.clock.now().max(old.updated_at);
    tx.update(account, &number).await?;
    tx.commit().await?;
    Ok(number)
}

/// The numbers on this trunk, or on any when `None`, that a carrier may mean with what it dials, where it writes
/// them as their country does or with the prefix for abroad.
pub async fn find_meant(
    db: &Db,
    account: AccountId,
    trunk: Option<TrunkId>,
    dialled: &str,
) -> Result<Vec<PhoneNumber>, DbError> {
    let Some(ending) = ending(dialled) else {
        return Ok(Vec::new());
    };
    let mut found = store::ending_with(db, account, trunk, ending).await?;
    found.retain(|number| means(dialled, &number.phone_number));
    Ok(found)
}

/// Whether a carrier that dials this may mean a number of another account.
async fn is_meant_elsewhere(
    tx: &mut Tx,
    account: AccountId,
    dialled: &str,
) -> Result<bool, DbError> {
    let Some(ending) = ending(dialled) else {
        return Ok(false);
    };
    let found = store::elsewhere_ending_with(tx, account, ending).await?;
    Ok(found.iter().any(|number| means(dialled, number)))
}

/// The end of a text that may mean a number which is registered otherwise.
fn ending(dialled: &str) -> Option<&str> {
    let digits = digits(dialled);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // With the plus it is that number alone, unless it is misspelt.
    let may_mean = is_number && (digits == dialled || right_spelling(dialled).is_some());
    let start = digits.len().checked_sub(ENDING).filter(|_| may_mean)?;
    digits.get(start..)
}

/// Refuses texts where the number cannot carry them (document 3, PATCH fields).
fn check_texts(number: &PhoneNumber, body: &PatchNumber) -> Result<(), ApiError> {
    let mut wrong = Vec::new();
    let default = (body.sms_sender_default, number.sms_sender_default);
    for (field, (wanted, is)) in [
        ("sms_sender", (body.sms_sender, number.sms_sender)),
        ("sms_sender_default", default),
        ("sms_inbound", (body.sms_inbound, number.sms_inbound)),
    ] {
        if wanted.is_some_and(|wanted| wanted != is) {
            let why = "This number cannot carry texts: it is on no telco account of yours";
            wrong.push(FieldError::value(field, why));
        }
    }
    if body.messaging_account_id.is_some() && !matches!(number.provider, Provider::Regional(_)) {
        let why = "Only short codes have one";
        wrong.push(FieldError::value("messaging_account_id", why));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ApiError::Fields(wrong))
    }
}

/// Refuses rules that cannot be followed; `at` is where they stand in the body, `""` for the body itself.
pub(super) fn check_rules(at: &str, rules: Option<&RoutingRules>) -> Result<(), ApiError> {
    match rules.map(RoutingRules::check) {
        None | Some(Ok(())) => Ok(()),
        Some(Err(why)) => Err(ApiError::field(
            &format!("{at}.fallback_number"),
            "missing",
            why,
        )),
    }
}

/// 404 unless the agent is there; it stays until the transaction ends.
pub async fn hold_agent(
    tx: &mut Tx,
    account: AccountId,
    agent: Option<AgentId>,
) -> Result<(), ApiError> {
    match agent {
        Some(agent) if !store::hold_agent(tx, account, agent).await? => {
            Err(ApiError::missing("agent_id: no such agent"))
        }
        _ => Ok(()),
    }
}

async fn hold_trunk(tx: &mut Tx, account: AccountId, trunk: TrunkId) -> Result<(), ApiError> {
    match store::hold_trunk(tx, account, trunk).await? {
        Some(true) => Ok(()),
        Some(false) => Err(ApiError::unprocessable(
            "trunk_inactive",
            "The trunk is disabled",
        )),
        None => Err(ApiError::missing("trunk_id: no such trunk")),
    }
}
