//! A call that is forwarded (`fallback_action` forward): a second call goes out over the number's trunk
//! while the first one rings, and when it is answered both sides hear each other through
//! [`media::relay`]. Two calls, two records, two slots; each ends when the other does.
//!
//! What guards calls that clients place guards this one too: `outbound_enabled` of the number, credit, the
//! do-not-call list, the trunk's destinations, its hour and its cap on concurrent calls. A number of the account
//! that is itself forwarded is not called, and a call that comes back over others ends with 483 ([`diversion`]).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sip::event::Event;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::SipLeg;
use super::call_leg::{CallLeg, name};
use super::called::Called;
use super::declined::{Declined, is_at_cap};
use super::diversion::{self, Arrival, Looped};
use super::joined::{Joined, Side};
use super::outbound::{Dial, Onward, Over, Placing, STACK_PATIENCE, domain};
use super::record::{Ringing, new_call};
use super::talking::Settled;
use super::task::InboundTask;
use crate::admission::{Request, State};
use crate::agents::{self, Agent};
use crate::calls::dial::rules::{RING_SECONDS, Unanswered, caller_id, may_call_from};
use crate::calls::dial::service::{has_room, own_number, way_out};
use crate::calls::dial::store as dial;
use crate::calls::journal::Owner;
use crate::calls::rules::{Direction, Ending};
use crate::calls::{bridge, lifecycle, store};
use crate::db::DbError;
use crate::http::ApiError;
use crate::ids::{AccountId, CallId};
use crate::numbers::spelling::canonical;
use crate::phone_numbers::routing::Lack;
use crate::phone_numbers::{FallbackAction, PhoneNumber};
use crate::sip_trunks::{self, Trunk};
use crate::{billing, suppressions};

/// Why a call was not forwarded.
pub(super) struct NotForwarded {
    /// What the caller is told.
    pub(super) code: u16,
    /// `Some`: nothing was dialled, and the end of the caller's call is still to be written, with this.
    pub(super) unwritten: Option<(Box<Ringing>, String)>,
}

/// Where the call goes out.
struct WayOut {
    number: PhoneNumber,
    agent: Option<Agent>,
    trunk: Trunk,
    /// As the carrier wants it.
    written: String,
    /// As the record has it.
    to: String,
    onward: Onward,
}

/// Why a call is not forwarded, and what its caller is told.
struct Refusal {
    code: u16,
    why: String,
}

impl From<Looped> for Refusal {
    fn from(looped: Looped) -> Self {
        Self {
            code: Looped::CODE,
            why: looped.why(),
        }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let code = match &error {
            error if is_at_cap(error) => 486,
            ApiError::Capacity { .. } | ApiError::Unavailable { .. } | ApiError::Internal(..) => {
                503
            }
            _ => 480,
        };
        Self {
            code,
            why: error.message(),
        }
    }
}

impl From<DbError> for Refusal {
    fn from(error: DbError) -> Self {
        ApiError::from(error).into()
    }
}

/// A callee who has answered; nobody hears anything yet.
pub(super) struct Forwarded {
    caller: CallLeg,
    callee: Side,
}

impl InboundTask {
    /// Calls the number, while the caller hears it ring.
    pub(super) async fn forward(
        &self,
        called: &Called,
        to: &str,
        lack: Lack,
        mut ringing: Ringing,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Forwarded, NotForwarded> {
        let way = match Box::pin(self.way_out(called, to, lack)).await {
            Ok(way) => way,
            Err(refusal) => return Err(unwritten(ringing, refusal)),
        };
        let callee = match self.callee(called, &way, &mut ringing).await {
            Ok(callee) => callee,
            Err(error) => return Err(unwritten(ringing, error.into())),
        };
        let caller = ringing.leg;
        match Box::pin(self.reach(way, &caller, callee, events)).await {
            Ok(callee) => Ok(Forwarded { caller, callee }),
            Err(end) => {
                let code = code_of(&end);
                let end = Unanswered {
                    sip_code: Some(code),
                    ..end
                };
                caller.write(Ending::unanswered(&end)).await;
                Err(NotForwarded {
                    code,
                    unwritten: None,
                })
            }
        }
    }

    /// Whether the number may be called, and how.
    async fn way_out(&self, called: &Called, to: &str, lack: Lack) -> Result<WayOut, Refusal> {
        let (app, account) = (&self.app, called.account);
        let number = called.number.clone().ok_or(ApiError::NotFound)?;
        // The call that goes out has it as its caller.
        if may_call_from(&number).is_err() {
            return Err(Refusal {
                code: Declined::AWAY.code,
                why: "the number may not place calls: set outbound_enabled with \
                      PATCH /phone-numbers/{id}"
                    .to_owned(),
            });
        }
        let rings = dial::live_forwards(&app.db, app.clock.now()).await?;
        let arrival = Arrival {
            id: number.id,
            number: &number.phone_number,
            dialled: &called.dialled,
            caller: called.from.as_deref(),
            extension: called.extension.as_deref(),
            hops: &called.hops,
        };
        let onward = diversion::judge(&arrival, &rings)?;
        billing::require(app, account).await?;
        let own = own_number(app, account, &canonical(to)).await?;
        let rules = own.and_then(|own| own.routing_rules);
        if rules.is_some_and(|rules| rules.fallback_action == FallbackAction::Forward) {
            return Err(Refusal {
                code: Declined::AWAY.code,
                why: "fallback_number is itself forwarded: it is not called".to_owned(),
            });
        }
        suppressions::check(app, account, to).await?;
        let agent = match called.agent {
            Some(agent) => agents::store::get(&app.db, account, agent).await?,
            None => None,
        };
        let of_agent = agent
            .as_ref()
            .and_then(|agent| agent.settings.outbound_trunk_id.as_deref())
            .and_then(|id| id.parse().ok());
        let (trunk, written) = way_out(app, account, of_agent, &number, to).await?;
        let host = domain(&trunk).unwrap_or("anonymous.invalid");
        let onward = Onward {
            headers: onward.headers(&number.phone_number, to, host, lack),
            forwarded: onward.forwarded,
        };
        Ok(WayOut {
            onward,
            number,
            agent,
            trunk,
            written,
            to: to.to_owned(),
        })
    }

    /// Two slots and a second record. The caps of account and agent are those of calls that agents have; the
    /// trunks', the pool's and the node's hold.
    async fn callee(
        &self,
        called: &Called,
        way: &WayOut,
        caller: &mut Ringing,
    ) -> Result<CallLeg, ApiError> {
        let (app, account) = (&self.app, called.account);
        let wish = Request {
            beyond: true,
            ..called.wish(app, caller.leg.id, State::Live)
        };
        caller.leg.hold(wish).await?;
        let wish = Request {
            beyond: true,
            trunk: Some((way.trunk.id, way.trunk.max_concurrent_calls)),
            ..bridge::wish(app, account, CallId::new(&app.clock), State::Live)
        };
        let callee = CallLeg::take(app, wish).await?;
        self.carried.leg(account, callee.id);
        self.write_callee(called, way, caller, callee.id).await?;
        Ok(callee)
    }

    /// Writes it down as a call that this process hosts. Whoever places calls over one trunk comes here
    /// one after the other, so that its hour is counted exactly.
    async fn write_callee(
        &self,
        called: &Called,
        way: &WayOut,
        caller: &mut Ringing,
        callee: CallId,
    ) -> Result<(), ApiError> {
        let (app, account) = (&self.app, called.account);
        let mut tx = app.db.begin_write().await?;
        let held = sip_trunks::store::hold(&mut tx, account, way.trunk.id).await?;
        let held = held.filter(Trunk::can_dial).ok_or_else(|| {
            ApiError::unprocessable("trunk_inactive", "The trunk places no calls any more")
        })?;
        let (now, placed_at) = (app.clock.now(), app.clock.shared());
        if let Some(limit) = held.calls_per_hour_limit {
            let full = dial::full_until_in(&mut tx, account, held.id, limit, placed_at).await?;
            has_room(limit, full, placed_at)?;
        }
        let none = Value::Object(Map::new());
        if !caller.written {
            self.insert_ringing(&mut tx, called, way.agent.as_ref(), caller)
                .await?;
        }
        let goes_out = store::NewCall {
            id: callee,
            direction: Direction::Outbound,
            from_number: Some(&way.number.phone_number),
            to_number: Some(&way.to),
            trunk_id: Some(held.id),
            matched_by: None,
            // The number of the callee's record is ours.
            from_withheld: false,
            ..new_call(callee, way.agent.as_ref(), called, &none)
        };
        store::insert(&mut tx, account, &goes_out, now).await?;
        let placing = dial::Placing {
            // For clients; what is judged by is the column.
            metadata: &json!({ "forwarded_call_id": caller.leg.id }),
            forwards: Some(caller.leg.id),
            max_duration_seconds: None,
            node: &app.config.cluster.node,
            incarnation: app.incarnation.number,
            placed_at,
        };
        dial::host(&mut tx, account, callee, &placing, now).await?;
        if let Err(error) = tx.commit().await {
            // The answer may have been lost and not the commit: then nobody would end this call.
            self.never_dialled(account, callee, &error).await;
            return Err(error.into());
        }
        caller.written = true;
        Ok(())
    }

    async fn never_dialled(&self, account: AccountId, call: CallId, error: &DbError) {
        let owner = Owner {
            account,
            call,
            incarnation: self.app.incarnation.number,
        };
        let why = format!("the database was lost while the call was written down: {error}");
        lifecycle::write_end(&self.app, owner, Ending::engine_error(why)).await;
    }

    /// Rings the callee until somebody answers; how it ended otherwise. The callee's record is written.
    async fn reach(
        &self,
        way: WayOut,
        caller: &CallLeg,
        callee: CallLeg,
        events: &mut mpsc::Receiver<Event>,
    ) -> Result<Side, Unanswered> {
        let SipLeg {
            id: line,
            events: mut heard,
        } = self.exchange.line();
        self.carried.line(line);
        let now = self.app.clock.moment();
        self.exchange
            .traces
            .begins(now, line, callee.account, callee.id);
        let placing = Placing {
            app: self.app.clone(),
            exchange: Arc::clone(&self.exchange),
            account: callee.account,
            call: callee.id,
            line,
        };
        let ring_for = Duration::from_secs(RING_SECONDS.into());
        let call = Dial {
            account: callee.account,
            id: callee.id,
            to: way.written,
            from: caller_id(&way.trunk, &way.number),
            trunk: way.trunk,
            ring_for,
            lease: None,
            dialling: Arc::clone(&callee.dialling),
            onward: Some(way.onward),
        };
        let until = Instant::now() + ring_for * 2 + STACK_PATIENCE;
        let reached = tokio::select! {
            reached = Box::pin(placing.answer_of(&call, &mut heard, until)) => reached,
            () = left(events) => Err(Over::Unanswered(Unanswered::caller_left(), None)),
            by = caller.dialling.canceled() => {
                Err(Over::Unanswered(Unanswered::canceled(name(by)), None))
            }
        };
        let over = match reached {
            Ok((mut ports, ours, agreed)) => {
                ports.discard();
                if callee.answered().await {
                    let settled = Settled {
                        ports,
                        ours,
                        agreed,
                    };
                    return Ok(Side {
                        leg: callee,
                        line,
                        events: heard,
                        settled,
                    });
                }
                Over::Written
            }
            Err(over) => over,
        };
        self.exchange.give_up(line);
        Err(match over {
            Over::Unanswered(end, error) | Over::Redirected(_, end, error) => {
                let mut ending = Ending::unanswered(&end);
                ending.errors.extend(error);
                callee.write(ending).await;
                end
            }
            Over::Written => {
                let why = "the answer could not be written down".to_owned();
                callee.write(Ending::engine_error(why)).await;
                Unanswered::carrier_error()
            }
        })
    }
}

impl Forwarded {
    /// The record of the call that came in.
    pub(super) fn whose(&self) -> (AccountId, CallId) {
        (self.caller.account, self.caller.id)
    }

    /// Both sides have agreed with us: they hear each other once the caller is told that it is answered.
    pub(super) async fn join(
        self,
        task: &InboundTask,
        caller: Settled,
    ) -> Result<Joined, Declined> {
        Joined::begin(&task.app, &task.exchange, self.caller, caller, self.callee).await
    }

    /// The caller gave up before both could hear each other: the callee, who has answered, is let go.
    pub(super) async fn caller_left(self, task: &InboundTask) {
        task.exchange.give_up(self.callee.line);
        let caller = Ending::unanswered(&Unanswered::caller_left());
        self.caller.write(caller).await;
        let callee = Ending::joined("caller_hangup", "system", Duration::ZERO);
        self.callee.leg.write(callee).await;
    }

    /// The caller cannot be had: the callee is let go.
    pub(super) async fn give_up(self, task: &InboundTask, why: &str) {
        task.exchange.give_up(self.callee.line);
        for leg in [&self.caller, &self.callee.leg] {
            leg.write(Ending::engine_error(why.to_owned())).await;
        }
    }
}

/// Resolves when the caller hangs up.
async fn left(events: &mut mpsc::Receiver<Event>) {
    while !matches!(events.recv().await, Some(Event::Ended { .. }) | None) {}
}

fn unwritten(caller: Ringing, Refusal { code, why }: Refusal) -> NotForwarded {
    tracing::info!(code, why, "a call is not forwarded");
    NotForwarded {
        code,
        unwritten: Some((Box::new(caller), format!("not forwarded: {why}"))),
    }
}

/// What a caller is told of a callee who did not answer.
fn code_of(end: &Unanswered) -> u16 {
    match end.reason {
        // A loop ends for everybody in it as for whoever found it (RFC 3261 sections 21.4.20 and 21.4.21).
        _ if matches!(end.sip_code, Some(482 | 483)) => Looped::CODE,
        "busy" => 486,
        "declined" => 603,
        "invalid_number" => 404,
        "caller_hangup" => 487,
        "no_answer" | "ended_by_api" => 480,
        _ => 503,
    }
}

#[cfg(test)]
mod tests {
    use sip::event::EndedBy;

    use super::*;
    use crate::calls::dial::rules::outcome;

    #[test]
    fn the_caller_is_told_what_the_callee_said() {
        for (said, told) in [
            (486, 486),
            (600, 486),
            (480, 480),
            (408, 480),
            (603, 603),
            (404, 404),
            (484, 404),
            (403, 503),
            (482, 483),
            (483, 483),
            (500, 503),
        ] {
            let end = outcome(EndedBy::Remote, Some(said), false);
            assert_eq!(code_of(&end), told, "{said}");
        }
        let rang = outcome(EndedBy::Local, Some(408), true);
        assert_eq!(code_of(&rang), 480);
        assert_eq!(code_of(&Unanswered::caller_left()), 487);
    }
}
