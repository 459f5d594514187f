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

/// A caller who closed their connection may be about to make another (`restart_pc`).
const GOODBYE: Duration = Duration::from_secs(5);

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
        self.first_packet.came();
        // Music to a caller's other line is not said to the agent.
        if self.origin.is_some() && !self.on_hold {
            self.message(|leg, sink| leg.packet(now, packet, sink));
        }
    }

    /// The caller's connection is in this state now.
    pub(super) fn peer(&mut self, now: Time, state: PeerState) {
        let came_back = std::mem::replace(&mut self.hung_up, state == PeerState::Closed);
        self.peer_deadline = match state {
            PeerState::Connected => None,
            PeerState::Closed => Some(now + GOODBYE),
            // Who said goodbye and connects anew has as long for it as at first.
            _ if came_back => Some(now + AWAY),
            // Who was away before is away since then.
            _ => self.peer_deadline.or(Some(now + AWAY)),
        };
        let is_there = state == PeerState::Connected;
        self.first_packet.connected(now, is_there);
        self.out.event(CallEvent::Peer(state));
        if is_there {
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
        let was = std::mem::replace(&mut self.on_hold, hold);
        if was && !hold {
            match &mut self.leg {
                Leg::Socket(_) => {}
                Leg::WebRtc(leg) => leg.skip(),
                Leg::Rtp(leg) => leg.skip(),
            }
            self.timeline.resume();
        }
        if was != hold && self.started {
            self.cue(if hold { Cue::Hold } else { Cue::Unhold });
        }
    }

    pub(super) fn limit(&mut self, most_bits: Option<u32>) {
        if let Leg::WebRtc(leg) = &mut self.leg
            && leg.limit(most_bits).is_err()
        {
            self.note("the codec could not be held to the bits that the caller wants");
        }
    }

    /// Both sides of a telephone call agreed anew.
    pub(super) fn renew_media(&mut self, now: Time, plan: RtpPlan) {
        let Leg::Rtp(leg) = &mut self.leg else { return };
        self.presses.renew(plan.events.is_some());
        if leg.renew(now, plan).is_err() {
            self.note("the codec that was agreed anew could not be set up");
            return self.cue(Cue::End(EndReason::EngineError));
        }
        let held = leg.is_held();
        self.hold(held);
    }

    pub(super) fn press(&mut self, now: Time, key: char) {
        if let Leg::Rtp(leg) = &mut self.leg
            && !leg.press(now, key)
        {
            self.note("a key could not be sent: the other side takes no keypad events, and the codec carries no tones");
        }
    }

    /// What a telephone line is sent while the agent says nothing.
    pub(super) fn send_between(&mut self, now: Time) {
        if let Leg::Rtp(leg) = &mut self.leg
            && !self.ended
        {
            leg.send_due(now, &self.arrivals, &mut |packet| self.out.rtp(&packet));
        }
    }

    pub(super) fn reported(&mut self, report: Report) {
        if let Some(round_trip) = report.round_trip_ms {
            self.round_trip_ms = round_trip.into();
        }
        let per_cent = (u32::from(report.lost) * 100).div_ceil(256) as u8;
        match &mut self.leg {
            Leg::Socket(_) => {}
            Leg::WebRtc(leg) => leg.expect_loss(per_cent),
            Leg::Rtp(leg) => leg.reported(self.now, per_cent),
        }
    }

    pub(super) fn packet_timers(&mut self, now: Time) {
        if self.leg.deadline() <= now {
            self.message(|leg, sink| leg.timeout(now, sink));
        }
        if self.ended {
            return;
        }
        if self.first_packet.deadline().is_some_and(|at| at <= now) {
            self.first_packet.came();
            self.note("the caller is connected, and no packet of their audio came within 30 s");
            return self.cue(Cue::End(EndReason::MediaTimeout));
        }
        if self.peer_deadline.is_some_and(|at| at <= now) {
            self.peer_deadline = None;
            if self.hung_up {
                return self.cue(Cue::End(EndReason::CallerHangup));
            }
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

#[cfg(test)]
mod tests {
    use super::super::input::Input;
    use super::super::output::{AgentState, Output, Side, SynthesiserCommand};
    use super::super::record::Summary;
    use super::*;
    use crate::config::*;
    use crate::rtp::sdp::{Codec, Flow};
    use crate::speech::{SpeechEvent, SynthesiserEvent};
    use crate::time::RATE;

    fn call() -> Call {
        call_with(AgentConfig {
            idle_check_in_after_secs: 10.0,
            ..AgentConfig::default()
        })
    }

    fn call_with(agent: AgentConfig) -> Call {
        let config = CallConfig {
            session_id: "s".to_owned(),
            agent_id: "a".to_owned(),
            direction: Direction::Inbound,
            protocol: Protocol::WebRtc,
            audio_format: AudioFormat::Opus48000,
            agent,
            recording: true,
            events: OptionalEvents::default(),
            vad: VadKind::Energy,
            lead_ms: 400,
        };
        Call::new(config, START, true)
    }

    const START: Time = Time::from_millis(1_000);

    /// What the call told because of one input: its events, in words, and its end.
    fn give(call: &mut Call, second: u64, input: Input<'_>) -> (Vec<String>, Option<Summary>) {
        let now = START + Duration::from_secs(second);
        call.handle(now, input);
        let (mut told, mut end) = (Vec::new(), None);
        loop {
            match call.poll(now) {
                Output::Event(CallEvent::Ended(summary)) => end = Some(*summary),
                Output::Event(CallEvent::Peer(state)) => told.push(state.name().to_owned()),
                Output::Event(CallEvent::Agent(AgentState::OnHold)) => told.push("hold".to_owned()),
                Output::Event(CallEvent::Agent(_)) => told.push("agent".to_owned()),
                Output::Event(CallEvent::Started) => told.push("started".to_owned()),
                Output::Synthesiser(_) => told.push("speak".to_owned()),
                Output::Wait(_) | Output::Done => return (told, end),
                _ => {}
            }
        }
    }

    #[test]
    fn who_does_not_connect_within_30_s_is_not_waited_for() {
        let mut call = call();
        assert_eq!(give(&mut call, 0, Input::Peer(PeerState::New)).0, ["new"]);
        let (told, _) = give(&mut call, 5, Input::Peer(PeerState::Connecting));
        assert_eq!(told, ["connecting"]);
        assert_eq!(give(&mut call, 29, Input::Timeout).1, None);
        let end = give(&mut call, 30, Input::Timeout).1;
        assert_eq!(end.map(|end| end.reason), Some(EndReason::MediaTimeout));
    }

    #[test]
    fn who_is_away_for_30_s_is_gone_and_who_comes_back_goes_on() {
        let mut call = call();
        give(&mut call, 0, Input::Peer(PeerState::New));
        let (told, _) = give(&mut call, 1, Input::Peer(PeerState::Connected));
        assert_eq!(told, ["connected", "started", "agent"]);
        give(&mut call, 5, Input::Peer(PeerState::Disconnected));
        // Away is away, whatever it is called.
        give(&mut call, 20, Input::Peer(PeerState::Failed));
        let (told, end) = give(&mut call, 34, Input::Peer(PeerState::Connected));
        assert!(
            end.is_none() && !told.contains(&"started".to_owned()),
            "{told:?}"
        );
        give(&mut call, 40, Input::Peer(PeerState::Disconnected));
        assert_eq!(give(&mut call, 69, Input::Timeout).1, None);
        let end = give(&mut call, 70, Input::Timeout).1;
        assert_eq!(end.map(|end| end.reason), Some(EndReason::MediaTimeout));
    }

    /// A caller who is connected after a second, and said to send.
    fn connected() -> Call {
        let mut call = call_with(AgentConfig {
            idle_check_in_after_secs: 3_600.0,
            ..AgentConfig::default()
        });
        give(&mut call, 0, Input::Peer(PeerState::New));
        give(&mut call, 0, Input::Hold(false));
        give(&mut call, 0, Input::Sends(true));
        give(&mut call, 1, Input::Peer(PeerState::Connected));
        call
    }

    fn packet(payload: &[u8]) -> Input<'_> {
        Input::Packet(RtpPacket {
            payload_type: 111,
            marker: false,
            sequence: 1,
            timestamp: 960,
            ssrc: 7,
            payload,
        })
    }

    #[test]
    fn a_connection_without_a_packet_of_the_caller_ends_after_30_s() {
        let mut call = connected();
        let report = Report {
            round_trip_ms: None,
            lost: 0,
        };
        give(&mut call, 20, Input::Report(report));
        assert_eq!(give(&mut call, 30, Input::Timeout).1, None);
        let end = give(&mut call, 31, Input::Timeout).1.expect("an end");
        assert_eq!(end.reason, EndReason::MediaTimeout);
        let notes = end.errors.join(", ");
        assert!(notes.contains("no packet of their audio"), "{notes}");
    }

    #[test]
    fn who_was_heard_once_may_be_silent_for_as_long_as_they_like() {
        for once in [
            packet(&[0xf8, 0xff, 0xfe]),
            Input::Text(r#"{"type":"user_message","text":"Hello?"}"#),
            Input::Text(r#"{"type":"pong","event_id":0}"#),
        ] {
            let mut call = connected();
            give(&mut call, 30, once);
            for second in [31, 60, 600] {
                assert_eq!(give(&mut call, second, Input::Timeout).1, None, "{second}");
            }
        }
    }

    #[test]
    fn who_holds_or_only_listens_owes_no_packet() {
        let mut call = connected();
        give(&mut call, 10, Input::Hold(true));
        assert_eq!(give(&mut call, 100, Input::Timeout).1, None);
        give(&mut call, 100, Input::Hold(false));
        give(&mut call, 110, Input::Sends(false));
        assert_eq!(give(&mut call, 200, Input::Timeout).1, None);
        give(&mut call, 200, Input::Sends(true));
        assert_eq!(give(&mut call, 229, Input::Timeout).1, None);
        let end = give(&mut call, 230, Input::Timeout).1;
        assert_eq!(end.map(|end| end.reason), Some(EndReason::MediaTimeout));
    }

    #[test]
    fn who_closes_the_connection_hangs_up() {
        let mut call = call();
        give(&mut call, 0, Input::Peer(PeerState::New));
        give(&mut call, 1, Input::Peer(PeerState::Connected));
        give(&mut call, 9, Input::Peer(PeerState::Closed));
        assert_eq!(give(&mut call, 13, Input::Timeout).1, None);
        let end = give(&mut call, 14, Input::Timeout).1;
        assert_eq!(end.map(|end| end.reason), Some(EndReason::CallerHangup));
    }

    #[test]
    fn who_closes_the_connection_and_makes_another_has_time_for_it() {
        let mut call = call();
        give(&mut call, 0, Input::Peer(PeerState::New));
        give(&mut call, 1, Input::Peer(PeerState::Connected));
        give(&mut call, 9, Input::Peer(PeerState::Closed));
        give(&mut call, 13, Input::Peer(PeerState::Connecting));
        assert_eq!(give(&mut call, 42, Input::Timeout).1, None);
        let (told, end) = give(&mut call, 42, Input::Peer(PeerState::Connected));
        assert!(end.is_none() && told.contains(&"connected".to_owned()));
        give(&mut call, 50, Input::Peer(PeerState::Closed));
        give(&mut call, 51, Input::Peer(PeerState::New));
        assert_eq!(give(&mut call, 80, Input::Timeout).1, None);
        let end = give(&mut call, 81, Input::Timeout).1;
        assert_eq!(end.map(|end| end.reason), Some(EndReason::MediaTimeout));
    }

    #[test]
    fn who_holds_before_they_are_there_is_greeted_when_they_are_back() {
        let mut call = call_with(AgentConfig {
            first_message: Some("Good morning.".to_owned()),
            ..AgentConfig::default()
        });
        give(&mut call, 0, Input::Peer(PeerState::New));
        give(&mut call, 1, Input::Hold(true));
        let (told, _) = give(&mut call, 2, Input::Peer(PeerState::Connected));
        assert!(told.contains(&"hold".to_owned()), "{told:?}");
        for second in [20, 100] {
            assert_eq!(
                give(&mut call, second, Input::Timeout).0,
                Vec::<String>::new()
            );
        }
        let (told, _) = give(&mut call, 101, Input::Hold(false));
        assert!(told.contains(&"speak".to_owned()), "{told:?}");
    }

    #[test]
    fn on_hold_nobody_is_asked_whether_they_are_there() {
        let mut call = call();
        give(&mut call, 0, Input::Peer(PeerState::New));
        give(&mut call, 0, Input::Peer(PeerState::Connected));
        assert_eq!(give(&mut call, 5, Input::Hold(true)).0, ["hold"]);
        for second in [16, 60, 200] {
            assert_eq!(
                give(&mut call, second, Input::Timeout).0,
                Vec::<String>::new()
            );
        }
        assert_eq!(give(&mut call, 200, Input::Hold(false)).0, ["agent"]);
        assert_eq!(give(&mut call, 209, Input::Timeout).0, Vec::<String>::new());
        assert!(
            give(&mut call, 211, Input::Timeout)
                .0
                .contains(&"speak".to_owned())
        );
    }

    /// A telephone call whose agent says a greeting of so many ms.
    fn greeting(ms: usize) -> Call {
        let plan = RtpPlan {
            codec: Codec::Pcmu,
            payload_type: 0,
            events: None,
            events_clock: 8_000,
            comfort_noise: None,
            heard: None,
            packet_ms: 20,
            most_bits: None,
            flow: Flow::SendRecv,
            ssrc: 7,
            sequence: 0,
            timestamp: 0,
        };
        let mut call = Call::new(
            CallConfig {
                protocol: Protocol::Rtp(plan),
                audio_format: AudioFormat::Ulaw8000,
                ..call_with(AgentConfig {
                    first_message: Some("Good morning.".to_owned()),
                    ..AgentConfig::default()
                })
                .config
            },
            START,
            true,
        );
        call.handle(START, Input::Connected);
        let mut asked = None;
        loop {
            match call.poll(START) {
                Output::Synthesiser(SynthesiserCommand::Speak { reply, segment, .. }) => {
                    asked = Some((reply, segment));
                }
                Output::Wait(_) => break,
                _ => {}
            }
        }
        let (reply, segment) = asked.expect("the greeting is asked for");
        let samples = vec![9_000; 16 * ms];
        for event in [
            SynthesiserEvent::Audio {
                rate: RATE,
                samples,
            },
            SynthesiserEvent::Done,
        ] {
            let event = SpeechEvent::Synthesiser {
                reply,
                segment,
                event,
            };
            call.handle(START, Input::Speech(event));
        }
        call
    }

    #[test]
    fn the_agent_speaks_in_company_with_the_callers_packets() {
        let mut call = greeting(1_500);
        let payload = [0xff; 160];
        // What went out with a packet, and what did not; and the agent's sound in the recording.
        let (mut together, mut apart, mut recorded) = (0, Vec::new(), 0);
        let (mut number, mut now) = (0_u16, START);
        let mut timestamps = Vec::new();
        while now < START + Duration::from_secs(3) {
            let next = loop {
                match call.poll(now) {
                    Output::Rtp(packet) => {
                        timestamps.push(packet.timestamp);
                        let since = now.since(START).as_micros() % 20_000;
                        if (13_000..=13_100).contains(&since) {
                            together += 1;
                        } else {
                            apart.push(now.since(START));
                        }
                    }
                    Output::Record {
                        side: Side::Agent,
                        at,
                        samples,
                    } => {
                        assert_eq!(at, recorded, "nothing is left out");
                        recorded += samples.len() as u64;
                    }
                    Output::Wait(at) => break at,
                    _ => {}
                }
            };
            let packet_at = START + Duration::from_micros(20_000 * u64::from(number) + 13_050);
            now = now.max(next.min(packet_at));
            if next < packet_at {
                call.handle(now, Input::Timeout);
                continue;
            }
            call.handle(
                now,
                Input::Packet(RtpPacket {
                    payload_type: 0,
                    marker: number == 0,
                    sequence: number,
                    timestamp: u32::from(number) * 160,
                    ssrc: 9,
                    payload: &payload,
                }),
            );
            number += 1;
        }
        // The first frame waits for nobody, and the one behind it was set before a packet came. Between talk and
        // silence a grid begins anew.
        assert!(
            apart.len() <= 4 && together >= 146,
            "{together}, apart: {apart:?}"
        );
        assert_eq!(recorded, 24_000);
        let steps = timestamps.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(
            steps.clone().all(|step| step == 160),
            "{:?}",
            steps.collect::<Vec<_>>()
        );
    }
}
