//! A telephone call that was answered, whoever placed it: on the engine, until one side ends it.

use std::sync::Arc;

use media::config::{AudioFormat, OptionalEvents, Protocol};
use media::leg::rtp::RtpPlan;
use media::rtp::sdp::{self, Agreed, Flow, Local, Offered};
use media::shell::{Carrier, PortPair, RtpCarrier};
use sip::event::{CallId as LineId, Command, EndedBy, Event};
use sip::message::Body;
use tokio::sync::{Notify, mpsc};

use super::Exchange;
use crate::admission::Lease;
use crate::app::App;
use crate::calls::bridge::{self, NotPlaced, Way};
use crate::calls::live::LiveCall;
use crate::ids::{AccountId, CallId};
use crate::secret;

/// A call on the engine.
pub(super) struct Talking {
    live: Arc<LiveCall>,
    plan: RtpPlan,
    local: Local,
    agreed: Agreed,
    /// Told when the engine is done with it.
    over: Arc<Notify>,
}

/// What both sides said of the audio, and the ports that wait for it.
pub(super) struct Settled {
    pub(super) ports: PortPair,
    pub(super) local: Local,
    pub(super) agreed: Agreed,
}

impl Talking {
    /// Puts a call that this process hosts on the engine. Where it cannot be, its end is written.
    pub(super) async fn begin(
        app: &App,
        account: AccountId,
        call: CallId,
        settled: Settled,
        lease: Option<Lease>,
    ) -> Result<Self, NotPlaced> {
        let Settled {
            ports,
            local,
            agreed,
        } = settled;
        let seed = match secret::random_bytes() {
            Ok(seed) => seed,
            Err(error) => {
                bridge::could_not_start(app, account, call, &error.to_string()).await;
                return Err(NotPlaced::Failed);
            }
        };
        let plan = RtpPlan::new(&agreed, seed);
        let carrier = RtpCarrier {
            ports,
            agreed: agreed.clone(),
            ssrc: plan.ssrc,
        };
        let over = Arc::new(Notify::new());
        let way = Way {
            protocol: Protocol::Rtp(plan),
            // The plan names the codec; there are no messages that would tell another format.
            audio_format: AudioFormat::Ulaw8000,
            events: OptionalEvents::default(),
            carrier: Carrier::Rtp(Box::new(carrier)),
            over: Some(Arc::clone(&over)),
        };
        let live = bridge::run(app, account, call, way, lease).await?;
        Ok(Self {
            live,
            plan,
            local,
            agreed,
            over,
        })
    }

    /// Follows the call to the end of either side.
    pub(super) async fn follow(
        mut self,
        exchange: &Exchange,
        line: LineId,
        mut events: mpsc::Receiver<Event>,
    ) {
        let mut offered = None;
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.over.notified() => {
                    // Normal clearing (ITU-T Q.850): the agent's side is done.
                    exchange.tell(Command::HangUp(line, Some("Q.850;cause=16".to_owned())));
                    return;
                }
            };
            match event {
                Some(Event::Ended {
                    by, code, reason, ..
                }) => {
                    if by == EndedBy::Network {
                        tracing::warn!(?code, reason, "a telephone call was lost");
                    }
                    self.live.handle.hung_up();
                    return;
                }
                Some(Event::Offer { body, .. }) => {
                    offered = self.renew(exchange, line, body.as_ref());
                }
                Some(Event::Established {
                    body: Some(body), ..
                }) => {
                    if let Some(offered) = offered.take() {
                        self.accept(exchange, line, &offered, &body);
                    }
                }
                Some(Event::Referred { .. }) => exchange.tell(Command::AnswerRefer(line, 603)),
                Some(_) => {}
                // The stack is gone, and with it the other side.
                None => {
                    self.live.handle.hung_up();
                    return;
                }
            }
        }
    }

    /// The other side offers another session, or asks for our offer: then it is returned, to be held
    /// against the answer.
    fn renew(&mut self, exchange: &Exchange, line: LineId, body: Option<&Body>) -> Option<Offered> {
        self.local.version += 1;
        let Some(body) = body else {
            let mut local = self.local.clone();
            local.codecs = vec![self.agreed.codec];
            let offered = sdp::offer(&local, Flow::SendRecv);
            exchange.tell(Command::AcceptOffer(line, Body::sdp(offered.text.clone())));
            return Some(offered);
        };
        match sdp::answer(&body.bytes, &self.local, Flow::SendRecv) {
            Ok((text, agreed)) => {
                exchange.tell(Command::AcceptOffer(line, Body::sdp(text)));
                self.agree(agreed);
            }
            Err(refusal) => {
                tracing::info!(%refusal, "a re-INVITE is refused");
                exchange.tell(Command::RefuseOffer(line, 488));
            }
        }
        None
    }

    fn accept(&mut self, exchange: &Exchange, line: LineId, offered: &Offered, body: &Body) {
        match offered.accept(&body.bytes) {
            Ok(agreed) => self.agree(agreed),
            Err(refusal) => {
                // What was agreed before holds no more, and nothing else was agreed (RFC 3261 13.2.2.4).
                tracing::warn!(%refusal, "a call is ended: its answer cannot be used");
                exchange.tell(Command::HangUp(line, Some("SIP;cause=488".to_owned())));
            }
        }
    }

    fn agree(&mut self, agreed: Agreed) {
        self.plan = self.plan.renewed(&agreed);
        self.agreed = agreed.clone();
        self.live.handle.renew(agreed, self.plan);
    }
}
