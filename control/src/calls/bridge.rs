//! Between the records and the engine: the placing of a call that is prepared (`prepared.rs`) with what the engine is
//! told of it (`config.rs`) and who listens, thinks and speaks in it (`speech.rs`). Telephone calls meet the SIP
//! stack in [`telephone`]; nothing else knows both it and the engine.

mod config;
mod prepared;
mod speech;
pub mod telephone;
pub(crate) mod transports;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;
use media::call::input::EndRequest;
use media::call::output::CallEvent;
use media::config::{AudioFormat, CallConfig, OptionalEvents, Protocol};
use media::shell::{self, CallNews, Carrier, Refused};
use tokio::sync::{Notify, watch};
use tracing::Instrument;

use super::journal::Owner;
use super::lifecycle::{self, Claim};
use super::live::{LiveCall, PeerConnection, Pulse, TellDropped};
use super::rules::{self, Ending};
use super::store::sessions::SessionRow;
use super::store::{self, CallRow};
use crate::admission::{Lease, Renewal, Request, State};
use crate::agents::{self, Agent};
use crate::billing;
use crate::db::{DbError, Tx};
use crate::ids::{AccountId, CallId, TrunkId};
use crate::node::Node;
use crate::sip_trunks;
use crate::supervisor::{self, panic_text};
use crate::vendors::CallSpeech;

pub use self::config::Facts;
pub use self::prepared::Prepared;
pub use self::speech::can_speak;

/// Why a caller who was let in is not on the engine. The call's record is already ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlaced {
    /// Its slot is gone, or the engine is full or stopping.
    NoCapacity,
    /// The account may not spend.
    Blocked,
    /// The call cannot be made; its record says why.
    Failed,
}

/// How a caller reaches the engine.
pub struct CarrierPath {
    pub protocol: Protocol,
    pub audio_format: AudioFormat,
    pub events: OptionalEvents,
    pub carrier: Carrier,
    /// Told when the engine is done with the call.
    pub over: Option<Arc<Notify>>,
    /// The call as it was prepared; without, its record, agent and trunk are read.
    pub prepared: Option<Box<Prepared>>,
    /// True once the answer was sent; a later failure must then be recorded as an answered call.
    pub answered: bool,
}

/// Makes this process the host of a call that somebody joins, as the last thing of the transaction in
/// which they joined. `false`: somebody else hosts it, or it is over.
pub async fn take(app: &Node, mut tx: Tx, account: AccountId, id: CallId) -> Result<bool, DbError> {
    let (node, number) = (&app.config.cluster.node, app.incarnation.number);
    let now = app.clock.now();
    if !store::take(&mut tx, account, id, node, number, now).await? {
        return Ok(false);
    }
    if let Err(error) = tx.commit().await {
        // The answer may have been lost and not the commit: then nobody would end this call.
        let owner = Owner {
            account,
            call: id,
            incarnation: number,
        };
        let ending = Ending::engine_error("the database was lost while the caller joined".into());
        lifecycle::could_not_start(app, owner, ending).await;
        return Err(error);
    }
    Ok(true)
}

/// Hands a joined session to the engine, with its connection where it has one yet, and starts writing
/// down what happens. `lease`: where it was taken before the caller joined.
pub async fn place(
    app: &Node,
    session: &SessionRow,
    events: OptionalEvents,
    carrier: Carrier,
    lease: Option<Lease>,
) -> Result<Arc<LiveCall>, NotPlaced> {
    let way = CarrierPath {
        protocol: rules::protocol(&session.protocol),
        audio_format: rules::audio_format(&session.audio_format),
        events,
        carrier,
        over: None,
        prepared: None,
        answered: true,
    };
    run(app, session.account, session.id, way, lease).await
}

/// Puts a call that this process hosts on the engine, and starts writing down what happens.
pub async fn run(
    app: &Node,
    account: AccountId,
    id: CallId,
    way: CarrierPath,
    lease: Option<Lease>,
) -> Result<Arc<LiveCall>, NotPlaced> {
    let answered = way.answered;
    let placing = AssertUnwindSafe(run_in_span(app, account, id, way, lease)).catch_unwind();
    let span = super::span(account, id);
    match placing.instrument(span.clone()).await {
        Ok(placed) => placed,
        Err(panic) => {
            let why = panic_text(&*panic).to_owned();
            broke(app, account, id, &why, answered)
                .instrument(span)
                .await;
            Err(NotPlaced::Failed)
        }
    }
}

async fn run_in_span(
    app: &Node,
    account: AccountId,
    id: CallId,
    way: CarrierPath,
    lease: Option<Lease>,
) -> Result<Arc<LiveCall>, NotPlaced> {
    #[cfg(test)]
    supervisor::faults::reach("a call's placing", account);
    let answered = way.answered;
    let fail = async |ending: Ending, why: NotPlaced| {
        let owner = Owner {
            account,
            call: id,
            incarnation: app.incarnation.number,
        };
        let ending = Ending {
            never_answered: !answered,
            ..ending
        };
        lifecycle::could_not_start(app, owner, ending).await;
        app.admission.release(id, &app.incarnation.owner);
        why
    };
    let CarrierPath {
        protocol,
        audio_format,
        events,
        carrier,
        over,
        prepared,
        answered: _,
    } = way;
    let prepared = match prepared {
        Some(prepared) => *prepared,
        None => match prepare(app, account, id).await {
            Ok(prepared) => prepared,
            Err(ending) => return Err(fail(ending, NotPlaced::Failed).await),
        },
    };
    match billing::standing(app, account).await {
        Ok(standing) if standing.is_hard_blocked() => {
            return Err(fail(Ending::billing_blocked(), NotPlaced::Blocked).await);
        }
        Ok(_) => {}
        Err(error) => {
            return Err(fail(Ending::engine_error(error.to_string()), NotPlaced::Failed).await);
        }
    }
    let wanted = Request {
        trunk: prepared.trunk,
        ..wish(app, account, id, State::Live)
    };
    let slot = Renewal::from(&wanted);
    let lease = match lease {
        Some(lease) => lease,
        None => match app.adopt(wanted).await {
            Ok(lease) => lease,
            Err(refusal) => {
                let ending = Ending::engine_error(format!("no slot: {}", refusal.reason.name()));
                return Err(fail(ending, NotPlaced::NoCapacity).await);
            }
        },
    };
    let leaves_message = prepared.is_message();
    let Prepared {
        config,
        speech: CallSpeech { providers, usage },
        transcript,
        channel,
        trunk: _,
    } = prepared;
    let config = CallConfig {
        protocol,
        audio_format,
        events,
        ..config
    };
    let agent = config.agent_id.clone();
    let claim = Claim {
        account,
        id,
        incarnation: app.incarnation.number,
        transcript,
        recording: config.recording,
    };
    let pulse = Arc::new(Pulse::default());
    let (on_event, news) = lifecycle::line(pulse.clone());
    let peer = matches!(carrier, Carrier::Peer { .. }).then(PeerConnection::new);
    let on_event: Arc<dyn Fn(CallNews) + Send + Sync> = match over {
        None => on_event,
        // Dropped, it tells too: the engine lets go of a call without a word where a thread of its own dies.
        Some(over) => {
            let over = TellDropped(over);
            Arc::new(move |news: CallNews| {
                let ended = matches!(news, CallNews::Event(CallEvent::Ended(_)));
                on_event(news);
                if ended {
                    over.0.notify_one();
                }
            })
        }
    };
    let handle = match app.engine.place(shell::NewCall {
        config,
        carrier,
        providers,
        on_event,
    }) {
        Ok(handle) => handle,
        Err(refused) => {
            let why = match refused {
                Refused::Full | Refused::Stopping | Refused::NoThread => NotPlaced::NoCapacity,
                Refused::Socket => NotPlaced::Failed,
            };
            return Err(fail(Ending::engine_error(refused.to_string()), why).await);
        }
    };
    let live = Arc::new(LiveCall {
        account,
        since: app.clock.moment(),
        slot,
        handle,
        pulse,
        peer,
        usage,
        leased: AtomicBool::new(true),
        ended: watch::Sender::new(false),
    });
    app.live.insert(id, live.clone());
    tracing::info!(%agent, channel, leaves_message, "a call begins");
    let following = lifecycle::follow(app.clone(), claim, live.clone(), lease, news);
    supervisor::detached("a call is written down", following);
    Ok(live)
}

/// Prepares a call as its record, its agent and its trunk say.
async fn prepare(app: &Node, account: AccountId, id: CallId) -> Result<Prepared, Ending> {
    let found = records(app, account, id).await;
    let (call, agent) = found.map_err(Ending::engine_error)?;
    let trunk = trunk_of(app, &call).await;
    let trunk = trunk.map_err(|error| Ending::engine_error(error.to_string()))?;
    Prepared::conversation(app, &Facts::from(&call), &agent, trunk)
        .map_err(|error| Ending::provider_error(error.to_string()))
}

/// The call and its agent, or what is missing.
async fn records(app: &Node, account: AccountId, id: CallId) -> Result<(CallRow, Agent), String> {
    let call = store::get(&app.db, account, id)
        .await
        .map_err(|error| error.to_string())?;
    let call = call.ok_or("the call has no record")?;
    let agent = agents::store::get(&app.db, account, call.agent_id)
        .await
        .map_err(|error| error.to_string())?;
    let agent = agent.ok_or("the agent was deleted before the caller joined")?;
    Ok((call, agent))
}

/// The trunk that a call goes over, and how many calls that may have.
async fn trunk_of(app: &Node, call: &CallRow) -> Result<Option<(TrunkId, u32)>, DbError> {
    let Some(id) = call.trunk_id else {
        return Ok(None);
    };
    let trunk = sip_trunks::store::get(&app.db, call.account, id).await?;
    // A trunk that was deleted meanwhile holds no call back.
    let most = trunk.map_or(u32::MAX, |trunk| trunk.max_concurrent_calls);
    Ok(Some((id, most)))
}

/// What this process asks of the lease store for a call.
pub fn wish(app: &Node, account: AccountId, lease: CallId, state: State) -> Request {
    Request {
        lease,
        owner: app.incarnation.owner.clone(),
        account,
        agent: None,
        trunk: None,
        beyond: false,
        state,
    }
}

/// Ends a call that this process hosts and that the engine never had. `answered`: the other side knows of an
/// answer.
pub async fn could_not_start(
    app: &Node,
    account: AccountId,
    call: CallId,
    why: &str,
    answered: bool,
) {
    let owner = Owner {
        account,
        call,
        incarnation: app.incarnation.number,
    };
    let ending = Ending {
        never_answered: !answered,
        ..Ending::engine_error(why.to_owned())
    };
    lifecycle::could_not_start(app, owner, ending).await;
    app.admission.release(call, &app.incarnation.owner);
}

/// Ends a call that this process hosts as `engine_error`, because what carried it panicked: on the engine, where it is
/// there, and else in the records. `why` goes to the log alone, for it may say what the call said.
pub async fn broke(app: &Node, account: AccountId, call: CallId, why: &str, answered: bool) {
    tracing::error!(why, "what carried a call panicked: the call ends");
    if let Some(live) = app.live.get(account, call) {
        live.insist(|handle| handle.end(EndRequest::Fault)).await;
        return;
    }
    let why = "the server failed in this call";
    could_not_start(app, account, call, why, answered).await;
    app.live.dialled(call);
}
