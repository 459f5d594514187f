//! The leg between its own encoder and decoder, and over networks that lose and delay.

#![allow(
    clippy::panic,
    reason = "a missing prompt ends the test and says how to get it"
)]

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::audio::level::rms_dbfs;
use crate::audio::resample::Resampler;

const START: Time = Time::from_millis(10_000);

fn tone(frame: usize) -> [i16; FRAME] {
    std::array::from_fn(|i| {
        let t = (frame * FRAME + i) as f64 / 16_000.0;
        ((std::f64::consts::TAU * 440.0 * t).sin() * 8000.0) as i16
    })
}

/// What a leg told, summed up.
#[derive(Debug, Default)]
struct Told {
    audio: Vec<i16>,
    lost: u64,
    digits: String,
    reconnected: u32,
    silences: usize,
    /// How long the audio heard last had waited.
    held: Duration,
    longest_held: Duration,
}

impl Told {
    fn take(&mut self, event: LegEvent<'_>) {
        match event {
            LegEvent::Held(held) => {
                self.held = held;
                self.longest_held = self.longest_held.max(held);
            }
            LegEvent::Audio(samples) => self.audio.extend_from_slice(samples),
            LegEvent::Lost { samples } => self.lost += samples,
            LegEvent::Digit(digit) => self.digits.push(digit),
            LegEvent::Reconnected => self.reconnected += 1,
            LegEvent::SilenceFollows => self.silences += 1,
            other => unreachable!("{other:?}"),
        }
    }
}

fn voice(frames: usize) -> Vec<(u32, Vec<u8>)> {
    let mut leg = WebRtcLeg::new(5).unwrap();
    (0..frames)
        .filter_map(|frame| {
            let mut payload = Vec::new();
            let (timestamp, _) =
                leg.audio(&mut payload, &tone(frame), (frame * FRAME) as u64, false)?;
            Some((timestamp, payload))
        })
        .collect()
}

fn give(leg: &mut WebRtcLeg, told: &mut Told, at_ms: u64, packet: &RtpPacket<'_>) {
    let now = START + Duration::from_millis(at_ms);
    leg.timeout(now, &mut |event| told.take(event));
    leg.packet(now, packet, &mut |event| told.take(event));
}

fn opus(sequence: usize, timestamp: u32, ssrc: u32, payload: &[u8]) -> RtpPacket<'_> {
    RtpPacket {
        payload_type: OPUS,
        marker: false,
        sequence: sequence as u16,
        timestamp,
        ssrc,
        payload,
    }
}

#[test]
fn a_tone_is_heard_and_its_losses_are_filled() {
    let packets = voice(200);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        // One of ten, and once five in a row.
        if n > 0 && n % 10 == 5 || (100..105).contains(&n) {
            continue;
        }
        give(
            &mut leg,
            &mut told,
            n as u64 * 20,
            &opus(n, *timestamp, 1, payload),
        );
    }
    assert_eq!((told.audio.len(), told.lost), (200 * FRAME, 0));
    assert!(rms_dbfs(&told.audio[FRAME * 10..]) > -18.0);
    let totals = leg.totals();
    assert_eq!((totals.packets, totals.lost), (175, 25));
    assert_eq!(totals.recovered_ms + totals.concealed_ms, 25 * 20);
}

#[test]
fn what_waits_behind_a_hole_says_how_long() {
    let packets = voice(40);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        let packet = opus(n, *timestamp, 1, payload);
        match n {
            // These come in their order, but late, so that the next missing one is waited for.
            10..13 => give(&mut leg, &mut told, 260, &packet),
            // It comes 15 ms after the one that follows it.
            20 => {}
            21 => {
                give(&mut leg, &mut told, 420, &packet);
                let (timestamp, payload) = &packets[20];
                give(&mut leg, &mut told, 435, &opus(20, *timestamp, 1, payload));
                assert_eq!(told.held, Duration::from_millis(15));
            }
            _ => give(&mut leg, &mut told, n as u64 * 20, &packet),
        }
    }
    assert_eq!(told.longest_held, Duration::from_millis(15));
    // In its turn nothing waits.
    assert_eq!(told.held, Duration::ZERO);
}

#[test]
fn a_long_loss_keeps_its_place() {
    let packets = voice(100);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        if !(20..50).contains(&n) {
            give(
                &mut leg,
                &mut told,
                n as u64 * 20,
                &opus(n, *timestamp, 1, payload),
            );
        }
    }
    assert_eq!(told.audio.len() as u64 + told.lost, 100 * FRAME as u64);
    let totals = leg.totals();
    assert!(
        totals.concealed_ms <= 140 && totals.gap_ms >= 400,
        "{totals:?}"
    );
}

#[test]
fn each_key_is_told_once() {
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    let mut sequence = 0;
    for (key, timestamp) in [(5, 1000), (5, 9000), (11, 20_000)] {
        for end in [0, 0, 0x80, 0x80, 0x80] {
            let payload = [key, end | 10, 3, 32];
            let packet = RtpPacket {
                payload_type: DIGITS,
                ..opus(sequence, timestamp, 1, &payload)
            };
            give(&mut leg, &mut told, u64::from(timestamp / 48), &packet);
            sequence += 1;
        }
    }
    assert_eq!(told.digits, "55#");
    assert_eq!(leg.totals().lost, 0);
}

#[test]
fn keys_of_another_source_and_of_timestamps_begun_anew_are_told() {
    let packets = voice(60);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    let mut press = |told: &mut Told, sequence: usize, timestamp: u32, ssrc: u32, at_ms: u64| {
        let payload = [5, 10, 3, 32];
        let (_, sound) = &packets[0];
        for (n, payload_type, payload) in [(0, OPUS, &sound[..]), (1, DIGITS, &payload[..])] {
            let packet = RtpPacket {
                payload_type,
                ..opus(sequence + n, timestamp, ssrc, payload)
            };
            give(&mut leg, told, at_ms, &packet);
        }
        // What it says next, so that a restart is believed.
        give(
            &mut leg,
            told,
            at_ms,
            &opus(sequence + 2, timestamp + 960, ssrc, sound),
        );
    };
    press(&mut told, 1_000, 3_000_000_000, 1, 0);
    press(&mut told, 1_000, 2_000_000_000, 2, 200);
    assert_eq!((told.digits.as_str(), told.reconnected), ("55", 1));
    // The same source, numbered anew: its sound is believed from the second packet on, its keys from the first.
    press(&mut told, 30_000, 1_000_000_000, 2, 300);
    press(&mut told, 30_003, 1_000_004_800, 2, 400);
    assert_eq!((told.digits.as_str(), told.reconnected), ("5555", 2));
}

#[test]
fn strays_and_keys_of_other_sources_leave_the_voice_alone() {
    let packets = voice(100);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        let at_ms = n as u64 * 20;
        give(&mut leg, &mut told, at_ms, &opus(n, *timestamp, 1, payload));
        // A stray of somebody new each time, and a key every half a second under a name of its own.
        if n % 7 == 0 {
            let (_, sound) = &packets[50];
            let stray = opus(n * 31, 77 * n as u32, 1_000 + n as u32, sound);
            give(&mut leg, &mut told, at_ms, &stray);
        }
        if n % 25 < 6 {
            let press = n as u32 / 25;
            let payload = [1 + press as u8, if n % 25 > 3 { 0x8a } else { 10 }, 3, 32];
            let packet = RtpPacket {
                payload_type: DIGITS,
                ..opus(n, press * 24_000, 2, &payload)
            };
            give(&mut leg, &mut told, at_ms, &packet);
        }
    }
    assert_eq!((told.audio.len(), told.lost), (100 * FRAME, 0));
    assert_eq!((told.digits.as_str(), told.reconnected), ("1234", 0));
    assert_eq!((leg.totals().packets, leg.totals().lost), (100, 0));
}

#[test]
fn a_packet_without_sound_says_that_silence_follows() {
    let packets = voice(5);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        let payload = if n == 2 { &payload[..1] } else { &payload[..] };
        give(
            &mut leg,
            &mut told,
            n as u64 * 20,
            &opus(n, *timestamp, 1, payload),
        );
        assert_eq!(told.silences, usize::from(n >= 2));
    }
    assert_eq!(told.audio.len(), 5 * FRAME);
}

#[test]
fn another_source_is_another_stream() {
    let packets = voice(60);
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        let (ssrc, sequence, timestamp) = if n < 30 {
            (1, n, *timestamp)
        } else {
            (2, n + 40_000, timestamp.wrapping_add(77_777_777))
        };
        give(
            &mut leg,
            &mut told,
            n as u64 * 20,
            &opus(sequence, timestamp, ssrc, payload),
        );
    }
    assert_eq!((told.audio.len(), told.lost), (60 * FRAME, 0));
    assert_eq!(told.reconnected, 1);
}

#[test]
fn frames_late_by_a_little_follow_one_another_and_silence_begins_a_talkspurt() {
    let mut leg = WebRtcLeg::new(5).unwrap();
    let mut out = Vec::new();
    let mut send = |frame: usize, position: u64| {
        out.clear();
        leg.audio(&mut out, &tone(frame), position, false)
    };
    assert_eq!(send(0, 16_000), Some((48_000, true)));
    assert_eq!(send(1, 16_000 + 325), Some((48_960, false)));
    assert_eq!(send(2, 16_000 + 640), Some((49_920, false)));
    assert_eq!(send(3, 32_000), Some((96_000, true)));
}

#[test]
fn junk_is_not_heard() {
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    for n in 0..2000_usize {
        let junk: Vec<u8> = (0..n % 90).map(|i| (i * 31 + n * 17) as u8).collect();
        let packet = RtpPacket {
            payload_type: [OPUS, DIGITS, 0][n % 3],
            ..opus(n, (n * 960) as u32, 1, &junk)
        };
        give(&mut leg, &mut told, n as u64 * 20, &packet);
    }
    assert!(told.audio.len() as u64 + told.lost <= 2_010 * FRAME as u64 * 6);
}

/// What a network did to a minute of a voice.
struct Trial {
    name: &'static str,
    totals: MediaTotals,
    /// Per cent of the samples.
    concealed: f64,
    recovered: f64,
    /// Lost like the packet behind them: no copy of them came, whatever a listener does.
    floor: f64,
    /// Per cent of the packets.
    late: f64,
    /// Longest wait behind a hole at the end of the bad time, and ten seconds after it, ms.
    delay: (u128, u128),
}

/// So many frames of a human voice: prompts one after the other, again and again.
fn speech(frames: usize) -> Vec<(u32, Vec<u8>)> {
    let folder = Path::new("/usr/share/asterisk/sounds/en_US_f_Allison");
    let mut up = Resampler::new(8_000, 16_000).unwrap();
    let mut said = Vec::new();
    for name in ["vm-options", "vm-intro", "conf-adminmenu", "demo-instruct"] {
        let file = folder.join(name).with_extension("wav");
        let mut reader = hound::WavReader::open(&file)
            .unwrap_or_else(|error| panic!("{}: {error}; make test installs it", file.display()));
        let narrow: Vec<i16> = reader.samples().map(|sample| sample.unwrap()).collect();
        up.process(&narrow, &mut said);
    }
    let mut leg = WebRtcLeg::new(5).unwrap();
    (0..frames)
        .map(|frame| {
            let mut payload = Vec::new();
            // A floor of noise, so that every frame is sent.
            let sound = std::array::from_fn(|i| {
                let at = frame * FRAME + i;
                said[at % said.len()].saturating_add((at * 7919 % 101) as i16 - 50)
            });
            let sent = leg.audio(&mut payload, &sound, (frame * FRAME) as u64, false);
            (sent.unwrap().0, payload)
        })
        .collect()
}

/// A seeded generator (PCG), 0 to 1.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (((self.0 >> 18) ^ self.0) >> 27) as u32;
        f64::from(mixed.rotate_right((self.0 >> 59) as u32)) / 4_294_967_296.0
    }
}

/// The bad time lasts 60 s; then the network is good for 10 s. `loss`: chance that a run of `burst` lost
/// packets begins at a packet; `jitter`: ms, evenly spread, so that packets overtake one another.
fn trial(name: &'static str, seed: u64, loss: f64, burst: u32, jitter: f64) -> Trial {
    let mut dice = Dice(seed);
    let packets = speech(3_500);
    let mut arrivals = Vec::new();
    let mut run = 0;
    let (mut hopeless, mut lost_before) = (0, false);
    for (n, (timestamp, payload)) in packets.iter().enumerate() {
        let bad = n < 3_000;
        if bad && run == 0 && dice.roll() < loss / f64::from(burst) {
            run = burst;
        }
        let late = if bad { dice.roll() * jitter } else { 0.0 };
        let lost = run > 0;
        hopeless += u32::from(lost && lost_before);
        lost_before = lost;
        if lost {
            run -= 1;
        } else {
            arrivals.push((
                n as u64 * 20_000 + (late * 1000.0) as u64,
                n,
                *timestamp,
                payload,
            ));
        }
    }
    arrivals.sort();
    let (mut leg, mut told) = (WebRtcLeg::new(5).unwrap(), Told::default());
    let mut bad_delay = 0;
    for (at, n, timestamp, payload) in arrivals {
        let now = START + Duration::from_micros(at);
        while leg.deadline() < now {
            let due = leg.deadline();
            leg.timeout(due, &mut |event| told.take(event));
        }
        leg.packet(now, &opus(n, timestamp, 1, payload), &mut |event| {
            told.take(event)
        });
        if n < 3_000 {
            bad_delay = leg.sources.heard().jitter.delay().as_millis();
        }
    }
    let totals = leg.totals();
    let ms = 3_000.0 * 20.0;
    Trial {
        name,
        totals,
        concealed: (totals.concealed_ms + totals.gap_ms) as f64 * 100.0 / ms,
        recovered: totals.recovered_ms as f64 * 100.0 / ms,
        floor: f64::from(hopeless) * 100.0 / 3_000.0,
        late: totals.late as f64 * 100.0 / 3_000.0,
        delay: (bad_delay, leg.sources.heard().jitter.delay().as_millis()),
    }
}

/// Prints a table: `cargo test --release -p sidetone-media --lib bad_networks -- --nocapture`; another
/// seed by SIDETONE_SEED at compile time.
#[test]
fn bad_networks_are_borne() {
    let seed = option_env!("SIDETONE_SEED")
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let trials = [
        trial("loss 5 %", seed, 0.05, 1, 0.0),
        trial("loss 10 %", seed, 0.10, 1, 0.0),
        trial("loss 20 %", seed, 0.20, 1, 0.0),
        trial("loss 10 % in bursts of 5", seed, 0.10, 5, 0.0),
        trial("jitter 100 ms, reordered", seed, 0.0, 1, 100.0),
        trial("loss 10 %, jitter 100 ms", seed, 0.10, 1, 100.0),
    ];
    println!("seed {seed}; per cent of samples or packets; ms");
    println!(
        "{:<26} {:>6} {:>9} {:>9} {:>6} {:>6} {:>7} {:>7}",
        "network", "lost", "recovered", "concealed", "floor", "late", "delay", "after"
    );
    for t in &trials {
        let lost = t.totals.lost as f64 * 100.0 / 3_000.0;
        println!(
            "{:<26} {lost:>6.2} {:>9.2} {:>9.2} {:>6.2} {:>6.2} {:>7} {:>7}",
            t.name, t.recovered, t.concealed, t.floor, t.late, t.delay.0, t.delay.1
        );
    }
    // Of five packets lost in a row the copies bring back the last: the floor is all but reached.
    let bursts = trials[3].floor + 0.5;
    for (trial, most) in trials.iter().zip([1.0, 4.0, 10.0, bursts, 1.0, 4.0]) {
        assert!(
            trial.concealed <= most,
            "{}: {} % concealed",
            trial.name,
            trial.concealed
        );
        assert!(trial.late < 1.0, "{}: {} % late", trial.name, trial.late);
        assert!(
            trial.delay.0 <= 180 && trial.delay.1 < 80,
            "{}: {:?}",
            trial.name,
            trial.delay
        );
    }
}

#[test]
fn under_the_callers_voice_the_agent_is_12_db_softer() {
    let mut leg = WebRtcLeg::new(5).unwrap();
    let whole = tone(3);
    assert_eq!(leg.change(&whole, WHOLE), whole);
    leg.change(&whole, DUCKED);
    let ducked = leg.change(&whole, DUCKED);
    let difference = rms_dbfs(&whole) - rms_dbfs(&ducked);
    assert!((11.9..12.2).contains(&difference), "{difference} dB");
    let back = leg.change(&whole, WHOLE);
    assert_eq!(back[FRAME / 2..], whole[FRAME / 2..]);
}
