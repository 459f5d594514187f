//! What a telephone and we have agreed on, and how it is agreed anew within a call (RFC 3264 section 8).

use media::leg::rtp::RtpPlan;
use media::rtp::sdp::{self, Agreed, Flow, Local, Offered};
use sip::event::{CallId as LineId, Command, Event};
use sip::message::Body;

use super::Exchange;

/// One side's session.
pub(super) struct Session {
    pub(super) plan: RtpPlan,
    pub(super) agreed: Agreed,
    local: Local,
    /// Our offer, until it is answered.
    offered: Option<Offered>,
}

impl Session {
    /// `seed`: as [`RtpPlan::new`] has it.
    pub(super) fn new(local: Local, agreed: Agreed, seed: [u8; 10]) -> Self {
        Self {
            plan: RtpPlan::new(&agreed, seed),
            agreed,
            local,
            offered: None,
        }
    }

    /// Answers what the other side wants of the session. `Some`: both agreed anew.
    pub(super) fn handle(
        &mut self,
        exchange: &Exchange,
        line: LineId,
        event: &Event,
    ) -> Option<(Agreed, RtpPlan)> {
        match event {
            Event::Offer { body, .. } => self.renew(exchange, line, body.as_ref()),
            Event::Established {
                body: Some(body), ..
            } => {
                let offered = self.offered.take()?;
                self.accept(exchange, line, &offered, body)
            }
            Event::Referred { .. } => {
                exchange.tell(Command::AnswerRefer(line, 603));
                None
            }
            _ => None,
        }
    }

    /// The other side offers another session, or asks for our offer: then it is kept, to be held against
    /// the answer.
    fn renew(
        &mut self,
        exchange: &Exchange,
        line: LineId,
        body: Option<&Body>,
    ) -> Option<(Agreed, RtpPlan)> {
        self.local.version += 1;
        let Some(body) = body else {
            let mut local = self.local.clone();
            local.codecs = vec![self.agreed.codec];
            let offered = sdp::offer(&local, Flow::SendRecv);
            exchange.tell(Command::AcceptOffer(line, Body::sdp(offered.text.clone())));
            self.offered = Some(offered);
            return None;
        };
        self.offered = None;
        match sdp::answer(&body.bytes, &self.local, Flow::SendRecv) {
            Ok((text, agreed)) => {
                exchange.tell(Command::AcceptOffer(line, Body::sdp(text)));
                Some(self.agree(agreed))
            }
            Err(refusal) => {
                tracing::info!(%refusal, "a re-INVITE is refused");
                exchange.tell(Command::RefuseOffer(line, 488));
                None
            }
        }
    }

    fn accept(
        &mut self,
        exchange: &Exchange,
        line: LineId,
        offered: &Offered,
        body: &Body,
    ) -> Option<(Agreed, RtpPlan)> {
        match offered.accept(&body.bytes) {
            Ok(agreed) => Some(self.agree(agreed)),
            Err(refusal) => {
                // What was agreed before holds no more, and nothing else was agreed (RFC 3261 13.2.2.4).
                tracing::warn!(%refusal, "a call is ended: its answer cannot be used");
                exchange.tell(Command::HangUp(line, Some("SIP;cause=488".to_owned())));
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
