//! The session timer (RFC 4028): who refreshes, when, and the end when nobody does.

use std::time::Duration;

use super::timers::{Timer, Timers};
use super::{Call, State, number};
use crate::message::header::{Refresher, SessionExpires};
use crate::message::{Headers, Name, Request, Response};
use crate::time::Time;

/// The longest interval that is agreed to when the other side asks for more: a day.
const LONGEST: u32 = 86_400;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionTimer {
    /// What is asked for or agreed on, seconds; 0 for none.
    interval: u32,
    /// The least that the other side bears.
    min_se: u32,
    /// We refresh.
    ours: bool,
    agreed: bool,
}

impl SessionTimer {
    pub(super) fn stop(&self, timers: &mut Timers) {
        timers.disarm(Timer::Refresh);
        timers.disarm(Timer::Expiry);
    }

    /// Takes over the minimum of a 422. `false` when it names none, or a lesser one than ours.
    pub(super) fn lengthen(&mut self, response: &Response) -> bool {
        let least = number(&response.headers, &Name::MinSe).unwrap_or(0);
        if self.interval == 0 || least <= self.interval || least > LONGEST {
            return false;
        }
        self.interval = least;
        self.min_se = least;
        true
    }

    pub(super) fn write(&self, headers: &mut Headers, refresher: Option<Refresher>) {
        if self.interval > 0 {
            let seconds = self.interval;
            let value = SessionExpires { seconds, refresher };
            headers.set(Name::SessionExpires, value.to_string());
            if self.min_se > 0 {
                headers.set(Name::MinSe, self.min_se.to_string());
            }
        }
    }

    /// In a request of a call that is up: the roles stay, told from this request's side.
    pub(super) fn write_refresh(&self, headers: &mut Headers) {
        if self.agreed {
            let refresher = if self.ours {
                Refresher::Uac
            } else {
                Refresher::Uas
            };
            self.write(headers, Some(refresher));
        }
    }
}

impl Call {
    /// What our INVITE asks for.
    pub(super) fn ask_for_session(&mut self, invite: &mut Request) {
        self.session.interval = self.settings.session_expires;
        self.session.write(&mut invite.headers, None);
        if self.session.interval > 0 {
            invite
                .headers
                .set(Name::MinSe, self.settings.min_se.to_string());
        }
    }

    /// What a 2xx to us says: without Session-Expires there is no timer (7.2).
    pub(super) fn agree_session(&mut self, now: Time, response: &Response) {
        let granted = response
            .headers
            .get(&Name::SessionExpires)
            .and_then(SessionExpires::parse);
        match granted {
            Some(granted) => {
                let ours = granted.refresher != Some(Refresher::Uas);
                self.arm_session(now, granted.seconds, ours);
            }
            None => {
                self.session.agreed = false;
                self.session.stop(&mut self.timers);
            }
        }
    }

    /// What our 2xx says (9).
    pub(super) fn grant_session(&mut self, now: Time, request: &Request, response: &mut Response) {
        let asked = request
            .headers
            .get(&Name::SessionExpires)
            .and_then(SessionExpires::parse);
        let knows = request.headers.lists(&Name::Supported, "timer")
            || request.headers.lists(&Name::Require, "timer");
        let ours = self.settings.session_expires;
        let least = number(&request.headers, &Name::MinSe).unwrap_or(0);
        let least = least.min(LONGEST);
        // Requests of ours in this call must not ask for less either.
        self.session.min_se = self.session.min_se.max(least);
        let (seconds, refresher) = match asked {
            Some(asked) => {
                // It may be shortened, down to their minimum, never lengthened.
                let wanted = if ours > 0 { ours } else { asked.seconds };
                let seconds = asked.seconds.min(wanted.max(least));
                let refresher = match (knows, asked.refresher) {
                    (false, _) => Refresher::Uas,
                    (true, Some(refresher)) => refresher,
                    (true, None) => Refresher::Uac,
                };
                (seconds, refresher)
            }
            None if ours > 0 && knows => (ours, Refresher::Uac),
            // They know no timer: our own refreshes show us that they are there.
            None if ours > 0 => (ours, Refresher::Uas),
            None => return,
        };
        let seconds = seconds.max(least);
        self.arm_session(now, seconds, refresher == Refresher::Uas);
        let value = SessionExpires {
            seconds: self.session.interval,
            refresher: Some(refresher),
        };
        response
            .headers
            .push(Name::SessionExpires, value.to_string());
        if refresher == Refresher::Uac {
            response.headers.push(Name::Require, "timer");
        }
    }

    /// 422 to a request in the call.
    pub(super) fn session_too_brief(&self, request: &Request) -> Option<Response> {
        too_brief(request, self.settings.min_se).map(|refusal| self.tagged(refusal))
    }

    fn arm_session(&mut self, now: Time, seconds: u32, ours: bool) {
        let seconds = seconds.clamp(self.settings.min_se, LONGEST);
        self.session.interval = seconds;
        self.session.ours = ours;
        self.session.agreed = true;
        self.session.stop(&mut self.timers);
        // BYE comes a third of the interval before the end, at most 32 s before it (10).
        let whole = Duration::from_secs(u64::from(seconds));
        let before = (whole / 3).min(Duration::from_secs(32));
        self.timers.arm(Timer::Expiry, now + (whole - before));
        if ours {
            self.timers.arm(Timer::Refresh, now + whole / 2);
        }
    }

    /// A refresh was refused for a passing reason.
    pub(super) fn refresh_again(&mut self, now: Time) {
        if self.state == State::Up && self.session.agreed && self.session.ours {
            let wait = self
                .ids
                .between(Duration::from_secs(2), Duration::from_secs(4));
            self.timers.arm(Timer::Refresh, now + wait);
        }
    }

    pub(super) fn refresh(&mut self) {
        if self.state != State::Up {
            return;
        }
        if self.takes_update {
            self.update_to_refresh();
        } else {
            self.reinvite_to_refresh();
        }
    }
}

/// 422 when a request asks for refreshes more often than every `least` seconds: what it asks for may be shortened
/// and not lengthened (9).
pub(crate) fn too_brief(request: &Request, least: u32) -> Option<Response> {
    let asked = request
        .headers
        .get(&Name::SessionExpires)
        .and_then(SessionExpires::parse)?;
    // Who does not know the timer would not understand the 422.
    if asked.seconds >= least || !request.headers.lists(&Name::Supported, "timer") {
        return None;
    }
    let mut refusal = Response::to(&request.headers, 422, "");
    refusal.headers.push(Name::MinSe, least.to_string());
    Some(refusal)
}
