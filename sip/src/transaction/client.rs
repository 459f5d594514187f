//! The client transaction of every other method (RFC 3261 17.1.2).

use super::timers::{Timer, Timers, Timing};
use super::{ClientInput, End, Outbox, Output, Wire};
use crate::message::{Request, Response};
use crate::seam::{Mutant, mutant};
use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Trying,
    /// A provisional response came: the request is sent again, but slowly.
    Proceeding,
    /// A final response came; its repetitions are absorbed.
    Completed,
    Terminated,
}

#[derive(Debug)]
pub struct Client {
    state: State,
    timers: Timers,
    timing: Timing,
    reliable: bool,
    wire: Wire,
    /// Of Timer E.
    interval: std::time::Duration,
    out: Outbox,
}

impl Client {
    pub fn new(now: Time, request: &Request, reliable: bool, timing: Timing) -> Self {
        let mut machine = Self {
            state: State::Trying,
            timers: Timers::default(),
            timing,
            reliable,
            wire: request.to_bytes().into(),
            interval: timing.t1,
            out: Outbox::default(),
        };
        machine.out.send(&machine.wire);
        if !reliable {
            machine.timers.arm(Timer::E, now + timing.t1);
        }
        machine.timers.arm(Timer::F, now + timing.patience());
        machine
    }

    pub fn handle(&mut self, now: Time, input: ClientInput) {
        match (self.state, input) {
            (State::Terminated, _) => {}
            (_, ClientInput::Timeout) => {
                while let Some((timer, due)) = self.timers.take_due(now) {
                    self.fire(timer, due);
                }
            }
            (State::Trying | State::Proceeding, ClientInput::Failed) => self.end(End::Failed),
            (State::Completed, ClientInput::Failed) | (_, ClientInput::GiveUp) => {}
            (_, ClientInput::Response(response)) => self.response(now, response),
        }
    }

    pub fn poll(&mut self) -> Output {
        self.out.poll(&self.timers)
    }

    fn response(&mut self, now: Time, response: Response) {
        match (self.state, response.code) {
            (State::Trying | State::Proceeding, ..200) => {
                self.state = State::Proceeding;
                self.out.give(response);
            }
            (State::Trying | State::Proceeding, _) => {
                self.timers.clear();
                self.state = State::Completed;
                self.out.give(response);
                if self.reliable {
                    self.end(End::Done);
                } else {
                    self.timers.arm(Timer::K, now + self.timing.t4);
                }
            }
            _ => {}
        }
    }

    fn fire(&mut self, timer: Timer, due: Time) {
        match timer {
            Timer::E => {
                if !mutant(Mutant::RequestSentOnce) {
                    self.out.send(&self.wire);
                }
                self.interval = match self.state {
                    State::Trying => (self.interval * 2).min(self.timing.t2),
                    _ => self.timing.t2,
                };
                self.timers.arm(Timer::E, due + self.interval);
            }
            Timer::F => self.end(End::TimedOut),
            _ => self.end(End::Done),
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Terminated;
        self.timers.clear();
        self.out.end(end);
    }
}
