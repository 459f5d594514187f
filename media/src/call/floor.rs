//! Who speaks, which reply is current, what is on its way to the caller.

use std::time::Duration;

use super::Call;
use super::voicing::VOICE_DEADLINE;
use crate::frame::FRAME;
use crate::leg::Leg;
use crate::leg::ws::ServerEvent;
use crate::time::{Samples, Time};
use crate::turn::{Cue, State};

/// A voice over the agent is heeded so soon, before it is known whether it interrupts.
const DUCK_AFTER: Duration = Duration::from_millis(200);

/// A telephony mark every so many samples of agent audio (200 ms).
const MARK_EVERY: u64 = 3_200;

impl Call {
    /// Moves audio on: what was played into the recording, what is due to the caller, what is
    /// needed from the voice.
    pub(super) fn pump(&mut self) {
        if !self.started || self.ended {
            return;
        }
        let position = self.position(self.now);
        self.settle(position);
        self.tell_text();
        self.send_due(position);
        self.voice_overdue();
        self.refill();
        self.tell_text();
        self.reply_over();
    }

    /// When the floor has something to do next.
    pub(super) fn floor_deadline(&self) -> Option<Time> {
        if !self.started {
            return None;
        }
        let send = self
            .may_be_heard()
            .then(|| self.playout.next_send(self.tail()))
            .flatten();
        let filler = self.filler.as_ref().filter(|filler| filler.done);
        let filled = filler.and_then(|filler| self.playout.position_of(filler.over));
        let positions = [send, self.playout.all_played(), filled];
        let voice = self
            .reply
            .as_ref()
            .and_then(|r| r.voice_since)
            .map(|since| since + VOICE_DEADLINE);
        positions
            .into_iter()
            .flatten()
            .map(|at| self.time_of(at))
            .chain(voice)
            .min()
    }

    fn may_be_heard(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| reply.committed)
    }

    /// No more audio will follow what is queued.
    fn tail(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| filler.done)
            && self
                .reply
                .as_ref()
                .is_none_or(|reply| reply.is_complete() || reply.segments.is_empty())
    }

    /// Tells the client the reply's text as far as it went to the voice.
    fn tell_text(&mut self) {
        let Some(reply) = self.reply.as_mut().filter(|reply| reply.committed) else {
            return;
        };
        let end = reply.segments.last().map_or(0, |s| s.segment.end);
        let is_final = reply.text_complete && end >= reply.text.text().len();
        if end == 0 || (end == reply.told && is_final == reply.told_final) {
            return;
        }
        reply.told = end;
        reply.told_final = is_final;
        let text = reply.text.text()[..end].to_owned();
        let turn_id = reply.turn_id.clone();
        self.send(&ServerEvent::AgentResponse {
            text: &text,
            turn_id: &turn_id,
            is_final,
        });
    }

    fn send_due(&mut self, position: u64) {
        if !self.may_be_heard() {
            return;
        }
        let tail = self.tail();
        let ducked = self.is_ducked();
        let allowance = Samples::in_duration(self.arrivals.allowance()).0;
        while let Some(frame) = self.playout.send(position, allowance, tail) {
            let index = self.playout.sent() - FRAME as u64;
            if self.playout.began_a_run() && self.is_within_a_segment(index) {
                self.underruns += 1;
            }
            let header = self.header();
            let (leg, out) = (&mut self.leg, &mut self.out);
            let (turn_id, first) = match (&self.filler, &self.reply) {
                (Some(filler), _) if filler.first.is_some_and(|at| index < at + filler.length) => {
                    (filler.turn_id.as_str(), filler.first)
                }
                (_, Some(reply)) => (
                    reply.turn_id.as_str(),
                    reply.segments.first().map(|s| s.first),
                ),
                (_, None) => ("", None),
            };
            let offset_ms = Samples(index.saturating_sub(first.unwrap_or(index))).ms();
            match leg {
                Leg::Socket(leg) => {
                    out.message(|out| {
                        leg.audio(out, &header, &frame, turn_id, offset_ms);
                        true
                    });
                    self.playout.sent_as(header.event_id);
                }
                Leg::WebRtc(leg) => {
                    let at = self.playout.position_of(index).unwrap_or(position);
                    out.packet(|out| leg.audio(out, &frame, at, ducked));
                }
                Leg::Rtp(leg) => {
                    leg.audio(self.now, &frame, ducked, &mut |packet| out.rtp(&packet));
                }
            }
            let sent = self.playout.sent();
            if (sent / MARK_EVERY != index / MARK_EVERY || self.playout.waiting() == 0)
                && let Leg::Socket(leg) = &mut self.leg
            {
                self.out.message(|out| leg.mark(out, sent));
            }
            self.keep_company();
            self.first_sound(sent);
        }
    }

    /// The next frame goes out with the caller's packet, where both come in packets.
    fn keep_company(&mut self) {
        if let Leg::Socket(_) = self.leg {
            return;
        }
        if self.playout.began_a_run() {
            self.lead.begin();
        }
        if let Some(due) = self.playout.next_due() {
            self.lead.follow(&self.arrivals, self.time_of(due));
            let lead = Samples::in_duration(self.lead.duration());
            self.playout.go_early(lead.0);
        }
    }

    /// Whether the agent speaks softly, as long as it is not decided whether the caller interrupts it.
    fn is_ducked(&self) -> bool {
        self.turn.voice_on()
            && self.turn.state() == State::Agent
            && self.config.agent.interruption_enabled
            && self.now - self.turn.voice_onset() >= DUCK_AFTER
    }

    /// Whether the frame at this index goes on with a segment that was heard before: a gap there is the
    /// voice's, one between segments may be the model's or a tool's.
    fn is_within_a_segment(&self, index: u64) -> bool {
        let segments = self.reply.iter().flat_map(|reply| &reply.segments);
        let mut within =
            segments.filter(|s| s.first < index && index + FRAME as u64 <= s.first + s.length);
        within.next().is_some()
    }

    /// The reply's first audible sample went out.
    fn first_sound(&mut self, sent: u64) {
        let Some(reply) = &mut self.reply else { return };
        let Some(first) = reply
            .first_audible
            .filter(|&first| first < sent && !reply.announced)
        else {
            return;
        };
        reply.announced = true;
        let (trimmed, turn_id) = (reply.trimmed, reply.turn_id.clone());
        let heard = self
            .playout
            .position_of(first)
            .map_or(self.now, |at| self.time_of(at));
        let Some(reply) = &mut self.reply else { return };
        reply.latency = reply.marks.latency(heard, trimmed);
        if let (Leg::WebRtc(_) | Leg::Rtp(_), Some(latency)) = (&self.leg, &mut reply.latency) {
            latency.network_rtt_ms = self.round_trip_ms;
        }
        let latency = reply.latency.clone();
        self.settle_caller_turn();
        self.cue(Cue::ReplyHeard);
        if let Some(latency) = latency
            && self.config.events.turn_metrics
        {
            self.send(&ServerEvent::TurnMetrics {
                turn_id: &turn_id,
                latency: &latency,
            });
        }
    }

    /// Whether the reply is complete and played.
    fn reply_over(&mut self) {
        let over = self
            .reply
            .as_ref()
            .is_some_and(|reply| reply.committed && reply.is_complete());
        if !over || !self.playout.is_idle() || self.filler.is_some() {
            return;
        }
        let Some(reply) = self.reply.take() else {
            return;
        };
        let end_after = reply.end_after;
        self.settle_caller_turn();
        self.settle_reply(reply, None);
        self.playout.shrink();
        match end_after {
            Some(reason) => self.cue(Cue::End(reason)),
            None => self.cue(Cue::ReplyOver),
        }
        if !self.ended {
            self.refill();
        }
    }
}
