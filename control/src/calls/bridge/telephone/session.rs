//! What a telephone and we have agreed on, and how it is agreed anew within a call (RFC 3264 section 8).

use media::leg::rtp::RtpPlan;
use media::rtp::sdp::{self, Agreed, Encryption, Flow, Local, Offered, Refusal};
use sip::event::{CallId as SipLegId, Command, Event};
use sip::message::Body;

use super::whereabouts::Whereabouts;

/// Our side of a session before anything is agreed on.
pub(super) struct LocalSession {
    pub(super) local: Local,
    /// Our latest description.
    pub(super) described: String,
    /// Where the other side is.
    pub(super) at: Whereabouts,
}

/// Why a description is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Refused(Refusal),
    /// Nothing may be sent to the address that it names.
    OutOfReach,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::OutOfReach => f.write_str("the SDP names an address that nothing may be sent to"),
        }
    }
}

impl From<Refusal> for Unusable {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl LocalSession {
    /// Answers an offer: our description, and what is agreed by it.
    pub(super) fn answer(&mut self, offer: &Body) -> Result<(String, Agreed), Unusable> {
        let (text, agreed) = sdp::answer(&offer.bytes, &self.local, Flow::SendRecv)?;
        let agreed = self.settle(agreed)?;
        self.stay_encrypted(&agreed);
        self.described.clone_from(&text);
        Ok((text, agreed))
    }

    /// What the answer to an offer of ours agrees to.
    pub(super) fn accept(&mut self, offered: &Offered, answer: &Body) -> Result<Agreed, Unusable> {
        let agreed = offered.accept(&answer.bytes)?;
        let agreed = self.settle(agreed)?;
        self.stay_encrypted(&agreed);
        self.described.clone_from(&offered.text);
        Ok(agreed)
    }

    fn settle(&self, agreed: Agreed) -> Result<Agreed, Unusable> {
        let settled = self.at.settle(agreed, self.local.address);
        settled.ok_or(Unusable::OutOfReach)
    }

    /// What was encrypted once is never plain again, though the trunk would allow it: whoever comes between the
    /// two sides of a call could else ask for that. An offer without keys is refused, and the call goes on as it was.
    fn stay_encrypted(&mut self, agreed: &Agreed) {
        if agreed.keys.is_some() {
            self.local.encryption = Encryption::Require;
        }
    }

    /// What the answer to our description agrees to that was offered again, to refresh the session. `None`:
    /// what was agreed on before, which also stays when the answer cannot be used.
    fn accept_again(&self, agreed: &Agreed, answer: &Body) -> Option<Agreed> {
        let again = sdp::accept_again(&self.local, &self.described, agreed, &answer.bytes);
        let settled = again.map_err(Unusable::from).and_then(|again| {
            let named = again.remote.ip();
            let mut settled = self.settle(again)?;
            if settled.remote.ip() != named {
                // Behind a NAT it is where it was found before, whatever else its name leads to by now.
                settled.remote.set_ip(agreed.remote.ip());
                settled.remote_reports.set_ip(agreed.remote_reports.ip());
            }
            Ok(settled)
        });
        match settled {
            Ok(settled) => (settled != *agreed).then_some(settled),
            Err(why) => {
                tracing::info!(%why, "the answer to a session refresh is passed over");
                None
            }
        }
    }

    /// Answers an offer in a call that rings or is up. `Some`: both agreed anew.
    pub(super) fn renew(
        &mut self,
        line: SipLegId,
        offer: &Body,
        tell: &mut dyn FnMut(Command),
    ) -> Option<Agreed> {
        self.local.version += 1;
        match self.answer(offer) {
            Ok((text, agreed)) => {
                tell(Command::AcceptOffer(line, Body::sdp(text)));
                Some(agreed)
            }
            Err(why) => {
                tracing::info!(%why, "an offer within a call is refused");
                tell(Command::RefuseOffer(line, 488));
                None
            }
        }
    }
}

/// One side's session.
pub(super) struct Session {
    pub(super) plan: RtpPlan,
    pub(super) agreed: Agreed,
    ours: LocalSession,
    /// Our offer, until it is answered.
    offered: Option<Offered>,
}

impl Session {
    /// `seed`: as [`RtpPlan::new`] has it.
    pub(super) fn new(ours: LocalSession, agreed: Agreed, seed: [u8; 10]) -> Self {
        Self {
            plan: RtpPlan::new(&agreed, seed),
            agreed,
            ours,
            offered: None,
        }
    }

    /// Answers what the other side wants of the session. `Some`: both agreed anew.
    pub(super) fn handle(
        &mut self,
        line: SipLegId,
        event: &Event,
        tell: &mut dyn FnMut(Command),
    ) -> Option<(Agreed, RtpPlan)> {
        match event {
            Event::Offer {
                body: Some(body), ..
            } => {
                self.offered = None;
                let agreed = self.ours.renew(line, body, tell)?;
                Some(self.agree(agreed))
            }
            Event::Offer { body: None, .. } => {
                self.offer(line, tell);
                None
            }
            Event::Established {
                body: Some(body), ..
            }
            | Event::OfferAccepted {
                body: Some(body), ..
            } => {
                let offered = self.offered.take()?;
                self.accept(line, &offered, body, tell)
            }
            Event::OfferAccepted { body: None, .. } => {
                // An ACK that says nothing: what was agreed on before holds.
                self.offered = None;
                None
            }
            Event::Refreshed { body, .. } => {
                let agreed = self.ours.accept_again(&self.agreed, body)?;
                Some(self.agree(agreed))
            }
            Event::Referred { .. } => {
                tell(Command::AnswerRefer(line, 603));
                None
            }
            _ => None,
        }
    }

    /// The other side asks for our offer: it is kept, to be held against the answer.
    fn offer(&mut self, line: SipLegId, tell: &mut dyn FnMut(Command)) {
        self.ours.local.version += 1;
        let LocalSession {
            local, described, ..
        } = &self.ours;
        match sdp::offer_again(local, described, &self.agreed, Flow::SendRecv) {
            Ok(offered) => {
                tell(Command::AcceptOffer(line, Body::sdp(offered.text.clone())));
                self.offered = Some(offered);
            }
            Err(refusal) => {
                tracing::error!(%refusal, "our own description cannot be read");
                tell(Command::RefuseOffer(line, 488));
            }
        }
    }

    fn accept(
        &mut self,
        line: SipLegId,
        offered: &Offered,
        body: &Body,
        tell: &mut dyn FnMut(Command),
    ) -> Option<(Agreed, RtpPlan)> {
        match self.ours.accept(offered, body) {
            Ok(agreed) => Some(self.agree(agreed)),
            Err(why) => {
                // What was agreed before holds no more, and nothing else was agreed (RFC 3261 13.2.2.4).
                tracing::warn!(%why, "a call is ended: its answer cannot be used");
                tell(Command::HangUp(line, Some("SIP;cause=488".to_owned())));
                None
            }
        }
    }

    fn agree(&mut self, agreed: Agreed) -> (Agreed, RtpPlan) {
        self.plan = self.plan.renewed(&agreed);
        self.agreed = agreed.clone();
        (agreed, self.plan)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
pub(super) mod fixtures {
    use media::rtp::sdp::Codec;
    use sip::message::Host;

    use super::super::whereabouts::Rules;
    use super::*;
    use crate::egress::Allow;

    /// Our side of a call with a carrier at 8.8.8.8, before anything was said.
    pub(in super::super) fn ours() -> LocalSession {
        LocalSession {
            local: Local {
                address: "192.0.2.9".parse().unwrap(),
                port: 20_000,
                session: 7,
                version: 1,
                codecs: Codec::ALL.to_vec(),
                encryption: Encryption::Allow,
                random: [0x42; 46],
            },
            described: String::new(),
            at: Whereabouts {
                rules: Rules::new(Allow::default()),
                hosts: vec![Host::parse("8.8.8.8").unwrap()],
                blocks: Vec::new(),
            },
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
mod tests {
    use media::rtp::sdp::Codec;

    use super::super::declined::Declined;
    use super::fixtures::ours;
    use super::*;

    const LINE: SipLegId = SipLegId(7);

    fn theirs(media: &str) -> Body {
        Body::sdp(format!(
            "v=0\r\no=- 1 1 IN IP4 8.8.8.8\r\ns=-\r\nc=IN IP4 8.8.8.8\r\nt=0 0\r\n{}\r\n",
            media.replace('\n', "\r\n")
        ))
    }

    /// A caller's session in G.722, who offered a picture, too.
    fn session() -> Session {
        let mut ours = ours();
        let offer = theirs("m=audio 4000 RTP/AVP 9 0\nm=video 4002 RTP/AVP 96");
        let (_, agreed) = ours.answer(&offer).unwrap();
        assert_eq!(agreed.codec, Codec::G722);
        Session::new(ours, agreed, [1; 10])
    }

    fn told(session: &mut Session, event: &Event) -> (Vec<Command>, Option<Agreed>) {
        let mut commands = Vec::new();
        let anew = session.handle(LINE, event, &mut |command| commands.push(command));
        (commands, anew.map(|(agreed, _)| agreed))
    }

    fn offer(body: Option<Body>) -> Event {
        Event::Offer { call: LINE, body }
    }

    fn accepted(body: Option<Body>) -> Event {
        Event::OfferAccepted { call: LINE, body }
    }

    #[test]
    fn the_answer_to_an_offer_that_was_asked_for_moves_the_audio() {
        let mut session = session();
        let (commands, anew) = told(&mut session, &offer(None));
        assert_eq!(anew, None);
        let [Command::AcceptOffer(LINE, body)] = &commands[..] else {
            panic!("{commands:?}");
        };
        let text = String::from_utf8(body.bytes.clone()).unwrap();
        assert!(text.contains("o=- 7 2 IN IP4 192.0.2.9"), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("m=")).collect();
        let all = "m=audio 20000 RTP/AVP 9 111 0 8 101 102 13";
        assert_eq!(lines, [all, "m=video 0 RTP/AVP 96"]);
        let answer = theirs("m=audio 4444 RTP/AVP 9\na=sendonly\nm=video 0 RTP/AVP 96");
        let (commands, anew) = told(&mut session, &accepted(Some(answer.clone())));
        assert!(commands.is_empty(), "{commands:?}");
        let anew = anew.unwrap();
        assert_eq!(anew.remote.to_string(), "8.8.8.8:4444");
        assert_eq!(anew.flow, Flow::RecvOnly);
        assert_eq!(session.agreed, anew);
        // It is answered once.
        assert_eq!(told(&mut session, &accepted(Some(answer))).1, None);
    }

    /// Whoever asks for our offer within a call may go over to another codec.
    #[test]
    fn the_answer_to_an_offer_that_was_asked_for_may_change_the_codec() {
        for (number, codec) in [(0, Codec::Pcmu), (8, Codec::Pcma), (9, Codec::G722)] {
            let mut session = session();
            told(&mut session, &offer(None));
            let answer = format!("m=audio 4444 RTP/AVP {number}\nm=video 0 RTP/AVP 96");
            let (commands, anew) = told(&mut session, &accepted(Some(theirs(&answer))));
            assert!(commands.is_empty(), "{commands:?}");
            assert_eq!(anew.unwrap().codec, codec);
        }
    }

    #[test]
    fn an_answer_to_a_refresh_moves_the_audio_and_the_same_one_changes_nothing() {
        let mut session = session();
        let refreshed = |port: u16| Event::Refreshed {
            call: LINE,
            body: theirs(&format!("m=audio {port} RTP/AVP 9\nm=video 0 RTP/AVP 96")),
        };
        let before = session.agreed.clone();
        let (commands, anew) = told(&mut session, &refreshed(4000));
        assert!(commands.is_empty() && anew.is_none(), "{commands:?}");
        let (commands, anew) = told(&mut session, &refreshed(4444));
        assert!(commands.is_empty(), "{commands:?}");
        let moved = anew.unwrap();
        assert_eq!(moved.remote.to_string(), "8.8.8.8:4444");
        assert_eq!((moved.codec, moved.heard), (before.codec, before.heard));
        assert_eq!(session.agreed, moved);
        // What cannot be used ends no call.
        let (commands, anew) = told(&mut session, &refreshed(0));
        assert!(commands.is_empty() && anew.is_none(), "{commands:?}");
        assert_eq!(session.agreed, moved);
    }

    #[test]
    fn an_answer_that_agrees_to_nothing_ends_the_call_and_none_leaves_it_as_it_was() {
        let mut session = session();
        told(&mut session, &offer(None));
        let (commands, anew) = told(&mut session, &accepted(None));
        assert!(commands.is_empty() && anew.is_none(), "{commands:?}");
        told(&mut session, &offer(None));
        let answer = theirs("m=audio 0 RTP/AVP 9\nm=video 0 RTP/AVP 96");
        let (commands, anew) = told(&mut session, &accepted(Some(answer)));
        assert!(
            matches!(&commands[..], [Command::HangUp(LINE, Some(_))]),
            "{commands:?}"
        );
        assert_eq!(anew, None);
    }

    #[test]
    fn a_call_that_was_encrypted_is_never_plain_again() {
        const KEY: &str = "inline:WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz";
        let plain = || theirs("m=audio 4000 RTP/AVP 0");
        let encrypted = |port: u16| {
            let media =
                format!("m=audio {port} RTP/SAVP 0\na=crypto:1 AES_CM_128_HMAC_SHA1_80 {KEY}");
            theirs(&media)
        };
        // Who began in plain may go over to keys, and both ways lead to a call that stays encrypted.
        for first in [plain(), encrypted(4000)] {
            let mut ours = ours();
            let (_, agreed) = ours.answer(&first).unwrap();
            let mut session = Session::new(ours, agreed, [1; 10]);
            let (_, anew) = told(&mut session, &offer(Some(encrypted(4444))));
            assert!(anew.unwrap().keys.is_some());
            let before = session.agreed.clone();
            let (commands, anew) = told(&mut session, &offer(Some(plain())));
            assert!(
                matches!(&commands[..], [Command::RefuseOffer(LINE, 488)]),
                "{commands:?}"
            );
            assert!(anew.is_none() && session.agreed == before);
            let (_, anew) = told(&mut session, &offer(Some(encrypted(4446))));
            assert_eq!(anew.unwrap().remote.port(), 4446);
        }
    }

    #[test]
    fn an_offer_of_the_other_family_moves_nothing_there() {
        let mut session = session();
        let before = session.agreed.clone();
        let six = || theirs("m=audio 4000 RTP/AVP 9\nc=IN IP6 2001:4860::8");
        let (commands, anew) = told(&mut session, &offer(Some(six())));
        assert!(
            matches!(&commands[..], [Command::RefuseOffer(LINE, 488)]),
            "{commands:?}"
        );
        assert!(anew.is_none() && session.agreed == before);
        // Whoever answers so to what he asked for is let go.
        told(&mut session, &offer(None));
        let (commands, _) = told(&mut session, &accepted(Some(six())));
        assert!(
            matches!(&commands[..], [Command::HangUp(LINE, Some(_))]),
            "{commands:?}"
        );
    }

    #[test]
    fn a_name_in_an_address_s_place_is_where_the_signalling_is() {
        let named = |port: u16| {
            theirs(&format!(
                "m=audio {port} RTP/AVP 9\nc=IN IP4 sbc.example.com\na=rtcp:5001 IN IP4 sbc.example.com\n\
                 m=video 0 RTP/AVP 96\nc=IN IP4 sbc.example.com"
            ))
        };
        let place = |agreed: &Agreed| format!("{} {}", agreed.remote, agreed.remote_reports);
        // In an offer, in one within a call, in the answer to ours (a 2xx or an ACK), in that to a refresh.
        let mut ours = ours();
        let (_, agreed) = ours.answer(&named(4000)).unwrap();
        assert_eq!(place(&agreed), "8.8.8.8:4000 8.8.8.8:5001");
        let mut session = Session::new(ours, agreed, [1; 10]);
        let (_, anew) = told(&mut session, &offer(Some(named(4002))));
        assert_eq!(place(&anew.unwrap()), "8.8.8.8:4002 8.8.8.8:5001");
        told(&mut session, &offer(None));
        let (_, anew) = told(&mut session, &accepted(Some(named(4004))));
        assert_eq!(place(&anew.unwrap()), "8.8.8.8:4004 8.8.8.8:5001");
        let body = named(4006);
        let (_, anew) = told(&mut session, &Event::Refreshed { call: LINE, body });
        assert_eq!(place(&anew.unwrap()), "8.8.8.8:4006 8.8.8.8:5001");
        assert_eq!(session.agreed.flow, Flow::SendRecv);
    }

    #[test]
    fn an_address_that_is_none_of_ours_is_refused_by_name() {
        for place in [
            "IN IP7 2001:db8::1",
            "IN IP6 8.8.8.8",
            "IN IP4 224.0.0.1/127",
            "IN IP6 2001:4860::8",
        ] {
            let offer = theirs(&format!("m=audio 4000 RTP/AVP 0\nc={place}"));
            let declined = Declined::from(ours().answer(&offer).unwrap_err());
            assert_eq!(declined, Declined::WRONG_FAMILY, "{place}");
        }
    }

    #[test]
    fn an_offer_that_names_an_address_inside_moves_nothing_there() {
        let mut session = session();
        let inside = theirs("m=audio 4000 RTP/AVP 9\nc=IN IP4 10.0.0.5");
        let (commands, anew) = told(&mut session, &offer(Some(inside)));
        assert!(
            matches!(&commands[..], [Command::AcceptOffer(..)]),
            "{commands:?}"
        );
        assert_eq!(anew.unwrap().remote.to_string(), "8.8.8.8:4000");
        session.ours.at.hosts.clear();
        let inside = theirs("m=audio 4000 RTP/AVP 9\nc=IN IP4 10.0.0.5");
        let (commands, anew) = told(&mut session, &offer(Some(inside)));
        assert!(
            matches!(&commands[..], [Command::RefuseOffer(LINE, 488)]),
            "{commands:?}"
        );
        assert_eq!(anew, None);
    }
}
