//! A call of ours until it is up: forks, reliable provisionals, CANCEL and its races.

use std::sync::Arc;
use std::time::Duration;

use super::offers::Negotiation;
use super::timers::Timer;
use super::{Call, Out, Purpose, Settings, State, number};
use crate::auth::Credentials;
use crate::dialog::{CREDENTIALS, Dialog};
use crate::event::{CallId, EndedBy, Event, MOST_ENTRIES};
use crate::ids::Ids;
use crate::message::{Body, CSeq, Method, Name, NameAddr, RAck, Request, Response, Uri, scan};
use crate::seam::{Mutant, mutant};
use crate::time::Time;

/// Early dialogs that are kept of one call; a proxy that forks wider is not followed.
const MOST_FORKS: usize = 8;

/// Our INVITE.
#[derive(Debug)]
pub(crate) struct Caller {
    /// As it was last sent, without a Via.
    invite: Request,
    number: u32,
    /// A provisional response came: it may be cancelled (9.1).
    heard: bool,
    /// One beyond 100 came, whichever INVITE of the call it was to.
    progressed: bool,
    /// How long it may ring, from when it does.
    ring_for: Duration,
    rings: bool,
    /// To be cancelled as soon as it may, with a Reason.
    cancel: Option<Option<String>>,
}

/// A dialog that is early. Each has a negotiation of its own: our one offer is answered by whoever was
/// forked to.
#[derive(Debug)]
pub(super) struct Fork {
    pub(super) dialog: Dialog,
    /// Of its last reliable provisional response.
    rseq: Option<u32>,
    /// What it last said of the session in a provisional response; once reliably, that is its answer.
    early: Option<Body>,
    /// It answered our offer in a reliable provisional response.
    pub(super) has_answered: bool,
    /// It changed the session since, by an UPDATE that our user accepted.
    pub(super) is_changed: bool,
}

impl Fork {
    fn new(dialog: Dialog) -> Self {
        Self {
            dialog,
            rseq: None,
            early: None,
            has_answered: false,
            is_changed: false,
        }
    }

    /// Takes what a provisional response says of the session. A reliable answer is one for good: later
    /// bodies say the same (RFC 3262 5).
    fn hear(&mut self, body: Option<Body>, reliable: bool) {
        if let Some(body) = body.filter(|_| !self.has_answered) {
            self.early = Some(body);
            self.has_answered = reliable;
        }
    }

    /// The answer that holds when its 2xx has that body: its reliable one, else that of the 2xx, else
    /// what it said before without a promise (RFC 3261 13.2.1). None when the session was changed since.
    fn answer(self, last: Option<Body>) -> Option<Body> {
        match self.has_answered {
            true => self.early.filter(|_| !self.is_changed),
            false => last.or(self.early),
        }
    }
}

impl Caller {
    pub(super) fn next_seq(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    pub(super) fn sent_again(&mut self, invite: &Request) {
        self.invite = invite.clone();
        self.heard = false;
    }
}

impl Call {
    /// A call of ours. `invite` has its Request-URI, From with our tag, To, Call-ID and CSeq; the rest
    /// is added here.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is of another kind and used once"
    )]
    pub(crate) fn place(
        now: Time,
        id: CallId,
        settings: Arc<Settings>,
        contact: String,
        ids: Ids,
        credentials: Option<Credentials>,
        mut invite: Request,
        offer: Body,
        ring_for: Duration,
    ) -> Self {
        let mut call = Self::new(id, State::Calling, settings, contact, ids);
        call.credentials = credentials;
        call.negotiation = Negotiation::Local;
        call.add_abilities_to(&mut invite);
        call.ask_for_session(&mut invite);
        invite.set_body(Some(offer.clone()));
        call.described = Some(offer);
        call.timers.arm(Timer::NoAnswer, now + ring_for);
        call.out
            .push_back(Out::Request(Purpose::Invite, invite.clone()));
        call.caller = Some(Caller {
            number: invite.cseq().map_or(1, |cseq| cseq.number),
            invite,
            heard: false,
            progressed: false,
            ring_for,
            rings: false,
            cancel: None,
        });
        call
    }

    /// Whether somebody whom the INVITE reached has said more than that it is on its way.
    pub(crate) fn has_progressed(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.progressed)
    }

    pub(super) fn invite_answered(&mut self, now: Time, request: &Request, response: &Response) {
        match (self.state, response.code) {
            (State::Calling | State::Cancelling, ..200) => self.provisional(now, request, response),
            (State::Calling | State::Cancelling, 200..=299) => {
                self.accepted(now, request, response);
            }
            (State::Calling, 422) if self.ask_for_longer(response) => {}
            (State::Calling, code) => {
                self.tell_redirection(response);
                let by = match super::is_made_up(response) {
                    true => EndedBy::Network,
                    false => EndedBy::Remote,
                };
                self.tell_end(by, Some(code), &response.reason);
                self.finish();
            }
            (State::Cancelling, _) => self.finish(),
            // The 2xx again, or another fork's.
            (State::Up | State::Leaving, 200..=299) => self.accepted_again(request, response),
            _ => {}
        }
    }

    /// Where else the callee is (21.3): the addresses that are preferred come first (20.10).
    fn tell_redirection(&mut self, response: &Response) {
        if !matches!(response.code, 300..=302 | 305) {
            return;
        }
        let elements = response.headers.list(&Name::Contact);
        let mut contacts: Vec<NameAddr> = elements.filter_map(NameAddr::parse).collect();
        contacts.truncate(MOST_ENTRIES);
        contacts.sort_by_key(|contact| std::cmp::Reverse(preference(contact)));
        let to: Vec<Uri> = contacts.into_iter().map(|contact| contact.uri).collect();
        if !to.is_empty() {
            let call = self.id;
            self.event(Event::Redirected { call, to });
        }
    }

    fn provisional(&mut self, now: Time, request: &Request, response: &Response) {
        if let Some(caller) = &mut self.caller {
            caller.heard = true;
            caller.progressed |= response.code > 100;
            if self.state == State::Calling && !caller.rings && is_ringing(response.code) {
                caller.rings = true;
                self.timers.arm(Timer::NoAnswer, now + caller.ring_for);
            }
            if let Some(reason) = caller.cancel.take() {
                self.send_cancel(now, reason);
            }
        }
        let Some(tag) = response.to_tag().filter(|_| response.code > 100) else {
            // Without a tag there is no dialog, but it rings.
            if response.code > 100 {
                self.tell_progress(response);
            }
            return;
        };
        let known = self.forks.iter().position(|fork| fork.dialog.is_with(&tag));
        let at = match known {
            Some(at) => at,
            None if self.forks.len() < MOST_FORKS => {
                let Some(dialog) = Dialog::as_client(request, response) else {
                    return;
                };
                self.forks.push(Fork::new(dialog));
                self.forks.len() - 1
            }
            None => return,
        };
        let reliable = response.headers.lists(&Name::Require, "100rel");
        if reliable && !self.acknowledge_provisional(at, request, response) {
            return;
        }
        if let Some(fork) = self.forks.get_mut(at) {
            fork.hear(response.body(), reliable);
        }
        self.tell_progress(response);
    }

    fn tell_progress(&mut self, response: &Response) {
        let call = self.id;
        self.event(Event::Progress {
            call,
            code: response.code,
            body: response.body(),
        });
    }

    /// PRACK (RFC 3262 4). `false`: it came again or out of order, so it counts not.
    fn acknowledge_provisional(
        &mut self,
        at: usize,
        request: &Request,
        response: &Response,
    ) -> bool {
        let fork = &mut self.forks[at];
        let (Some(rseq), Some(cseq)) = (number(&response.headers, &Name::RSeq), request.cseq())
        else {
            return false;
        };
        if fork.rseq.is_some_and(|last| rseq != last.wrapping_add(1)) {
            return false;
        }
        fork.rseq = Some(rseq);
        let mut prack = fork.dialog.request(Method::Prack);
        prack
            .headers
            .push(Name::RAck, RAck { rseq, cseq }.to_string());
        self.out.push_back(Out::Request(Purpose::Prack, prack));
        true
    }

    /// The first 2xx: this is the call (13.2.2.4).
    fn accepted(&mut self, now: Time, request: &Request, response: &Response) {
        let tag = response.to_tag().unwrap_or_default();
        let known = self.forks.iter().position(|fork| fork.dialog.is_with(&tag));
        let fork = match known {
            Some(at) => {
                let mut fork = self.forks.swap_remove(at);
                fork.dialog.confirm(response);
                Some(fork)
            }
            None => Dialog::as_client(request, response).map(Fork::new),
        };
        let Some(fork) = fork else {
            self.tell_end(EndedBy::Remote, Some(502), "Bad Answer");
            return self.finish();
        };
        self.forks.clear();
        self.refuse_offer_of_others(&tag);
        self.timers.clear_but(Timer::OfferGiveUp);
        self.dialog = Some(fork.dialog.clone());
        self.acknowledge(request);
        if self.state == State::Cancelling || self.told_end {
            // The answer crossed our CANCEL.
            self.state = State::Up;
            if !mutant(Mutant::CrossedCancelForgotten) {
                let reason = self.caller.as_mut().and_then(|caller| caller.cancel.take());
                self.say_goodbye(reason.flatten());
            }
            return;
        }
        self.state = State::Up;
        let body = fork.answer(response.body());
        self.negotiation = Negotiation::Idle;
        self.agree_session(now, response);
        let call = self.id;
        self.event(Event::Answered { call, body });
    }

    fn accepted_again(&mut self, request: &Request, response: &Response) {
        let tag = response.to_tag().unwrap_or_default();
        if self
            .dialog
            .as_ref()
            .is_some_and(|dialog| dialog.is_with(&tag))
        {
            if !mutant(Mutant::AnswerAckedOnce) {
                self.acknowledge(request);
            }
            return;
        }
        for out in farewell(request, response, &mut self.ids) {
            self.out.push_back(out);
        }
    }

    /// ACK of a 2xx to that INVITE of ours: the same again when it comes again.
    pub(super) fn acknowledge(&mut self, invite: &Request) {
        let (Some(dialog), Some(CSeq { number, .. })) = (&self.dialog, invite.cseq()) else {
            return;
        };
        let (ack, branch) = match (&self.acked, dialog.ack(invite)) {
            (Some((acked, ack, branch)), _) if *acked == number => (ack.clone(), branch.clone()),
            (_, Some(ack)) => (ack, self.ids.branch()),
            (_, None) => return,
        };
        self.acked = Some((number, ack.clone(), branch.clone()));
        self.out.push_back(Out::Ack(ack, branch));
    }

    pub(super) fn cancel(&mut self, now: Time, reason: Option<String>) {
        self.state = State::Cancelling;
        self.refuse_what_waits();
        self.timers.clear();
        match &mut self.caller {
            Some(caller) if !caller.heard => caller.cancel = Some(reason),
            _ => self.send_cancel(now, reason),
        }
    }

    fn send_cancel(&mut self, now: Time, reason: Option<String>) {
        self.out.push_back(Out::Cancel(reason));
        // Without a final answer within 64 T1 the INVITE counts as cancelled (9.1).
        self.timers.arm(Timer::CancelGiveUp, now + self.patience());
    }

    /// Another address is tried: that one has all the time that the first had.
    pub(super) fn tries_next(&mut self, now: Time) {
        if self.state == State::Calling
            && let Some(caller) = &mut self.caller
        {
            caller.heard = false;
            self.timers.arm(Timer::NoAnswer, now + caller.ring_for);
        }
    }

    pub(super) fn nobody_answers(&mut self, now: Time) {
        if self.state == State::Calling {
            let heard = self.caller.as_ref().is_some_and(|caller| caller.heard);
            match heard {
                true => self.tell_end(EndedBy::Local, Some(408), "No Answer"),
                // Nobody can have been rung.
                false => self.tell_end(EndedBy::Network, Some(408), "No Response"),
            }
            self.cancel(now, None);
        }
    }

    /// 422: the same INVITE with the interval that is asked for (RFC 4028 7.3).
    fn ask_for_longer(&mut self, response: &Response) -> bool {
        if !self.session.lengthen(response) {
            return false;
        }
        let Some(caller) = &mut self.caller else {
            return false;
        };
        let mut again = caller.invite.clone();
        let number = caller.next_seq();
        let method = Method::Invite;
        again
            .headers
            .set(Name::CSeq, CSeq { number, method }.to_string());
        self.session.write(&mut again.headers, None);
        if let Some(caller) = &mut self.caller {
            caller.sent_again(&again);
        }
        self.out.push_back(Out::Request(Purpose::Invite, again));
        true
    }
}

/// The `q` of a Contact in thousandths (RFC 3261 25.1); all of them where it has none that can be read.
fn preference(contact: &NameAddr) -> u32 {
    let q = contact.params.get("q").unwrap_or_default();
    let (whole, fraction) = q.split_once('.').unwrap_or((&q, ""));
    let thousandths = format!("{fraction:0<3}");
    match (whole, thousandths.get(..3).and_then(scan::number)) {
        ("0", Some(thousandths)) => u32::try_from(thousandths).unwrap_or(0),
        _ => 1_000,
    }
}

/// Somebody is being told of the call, or it is passed on (RFC 3261 21.1).
fn is_ringing(code: u16) -> bool {
    (180..190).contains(&code)
}

/// ACK and BYE for a 2xx that nobody wants: of a late fork, or of a call that is over.
pub(crate) fn farewell(request: &Request, response: &Response, ids: &mut Ids) -> Vec<Out> {
    let Some(mut dialog) = Dialog::as_client(request, response) else {
        return Vec::new();
    };
    let Some(ack) = dialog.ack(request) else {
        return Vec::new();
    };
    let bye = dialog.request(Method::Bye);
    vec![
        Out::Ack(ack, ids.branch()),
        Out::Request(Purpose::StrayBye, bye),
    ]
}

/// ACK for a 2xx to a re-INVITE of a call that is over: the dialog is gone, but the re-INVITE itself
/// says where it went.
pub(crate) fn late_ack(request: &Request, ids: &mut Ids) -> Option<Out> {
    let cseq = CSeq {
        method: Method::Ack,
        ..request.cseq()?
    };
    let mut ack = Request::new(Method::Ack, request.uri.clone());
    ack.strict = request.strict;
    for name in [
        Name::Route,
        Name::MaxForwards,
        Name::From,
        Name::To,
        Name::CallId,
    ] {
        ack.headers.copy(&name, &request.headers);
    }
    for name in CREDENTIALS {
        ack.headers.copy(&name, &request.headers);
    }
    ack.headers.push(Name::CSeq, cseq.to_string());
    Some(Out::Ack(ack, ids.branch()))
}
