//! Two telephone legs joined: each side hears the other. Pure, as the legs are: packets in, packets out,
//! time as an argument.
//!
//! Nothing of a packet is passed on as it came. Each side's stream is played out by its own leg (order,
//! losses, its codec) and spoken by the other's in that one's codec, under our own sequence numbers and
//! timestamps; keys that came as events go on as events, or as tones to a side that takes none. Who joins the legs, and why, is not known here:
//! a call that is forwarded and one that is transferred are the same.

use crate::audio::opus::OpusError;
use crate::audio::pacing::Arrivals;
use crate::frame::FRAME;
use crate::leg::rtp::{RtpLeg, RtpPlan};
use crate::leg::{LegEvent, RtpPacket};
use crate::rtp::presses::Presses;
use crate::time::Time;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who called us.
    Caller,
    /// Whom we called.
    Callee,
}

impl Side {
    /// Both, in the order of their legs.
    pub const BOTH: [Self; 2] = [Self::Caller, Self::Callee];

    pub const fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }
}

/// Where packets go that are to be sent to a side.
pub type Out<'s> = &'s mut dyn FnMut(Side, RtpPacket<'_>);

/// Two legs.
pub struct Relay {
    /// Caller, callee.
    legs: [RtpLeg; 2],
    /// Whether each side's keys come as events; else they are in its audio.
    events: [bool; 2],
    presses: [Presses; 2],
    /// What each said and does not fill a frame yet: less than one.
    said: [Vec<i16>; 2],
    keys: Vec<char>,
    silent: Option<Side>,
}

impl Relay {
    /// Legs of the caller and of the callee. An error when a codec cannot be set up.
    pub fn new(plans: [RtpPlan; 2]) -> Result<Self, OpusError> {
        let [caller, callee] = plans;
        Ok(Self {
            legs: [RtpLeg::new(caller)?, RtpLeg::new(callee)?],
            events: plans.map(|plan| plan.events.is_some()),
            presses: plans.map(|plan| Presses::new(plan.events.is_some())),
            said: [(); 2].map(|()| Vec::with_capacity(4 * FRAME)),
            keys: Vec::with_capacity(4),
            silent: None,
        })
    }

    /// Both can hear from now on.
    pub fn start(&mut self, now: Time) {
        for leg in &mut self.legs {
            leg.start(now);
        }
    }

    /// A packet of one side.
    pub fn packet(&mut self, now: Time, from: Side, packet: &RtpPacket<'_>, out: Out<'_>) {
        self.hear(now, from, out, |leg, sink| leg.packet(now, packet, sink));
    }

    /// A side pressed a key, and its signalling told it: it goes on as an event, or as a tone where the other side
    /// takes none. One that its stream tells, too, goes on once. `false`: it is no key, or too many wait.
    pub fn pressed(&mut self, now: Time, from: Side, key: char) -> bool {
        !self.presses[from as usize].told(now, key)
            || self.legs[from.other() as usize].press(now, key)
    }

    /// Another agreement with one side: hold, resume, another codec. An error when that cannot be set up.
    pub fn renew(&mut self, now: Time, side: Side, plan: RtpPlan) -> Result<(), OpusError> {
        self.events[side as usize] = plan.events.is_some();
        self.presses[side as usize].renew(plan.events.is_some());
        self.legs[side as usize].renew(now, plan)
    }

    /// A side's report came: so many per cent of our packets are lost, and somebody is there.
    pub fn reported(&mut self, now: Time, side: Side, lost_per_cent: u8) {
        self.legs[side as usize].reported(now, lost_per_cent);
    }

    /// When [`timeout`](Self::timeout) has something to do.
    pub fn deadline(&self) -> Time {
        self.legs[0].deadline().min(self.legs[1].deadline())
    }

    /// Gives up what is missing by now, and sends the silence and the keys that are due.
    pub fn timeout(&mut self, now: Time, out: Out<'_>) {
        for side in Side::BOTH {
            self.hear(now, side, out, |leg, sink| leg.timeout(now, sink));
        }
        for side in Side::BOTH {
            self.legs[side as usize]
                .send_due(now, &Arrivals::default(), &mut |packet| out(side, packet));
        }
    }

    /// The side from which nothing has come for so long that it is not there any more.
    pub const fn silent(&self) -> Option<Side> {
        self.silent
    }

    /// Takes what a leg tells, and says it to the other side.
    fn hear(
        &mut self,
        now: Time,
        from: Side,
        out: Out<'_>,
        tell: impl FnOnce(&mut RtpLeg, &mut dyn FnMut(LegEvent<'_>)),
    ) {
        let Self {
            legs: [caller, callee],
            events,
            presses,
            said,
            keys,
            silent,
        } = self;
        let (leg, other, to) = match from {
            Side::Caller => (caller, callee, Side::Callee),
            Side::Callee => (callee, caller, Side::Caller),
        };
        let said = &mut said[from as usize];
        tell(leg, &mut |event| match event {
            LegEvent::Audio(samples) => said.extend_from_slice(samples),
            // The other leg fills the time with silence; what was begun before has no end.
            LegEvent::Lost { .. } | LegEvent::Reconnected => said.clear(),
            // A key that is a tone is in the audio, and goes on as one.
            LegEvent::Digit(key) if events[from as usize] => keys.push(key),
            LegEvent::Silent => *silent = Some(from),
            _ => {}
        });
        let (frames, _) = said.as_chunks::<FRAME>();
        for frame in frames {
            other.audio(now, frame, false, &mut |packet| out(to, packet));
        }
        let spoken = frames.len() * FRAME;
        said.drain(..spoken);
        let presses = &mut presses[from as usize];
        for key in keys.drain(..) {
            if presses.heard(now, key) {
                other.press(now, key);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::audio::tones::{goertzel, sine};
    use crate::rtp::sdp::{Codec, Flow};
    use crate::time::RATE;

    fn plan(codec: Codec, events: bool, ssrc: u32) -> RtpPlan {
        RtpPlan {
            codec,
            payload_type: if codec == Codec::Pcmu { 0 } else { 9 },
            events: events.then_some(101),
            events_clock: 8_000,
            comfort_noise: None,
            heard: None,
            packet_ms: 20,
            most_bits: None,
            flow: Flow::SendRecv,
            ssrc,
            sequence: 7,
            timestamp: 1_000,
        }
    }

    /// One side's telephone: a leg of our own, whose packets go to the relay and back.
    struct Phone {
        leg: RtpLeg,
        heard: Vec<i16>,
        keys: String,
    }

    impl Phone {
        fn new(codec: Codec, events: bool) -> Self {
            let mut leg = RtpLeg::new(plan(codec, events, 99)).unwrap();
            leg.start(Time::from_millis(1_000));
            Self {
                leg,
                heard: Vec::new(),
                keys: String::new(),
            }
        }

        fn take(&mut self, now: Time, packets: &[Owned]) {
            for packet in packets {
                self.leg
                    .packet(now, &packet.borrowed(), &mut |event| match event {
                        LegEvent::Audio(samples) => self.heard.extend_from_slice(samples),
                        LegEvent::Digit(key) => self.keys.push(key),
                        _ => {}
                    });
            }
        }
    }

    #[derive(Clone)]
    struct Owned {
        packet: (u8, bool, u16, u32, u32),
        payload: Vec<u8>,
    }

    impl Owned {
        fn of(packet: &RtpPacket<'_>) -> Self {
            let RtpPacket {
                payload_type,
                marker,
                sequence,
                timestamp,
                ssrc,
                payload,
            } = *packet;
            Self {
                packet: (payload_type, marker, sequence, timestamp, ssrc),
                payload: payload.to_vec(),
            }
        }

        fn borrowed(&self) -> RtpPacket<'_> {
            let (payload_type, marker, sequence, timestamp, ssrc) = self.packet;
            RtpPacket {
                payload_type,
                marker,
                sequence,
                timestamp,
                ssrc,
                payload: &self.payload,
            }
        }
    }

    /// Both talk for `frames` of 20 ms, the caller with 400 Hz, the callee with 1000 Hz; the caller
    /// presses `keys` at the begin.
    fn talk(codecs: [Codec; 2], events: [bool; 2], frames: u64, keys: &str) -> [Phone; 2] {
        let mut relay =
            Relay::new([plan(codecs[0], events[0], 1), plan(codecs[1], events[1], 2)]).unwrap();
        relay.start(Time::from_millis(1_000));
        let mut phones = [
            Phone::new(codecs[0], events[0]),
            Phone::new(codecs[1], events[1]),
        ];
        for key in keys.chars() {
            assert!(phones[0].leg.press(Time::from_millis(1_000), key));
        }
        let tones = [400.0, 1000.0].map(|hz| sine(RATE, hz, -12.0, FRAME * 5));
        for ms in 0..frames * 20 {
            let now = Time::from_millis(1_000 + ms);
            let mut came = [Vec::new(), Vec::new()];
            let mut out = |to: Side, packet: RtpPacket<'_>| {
                came[to as usize].push(Owned::of(&packet));
            };
            for side in Side::BOTH {
                let mut sent = Vec::new();
                let phone = &mut phones[side as usize];
                if ms % 20 == 0 {
                    let at = (ms / 20 % 5) as usize * FRAME;
                    let frame = tones[side as usize][at..at + FRAME].try_into().unwrap();
                    phone
                        .leg
                        .audio(now, frame, false, &mut |p| sent.push(Owned::of(&p)));
                }
                phone
                    .leg
                    .send_due(now, &Arrivals::default(), &mut |p| sent.push(Owned::of(&p)));
                for packet in &sent {
                    relay.packet(now, side, &packet.borrowed(), &mut out);
                }
            }
            relay.timeout(now, &mut out);
            for side in Side::BOTH {
                phones[side as usize].take(now, &came[side as usize]);
            }
        }
        assert_eq!(relay.silent(), None);
        phones
    }

    #[test]
    fn each_side_hears_the_other_whatever_both_speak() {
        for codecs in [
            [Codec::Pcmu, Codec::Pcmu],
            [Codec::Pcmu, Codec::G722],
            [Codec::G722, Codec::Pcmu],
        ] {
            let [caller, callee] = talk(codecs, [true, true], 100, "");
            for (phone, other, own) in [(caller, 1000.0, 400.0), (callee, 400.0, 1000.0)] {
                let heard = &phone.heard[phone.heard.len() - 16_000..];
                let (other, own) = (goertzel(heard, RATE, other), goertzel(heard, RATE, own));
                assert!(other > 0.03, "{codecs:?}: {other}");
                assert!(own < other / 100.0, "{codecs:?}: nobody hears himself");
            }
        }
    }

    #[test]
    fn keys_go_on_as_events_once_each() {
        let [caller, callee] = talk([Codec::Pcmu, Codec::G722], [true, true], 150, "1*9");
        assert_eq!((caller.keys.as_str(), callee.keys.as_str()), ("", "1*9"));
    }

    #[test]
    fn a_key_that_signalling_told_goes_on_as_an_event_or_a_tone() {
        for events in [[false, true], [true, false]] {
            let plans = [0, 1].map(|at| plan(Codec::Pcmu, events[at], at as u32 + 1));
            let mut relay = Relay::new(plans).unwrap();
            relay.start(Time::from_millis(1_000));
            let mut callee = Phone::new(Codec::Pcmu, events[1]);
            assert!(relay.pressed(Time::from_millis(1_000), Side::Caller, '5'));
            for ms in 0..400 {
                let now = Time::from_millis(1_000 + ms);
                let mut came = Vec::new();
                relay.timeout(now, &mut |to, packet| {
                    if to == Side::Callee {
                        came.push(Owned::of(&packet));
                    }
                });
                callee.take(now, &came);
            }
            assert_eq!(callee.keys, "5", "{events:?}");
        }
    }

    #[test]
    fn a_key_that_comes_as_an_event_and_in_signalling_goes_on_once() {
        let plans = [1, 2].map(|ssrc| plan(Codec::Pcmu, true, ssrc));
        let mut relay = Relay::new(plans).unwrap();
        relay.start(Time::from_millis(1_000));
        let [mut caller, mut callee] = [(); 2].map(|()| Phone::new(Codec::Pcmu, true));
        for ms in 0..2_000 {
            let now = Time::from_millis(1_000 + ms);
            let pressed = [(100, '5'), (900, '6')].into_iter();
            if let Some((_, key)) = pressed.clone().find(|(at, _)| *at == ms) {
                assert!(caller.leg.press(now, key));
            }
            // Its INFO comes a moment after the event.
            if let Some((_, key)) = pressed.clone().find(|(at, _)| *at + 50 == ms) {
                assert!(relay.pressed(now, Side::Caller, key));
            }
            let (mut sent, mut came) = (Vec::new(), Vec::new());
            caller
                .leg
                .send_due(now, &Arrivals::default(), &mut |p| sent.push(Owned::of(&p)));
            let mut out = |to: Side, packet: RtpPacket<'_>| {
                if to == Side::Callee {
                    came.push(Owned::of(&packet));
                }
            };
            for packet in &sent {
                relay.packet(now, Side::Caller, &packet.borrowed(), &mut out);
            }
            relay.timeout(now, &mut out);
            callee.take(now, &came);
        }
        assert_eq!(callee.keys, "56");
    }

    #[test]
    fn keys_that_are_events_reach_a_side_without_events_as_tones() {
        let [caller, callee] = talk([Codec::Pcmu, Codec::G722], [true, false], 150, "1*9");
        assert_eq!((caller.keys.as_str(), callee.keys.as_str()), ("", "1*9"));
    }

    #[test]
    fn a_stream_of_our_own_goes_out() {
        let mut relay =
            Relay::new([plan(Codec::Pcmu, true, 1), plan(Codec::Pcmu, true, 2)]).unwrap();
        let now = Time::from_millis(1_000);
        relay.start(now);
        let packet = RtpPacket {
            payload_type: 0,
            marker: false,
            sequence: 4_000,
            timestamp: 77,
            ssrc: 0xdead,
            payload: &[0x10; 160],
        };
        let mut sent = Vec::new();
        relay.packet(now, Side::Caller, &packet, &mut |to, packet| {
            sent.push((to, packet.ssrc, packet.sequence, packet.timestamp));
        });
        assert_eq!(sent, [(Side::Callee, 2, 7, 1_000)]);
    }

    #[test]
    fn a_side_that_says_nothing_and_reports_what_it_hears_is_there() {
        let plans = [1, 2].map(|ssrc| plan(Codec::Pcmu, true, ssrc));
        let mut relay = Relay::new(plans).unwrap();
        let start = Time::from_millis(1_000);
        relay.start(start);
        let mut ignored = |_: Side, _: RtpPacket<'_>| {};
        let packet = RtpPacket {
            payload_type: 0,
            marker: false,
            sequence: 1,
            timestamp: 160,
            ssrc: 99,
            payload: &[0xff; 160],
        };
        for side in Side::BOTH {
            relay.packet(start, side, &packet, &mut ignored);
        }
        // The caller's telephone reports every five seconds, the callee's does not.
        for second in (5..=15).step_by(5) {
            let now = Time::from_millis(1_000 + 1_000 * second);
            relay.reported(now, Side::Caller, 0);
            assert_eq!(relay.silent(), None, "after {second} s");
            relay.timeout(now, &mut ignored);
        }
        assert_eq!(relay.silent(), Some(Side::Callee));
    }

    #[test]
    fn a_side_that_says_nothing_for_too_long_is_told() {
        let mut relay =
            Relay::new([plan(Codec::Pcmu, true, 1), plan(Codec::Pcmu, true, 2)]).unwrap();
        relay.start(Time::from_millis(1_000));
        let mut ignored = |_: Side, _: RtpPacket<'_>| {};
        relay.timeout(Time::from_millis(30_000), &mut ignored);
        assert_eq!(relay.silent(), None);
        relay.timeout(Time::from_millis(31_000), &mut ignored);
        assert_eq!(
            relay.silent(),
            Some(Side::Callee),
            "the last one that was found"
        );
    }
}
