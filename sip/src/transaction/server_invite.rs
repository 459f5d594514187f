//! The INVITE server transaction (RFC 3261 17.2.1, RFC 6026 7.1).

use std::time::Duration;

use super::timers::{Timer, Timers, Timing};
use super::{End, Outbox, Output, ServerInput, Wire};
use crate::seam::{Mutant, mutant};
use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No final answer yet.
    Proceeding,
    /// A 2xx was given; its user sends it again until the ACK comes.
    Accepted,
    /// A refusal was given; it is sent again here until the ACK comes.
    Completed,
    /// The ACK came; its repetitions are absorbed.
    Confirmed,
    Terminated,
}

#[derive(Debug)]
pub struct ServerInvite {
    state: State,
    timers: Timers,
    timing: Timing,
    reliable: bool,
    /// What is sent when the INVITE comes again.
    last: Option<Wire>,
    trying: Wire,
    /// Of Timer G.
    interval: Duration,
    out: Outbox,
}

impl ServerInvite {
    /// `trying`: the 100 that is sent when nobody answers within 200 ms.
    pub fn new(now: Time, trying: Wire, reliable: bool, timing: Timing) -> Self {
        let mut timers = Timers::default();
        timers.arm(Timer::Trying, now + Timing::TRYING);
        Self {
            state: State::Proceeding,
            timers,
            timing,
            reliable,
            last: None,
            trying,
            interval: timing.t1,
            out: Outbox::default(),
        }
    }

    pub fn handle(&mut self, now: Time, input: ServerInput) {
        match (self.state, input) {
            (State::Terminated, _) => {}
            (_, ServerInput::Timeout) => {
                while let Some((timer, due)) = self.timers.take_due(now) {
                    self.fire(timer, due);
                }
            }
            (_, ServerInput::Failed) => self.end(End::Failed),
            (State::Proceeding, ServerInput::Again) => {
                self.timers.disarm(Timer::Trying);
                let last = self.last.get_or_insert_with(|| self.trying.clone());
                self.out.send(last);
            }
            (State::Completed, ServerInput::Again) => {
                if let Some(last) = &self.last {
                    self.out.send(last);
                }
            }
            (State::Accepted | State::Confirmed, ServerInput::Again) => {}
            (State::Completed, ServerInput::Ack) => {
                self.timers.clear();
                self.state = State::Confirmed;
                if self.reliable {
                    self.end(End::Done);
                } else {
                    self.timers.arm(Timer::I, now + self.timing.t4);
                }
            }
            (_, ServerInput::Ack) => {}
            (State::Proceeding, ServerInput::Respond(code, wire)) => self.respond(now, code, wire),
            // The user sends its 2xx again.
            (State::Accepted, ServerInput::Respond(200..=299, wire)) => self.out.send(&wire),
            (_, ServerInput::Respond(..)) => {}
        }
    }

    /// Whether it gave a 2xx: an ACK that matches is its user's (RFC 6026 7.1).
    pub fn is_accepted(&self) -> bool {
        self.state == State::Accepted
    }

    pub fn poll(&mut self) -> Output {
        self.out.poll(&self.timers)
    }

    fn respond(&mut self, now: Time, code: u16, wire: Wire) {
        self.timers.clear();
        self.out.send(&wire);
        match code {
            ..200 => {}
            200..=299 => {
                self.state = State::Accepted;
                self.timers.arm(Timer::L, now + self.timing.patience());
            }
            _ => {
                self.state = State::Completed;
                if !self.reliable && !mutant(Mutant::RefusalSentOnce) {
                    self.timers.arm(Timer::G, now + self.timing.t1);
                }
                self.timers.arm(Timer::H, now + self.timing.patience());
            }
        }
        self.last = Some(wire);
    }

    fn fire(&mut self, timer: Timer, due: Time) {
        match timer {
            Timer::Trying => {
                self.out.send(&self.trying);
                self.last = Some(self.trying.clone());
            }
            Timer::G => {
                if let Some(last) = &self.last {
                    self.out.send(last);
                }
                self.interval = (self.interval * 2).min(self.timing.t2);
                self.timers.arm(Timer::G, due + self.interval);
            }
            Timer::H => self.end(End::TimedOut),
            _ => self.end(End::Done),
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Terminated;
        self.timers.clear();
        self.out.end(end);
    }
}
