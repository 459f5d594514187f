//! A caller whose audio comes in packets: their connection, holding, and what they report.

use std::time::Duration;

use super::Call;
use super::input::Report;
use super::output::CallEvent;
use super::record::EndReason;
use crate::leg::rtp::RtpPlan;
use crate::leg::{Leg, RtpPacket};
use crate::peer::{MediaTotals, PeerState};
use crate::time::Time;
use crate::turn::Cue;

/// How long a caller may take to connect, or be away, before the call is over.
const AWAY: Duration = Duration::from_secs(30);

impl Call {
    /// What came of the caller's packets so far, and their jitter; `None` where audio does not come in
    /// packets.
    pub fn network(&self) -> Option<(MediaTotals, Duration)> {
        match &self.leg {
            Leg::WebRtc(leg) => Some((leg.totals(), leg.jitter())),
            Leg::Rtp(leg) => Some((leg.totals(), leg.jitter())),
            Leg::Socket(_) => None,
        }
    }

    pub(super) fn media_totals(&self) -> Option<MediaTotals> {
        self.network().map(|(totals, _)| totals)
    }

    pub(super) fn packet(&mut self, now: Time, packet: &RtpPacket<'_>) {
        // Music to a caller's other line is not said to the agent.
        if self.origin.is_some() && !self.on_hold {
            self.message(|leg, sink| leg.packet(now, packet, sink));
        }
    }

    /// The caller's connection is in this state now.
    pub(super) fn peer(&mut self, now: Time, state: PeerState) {
        self.peer_deadline = match state {
            PeerState::Connected => None,
            // Who was away before is away since then.
            _ => self.peer_deadline.or(Some(now + AWAY)),
        };
        self.out.event(CallEvent::Peer(state));
        if state == PeerState::Connected {
            self.connected(now);
        }
    }

    /// The agent's voice stops without a click: what would come next, fading within 10 ms.
    pub(super) fn fade(&mut self) {
        let Some(fading) = self.playout.fade() else {
            return;
        };
        let next = self.playout.position_of(self.playout.sent());
        // Only while it is being heard is there something to fade.
        let Some(at) = next.filter(|_| !self.on_hold && self.playout.all_played().is_some()) else {
            return;
        };
        let out = &mut self.out;
        match &mut self.leg {
            Leg::Socket(_) => {}
            Leg::WebRtc(leg) => out.packet(|out| leg.audio(out, &fading, at, false)),
            Leg::Rtp(leg) => leg.audio(self.now, &fading, false, &mut |packet| out.rtp(&packet)),
        }
    }

    pub(super) fn hold(&mut self, hold: bool) {
        if std::mem::replace(&mut self.on_hold, hold) != hold && self.started {
            self.cue(if hold { Cue::Hold } else { Cue::Unhold });
        }
    }

    /// Both sides of a telephone call agreed anew.
    pub(super) fn renew_media(&mut self, now: Time, plan: RtpPlan) {
        let Leg::Rtp(leg) = &mut self.leg else { return };
        leg.renew(now, plan);
        let held = leg.is_held();
        self.hold(held);
    }

    pub(super) fn press(&mut self, now: Time, key: char) {
        if let Leg::Rtp(leg) = &mut self.leg
            && !leg.press(now, key)
        {
            self.note("a key could not be sent: the other side takes no keypad events");
        }
    }

    /// What a telephone line is sent while the agent says nothing.
    pub(super) fn send_between(&mut self, now: Time) {
        if let Leg::Rtp(leg) = &mut self.leg
            && !self.ended
        {
            leg.send_due(now, &mut |packet| self.out.rtp(&packet));
        }
    }

    pub(super) fn reported(&mut self, report: Report) {
        if let Some(round_trip) = report.round_trip_ms {
            self.round_trip_ms = round_trip.into();
        }
        if let Leg::WebRtc(leg) = &mut self.leg {
            leg.expect_loss((u32::from(report.lost) * 100 / 256) as u8);
        }
    }

    pub(super) fn packet_timers(&mut self, now: Time) {
        if self.leg.deadline() <= now {
            self.message(|leg, sink| leg.timeout(now, sink));
        }
        if self.peer_deadline.is_some_and(|at| at <= now) && !self.ended {
            self.peer_deadline = None;
            let began = self.origin.is_some();
            self.note(if began {
                "the caller's connection was lost and did not come back within 30 s"
            } else {
                "no connection was made within 30 s"
            });
            self.cue(Cue::End(EndReason::MediaTimeout));
        }
    }
}
