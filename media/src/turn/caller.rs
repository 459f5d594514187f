//! The caller's side of the conversation: voice, words, keys, and the turns they make.

use std::time::Duration;

use super::endpoint::Shape;
use super::timers::Timer;
use super::{Act, CallerTurn, KEYPAD_PAUSE, NO_WORDS, State, TurnTaker, Words};
use crate::call::record::EndReason;
use crate::config::Direction;
use crate::time::Time;

impl TurnTaker {
    pub(super) fn frame(&mut self, now: Time, at: Time, voiced: bool) {
        self.voice.heard = at;
        self.voice.silent = false;
        if !voiced {
            self.silent_frame(now, at);
            return;
        }
        let began = !self.voice.on;
        let pause = at - self.voice.last;
        if began {
            self.voice.on = true;
            self.silence_spent = Duration::ZERO;
            self.voice.onset = at.before(Duration::from_millis(crate::frame::FRAME_MS));
            self.voice.given = false;
        }
        self.voice.last = at;
        self.timers
            .arm(Timer::VoiceStop, at + self.delays.voice_stop);
        match self.state {
            State::Opening | State::Listening => {
                let onset = Some(self.voice.onset);
                self.leave(now);
                if self.open_turn(onset, CallerTurn::new(false)) {
                    self.give_voice();
                }
            }
            State::Caller(mut turn) => {
                if began {
                    // Between keys nobody pauses within a sentence.
                    if !turn.keyed {
                        self.learnt.pause(pause);
                    }
                    turn.words.is_final = false;
                    self.state = State::Caller(turn);
                    self.drop_speculation();
                    self.give_voice();
                }
                self.timers.disarm(Timer::EndOfTurn);
                self.timers.disarm(Timer::Transcript);
                self.timers.disarm(Timer::Resume);
            }
            State::Thinking { .. } => {
                self.give_voice();
                if self.speaks_on.voiced(at) {
                    self.speak_on(now);
                }
            }
            State::Agent if self.settings.interruption_enabled => {
                self.give_voice();
                if self.barge_in.voiced(at) {
                    self.interrupt(now, NO_WORDS);
                }
            }
            State::Agent | State::Closing(_) | State::Ended(_) => {}
        }
    }

    /// Silence that was heard needs no timer: whatever it has made due happens with the frame.
    fn silent_frame(&mut self, now: Time, at: Time) {
        if self.voice.on && at >= self.voice.last + self.delays.voice_stop {
            self.timers.disarm(Timer::VoiceStop);
            self.voice_stopped(now);
        }
        if let State::Caller(turn) = self.state
            && !self.voice.on
            && self.timers.get(Timer::EndOfTurn).is_some()
            && at >= self.voice.last + self.delay(turn.words.shape)
        {
            self.timers.disarm(Timer::EndOfTurn);
            self.end_of_turn(now, turn);
        }
    }

    pub(super) fn give_voice(&mut self) {
        if !self.voice.given {
            self.voice.given = true;
            self.acts.push(Act::Listen);
        }
    }

    pub(super) fn voice_stopped(&mut self, now: Time) {
        self.voice.on = false;
        if self.voice.given {
            self.acts.push(Act::StopListening);
        }
        if let State::Caller(turn) = self.state {
            self.timers.arm(
                Timer::EndOfTurn,
                self.voice.last + self.delay(turn.words.shape),
            );
            if !turn.keyed {
                self.timers
                    .arm(Timer::Transcript, self.voice.last + self.delays.transcript);
            }
            self.fire_due(now);
        }
    }

    pub(super) fn words(&mut self, now: Time, mut turn: CallerTurn, words: Words) {
        turn.words = words;
        self.state = State::Caller(turn);
        if self.voice.on || turn.keyed {
            return;
        }
        let empty = words.shape == Shape::Empty || (turn.interrupted && words.acknowledgement);
        if words.is_final && empty {
            self.timers.disarm(Timer::EndOfTurn);
            self.timers.disarm(Timer::Transcript);
            if turn.interrupted {
                self.timers
                    .arm(Timer::Resume, self.voice.last + self.delays.resume);
            } else {
                self.drop_turn();
                self.go_on(now);
            }
            return;
        }
        if words.is_final {
            self.timers.disarm(Timer::Transcript);
            self.timers
                .arm(Timer::EndOfTurn, self.voice.last + self.delay(words.shape));
            let allowed = turn.speculations < self.delays.speculations && !self.greeting_due;
            if words.shape == Shape::Sentence && allowed && !turn.speculating {
                turn.speculations += 1;
                turn.speculating = true;
                self.state = State::Caller(turn);
                self.acts.push(Act::Speculate);
            }
        }
    }

    /// The deadline of the turn has passed. Without final words it waits for them: they arm it anew.
    pub(super) fn end_of_turn(&mut self, now: Time, turn: CallerTurn) {
        if turn.words.is_final && !turn.keyed {
            self.commit(now);
        }
    }

    /// The recogniser takes too long: what it has said by now is the turn.
    pub(super) fn transcript_overdue(&mut self, now: Time, turn: CallerTurn) {
        if turn.words.shape == Shape::Empty {
            self.not_heard(now);
        } else if turn.interrupted && turn.words.acknowledgement {
            self.drop_turn();
            self.say(now, Act::Resume);
        } else {
            self.commit(now);
        }
    }

    pub(super) fn commit(&mut self, now: Time) {
        self.idle_attempts = 0;
        if self.greeting_due {
            self.acts.push(Act::DropSpeculation);
            self.say(now, Act::Greet);
        } else {
            self.say(now, Act::Commit);
        }
    }

    /// Opens a caller turn. `false`: it was one too many, and the call is over.
    pub(super) fn open_turn(&mut self, onset: Option<Time>, turn: CallerTurn) -> bool {
        self.turns += 1;
        if self
            .settings
            .max_turns
            .is_some_and(|most| self.turns >= most)
        {
            self.finish(EndReason::MaxTurns);
            return false;
        }
        self.acts.push(Act::OpenTurn { onset });
        self.state = State::Caller(turn);
        self.unanswered = true;
        true
    }

    /// A turn without words was none.
    pub(super) fn drop_turn(&mut self) {
        self.acts.push(Act::DropTurn);
        self.turns = self.turns.saturating_sub(1);
        self.unanswered = false;
    }

    /// After a voice that was no turn: says the line that it kept the agent from, or listens.
    pub(super) fn go_on(&mut self, now: Time) {
        match self.unsaid.take() {
            Some(line) => self.say(now, line),
            None => self.listen(now),
        }
    }

    pub(super) fn interrupt(&mut self, now: Time, words: Words) {
        self.acts.push(Act::Interrupt);
        let onset = Some(self.voice.onset);
        let turn = CallerTurn {
            words,
            ..CallerTurn::new(true)
        };
        self.leave(now);
        if self.open_turn(onset, turn) && !self.voice.on {
            self.voice_stopped(now);
        }
    }

    /// The caller goes on with the turn that was being answered; before a line of the agent's own they begin one.
    pub(super) fn speak_on(&mut self, now: Time) {
        self.acts.push(Act::CancelReply);
        // Who is called is greeted after their first words, however many they are.
        self.greeting_due |=
            self.unsaid == Some(Act::Greet) && self.settings.direction == Direction::Outbound;
        self.leave(now);
        if self.unanswered {
            self.state = State::Caller(CallerTurn::new(false));
        } else {
            let onset = Some(self.voice.onset);
            self.open_turn(onset, CallerTurn::new(false));
        }
    }

    /// Makes room for a turn that needs no voice.
    pub(super) fn take_floor(&mut self, now: Time) {
        match self.state {
            State::Agent => self.acts.push(Act::Interrupt),
            State::Thinking { .. } => self.acts.push(Act::CancelReply),
            _ => {}
        }
        self.leave(now);
    }

    pub(super) fn key(&mut self, now: Time, last: bool) {
        self.timers.disarm(Timer::EndOfTurn);
        self.timers.disarm(Timer::Transcript);
        if last {
            self.commit(now);
        } else {
            self.timers.arm(Timer::Keypad, now + KEYPAD_PAUSE);
        }
    }

    pub(super) fn drop_speculation(&mut self) {
        if let State::Caller(turn) = &mut self.state
            && turn.speculating
        {
            turn.speculating = false;
            self.acts.push(Act::DropSpeculation);
        }
    }
}
