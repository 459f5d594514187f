//! Two telephones that hear each other, until one of them, a client or the clock ends it. Who joined them
//! is not known here: a call that is forwarded, or (to come) one that an agent transfers.

use std::sync::Arc;
use std::time::Duration;

use media::relay::Side as Whose;
use media::shell::{RelayHandle, RelayLeg, RtpCarrier};
use sip::event::{CallId as SipLegId, Command, EndedBy, Event};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::Exchange;
use super::call_leg::{CallLeg, name};
use super::declined::Declined;
use super::session::Session;
use super::talking::Settled;
use crate::calls::live::{Canceled, TellDropped};
use crate::calls::rules::Ending;
use crate::node::Node;
use crate::secret;

/// One side: its record and slot, its line, and what it has agreed to.
pub(super) struct Side {
    pub(super) leg: CallLeg,
    pub(super) line: SipLegId,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) settled: Settled,
}

/// Both sides, on the relay.
pub(super) struct Joined {
    relay: RelayHandle,
    lost: Arc<Notify>,
    most: Duration,
    began: Instant,
    caller: CallLeg,
    callee: CallLeg,
    line: SipLegId,
    events: mpsc::Receiver<Event>,
    /// Of the caller, and of the callee.
    sessions: [Session; 2],
}

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    HungUp(Whose),
    /// One of them is not there any more: no audio for too long, or no answer to its signalling.
    Lost,
    TooLong,
    /// They cannot be led any more, by no fault of theirs.
    Broken,
    Ended(Canceled),
}

impl Joined {
    /// Puts both on the relay. Where that cannot be, both records end and the callee is let go.
    pub(super) async fn begin(
        app: &Node,
        exchange: &Exchange,
        caller: CallLeg,
        settled: Settled,
        callee: Side,
    ) -> Result<Self, Declined> {
        let Side {
            leg: callee,
            line,
            events,
            settled: of_callee,
        } = callee;
        let lost = Arc::new(Notify::new());
        let mut made = relay(exchange, [settled, of_callee], &lost).await;
        if made.is_ok() && !caller.answered().await {
            made = Err("the call is not this node's any more".to_owned());
        }
        match made {
            Ok((relay, sessions)) => Ok(Self {
                relay,
                lost,
                most: Duration::from_secs(app.config.engine.max_duration_seconds.into()),
                began: Instant::now(),
                caller,
                callee,
                line,
                events,
                sessions,
            }),
            Err(why) => {
                tracing::error!(why, "two calls could not be joined");
                exchange.give_up(line);
                for leg in [&caller, &callee] {
                    leg.write(Ending::engine_error(why.clone())).await;
                }
                Err(Declined::UNAVAILABLE)
            }
        }
    }

    /// Follows both to their end.
    pub(super) async fn follow(
        mut self,
        exchange: &Exchange,
        line: SipLegId,
        mut events: mpsc::Receiver<Event>,
    ) {
        let until = self.began + self.most;
        let over = loop {
            #[cfg(test)]
            crate::supervisor::faults::reach("joined calls", self.caller.account);
            let (whose, event) = tokio::select! {
                event = events.recv() => (Whose::Caller, event),
                event = self.events.recv() => (Whose::Callee, event),
                () = self.lost.notified() => break Over::Lost,
                () = tokio::time::sleep_until(until) => break Over::TooLong,
                by = self.caller.dialling.canceled() => break Over::Ended(by),
                by = self.callee.dialling.canceled() => break Over::Ended(by),
            };
            let event = match event {
                Some(Event::Ended { by, .. }) => break Over::of(whose, by),
                // The stack is gone or takes no more for one of them.
                None => break Over::Broken,
                Some(Event::Digit { digit, .. }) => {
                    if !self.relay.pressed(whose, digit) {
                        break Over::Lost;
                    }
                    continue;
                }
                Some(event) => event,
            };
            let of = match whose {
                Whose::Caller => line,
                Whose::Callee => self.line,
            };
            let tell = &mut |command| exchange.lead(of, command);
            let anew = self.sessions[whose as usize].handle(of, &event, tell);
            if let Some((agreed, plan)) = anew
                && !self.relay.renew(whose, agreed, plan)
            {
                break Over::Lost;
            }
        };
        for line in [line, self.line] {
            // Normal clearing (ITU-T Q.850).
            exchange.lead(
                line,
                Command::HangUp(line, Some("Q.850;cause=16".to_owned())),
            );
        }
        drop(self.relay);
        let [caller, callee] = over.endings(self.began.elapsed());
        self.caller.write(caller).await;
        self.callee.write(callee).await;
    }
}

/// Both legs on the relay, and their sessions.
async fn relay(
    exchange: &Exchange,
    settled: [Settled; 2],
    lost: &Arc<Notify>,
) -> Result<(RelayHandle, [Session; 2]), String> {
    let told = |error: std::io::Error| error.to_string();
    let relays = exchange.relays().await.map_err(told)?;
    let seeds: [[u8; 10]; 2] = [
        secret::random_bytes().map_err(told)?,
        secret::random_bytes().map_err(told)?,
    ];
    let [caller, callee] = settled;
    let (caller, of_caller) = leg(caller, seeds[0]);
    let (callee, of_callee) = leg(callee, seeds[1]);
    // Dropped unused, it tells, too: the relay's thread is gone then.
    let lost = TellDropped(Arc::clone(lost));
    let handle = relays
        .begin([caller, callee], Box::new(move || drop(lost)))
        .map_err(told)?;
    Ok((handle, [of_caller, of_callee]))
}

fn leg(settled: Settled, seed: [u8; 10]) -> (RelayLeg, Session) {
    let Settled {
        ports,
        ours,
        agreed,
    } = settled;
    let session = Session::new(ours, agreed, seed);
    let carrier = RtpCarrier {
        ports,
        agreed: session.agreed.clone(),
        ssrc: session.plan.ssrc,
    };
    let plan = session.plan;
    (RelayLeg { carrier, plan }, session)
}

impl Over {
    /// One side's line is over.
    const fn of(whose: Whose, by: EndedBy) -> Self {
        match by {
            EndedBy::Remote => Self::HungUp(whose),
            // Nobody answers any more.
            EndedBy::Network => Self::Lost,
            // We hung up: what was said of the session cannot be used, or more came than can be followed.
            EndedBy::Local => Self::Broken,
        }
    }

    /// How the call that came in ends, and the one that was placed. The caller was handed on, whoever
    /// hung up; of the second call the callee is the person.
    fn endings(self, lasted: Duration) -> [Ending; 2] {
        let (reasons, by) = match self {
            Self::HungUp(Whose::Caller) => (["transferred", "caller_hangup"], ["caller", "system"]),
            Self::HungUp(Whose::Callee) => (["transferred", "caller_hangup"], ["system", "caller"]),
            Self::Lost => (["media_timeout"; 2], ["system"; 2]),
            Self::TooLong => (["max_duration"; 2], ["system"; 2]),
            Self::Broken => (["engine_error"; 2], ["system"; 2]),
            Self::Ended(by) => (["ended_by_api"; 2], [name(by); 2]),
        };
        [0, 1].map(|at| Ending::joined(reasons[at], by[at], lasted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::rules::CallStatus;

    #[test]
    fn a_side_that_is_lost_has_not_hung_up() {
        for whose in [Whose::Caller, Whose::Callee] {
            assert_eq!(Over::of(whose, EndedBy::Network), Over::Lost);
            assert_eq!(Over::of(whose, EndedBy::Local), Over::Broken);
            assert_eq!(Over::of(whose, EndedBy::Remote), Over::HungUp(whose));
        }
    }

    #[test]
    fn each_end_is_told_of_both_calls() {
        let lasted = Duration::from_millis(61_500);
        for (over, caller, callee, status) in [
            (
                Over::HungUp(Whose::Caller),
                ("transferred", "caller"),
                ("caller_hangup", "system"),
                CallStatus::Completed,
            ),
            (
                Over::HungUp(Whose::Callee),
                ("transferred", "system"),
                ("caller_hangup", "caller"),
                CallStatus::Completed,
            ),
            (
                Over::Lost,
                ("media_timeout", "system"),
                ("media_timeout", "system"),
                CallStatus::Failed,
            ),
            (
                Over::TooLong,
                ("max_duration", "system"),
                ("max_duration", "system"),
                CallStatus::Completed,
            ),
            (
                Over::Broken,
                ("engine_error", "system"),
                ("engine_error", "system"),
                CallStatus::Failed,
            ),
            (
                Over::Ended(Canceled::Api),
                ("ended_by_api", "api"),
                ("ended_by_api", "api"),
                CallStatus::Completed,
            ),
        ] {
            let [first, second] = over.endings(lasted);
            for (ending, (reason, by)) in [(first, caller), (second, callee)] {
                assert_eq!(
                    (&*ending.reason, &*ending.ended_by),
                    (reason, by),
                    "{over:?}"
                );
                assert_eq!((ending.status, ending.duration_ms), (status, Some(61_500)));
                assert_eq!(ending.used.map(|used| used.duration_ms), Some(61_500));
            }
        }
    }
}
