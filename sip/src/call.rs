//! One call: an INVITE session from its first message to its last (RFC 3261 13 to 15, with 3262, 3311,
//! 3515, 4028, 6026).
//!
//! A [`Call`] knows no address and no transaction machine: it is told of requests and responses of its
//! dialogs and asks for others. The contract of a core holds: one `handle`, then `poll` until
//! [`Out::Wait`] or [`Out::Over`].
//!
//! This file holds the state, the common parts and the end. [`outgoing`] and [`incoming`] make the call
//! come up, [`offers`] change its session, [`session`] keeps its timer, [`refer`] passes it on.

mod digits;
mod incoming;
mod offers;
mod outgoing;
mod refer;
mod session;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::digits::digit_of;
use self::incoming::{Answer, Ringing};
use self::offers::{LocalOffer, Negotiation, RemoteOffer};
use self::outgoing::Caller;
use self::outgoing::Fork;
pub(crate) use self::outgoing::{farewell, late_ack};
use self::refer::Refers;
use self::session::SessionTimer;
pub(crate) use self::session::too_brief;
use self::timers::{Timer, Timers};
use crate::auth::{Challenge, Credentials, Retry};
use crate::dialog::Dialog;
use crate::event::{CallId, Command, EndedBy, Event};
use crate::ids::Ids;
use crate::message::{Body, CSeq, Method, Name, RAck, Request, Response, scan};
use crate::time::Time;
use crate::transaction::Timing;

/// The methods that a call serves.
pub(crate) const ALLOW: &str =
    "INVITE, ACK, BYE, CANCEL, OPTIONS, PRACK, UPDATE, INFO, REFER, NOTIFY";

/// The extensions that this stack knows.
pub(crate) const SUPPORTED: &str = "100rel, timer";

/// Those of a re-INVITE.
const SUPPORTED_UP: &str = "timer";

/// A server transaction, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId(pub(crate) u64);

/// What a request of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// The INVITE that makes the call.
    Invite,
    Reinvite,
    Update,
    Bye,
    Prack,
    Refer,
    Notify,
    Info,
    /// The goodbye to a fork that answered too late.
    StrayBye,
}

/// What a call is told.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// A request of one of its dialogs, ACK included (its server is never answered).
    Request(ServerId, &'a Request),
    /// The caller cancelled its INVITE.
    Cancelled,
    /// A response to a request of ours, with the challenge of it that is to be answered; 408 and 503 are made up
    /// when none came.
    Response(Purpose, &'a Request, &'a Response, Option<Challenge>),
    Command(Command),
    /// The INVITE that makes the call goes to another address, as one was silent or overloaded.
    TriesNext,
    Timeout,
}

/// What a call asks for.
#[derive(Debug)]
pub(crate) enum Out {
    /// A new client transaction.
    Request(Purpose, Request),
    /// Cancel the INVITE that makes the call.
    Cancel(Option<String>),
    /// Sent without a transaction; its branch stays the same when it is sent again.
    Ack(Request, String),
    Respond(ServerId, Response),
    Event(Event),
    Wait(Time),
    /// Nothing is left of it.
    Over,
}

/// What all calls of an endpoint have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) timing: Timing,
    /// Seconds between refreshes that are asked for; 0 for no session timer.
    pub(crate) session_expires: u32,
    /// The least that is accepted (RFC 4028: 90 and no less).
    pub(crate) min_se: u32,
    pub(crate) user_agent: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Our INVITE has no final answer.
    Calling,
    /// We hung up before that; its final answer is awaited.
    Cancelling,
    /// Their INVITE has no final answer.
    Ringing,
    Up,
    /// Our BYE is under way, or waits for the ACK that must come before it.
    Leaving,
    Over,
}

#[derive(Debug)]
pub(crate) struct Call {
    id: CallId,
    state: State,
    settings: Arc<Settings>,
    /// Our Contact, with its brackets.
    contact: String,
    ids: Ids,
    credentials: Option<Credentials>,
    retry: Retry,
    /// The one that counts: the callee's from the start, the caller's from the first 2xx.
    dialog: Option<Dialog>,
    /// The caller's INVITE as it was last sent, and its dialogs that are early.
    caller: Option<Caller>,
    forks: Vec<Fork>,
    ringing: Option<Ringing>,
    /// Our last reliable provisional response, when the 2xx was given before its PRACK came.
    unpracked: Option<RAck>,
    /// A 2xx of ours that waits for its ACK.
    answer: Option<Answer>,
    /// The ACK of the latest 2xx to us, with the number of its INVITE.
    acked: Option<(u32, Request, String)>,
    negotiation: Negotiation,
    remote_offer: Option<RemoteOffer>,
    local_offer: Option<LocalOffer>,
    /// The session as we last described it.
    described: Option<Body>,
    session: SessionTimer,
    /// The other side listed UPDATE in an Allow.
    takes_update: bool,
    refers: Refers,
    /// A goodbye that waits for the ACK (RFC 3261 15), with its Reason.
    goodbye: Option<Option<String>>,
    timers: Timers,
    out: VecDeque<Out>,
    told_end: bool,
}

impl Call {
    fn new(id: CallId, state: State, settings: Arc<Settings>, contact: String, ids: Ids) -> Self {
        Self {
            id,
            state,
            settings,
            contact,
            ids,
            credentials: None,
            retry: Retry::default(),
            dialog: None,
            caller: None,
            forks: Vec::new(),
            ringing: None,
            unpracked: None,
            answer: None,
            acked: None,
            negotiation: Negotiation::Idle,
            remote_offer: None,
            local_offer: None,
            described: None,
            session: SessionTimer::default(),
            takes_update: false,
            refers: Refers::default(),
            goodbye: None,
            timers: Timers::default(),
            out: VecDeque::new(),
            told_end: false,
        }
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    /// What answers the challenges of its trunk's hosts.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Whether its user has let go of it, so that an INVITE which is not sent yet need not be.
    pub(crate) fn is_leaving(&self) -> bool {
        self.told_end
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>) {
        if self.state == State::Over {
            return;
        }
        match input {
            Input::Request(server, request) => self.request(now, server, request),
            Input::Cancelled => self.cancelled(),
            Input::Response(purpose, request, response, challenge) => {
                self.response(now, purpose, request, response, challenge);
            }
            Input::Command(command) => self.command(now, command),
            Input::TriesNext => self.tries_next(now),
            Input::Timeout => {
                while let Some((timer, due)) = self.timers.take_due(now) {
                    self.fire(now, timer, due);
                }
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Out {
        self.out.pop_front().unwrap_or_else(|| match self.state {
            State::Over => Out::Over,
            _ => Out::Wait(self.timers.next()),
        })
    }

    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Ring(_, body) => self.ring(now, body),
            Command::Answer(_, body) => self.accept(now, body),
            Command::Reject(_, code, warning) => self.reject(code, warning),
            Command::HangUp(_, reason) => self.hang_up(now, reason),
            Command::Offer(_, body) => self.offer(body),
            Command::AcceptOffer(_, body) => self.accept_offer(now, body),
            Command::RefuseOffer(_, code) => self.refuse_offer(code),
            Command::Refer(_, target, replaces) => self.refer(&target, replaces.as_deref()),
            Command::AnswerRefer(_, code) => self.answer_refer(code),
            Command::NotifyRefer(_, code) => self.notify_refer(code),
            Command::Info(_, body) => self.info(body),
            // These are of the endpoint.
            Command::Place(..)
            | Command::SetTrunk(_)
            | Command::RemoveTrunk(_)
            | Command::Register(_) => {}
        }
    }

    /// A request of a dialog of this call (12.2.2).
    fn request(&mut self, now: Time, server: ServerId, request: &Request) {
        let Some(dialog) = self.dialog_of(request) else {
            return self.respond(server, request, 481);
        };
        if dialog.receive(request).is_err() {
            return self.respond(server, request, 500);
        }
        if request.headers.lists(&Name::Allow, "UPDATE") {
            self.takes_update = true;
        }
        match request.method {
            Method::Ack => self.acknowledged(now, request),
            Method::Bye => self.goodbye_came(server, request),
            Method::Invite => self.reinvited(now, server, request),
            Method::Update => self.updated(now, server, request),
            Method::Prack => self.prack(now, server, request),
            Method::Info => self.info_came(server, request),
            Method::Refer => self.refer_came(server, request),
            Method::Notify => self.notify_came(server, request),
            Method::Options => {
                let mut response = Response::to(&request.headers, 200, "");
                response.headers.push(Name::Accept, "application/sdp");
                self.add_abilities(&mut response);
                self.out.push_back(Out::Respond(server, response));
            }
            _ => {
                let mut response = Response::to(&request.headers, 405, "");
                response.headers.push(Name::Allow, ALLOW);
                self.out.push_back(Out::Respond(server, response));
            }
        }
    }

    /// The dialog, early or not, that a request of theirs is of.
    fn dialog_of(&mut self, request: &Request) -> Option<&mut Dialog> {
        self.dialog_with(&remote_tag(request))
    }

    fn dialog_with(&mut self, tag: &str) -> Option<&mut Dialog> {
        match &mut self.dialog {
            Some(dialog) if dialog.is_with(tag) => Some(dialog),
            _ => self
                .forks
                .iter_mut()
                .map(|fork| &mut fork.dialog)
                .find(|dialog| dialog.is_with(tag)),
        }
    }

    fn response(
        &mut self,
        now: Time,
        purpose: Purpose,
        request: &Request,
        response: &Response,
        challenge: Option<Challenge>,
    ) {
        if response.headers.lists(&Name::Allow, "UPDATE") {
            self.takes_update = true;
        }
        if (200..300).contains(&response.code) {
            // However long the call lasts, what comes later may be challenged anew.
            self.retry.start_over();
        }
        if let Some(challenge) = challenge
            && self.answer_challenge(purpose, request, response.code, challenge)
        {
            return;
        }
        match purpose {
            Purpose::Invite => self.invite_answered(now, request, response),
            Purpose::Reinvite => self.reinvite_answered(now, request, response),
            Purpose::Update => self.update_answered(now, request, response),
            // Whatever it says, the call is over (15.1.1).
            Purpose::Bye if response.code >= 200 => self.finish(),
            Purpose::Refer => self.refer_answered(response),
            Purpose::Prack | Purpose::Notify | Purpose::Info | Purpose::Bye | Purpose::StrayBye => {
            }
        }
    }

    /// Sends a request again with credentials, under the next number of its dialog.
    fn answer_challenge(
        &mut self,
        purpose: Purpose,
        request: &Request,
        code: u16,
        challenge: Challenge,
    ) -> bool {
        // Nobody waits for a call that is cancelled, nor for these; an answer that is not sent would be counted.
        if self.state == State::Cancelling || purpose == Purpose::StrayBye {
            return false;
        }
        // A PRACK is of the dialog of its fork, which may be early, or gone when another one picked up.
        let to = request.to();
        let tag = to.as_ref().and_then(|to| to.tag()).unwrap_or_default();
        if purpose == Purpose::Prack && self.dialog_with(tag).is_none() {
            return false;
        }
        let Some(credentials) = &self.credentials else {
            return false;
        };
        let Some(mut again) =
            self.retry
                .answer(request, code, challenge, credentials, &mut self.ids)
        else {
            return false;
        };
        let number = match purpose {
            Purpose::Invite => self.caller.as_mut().map(Caller::next_seq),
            Purpose::Prack => self.dialog_with(tag).map(Dialog::next_seq),
            _ => self.dialog.as_mut().map(Dialog::next_seq),
        };
        let Some(number) = number else {
            return false;
        };
        let method = again.method.clone();
        again
            .headers
            .set(Name::CSeq, CSeq { number, method }.to_string());
        if purpose == Purpose::Invite
            && let Some(caller) = &mut self.caller
        {
            caller.sent_again(&again);
        }
        self.out.push_back(Out::Request(purpose, again));
        true
    }

    fn fire(&mut self, now: Time, timer: Timer, due: Time) {
        match timer {
            Timer::AnswerAgain => self.send_answer_again(due),
            Timer::AnswerGiveUp => self.answer_lost(),
            Timer::ProvisionalAgain => self.send_provisional_again(due),
            Timer::ProvisionalGiveUp => self.provisional_lost(),
            Timer::RingAgain => self.ring_again(now),
            Timer::InviteExpires => self.terminated("Expired"),
            Timer::NoAnswer => self.nobody_answers(now),
            Timer::CancelGiveUp => self.finish(),
            Timer::Refresh => self.refresh(),
            Timer::Expiry => self.expired(),
            Timer::Glare => self.offer_again(),
            // The session stays as it was (RFC 3311 5.2).
            Timer::OfferGiveUp => self.refuse_offer(504),
        }
    }

    /// Hangs up, in whatever way the state wants.
    fn hang_up(&mut self, now: Time, reason: Option<String>) {
        match self.state {
            State::Calling => {
                self.tell_end(EndedBy::Local, None, "");
                self.cancel(now, reason);
            }
            State::Ringing => self.reject(480, None),
            State::Up => {
                self.tell_end(EndedBy::Local, None, "");
                self.say_goodbye(reason);
            }
            State::Cancelling | State::Leaving | State::Over => {}
        }
    }

    /// BYE; but a callee waits for the ACK of its 2xx first (15).
    fn say_goodbye(&mut self, reason: Option<String>) {
        self.state = State::Leaving;
        self.refuse_what_waits();
        self.session.stop(&mut self.timers);
        if self.answer.is_some() {
            self.goodbye = Some(reason);
            return;
        }
        self.timers.clear();
        self.send_goodbye(reason);
    }

    fn send_goodbye(&mut self, reason: Option<String>) {
        let Some(dialog) = &mut self.dialog else {
            self.state = State::Over;
            return;
        };
        let mut bye = dialog.request(Method::Bye);
        if let Some(reason) = reason {
            bye.headers.push(Name::Reason, reason);
        }
        self.out.push_back(Out::Request(Purpose::Bye, bye));
    }

    fn goodbye_came(&mut self, server: ServerId, request: &Request) {
        self.respond(server, request, 200);
        let reason = request
            .headers
            .get(&Name::Reason)
            .unwrap_or_default()
            .to_owned();
        if let Some(ringing) = self.ringing.take() {
            let refusal = Response::to(&ringing.request.headers, 487, "");
            self.out
                .push_back(Out::Respond(ringing.server, self.tagged(refusal)));
        }
        self.refuse_what_waits();
        self.tell_end(EndedBy::Remote, None, &reason);
        // Of an early fork's BYE the others know nothing: our INVITE is cancelled by its final answer.
        if self.state != State::Calling {
            self.finish();
        }
    }

    /// A request of theirs that waits for our user is not left unanswered.
    fn refuse_what_waits(&mut self) {
        if let Some(offer) = self.remote_offer.take() {
            let refusal = Response::to(&offer.request.headers, 487, "");
            self.out.push_back(Out::Respond(offer.server, refusal));
            self.timers.disarm(Timer::OfferGiveUp);
        }
        self.refuse_refer(603);
    }

    fn expired(&mut self) {
        if self.state == State::Up {
            self.tell_end(EndedBy::Network, Some(408), "Session Expired");
            self.say_goodbye(None);
        }
    }

    /// The other side does not know the dialog any more, or does not answer.
    fn lost(&mut self, code: u16) {
        if self.state == State::Up {
            self.tell_end(
                EndedBy::Network,
                Some(code),
                crate::message::usual_reason(code),
            );
            self.say_goodbye(None);
        }
    }

    fn info_came(&mut self, server: ServerId, request: &Request) {
        let Some(body) = request.body() else {
            return self.respond(server, request, 200);
        };
        match digit_of(&body) {
            Some((digit, duration_ms)) => {
                self.respond(server, request, 200);
                let call = self.id;
                self.event(Event::Digit {
                    call,
                    digit,
                    duration_ms,
                });
            }
            None => {
                let mut response = Response::to(&request.headers, 415, "");
                response
                    .headers
                    .push(Name::Accept, "application/dtmf-relay, application/dtmf");
                self.out.push_back(Out::Respond(server, response));
            }
        }
    }

    fn info(&mut self, body: Body) {
        if self.state == State::Up
            && let Some(dialog) = &mut self.dialog
        {
            let mut info = dialog.request(Method::Info);
            info.set_body(Some(body));
            self.out.push_back(Out::Request(Purpose::Info, info));
        }
    }

    fn finish(&mut self) {
        self.refuse_what_waits();
        self.state = State::Over;
        self.timers.clear();
    }

    /// Tells the end once.
    fn tell_end(&mut self, by: EndedBy, code: Option<u16>, reason: &str) {
        if !self.told_end {
            self.told_end = true;
            let call = self.id;
            self.event(Event::Ended {
                call,
                by,
                code,
                reason: reason.to_owned(),
            });
        }
    }

    fn event(&mut self, event: Event) {
        // Nobody asks after a call any more whose end was told.
        if !self.told_end || matches!(event, Event::Ended { .. }) {
            self.out.push_back(Out::Event(event));
        }
    }

    fn respond(&mut self, server: ServerId, request: &Request, code: u16) {
        if request.method != Method::Ack {
            let response = Response::to(&request.headers, code, "");
            self.out.push_back(Out::Respond(server, response));
        }
    }

    /// "Later": 500 with a Retry-After of up to ten seconds (14.2).
    fn respond_later(&mut self, server: ServerId, request: &Request) {
        let mut response = Response::to(&request.headers, 500, "");
        let seconds = self.ids.below(11);
        response.headers.push(Name::RetryAfter, seconds.to_string());
        self.out.push_back(Out::Respond(server, response));
    }

    /// Our tag in To.
    fn tagged(&self, mut response: Response) -> Response {
        if let Some(dialog) = &self.dialog {
            response.set_to_tag(&dialog.local_tag);
        }
        response
    }

    fn add_abilities(&self, response: &mut Response) {
        response.headers.push(Name::Contact, self.contact.as_str());
        response.headers.push(Name::Allow, ALLOW);
        response.headers.push(Name::Supported, SUPPORTED);
    }

    fn add_abilities_to(&self, request: &mut Request) {
        request.headers.push(Name::Contact, self.contact.as_str());
        request.headers.push(Name::Allow, ALLOW);
        request.headers.push(Name::Supported, SUPPORTED);
        request
            .headers
            .push(Name::UserAgent, self.settings.user_agent.as_str());
    }

    fn patience(&self) -> Duration {
        self.settings.timing.patience()
    }
}

/// Stands for the response that did not come: 408 after a timeout, 503 when nothing could be sent
/// (RFC 3261 8.1.3.1). It has no Via, which a real one cannot lack.
pub(crate) fn make_up(request: &Request, code: u16) -> Response {
    let mut response = Response::to(&request.headers, code, "");
    response.headers.remove(&Name::Via);
    response
}

/// What is tried again after an overload, seconds.
pub(crate) const RETRY_AFTER: &str = "5";

/// Stands for the response to a request that was not sent because something here is full.
pub(crate) fn make_up_overload(request: &Request, why: &str) -> Response {
    let mut response = make_up(request, 503);
    response.reason = why.to_owned();
    response.headers.push(Name::RetryAfter, RETRY_AFTER);
    response
}

/// Whether something here was full: [`make_up_overload`] said so.
pub(crate) fn is_own_overload(response: &Response) -> bool {
    is_made_up(response) && response.headers.has(&Name::RetryAfter)
}

/// The tag of whoever sent a request; empty for a peer of RFC 2543 that sends none.
fn remote_tag(request: &Request) -> String {
    let from = request.from();
    let tag = from.as_ref().and_then(|from| from.tag());
    tag.unwrap_or_default().to_owned()
}

/// Whether nobody said it: [`make_up`] did.
pub(crate) fn is_made_up(response: &Response) -> bool {
    !response.headers.has(&Name::Via)
}

/// A number in a field that holds nothing else.
fn number(headers: &crate::message::Headers, name: &Name) -> Option<u32> {
    headers
        .get(name)
        .and_then(scan::number)
        .and_then(|number| u32::try_from(number).ok())
}
