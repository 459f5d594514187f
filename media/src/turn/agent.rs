//! The agent's side of the conversation: what it says, and what becomes of a reply.

use super::timers::Timer;
use super::{Act, CallerTurn, Cue, FIRST_WORD, MAX_FAILURES, State, TurnTaker};
use crate::call::record::EndReason;
use crate::time::Time;

impl TurnTaker {
    pub(super) fn reply_over(&mut self, now: Time) {
        self.apologising = false;
        self.unsaid = None;
        self.unanswered = false;
        if self.voice.on {
            let onset = Some(self.voice.onset);
            self.leave(now);
            if self.open_turn(onset, CallerTurn::new(false)) {
                self.give_voice();
            }
        } else {
            self.listen(now);
        }
    }

    /// The caller said something and nobody knows what: ask again, but not for ever, and not before the greeting.
    pub(super) fn not_heard(&mut self, now: Time) {
        self.drop_turn();
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.finish(EndReason::ProviderError);
        } else if self.greeting_due || self.unsaid == Some(Act::Greet) {
            self.go_on(now);
        } else {
            self.say(now, Act::Reprompt);
        }
    }

    pub(super) fn reply_failed(&mut self, now: Time) {
        self.failures += 1;
        if self.failures >= MAX_FAILURES {
            self.finish(EndReason::ProviderError);
        } else if self.apologising {
            self.apologising = false;
            self.listen(now);
        } else {
            self.say(now, Act::Apologise);
        }
    }

    pub(super) fn idle(&mut self, now: Time) {
        self.idle_attempts += 1;
        let most = self.settings.max_idle_attempts;
        if most > 0 && self.idle_attempts > most {
            self.step(now, Cue::Goodbye(EndReason::IdleLimit));
        } else {
            self.say(now, Act::CheckIn);
        }
    }

    /// Starts a reply or a line of the agent's own.
    pub(super) fn say(&mut self, now: Time, act: Act) {
        self.leave(now);
        self.apologising = act == Act::Apologise;
        self.reprompting = act == Act::Reprompt;
        self.greeting_due &= act != Act::Greet;
        self.think(now);
        self.unsaid = (act != Act::Commit).then_some(act);
        if self.unsaid.is_some() {
            self.timers.disarm(Timer::SoftTimeout);
        }
        self.acts.push(act);
    }

    pub(super) fn think(&mut self, now: Time) {
        self.state = State::Thinking { tool: false };
        self.speaks_on.reset();
        self.timers.arm(Timer::FirstWord, now + FIRST_WORD);
        if let Some(soft) = self.settings.soft_timeout {
            self.timers.arm(Timer::SoftTimeout, now + soft);
        }
    }
}
