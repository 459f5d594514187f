//! Messages that are not used: what their senders hear, and what is told of them.
//!
//! A carrier whose messages are dropped loses calls, and its own side shows nothing but timeouts. So each is told, with
//! its method, source, Call-ID and what is wrong, for the log and the record of the trunk that it may belong to.

use std::time::Duration;

use super::{Endpoint, Peer};
use crate::event::{Event, MessageRefused};
use crate::gate::Admission;
use crate::message::{About, Malformed, Message, Name, Request, Response};
use crate::time::Time;

/// What is told of refused messages within [`EACH`]: a carrier that went mad must not fill a log. Its calls repeat a
/// message seven times, so that a few faulty calls at a time are told whole.
const MOST_TOLD: u32 = 64;
const EACH: Duration = Duration::from_secs(10);

/// The longest text of a stranger's that is told, characters: Call-IDs are shorter, and methods, too.
const LONGEST: usize = 200;

/// How many were told of late.
#[derive(Debug, Default)]
pub(super) struct Told {
    since: Time,
    count: u32,
}

impl Told {
    fn may_tell(&mut self, now: Time) -> bool {
        if now >= self.since + EACH {
            *self = Self {
                since: now,
                count: 0,
            };
        }
        self.count = self.count.saturating_add(1);
        self.count <= MOST_TOLD
    }
}

impl Endpoint {
    /// Who is known hears what was wrong; a stranger does not.
    pub(super) fn malformed(
        &mut self,
        now: Time,
        peer: &Peer,
        malformed: &Malformed,
        admission: Admission,
    ) {
        self.refusals.malformed += 1;
        if admission != Admission::Known {
            return;
        }
        let mut code = None;
        if let (Some((own, reason)), Some(answerable)) =
            (malformed.fault.answer(), &malformed.answerable)
        {
            code = Some(own);
            self.answer_statelessly(peer, &answerable.1, own, reason);
        }
        // What is no SIP at all is noise: a keep-alive, a probe.
        if let Some(about) = &malformed.about {
            let fault = malformed.fault;
            self.tell(now, peer, about, fault.header(), code, fault.why());
        }
    }

    /// A well-formed request is refused because of something that it says.
    pub(super) fn tell_refusal(
        &mut self,
        now: Time,
        peer: &Peer,
        request: &Request,
        refusal: &Response,
    ) {
        let header = match refusal.code {
            400 => "Contact",
            406 => "Accept",
            415 if refusal.headers.has(&Name::AcceptEncoding) => "Content-Encoding",
            415 => "Content-Type",
            416 => "Request-URI",
            420 => "Require",
            // A method that is not served here, a request that came twice: nothing is wrong with it.
            _ => return,
        };
        let said = match refusal.code {
            416 => Some(request.uri.scheme()),
            _ => request.headers.get(&header.into()).map(str::to_owned),
        };
        let why = match said {
            Some(said) => format!("{}: {said}", refusal.reason),
            None => refusal.reason.clone(),
        };
        let about = About::of_message(&Message::Request(request.clone()));
        self.tell(now, peer, &about, Some(header), Some(refusal.code), &why);
    }

    fn tell(
        &mut self,
        now: Time,
        peer: &Peer,
        about: &About,
        header: Option<&'static str>,
        code: Option<u16>,
        why: &str,
    ) {
        if !self.told_refusals.may_tell(now) {
            return;
        }
        let mut trunks: Vec<_> = self.gate.trunks(peer.addr.ip()).collect();
        trunks.sort_unstable();
        trunks.dedup();
        let short = |text: &str| text.chars().take(LONGEST).collect();
        self.event(Event::MessageRefused(Box::new(MessageRefused {
            trunks,
            source: peer.addr,
            method: short(&about.what),
            call_id: short(&about.call_id),
            header,
            code,
            why: short(why),
        })));
    }
}
