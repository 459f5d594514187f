//! A telephone leg with a network between: what is heard and sent, however packets come.

mod keys;
mod life;
mod losses;
mod sources;
mod streams;

use std::time::Duration;

use super::*;
use crate::audio::tones::{db, goertzel, noise, sine};
use crate::record::timeline::{Piece, Place, Timeline};
use crate::rtp::dtmf::Event;
use crate::rtp::sdp;
use crate::time::{RATE, Samples};

const SSRC: u32 = 0x1111_2222;

fn plan() -> RtpPlan {
    RtpPlan {
        codec: Codec::Pcmu,
        payload_type: 0,
        events: Some(101),
        events_clock: 8_000,
        comfort_noise: None,
        heard: None,
        packet_ms: 20,
        most_bits: None,
        flow: Flow::SendRecv,
        ssrc: 7,
        sequence: u16::MAX - 1,
        timestamp: u32::MAX - 100,
    }
}

fn start() -> Time {
    Time::from_millis(100_000)
}

/// A leg whose call has begun, and what was heard on it.
struct Bed {
    leg: RtpLeg,
    arrivals: Arrivals,
    now: Time,
    /// Audio where the call places it, from the first sample on, and silence between.
    audio: Vec<i16>,
    timeline: Timeline,
    /// The place of the first sample.
    first: Option<u64>,
    digits: String,
    reconnected: u32,
    silent: bool,
    sent: Vec<Sent>,
}

/// When a packet was sent, its payload type, marker, number, timestamp and payload.
type Sent = (Time, u8, bool, u16, u32, Vec<u8>);

impl Bed {
    fn new(plan: RtpPlan) -> Self {
        let mut leg = RtpLeg::new(plan).expect("a codec");
        assert_eq!(leg.deadline(), Time::NEVER);
        leg.start(start());
        Self {
            leg,
            arrivals: Arrivals::default(),
            now: start(),
            audio: Vec::new(),
            timeline: Timeline::default(),
            first: None,
            digits: String::new(),
            reconnected: 0,
            silent: false,
            sent: Vec::new(),
        }
    }

    fn hear(&mut self, run: impl FnOnce(&mut RtpLeg, Time, Sink<'_>)) {
        let Self {
            leg,
            now,
            audio,
            timeline,
            first,
            digits,
            reconnected,
            silent,
            ..
        } = self;
        // A second after the call's beginning, so that there is room before the first packet.
        let position = Samples::in_duration(*now - start()).0 + u64::from(RATE);
        run(leg, *now, &mut |event| match event {
            LegEvent::Audio(samples) => {
                let piece = Piece {
                    now: position,
                    length: samples.len() as u64,
                    stamped: true,
                };
                if let Place::At { position, .. } = timeline.place(piece, || false) {
                    let first = *first.get_or_insert(position);
                    audio.resize((position - first) as usize, 0);
                    audio.extend_from_slice(samples);
                }
            }
            LegEvent::Lost { samples } => {
                timeline.lost(position, samples);
            }
            LegEvent::Digit(key) => digits.push(key),
            LegEvent::Silent => *silent = true,
            LegEvent::Reconnected => {
                *reconnected += 1;
                timeline.reconnect();
            }
            LegEvent::Held(_) => {}
            other => panic!("{other:?}"),
        });
    }

    fn packet(&mut self, packet: &RtpPacket<'_>) {
        self.hear(|leg, now, sink| leg.packet(now, packet, sink));
    }

    /// What another leg sent, as it comes over the wire.
    fn receive(&mut self, (_, payload_type, marker, sequence, timestamp, payload): &Sent) {
        self.packet(&RtpPacket {
            payload_type: *payload_type,
            marker: *marker,
            sequence: *sequence,
            timestamp: *timestamp,
            ssrc: SSRC,
            payload,
        });
    }

    fn speak(&mut self, run: impl FnOnce(&mut RtpLeg, Time, Out<'_>)) {
        let (now, sent) = (self.now, &mut self.sent);
        run(&mut self.leg, now, &mut |packet| {
            sent.push((
                now,
                packet.payload_type,
                packet.marker,
                packet.sequence,
                packet.timestamp,
                packet.payload.to_vec(),
            ));
        });
    }

    /// Sends what is due; `packet`: with one of the caller's that came.
    fn send_due(&mut self, packet: bool) {
        self.arrivals.note(self.now, packet);
        let arrivals = self.arrivals;
        self.speak(|leg, now, out| leg.send_due(now, &arrivals, out));
    }

    /// Plays the world up to then.
    fn until(&mut self, until: Time) {
        while self.leg.deadline() <= until {
            self.now = self.now.max(self.leg.deadline());
            self.hear(|leg, now, sink| leg.timeout(now, sink));
            self.send_due(false);
        }
        self.now = until;
    }
}

fn audio_packet(sequence: u16, timestamp: u32, payload: &[u8]) -> RtpPacket<'_> {
    RtpPacket {
        payload_type: 0,
        marker: false,
        sequence,
        timestamp,
        ssrc: SSRC,
        payload,
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn numbers_begin_far_from_their_wrap() {
    let local = sdp::Local {
        address: [192, 0, 2, 1].into(),
        port: 20_000,
        session: 1,
        version: 1,
        codecs: Codec::ALL.to_vec(),
        encryption: sdp::Encryption::Disable,
        random: [0; 46],
    };
    let offered = sdp::offer(&local, Flow::SendRecv).text;
    let (_, agreed) =
        sdp::answer(offered.as_bytes(), &local, Flow::SendRecv).expect("an agreement");
    for seed in [[0xff; 10], [0x80; 10], [0; 10]] {
        let plan = RtpPlan::new(&agreed, seed);
        assert!(plan.sequence < 1 << 15, "{}", plan.sequence);
        assert_eq!(plan.ssrc.to_be_bytes(), seed[..4]);
    }
}

#[test]
fn a_tone_comes_through_both_ways() {
    for codec in RtpLeg::CODECS {
        let plan = RtpPlan {
            codec: *codec,
            events_clock: codec.clock(),
            ..plan()
        };
        let (mut one, mut other) = (Bed::new(plan), Bed::new(plan));
        let tone = sine(RATE, 1_000.0, -10.0, 50 * FRAME);
        for (count, frame) in tone.as_chunks::<FRAME>().0.iter().enumerate() {
            one.now = start() + ms(20 * count as u64);
            one.speak(|leg, now, out| leg.audio(now, frame, false, out));
        }
        for sent in &one.sent {
            other.now = sent.0;
            other.receive(sent);
        }
        assert_eq!(other.audio.len(), 50 * FRAME, "{codec:?}");
        let level = db(goertzel(&other.audio[5 * FRAME..], RATE, 1_000.0));
        assert!((level + 10.0).abs() < 1.5, "{codec:?} {level}");
        assert!(one.sent[0].2, "the first packet begins the talk");
        assert!(one.sent[1..].iter().all(|sent| !sent.2));
    }
}

#[test]
fn a_stream_may_go_from_one_codec_that_was_offered_to_another() {
    let numbers = [(Codec::Pcma, 8), (Codec::G722, 9), (Codec::Opus, 111)];
    // We were answered PCMU; they begin in another, and change twice.
    let mut bed = Bed::new(RtpPlan {
        heard: Some(Formats::listed(&numbers, &[], None)),
        ..plan()
    });
    let tone = sine(RATE, 1_000.0, -10.0, 50 * FRAME);
    let mut overtaken: Option<(u8, u16, Vec<u8>)> = None;
    for (at, (codec, number)) in (0..).zip(numbers) {
        let sent = packets(RtpPlan { codec, ..plan() }, &tone);
        for (count, sent) in (50 * at..).zip(&sent) {
            bed.now = start() + ms(20 * count);
            let packet = RtpPacket {
                payload_type: number,
                sequence: 65_500_u16.wrapping_add(count as u16),
                ..audio_packet(0, sent.4, &sent.5)
            };
            bed.packet(&packet);
            // A packet of the codec that was left comes late, and brings nothing back.
            if let Some((number, sequence, payload)) = overtaken.take() {
                bed.packet(&RtpPacket {
                    payload_type: number,
                    ..audio_packet(sequence, 0, &payload)
                });
            }
        }
        let last = 65_500_u16.wrapping_add(50 * at as u16 + 49);
        overtaken = Some((number, last, sent[49].5.clone()));
    }
    assert_eq!(bed.audio.len(), 150 * FRAME);
    for (part, (codec, _)) in bed.audio.chunks(50 * FRAME).zip(numbers) {
        let level = db(goertzel(&part[5 * FRAME..], RATE, 1_000.0));
        assert!((level + 10.0).abs() < 1.5, "{codec:?} {level}");
    }
}

#[test]
fn silence_fills_the_line_and_talk_follows_on_it() {
    let mut bed = Bed::new(plan());
    bed.until(start() + ms(107));
    assert_eq!(bed.sent.len(), 6, "at 0, 20, 40, 60, 80 and 100 ms");
    let frame = [1_000; FRAME];
    // A reply does not wait for the grid.
    for count in 0..10 {
        bed.until(start() + ms(107 + 20 * count));
        bed.speak(|leg, now, out| leg.audio(now, &frame, false, out));
    }
    bed.until(start() + ms(1_000));
    for (before, after) in bed.sent.iter().zip(&bed.sent[1..]) {
        assert_eq!(after.3, before.3.wrapping_add(1), "no number is left out");
        assert_eq!(after.4, before.4.wrapping_add(160), "the stream is one");
    }
    let silence = bed.sent.iter().filter(|sent| sent.5 == [0xff; 160]).count();
    assert_eq!(bed.sent.len() - silence, 10);
    // 50 packets cover a second, whoever speaks.
    assert!((50..=51).contains(&bed.sent.len()), "{}", bed.sent.len());
}

#[test]
fn silence_goes_out_in_company_with_the_callers_packets() {
    let mut bed = Bed::new(plan());
    let payload = [0x55; 160];
    for count in 0..100_u16 {
        // They come at 13 ms of each frame of ours, a little late now and then.
        let late = u64::from(count % 5 / 4);
        bed.until(start() + ms(20 * u64::from(count) + 13 + late));
        bed.packet(&audio_packet(count, u32::from(count) * 160, &payload));
        bed.send_due(true);
    }
    let times = bed.sent.iter().map(|sent| sent.0);
    // The first knew of no packets, and the second's time was set before one came.
    let apart = times.skip(2).filter(|at| {
        let in_frame = at.since(start()).as_millis() % 20;
        !(13..=14).contains(&in_frame)
    });
    assert_eq!(apart.count(), 0);
    assert!((100..=101).contains(&bed.sent.len()), "{}", bed.sent.len());
    for (before, after) in bed.sent.iter().zip(&bed.sent[1..]) {
        assert_eq!(after.4, before.4.wrapping_add(160), "the stream is one");
    }
    // Nothing is waited for: without packets it goes on at the times that they had.
    let before = bed.sent.len();
    bed.until(bed.now + ms(1_000));
    assert!((49..=50).contains(&(bed.sent.len() - before)));
}

#[test]
fn packets_have_the_length_that_was_agreed() {
    for (codec, packet_ms) in [
        (Codec::Pcmu, 10),
        (Codec::Pcma, 30),
        (Codec::G722, 40),
        (Codec::Pcmu, 60),
    ] {
        let plan = RtpPlan {
            codec,
            packet_ms,
            ..plan()
        };
        let (mut one, mut other) = (Bed::new(plan), Bed::new(plan));
        // Silence, a reply, a key and silence.
        one.until(start() + ms(240));
        let tone = sine(RATE, 1_000.0, -10.0, 60 * FRAME);
        for frame in tone.as_chunks::<FRAME>().0 {
            one.until(one.now + ms(20));
            one.speak(|leg, now, out| leg.audio(now, frame, false, out));
        }
        assert!(one.leg.press(one.now, '7'));
        one.until(start() + ms(3_000));
        let full = 8 * usize::from(packet_ms);
        let audio = one.sent.iter().filter(|sent| sent.1 == 0);
        let short: Vec<usize> = audio
            .map(|sent| sent.5.len())
            .filter(|l| *l != full)
            .collect();
        assert!(
            short.len() <= 1,
            "only the last one before the key: {short:?}"
        );
        for (before, after) in one.sent.iter().zip(&one.sent[1..]) {
            assert_eq!(after.3, before.3.wrapping_add(1), "no number is left out");
            if (before.1, after.1) == (0, 0) {
                assert_eq!(after.4.wrapping_sub(before.4), before.5.len() as u32);
            }
        }
        for sent in &one.sent {
            other.until(sent.0);
            other.receive(sent);
        }
        assert_eq!(other.digits, "7");
        let level = db(goertzel(
            &other.audio[20 * FRAME..70 * FRAME],
            RATE,
            1_000.0,
        ));
        assert!((level + 10.0).abs() < 1.5, "{codec:?} {level}");
        let heard = Samples(other.audio.len() as u64).ms();
        assert!(heard.abs_diff(3_000) <= 60, "{codec:?} {heard}");
    }
}

#[test]
fn comfort_noise_takes_the_place_of_silence_where_it_is_known() {
    let mut bed = Bed::new(RtpPlan {
        comfort_noise: Some(13),
        ..plan()
    });
    bed.until(start() + ms(1_050));
    assert_eq!(bed.sent.len(), 6);
    assert!(bed.sent.iter().all(|sent| sent.1 == 13 && sent.5 == [78]));
    bed.speak(|leg, now, out| leg.audio(now, &[0; FRAME], false, out));
    let (_, payload_type, marker, _, timestamp, _) = bed.sent[6];
    assert_eq!((payload_type, marker), (0, true));
    assert_eq!(timestamp.wrapping_sub(plan().timestamp), 8 * 1_050);
}

#[test]
fn only_the_first_packet_of_a_talkspurt_has_the_marker() {
    // Payload type and marker of what is sent: ten frames, a pause of a second, ten frames.
    let marks = |codec: Codec, comfort_noise| {
        let mut bed = Bed::new(RtpPlan {
            codec,
            comfort_noise,
            ..plan()
        });
        let tone = sine(RATE, 500.0, -10.0, 10 * FRAME);
        for spurt in [40, 1_240] {
            for (count, frame) in (0..).zip(tone.as_chunks::<FRAME>().0) {
                bed.until(start() + ms(spurt + 20 * count));
                bed.speak(|leg, now, out| leg.audio(now, frame, false, out));
            }
        }
        bed.until(start() + ms(1_700));
        let marked = bed.sent.iter().enumerate().filter(|(_, sent)| sent.2);
        let marked: Vec<(usize, u8)> = marked.map(|(at, sent)| (at, sent.1)).collect();
        // The first packet of each of the frames that were spoken.
        let spoken = |at: u64| {
            let at = start() + ms(at);
            bed.sent.iter().position(|sent| sent.0 >= at && sent.1 == 0)
        };
        (marked, spoken(40), spoken(1_240))
    };
    // Comfort noise between.
    let (marked, first, second) = marks(Codec::Pcmu, Some(13));
    let spoken = [first, second].map(|at| (at.expect("a packet"), 0));
    assert_eq!(marked, spoken);
    // Opus sends something now and then; the packets between are no talkspurts.
    let (marked, first, second) = marks(Codec::Opus, None);
    assert_eq!(marked.len(), 2, "{marked:?} {first:?} {second:?}");
    assert_eq!(marked[0].0, first.expect("a packet"));
    assert!(marked[1].0 >= second.expect("a packet"));
    // Silence is sent all the time: the stream begins once.
    for codec in [Codec::Pcmu, Codec::Pcma, Codec::G722] {
        assert_eq!(marks(codec, None).0, [(0, 0)], "{codec:?}");
    }
}

/// Packets of 20 ms of this sound, as a telephone with this plan sends them.
fn packets(plan: RtpPlan, sound: &[i16]) -> Vec<Sent> {
    let mut bed = Bed::new(plan);
    for (count, frame) in sound.as_chunks::<FRAME>().0.iter().enumerate() {
        bed.now = start() + ms(20 * count as u64);
        bed.speak(|leg, now, out| leg.audio(now, frame, false, out));
    }
    bed.sent
}

#[test]
fn opus_has_no_more_bits_than_they_want() {
    let rough: Vec<i16> = (0..50 * FRAME)
        .map(|at| (at * 7_919 % 6_000) as i16 - 3_000)
        .collect();
    let opus = |most_bits| RtpPlan {
        codec: Codec::Opus,
        most_bits,
        ..plan()
    };
    let bytes = |sent: &[Sent]| sent.iter().map(|packet| packet.5.len()).sum::<usize>();
    let free = bytes(&packets(opus(None), &rough));
    assert!(bytes(&packets(opus(Some(8_000)), &rough)) * 3 < free);
    // They may say so later.
    let mut bed = Bed::new(opus(None));
    bed.leg.renew(bed.now, opus(Some(8_000))).expect("a codec");
    for frame in rough.as_chunks::<FRAME>().0 {
        bed.now = bed.now + ms(20);
        bed.speak(|leg, now, out| leg.audio(now, frame, false, out));
    }
    assert!(bytes(&bed.sent) * 3 < free);
}

#[test]
fn packets_of_10_to_60_ms_are_taken() {
    for codec in [Codec::Pcmu, Codec::Pcma, Codec::G722] {
        let plan = RtpPlan { codec, ..plan() };
        for length in [10, 20, 30, 40, 60] {
            let stream: Vec<u8> = packets(plan, &sine(RATE, 800.0, -12.0, 60 * FRAME))
                .into_iter()
                .flat_map(|packet| packet.5)
                .collect();
            let mut bed = Bed::new(plan);
            for (count, piece) in (0_u32..).zip(stream.chunks(8 * length)) {
                bed.until(start() + ms(u64::from(count) * length as u64));
                let timestamp = 8 * length as u32 * count;
                bed.packet(&audio_packet(count as u16, timestamp, piece));
            }
            assert_eq!(bed.audio.len(), 60 * FRAME, "{codec:?} {length}");
            let level = db(goertzel(&bed.audio[FRAME..], RATE, 800.0));
            assert!((level + 12.0).abs() < 1.0, "{codec:?} {length} ms: {level}");
        }
    }
}

/// A telephone that sends comfort noise (RFC 3389) though none was agreed, and nothing while it lasts.
#[test]
fn comfort_noise_that_was_not_agreed_is_a_pause() {
    let mut bed = Bed::new(plan());
    let payload = [0xff; 160];
    let (mut sequence, mut frame) = (0_u16, 0_u32);
    for _ in 0..5 {
        for _ in 0..20 {
            bed.until(start() + ms(20 * u64::from(frame)));
            bed.packet(&audio_packet(sequence, 160 * frame, &payload));
            (sequence, frame) = (sequence + 1, frame + 1);
        }
        for _ in 0..2 {
            bed.until(start() + ms(20 * u64::from(frame)));
            bed.packet(&RtpPacket {
                payload_type: 13,
                ..audio_packet(sequence, 160 * frame, &[60, 30, 20])
            });
            (sequence, frame) = (sequence + 1, frame + 15);
        }
    }
    bed.until(start() + ms(20 * u64::from(frame)));
    bed.packet(&audio_packet(sequence, 160 * frame, &payload));
    assert_eq!(bed.audio.len(), 251 * FRAME);
    let totals = bed.leg.totals();
    assert_eq!((totals.lost, totals.late, totals.concealed_ms), (0, 0, 0));
}

#[test]
fn silence_in_opus_is_told_a_few_times_a_second() {
    let mut bed = Bed::new(RtpPlan {
        codec: Codec::Opus,
        events_clock: 48_000,
        ..plan()
    });
    bed.until(start() + ms(1_010));
    assert_eq!(bed.sent.len(), 6, "at 0, 200, 400 ms and so on");
    let tone = sine(RATE, 700.0, -12.0, FRAME);
    bed.speak(|leg, now, out| leg.audio(now, tone.first_chunk().expect("a frame"), false, out));
    let spoken = &bed.sent[6];
    assert!(spoken.2, "the first packet begins the talk");
    assert_eq!(spoken.4.wrapping_sub(plan().timestamp), 48 * 1_020);
    // Silence of the agent is not sent either, and what follows it begins a talk again.
    for count in 1..50 {
        bed.now = start() + ms(1_010 + 20 * count);
        bed.speak(|leg, now, out| leg.audio(now, &[0; FRAME], false, out));
    }
    let silent = bed.sent.len();
    assert!(silent < 20, "{silent}");
    bed.now = start() + ms(2_010);
    bed.speak(|leg, now, out| leg.audio(now, tone.first_chunk().expect("a frame"), false, out));
    assert!(bed.sent[silent].2);
    for (before, after) in bed.sent.iter().zip(&bed.sent[1..]) {
        assert_eq!(after.3, before.3.wrapping_add(1));
    }
}

#[test]
fn digits_count_in_the_clock_of_their_own() {
    for (clock, longest) in [(8_000, 1_280), (48_000, 7_680)] {
        let mut bed = Bed::new(RtpPlan {
            codec: Codec::Opus,
            events_clock: clock,
            ..plan()
        });
        assert!(bed.leg.press(bed.now, '7'));
        bed.until(start() + ms(400));
        let events = bed.sent.iter().filter(|sent| sent.1 == 101);
        let durations = events.map(|sent| Event::parse(&sent.5).map(|event| event.duration));
        assert_eq!(durations.max(), Some(Some(longest)));
    }
}

#[test]
fn a_call_goes_on_with_another_codec() {
    let mut bed = Bed::new(plan());
    let tone = sine(RATE, 600.0, -12.0, FRAME);
    let mut at = 0;
    for codec in [Codec::Pcmu, Codec::Opus, Codec::G722, Codec::Pcma] {
        let plan = RtpPlan { codec, ..plan() };
        bed.leg.renew(bed.now, plan).expect("a codec");
        let heard = bed.audio.len();
        let sound = sine(RATE, 600.0, -12.0, 25 * FRAME);
        for (count, packet) in (0_u32..).zip(packets(plan, &sound)) {
            bed.now = start() + ms(20 * at);
            at += 1;
            bed.packet(&audio_packet(1_000 + count as u16, packet.4, &packet.5));
            bed.speak(|leg, now, out| {
                leg.audio(now, tone.first_chunk().expect("a frame"), false, out)
            });
        }
        let level = db(goertzel(&bed.audio[heard + 5 * FRAME..], RATE, 600.0));
        assert!((level + 12.0).abs() < 1.5, "{codec:?} {level}");
    }
    assert_eq!(bed.audio.len(), 100 * FRAME);
    assert_eq!(bed.sent.len(), 100);
}
