//! The calls that this process hosts right now: what the database does not know of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use media::call::output::{AgentState, ToolStage};
use media::peer::{PeerError, PeerReply, PeerRequest, PeerState, Quality};
use media::shell::CallHandle;
use tokio::sync::{Notify, oneshot, watch};
use uuid::Uuid;

use crate::admission::Renewal;
use crate::ids::{AccountId, CallId, TrunkId};
use crate::time::Moment;
use crate::vendors::usage::SpeechUsage;

/// The calls of this process, by id. Bounded by the engine's cap on calls.
#[derive(Default)]
pub struct LiveCalls {
    calls: Mutex<HashMap<CallId, Arc<LiveCall>>>,
    /// Sessions whose first offer is being answered; as many as requests are served at a time.
    joining: Mutex<HashSet<CallId>>,
    /// Calls that ring, and forwarded ones to their end. Each holds a seat of the node, or is one of as many as
    /// may ring over its trunk.
    dialling: Mutex<HashMap<CallId, Arc<Dialling>>>,
    /// Calls that are over here, and of which something is still being stored.
    keeping: Mutex<HashSet<CallId>>,
    changed: Notify,
}

/// The right to answer a session's first offer; given back when dropped.
pub struct Joining<'a> {
    calls: &'a LiveCalls,
    id: CallId,
}

/// A call that this process places, or that came in and rings here, until it is answered or over.
pub struct Dialling {
    pub account: AccountId,
    /// What is renewed at the lease store while it rings. One that came in has none before it is let in.
    slot: OnceLock<Renewal>,
    /// What it came in over.
    came_over: Option<TrunkId>,
    /// Since when a forwarded one is talked in.
    answered: OnceLock<Moment>,
    /// Who let go of it while it rang.
    canceled: watch::Sender<Option<Canceled>>,
    /// Becomes `true` once it is answered or its end is written.
    done: watch::Sender<bool>,
}

/// Who lets go of a call that rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceled {
    /// An API client.
    Api,
    /// The server ends.
    Drain,
    /// The account may not go on.
    Blocked,
}

/// Tells somebody when it is dropped, however that comes.
pub struct TellDropped(pub Arc<Notify>);

impl Drop for TellDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// One call that this process hosts.
pub struct LiveCall {
    pub account: AccountId,
    /// When it began here.
    pub since: Moment,
    /// What is renewed at the lease store while it lives.
    pub slot: Renewal,
    pub handle: CallHandle,
    pub pulse: Arc<Pulse>,
    /// Where it is a browser's.
    pub peer: Option<Peer>,
    /// What its speech providers use, to be read when the call is over.
    pub usage: Arc<SpeechUsage>,
    /// Whether it holds a slot: until the engine is done with it.
    pub leased: AtomicBool,
    /// Becomes `true` once the end of the call is in the database.
    pub ended: watch::Sender<bool>,
}

/// The peer connection of a browser's call, as the routes know it.
pub struct Peer {
    /// Held while descriptions are exchanged: one exchange at a time.
    pub negotiation: tokio::sync::Mutex<()>,
    seat: Mutex<PeerSeat>,
}

struct PeerSeat {
    pc_id: String,
    /// Our own offer, until it is answered.
    offered: Option<String>,
}

/// How long the engine may take to answer: a description takes it a few milliseconds.
const PEER_PATIENCE: Duration = Duration::from_secs(5);

/// How often a media thread that is behind with its commands is told again: it takes a thousand in a pass.
const INSIST_EVERY: Duration = Duration::from_millis(10);

/// What changes many times in a call and is kept in memory only; written by the engine's threads.
#[derive(Default)]
pub struct Pulse {
    agent: AtomicU8,
    turns: AtomicU32,
    /// Held for a few instructions, a few times a second at most.
    wire: Mutex<Wire>,
    /// Oldest first. Held for a few instructions, a few times in a call.
    tools: Mutex<VecDeque<(String, ToolStage)>>,
}

/// What is known of the way to the caller.
#[derive(Default)]
struct Wire {
    peer: Option<PeerState>,
    network: NetworkLog,
}

/// How the network was, over a whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkLog {
    last: Option<Quality>,
    rtt: Mean,
    jitter: Mean,
    mos: Mean,
}

/// A mean that is still being taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

impl NetworkLog {
    /// Notes the last few seconds.
    pub fn add(&mut self, quality: Quality) {
        self.last = Some(quality);
        self.rtt.add(quality.rtt_ms);
        self.jitter.add(Some(quality.jitter_ms));
        self.mos.add(quality.mos);
    }

    /// The last few seconds.
    pub const fn last(&self) -> Option<Quality> {
        self.last
    }

    /// Means over the call: round trip in ms, jitter in ms, MOS.
    pub fn means(&self) -> [Option<f64>; 3] {
        [self.rtt, self.jitter, self.mos].map(Mean::get)
    }
}

/// Tool calls that are remembered per call: enough to tell a late answer from a wrong id.
const TOOLS: usize = 256;

/// What became of an answer to a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It was awaited, and now is not any more.
    Yes,
    Unknown,
    Answered,
    Expired,
}

impl LiveCalls {
    /// Adds a call that was just placed.
    pub fn insert(&self, id: CallId, call: Arc<LiveCall>) {
        self.lock().insert(id, call);
        self.changed.notify_waiters();
    }

    /// The right to answer the first offer of a session: of two at a time one has it.
    pub fn begin(&self, id: CallId) -> Option<Joining<'_>> {
        let mut joining = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        // Lazily: a right that is not given must not be dropped, for that would give back the other's.
        joining.insert(id).then(|| Joining { calls: self, id })
    }

    /// Forgets a call: its end and its recording are written.
    pub fn remove(&self, id: CallId) {
        self.lock().remove(&id);
        self.changed.notify_waiters();
    }

    /// The call, if the account owns it and this process hosts it.
    pub fn get(&self, account: AccountId, id: CallId) -> Option<Arc<LiveCall>> {
        self.lock()
            .get(&id)
            .filter(|call| call.account == account)
            .cloned()
    }

    /// Whether somebody here carries this call, or stores what is left of it.
    pub fn has(&self, id: CallId) -> bool {
        self.lock().contains_key(&id)
            || self.ringing().contains_key(&id)
            || self.keeping().contains(&id)
    }

    /// Notes that what is left of a call is being stored. `false`: somebody does so, or carries the call.
    pub fn begin_keeping(&self, id: CallId) -> bool {
        !self.lock().contains_key(&id) && self.keeping().insert(id)
    }

    pub fn end_keeping(&self, id: CallId) {
        self.keeping().remove(&id);
    }

    fn keeping(&self) -> MutexGuard<'_, HashSet<CallId>> {
        // Whole after any panic: each use is one operation.
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`get`](Self::get), waiting up to `patience` for a call that is just being placed.
    pub async fn await_call(
        &self,
        account: AccountId,
        id: CallId,
        patience: Duration,
    ) -> Option<Arc<LiveCall>> {
        let found = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(call) = self.get(account, id) {
                    return call;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, found).await.ok()
    }

    /// Waits until every call is written down, at most `patience`. `false`: some are left.
    pub async fn drained(&self, patience: Duration) -> bool {
        let empty = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.lock().is_empty() && self.count_dialling() == 0 {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, empty).await.is_ok()
    }

    /// What this process renews at the lease store.
    pub fn renewals(&self) -> Vec<Renewal> {
        let calls = self.lock();
        let leased = calls
            .values()
            .filter(|call| call.leased.load(Ordering::SeqCst));
        let mut renewals: Vec<Renewal> = leased.map(|call| call.slot).collect();
        drop(calls);
        let ringing = self.ringing();
        renewals.extend(ringing.values().filter_map(|call| call.slot.get().copied()));
        drop(ringing);
        renewals
    }

    /// Notes a call that came in and rings. `false`: as many ring over its trunk as may. They hold no slot, and
    /// without a bound the calls to one number could take the node from all others.
    pub fn ring(&self, id: CallId, call: Arc<Dialling>, most: u32) -> bool {
        let mut ringing = self.ringing();
        let beside = ringing
            .values()
            .filter(|other| other.slot.get().is_none() && other.came_over == call.came_over);
        let room = beside.count() < most as usize;
        if room {
            ringing.insert(id, call);
        }
        room
    }

    /// Notes a call that is being placed.
    pub fn dial(&self, id: CallId, dialling: Arc<Dialling>) {
        self.ringing().insert(id, dialling);
    }

    /// The call, if the account owns it and it rings here.
    pub fn get_dialling(&self, account: AccountId, id: CallId) -> Option<Arc<Dialling>> {
        let ringing = self.ringing();
        let found = ringing.get(&id).filter(|call| call.account == account);
        found.cloned()
    }

    /// A call is answered, or over before that.
    pub fn dialled(&self, id: CallId) {
        let over = self.ringing().remove(&id);
        if let Some(over) = over {
            over.done.send_replace(true);
        }
        self.changed.notify_waiters();
    }

    /// How many calls this process is placing, or lets ring.
    pub fn count_dialling(&self) -> usize {
        self.ringing().len()
    }

    /// Lets go of all calls that ring.
    pub fn cancel_dialling(&self) {
        for call in self.ringing().values() {
            call.cancel(Canceled::Drain);
        }
    }

    /// Lets go of all calls of one account that ring or are forwarded; how many.
    pub fn cancel_account(&self, account: AccountId) -> usize {
        let ringing = self.ringing();
        let theirs = ringing.values().filter(|call| call.account == account);
        theirs
            .inspect(|call| call.cancel(Canceled::Blocked))
            .count()
    }

    fn ringing(&self) -> MutexGuard<'_, HashMap<CallId, Arc<Dialling>>> {
        // The map is whole after any panic: each use is one operation.
        self.dialling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls of one account that this process hosts.
    pub fn of_account(&self, account: AccountId) -> Vec<Arc<LiveCall>> {
        let calls = self.lock();
        let theirs = calls.values().filter(|call| call.account == account);
        theirs.cloned().collect()
    }

    /// How long the calls of this account have been talked in that this process hosts now, forwarded ones too.
    pub fn talked(&self, account: AccountId, now: Moment) -> Duration {
        let calls: Duration = self
            .of_account(account)
            .iter()
            // One that is over was paid for, and is here until its recording is stored.
            .filter(|call| call.leased.load(Ordering::SeqCst))
            .map(|call| now.since(call.since))
            .sum();
        let ringing = self.ringing();
        let forwarded = ringing.values().filter(|call| call.account == account);
        let since = forwarded.filter_map(|call| call.answered.get());
        calls + since.map(|since| now.since(*since)).sum::<Duration>()
    }

    /// How many calls this process hosts.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether this process hosts no call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Arc<LiveCall>>> {
        // The map is whole after any panic: each use is one operation.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dialling {
    /// A call that is placed.
    pub fn new(account: AccountId, slot: Renewal) -> Self {
        Self {
            slot: slot.into(),
            ..Self::came_in(account, None)
        }
    }

    /// A call that came in over this trunk and rings.
    pub fn came_in(account: AccountId, over: Option<TrunkId>) -> Self {
        Self {
            account,
            slot: OnceLock::new(),
            came_over: over,
            answered: OnceLock::new(),
            canceled: watch::Sender::new(None),
            done: watch::Sender::new(false),
        }
    }

    /// It was given its slot, which is renewed from now on.
    pub fn hold(&self, slot: Renewal) {
        self.slot.get_or_init(|| slot);
    }

    /// It is talked in from now on, and no agent is in it.
    pub fn answered(&self, now: Moment) {
        self.answered.get_or_init(|| now);
    }

    /// Lets go of it; the first who does is named in its record.
    pub fn cancel(&self, by: Canceled) {
        self.canceled.send_if_modified(|canceled| {
            let first = canceled.is_none();
            canceled.get_or_insert(by);
            first
        });
    }

    /// Resolves when somebody lets go of it.
    pub async fn canceled(&self) -> Canceled {
        let mut canceled = self.canceled.subscribe();
        loop {
            let by = *canceled.borrow_and_update();
            if let Some(by) = by {
                return by;
            }
            if canceled.changed().await.is_err() {
                // The sender lives as long as this.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until it is answered or its end is written, at most `patience`.
    pub async fn wait_done(&self, patience: Duration) {
        let mut done = self.done.subscribe();
        // Who asks reads the record afterwards, which tells.
        let _ = tokio::time::timeout(patience, done.wait_for(|done| *done)).await;
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let mut joining = self
            .calls
            .joining
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        joining.remove(&self.id);
    }
}

impl Peer {
    /// A connection that is about to be made.
    pub fn new() -> Self {
        Self {
            negotiation: tokio::sync::Mutex::default(),
            seat: Mutex::new(PeerSeat {
                pc_id: Uuid::new_v4().to_string(),
                offered: None,
            }),
        }
    }

    /// What requests name it by.
    pub fn pc_id(&self) -> String {
        self.seat().pc_id.clone()
    }

    pub fn is(&self, pc_id: &str) -> bool {
        self.seat().pc_id == pc_id
    }

    /// Another connection took its place: its id.
    pub fn renew(&self) -> String {
        let mut seat = self.seat();
        seat.pc_id = Uuid::new_v4().to_string();
        seat.offered = None;
        seat.pc_id.clone()
    }

    /// Our offer that waits for its answer.
    pub fn offered(&self) -> Option<String> {
        self.seat().offered.clone()
    }

    pub fn set_offered(&self, sdp: Option<String>) {
        self.seat().offered = sdp;
    }

    fn seat(&self) -> MutexGuard<'_, PeerSeat> {
        // Whole after any panic: each use is one operation.
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self::new()
    }
}

impl LiveCall {
    /// Asks the browser's side of the call for something. `None`: the call is over, or its thread does
    /// not answer.
    pub async fn ask_peer(&self, request: PeerRequest) -> Option<Result<PeerReply, PeerError>> {
        let (sender, answer) = oneshot::channel();
        let reply = Box::new(move |reply| {
            // Who asked may have gone.
            let _ = sender.send(reply);
        });
        if !self.handle.peer(request, reply) {
            return None;
        }
        tokio::time::timeout(PEER_PATIENCE, answer).await.ok()?.ok()
    }

    /// Tells the engine what it must learn of the call: again, until the call's thread takes it or the call is over.
    pub async fn insist(&self, tell: impl Fn(&CallHandle) -> bool) {
        while !tell(&self.handle) && !self.handle.is_over() {
            tokio::time::sleep(INSIST_EVERY).await;
        }
    }

    /// Waits until the call's end is in the database, at most `patience`.
    pub async fn wait_ended(&self, patience: Duration) -> bool {
        let mut ended = self.ended.subscribe();
        let done = tokio::time::timeout(patience, ended.wait_for(|ended| *ended)).await;
        done.is_ok_and(|ended| ended.is_ok())
    }
}

impl Pulse {
    /// Notes what the agent is doing.
    pub fn set_agent(&self, state: AgentState) {
        let code = match state {
            AgentState::Listening => 1,
            AgentState::Thinking => 2,
            AgentState::Speaking => 3,
            AgentState::Tool => 4,
            AgentState::OnHold => 5,
        };
        self.agent.store(code, Ordering::Relaxed);
    }

    /// Notes where the peer connection stands.
    pub fn set_peer(&self, state: PeerState) {
        self.wire().peer = Some(state);
    }

    /// Where the peer connection stands.
    pub fn peer(&self) -> PeerState {
        self.wire().peer.unwrap_or(PeerState::New)
    }

    /// Notes how the network is.
    pub fn note_network(&self, quality: Quality) {
        self.wire().network.add(quality);
    }

    /// How the network was so far.
    pub fn network(&self) -> NetworkLog {
        self.wire().network
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        // Whole after any panic: each use is one operation.
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a finished turn.
    pub fn count_turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes where a tool call stands.
    pub fn set_tool(&self, id: &str, stage: ToolStage) {
        let mut tools = self.tools();
        match tools.iter_mut().find(|(known, _)| known == id) {
            Some((_, known)) => *known = stage,
            None => {
                if tools.len() == TOOLS {
                    tools.pop_front();
                }
                tools.push_back((id.to_owned(), stage));
            }
        }
    }

    /// Takes the right to answer a tool call: of two answers one has it.
    pub fn claim_tool(&self, id: &str) -> Claimed {
        match self.tools().iter_mut().find(|(known, _)| known == id) {
            None => Claimed::Unknown,
            Some((_, stage @ ToolStage::Running)) => {
                *stage = ToolStage::Answered;
                Claimed::Yes
            }
            Some((_, ToolStage::Answered)) => Claimed::Answered,
            Some((_, ToolStage::Expired)) => Claimed::Expired,
        }
    }

    fn tools(&self) -> MutexGuard<'_, VecDeque<(String, ToolStage)>> {
        // Whole after any panic: each use is one operation.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the agent is doing, in the words of the API; `None` before it does anything.
    pub fn agent(&self) -> Option<&'static str> {
        match self.agent.load(Ordering::Relaxed) {
            1 => Some("listening"),
            2 => Some("thinking"),
            3 => Some("speaking"),
            4 => Some("tool"),
            5 => Some("on_hold"),
            _ => None,
        }
    }

    /// Finished turns so far.
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_answers_to_a_tool_call_one_counts() {
        let pulse = Pulse::default();
        assert_eq!(pulse.claim_tool("a"), Claimed::Unknown);
        pulse.set_tool("a", ToolStage::Running);
        pulse.set_tool("b", ToolStage::Running);
        assert_eq!(pulse.claim_tool("a"), Claimed::Yes);
        assert_eq!(pulse.claim_tool("a"), Claimed::Answered);
        pulse.set_tool("b", ToolStage::Expired);
        assert_eq!(pulse.claim_tool("b"), Claimed::Expired);
    }

    #[test]
    fn a_call_with_endless_tools_is_remembered_in_part() {
        let pulse = Pulse::default();
        for index in 0..10 * TOOLS {
            pulse.set_tool(&index.to_string(), ToolStage::Running);
        }
        assert_eq!(pulse.tools().len(), TOOLS);
        assert_eq!(pulse.claim_tool("0"), Claimed::Unknown);
    }

    #[test]
    fn of_two_first_offers_one_is_answered() {
        let calls = LiveCalls::default();
        let first = calls.begin(CallId::NIL);
        assert!(first.is_some() && calls.begin(CallId::NIL).is_none());
        drop(first);
        assert!(calls.begin(CallId::NIL).is_some());
    }

    #[test]
    fn a_new_peer_connection_has_a_new_id_and_no_open_offer() {
        let peer = Peer::new();
        let first = peer.pc_id();
        peer.set_offered(Some("v=0".to_owned()));
        let second = peer.renew();
        assert!(first != second && peer.is(&second) && !peer.is(&first));
        assert_eq!(peer.offered(), None);
    }

    #[test]
    fn the_network_is_told_as_it_is_and_as_it_was() {
        let pulse = Pulse::default();
        assert_eq!(pulse.network().means(), [None; 3]);
        for (rtt_ms, jitter_ms) in [(None, 1.0), (Some(10.0), 2.0), (Some(20.0), 3.0)] {
            pulse.note_network(Quality {
                rtt_ms,
                jitter_ms,
                mos: rtt_ms.map(|_| 4.0),
                ..Quality::default()
            });
        }
        let log = pulse.network();
        assert_eq!(log.means(), [Some(15.0), Some(2.0), Some(4.0)]);
        assert_eq!(log.last().and_then(|last| last.rtt_ms), Some(20.0));
    }

    #[test]
    fn the_agent_s_state_is_told_in_the_api_s_words() {
        let pulse = Pulse::default();
        assert_eq!(pulse.agent(), None);
        pulse.set_agent(AgentState::OnHold);
        assert_eq!(pulse.agent(), Some("on_hold"));
    }
}
