//! A session that changes while the call is up: re-INVITE (RFC 3261 14) and UPDATE (RFC 3311), both
//! ways, and what happens when both sides begin at once.

use std::time::Duration;

use super::outgoing::Fork;
use super::timers::Timer;
use super::{Call, Out, Purpose, SUPPORTED_UP, ServerId, State, remote_tag};
use crate::event::Event;
use crate::message::{Body, Method, Name, Request, Response};
use crate::time::Time;

/// Whose offer has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negotiation {
    Idle,
    Local,
    Remote,
    /// The INVITE is not answered, but its session is agreed on.
    Settled,
}

/// An offer of theirs that our user has not answered.
#[derive(Debug)]
pub(super) struct RemoteOffer {
    pub(super) server: ServerId,
    pub(super) request: Request,
}

/// An offer of ours that is not through.
#[derive(Debug)]
pub(super) struct LocalOffer {
    body: Body,
    /// Under way, and not waiting for its turn.
    sent: bool,
    /// A refresh of the session: nobody asked for it, and nobody is told when it fails.
    refresh: bool,
}

impl Call {
    /// Their re-INVITE (14.2).
    pub(super) fn reinvited(&mut self, now: Time, server: ServerId, request: &Request) {
        if self.state == State::Leaving {
            return self.respond(server, request, 487);
        }
        if self.state != State::Up || self.remote_offer.is_some() {
            // Their first has no final answer yet.
            return self.respond_later(server, request);
        }
        if self.is_offering() {
            return self.respond(server, request, 491);
        }
        // Whoever invites again has our 2xx: its ACK is late or lost.
        if self.answer.take().is_some() {
            self.timers.disarm(Timer::AnswerAgain);
            self.timers.disarm(Timer::AnswerGiveUp);
        }
        if let Some(refusal) = self.session_too_brief(request) {
            self.out.push_back(Out::Respond(server, refusal));
            return;
        }
        self.take_offer(now, server, request);
    }

    /// Their UPDATE: with a body an offer, without one a refresh (RFC 3311 5.2). It may be of a dialog
    /// that is early.
    pub(super) fn updated(&mut self, now: Time, server: ServerId, request: &Request) {
        let ends = matches!(self.state, State::Leaving | State::Cancelling);
        if ends {
            return self.respond(server, request, 487);
        }
        if let Some(refusal) = self.session_too_brief(request) {
            self.out.push_back(Out::Respond(server, refusal));
            return;
        }
        if request.body().is_none() {
            self.refresh_target(request);
            let mut response = Response::to(&request.headers, 200, "");
            self.add_abilities(&mut response);
            self.grant_session(now, request, &mut response);
            self.out.push_back(Out::Respond(server, response));
            return;
        }
        if self.remote_offer.is_some() || self.negotiation == Negotiation::Remote {
            return self.respond_later(server, request);
        }
        let tag = remote_tag(request);
        let early = self.forks.iter().find(|fork| fork.dialog.is_with(&tag));
        let offering = early.map_or_else(|| self.is_offering(), |fork| !fork.has_answered);
        if offering {
            return self.respond(server, request, 491);
        }
        // Our user has one session: of several callees that are not called yet one may change it.
        let other = |fork: &Fork| fork.is_changed && !fork.dialog.is_with(&tag);
        if self.forks.iter().any(other) {
            return self.respond(server, request, 488);
        }
        self.take_offer(now, server, request);
    }

    fn take_offer(&mut self, now: Time, server: ServerId, request: &Request) {
        self.refresh_target(request);
        self.remote_offer = Some(RemoteOffer {
            server,
            request: request.clone(),
        });
        // Half of what the other side waits for the answer to an UPDATE.
        let until = now + self.patience() / 2;
        self.timers.arm(Timer::OfferGiveUp, until);
        let (call, body) = (self.id, request.body());
        self.event(Event::Offer { call, body });
    }

    fn refresh_target(&mut self, request: &Request) {
        if let Some(dialog) = self.dialog_of(request) {
            dialog.refresh(request.contact());
        }
    }

    /// An offer of a callee who is not called any more, since another one picked up, is refused.
    pub(super) fn refuse_offer_of_others(&mut self, tag: &str) {
        let theirs = |offer: &RemoteOffer| remote_tag(&offer.request) == tag;
        if !self.remote_offer.as_ref().is_none_or(theirs) {
            self.refuse_offer(487);
        }
    }

    fn is_offering(&self) -> bool {
        self.negotiation == Negotiation::Local
            || self.local_offer.as_ref().is_some_and(|offer| offer.sent)
    }

    pub(super) fn accept_offer(&mut self, now: Time, body: Body) {
        let Some(offer) = self.remote_offer.take() else {
            return;
        };
        self.timers.disarm(Timer::OfferGiveUp);
        let tag = remote_tag(&offer.request);
        if let Some(fork) = self.forks.iter_mut().find(|fork| fork.dialog.is_with(&tag)) {
            fork.is_changed = true;
        }
        let mut response = Response::to(&offer.request.headers, 200, "");
        self.add_abilities(&mut response);
        self.grant_session(now, &offer.request, &mut response);
        self.described = Some(body.clone());
        response.set_body(Some(body));
        if offer.request.method == Method::Update {
            self.out.push_back(Out::Respond(offer.server, response));
            return self.offer_what_waits();
        }
        let offered = offer.request.body().is_none();
        if offered {
            self.negotiation = Negotiation::Local;
        }
        self.send_answer(now, offer.server, &offer.request, response, false, offered);
    }

    pub(super) fn refuse_offer(&mut self, code: u16) {
        if let Some(offer) = self.remote_offer.take() {
            self.timers.disarm(Timer::OfferGiveUp);
            let code = if (300..700).contains(&code) {
                code
            } else {
                488
            };
            self.respond(offer.server, &offer.request, code);
            self.offer_what_waits();
        }
    }

    /// Our user's offer. It waits while something else is under way; a later one takes its place.
    pub(super) fn offer(&mut self, body: Body) {
        if self.state != State::Up {
            return;
        }
        if self.local_offer.as_ref().is_some_and(|offer| offer.sent) {
            let (call, code) = (self.id, 491);
            return self.event(Event::OfferRefused { call, code });
        }
        self.local_offer = Some(LocalOffer {
            body,
            sent: false,
            refresh: false,
        });
        self.offer_what_waits();
    }

    /// Sends the offer that waits, unless something is under way or a 491 made it wait.
    pub(super) fn offer_what_waits(&mut self) {
        let free = self.state == State::Up
            && self.answer.is_none()
            && self.remote_offer.is_none()
            && self.negotiation == Negotiation::Idle
            && !self.timers.is_armed(Timer::Glare);
        let Some(offer) = self
            .local_offer
            .as_mut()
            .filter(|offer| free && !offer.sent)
        else {
            return;
        };
        let Some(dialog) = &mut self.dialog else {
            return;
        };
        offer.sent = true;
        let body = offer.body.clone();
        let mut request = dialog.request(Method::Invite);
        self.add_abilities_to(&mut request);
        // Nothing provisional of it is listened to, so none is asked for that wants a PRACK (RFC 3262 4).
        request.headers.set(Name::Supported, SUPPORTED_UP);
        self.session.write_refresh(&mut request.headers);
        request.set_body(Some(body));
        self.out.push_back(Out::Request(Purpose::Reinvite, request));
    }

    pub(super) fn offer_again(&mut self) {
        self.offer_what_waits();
    }

    /// A re-INVITE that says what was said before, to refresh the session.
    pub(super) fn reinvite_to_refresh(&mut self) {
        if self.local_offer.is_none()
            && let Some(body) = self.described.clone()
        {
            self.local_offer = Some(LocalOffer {
                body,
                sent: false,
                refresh: true,
            });
        }
        self.offer_what_waits();
    }

    pub(super) fn reinvite_answered(&mut self, now: Time, request: &Request, response: &Response) {
        let Some(cseq) = request.cseq() else {
            return;
        };
        match response.code {
            ..200 => {}
            200..=299 => {
                let again = self
                    .acked
                    .as_ref()
                    .is_some_and(|(acked, ..)| *acked == cseq.number);
                if !again && let Some(dialog) = &mut self.dialog {
                    dialog.refresh(response.contact());
                }
                self.acknowledge(request);
                if again {
                    return;
                }
                let offer = self.local_offer.take();
                if self.state != State::Up {
                    return;
                }
                self.agree_session(now, response);
                if let Some(offer) = offer {
                    self.described = Some(offer.body);
                    let call = self.id;
                    match (offer.refresh, response.body()) {
                        (false, body) => self.event(Event::OfferAccepted { call, body }),
                        (true, Some(body)) => self.event(Event::Refreshed { call, body }),
                        (true, None) => {}
                    }
                }
                self.offer_what_waits();
            }
            491 => self.wait_after_glare(now),
            422 if self.session.lengthen(response) => self.send_offer_anew(),
            code @ (408 | 481) => {
                self.local_offer = None;
                self.lost(code);
            }
            code => self.offer_refused(now, code),
        }
    }

    fn offer_refused(&mut self, now: Time, code: u16) {
        match self.local_offer.take() {
            Some(offer) if offer.refresh => self.refresh_again(now),
            Some(_) => {
                let call = self.id;
                self.event(Event::OfferRefused { call, code });
            }
            None => {}
        }
    }

    fn send_offer_anew(&mut self) {
        if let Some(offer) = &mut self.local_offer {
            offer.sent = false;
        }
        self.offer_what_waits();
    }

    /// 491 (14.1): whoever made the Call-ID waits 2.1 to 4 s, the other side up to 2 s.
    fn wait_after_glare(&mut self, now: Time) {
        let ms = Duration::from_millis;
        let wait = match self.caller {
            Some(_) => self.ids.between(ms(2_100), ms(4_000)),
            None => self.ids.between(ms(0), ms(2_000)),
        };
        if let Some(offer) = &mut self.local_offer {
            offer.sent = false;
            self.timers.arm(Timer::Glare, now + wait);
        }
    }

    pub(super) fn update_answered(&mut self, now: Time, _: &Request, response: &Response) {
        match response.code {
            ..200 => {}
            200..=299 => {
                if let Some(dialog) = &mut self.dialog {
                    dialog.refresh(response.contact());
                }
                if self.state == State::Up {
                    self.agree_session(now, response);
                }
            }
            code @ (408 | 481) => self.lost(code),
            422 if self.session.lengthen(response) => self.refresh(),
            405 | 501 => {
                self.takes_update = false;
                self.reinvite_to_refresh();
            }
            // A later request may have overtaken it, or they are busy: another try before the end.
            _ => self.refresh_again(now),
        }
    }

    /// Sends an UPDATE without a body.
    pub(super) fn update_to_refresh(&mut self) {
        if let Some(dialog) = &mut self.dialog {
            let mut request = dialog.request(Method::Update);
            self.add_abilities_to(&mut request);
            self.session.write_refresh(&mut request.headers);
            self.out.push_back(Out::Request(Purpose::Update, request));
        }
    }
}
