//! A call of theirs until it is up: provisionals, reliable or not, the 2xx until its ACK, CANCEL.

use std::sync::Arc;
use std::time::Duration;

use super::offers::Negotiation;
use super::timers::Timer;
use super::{ALLOW, Call, Out, ServerId, Settings, State, number};
use crate::auth::Credentials;
use crate::dialog::Dialog;
use crate::event::{CallId, EndedBy, Event};
use crate::ids::Ids;
use crate::message::{Body, Method, Name, RAck, Request, Response};
use crate::seam::{Mutant, mutant};
use crate::time::Time;

/// How often a call that rings says so again (13.3.1.1).
const RING_INTERVAL: Duration = Duration::from_secs(60);

/// Their INVITE, unanswered.
#[derive(Debug)]
pub(super) struct Ringing {
    pub(super) server: ServerId,
    pub(super) request: Request,
    /// What was last said, to say again.
    last: Option<Response>,
    rseq: u32,
    reliable: Option<Reliable>,
    /// What our user asked for while a reliable provisional had no PRACK.
    queued_ring: Option<Option<Body>>,
    queued_answer: Option<Body>,
}

/// A reliable provisional response that has no PRACK.
#[derive(Debug)]
struct Reliable {
    rseq: u32,
    response: Response,
    interval: Duration,
    has_body: bool,
}

/// A 2xx that has no ACK.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) server: ServerId,
    pub(super) response: Response,
    /// Of the INVITE it answers.
    pub(super) number: u32,
    pub(super) interval: Duration,
    /// It made the call, and no re-INVITE.
    pub(super) first: bool,
    /// Its body was an offer: the ACK brings the answer.
    pub(super) offered: bool,
}

impl Call {
    /// A call of theirs. `None` when the INVITE has no Contact. `credentials` answer challenges to what
    /// we ask for in it.
    pub(crate) fn incoming(
        id: CallId,
        settings: Arc<Settings>,
        contact: String,
        mut ids: Ids,
        credentials: Option<Credentials>,
        server: ServerId,
        request: &Request,
    ) -> Option<Self> {
        let dialog = Dialog::as_server(request, &ids.tag())?;
        let rseq = u32::try_from(ids.below(1 << 30)).unwrap_or(0) + 1;
        let mut call = Self::new(id, State::Ringing, settings, contact, ids);
        call.dialog = Some(dialog);
        call.credentials = credentials;
        call.takes_update = request.headers.lists(&Name::Allow, "UPDATE");
        if request.body().is_some() {
            call.negotiation = Negotiation::Remote;
        }
        call.ringing = Some(Ringing {
            server,
            request: request.clone(),
            last: None,
            rseq,
            reliable: None,
            queued_ring: None,
            queued_answer: None,
        });
        Some(call)
    }

    /// The key under which the endpoint finds the dialog.
    pub(crate) fn local_tag(&self) -> Option<&str> {
        self.dialog.as_ref().map(|dialog| dialog.local_tag.as_str())
    }

    pub(super) fn ring(&mut self, now: Time, body: Option<Body>) {
        let Some(ringing) = &mut self.ringing else {
            return;
        };
        if ringing.reliable.is_some() {
            ringing.queued_ring = Some(body);
            return;
        }
        let wanted = |name| ringing.request.headers.lists(name, "100rel");
        // The first reliable answer to an INVITE without an offer has ours (RFC 3262 5): here it is the 2xx then.
        let unoffered = ringing.request.body().is_none() && self.negotiation == Negotiation::Idle;
        if body.is_none() && unoffered && wanted(&Name::Require) {
            return;
        }
        let reliable = wanted(&Name::Require) || (body.is_some() && wanted(&Name::Supported));
        let code = if body.is_some() { 183 } else { 180 };
        let mut response = self.early(code);
        let has_body = body.is_some();
        if has_body {
            self.described.clone_from(&body);
        }
        response.set_body(body);
        let interval = self.settings.timing.t1;
        let patience = self.patience();
        let Some(ringing) = &mut self.ringing else {
            return;
        };
        if reliable {
            ringing.rseq += 1;
            response.headers.push(Name::Require, "100rel");
            response.headers.push(Name::RSeq, ringing.rseq.to_string());
            ringing.reliable = Some(Reliable {
                rseq: ringing.rseq,
                response: response.clone(),
                interval,
                has_body,
            });
            self.timers.arm(Timer::ProvisionalAgain, now + interval);
            self.timers.arm(Timer::ProvisionalGiveUp, now + patience);
        } else {
            // A reliable one must not be repeated under its old number.
            ringing.last = Some(response.clone());
            self.timers.arm(Timer::RingAgain, now + RING_INTERVAL);
        }
        let server = ringing.server;
        self.out.push_back(Out::Respond(server, response));
    }

    /// A response of the dialog that is about to be: tag, Contact, the recorded route (12.1.1).
    fn early(&self, code: u16) -> Response {
        let Some(ringing) = &self.ringing else {
            return Response::to(&crate::message::Headers::default(), code, "");
        };
        let mut response = self.tagged(Response::to(&ringing.request.headers, code, ""));
        response
            .headers
            .copy(&Name::RecordRoute, &ringing.request.headers);
        self.add_abilities(&mut response);
        response
    }

    pub(super) fn ring_again(&mut self, now: Time) {
        if let Some(ringing) = &self.ringing
            && let Some(last) = &ringing.last
        {
            self.out
                .push_back(Out::Respond(ringing.server, last.clone()));
            self.timers.arm(Timer::RingAgain, now + RING_INTERVAL);
        }
    }

    pub(super) fn send_provisional_again(&mut self, due: Time) {
        let Some(ringing) = &mut self.ringing else {
            return;
        };
        if let Some(reliable) = &mut ringing.reliable {
            reliable.interval *= 2;
            let next = due + reliable.interval;
            let response = reliable.response.clone();
            self.out.push_back(Out::Respond(ringing.server, response));
            self.timers.arm(Timer::ProvisionalAgain, next);
        }
    }

    /// No PRACK: the INVITE is refused with a 5xx (RFC 3262 3).
    pub(super) fn provisional_lost(&mut self) {
        if let Some(ringing) = self.ringing.take() {
            let refusal = self.tagged(Response::to(&ringing.request.headers, 504, ""));
            self.out.push_back(Out::Respond(ringing.server, refusal));
            self.tell_end(EndedBy::Network, Some(504), "No PRACK");
            self.finish();
        }
    }

    pub(super) fn prack(&mut self, now: Time, server: ServerId, request: &Request) {
        let rack = request.headers.get(&Name::RAck).and_then(RAck::parse);
        // The 2xx did not wait for it (RFC 3262 3).
        if self.unpracked.is_some() && self.unpracked == rack {
            self.unpracked = None;
            return self.respond(server, request, 200);
        }
        let matches = match (&self.ringing, &rack) {
            (Some(ringing), Some(rack)) => {
                let number = ringing.request.cseq().map(|cseq| cseq.number);
                let waiting = ringing.reliable.as_ref().map(|reliable| reliable.rseq);
                rack.cseq.method == Method::Invite
                    && Some(rack.cseq.number) == number
                    && Some(rack.rseq) == waiting
            }
            _ => false,
        };
        let Some(ringing) = self.ringing.as_mut().filter(|_| matches) else {
            return self.respond(server, request, 481);
        };
        let Some(reliable) = ringing.reliable.take() else {
            return self.respond(server, request, 481);
        };
        self.timers.disarm(Timer::ProvisionalAgain);
        self.timers.disarm(Timer::ProvisionalGiveUp);
        let (ring, answer) = (ringing.queued_ring.take(), ringing.queued_answer.take());
        let offered = ringing.request.body().is_none();
        self.respond(server, request, 200);
        if reliable.has_body {
            self.negotiation = Negotiation::Settled;
            // Our provisional made the offer, so this body is the answer.
            if let (true, Some(body)) = (offered, request.body()) {
                let call = self.id;
                self.event(Event::OfferAccepted {
                    call,
                    body: Some(body),
                });
            }
        }
        if let Some(body) = answer {
            self.accept(now, body);
        } else if let Some(body) = ring {
            self.ring(now, body);
        }
    }

    /// 200, sent again until its ACK (13.3.1.4).
    pub(super) fn accept(&mut self, now: Time, body: Body) {
        let Some(ringing) = &mut self.ringing else {
            return;
        };
        // A reliable provisional with a body must be acknowledged first (RFC 3262 3).
        if ringing
            .reliable
            .as_ref()
            .is_some_and(|reliable| reliable.has_body)
        {
            ringing.queued_answer = Some(body);
            return;
        }
        let mut response = self.early(200);
        let Some(ringing) = self.ringing.take() else {
            return;
        };
        self.unpracked = ringing.reliable.as_ref().and_then(|reliable| {
            Some(RAck {
                rseq: reliable.rseq,
                cseq: ringing.request.cseq()?,
            })
        });
        self.timers.clear_but(Timer::OfferGiveUp);
        self.state = State::Up;
        self.grant_session(now, &ringing.request, &mut response);
        let offered = ringing.request.body().is_none();
        if self.negotiation == Negotiation::Settled {
            // The session was agreed on in a reliable provisional already.
            self.negotiation = Negotiation::Idle;
        } else {
            self.negotiation = if offered {
                Negotiation::Local
            } else {
                Negotiation::Idle
            };
            self.described = Some(body.clone());
            response.set_body(Some(body));
        }
        let offered = self.negotiation == Negotiation::Local;
        self.send_answer(
            now,
            ringing.server,
            &ringing.request,
            response,
            true,
            offered,
        );
    }

    pub(super) fn send_answer(
        &mut self,
        now: Time,
        server: ServerId,
        request: &Request,
        response: Response,
        first: bool,
        offered: bool,
    ) {
        let interval = self.settings.timing.t1;
        self.out.push_back(Out::Respond(server, response.clone()));
        self.answer = Some(Answer {
            server,
            response,
            number: request.cseq().map_or(0, |cseq| cseq.number),
            interval,
            first,
            offered,
        });
        if !mutant(Mutant::AnswerSentOnce) {
            self.timers.arm(Timer::AnswerAgain, now + interval);
        }
        self.timers.arm(Timer::AnswerGiveUp, now + self.patience());
    }

    pub(super) fn send_answer_again(&mut self, due: Time) {
        if let Some(answer) = &mut self.answer {
            answer.interval = (answer.interval * 2).min(self.settings.timing.t2);
            self.timers.arm(Timer::AnswerAgain, due + answer.interval);
            self.out
                .push_back(Out::Respond(answer.server, answer.response.clone()));
        }
    }

    /// No ACK came: the session ends (13.3.1.4).
    pub(super) fn answer_lost(&mut self) {
        if self.answer.take().is_none() {
            return;
        }
        self.timers.disarm(Timer::AnswerAgain);
        match self.goodbye.take() {
            Some(reason) => {
                self.timers.clear();
                self.send_goodbye(reason);
            }
            None => {
                self.tell_end(EndedBy::Network, Some(408), "No ACK");
                self.say_goodbye(None);
            }
        }
    }

    pub(super) fn acknowledged(&mut self, _: Time, request: &Request) {
        let number = request.cseq().map(|cseq| cseq.number);
        let Some(answer) = self.answer.take_if(|answer| Some(answer.number) == number) else {
            return;
        };
        self.timers.disarm(Timer::AnswerAgain);
        self.timers.disarm(Timer::AnswerGiveUp);
        if answer.offered {
            self.negotiation = Negotiation::Idle;
        }
        if let Some(reason) = self.goodbye.take() {
            self.timers.clear();
            return self.send_goodbye(reason);
        }
        let body = request.body().filter(|_| answer.offered);
        let call = self.id;
        if answer.first {
            self.event(Event::Established { call, body });
        } else if answer.offered {
            self.event(Event::OfferAccepted { call, body });
        }
        self.offer_what_waits();
    }

    pub(super) fn reject(&mut self, code: u16, warning: Option<String>) {
        if let Some(ringing) = self.ringing.take() {
            let code = if (300..700).contains(&code) {
                code
            } else {
                480
            };
            let mut refusal = self.tagged(Response::to(&ringing.request.headers, code, ""));
            refusal.headers.push(Name::Allow, ALLOW);
            if let Some(warning) = warning {
                refusal.headers.push(Name::Warning, warning);
            }
            let reason = refusal.reason.clone();
            self.out.push_back(Out::Respond(ringing.server, refusal));
            self.tell_end(EndedBy::Local, Some(code), &reason);
            self.finish();
        }
    }

    /// Until when their INVITE counts, if it says so (13.3.1). What is no number, or none at all, says nothing.
    pub(crate) fn expires(&mut self, now: Time, request: &Request) {
        let seconds = number(&request.headers, &Name::Expires).unwrap_or(0);
        if seconds > 0 {
            let until = now + Duration::from_secs(u64::from(seconds));
            self.timers.arm(Timer::InviteExpires, until);
        }
    }

    /// CANCEL before our final answer (9.2). After it there is nothing to cancel.
    pub(super) fn cancelled(&mut self) {
        self.terminated("Cancelled");
    }

    /// Their INVITE does not count any more.
    pub(super) fn terminated(&mut self, why: &str) {
        if let Some(ringing) = self.ringing.take() {
            let refusal = self.tagged(Response::to(&ringing.request.headers, 487, ""));
            self.out.push_back(Out::Respond(ringing.server, refusal));
            self.tell_end(EndedBy::Remote, Some(487), why);
            self.finish();
        }
    }
}
