//! A telephone call that was answered, whoever placed it: on the engine, until one side ends it.

use std::sync::Arc;

use media::call::input::EndRequest;
use media::config::{AudioFormat, OptionalEvents, Protocol};
use media::rtp::sdp::Agreed;
use media::shell::{CallHandle, Carrier, PortPair, RtpCarrier};
use sip::event::{CallId as SipLegId, Command, EndedBy, Event};
use tokio::sync::{Notify, mpsc};

use super::Exchange;
use super::session::{LocalSession, Session};
use crate::admission::Lease;
use crate::calls::bridge::{self, CarrierPath, NotPlaced, Prepared};
use crate::calls::live::LiveCall;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::secret;

/// A call on the engine.
pub(super) struct Talking {
    live: Arc<LiveCall>,
    session: Session,
    /// Told when the engine is done with it.
    over: Arc<Notify>,
}

/// What both sides said of the audio, and the ports that wait for it.
pub(super) struct Settled {
    pub(super) ports: PortPair,
    pub(super) ours: LocalSession,
    pub(super) agreed: Agreed,
}

/// How it begins.
pub(super) struct How {
    /// The call as it was prepared; without, its record, agent and trunk are read.
    pub(super) prepared: Option<Box<Prepared>>,
    /// Its slot, where this process holds it already.
    pub(super) lease: Option<Lease>,
    /// The other side knows that it is answered.
    pub(super) answered: bool,
}

impl Talking {
    /// Puts a call that this process hosts on the engine: to its agent, or to leave a message. Where it
    /// cannot be, its end is written.
    pub(super) async fn begin(
        app: &Node,
        account: AccountId,
        call: CallId,
        settled: Settled,
        how: How,
    ) -> Result<Self, NotPlaced> {
        let How {
            prepared,
            lease,
            answered,
        } = how;
        let Settled {
            ports,
            ours,
            agreed,
        } = settled;
        let seed = match secret::random_bytes() {
            Ok(seed) => seed,
            Err(error) => {
                bridge::could_not_start(app, account, call, &error.to_string(), answered).await;
                return Err(NotPlaced::Failed);
            }
        };
        let session = Session::new(ours, agreed, seed);
        let carrier = RtpCarrier {
            ports,
            agreed: session.agreed.clone(),
            ssrc: session.plan.ssrc,
        };
        let over = Arc::new(Notify::new());
        let way = CarrierPath {
            protocol: Protocol::Rtp(session.plan),
            // The plan names the codec; there are no messages that would tell another format.
            audio_format: AudioFormat::Ulaw8000,
            events: OptionalEvents::default(),
            carrier: Carrier::Rtp(Box::new(carrier)),
            over: Some(Arc::clone(&over)),
            prepared,
            answered,
        };
        let live = bridge::run(app, account, call, way, lease).await?;
        Ok(Self {
            live,
            session,
            over,
        })
    }

    /// Follows the call to the end of either side.
    pub(super) async fn follow(
        mut self,
        exchange: &Exchange,
        line: SipLegId,
        mut events: mpsc::Receiver<Event>,
    ) {
        loop {
            #[cfg(test)]
            crate::supervisor::faults::reach("a telephone call", self.live.account);
            let event = tokio::select! {
                event = events.recv() => event,
                () = self.over.notified() => {
                    // Normal clearing (ITU-T Q.850): the agent's side is done.
                    let why = Some("Q.850;cause=16".to_owned());
                    exchange.lead(line, Command::HangUp(line, why));
                    return;
                }
            };
            match event {
                Some(Event::Ended {
                    by: EndedBy::Remote,
                    ..
                }) => {
                    self.live.insist(CallHandle::hung_up).await;
                    return;
                }
                // We hung up: what was said of the session cannot be used, or more came than can be followed.
                Some(Event::Ended {
                    by: EndedBy::Local, ..
                }) => {
                    tracing::warn!("a telephone call was given up");
                    let fail = |handle: &CallHandle| handle.end(EndRequest::Fault);
                    self.live.insist(fail).await;
                    return;
                }
                // Nobody answers any more: nobody hung up.
                Some(Event::Ended { code, reason, .. }) => {
                    tracing::warn!(?code, reason, "a telephone call was lost");
                    self.live.insist(CallHandle::lost).await;
                    return;
                }
                Some(Event::Digit { digit, .. }) => {
                    self.live.handle.pressed(digit);
                }
                Some(event) => {
                    let tell = &mut |command| exchange.lead(line, command);
                    if let Some((agreed, plan)) = self.session.handle(line, &event, tell) {
                        let renew = |handle: &CallHandle| handle.renew(agreed.clone(), plan);
                        self.live.insist(renew).await;
                    }
                }
                // The stack is gone or takes no more for this call, by no fault of the other side.
                None => {
                    let fail = |handle: &CallHandle| handle.end(EndRequest::Fault);
                    self.live.insist(fail).await;
                    return;
                }
            }
        }
    }
}
