//! The server transaction of every other method (RFC 3261 17.2.2).

use super::timers::{Timer, Timers, Timing};
use super::{End, Outbox, Output, ServerInput, Wire};
use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing answered.
    Trying,
    /// A provisional answer was given.
    Proceeding,
    /// The final answer was given; it is sent again whenever the request comes again.
    Completed,
    Terminated,
}

#[derive(Debug)]
pub struct Server {
    state: State,
    timers: Timers,
    timing: Timing,
    reliable: bool,
    last: Option<Wire>,
    out: Outbox,
}

impl Server {
    pub fn new(reliable: bool, timing: Timing) -> Self {
        Self {
            state: State::Trying,
            timers: Timers::default(),
            timing,
            reliable,
            last: None,
            out: Outbox::default(),
        }
    }

    pub fn handle(&mut self, now: Time, input: ServerInput) {
        match (self.state, input) {
            (State::Terminated, _) | (_, ServerInput::Ack) => {}
            (_, ServerInput::Timeout) => {
                while self.timers.take_due(now).is_some() {
                    self.end(End::Done);
                }
            }
            (_, ServerInput::Failed) => self.end(End::Failed),
            (State::Trying, ServerInput::Again) => {}
            (State::Proceeding | State::Completed, ServerInput::Again) => {
                if let Some(last) = &self.last {
                    self.out.send(last);
                }
            }
            (State::Trying | State::Proceeding, ServerInput::Respond(code, wire)) => {
                self.out.send(&wire);
                self.last = Some(wire);
                if code < 200 {
                    self.state = State::Proceeding;
                } else if self.reliable {
                    self.end(End::Done);
                } else {
                    self.state = State::Completed;
                    self.timers.arm(Timer::J, now + self.timing.patience());
                }
            }
            (State::Completed, ServerInput::Respond(..)) => {}
        }
    }

    pub fn poll(&mut self) -> Output {
        self.out.poll(&self.timers)
    }

    fn end(&mut self, end: End) {
        self.state = State::Terminated;
        self.timers.clear();
        self.out.end(end);
    }
}
