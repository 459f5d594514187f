//! The INVITE client transaction (RFC 3261 17.1.1, RFC 6026 7.2).

use super::timers::{Timer, Timers, Timing};
use super::{ClientInput, End, Outbox, Output, Wire};
use crate::message::{CSeq, Method, Name, Request, Response};
use crate::seam::{Mutant, mutant};
use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Sent, nothing heard.
    Calling,
    /// A provisional response came.
    Proceeding,
    /// A 2xx came; further ones go to the user, who acknowledges them.
    Accepted,
    /// A refusal came and was acknowledged here.
    Completed,
    Terminated,
}

#[derive(Debug)]
pub struct ClientInvite {
    state: State,
    timers: Timers,
    timing: Timing,
    reliable: bool,
    request: Request,
    wire: Wire,
    /// Of Timer A.
    interval: std::time::Duration,
    ack: Option<Wire>,
    /// Its user needs no answer: a provisional response is no reason to wait longer.
    given_up: bool,
    out: Outbox,
}

impl ClientInvite {
    pub fn new(now: Time, request: &Request, reliable: bool, timing: Timing) -> Self {
        let mut machine = Self {
            state: State::Calling,
            timers: Timers::default(),
            timing,
            reliable,
            wire: request.to_bytes().into(),
            request: request.clone(),
            interval: timing.t1,
            ack: None,
            given_up: false,
            out: Outbox::default(),
        };
        machine.out.send(&machine.wire);
        if !reliable {
            machine.timers.arm(Timer::A, now + timing.t1);
        }
        machine.timers.arm(Timer::B, now + timing.patience());
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
            (State::Calling, ClientInput::Failed) => self.end(End::Failed),
            // The INVITE was heard, so nothing of it failed to be sent (17.1.4): its answer comes over another
            // connection (18.2.2), and a 2xx has to be acknowledged.
            (State::Proceeding, ClientInput::Failed) => {}
            // Once accepted or completed, only an ACK could have failed: the answer is known.
            (State::Accepted | State::Completed, ClientInput::Failed | ClientInput::GiveUp) => {}
            // An answer may still come; asking again for one that nobody wants would be wrong.
            (State::Calling, ClientInput::GiveUp) => {
                self.given_up = true;
                self.timers.disarm(Timer::A);
            }
            (State::Proceeding, ClientInput::GiveUp) => {
                self.given_up = true;
                self.timers.arm(Timer::B, now + self.timing.patience());
            }
            (_, ClientInput::Response(response)) => self.response(now, response),
        }
    }

    pub fn poll(&mut self) -> Output {
        self.out.poll(&self.timers)
    }

    pub fn is_inviting(&self) -> bool {
        matches!(self.state, State::Calling | State::Proceeding)
    }

    fn response(&mut self, now: Time, response: Response) {
        match (self.state, response.code / 100) {
            (State::Calling | State::Proceeding, 1) => {
                if !self.given_up {
                    self.timers.clear();
                }
                self.state = State::Proceeding;
                self.out.give(response);
            }
            (State::Calling | State::Proceeding, 2) => {
                self.timers.clear();
                self.timers.arm(Timer::M, now + self.timing.patience());
                self.state = State::Accepted;
                self.out.give(response);
            }
            (State::Accepted, 2) => self.out.give(response),
            (State::Calling | State::Proceeding, _) => {
                self.timers.clear();
                self.state = State::Completed;
                let ack: Wire = self.ack(&response).to_bytes().into();
                self.out.send(&ack);
                self.ack = Some(ack);
                self.out.give(response);
                if self.reliable {
                    self.end(End::Done);
                } else {
                    self.timers.arm(Timer::D, now + Timing::D);
                }
            }
            (State::Completed, 3..) if !mutant(Mutant::AckOnlyOnce) => {
                if let Some(ack) = &self.ack {
                    self.out.send(ack);
                }
            }
            _ => {}
        }
    }

    fn fire(&mut self, timer: Timer, due: Time) {
        match timer {
            Timer::A => {
                self.out.send(&self.wire);
                self.interval *= 2;
                self.timers.arm(Timer::A, due + self.interval);
            }
            Timer::B => self.end(End::TimedOut),
            _ => self.end(End::Done),
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Terminated;
        self.timers.clear();
        self.out.end(end);
    }

    /// RFC 3261 17.1.1.3: the request's own fields, the response's To, one Via.
    fn ack(&self, response: &Response) -> Request {
        let mut ack = Request::new(Method::Ack, self.request.uri.clone());
        let ours = &self.request.headers;
        if let Some(via) = ours.list(&Name::Via).next() {
            ack.headers.push(Name::Via, via);
        }
        ack.headers.copy(&Name::MaxForwards, ours);
        ack.headers.copy(&Name::From, ours);
        ack.headers.copy(&Name::To, &response.headers);
        ack.headers.copy(&Name::CallId, ours);
        if let Some(cseq) = self.request.cseq() {
            let cseq = CSeq {
                method: Method::Ack,
                ..cseq
            };
            ack.headers.push(Name::CSeq, cseq.to_string());
        }
        ack.headers.copy(&Name::Route, ours);
        ack
    }
}
