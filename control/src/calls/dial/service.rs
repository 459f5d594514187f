//! Whether a call may be placed, and placing it. The refusals stand here in the order of the API.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::rules::{CallerId, caller_id, may_call_from};
use super::store::{self, Placing};
use super::wire::{PlaceCall, PlacedCall, unfit};
use super::{number, rules};
use crate::admission::{Lease, Renewal, Request, State};
use crate::agents::{self, Agent};
use crate::calls::bridge::telephone::{Calling, Exchange, outbound};
use crate::calls::journal::Owner;
use crate::calls::live::Dialling;
use crate::calls::rules::{Channel, Direction, Ending};
use crate::calls::{self, bridge, lifecycle};
use crate::db::DbError;
use crate::http::{ApiError, abandoned};
use crate::idempotency::{self, Key, Seen};
use crate::ids::{AccountId, AgentId, CallId, TrunkId};
use crate::node::Node;
use crate::numbers::digits;
use crate::phone_numbers::{self, PhoneNumber};
use crate::sip_trunks::{self, DialFormat, Trunk};
use crate::time::Timestamp;
use crate::{billing, suppressions, webhooks};

/// How long a client waits before it asks again a node that cannot place calls now, seconds.
const RETRY_AFTER: u32 = 5;

/// What a request was answered with.
#[derive(Debug)]
pub struct Answer {
    pub call: PlacedCall,
    /// It was placed by an earlier request of the same key.
    pub replayed: bool,
}

/// Places a call, unless this request did before.
pub async fn place(
    app: &Calling,
    account: AccountId,
    wish: PlaceCall,
    key: Option<Key>,
) -> Result<Answer, ApiError> {
    if let Some(key) = &key
        && let Some(answer) = replay(app, account, key).await?
    {
        return Ok(answer);
    }
    let judged = judge(app, account, &wish).await?;
    // A call with a slot and a record must be placed or ended.
    let app = app.clone();
    let placing = async move { begin(&app, account, judged, &wish, key.as_ref()).await };
    abandoned::goes_on("a call could not be placed", placing).await
}

/// Takes a slot, writes the call down and dials.
async fn begin(
    app: &Node,
    account: AccountId,
    judged: Judged,
    wish: &PlaceCall,
    key: Option<&Key>,
) -> Result<Answer, ApiError> {
    let id = CallId::new(&app.clock);
    let request = Request {
        trunk: Some((judged.trunk.id, judged.trunk.max_concurrent_calls)),
        // Live at once: it may ring for longer than a pending lease lasts, and has this node's seat.
        ..bridge::wish(app, account, id, State::Live)
    };
    let slot = Renewal::from(&request);
    // Given back when it is dropped.
    let lease = app.admit(request).await?;
    let dialling = Arc::new(Dialling::new(account, slot));
    // Renewed and found by who cancels it from the moment on in which its record stands.
    app.live.dial(id, Arc::clone(&dialling));
    let noted = Noted { app, id };
    let Written::Call(created_at) = write(app, account, id, &judged, wish, key).await? else {
        drop((noted, lease));
        // Another request of this key was first by a moment.
        let found = match key {
            Some(key) => replay(app, account, key).await?,
            None => None,
        };
        return found.ok_or_else(|| ApiError::internal("a repeated request left no call"));
    };
    let call = PlacedCall {
        call_id: id,
        conversation_id: id,
        status: "queued",
        agent_id: judged.agent.id,
        to_number: wish.to_number.clone(),
        // As it was asked for: E.164, however it was registered.
        from_number: wish.from_number.clone().unwrap_or_default(),
        created_at,
    };
    judged.dial(app, account, id, wish.ring_seconds(), lease, dialling);
    noted.goes_on();
    Ok(Answer {
        call,
        replayed: false,
    })
}

/// A call among those that this process places: no more, once this is dropped.
struct Noted<'a> {
    app: &'a Node,
    id: CallId,
}

impl Noted<'_> {
    /// It is dialled: whoever follows it takes it out.
    fn goes_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.app.live.dialled(self.id);
    }
}

/// What an earlier request of this key was answered with.
async fn replay(app: &Node, account: AccountId, key: &Key) -> Result<Option<Answer>, ApiError> {
    let Seen::Again(id) = idempotency::find(app, account, key).await? else {
        return Ok(None);
    };
    let id: CallId = id.parse().map_err(ApiError::internal)?;
    let call = calls::store::get(&app.db, account, id)
        .await?
        .ok_or_else(|| ApiError::internal("the call of an earlier request is gone"))?;
    Ok(Some(Answer {
        call: call.into(),
        replayed: true,
    }))
}

/// A wish that nothing speaks against but a lack of room.
struct Judged {
    agent: Agent,
    number: PhoneNumber,
    trunk: Trunk,
    to: String,
    from: CallerId,
    exchange: Arc<Exchange>,
}

impl Judged {
    fn dial(
        self,
        app: &Node,
        account: AccountId,
        id: CallId,
        ring_seconds: u32,
        lease: Lease,
        dialling: Arc<Dialling>,
    ) {
        let call = outbound::Dial {
            account,
            id,
            trunk: self.trunk,
            to: self.to,
            from: self.from,
            ring_for: Duration::from_secs(ring_seconds.into()),
            lease: Some(lease),
            dialling,
            onward: None,
        };
        outbound::dial(app, &self.exchange, call);
    }
}

async fn judge(app: &Calling, account: AccountId, wish: &PlaceCall) -> Result<Judged, ApiError> {
    wish.check()?;
    let agent: AgentId = wish.agent_id.parse().map_err(|_| ApiError::NotFound)?;
    let agent = agents::store::get(&app.db, account, agent)
        .await?
        .ok_or(ApiError::NotFound)?;
    if agent.status != agents::Status::Active {
        return Err(ApiError::conflict(
            "agent_not_ready",
            format!("The agent is {}", agent.status.name()),
        ));
    }
    billing::require(app, account).await?;
    let number = calling_number(app, account, wish.from_number.as_deref()).await?;
    suppressions::check(app, account, &wish.to_number).await?;
    let of_agent = agent.settings.outbound_trunk_id.as_deref();
    let of_agent = of_agent.and_then(|id| id.parse().ok());
    let (trunk, to) = way_out(app, account, of_agent, &number, &wish.to_number).await?;
    bridge::can_speak(app, &agent)?;
    let exchange = match app.telephone.open(app).await {
        Ok(exchange) => Arc::clone(exchange),
        Err(error) => {
            tracing::error!(%error, "this node places no telephone calls");
            return Err(ApiError::Unavailable {
                code: "service_unavailable",
                message: "This server cannot place telephone calls right now".to_owned(),
                retry_after: RETRY_AFTER,
            });
        }
    };
    if let Some(limit) = trunk.calls_per_hour_limit {
        let now = app.clock.shared();
        let full = store::full_until(&app.db, account, trunk.id, limit, now).await?;
        has_room(limit, full, now)?;
    }
    Ok(Judged {
        from: caller_id(&trunk, &number),
        agent,
        number,
        trunk,
        to,
        exchange,
    })
}

async fn calling_number(
    app: &Node,
    account: AccountId,
    asked: Option<&str>,
) -> Result<PhoneNumber, ApiError> {
    let refused = |why| unfit(why, asked);
    let asked = asked.ok_or_else(|| refused(rules::Unfit::Required))?;
    let number = own_number(app, account, asked)
        .await?
        .ok_or_else(|| refused(rules::Unfit::NotRegistered))?;
    if is_of_another_country(app, &number, asked).await? {
        return Err(refused(rules::Unfit::NotRegistered));
    }
    may_call_from(&number).map_err(refused)?;
    Ok(number)
}

/// The account's number of that name (E.164): registered so, or as its country writes it, where its carrier
/// knows it by that.
pub(in crate::calls) async fn own_number(
    app: &Node,
    account: AccountId,
    asked: &str,
) -> Result<Option<PhoneNumber>, DbError> {
    let find = phone_numbers::store::find_active_by_number;
    let whole = find(&app.db, account, asked).await?;
    if whole.is_some() {
        return Ok(whole);
    }
    let Some(national) = number::written(asked, DialFormat::National) else {
        return Ok(None);
    };
    let found = find(&app.db, account, &national).await?;
    // What has a plus is a number of the whole world, and another one.
    Ok(found.filter(|own| !own.phone_number.starts_with('+')))
}

/// Whether a number that was registered as its country writes it is not the one that is asked for (E.164), as the
/// other numbers of its trunk tell. Where they tell nothing, the client knows best.
async fn is_of_another_country(
    app: &Node,
    own: &PhoneNumber,
    asked: &str,
) -> Result<bool, DbError> {
    let written = own.phone_number.as_str();
    let (Some(trunk), false) = (own.trunk_id, digits(written) == digits(asked)) else {
        return Ok(false);
    };
    let beside = phone_numbers::store::whole_of_trunk(&app.db, own.account, trunk).await?;
    let mut told = beside
        .iter()
        .filter_map(|neighbour| number::dialled_beside(neighbour, written))
        .peekable();
    Ok(told.peek().is_some() && told.all(|told| told != asked))
}

/// The trunk (the number's, the agent's or the default one), and the number to call as it wants it.
pub(in crate::calls) async fn way_out(
    app: &Node,
    account: AccountId,
    of_agent: Option<TrunkId>,
    number: &PhoneNumber,
    to: &str,
) -> Result<(Trunk, String), ApiError> {
    let trunk = sip_trunks::store::for_number(&app.db, account, number, of_agent)
        .await?
        .ok_or_else(no_trunk)?;
    // Another spelling of a number that may not be called is not called either.
    let to = number::canonical(to);
    if !trunk.may_call(&to) {
        return Err(ApiError::Refused {
            code: "destination_not_allowed",
            message: "The trunk's destination_allowlist does not let this number be called"
                .to_owned(),
            detail: json!({
                "trunk_id": trunk.id,
                "mode": trunk.destinations.as_ref().map(|list| list.mode),
            }),
        });
    }
    let written = number::written(&to, trunk.outbound_dial_format).ok_or_else(|| {
        ApiError::field(
            "to_number",
            "value_error",
            "The number has no national form, in which the trunk dials",
        )
    })?;
    Ok((trunk, written))
}

fn no_trunk() -> ApiError {
    ApiError::unprocessable(
        "trunk_inactive",
        "No active outbound trunk: neither of the number, nor of the agent, nor a default one",
    )
}

/// 429 where the trunk has placed its calls of this hour, until `full`.
pub(in crate::calls) fn has_room(
    limit: u32,
    full: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), ApiError> {
    match full {
        None => Ok(()),
        Some(until) => Err(ApiError::TrunkHour {
            limit,
            retry_after: whole_seconds(until.since(now)),
        }),
    }
}

/// Rounded up, and never none.
fn whole_seconds(left: Duration) -> u32 {
    let seconds = left.as_millis().div_ceil(1000).max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

enum Written {
    /// The call stands, since then.
    Call(Timestamp),
    /// A request of the same key was first.
    Repeated,
}

/// Writes the call down as one that this process hosts. Whoever places calls over one trunk comes here
/// one after the other, so that its hour is counted exactly.
async fn write(
    app: &Node,
    account: AccountId,
    id: CallId,
    judged: &Judged,
    wish: &PlaceCall,
    key: Option<&Key>,
) -> Result<Written, ApiError> {
    let Judged {
        agent,
        number,
        trunk,
        ..
    } = judged;
    let none = Map::new();
    let variables = wish.dynamic_variables.as_ref().unwrap_or(&none);
    let metadata = Value::Object(wish.metadata.clone().unwrap_or_default());
    let mut tx = app.db.begin_write().await?;
    if !agents::store::hold(&mut tx, account, agent.id).await? {
        return Err(ApiError::NotFound);
    }
    let held = sip_trunks::store::hold(&mut tx, account, trunk.id).await?;
    let held = held.filter(Trunk::can_dial).ok_or_else(no_trunk)?;
    let (now, placed_at) = (app.clock.now(), app.clock.shared());
    if let Some(limit) = held.calls_per_hour_limit {
        let full = store::full_until_in(&mut tx, account, trunk.id, limit, placed_at).await?;
        has_room(limit, full, placed_at)?;
    }
    let call = calls::store::NewCall {
        id,
        agent_id: agent.id,
        agent_name: &agent.settings.name,
        direction: Direction::Outbound,
        channel: Channel::Sip,
        language: agents::rules::language_name(agent.settings.language),
        from_number: wish.from_number.as_deref(),
        to_number: Some(&wish.to_number),
        phone_number_id: Some(number.id),
        trunk_id: Some(trunk.id),
        matched_by: None,
        from_withheld: false,
        dynamic_variables: &Value::Object(variables.clone()),
    };
    calls::store::insert(&mut tx, account, &call, now).await?;
    let placing = Placing {
        metadata: &metadata,
        forwards: None,
        max_duration_seconds: wish.max_duration_seconds,
        node: &app.config.cluster.node,
        incarnation: app.incarnation.number,
        placed_at,
    };
    store::host(&mut tx, account, id, &placing, now).await?;
    if let Some(key) = key
        && !idempotency::store::keep(&mut tx, account, key, &id.to_string(), app.clock.shared())
            .await?
    {
        return Ok(Written::Repeated);
    }
    let told =
        webhooks::service::tell_unfilled(app, &mut tx, account, agent, variables, id).await?;
    if let Err(error) = tx.commit().await {
        // The answer may have been lost and not the commit: then nobody would dial or end this call.
        never_dialled(app, account, id, &error).await;
        return Err(error.into());
    }
    if told {
        app.webhooks.wake();
    }
    Ok(Written::Call(now))
}

async fn never_dialled(app: &Node, account: AccountId, id: CallId, error: &DbError) {
    let owner = Owner {
        account,
        call: id,
        incarnation: app.incarnation.number,
    };
    let why = format!("the database was lost while the call was written down: {error}");
    lifecycle::could_not_start(app, owner, Ending::engine_error(why)).await;
}
