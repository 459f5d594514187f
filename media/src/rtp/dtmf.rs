//! Keypad digits: as events between the audio (RFC 4733), and as tones in it (ITU-T Q.23).

use crate::audio::keypad::{Tones, energy};
use crate::frame::FRAME;
use crate::time::Time;

/// The keys in the order of their event numbers (RFC 4733 section 3.2).
const KEYS: [char; 16] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '*', '#', 'A', 'B', 'C', 'D',
];

/// Bytes of an event's payload.
pub const EVENT: usize = 4;

/// An event packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub number: u8,
    pub end: bool,
    /// 0 to 63, dBm0 without its sign.
    pub volume: u8,
    /// Since the event's timestamp, in units of it.
    pub duration: u16,
}

impl Event {
    /// `None`: cut short.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; EVENT] = payload.first_chunk()?;
        Some(Self {
            number: bytes[0],
            end: bytes[1] & 0x80 != 0,
            volume: bytes[1] & 0x3f,
            duration: u16::from_be_bytes([bytes[2], bytes[3]]),
        })
    }

    pub fn to_bytes(self) -> [u8; EVENT] {
        let [high, low] = self.duration.to_be_bytes();
        let flags = u8::from(self.end) << 7 | self.volume & 0x3f;
        [self.number, flags, high, low]
    }
}

/// The event number of a key.
pub fn number(key: char) -> Option<u8> {
    let key = key.to_ascii_uppercase();
    KEYS.iter().position(|k| *k == key).map(|at| at as u8)
}

/// The key of an event number; `None`: a tone that no key makes (flash, modem tones).
pub fn key(number: u8) -> Option<char> {
    KEYS.get(usize::from(number)).copied()
}

/// Hears digits in the event packets of one stream: each once, however often its packets are repeated and however long
/// it is pressed.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    /// The newest events, the newest first.
    heard: [Option<ReceivedEvent>; REMEMBERED],
    /// The number of the newest packet.
    sequence: u16,
    /// Numbers and timestamps have begun anew since.
    anew: bool,
}

/// Events of one stream whose packets are still known: more are not on their way at a time.
const REMEMBERED: usize = 4;

/// An event, or a segment of one; all of its packets share the timestamp.
#[derive(Clone, Copy, Debug)]
struct ReceivedEvent {
    timestamp: u32,
    number: u8,
    /// The longest that was told.
    duration: u16,
    end: bool,
}

/// A packet whose number is so little behind the newest was overtaken. What is farther behind is of numbers that begin
/// anew.
const OVERTAKEN: u16 = 512;

impl Listener {
    /// An event packet came. The key, if this is the first of it.
    pub fn hear(&mut self, sequence: u16, timestamp: u32, payload: &[u8]) -> Option<char> {
        let event = Event::parse(payload)?;
        let before = self.heard[0];
        let behind = self.sequence.wrapping_sub(sequence);
        let overtaken = before.is_some() && !self.anew && behind <= OVERTAKEN;
        if !overtaken {
            self.sequence = sequence;
        }
        let same = self.heard.iter().position(|heard| {
            heard.is_some_and(|heard| (heard.timestamp, heard.number) == (timestamp, event.number))
        });
        if let Some(at) = same
            && let Some(heard) = &mut self.heard[at]
        {
            // Some senders give all of their events one timestamp: one that begins behind its end is another.
            let again = !overtaken && heard.end && !event.end && event.duration < heard.duration;
            if !again {
                heard.duration = heard.duration.max(event.duration);
                heard.end |= event.end;
                return None;
            }
        } else if overtaken {
            return None;
        }
        self.anew = false;
        self.heard.rotate_right(1);
        self.heard[0] = Some(ReceivedEvent {
            timestamp,
            number: event.number,
            duration: event.duration,
            end: event.end,
        });
        if before.is_some_and(|before| before.is_continued(timestamp, event.number)) {
            return None;
        }
        key(event.number)
    }

    /// Whether the listener has heard of this event.
    pub fn knows(&self, timestamp: u32, payload: &[u8]) -> bool {
        Event::parse(payload).is_some_and(|event| {
            let same = |heard: &ReceivedEvent| {
                (heard.timestamp, heard.number) == (timestamp, event.number)
            };
            self.heard.iter().flatten().any(same)
        })
    }

    /// The stream counts anew: its numbers and timestamps have nothing to do with those before.
    pub fn begin_anew(&mut self) {
        self.anew = true;
    }
}

impl ReceivedEvent {
    /// Whether an event that begins here is this one's next segment: a key that is pressed for longer than a
    /// duration can tell goes on right after the longest (RFC 4733 section 2.5.1.3), of which the last packets
    /// may be lost.
    fn is_continued(&self, timestamp: u32, number: u8) -> bool {
        let passed = timestamp.wrapping_sub(self.timestamp);
        !self.end
            && self.number == number
            && passed != 0
            && (passed == u32::from(self.duration) || passed == u32::from(u16::MAX))
    }
}

/// How long a digit of ours is pressed, and the pause after it, ms: what every receiver takes for two
/// (ITU-T Q.24 asks for 40 and 40).
const PRESS_MS: u32 = 160;
const PAUSE_MS: u32 = 100;
/// Between packets of an event, ms.
const STEP_MS: u32 = 20;
/// The end is told so often (RFC 4733 section 2.5.1.4), for nothing else tells it.
const ENDS: u32 = 3;
/// −10 dBm0.
const VOLUME: u8 = 10;

/// Digits that may wait to be sent.
pub const MOST_WAITING: usize = 128;

/// Sends digits as event packets.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    waiting: std::collections::VecDeque<u8>,
    /// The digit that is being pressed.
    pressed: Option<Pressed>,
    next: Time,
}

#[derive(Clone, Copy, Debug)]
struct Pressed {
    number: u8,
    timestamp: u32,
    /// Packets sent of it.
    sent: u32,
}

/// A packet of an event, to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSend {
    pub payload: [u8; EVENT],
    /// The event's first sample; the same in all of its packets.
    pub timestamp: u32,
    /// Set on the first packet of an event.
    pub marker: bool,
}

impl Sender {
    /// Queues a key. `false`: no key, or too many wait.
    pub fn press(&mut self, now: Time, key: char) -> bool {
        let Some(number) = number(key).filter(|_| self.waiting.len() < MOST_WAITING) else {
            return false;
        };
        if !self.is_busy() {
            self.next = self.next.max(now);
        }
        self.waiting.push_back(number);
        true
    }

    /// Whether digits are under way: no audio is sent meanwhile.
    pub fn is_busy(&self) -> bool {
        self.pressed.is_some() || !self.waiting.is_empty()
    }

    /// When [`send`](Self::send) has something.
    pub fn deadline(&self) -> Time {
        if self.is_busy() {
            self.next
        } else {
            Time::NEVER
        }
    }

    /// The packet that is due. `timestamp`: that of audio sent now, for an event that begins;
    /// `clock`: timestamps a second.
    pub fn send(&mut self, now: Time, timestamp: u32, clock: u32) -> Option<ToSend> {
        if now < self.next {
            return None;
        }
        let mut pressed = match self.pressed {
            Some(pressed) => pressed,
            None => Pressed {
                number: self.waiting.pop_front()?,
                timestamp,
                sent: 0,
            },
        };
        let steps = PRESS_MS / STEP_MS;
        pressed.sent += 1;
        let end = pressed.sent >= steps;
        let ms = STEP_MS * pressed.sent.min(steps);
        let event = Event {
            number: pressed.number,
            end,
            volume: VOLUME,
            duration: u16::try_from(ms * clock / 1000).unwrap_or(u16::MAX),
        };
        let over = pressed.sent == steps + ENDS - 1;
        self.pressed = (!over).then_some(pressed);
        let wait = match (over, end) {
            (true, _) => PAUSE_MS,
            // Copies of the end follow each other closely.
            (false, true) => STEP_MS / 4,
            (false, false) => STEP_MS,
        };
        self.next = now + std::time::Duration::from_millis(wait.into());
        Some(ToSend {
            payload: event.to_bytes(),
            timestamp: pressed.timestamp,
            marker: pressed.sent == 1,
        })
    }
}

/// Frames that must agree: 40 ms, the shortest key of ITU-T Q.24.
const SURE: u8 = 2;
/// The parts of a frame's energy that both tones have together, and each at least.
const TOGETHER: f32 = 0.8;
const EACH: f32 = 0.12;
/// Quieter frames hold no key: −45 dBFS as a sum of squares.
const FAINT: f32 = 10_800_000.0;

/// Hears keys in the audio, for callers whose telephone sends them as tones.
#[derive(Clone, Debug)]
pub struct Detector {
    frame: [i16; FRAME],
    fill: usize,
    /// The key of the latest frames, and how many agree.
    candidate: Option<char>,
    agree: u8,
    /// It was told.
    told: bool,
}

impl Default for Detector {
    fn default() -> Self {
        Self {
            frame: [0; FRAME],
            fill: 0,
            candidate: None,
            agree: 0,
            told: false,
        }
    }
}

impl Detector {
    /// Audio at 16 kHz. `sink` is called once for each key.
    pub fn hear(&mut self, mut samples: &[i16], mut sink: impl FnMut(char)) {
        while !samples.is_empty() {
            // A whole frame, as most come: it need not be put together.
            if self.fill == 0
                && let Some((frame, rest)) = samples.split_first_chunk()
            {
                samples = rest;
                if let Some(key) = self.judge(key_in(frame)) {
                    sink(key);
                }
                continue;
            }
            let length = samples.len().min(FRAME - self.fill);
            let (now, rest) = samples.split_at(length);
            self.frame[self.fill..self.fill + length].copy_from_slice(now);
            self.fill += length;
            samples = rest;
            if self.fill == FRAME {
                self.fill = 0;
                let key = key_in(&self.frame);
                if let Some(key) = self.judge(key) {
                    sink(key);
                }
            }
        }
    }

    fn judge(&mut self, key: Option<char>) -> Option<char> {
        if key == self.candidate {
            self.agree = self.agree.saturating_add(1);
        } else if key.is_none() && self.told && self.agree != 0 {
            // One frame between two keys may be a drop-out of the first.
            self.agree = 0;
            return None;
        } else {
            *self = Self {
                candidate: key,
                agree: 1,
                told: false,
                ..*self
            };
        }
        if self.agree < SURE || self.told {
            return None;
        }
        self.told = true;
        self.candidate
    }
}

fn key_in(frame: &[i16; FRAME]) -> Option<char> {
    if energy(frame) < FAINT {
        return None;
    }
    let tones = Tones::of(frame);
    tones.hold(TOGETHER, EACH).then(|| tones.key())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::audio::keypad::tests::pressed;
    use crate::audio::tones::{mix, noise, sine};

    #[test]
    fn the_example_of_the_rfc_is_read() {
        // RFC 4733 section 2.3: event 9, volume 7, 1,600 units.
        let event = Event {
            number: 9,
            end: false,
            volume: 7,
            duration: 1600,
        };
        assert_eq!(event.to_bytes(), [9, 7, 0x06, 0x40]);
        assert_eq!(Event::parse(&event.to_bytes()), Some(event));
        assert_eq!(Event::parse(&[9, 7, 6]), None);
        assert_eq!(key(16), None, "flash is no key");
    }

    #[test]
    fn a_digit_is_sent_with_one_timestamp_and_three_ends() {
        let mut sender = Sender::default();
        let start = Time::from_millis(7);
        assert_eq!(sender.deadline(), Time::NEVER);
        assert!(sender.press(start, '5') && sender.press(start, '#'));
        assert!(!sender.press(start, 'x'));
        let (mut now, mut packets) = (start, Vec::new());
        while sender.is_busy() {
            now = now.max(sender.deadline());
            let clock = 1_000 + (now.since(start).as_millis() as u32) * 8;
            packets.push((now, sender.send(now, clock, 8_000).expect("a packet")));
        }
        assert_eq!(packets.len(), 20);
        for (digit, key) in packets.chunks(10).zip(['5', '#']) {
            let events: Vec<Event> = digit
                .iter()
                .map(|(_, packet)| Event::parse(&packet.payload).expect("an event"))
                .collect();
            assert!(
                digit
                    .iter()
                    .all(|(_, p)| p.timestamp == digit[0].1.timestamp)
            );
            assert!(digit[0].1.marker && digit[1..].iter().all(|(_, p)| !p.marker));
            assert!(
                events
                    .iter()
                    .all(|e| e.number == number(key).expect("a key"))
            );
            let durations: Vec<u16> = events.iter().map(|e| e.duration).collect();
            assert_eq!(
                durations,
                [160, 320, 480, 640, 800, 960, 1120, 1280, 1280, 1280]
            );
            let ends: Vec<bool> = events.iter().map(|e| e.end).collect();
            assert_eq!(ends, [vec![false; 7], vec![true; 3]].concat());
        }
        let gap = packets[10].0 - packets[9].0;
        assert_eq!(gap, Duration::from_millis(100));
    }

    #[test]
    fn a_digit_is_heard_once_whatever_is_lost_repeated_or_late() {
        let (mut listener, mut sequence) = (Listener::default(), u16::MAX - 2);
        let mut hear = |ahead: u16, timestamp, payload: &[u8]| {
            sequence = sequence.wrapping_add(ahead);
            listener.hear(sequence, timestamp, payload)
        };
        let packet = |number, end, duration| {
            Event {
                number,
                end,
                volume: 10,
                duration,
            }
            .to_bytes()
        };
        // Its first packets lost; the rest three times.
        let mut heard = String::new();
        for _ in 0..3 {
            heard.extend(hear(1, u32::MAX - 100, &packet(1, true, 800)));
        }
        // The same key again, after number and timestamp have wrapped.
        heard.extend(hear(1, 900, &packet(1, false, 160)));
        heard.extend(hear(1, 900, &packet(1, true, 320)));
        // Overtaken, or sent once more; and the packet before all of them.
        heard.extend(hear(
            0_u16.wrapping_sub(3),
            u32::MAX - 100,
            &packet(1, true, 800),
        ));
        heard.extend(hear(4, u32::MAX - 100, &packet(1, true, 800)));
        heard.extend(hear(0_u16.wrapping_sub(20), 100, &packet(7, true, 800)));
        heard.extend(hear(21, 2_000, &packet(11, true, 320)));
        heard.extend(hear(1, 3_000, &packet(16, true, 320)));
        heard.extend(hear(1, 4_000, &[1]));
        assert_eq!(heard, "11#");
        // Timestamps that begin anew behind those before, in the order of the numbers.
        heard.extend(hear(1, 5, &packet(0, false, 160)));
        heard.extend(hear(1, 5, &packet(0, true, 320)));
        assert_eq!(heard, "11#0");
        // Numbers that begin anew a little behind, as the stream's sound has shown.
        listener.begin_anew();
        heard.extend(listener.hear(0, 5, &packet(0, true, 320)));
        heard.extend(listener.hear(1, 77, &packet(3, true, 320)));
        heard.extend(listener.hear(2, 77, &packet(3, true, 320)));
        assert_eq!(heard, "11#03");
        // Once more, by a few hundred: each of the keys that follow is heard.
        listener.begin_anew();
        let mut sequence = 65_300;
        for (press, number) in (1..).zip([3, 4, 4]) {
            for end in [false, true, true] {
                sequence += 1;
                heard.extend(listener.hear(sequence, press * 9_000, &packet(number, end, 160)));
            }
        }
        assert_eq!(heard, "11#03344");
    }

    #[test]
    fn events_that_share_a_timestamp_are_told_by_their_key_and_their_end() {
        let (mut listener, mut heard) = (Listener::default(), String::new());
        let presses = [5, 5, 6, 5];
        for (sequence, number) in (0..).step_by(6).zip(presses) {
            for (step, duration) in [160, 320, 480, 640, 640, 640].into_iter().enumerate() {
                let event = Event {
                    number,
                    end: step > 2,
                    volume: 10,
                    duration,
                };
                heard.extend(listener.hear(sequence + step as u16, 0, &event.to_bytes()));
            }
        }
        assert_eq!(heard, "5565");
        assert!(listener.knows(0, &[6, 0, 0, 160]) && !listener.knows(1, &[6, 0, 0, 160]));
    }

    #[test]
    fn a_key_held_for_long_is_one_press_and_a_jump_back_makes_nobody_deaf() {
        let packet = |duration, end| {
            Event {
                number: 5,
                end,
                volume: 10,
                duration,
            }
            .to_bytes()
        };
        let (mut listener, mut heard) = (Listener::default(), String::new());
        let mut sequence = 0;
        let mut hear = |timestamp, payload: &[u8]| {
            sequence += 1;
            listener.hear(sequence, timestamp, payload)
        };
        // Three segments; the last packets of the second are lost.
        let start = u32::MAX - 70_000;
        for (segment, durations) in (0..).zip([[160, u16::MAX], [160, 60_000], [160, 4_000]]) {
            let timestamp = start.wrapping_add(segment * u32::from(u16::MAX));
            for duration in durations {
                let packet = packet(duration, segment == 2 && duration == 4_000);
                heard.extend(hear(timestamp, &packet));
            }
        }
        assert_eq!(heard, "5");
        // Pressed again right after its end, it is another.
        let end = start.wrapping_add(2 * u32::from(u16::MAX) + 4_000);
        heard.extend(hear(end, &packet(160, false)));
        assert_eq!(heard, "55");
        // Its end is lost, and after a pause it is pressed again.
        heard.extend(hear(end.wrapping_add(1_600), &packet(160, true)));
        assert_eq!(heard, "555");
        // Somewhere far behind.
        heard.extend(hear(end.wrapping_sub(1 << 20), &packet(160, true)));
        assert_eq!(heard, "5555");
    }

    fn tone(key: char, ms: usize) -> Vec<i16> {
        pressed(key, ms * 16)
    }

    #[test]
    fn keys_are_heard_in_the_audio_each_once() {
        let said = "0123456789*#ABCD1155";
        let mut audio = vec![0; 667];
        for key in said.chars() {
            audio.extend(tone(key, 80));
            audio.extend([0; 16 * 70]);
        }
        let hiss = noise(3, -40.0, audio.len());
        mix(&mut audio, &hiss);
        let (mut detector, mut heard) = (Detector::default(), String::new());
        for piece in audio.chunks(97) {
            detector.hear(piece, |key| heard.push(key));
        }
        assert_eq!(heard, said);
    }

    #[test]
    fn other_sounds_are_no_keys() {
        let mut audio = noise(1, -20.0, 160_000);
        audio.extend(sine(16_000, 697.0, -10.0, 32_000));
        audio.extend(sine(16_000, 1_209.0, -10.0, 32_000));
        // A voice's harmonics.
        let mut voice = sine(16_000, 233.0, -14.0, 80_000);
        for harmonic in 2..12 {
            let level = -14.0 - f64::from(harmonic);
            mix(
                &mut voice,
                &sine(16_000, 233.0 * f64::from(harmonic), level, 80_000),
            );
        }
        audio.extend(voice);
        // Too short for a key.
        audio.extend(tone('5', 15));
        audio.extend([0; 1_600]);
        let mut heard = String::new();
        Detector::default().hear(&audio, |key| heard.push(key));
        assert_eq!(heard, "");
    }
}
