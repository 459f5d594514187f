//! Calls that are placed: from an INVITE to a callee who answers, or to the record of one who does not.
//!
//! The ports are bound before they are offered. While it rings nothing is heard: early media (a ring-back
//! tone, an announcement) is thrown away, so that no agent greets a machine of the network; the agent's
//! own rule for outgoing calls begins with the answer. Whoever ends the call first, a final response, the
//! ring timer, an API client or the end of this process, its end is written once.

use std::sync::Arc;
use std::time::Duration;

use media::rtp::sdp::{self, Agreed, Flow, Offered};
use media::shell::PortPair;
use sip::event::{CallId as SipLegId, Command, EndedBy, Event, Forwarded, Place};
use sip::message::{Body, Uri};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::session::{LocalSession, Unusable};
use super::talking::{How, Settled, Talking};
use super::{Exchange, SipLeg, caller, trunks};
use crate::admission::Lease;
use crate::calls::bridge;
use crate::calls::dial::number::{canonical, written};
use crate::calls::dial::rules::{CallerId, Unanswered, outcome};
use crate::calls::dial::store;
use crate::calls::journal::Owner;
use crate::calls::lifecycle;
use crate::calls::live::{Canceled, Dialling};
use crate::calls::rules::Ending;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::numbers::is_e164;
use crate::sip_trunks::{self, AuthMode, Trunk};
use crate::{supervisor, suppressions};

/// A call to be placed; its record stands, and this process hosts it.
pub struct Dial {
    pub account: AccountId,
    pub id: CallId,
    pub trunk: Trunk,
    /// As the carrier wants it.
    pub to: String,
    pub from: CallerId,
    pub ring_for: Duration,
    /// `Some` until the engine has it.
    pub lease: Option<Lease>,
    pub dialling: Arc<Dialling>,
    /// What it carries on of the call because of which it is placed.
    pub onward: Option<Onward>,
}

/// What a forwarded call tells of its way.
pub struct Onward {
    pub forwarded: Forwarded,
    pub headers: Vec<(String, String)>,
}

/// How long the stack may take to say how a call ended beyond twice the ring time, once for the address that
/// it tries to ring at and once for ringing: seven silent addresses before that one have four seconds each.
pub(super) const STACK_PATIENCE: Duration = Duration::from_secs(40);

/// Why a call did not come to be.
pub(super) enum Over {
    /// Nobody answered, or the answer was none; with what is worth showing in diagnostics.
    Unanswered(Unanswered, Option<String>),
    /// It was answered and could not begin; its end is written.
    Written,
    /// The carrier sends it elsewhere. The end that it has unless it goes there.
    Redirected(Vec<Uri>, Unanswered, Option<String>),
}

/// How often one call follows the carrier elsewhere.
const MOST_REDIRECTS: u32 = 2;

/// Places the call and follows it to its end, in a task of its own.
pub fn dial(app: &Node, exchange: &Arc<Exchange>, call: Dial) {
    let span = crate::calls::span(call.account, call.id);
    if app.is_leaving() {
        // It was let in while those that rang were let go of.
        call.dialling.cancel(Canceled::Drain);
    }
    let (app, exchange) = (app.clone(), Arc::clone(exchange));
    let SipLeg { id: line, events } = exchange.line();
    let now = app.clock.moment();
    exchange.traces.begins(now, line, call.account, call.id);
    let placing = Placing {
        app,
        exchange,
        account: call.account,
        call: call.id,
        line,
    };
    let (account, id) = (call.account, call.id);
    let mend = (placing.app.clone(), Arc::clone(&placing.exchange));
    let task = async move { placing.run(call, events).await };
    span.in_scope(|| {
        supervisor::carry("a call that is placed", task, async move |why| {
            let (app, exchange) = mend;
            exchange.abandon(line);
            bridge::broke(&app, account, id, &why, false).await;
        });
    });
}

/// One call on its way.
pub(super) struct Placing {
    pub(super) app: Node,
    pub(super) exchange: Arc<Exchange>,
    pub(super) account: AccountId,
    pub(super) call: CallId,
    pub(super) line: SipLegId,
}

impl Placing {
    async fn run(self, mut call: Dial, mut events: mpsc::Receiver<Event>) {
        match self.reach(&mut call, &mut events).await {
            Ok(talking) => {
                self.app.live.dialled(self.call);
                return talking.follow(&self.exchange, self.line, events).await;
            }
            Err(over) => {
                self.exchange.give_up(self.line);
                if let Over::Unanswered(end, error) | Over::Redirected(_, end, error) = over {
                    self.write(&end, error).await;
                }
            }
        }
        // Its slot is free once its end is written, and not before.
        drop(call);
        self.app.live.dialled(self.call);
    }

    /// Calls, and waits until somebody is on the line.
    async fn reach(
        &self,
        call: &mut Dial,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Talking, Over> {
        let until = Instant::now() + call.ring_for * 2 + STACK_PATIENCE;
        let (ports, ours, agreed) = self.answer_of(call, events, until).await?;
        self.begin(ports, ours, agreed, call.lease.take()).await
    }

    /// Sends the INVITE and waits for the answer: our ports, our side of the description, and what both
    /// have agreed on. Where the trunk allows it, the call follows the carrier to another number.
    pub(super) async fn answer_of(
        &self,
        call: &Dial,
        events: &mut mpsc::Receiver<Event>,
        until: Instant,
    ) -> Result<(PortPair, LocalSession, Agreed), Over> {
        self.wait_for_registrar(call).await?;
        let (mut to, mut left) = (call.to.clone(), MOST_REDIRECTS);
        let began = Instant::now();
        loop {
            let ring_for = left_to_ring(call.ring_for, began.elapsed());
            let (ports, mut ours, offered) = self.ask(call, &to, ring_for).map_err(failed)?;
            let ring = self.ring(events, &call.dialling, &mut ours, &offered, until);
            // On the heap, as below: this stands deep in the task of a call.
            let over = Box::pin(ring).await;
            let (elsewhere, end, told) = match over {
                Ok(agreed) => return Ok((ports, ours, agreed)),
                Err(Over::Redirected(elsewhere, end, told)) => (elsewhere, end, told),
                Err(over) => return Err(over),
            };
            let next = match (call.trunk.follow_redirects, left) {
                (false, _) => Err(None),
                (true, 0) => Err(Some("the carrier redirects the call too often".to_owned())),
                (true, _) => Box::pin(self.redirected(call, &elsewhere))
                    .await
                    .map_err(Some),
            };
            match next {
                Ok(next) => {
                    tracing::info!("a call follows the carrier to another number");
                    (to, left) = (next, left - 1);
                    *events = self.exchange.line_again(self.line).events;
                }
                Err(why) => return Err(Over::Unanswered(end, why.or(told))),
            }
        }
    }

    /// The number of the first address that may be called, as the carrier wants it. It is judged as the number that the
    /// call was placed to: by the trunk's destinations and the do-not-call list.
    async fn redirected(&self, call: &Dial, elsewhere: &[Uri]) -> Result<String, String> {
        let mut why = "the carrier redirects the call to no number".to_owned();
        for uri in elsewhere {
            let Some(number) = redirected_to(uri, &call.from) else {
                continue;
            };
            let number = canonical(&number);
            if !call.trunk.may_call(&number) {
                why = "the carrier redirects the call to where the trunk may not call".to_owned();
                continue;
            }
            if let Err(error) = suppressions::check(&self.app, self.account, &number).await {
                why = format!("the carrier redirects the call: {}", error.message());
                continue;
            }
            if let Some(written) = written(&number, call.trunk.outbound_dial_format) {
                return Ok(written);
            }
        }
        Err(why)
    }

    /// Waits for the first word of the trunk's registrar, unless the call is canceled before.
    async fn wait_for_registrar(&self, call: &Dial) -> Result<(), Over> {
        let number = sip_trunks::sip_id(call.trunk.id);
        tokio::select! {
            biased;
            () = self.exchange.trunks.settled(number) => Ok(()),
            by = call.dialling.canceled() => Err(canceled(by)),
        }
    }

    /// Sends the INVITE with our offer.
    fn ask(
        &self,
        call: &Dial,
        to: &str,
        ring_for: Duration,
    ) -> Result<(PortPair, LocalSession, Offered), String> {
        let trunk = &call.trunk;
        let encryption = trunks::encryption(trunk.media_encryption);
        let at = self.exchange.of_carrier(trunk);
        let place = self.exchange.place(&at);
        let mut ports = place
            .take_ports()
            .map_err(|error| format!("no ports for the audio: {error}"))?;
        let mut local = place
            .local(encryption)
            .map_err(|error| format!("no random bytes: {error}"))?;
        local.port = ports.port();
        let offered = sdp::offer(&local, Flow::SendRecv);
        let number = sip_trunks::sip_id(trunk.id);
        // A trunk that was made a moment ago: this node's look at the database is still to come. One
        // that registers is left to it, for its registration is one node's alone.
        if !self.exchange.trunks.is_told(number) && trunk.auth_mode != AuthMode::Register {
            let told = trunks::told(&self.app, trunk, false)
                .ok_or("the trunk's password or address cannot be read")?;
            self.exchange.tell(Command::SetTrunk(Box::new(told)));
        }
        let onward = call.onward.as_ref();
        let place = Place {
            trunk: number,
            to: to.to_owned(),
            from: call.from.user.clone(),
            display: None,
            headers: preferred(trunk, &call.from)
                .into_iter()
                .chain(onward.into_iter().flat_map(|onward| onward.headers.clone()))
                .collect(),
            offer: Body::sdp(offered.text.clone()),
            ring_for,
            forwarded: onward.map(|onward| onward.forwarded.clone()),
        };
        ports.told();
        self.exchange
            .lead(self.line, Command::Place(self.line, Box::new(place)));
        let ours = LocalSession {
            local,
            described: offered.text.clone(),
            at,
        };
        Ok((ports, ours, offered))
    }

    /// Waits for the answer; what is agreed on of the audio.
    async fn ring(
        &self,
        events: &mut mpsc::Receiver<Event>,
        dialling: &Dialling,
        ours: &mut LocalSession,
        offered: &Offered,
        until: Instant,
    ) -> Result<Agreed, Over> {
        // By an UPDATE (RFC 3311), when a reliable provisional response had an answer.
        let mut renewed = None;
        let mut rang = false;
        let mut elsewhere = Vec::new();
        loop {
            #[cfg(test)]
            supervisor::faults::reach("a call that is placed", self.account);
            let event = tokio::select! {
                biased;
                by = dialling.canceled() => return Err(canceled(by)),
                event = events.recv() => event,
                () = tokio::time::sleep_until(until) => {
                    return Err(failed("the SIP stack does not say what became of the call".to_owned()));
                }
            };
            match event {
                Some(Event::Progress { .. }) => {
                    if !rang {
                        rang = true;
                        self.rings().await;
                    }
                }
                Some(Event::Offer {
                    body: Some(body), ..
                }) => {
                    let tell = &mut |command| self.exchange.lead(self.line, command);
                    renewed = ours.renew(self.line, &body, tell).or(renewed);
                }
                Some(Event::Answered { body, .. }) => {
                    return answered(ours, offered, body, renewed);
                }
                Some(Event::Redirected { to, .. }) => elsewhere = to,
                Some(Event::Ended {
                    by, code, reason, ..
                }) => {
                    let end = outcome(by, code, rang);
                    let told = end.reason == "carrier_error";
                    let who = match by {
                        EndedBy::Remote => "the carrier",
                        EndedBy::Local | EndedBy::Network => "no word of the carrier's",
                    };
                    let why = told.then(|| match code {
                        Some(code) => format!("{who}: {code} {reason}"),
                        None => format!("{who}: {reason}"),
                    });
                    return Err(match elsewhere.is_empty() {
                        true => Over::Unanswered(end, why),
                        false => Over::Redirected(elsewhere, end, why),
                    });
                }
                Some(_) => {}
                None => {
                    let why = "the SIP stack is gone, or takes no more commands";
                    let end = Unanswered::engine_error();
                    return Err(Over::Unanswered(end, Some(why.to_owned())));
                }
            }
        }
    }

    /// It was answered: puts it on the engine.
    async fn begin(
        &self,
        mut ports: PortPair,
        ours: LocalSession,
        agreed: Agreed,
        lease: Option<Lease>,
    ) -> Result<Talking, Over> {
        ports.discard();
        let (app, number) = (&self.app, self.app.incarnation.number);
        let now = app.clock.now();
        match store::answered(&app.db, self.account, self.call, number, now).await {
            Ok(true) => {}
            // Another node took this one for dead and ended the call.
            Ok(false) => return Err(Over::Written),
            Err(error) => {
                let why = format!("the answer could not be written down: {error}");
                bridge::could_not_start(app, self.account, self.call, &why, true).await;
                return Err(Over::Written);
            }
        }
        let settled = Settled {
            ports,
            ours,
            agreed,
        };
        let how = How {
            prepared: None,
            lease,
            answered: true,
        };
        Talking::begin(app, self.account, self.call, settled, how)
            .await
            .map_err(|_| Over::Written)
    }

    /// Writes down that it rings. A database that is away misses it, and the call goes on.
    async fn rings(&self) {
        let (app, number) = (&self.app, self.app.incarnation.number);
        let now = app.clock.now();
        let written = store::rings(&app.db, self.account, self.call, number, now).await;
        if let Err(error) = written {
            tracing::warn!(%error, "that a call rings could not be written down");
        }
    }

    async fn write(&self, end: &Unanswered, error: Option<String>) {
        tracing::info!(
            reason = end.reason,
            code = end.sip_code,
            "a call that was placed is not answered"
        );
        let owner = Owner {
            account: self.account,
            call: self.call,
            incarnation: self.app.incarnation.number,
        };
        let mut ending = Ending::unanswered(end);
        ending.errors.extend(error);
        lifecycle::write_end(&self.app, owner, ending).await;
    }
}

/// Somebody of this side gave the call up.
fn canceled(by: Canceled) -> Over {
    let ended_by = match by {
        Canceled::Api => "api",
        Canceled::Drain | Canceled::Blocked => "system",
    };
    Over::Unanswered(Unanswered::canceled(ended_by), None)
}

/// What is agreed on when somebody answers: the answer that holds, else what an UPDATE `renewed`.
fn answered(
    ours: &mut LocalSession,
    offered: &Offered,
    answer: Option<Body>,
    renewed: Option<Agreed>,
) -> Result<Agreed, Over> {
    match (answer, renewed) {
        (Some(answer), _) => ours.accept(offered, &answer).map_err(|why| unusable(&why)),
        (None, Some(agreed)) => Ok(agreed),
        (None, None) => Err(failed("the answer says nothing of the audio".to_owned())),
    }
}

fn unusable(why: &Unusable) -> Over {
    failed(format!("the answer cannot be used: {why}"))
}

fn failed(why: String) -> Over {
    Over::Unanswered(Unanswered::carrier_error(), Some(why))
}

/// The carrier's domain, which stands in From.
pub(super) fn domain(trunk: &Trunk) -> Option<&str> {
    let address = trunk.outbound_address.as_deref();
    trunk.realm.as_deref().or(address)
}

/// How long the next INVITE of a call may ring that has rung elsewhere: all of them have its time together. A callee who
/// is reached at its end rings for a moment.
fn left_to_ring(ring_for: Duration, rung: Duration) -> Duration {
    ring_for.saturating_sub(rung).max(Duration::from_secs(1))
}

/// The number that a carrier redirects a call to. It may be written as the country of the caller's number writes it.
fn redirected_to(uri: &Uri, from: &CallerId) -> Option<String> {
    let own = from.preferred.as_deref().unwrap_or(&from.user);
    let number = caller::calling(&uri.user()?, own)?;
    is_e164(&number).then_some(number)
}

/// The number that calls, where From has a user name (RFC 3325 section 9.2).
fn preferred(trunk: &Trunk, from: &CallerId) -> Option<(String, String)> {
    let number = from.preferred.as_ref()?;
    let host = domain(trunk)?;
    let value = format!("<sip:{number}@{host}>");
    Some(("P-Preferred-Identity".to_owned(), value))
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
mod tests {
    use super::super::session::fixtures::ours;
    use super::*;
    use crate::calls::dial::rules::tests::trunk;

    fn theirs(port: u16) -> Body {
        Body::sdp(format!(
            "v=0\r\no=- 1 1 IN IP4 8.8.8.8\r\ns=-\r\nc=IN IP4 8.8.8.8\r\nt=0 0\r\n\
             m=audio {port} RTP/AVP 0\r\n"
        ))
    }

    #[test]
    fn what_an_update_agreed_on_while_it_rang_holds_when_it_is_answered() {
        let line = SipLegId(3);
        for (update, answer, port) in [
            (None, Some(4000), Some(4000)),
            (Some(4200), None, Some(4200)),
            // Another telephone answered.
            (Some(4200), Some(4400), Some(4400)),
            (None, None, None),
        ] {
            let mut ours = ours();
            let offered = sdp::offer(&ours.local, Flow::SendRecv);
            let mut told = Vec::new();
            let renewed = update.and_then(|port| {
                ours.renew(line, &theirs(port), &mut |command| told.push(command))
            });
            assert_eq!(renewed.is_some(), update.is_some());
            assert!(
                told.iter()
                    .all(|told| matches!(told, Command::AcceptOffer(..)))
            );
            let agreed = answered(&mut ours, &offered, answer.map(theirs), renewed).ok();
            assert_eq!(agreed.map(|agreed| agreed.remote.port()), port);
        }
    }

    #[test]
    fn all_that_a_call_is_redirected_to_ring_as_long_as_it_may_together() {
        for (rung, expected) in [(0, 30), (12, 18), (29, 1), (30, 1), (90, 1)] {
            let left = left_to_ring(Duration::from_secs(30), Duration::from_secs(rung));
            assert_eq!(left, Duration::from_secs(expected), "{rung}");
        }
    }

    /// Whether From has the number or a user name.
    #[test]
    fn a_redirection_may_name_a_number_as_the_callers_country_writes_it() {
        let number = || "+4930123456".to_owned();
        for from in [
            CallerId {
                user: number(),
                preferred: None,
            },
            CallerId {
                user: "acme".to_owned(),
                preferred: Some(number()),
            },
        ] {
            for (uri, expected) in [
                ("sip:089654322@192.0.2.7", Some("+4989654322")),
                ("sip:+49-89-654322@192.0.2.7", Some("+4989654322")),
                ("tel:0033123456789", Some("+33123456789")),
                ("sip:200@192.0.2.7", None),
                ("sip:alice@192.0.2.7", None),
            ] {
                let to = redirected_to(&Uri::parse(uri).unwrap(), &from);
                assert_eq!(to.as_deref(), expected, "{uri}");
            }
        }
    }

    #[test]
    fn a_number_beside_a_user_name_is_of_the_carriers_domain() {
        let caller = |number: Option<&str>| CallerId {
            user: "acme".to_owned(),
            preferred: number.map(str::to_owned),
        };
        let number = Some("+4930123456");
        for (realm, address, expected) in [
            (
                None,
                Some("192.0.2.1:5070"),
                Some("<sip:+4930123456@192.0.2.1:5070>"),
            ),
            (
                Some("acme.example"),
                Some("192.0.2.1"),
                Some("<sip:+4930123456@acme.example>"),
            ),
            (None, None, None),
        ] {
            let trunk = Trunk {
                realm: realm.map(str::to_owned),
                outbound_address: address.map(str::to_owned),
                ..trunk(&[])
            };
            let header = preferred(&trunk, &caller(number));
            let expected =
                expected.map(|value| ("P-Preferred-Identity".to_owned(), value.to_owned()));
            assert_eq!(header, expected);
            assert_eq!(preferred(&trunk, &caller(None)), None);
        }
    }

    #[test]
    fn an_answer_of_the_other_family_is_none() {
        let mut ours = ours();
        let offered = sdp::offer(&ours.local, Flow::SendRecv);
        let text = String::from_utf8(theirs(4000).bytes).unwrap();
        let six = Body::sdp(text.replace("c=IN IP4 8.8.8.8", "c=IN IP6 2001:4860::8"));
        let Err(Over::Unanswered(end, Some(why))) = answered(&mut ours, &offered, Some(six), None)
        else {
            panic!("it is refused");
        };
        assert_eq!(end.reason, "carrier_error");
        assert!(why.contains("IPv6"), "{why}");
    }

    #[test]
    fn an_answer_with_an_address_inside_is_none_where_the_carrier_is_unknown() {
        let mut ours = ours();
        ours.at.hosts.clear();
        let offered = sdp::offer(&ours.local, Flow::SendRecv);
        let text = String::from_utf8(theirs(4000).bytes).unwrap();
        let inside = Body::sdp(text.replace("8.8.8.8", "127.0.0.1"));
        let Err(Over::Unanswered(end, Some(why))) =
            answered(&mut ours, &offered, Some(inside), None)
        else {
            panic!("it is refused");
        };
        assert_eq!(end.reason, "carrier_error");
        assert!(why.contains("nothing may be sent to"), "{why}");
    }
}
