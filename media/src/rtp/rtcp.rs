//! Reports (RFC 3550 section 6): what we tell of what we send and receive, and what the other side
//! tells of it. The clock in them is the engine's own, which the RFC allows (section 6.4.1): nothing is
//! compared with it but times that came back.

use crate::time::Time;

/// Reports go out this often, ms (section 6.2: five seconds for two participants).
pub const INTERVAL_MS: u64 = 5_000;

const SENDER: u8 = 200;
const RECEIVER: u8 = 201;
const DESCRIPTION: u8 = 202;
const BYE: u8 = 203;

/// What one side tells of the stream it receives (section 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Whose stream.
    pub ssrc: u32,
    /// Lost since the report before, of 256.
    pub fraction_lost: u8,
    /// Lost in all; 24 bits with a sign.
    pub lost: i32,
    pub highest: u32,
    /// Units of the stream's timestamp.
    pub jitter: u32,
    /// The middle of the latest sender report's time, and 1/65,536 s since it came.
    pub last_report: u32,
    pub since_report: u32,
}

/// What a compound packet tells us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Who tells it.
    pub from: Option<u32>,
    /// The middle 32 bits of the sender's time, to be told back.
    pub sender_time: Option<u32>,
    /// What they say of our stream.
    pub block: Option<Block>,
    pub bye: bool,
    /// The stream that is over.
    pub over: Option<u32>,
}

/// Reads a compound packet. `ours`: our stream. `None`: not one.
pub fn parse(mut bytes: &[u8], ours: u32) -> Option<Reports> {
    let mut told = Reports::default();
    let mut any = false;
    while let Some(head) = bytes.first_chunk::<4>() {
        if head[0] >> 6 != 2 {
            return None;
        }
        let length = 4 * (1 + usize::from(u16::from_be_bytes([head[2], head[3]])));
        let body = bytes.get(..length)?;
        // The first of a compound packet is a report (section 6.1), or a reduced one (RFC 5506).
        let word = |at: usize| {
            body.get(at..at + 4)
                .and_then(|four| four.try_into().ok())
                .map(u32::from_be_bytes)
        };
        let blocks = usize::from(head[0] & 0x1f);
        let from = match head[1] {
            SENDER => {
                let (high, low) = (word(8)?, word(12)?);
                told.sender_time = Some(high << 16 | low >> 16);
                28
            }
            RECEIVER => 8,
            BYE => {
                told.bye = true;
                told.over = word(4).filter(|_| blocks > 0);
                length
            }
            _ => length,
        };
        if matches!(head[1], SENDER | RECEIVER) {
            told.from = word(4);
            for block in 0..blocks {
                let at = from + 24 * block;
                if word(at)? == ours {
                    let loss = word(at + 4)?;
                    told.block = Some(Block {
                        ssrc: ours,
                        fraction_lost: (loss >> 24) as u8,
                        // The sign is in bit 23.
                        lost: (loss << 8) as i32 >> 8,
                        highest: word(at + 8)?,
                        jitter: word(at + 12)?,
                        last_report: word(at + 16)?,
                        since_report: word(at + 20)?,
                    });
                }
            }
        }
        any = true;
        bytes = &bytes[length..];
    }
    (any && bytes.is_empty()).then_some(told)
}

/// What is told of what we send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub packets: u32,
    pub octets: u32,
    /// The timestamp that belongs to the report's time.
    pub timestamp: u32,
}

/// Appends a compound packet: a report, our canonical name, and `bye` at the end of the call.
pub fn write(
    out: &mut Vec<u8>,
    now: Time,
    ssrc: u32,
    sent: Option<Sent>,
    block: Option<Block>,
    bye: bool,
) {
    let count = u8::from(block.is_some());
    let words = 1 + if sent.is_some() { 5 } else { 0 } + 6 * u16::from(count);
    let kind = if sent.is_some() { SENDER } else { RECEIVER };
    out.extend_from_slice(&[0x80 | count, kind]);
    out.extend_from_slice(&words.to_be_bytes());
    out.extend_from_slice(&ssrc.to_be_bytes());
    if let Some(sent) = sent {
        out.extend_from_slice(&ntp(now).to_be_bytes());
        for word in [sent.timestamp, sent.packets, sent.octets] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
    if let Some(block) = block {
        let lost = block.lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        for word in [
            block.ssrc,
            u32::from(block.fraction_lost) << 24 | lost,
            block.highest,
            block.jitter,
            block.last_report,
            block.since_report,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
    // A canonical name of 8 characters that says nothing of the machine (RFC 7022), an end, padding.
    out.extend_from_slice(&[0x81, DESCRIPTION, 0, 4]);
    out.extend_from_slice(&ssrc.to_be_bytes());
    out.extend_from_slice(&[1, 8]);
    for digit in (0..8).rev() {
        let nibble = ssrc >> (4 * digit) & 0xf;
        out.push(char::from_digit(nibble, 16).map_or(b'0', |c| c as u8));
    }
    out.extend_from_slice(&[0, 0]);
    if bye {
        out.extend_from_slice(&[0x81, BYE, 0, 1]);
        out.extend_from_slice(&ssrc.to_be_bytes());
    }
}

/// The time as reports have it: seconds, and 1/2³² of them.
fn ntp(now: Time) -> u64 {
    let micros = now.as_micros();
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    (seconds << 32) | ((rest << 32) / 1_000_000)
}

/// The middle 32 bits of the time.
fn middle(now: Time) -> u32 {
    (ntp(now) >> 16) as u32
}

/// The round trip that a block tells of, ms (section 6.4.1). `None`: it has had no report of ours, or
/// says what cannot be.
pub fn round_trip_ms(now: Time, block: &Block) -> Option<u32> {
    if block.last_report == 0 {
        return None;
    }
    let units = middle(now)
        .wrapping_sub(block.last_report)
        .wrapping_sub(block.since_report);
    // Clocks of two sides never agree to the last bit: a little less than nothing is nothing.
    if units > u32::MAX - 65_536 / 100 {
        return Some(0);
    }
    let ms = u64::from(units) * 1000 / 65_536;
    (ms < 30_000).then_some(ms as u32)
}

/// What is known of the stream that is received (RFC 3550 appendices A.1, A.3 and A.8).
#[derive(Clone, Copy, Debug)]
pub struct Reception {
    ssrc: u32,
    /// Timestamps a second.
    clock: u32,
    base: u32,
    highest: u32,
    received: u32,
    /// At the report before.
    expected_before: u32,
    received_before: u32,
    transit: Option<u32>,
    /// Sixteenths of a unit of the timestamp.
    jitter: u32,
    report: Option<(u32, Time)>,
    /// Lost and expected when it was asked last.
    lost_before: (u32, u32),
}

impl Reception {
    pub fn new(ssrc: u32, sequence: u16, clock: u32) -> Self {
        // As if the count had gone round once, so that what comes before the first is counted right.
        let first = 0x1_0000 | u32::from(sequence);
        Self {
            ssrc,
            clock,
            base: first,
            highest: first,
            received: 0,
            expected_before: 0,
            received_before: 0,
            transit: None,
            jitter: 0,
            report: None,
            lost_before: (0, 0),
        }
    }

    /// The stream's timestamps count `clock` a second from now on; jitter is measured anew when that is news.
    pub fn count_in(&mut self, clock: u32) {
        if clock != self.clock {
            (self.clock, self.transit, self.jitter) = (clock, None, 0);
        }
    }

    /// A packet came; `timestamp` only of audio.
    pub fn packet(&mut self, now: Time, sequence: u16, timestamp: Option<u32>) {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        if ahead < 0x8000 {
            self.highest = self.highest.wrapping_add(ahead.into());
        }
        self.received = self.received.wrapping_add(1);
        let Some(timestamp) = timestamp else { return };
        let arrival = (now.as_micros() as u128 * u128::from(self.clock) / 1_000_000) as u32;
        let transit = arrival.wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let change = (transit.wrapping_sub(before) as i32).unsigned_abs();
            // A pause or a jump of the sender's clock is no jitter.
            if change < self.clock {
                self.jitter += change;
                self.jitter -= (self.jitter - change + 8) >> 4;
            }
        }
    }

    /// Their sender report came.
    pub fn report_came(&mut self, now: Time, middle: u32) {
        self.report = Some((middle, now));
    }

    /// Jitter, ms.
    pub fn jitter_ms(&self) -> u32 {
        (self.jitter >> 4) * 1000 / self.clock.max(1)
    }

    /// Lost of those expected since the beginning, and expected.
    pub fn lost(&self) -> (u32, u32) {
        let expected = self.highest.wrapping_sub(self.base).wrapping_add(1);
        (expected.saturating_sub(self.received), expected)
    }

    /// Lost of those expected since the last asking, and expected.
    pub fn lost_since(&mut self) -> (u32, u32) {
        let (lost, expected) = self.lost();
        let (lost_before, expected_before) =
            std::mem::replace(&mut self.lost_before, (lost, expected));
        (
            lost.saturating_sub(lost_before),
            expected.saturating_sub(expected_before),
        )
    }

    /// What is told of it now.
    pub fn block(&mut self, now: Time) -> Block {
        let expected = self.highest.wrapping_sub(self.base).wrapping_add(1);
        let lost = i64::from(expected) - i64::from(self.received);
        let (expected_now, received_now) = (
            expected.wrapping_sub(self.expected_before),
            self.received.wrapping_sub(self.received_before),
        );
        (self.expected_before, self.received_before) = (expected, self.received);
        let lost_now = expected_now.saturating_sub(received_now);
        let fraction = (u64::from(lost_now) << 8).checked_div(expected_now.into());
        let (last_report, since_report) = self.report.map_or((0, 0), |(middle, at)| {
            let units = now.since(at).as_micros() * 65_536 / 1_000_000;
            (middle, u32::try_from(units).unwrap_or(u32::MAX))
        });
        Block {
            ssrc: self.ssrc,
            fraction_lost: fraction.unwrap_or(0).min(255) as u8,
            lost: i32::try_from(lost).unwrap_or(i32::MAX),
            highest: self.highest.wrapping_sub(0x1_0000),
            jitter: self.jitter >> 4,
            last_report,
            since_report,
        }
    }
}

/// Streams of one sender that are told apart: more come from no device, and strays must not take the memory.
const MOST_STREAMS: usize = 8;

/// What is known of each stream that comes to one port. The report is about that which has most of the sound: beside it
/// there may be one for keypad events alone, and strays.
#[derive(Clone, Debug, Default)]
pub struct Receptions {
    streams: Vec<Stream>,
    /// Whom the report is about.
    main: usize,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    reception: Reception,
    /// Packets with sound since the report before.
    sound: u32,
    last: Time,
}

impl Receptions {
    /// A packet of a stream came. `sound`: the clock and the timestamp of its audio.
    pub fn packet(&mut self, now: Time, ssrc: u32, sequence: u16, sound: Option<(u32, u32)>) {
        const NARROW: u32 = 8_000;
        let known = self.streams.iter().position(|s| s.reception.ssrc == ssrc);
        let at = known.unwrap_or_else(|| {
            let clock = sound.map_or(NARROW, |(clock, _)| clock);
            let stream = Stream {
                reception: Reception::new(ssrc, sequence, clock),
                sound: 0,
                last: now,
            };
            if self.streams.len() < MOST_STREAMS {
                self.streams.push(stream);
                return self.streams.len() - 1;
            }
            let main = self.main;
            let others = self.streams.iter().enumerate();
            let others = others.filter(|(at, _)| *at != main);
            let oldest = others.min_by_key(|(_, stream)| stream.last);
            let at = oldest.map_or(0, |(at, _)| at);
            self.streams[at] = stream;
            at
        });
        let stream = &mut self.streams[at];
        stream.last = now;
        if let Some((clock, _)) = sound {
            stream.reception.count_in(clock);
            stream.sound = stream.sound.saturating_add(1);
        }
        let timestamp = sound.map(|(_, timestamp)| timestamp);
        stream.reception.packet(now, sequence, timestamp);
    }

    /// Their sender report came, of this stream.
    pub fn report_came(&mut self, now: Time, from: Option<u32>, middle: u32) {
        let stream = self
            .streams
            .iter_mut()
            .find(|stream| from == Some(stream.reception.ssrc));
        if let Some(stream) = stream {
            stream.reception.report_came(now, middle);
        }
    }

    /// A report is due: it is about the stream that has had most of the sound since the one before.
    pub fn choose(&mut self) {
        let streams = self.streams.iter().enumerate();
        let most = streams.max_by_key(|(at, stream)| (stream.sound, *at == self.main, stream.last));
        self.main = most.map_or(0, |(at, _)| at);
        for stream in &mut self.streams {
            stream.sound = 0;
        }
    }

    /// The stream that the report is about.
    pub fn main(&mut self) -> Option<&mut Reception> {
        self.streams.get_mut(self.main).map(|s| &mut s.reception)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let block = Block {
            ssrc: 7,
            fraction_lost: 64,
            lost: -3,
            highest: 70_000,
            jitter: 12,
            last_report: 0x1234_5678,
            since_report: 65_536,
        };
        let sent = Sent {
            packets: 250,
            octets: 40_000,
            timestamp: 9,
        };
        let now = Time::from_millis(1_500);
        for (sent, block, bye) in [
            (Some(sent), Some(block), false),
            (None, Some(block), true),
            (None, None, false),
        ] {
            let mut bytes = Vec::new();
            write(&mut bytes, now, 99, sent, block, bye);
            assert_eq!(bytes.len() % 4, 0);
            let told = parse(&bytes, 7).expect("a report");
            assert_eq!(told.block, block);
            assert_eq!((told.bye, told.over), (bye, bye.then_some(99)));
            assert_eq!(told.from, Some(99));
            assert_eq!(told.sender_time, sent.map(|_| 0x0001_8000));
            assert_eq!(parse(&bytes, 8).expect("a report").block, None);
            for cut in 1..bytes.len() {
                if !cut.is_multiple_of(4) {
                    assert_eq!(parse(&bytes[..cut], 7), None, "{cut}");
                }
            }
        }
    }

    #[test]
    fn a_round_trip_is_what_came_back_less_what_it_lay_there() {
        let sent = Time::from_millis(10_000);
        let block = Block {
            last_report: middle(sent),
            since_report: 65_536 / 2,
            ..Block::default()
        };
        let now = sent + Duration::from_millis(580);
        let ms = round_trip_ms(now, &block).expect("a round trip");
        assert!((79..=80).contains(&ms), "{ms}");
        assert_eq!(round_trip_ms(now, &Block::default()), None);
        let early = sent + Duration::from_micros(499_990);
        assert_eq!(round_trip_ms(early, &block), Some(0));
        assert_eq!(round_trip_ms(sent, &block), None, "half a second early");
    }

    #[test]
    fn loss_and_jitter_are_counted_across_a_wrap() {
        let start = Time::from_millis(50_000);
        let mut reception = Reception::new(7, 65_500, 8_000);
        for count in 0..100_u64 {
            if count % 4 == 3 {
                continue;
            }
            // Every other packet 8 ms late.
            let now = start + Duration::from_millis(20 * count + count % 2 * 8);
            let sequence = 65_500_u16.wrapping_add(count as u16);
            reception.packet(now, sequence, Some(160 * count as u32));
        }
        let block = reception.block(start);
        assert_eq!((block.lost, block.highest), (24, 65_598));
        assert_eq!(block.fraction_lost, (24 * 256 / 99) as u8);
        assert!((3..=8).contains(&reception.jitter_ms()), "{block:?}");
        assert_eq!(reception.block(start).fraction_lost, 0, "none since");
        assert_eq!(reception.lost(), (24, 99));
    }

    #[test]
    fn reports_are_about_the_stream_with_the_sound() {
        let start = Time::from_millis(50_000);
        let mut receptions = Receptions::default();
        let round = |receptions: &mut Receptions, from: u16, sound_of: u32| {
            for count in from..from + 250 {
                let now = start + Duration::from_millis(20 * u64::from(count));
                // One packet in ten of the sound is lost; keys and strays come beside it.
                if !count.is_multiple_of(10) {
                    let sound = Some((8_000, 160 * u32::from(count)));
                    receptions.packet(now, sound_of, count, sound);
                }
                receptions.packet(now, 2, 7 * count, None);
                if count.is_multiple_of(50) {
                    receptions.packet(now, 1_000 + u32::from(count), count, Some((8_000, 7)));
                }
            }
            receptions.choose();
            let main = receptions.main().expect("a stream");
            (main.block(start).ssrc, main.lost_since())
        };
        assert_eq!(round(&mut receptions, 1, 1), (1, (24, 249)));
        assert_eq!(round(&mut receptions, 251, 1), (1, (25, 250)));
        let (ssrc, (lost, _)) = round(&mut receptions, 501, 3);
        assert_eq!((ssrc, lost), (3, 24));
        // In a silence it stays.
        receptions.choose();
        assert_eq!(receptions.main().map(|main| main.ssrc), Some(3));
        receptions.report_came(start, Some(3), 5);
        receptions.report_came(start, Some(9), 6);
        let block = receptions.main().map(|main| main.block(start));
        assert_eq!(block.map(|block| block.last_report), Some(5));
        assert!(receptions.streams.len() <= MOST_STREAMS);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_report_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&bytes, 7);
        }
    }
}
