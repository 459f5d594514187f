//! The pulse of a call: the agent's state, turns, tools and the network, which change many times in it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use media::call::output::{AgentState, ToolStage};
use media::peer::{PeerState, Quality};

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

/// How the network was, over a whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetworkLog {
    last: Option<Quality>,
    rtt: Mean,
    jitter: Mean,
    mos: Mean,
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
