//! When the caller of `sidetone call` speaks, is silent, and hangs up. Pure: time comes in, in ms since
//! the call's start.

/// Nobody greets for this long: the caller speaks first.
const GREETING_WAIT_MS: u64 = 3000;
/// The breath between the greeting's end and the caller's first word.
const BREATH_MS: u64 = 400;
/// An answer that has not begun by then does not come: longer than any documented deadline of a turn.
const ANSWER_WAIT_MS: u64 = 15_000;
/// A voice that begins a little before the file ends still answers it (an eager agent).
const EAGER_MS: u64 = 500;

/// The caller.
pub(crate) struct Script {
    file_ms: u64,
    linger_ms: u64,
    /// Speak this long after the agent began to, once.
    barge_in_ms: Option<u64>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For the greeting to pass.
    Waiting,
    Speaking {
        since: u64,
    },
    /// For the answer.
    Listening {
        since: u64,
    },
}

/// What the caller hears of the agent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgentSpeech {
    /// When the agent's latest stretch of speech began.
    pub voice_since: Option<u64>,
    /// Until when the agent speaks, as far as its audio has arrived.
    pub voice_until: u64,
}

/// What the caller does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Silence,
    /// Speak the file from its start on.
    Begin,
    /// Go on speaking.
    Speak,
    HangUp,
}

impl Script {
    /// A caller with a file of that length, who stays on the line for `linger_ms` after the last answer.
    pub(crate) fn new(file_ms: u64, linger_ms: u64, barge_in_ms: Option<u64>) -> Self {
        Self {
            file_ms,
            linger_ms,
            barge_in_ms,
            phase: Phase::Waiting,
        }
    }

    /// What to do in the frame that begins now.
    pub(crate) fn act(&mut self, now: u64, ears: AgentSpeech) -> Act {
        let voice_since = ears.voice_since.filter(|since| *since <= now);
        match self.phase {
            Phase::Waiting => {
                let greeted = voice_since.is_some() && self.barge_in_ms.is_none();
                if self.barges_in(now, voice_since)
                    || (greeted && now >= ears.voice_until + BREATH_MS)
                    || (ears.voice_since.is_none() && now >= GREETING_WAIT_MS)
                {
                    return self.begin(now);
                }
                Act::Silence
            }
            Phase::Speaking { since } if now >= since + self.file_ms => {
                self.phase = Phase::Listening { since: now };
                Act::Silence
            }
            Phase::Speaking { .. } => Act::Speak,
            Phase::Listening { since } => {
                let answer = voice_since.filter(|voice| voice + EAGER_MS >= since);
                if self.barges_in(now, answer) {
                    return self.begin(now);
                }
                match answer {
                    Some(_) if now >= ears.voice_until + self.linger_ms => Act::HangUp,
                    None if now >= since + ANSWER_WAIT_MS => Act::HangUp,
                    _ => Act::Silence,
                }
            }
        }
    }

    fn begin(&mut self, now: u64) -> Act {
        self.phase = Phase::Speaking { since: now };
        Act::Begin
    }

    /// Whether the one barge-in is due; it then counts as done.
    fn barges_in(&mut self, now: u64, voice_since: Option<u64>) -> bool {
        let due = matches!((self.barge_in_ms, voice_since), (Some(after), Some(since)) if now >= since + after);
        if due {
            self.barge_in_ms = None;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the script against stretches of agent speech; gives when it begins and when it hangs up.
    fn run(mut script: Script, voice: &[(u64, u64)]) -> (Vec<u64>, u64) {
        let mut began = Vec::new();
        for now in (0..60_000).step_by(20) {
            let last = voice.iter().rev().find(|(since, _)| *since <= now);
            let ears = last.map_or_else(AgentSpeech::default, |(since, until)| AgentSpeech {
                voice_since: Some(*since),
                voice_until: *until,
            });
            match script.act(now, ears) {
                Act::Begin => began.push(now),
                Act::HangUp => return (began, now),
                Act::Silence | Act::Speak => {}
            }
        }
        (began, u64::MAX)
    }

    #[test]
    fn the_caller_waits_for_the_greeting_and_for_the_answer() {
        let script = Script::new(2000, 3000, None);
        assert_eq!(
            run(script, &[(100, 2000), (5000, 7000)]),
            (vec![2400], 10_000)
        );
    }

    #[test]
    fn without_a_greeting_the_caller_speaks_first() {
        let script = Script::new(2000, 3000, None);
        assert_eq!(run(script, &[(6000, 7000)]), (vec![3000], 10_000));
    }

    #[test]
    fn an_answer_that_never_comes_is_not_waited_for_forever() {
        let script = Script::new(2000, 3000, None);
        assert_eq!(run(script, &[]), (vec![3000], 20_000));
    }

    #[test]
    fn a_barge_in_cuts_the_greeting() {
        let script = Script::new(1000, 2000, Some(700));
        assert_eq!(run(script, &[(100, 5000), (6000, 7000)]), (vec![800], 9000));
    }

    #[test]
    fn without_a_greeting_the_barge_in_cuts_the_answer() {
        let script = Script::new(1000, 2000, Some(500));
        assert_eq!(
            run(script, &[(5000, 9000), (11_000, 12_000)]),
            (vec![3000, 5500], 14_000)
        );
    }
}
