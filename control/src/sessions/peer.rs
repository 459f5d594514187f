//! The peer connection of a browser's session: offers both ways, candidates that come later.
//!
//! The first offer joins the session: whoever's node it comes to hosts the call from then on, and later
//! ones go there. The engine reads the descriptions and answers them ([`media::peer`]); here is who may,
//! in which order, and which connection is meant.

use std::sync::Arc;
use std::time::Duration;

use media::call::input::EndRequest;
use media::config::OptionalEvents;
use media::peer::{Candidate, PeerError, PeerReply, PeerRequest, Reach, check_offer};
use media::shell::Carrier;

use super::rules::Transport;
use super::sdp;
use super::service::reach;
use super::store::{self, SessionRow};
use super::wire::{Described, Offer, SdpType, Trickle, Trickled};
use crate::admission::{Refusal, State};
use crate::billing;
use crate::calls::bridge::{self, NotPlaced};
use crate::calls::live::{LiveCall, PeerConnection};
use crate::calls::store::CallRow;
use crate::cluster;
use crate::cluster::route::{self, Answer, Ask, TrickledCandidate};
use crate::http::{ApiError, Caller, abandoned};
use crate::ids::{AccountId, SessionId};
use crate::node::Node;

/// How long a session that is just being joined may take to reach the engine.
const PLACING_PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of a call may take to be written that could not be answered.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Answers a client's offer, or takes its answer to ours, at the node that hosts the session.
pub async fn offer(
    app: &Node,
    caller: &Caller,
    id: SessionId,
    body: Offer,
    events: OptionalEvents,
) -> Result<Answer<Described>, ApiError> {
    let (session, call) = negotiable(app, caller, id).await?;
    if let Some(why) = sdp::description_problem(&body.sdp) {
        return Err(invalid_sdp(why));
    }
    if route::is_elsewhere(app, &call) {
        let ask = Ask::Offer {
            sdp: body.sdp,
            kind: body.kind,
            pc_id: body.pc_id,
            restart_pc: body.restart_pc,
        };
        return route::ask(app, &call, ask).await.map(Answer::There);
    }
    if call.incarnation == 0 {
        return first(app, &session, body, events).await.map(Answer::Here);
    }
    offer_here(app, caller.account, id, body)
        .await
        .map(Answer::Here)
}

/// Makes an offer for the client to answer.
pub async fn make_offer(
    app: &Node,
    caller: &Caller,
    id: SessionId,
    events: OptionalEvents,
) -> Result<Answer<Described>, ApiError> {
    let (session, call) = negotiable(app, caller, id).await?;
    if route::is_elsewhere(app, &call) {
        return route::ask(app, &call, Ask::MakeOffer)
            .await
            .map(Answer::There);
    }
    if call.incarnation != 0 {
        return make_offer_here(app, caller.account, id)
            .await
            .map(Answer::Here);
    }
    let live = begin(app, &session, events).await?;
    let peer = peer_of(&live)?;
    let _one_at_a_time = peer.negotiation.lock().await;
    match live.ask_peer(PeerRequest::MakeOffer).await {
        Some(Ok(PeerReply::Description(sdp))) => {
            peer.set_offered(Some(sdp.clone()));
            Ok(Answer::Here(described(
                id,
                peer.pc_id(),
                SdpType::Offer,
                Some(sdp),
            )))
        }
        other => Err(give_up(&live, other).await),
    }
}

/// Adds candidates of the client, at the node that hosts the session.
pub async fn trickle(
    app: &Node,
    caller: &Caller,
    id: SessionId,
    body: Trickle,
) -> Result<Answer<Trickled>, ApiError> {
    let (_, call) = reach(app, caller, id).await?;
    if route::is_elsewhere(app, &call) {
        let ask = Ask::Ice {
            pc_id: body.pc_id,
            candidates: body.candidates,
        };
        return route::ask(app, &call, ask).await.map(Answer::There);
    }
    trickle_here(app, caller.account, id, body)
        .await
        .map(Answer::Here)
}

/// The session and its call, if descriptions can be exchanged about it. Of another account's session
/// document 2 says 403 here, and only here.
async fn negotiable(
    app: &Node,
    caller: &Caller,
    id: SessionId,
) -> Result<(SessionRow, CallRow), ApiError> {
    let (session, call) = match reach(app, caller, id).await {
        Err(ApiError::NotFound) if store::is_of_another(&app.db, caller.account, id).await? => {
            return Err(ApiError::Forbidden {
                code: "forbidden",
                message: "This session belongs to another account".to_owned(),
            });
        }
        found => found?,
    };
    if session.transport != Transport::WebRtc {
        return Err(ApiError::conflict(
            "session_not_webrtc",
            "This session is joined over its ws_url",
        ));
    }
    if call.end_reason.as_deref() == Some("session_expired")
        || (session.spent_at.is_none() && session.expires_at <= app.clock.shared())
    {
        return Err(ApiError::Missing {
            code: "session_expired",
            message: "Nobody joined this session in time: open a new one".to_owned(),
        });
    }
    if call.ended_at.is_some() {
        return Err(ended());
    }
    Ok((session, call))
}

/// Answers the offer that joins the session.
async fn first(
    app: &Node,
    session: &SessionRow,
    body: Offer,
    events: OptionalEvents,
) -> Result<Described, ApiError> {
    if body.kind != SdpType::Offer {
        return Err(nothing_offered());
    }
    // A call that began could not wait for a better offer: it would have to end.
    if let Err(PeerError::InvalidSdp(why)) = check_offer(&body.sdp) {
        return Err(invalid_sdp(&why));
    }
    let live = begin(app, session, events).await?;
    let peer = peer_of(&live)?;
    let _one_at_a_time = peer.negotiation.lock().await;
    let request = PeerRequest::Offer {
        sdp: body.sdp,
        fresh: false,
    };
    match live.ask_peer(request).await {
        Some(Ok(PeerReply::Description(sdp))) => Ok(described(
            session.id,
            peer.pc_id(),
            SdpType::Answer,
            Some(sdp),
        )),
        other => Err(give_up(&live, other).await),
    }
}

/// Joins the session and has the engine take the call, whether or not the client waits: a call that somebody joined
/// must come to the engine, which ends what nobody connects to.
async fn begin(
    app: &Node,
    session: &SessionRow,
    events: OptionalEvents,
) -> Result<Arc<LiveCall>, ApiError> {
    let (app, account, id) = (app.clone(), session.account, session.id);
    let joining = async move { join(&app, account, id, events).await };
    abandoned::goes_on("a browser's call could not start", joining).await
}

/// The slot comes first: where there is none the session stays open, for another try within its time.
async fn join(
    app: &Node,
    account: AccountId,
    id: SessionId,
    events: OptionalEvents,
) -> Result<Arc<LiveCall>, ApiError> {
    let joined = || {
        ApiError::conflict(
            "conflict",
            "This session has been joined, or has ended, by another request",
        )
    };
    // A second request would be given the same slot, and give it back: there is none from here on, and
    // what it may have done before is looked up again.
    let _joining = app.live.begin(id).ok_or_else(joined)?;
    let session = store::get(&app.db, account, id)
        .await?
        .filter(|session| session.spent_at.is_none())
        .ok_or_else(joined)?;
    if app.is_draining() && cluster::has_others(app).await? {
        // Here the call would be cut short; another node takes it.
        return Err(ApiError::Unavailable {
            code: "service_unavailable",
            message: "This node is ending: another one takes the call".to_owned(),
            retry_after: 1,
        });
    }
    billing::require(app, account).await?;
    let lease = app
        .adopt(bridge::wish(app, account, id, State::Live))
        .await?;
    let mut tx = app.db.begin_write().await?;
    if !store::join(&mut tx, account, id, app.clock.shared()).await?
        || !bridge::take(app, tx, account, id).await?
    {
        return Err(joined());
    }
    let candidates = match session.keyless && !app.config.webrtc.private_candidates {
        true => Reach::Public,
        false => Reach::Private,
    };
    bridge::place(
        app,
        &session,
        events,
        Carrier::Peer { reach: candidates },
        Some(lease),
    )
    .await
    .map_err(|not| match not {
        NotPlaced::NoCapacity => {
            let cap = app.config.limits.node_calls;
            Refusal::full("node", cap, cap).into()
        }
        NotPlaced::Blocked => ApiError::PaymentRequired {
            message: "This account may not spend".to_owned(),
            action_url: app.config.billing.action_url.clone(),
        },
        NotPlaced::Failed => ApiError::internal("a browser's call could not start"),
    })
}

/// Ends a call whose first description came to nothing; what its client is told.
async fn give_up(live: &LiveCall, answer: Option<Result<PeerReply, PeerError>>) -> ApiError {
    live.handle.end(EndRequest::Fault);
    live.wait_ended(END_PATIENCE).await;
    match answer {
        Some(Err(PeerError::InvalidSdp(why))) => invalid_sdp(&why),
        other => ApiError::internal(format_args!("a first description: {other:?}")),
    }
}

/// Answers an offer about a call of this node that was joined before, or takes the answer to ours.
pub async fn offer_here(
    app: &Node,
    account: AccountId,
    id: SessionId,
    body: Offer,
) -> Result<Described, ApiError> {
    let live = hosted(app, account, id).await?;
    let peer = peer_of(&live)?;
    let _one_at_a_time = peer.negotiation.lock().await;
    let given = body.pc_id.as_deref().filter(|pc_id| !pc_id.is_empty());
    let fresh = body.restart_pc.unwrap_or(false);
    match given {
        Some(given) if peer.is(given) => {}
        _ if fresh => {}
        Some(_) => return Err(no_such_peer()),
        None => {
            return Err(ApiError::field(
                "pc_id",
                "missing",
                "Field required: this session has a peer connection",
            ));
        }
    }
    if body.kind == SdpType::Answer {
        if peer.offered().is_none() {
            return Err(nothing_offered());
        }
        return match live.ask_peer(PeerRequest::Answer { sdp: body.sdp }).await {
            Some(Ok(_)) => {
                peer.set_offered(None);
                Ok(described(id, peer.pc_id(), SdpType::Answer, None))
            }
            other => Err(refusal(other)),
        };
    }
    let request = PeerRequest::Offer {
        sdp: body.sdp,
        fresh,
    };
    match live.ask_peer(request).await {
        Some(Ok(PeerReply::Description(sdp))) => {
            let pc_id = if fresh { peer.renew() } else { peer.pc_id() };
            peer.set_offered(None);
            Ok(described(id, pc_id, SdpType::Answer, Some(sdp)))
        }
        other => Err(refusal(other)),
    }
}

/// Our offer about a call of this node: the one that waits for its answer.
pub async fn make_offer_here(
    app: &Node,
    account: AccountId,
    id: SessionId,
) -> Result<Described, ApiError> {
    let live = hosted(app, account, id).await?;
    let peer = peer_of(&live)?;
    let _one_at_a_time = peer.negotiation.lock().await;
    let sdp = peer.offered().ok_or_else(|| {
        ApiError::conflict(
            "conflict",
            "This session has a peer connection: send an offer with its pc_id",
        )
    })?;
    Ok(described(id, peer.pc_id(), SdpType::Offer, Some(sdp)))
}

/// Adds candidates to the connection of a call of this node.
pub async fn trickle_here(
    app: &Node,
    account: AccountId,
    id: SessionId,
    body: Trickle,
) -> Result<Trickled, ApiError> {
    let no_peer = || ApiError::BadRequest {
        code: "peer_not_found",
        message: "No such peer connection is open: begin again with connect and offer".to_owned(),
    };
    for (index, candidate) in body.candidates.iter().enumerate() {
        if let Some(why) = sdp::candidate_problem(&candidate.candidate) {
            return Err(invalid_candidate(index, why));
        }
    }
    let live = app.live.get(account, id).ok_or_else(no_peer)?;
    let peer = live.peer.as_ref().filter(|peer| peer.is(&body.pc_id));
    if peer.is_none() {
        return Err(no_peer());
    }
    let candidates = body.candidates.into_iter().map(candidate).collect();
    match live.ask_peer(PeerRequest::Candidates(candidates)).await {
        Some(Ok(PeerReply::Accepted(accepted))) => Ok(Trickled {
            status: "ok".to_owned(),
            accepted,
        }),
        Some(Err(PeerError::InvalidCandidate(index, why))) => Err(invalid_candidate(index, &why)),
        Some(Err(PeerError::NoPeer)) | None => Err(no_peer()),
        other => Err(refusal(other)),
    }
}

fn candidate(candidate: TrickledCandidate) -> Candidate {
    let TrickledCandidate {
        candidate,
        sdp_mid,
        sdp_mline_index,
    } = candidate;
    Candidate {
        candidate,
        sdp_mid,
        sdp_mline_index,
    }
}

/// The call, if it is with this node's engine.
async fn hosted(app: &Node, account: AccountId, id: SessionId) -> Result<Arc<LiveCall>, ApiError> {
    match app.live.get(account, id) {
        Some(live) => Ok(live),
        // Joined a moment ago, perhaps, or over this moment.
        None => app
            .live
            .await_call(account, id, PLACING_PATIENCE)
            .await
            .ok_or_else(ended),
    }
}

fn peer_of(live: &LiveCall) -> Result<&PeerConnection, ApiError> {
    live.peer
        .as_ref()
        .ok_or_else(|| ApiError::internal("a browser's call without a peer"))
}

fn described(id: SessionId, pc_id: String, kind: SdpType, sdp: Option<String>) -> Described {
    Described {
        sdp,
        kind,
        pc_id,
        session_id: id,
    }
}

/// What the client is told of a request that the engine did not do; the call goes on.
fn refusal(answer: Option<Result<PeerReply, PeerError>>) -> ApiError {
    match answer {
        None => ended(),
        Some(Err(PeerError::InvalidSdp(why))) => invalid_sdp(&why),
        Some(Err(PeerError::NoPeer)) => no_such_peer(),
        other => ApiError::internal(format_args!("a description: {other:?}")),
    }
}

fn invalid_sdp(why: &str) -> ApiError {
    ApiError::unprocessable("invalid_sdp", format!("The sdp cannot be used: {why}"))
}

fn invalid_candidate(index: usize, why: &str) -> ApiError {
    ApiError::BadRequest {
        code: "invalid_candidate",
        message: format!("candidates.{index} cannot be used: {why}"),
    }
}

fn nothing_offered() -> ApiError {
    ApiError::field(
        "type",
        "enum",
        "Input should be 'offer': the server has made no offer to answer",
    )
}

fn no_such_peer() -> ApiError {
    ApiError::Missing {
        code: "peer_not_found",
        message: "This session has another peer connection, or none yet".to_owned(),
    }
}

fn ended() -> ApiError {
    ApiError::Missing {
        code: "session_ended",
        message: "This session has ended: open a new one".to_owned(),
    }
}
