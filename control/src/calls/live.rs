//! The calls that this process hosts right now: what the database does not know of them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use media::call::output::{AgentState, ToolStage};
use media::shell::CallHandle;
use tokio::sync::{Notify, watch};

use crate::admission::Renewal;
use crate::ids::{AccountId, CallId};
use crate::vendors::usage::SpeechUsage;

/// The calls of this process, by id. Bounded by the engine's cap on calls.
#[derive(Default)]
pub struct LiveCalls {
    calls: Mutex<HashMap<CallId, Arc<LiveCall>>>,
    changed: Notify,
}

/// One call that this process hosts.
pub struct LiveCall {
    pub account: AccountId,
    pub handle: CallHandle,
    pub pulse: Arc<Pulse>,
    /// What its speech providers use, to be read when the call is over.
    pub usage: Arc<SpeechUsage>,
    /// Whether it holds a slot: until the engine is done with it.
    pub leased: AtomicBool,
    /// Becomes `true` once the end of the call is in the database.
    pub ended: watch::Sender<bool>,
}

/// What changes many times in a call and is kept in memory only; written by the engine's threads.
#[derive(Default)]
pub struct Pulse {
    agent: AtomicU8,
    turns: AtomicU32,
    /// Oldest first. Held for a few instructions, a few times in a call.
    tools: Mutex<VecDeque<(String, ToolStage)>>,
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
                if self.lock().is_empty() {
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
            .iter()
            .filter(|(_, call)| call.leased.load(Ordering::SeqCst));
        leased
            .map(|(id, call)| Renewal {
                lease: *id,
                account: call.account,
                agent: None,
            })
            .collect()
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

impl LiveCall {
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
    fn the_agent_s_state_is_told_in_the_api_s_words() {
        let pulse = Pulse::default();
        assert_eq!(pulse.agent(), None);
        pulse.set_agent(AgentState::OnHold);
        assert_eq!(pulse.agent(), Some("on_hold"));
    }
}
