//! A message is taken in place of a conversation: an announcement, a tone, and then the caller's words,
//! which nobody answers.
//!
//! | State | Cue | Next | Acts |
//! |---|---|---|---|
//! | `Opening` | the call is connected | `Thinking` | `Greet`, or `Tone` where nothing is announced |
//! | `Thinking` | the announcement is heard | `Agent` | |
//! | | it fails, or `Timer::FirstWord` | `Thinking` | `Tone` |
//! | `Agent` | the announcement is over | `Thinking` | `Tone` |
//! | | the tone is over | `Listening` | |
//! | `Listening` | a voice | stays; `Timer::Silence` anew | |
//! | | `Timer::Silence`, `Timer::MaxDuration`, `#`, the caller hangs up | `Ended` | `Finish(Voicemail)` |
//! | any other | the caller hangs up | `Ended` | `Finish(CallerHangup)`: there is no message |

use std::time::Duration;

use super::timers::Timer;
use super::{Act, Cue, FIRST_WORD, State, TurnTaker};
use crate::call::record::EndReason;
use crate::config::MessageLimits;
use crate::time::Time;

/// The longest that announcement and tone may take.
const ANNOUNCEMENT: Duration = Duration::from_secs(30);

impl TurnTaker {
    pub(super) fn message_cue(&mut self, now: Time, cue: Cue, limits: MessageLimits) {
        match (self.state, cue) {
            (State::Ended(_), _) | (_, Cue::Tick) => {}
            (State::Listening, Cue::End(EndReason::CallerHangup) | Cue::Key { last: true }) => {
                self.finish(EndReason::Voicemail);
            }
            (_, Cue::End(reason) | Cue::Goodbye(reason)) => self.finish(reason),
            (_, Cue::Start) => {
                self.timers.arm(Timer::MaxDuration, now + ANNOUNCEMENT);
                if self.settings.greets {
                    self.say(now, Act::Greet);
                } else {
                    self.tone(now);
                }
            }
            (State::Thinking { .. }, Cue::ReplyHeard) => {
                self.timers.disarm(Timer::FirstWord);
                self.state = State::Agent;
            }
            (State::Thinking { .. } | State::Agent, Cue::ReplyOver | Cue::ReplyFailed) => {
                self.said(now, limits);
            }
            (State::Listening, Cue::Frame { voiced: true, .. } | Cue::Unhold) => {
                self.await_voice(now, limits);
            }
            // Who holds the call sends nothing, and may do so for as long as the message may be.
            (State::Listening, Cue::Hold) => self.timers.disarm(Timer::Silence),
            (_, _) => {}
        }
    }

    pub(super) fn message_timer(&mut self, now: Time, timer: Timer, limits: MessageLimits) {
        match (self.state, timer) {
            (State::Listening, Timer::Silence | Timer::MaxDuration) => {
                self.finish(EndReason::Voicemail);
            }
            (State::Ended(_), _) => {}
            (_, Timer::MaxDuration) => self.finish(EndReason::MaxDuration),
            (State::Thinking { .. }, Timer::FirstWord) => {
                self.acts.push(Act::CancelReply);
                self.said(now, limits);
            }
            (_, _) => {}
        }
    }

    /// The announcement is over, or the tone after it.
    fn said(&mut self, now: Time, limits: MessageLimits) {
        if !self.tone_sounded {
            return self.tone(now);
        }
        self.leave(now);
        self.state = State::Listening;
        let most = Duration::from_secs(limits.max_seconds.into());
        self.timers.arm(Timer::MaxDuration, now + most);
        self.await_voice(now, limits);
    }

    fn tone(&mut self, now: Time) {
        self.leave(now);
        self.tone_sounded = true;
        self.state = State::Thinking { tool: false };
        self.timers.arm(Timer::FirstWord, now + FIRST_WORD);
        self.acts.push(Act::Tone);
    }

    fn await_voice(&mut self, now: Time, limits: MessageLimits) {
        let pause = Duration::from_secs(limits.silence_seconds.into());
        self.timers.arm(Timer::Silence, now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AgentConfig, Direction};

    const LIMITS: MessageLimits = MessageLimits {
        max_seconds: 60,
        silence_seconds: 5,
    };

    struct Taker(TurnTaker);

    impl Taker {
        fn new(first_message: Option<&str>) -> Self {
            let agent = AgentConfig {
                first_message: first_message.map(str::to_owned),
                message: Some(LIMITS),
                ..AgentConfig::default()
            };
            Self(TurnTaker::new(&agent, Direction::Inbound))
        }

        fn at(&mut self, seconds: u64, cue: Cue) -> Vec<Act> {
            self.0.handle(Time::from_millis(1_000 * seconds), cue);
            std::iter::from_fn(|| self.0.take_act()).collect()
        }

        /// Up to the end of the tone at second 3.
        fn listening() -> Self {
            let mut taker = Self::new(Some("Nobody is here."));
            assert_eq!(taker.at(0, Cue::Start), [Act::Greet]);
            assert_eq!(taker.at(1, Cue::ReplyHeard), []);
            assert_eq!(taker.at(2, Cue::ReplyOver), [Act::Tone]);
            assert_eq!(taker.at(2, Cue::ReplyHeard), []);
            assert_eq!(taker.at(3, Cue::ReplyOver), []);
            assert_eq!(taker.0.state(), State::Listening);
            taker
        }
    }

    fn voice(seconds: u64) -> Cue {
        Cue::Frame {
            at: Time::from_millis(1_000 * seconds),
            voiced: true,
        }
    }

    const OVER: [Act; 1] = [Act::Finish(EndReason::Voicemail)];

    #[test]
    fn a_pause_ends_a_message_and_a_voice_does_not() {
        let mut taker = Taker::listening();
        for second in 4..20 {
            assert_eq!(taker.at(second, voice(second)), [], "nobody answers");
        }
        assert_eq!(taker.at(23, Cue::Tick), []);
        assert_eq!(taker.at(24, Cue::Tick), OVER);
    }

    #[test]
    fn a_message_has_a_longest_length_from_the_tone_on() {
        let mut taker = Taker::listening();
        for second in 4..63 {
            assert_eq!(taker.at(second, voice(second)), []);
        }
        assert_eq!(taker.at(63, voice(63)), OVER);
    }

    #[test]
    fn who_hangs_up_after_the_tone_or_presses_the_hash_has_left_a_message() {
        let gone = Cue::End(EndReason::CallerHangup);
        assert_eq!(Taker::listening().at(4, gone), OVER);
        assert_eq!(Taker::listening().at(4, Cue::Key { last: false }), []);
        assert_eq!(Taker::listening().at(4, Cue::Key { last: true }), OVER);
        let mut early = Taker::new(Some("Nobody is here."));
        early.at(0, Cue::Start);
        assert_eq!(early.at(1, voice(1)), [], "nothing interrupts it");
        assert_eq!(early.at(2, gone), [Act::Finish(EndReason::CallerHangup)]);
    }

    #[test]
    fn an_announcement_that_fails_is_left_out() {
        let mut silent = Taker::new(None);
        assert_eq!(silent.at(0, Cue::Start), [Act::Tone]);
        let mut failing = Taker::new(Some("Nobody is here."));
        failing.at(0, Cue::Start);
        assert_eq!(failing.at(1, Cue::ReplyFailed), [Act::Tone]);
        let mut late = Taker::new(Some("Nobody is here."));
        late.at(0, Cue::Start);
        assert_eq!(late.at(8, Cue::Tick), [Act::CancelReply, Act::Tone]);
        assert_eq!(late.at(16, Cue::Tick), [Act::CancelReply]);
        assert_eq!(late.0.state(), State::Listening);
    }

    #[test]
    fn a_failure_is_no_message() {
        let failed = Cue::End(EndReason::MediaTimeout);
        assert_eq!(
            Taker::listening().at(5, failed),
            [Act::Finish(EndReason::MediaTimeout)]
        );
    }
}
