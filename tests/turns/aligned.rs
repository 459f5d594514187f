//! However badly a network treats the caller's packets, their sound stands where it was said: the recording's two
//! sides stay aligned, and the turns' times are right.

use std::sync::OnceLock;
use std::time::Duration;

use kit::virtual_call::config;
use media::audio::opus;
use media::audio::tones::{Random, sine};
use media::call::Call;
use media::call::input::{Input, Report};
use media::call::output::{CallEvent, Output, Side};
use media::call::record::{Role, Turn};
use media::config::{AgentConfig, AudioFormat, CallConfig, Protocol};
use media::frame::FRAME;
use media::leg::RtpPacket;
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::leg::webrtc::{OPUS, WebRtcLeg};
use media::peer::PeerState;
use media::rtp::sdp::{Codec, Flow};
use media::speech::script::{Answer, Script};
use media::time::{RATE, Samples, Time};
use proptest::prelude::*;

use crate::properties::cases;

const ORIGIN: Time = Time::from_millis(5_000);

/// How long the fastest packet is on its way.
const WAY: Duration = Duration::from_millis(30);

/// The caller says a word of 600 ms every two seconds, the first after one: frames of 20 ms.
const WORD: u64 = 30;
const EVERY: u64 = 100;
const FIRST: u64 = 50;

/// A loud block, and its length (5 ms).
const LOUD: i16 = 1_000;
const BLOCK: usize = 80;

const CLOSE_MS: u64 = 20;

/// How a caller's sound comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    WebRtc,
    Telephone(Codec),
}

const ALL: [Over; 3] = [
    Over::WebRtc,
    Over::Telephone(Codec::Pcmu),
    Over::Telephone(Codec::G722),
];

impl Over {
    /// Units of the timestamps in 20 ms.
    const fn units(self) -> u32 {
        match self {
            Self::WebRtc => 960,
            Self::Telephone(_) => 160,
        }
    }

    const fn payload_type(self) -> u8 {
        match self {
            Self::WebRtc => OPUS,
            Self::Telephone(_) => 9,
        }
    }

    /// What the codec holds back.
    fn delay(self) -> u64 {
        match self {
            Self::WebRtc => Samples::in_duration(opus::DELAY).0,
            Self::Telephone(_) => 0,
        }
    }

    /// The payload of each frame of one word and the silence behind it, the frame of the first word's beginning first,
    /// after a word that warms the codec up. `None`: the codec sends nothing.
    fn payloads(self) -> &'static [Option<Vec<u8>>] {
        static MADE: OnceLock<Vec<Vec<Option<Vec<u8>>>>> = OnceLock::new();
        let made = MADE.get_or_init(|| ALL.map(encode).to_vec());
        let place = ALL.iter().position(|over| *over == self).unwrap();
        &made[place]
    }
}

fn encode(over: Over) -> Vec<Option<Vec<u8>>> {
    let word = sine(RATE, 400.0, -12.0, WORD as usize * FRAME);
    let (words, _) = word.as_chunks::<FRAME>();
    let mut browser = WebRtcLeg::new(1).unwrap();
    let Over::Telephone(codec) = over else {
        let mut payloads = Vec::new();
        for frame in 0..2 * EVERY {
            let sound = words.get((frame % EVERY) as usize).unwrap_or(&[0; FRAME]);
            let mut payload = Vec::new();
            let sent = browser.audio(&mut payload, sound, frame * FRAME as u64, false);
            payloads.push(sent.map(|_| payload));
        }
        return payloads.split_off(EVERY as usize);
    };
    let mut telephone = RtpLeg::new(plan(codec, Flow::SendRecv)).unwrap();
    let mut payloads = Vec::new();
    for frame in 0..2 * EVERY {
        let sound = words.get((frame % EVERY) as usize).unwrap_or(&[0; FRAME]);
        let now = ORIGIN + Duration::from_millis(20 * frame);
        telephone.audio(now, sound, false, &mut |packet| {
            payloads.push(Some(packet.payload.to_vec()));
        });
    }
    payloads.split_off(EVERY as usize)
}

fn plan(codec: Codec, flow: Flow) -> RtpPlan {
    RtpPlan {
        codec,
        payload_type: 9,
        events: Some(101),
        events_clock: 8_000,
        comfort_noise: Some(13),
        heard: None,
        packet_ms: 20,
        most_bits: None,
        flow,
        ssrc: 7,
        sequence: 60_000,
        timestamp: 4_000_000_000,
    }
}

/// What happens to the caller's stream, for so many frames.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Lost(u64),
    /// All of them come with the frame behind them.
    Stalled(u64),
    /// Each is late by up to so many ms, so that they overtake one another.
    Jitter(u64, u64),
    /// The caller holds the call, and sends something else meanwhile or nothing.
    Held(u64, bool),
    /// The sender pauses, and its numbers and timestamps stand still meanwhile.
    Standing(u64),
    /// Another source, numbered anew.
    NewSource,
}

impl Trouble {
    const fn frames(self) -> u64 {
        match self {
            Self::Lost(frames)
            | Self::Stalled(frames)
            | Self::Jitter(frames, _)
            | Self::Held(frames, _)
            | Self::Standing(frames) => frames,
            Self::NewSource => 0,
        }
    }
}

/// What a sender does whose timestamps stand still in a pause, and now and then the network.
fn standing() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        6 => (1..400_u64).prop_map(Trouble::Standing),
        6 => (1..12_u64).prop_map(Trouble::Standing),
        1 => trouble(),
    ]
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        4 => (1..15_u64).prop_map(Trouble::Lost),
        8 => (12..65_u64).prop_map(Trouble::Lost),
        3 => (65..250_u64).prop_map(Trouble::Lost),
        3 => (2..40_u64).prop_map(Trouble::Stalled),
        2 => (40..150_u64).prop_map(Trouble::Stalled),
        4 => (10..150_u64, 1..90_u64).prop_map(|(frames, ms)| Trouble::Jitter(frames, ms)),
        2 => (20..200_u64, any::<bool>()).prop_map(|(frames, sends)| Trouble::Held(frames, sends)),
        1 => Just(Trouble::NewSource),
    ]
}

/// How the caller's side sends silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    Sent,
    Suppressed,
    /// A packet of comfort noise (RFC 3389), then nothing.
    Noise,
    /// It is not sent, and timestamps stand still meanwhile.
    Standing,
}

fn is_voiced(frame: u64) -> bool {
    frame >= FIRST && (frame - FIRST) % EVERY < WORD
}

/// Whether who suppresses silence sends it: a word, and what follows within 200 ms.
fn is_talk(frame: u64) -> bool {
    frame >= FIRST && (frame - FIRST) % EVERY < WORD + 10
}

/// One thing that reaches the call.
#[derive(Clone, Copy, Debug)]
enum Coming {
    Packet {
        frame: u64,
        noise: bool,
        sequence: u16,
        timestamp: u32,
        ssrc: u32,
    },
    Hold(bool),
    Report,
}

/// A call, and its caller.
struct Bed {
    over: Over,
    call: Call,
    script: Script,
    now: Time,
    deadline: Time,
    /// The caller's side of the recording.
    recorded: Vec<i16>,
    turns: Vec<Turn>,
}

impl Bed {
    fn new(over: Over) -> Self {
        let agent = AgentConfig {
            first_message: Some("Good morning.".to_owned()),
            ..AgentConfig::default()
        };
        let (protocol, audio_format) = match over {
            Over::WebRtc => (Protocol::WebRtc, AudioFormat::Opus48000),
            Over::Telephone(codec) => (
                Protocol::Rtp(plan(codec, Flow::SendRecv)),
                AudioFormat::Ulaw8000,
            ),
        };
        let config = CallConfig {
            protocol,
            audio_format,
            ..config(agent)
        };
        let mut bed = Self {
            over,
            call: Call::new(config, ORIGIN, true),
            script: Script {
                always_said: Answer::Say("Yes.".to_owned()),
                ..Script::default()
            },
            now: ORIGIN,
            deadline: Time::NEVER,
            recorded: Vec::new(),
            turns: Vec::new(),
        };
        match over {
            Over::WebRtc => {
                bed.give(Input::Peer(PeerState::New));
                bed.give(Input::Peer(PeerState::Connected));
            }
            Over::Telephone(_) => bed.give(Input::Connected),
        }
        bed
    }

    fn give(&mut self, input: Input<'_>) {
        self.call.handle(self.now, input);
        loop {
            let output = self.call.poll(self.now);
            self.script.react(self.now, &output);
            match output {
                Output::Record {
                    side: Side::Caller,
                    at,
                    samples,
                } => {
                    let at = at as usize;
                    assert!(at >= self.recorded.len(), "sound stands on sound");
                    self.recorded.resize(at, 0);
                    self.recorded.extend_from_slice(samples);
                }
                Output::Event(CallEvent::Turn(turn)) => self.turns.push(*turn),
                Output::Wait(at) => {
                    self.deadline = at;
                    return;
                }
                Output::Done => {
                    self.deadline = Time::NEVER;
                    return;
                }
                _ => {}
            }
        }
    }

    fn until(&mut self, until: Time) {
        loop {
            let answer = self.script.next().unwrap_or(Time::NEVER);
            let next = answer.min(self.deadline);
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            match self.script.take_due(self.now) {
                Some(event) => self.give(Input::Speech(event)),
                None => self.give(Input::Timeout),
            }
        }
        self.now = until;
    }

    fn come(&mut self, coming: Coming) {
        match coming {
            Coming::Report => self.give(Input::Report(Report {
                round_trip_ms: None,
                lost: 0,
            })),
            Coming::Hold(hold) => match self.over {
                Over::WebRtc => self.give(Input::Hold(hold)),
                Over::Telephone(codec) => {
                    let flow = if hold { Flow::RecvOnly } else { Flow::SendRecv };
                    self.give(Input::Media(plan(codec, flow)));
                }
            },
            Coming::Packet {
                frame,
                noise,
                sequence,
                timestamp,
                ssrc,
            } => {
                let payloads = self.over.payloads();
                let place = (frame + EVERY - FIRST % EVERY) % EVERY;
                let payload = match noise {
                    true => &[60][..],
                    false => payloads[place as usize].as_deref().unwrap(),
                };
                self.give(Input::Packet(RtpPacket {
                    payload_type: if noise { 13 } else { self.over.payload_type() },
                    marker: is_voiced(frame) && !is_voiced(frame.wrapping_sub(1)),
                    sequence,
                    timestamp,
                    ssrc,
                    payload,
                }));
            }
        }
    }

    /// Where the word at this place began to sound, as recorded.
    fn heard_at(&self, expected: u64) -> Option<u64> {
        let from = expected.saturating_sub(14_400) as usize;
        let to = (expected as usize + 14_400).min(self.recorded.len());
        let mut blocks = self.recorded.get(from..to)?.chunks(BLOCK);
        let loud = |block: &[i16]| block.iter().any(|sample| sample.abs() > LOUD);
        let place = blocks.position(loud)?;
        Some((from + place * BLOCK) as u64)
    }
}

/// When a frame has been captured, by a clock that is so many parts in a million slow.
fn captured(frame: u64, ppm: i64) -> Time {
    let micros = ((frame + 1) * 20_000) as i64;
    ORIGIN + Duration::from_micros((micros + micros * ppm / 1_000_000) as u64)
}

/// Where the call has to place a frame.
fn truth(over: Over, frame: u64, ppm: i64) -> u64 {
    let came = captured(frame, ppm) + WAY;
    Samples::in_duration(came - ORIGIN).0 - FRAME as u64 + over.delay()
}

/// What reaches the call of a stream of so many frames, in the order in which it does.
fn network(
    over: Over,
    silence: Silence,
    (sequence, timestamp, seed): (u16, u32, u64),
    troubles: &[(u64, Trouble)],
    frames: u64,
) -> Vec<(Time, Coming)> {
    let mut random = Random::new(seed);
    let (mut sequence, mut timestamp, mut ssrc) = (sequence, timestamp, 99);
    let mut coming = Vec::new();
    let mut spans = Vec::new();
    let mut begin = 0;
    for (calm, trouble) in troubles {
        begin += calm;
        spans.push((begin, begin + trouble.frames(), *trouble));
        begin += trouble.frames();
    }
    for frame in 0..frames {
        // Who sends nothing for long reports all the same (RFC 3550 section 6.2), and is not taken for gone.
        if frame % 250 == 0 {
            coming.push((captured(frame, 0), Coming::Report));
        }
        // A gateway's comfort noise, under a name of its own.
        if frame % 13 == 5 {
            let noise = Coming::Packet {
                frame,
                noise: true,
                sequence: frame as u16,
                timestamp: 7 + frame as u32 * 160,
                ssrc: 7,
            };
            coming.push((captured(frame, 0) + WAY, noise));
        }
        for (from, to, trouble) in &spans {
            if let Trouble::Held(..) = trouble {
                let at = captured(frame, 0);
                if frame == *from {
                    coming.push((at, Coming::Hold(true)));
                } else if frame == *to {
                    coming.push((at, Coming::Hold(false)));
                }
            }
            if frame == *from && matches!(trouble, Trouble::NewSource) {
                ssrc += 1;
                sequence = random.bits() as u16;
                timestamp = random.bits() as u32;
            }
        }
        let trouble = spans
            .iter()
            .find(|(from, to, _)| (*from..*to).contains(&frame));
        let noise = silence == Silence::Noise && frame > 0 && !is_talk(frame) && is_talk(frame - 1);
        let place = (frame + EVERY - FIRST % EVERY) % EVERY;
        // Opus sends something now and then in every silence; not so a sender whose clock stands still.
        let sends_silence =
            silence == Silence::Sent || over == Over::WebRtc && silence != Silence::Standing;
        let is_sent = over.payloads()[place as usize].is_some()
            && (sends_silence || is_talk(frame) || noise)
            && !matches!(
                trouble,
                Some((_, _, Trouble::Held(_, false) | Trouble::Standing(_)))
            );
        if is_sent {
            let mut at = captured(frame, 0) + WAY;
            let mut arrives = true;
            match trouble {
                Some((_, _, Trouble::Lost(_))) => arrives = false,
                Some((_, to, Trouble::Stalled(_))) => at = captured(*to, 0) + WAY,
                Some((_, _, Trouble::Jitter(_, ms))) => {
                    at = at + Duration::from_micros(random.below(ms * 1_000));
                }
                _ => {}
            }
            if arrives {
                let packet = Coming::Packet {
                    frame,
                    noise: noise && over != Over::WebRtc,
                    sequence,
                    timestamp,
                    ssrc,
                };
                coming.push((at, packet));
            }
            sequence = sequence.wrapping_add(1);
        }
        let stands = match trouble {
            Some((_, _, Trouble::Standing(_))) => true,
            _ => silence == Silence::Standing && !is_sent,
        };
        if !stands {
            timestamp = timestamp.wrapping_add(over.units());
        }
    }
    coming.sort_by_key(|(at, _)| *at);
    coming
}

/// A stream's first number and timestamp, often near their wrap, and a seed.
fn first() -> impl Strategy<Value = (u16, u32, u64)> {
    (
        prop_oneof![any::<u16>(), 65_000..=u16::MAX],
        prop_oneof![any::<u32>(), u32::MAX - 500_000..=u32::MAX],
        any::<u64>(),
    )
}

/// So many frames after all that happened to the stream the words stand where they were said, and the turns with them.
fn stays_aligned(
    over: Over,
    silence: Silence,
    first: (u16, u32, u64),
    mut troubles: Vec<(u64, Trouble)>,
    put_right: u64,
) -> Result<(), TestCaseError> {
    // A stream that begins with two seconds at once is more than two ahead of the clock, and is cut.
    if let Some((calm, Trouble::Stalled(40..))) = troubles.first_mut() {
        *calm += 50;
    }
    let troubled: u64 = troubles
        .iter()
        .map(|(calm, trouble)| calm + trouble.frames())
        .sum();
    let calm = troubled + put_right;
    let frames = calm + 600;
    let mut bed = Bed::new(over);
    for (at, coming) in network(over, silence, first, &troubles, frames) {
        bed.until(at);
        bed.come(coming);
    }
    bed.until(captured(frames, 0) + Duration::from_secs(1));
    let words = (calm..frames - EVERY).filter(|frame| is_voiced(*frame) && !is_voiced(frame - 1));
    let truths: Vec<u64> = words.map(|frame| truth(over, frame, 0)).collect();
    prop_assert!(truths.len() >= 4);
    for expected in &truths {
        let heard = bed.heard_at(*expected);
        let off = heard.map(|heard| Samples(heard.abs_diff(*expected)).ms());
        prop_assert!(
            off.is_some_and(|off| off <= CLOSE_MS),
            "{off:?} ms off, {heard:?} for {expected}"
        );
    }
    let starts: Vec<Option<u64>> = bed
        .turns
        .iter()
        .filter(|turn| turn.role == Role::User)
        .map(|turn| turn.start_ms)
        .collect();
    let anew = troubles
        .iter()
        .any(|(_, trouble)| matches!(trouble, Trouble::NewSource));
    let from = Samples(truths[0]).ms();
    let late: Vec<u64> = starts
        .iter()
        .flatten()
        .copied()
        .filter(|start| start + CLOSE_MS >= from)
        .collect();
    prop_assert!(anew || !late.is_empty(), "{starts:?} {:?}", bed.turns);
    for start in late {
        let nearest = truths
            .iter()
            .map(|at| Samples(*at).ms().abs_diff(start))
            .min();
        let last = truths.last().map_or(0, |at| Samples(*at).ms());
        prop_assert!(
            start > last + CLOSE_MS || nearest.is_some_and(|off| off <= CLOSE_MS),
            "a turn at {start}, {nearest:?} ms off"
        );
    }
    Ok(())
}

/// Eight seconds in which places are put right.
const EIGHT_SECONDS: u64 = 400;

/// The first piece of a stream tells its place, and comes late when the network held the beginning back.
#[test]
fn a_stream_whose_beginning_was_held_back_is_put_right() {
    for over in ALL {
        for silence in [Silence::Sent, Silence::Suppressed, Silence::Noise] {
            for frames in 2..40 {
                let mut troubles = vec![(0, Trouble::Stalled(frames))];
                stays_aligned(over, silence, (0, 0, 0), troubles.clone(), EIGHT_SECONDS).unwrap();
                // The same of a source that takes the first one's place, in its words and between them.
                troubles.insert(0, (100 + frames, Trouble::NewSource));
                stays_aligned(over, silence, (0, 0, 0), troubles, EIGHT_SECONDS).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn what_a_network_does_leaves_the_callers_side_where_it_was_said(
        over in prop::sample::select(&ALL[..]),
        silence in prop::sample::select(&[Silence::Sent, Silence::Sent, Silence::Suppressed, Silence::Noise][..]),
        first in first(),
        troubles in prop::collection::vec((0..120_u64, trouble()), 1..6),
    ) {
        stays_aligned(over, silence, first, troubles, EIGHT_SECONDS)?;
    }

    /// Short pauses are found together, by two spans of 3 s that agree, and are put right in the next silence.
    #[test]
    fn senders_whose_clock_stands_still_in_a_pause_stay_where_they_were_said(
        over in prop::sample::select(&ALL[..]),
        silence in prop::sample::select(&[Silence::Sent, Silence::Suppressed, Silence::Noise, Silence::Standing][..]),
        first in first(),
        troubles in prop::collection::vec((0..120_u64, standing()), 1..10),
    ) {
        stays_aligned(over, silence, first, troubles, EIGHT_SECONDS + 2 * EVERY)?;
    }
}

/// A pause of 200 ms and more is put right with the packets that show it, not seconds later.
#[test]
fn a_long_pause_of_a_standing_clock_is_put_right_with_the_first_word_behind_it() {
    for over in ALL {
        for silence in [Silence::Sent, Silence::Standing] {
            for paused in [11, 45, 100, 250] {
                // Behind a second word: the next one is the first of the truths.
                let troubles = [(300, Trouble::Standing(paused))];
                let frames = 300 + paused + 5 * EVERY;
                let mut bed = Bed::new(over);
                for (at, coming) in network(over, silence, (7, 8, 9), &troubles, frames) {
                    bed.until(at);
                    bed.come(coming);
                }
                bed.until(captured(frames, 0) + Duration::from_secs(1));
                let words = (300 + paused..frames - EVERY)
                    .filter(|frame| is_voiced(*frame) && !is_voiced(frame - 1));
                for frame in words {
                    let expected = truth(over, frame, 0);
                    let off = bed
                        .heard_at(expected)
                        .map(|heard| Samples(heard.abs_diff(expected)).ms());
                    assert!(
                        off.is_some_and(|off| off <= CLOSE_MS),
                        "{over:?} {silence:?} {paused}: {off:?} ms off at frame {frame}"
                    );
                }
            }
        }
    }
}

/// 100 parts in a million are 120 ms in twenty minutes.
#[test]
fn a_telephone_whose_clock_drifts_stays_in_its_place() {
    let over = Over::Telephone(Codec::Pcmu);
    for ppm in [100, -100] {
        let mut bed = Bed::new(over);
        let frames = 60_000;
        for frame in 0..frames {
            // The very first is late: it had to find its way.
            let late = if frame == 0 { 80 } else { frame * 7 % 5 };
            bed.until(
                bed.now
                    .max(captured(frame, ppm) + WAY + Duration::from_millis(late)),
            );
            bed.come(Coming::Packet {
                frame,
                noise: false,
                sequence: frame as u16,
                timestamp: frame as u32 * 160,
                ssrc: 99,
            });
        }
        for frame in
            (400..frames - EVERY).filter(|frame| is_voiced(*frame) && !is_voiced(frame - 1))
        {
            let expected = truth(over, frame, ppm);
            let heard = bed.heard_at(expected);
            let off = heard.map(|heard| Samples(heard.abs_diff(expected)).ms());
            assert!(
                off.is_some_and(|off| off <= CLOSE_MS),
                "{ppm} ppm: {off:?} ms off at frame {frame}"
            );
        }
    }
}
