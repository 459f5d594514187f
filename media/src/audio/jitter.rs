//! Packets of one RTP stream into their order, each at once if it can be: the buffer of a listener that
//! is a machine.
//!
//! A buffer for human ears holds everything back so that playing never stops. Here nobody plays: a
//! packet in its turn is handed out as it comes, and only a hole in the sequence makes what is behind it
//! wait, until the missing packet would be too late at the delay that the network shows now
//! ([`delay`](JitterBuffer::delay)), or packets that are all late at once ([`standing`]). So jitter costs nothing while packets keep their order, and the delay
//! learnt from the jitter is paid for lost and overtaken packets alone.
//!
//! What is handed out covers the stream's time without a hole or an overlap: packets, packets given up
//! ([`Next::Missing`]) and pauses ([`Next::Pause`]) follow one another, so their lengths add up to the
//! distance of the timestamps, and to how long these stood still ([`standing`]).

mod standing;

use std::time::Duration;

use self::standing::{Doubt, Verdict};
use crate::time::Time;

/// Packets that may wait: 1.3 s of 20 ms. What is further ahead than this comes after an outage.
const SLOTS: usize = 64;

/// Room that a slot has from the first packet on that waits in it, bytes: speech never needs more, so that no
/// later one makes it grow.
const ROOM: usize = 320;

/// A missing packet is waited for at least this long after its time, though the network has shown no
/// jitter: two neighbours may always change places.
const LEAST_DELAY: Duration = Duration::from_millis(20);

/// And at most this long: a caller who waits longer for an answer has noticed.
const MOST_DELAY: Duration = Duration::from_millis(300);

/// The worst packet rules the delay for one to two of these spans: 4 s are 200 packets, so fewer than one in
/// a hundred is worse than it, and after a bad time the delay is small again within 8 s.
const SPAN: Duration = Duration::from_secs(4);

/// On top of the worst delay seen.
const MARGIN: Duration = Duration::from_millis(5);

/// A timestamp may be this far ahead of what the clock says and still be the stream's own.
const MOST_AHEAD: Duration = Duration::from_secs(3);

/// Packets behind the expected one whose fate is remembered, to tell a late packet from a duplicate.
const REMEMBERED: u64 = 128;

/// One packet as it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub sequence: u16,
    /// In units of the stream's clock.
    pub timestamp: u32,
    /// How much sound is in it, in units of the stream's clock. 0: none, it only takes a number (a
    /// keypad event, RFC 4733), and is never handed out.
    pub duration: u32,
    pub payload: &'a [u8],
}

/// What comes next in the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    Packet {
        payload: &'a [u8],
        duration: u32,
        /// How long it had waited here for those before it.
        held: Duration,
    },
    /// A packet that is given up. `following`: the packet after it, which may hold a copy of it.
    Missing {
        duration: u32,
        following: Option<&'a [u8]>,
        /// How long the packet behind it had waited.
        held: Duration,
    },
    /// The sender sent nothing for so long (discontinuous transmission), or an outage took it. Its timestamps may have
    /// stood still meanwhile.
    Pause { duration: u64 },
    /// The timestamps begin anew, unrelated to those before.
    Restart,
}

/// What became of the packets, since the stream's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitterCounts {
    /// Packets taken: neither late nor a duplicate.
    pub packets: u64,
    /// Packets given up, those that came late included.
    pub lost: u64,
    /// Packets that came after they had been given up.
    pub late: u64,
    pub duplicates: u64,
}

/// The packets of one stream that wait for their turn.
#[derive(Debug)]
pub struct JitterBuffer {
    /// Units of the stream's clock a second, Hz.
    clock: u32,
    slots: Vec<Slot>,
    /// The next packet to be handed out, and its time if it follows without a pause.
    expected: Option<Place>,
    /// The highest number that came.
    highest: u64,
    /// The length of the packet handed out last.
    duration: u32,
    /// A packet so far ahead that it comes after an outage.
    after: Option<Slot>,
    /// The number that would show that the sender counts anew: after one far off its place.
    strange: Option<u16>,
    /// One bit for each number before the expected one, the nearest lowest: it was handed out.
    fates: u128,
    /// So many of them are known: those since the stream began.
    known: u64,
    arrival: Arrivals,
    counts: JitterCounts,
    restarted: bool,
    /// What came when this number was expected was not given here. Not looked at where packets pass in their turn, which
    /// shows that none is missing.
    skipped: Option<u64>,
    /// What waits is late all at once, and it is not known yet why.
    doubt: Option<Doubt>,
    /// Nor was it known when those before were handed out.
    unknown: bool,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    sequence: u64,
    timestamp: u64,
}

/// One packet; its payload's room is used again.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// 0: the slot is free. Extended numbers start above it.
    sequence: u64,
    timestamp: u64,
    /// 0: it holds no sound and only takes a number.
    duration: u32,
    at: Time,
    payload: Vec<u8>,
}

impl JitterBuffer {
    /// A buffer for a stream whose timestamps count `clock` a second.
    pub fn new(clock: u32) -> Self {
        Self {
            clock: clock.max(1),
            slots: vec![Slot::default(); SLOTS],
            expected: None,
            highest: 0,
            duration: 0,
            after: None,
            strange: None,
            fates: 0,
            known: 0,
            arrival: Arrivals::default(),
            counts: JitterCounts::default(),
            restarted: false,
            skipped: None,
            doubt: None,
            unknown: false,
        }
    }

    /// Whether the packet is the next in its turn, right behind the one before, with nothing else waiting: the
    /// usual case, in which it need not be kept. It is handed out thereby; if not, [`insert`](Self::insert) it.
    pub fn pass(&mut self, now: Time, packet: &Arrival<'_>) -> bool {
        let Some(expected) = self.expected.filter(|_| !self.waits()) else {
            return false;
        };
        let in_turn = packet.sequence == expected.sequence as u16
            && packet.timestamp == expected.timestamp as u32
            && packet.duration > 0
            && !self.unknown
            && !self.is_late(now, expected.timestamp);
        if !in_turn {
            return false;
        }
        self.strange = None;
        self.highest = expected.sequence;
        self.counts.packets += 1;
        self.arrival.note(now, self.time(expected.timestamp));
        self.arrival.last = (now, expected.timestamp);
        self.duration = packet.duration;
        self.passed(
            true,
            expected.sequence + 1,
            expected.timestamp + u64::from(packet.duration),
        );
        true
    }

    /// Takes a packet. Call [`next`](Self::next) until it has nothing, after each.
    pub fn insert(&mut self, now: Time, packet: &Arrival<'_>) {
        let skipped = self.skipped.take();
        let Some(expected) = self.expected else {
            return self.begin(now, packet, false);
        };
        if skipped == Some(expected.sequence) && !self.waits() {
            return self.go_on(now, expected, packet);
        }
        let sequence = extend_sequence(self.highest, packet.sequence);
        if sequence + REMEMBERED <= expected.sequence || sequence == 0 {
            return self.stranger(now, packet);
        }
        let timestamp = extend_timestamp(self.newest(expected), packet.timestamp);
        if sequence < expected.sequence && packet.duration > 0 && timestamp >= expected.timestamp {
            // A number from before on sound that was not said then: the sender counts anew, a little behind.
            return self.stranger(now, packet);
        }
        if sequence < expected.sequence {
            let behind = expected.sequence - sequence - 1;
            if self.fates >> behind & 1 == 1 {
                self.counts.duplicates += 1;
            } else {
                self.fates |= 1 << behind;
                self.counts.late += 1;
                // One from before the first that came was never waited for.
                self.counts.lost += u64::from(behind >= self.known);
                if packet.duration > 0 {
                    self.arrival.note(now, self.time(timestamp));
                }
            }
            return;
        }
        let alone = !self.waits();
        if sequence >= expected.sequence + SLOTS as u64 {
            if !self.is_plausible(now, expected, timestamp) {
                return self.stranger(now, packet);
            }
            if self.after.is_some() {
                // The one before it was not fetched: whoever fills must empty.
                self.counts.lost += 1;
                return;
            }
            let mut slot = Slot::default();
            slot.fill(sequence, timestamp, now, packet);
            self.after = Some(slot);
        } else {
            let slot = &mut self.slots[place(sequence)];
            if slot.sequence == sequence {
                self.counts.duplicates += 1;
                return;
            }
            slot.fill(sequence, timestamp, now, packet);
        }
        self.strange = None;
        self.highest = self.highest.max(sequence);
        self.counts.packets += 1;
        // A keypad event has the timestamp of its beginning, whenever it comes.
        if packet.duration == 0 {
            return;
        }
        let time = self.time(timestamp);
        let late = self.arrival.late(now, time);
        let still_late =
            self.unknown && self.goes_on(timestamp) && late >= standing::LATE.as_micros() as u64;
        if let Some(doubt) = &mut self.doubt {
            doubt.note(now, late);
        } else if alone && self.after.is_none() && (still_late || self.is_late(now, timestamp)) {
            self.doubt = Some(Doubt::new(now, late));
        } else {
            self.unknown &= still_late;
            self.arrival.note(now, time);
        }
    }

    /// What comes next, if it is there or given up by now.
    pub fn next(&mut self, now: Time) -> Option<Next<'_>> {
        if std::mem::take(&mut self.restarted) {
            return Some(Next::Restart);
        }
        if !self.waits() {
            return None;
        }
        if let Some(doubt) = self.doubt {
            let verdict = doubt.verdict(now);
            let stood = match verdict {
                Verdict::Stood(stood) => stood,
                Verdict::Open if !self.is_filling() => return None,
                Verdict::Open | Verdict::Stalled | Verdict::Unknown => Duration::ZERO,
            };
            self.unknown = verdict == Verdict::Unknown;
            self.decided(stood);
            let duration = stood.as_micros() as u64 * u64::from(self.clock) / 1_000_000;
            if duration > 0 {
                return Some(Next::Pause { duration });
            }
        }
        let mut expected = self.expected?;
        let mut here = place(expected.sequence);
        while self.slots[here].sequence == expected.sequence && self.slots[here].duration == 0 {
            self.slots[here].sequence = 0;
            self.passed(true, expected.sequence + 1, expected.timestamp);
            expected = self.expected?;
            here = place(expected.sequence);
        }
        if self.slots[here].sequence == expected.sequence {
            return Some(self.take(now, expected, here));
        }
        let Some(following) = self.following(expected.sequence) else {
            return self.resume(now, expected);
        };
        if self.after.is_none() && now < self.given_up_at(expected, following) {
            return None;
        }
        let held = now - self.slots[following].at;
        let missing = self.slots[following].sequence - expected.sequence;
        let gap = self.slots[following]
            .timestamp
            .saturating_sub(expected.timestamp);
        let duration = (gap / missing).min(u64::from(self.duration)) as u32;
        self.counts.lost += 1;
        self.passed(
            false,
            expected.sequence + 1,
            expected.timestamp + u64::from(duration),
        );
        if duration == 0 {
            // Its place has no room between its neighbours: there is nothing to fill.
            return self.next(now);
        }
        let following = (missing == 1).then_some(&*self.slots[following].payload);
        Some(Next::Missing {
            duration,
            following,
            held,
        })
    }

    /// When a missing packet will be given up, so that [`next`](Self::next) has something though nothing
    /// came.
    pub fn deadline(&self) -> Time {
        let Some(expected) = self.expected.filter(|_| self.waits()) else {
            return Time::NEVER;
        };
        if let Some(doubt) = &self.doubt {
            return doubt.deadline();
        }
        if self.slots[place(expected.sequence)].sequence == expected.sequence {
            return Time::NEVER;
        }
        match self.following(expected.sequence) {
            Some(following) => self.given_up_at(expected, following),
            None => Time::NEVER,
        }
    }

    /// How long after its time a missing packet is waited for: what the network's jitter asks for now.
    pub fn delay(&self) -> Duration {
        self.arrival.delay()
    }

    /// Interarrival jitter (RFC 3550 section 6.4.1).
    pub fn jitter(&self) -> Duration {
        Duration::from_micros(self.arrival.jitter as u64)
    }

    pub const fn counts(&self) -> JitterCounts {
        self.counts
    }

    /// Another stream begins (a new SSRC): what waits of the old one is forgotten, the counts go on.
    pub fn reset(&mut self) {
        for slot in &mut self.slots {
            slot.sequence = 0;
        }
        self.expected = None;
        self.highest = 0;
        self.after = None;
        self.strange = None;
        self.fates = 0;
        self.known = 0;
        self.arrival = Arrivals::default();
        self.restarted = false;
        self.skipped = None;
        self.doubt = None;
        self.unknown = false;
    }

    /// Packets were not given here on purpose, as while a caller holds: those before the next one are neither lost nor
    /// late. Its timestamp tells for how long that was.
    pub fn skip(&mut self) {
        self.skipped = self.expected.map(|expected| expected.sequence);
    }

    /// The stream's timestamps count `clock` a second from now on; to be called when nothing waits.
    pub fn count_in(&mut self, clock: u32) {
        self.clock = clock.max(1);
    }

    fn begin(&mut self, now: Time, packet: &Arrival<'_>, again: bool) {
        if packet.duration == 0 {
            return;
        }
        // A round of numbers and timestamps above zero, so that packets before the first have places.
        let sequence = (1 << 16) + u64::from(packet.sequence);
        let timestamp = (1 << 32) + u64::from(packet.timestamp);
        self.slots[place(sequence)].fill(sequence, timestamp, now, packet);
        self.expected = Some(Place {
            sequence,
            timestamp,
        });
        self.highest = sequence;
        self.duration = packet.duration;
        self.counts.packets += 1;
        self.restarted = again;
        let time = self.time(timestamp);
        self.arrival.note(now, time);
    }

    /// The first packet behind those that were skipped. They may have been more than half a round of numbers, so it is
    /// ahead wherever its own seems to be.
    fn go_on(&mut self, now: Time, expected: Place, packet: &Arrival<'_>) {
        let skipped = packet.sequence.wrapping_sub(expected.sequence as u16);
        let sequence = expected.sequence + u64::from(skipped);
        let timestamp = extend_timestamp(expected.timestamp, packet.timestamp);
        self.slots[place(sequence)].fill(sequence, timestamp, now, packet);
        self.expected = Some(Place {
            sequence,
            ..expected
        });
        self.highest = sequence;
        self.strange = None;
        // One of those that comes yet had been taken, as it were.
        self.fates = u128::MAX;
        self.known += u64::from(skipped);
        self.counts.packets += 1;
        if packet.duration > 0 {
            let time = self.time(timestamp);
            if self.is_late(now, timestamp) {
                // Whoever held tells by the clock how long it was.
                let late = self.arrival.late(now, time);
                self.arrival.shift(late);
            }
            self.arrival.note(now, time);
        }
    }

    /// Whether a packet comes so much later after the one handed out last than its timestamp says.
    fn is_late(&self, now: Time, timestamp: u64) -> bool {
        let (at, before) = self.arrival.last;
        let passed = now - at;
        self.goes_on(timestamp)
            && passed >= standing::LATE
            && passed - standing::LATE >= self.time(timestamp.saturating_sub(before))
    }

    /// Whether a timestamp lies behind that of the packet handed out last. One before it belongs to timestamps that
    /// begin anew: of those nobody can say how late they are.
    fn goes_on(&self, timestamp: u64) -> bool {
        self.arrival.began && timestamp >= self.arrival.last.1
    }

    /// Half of the places are taken: small packets are not held any longer.
    fn is_filling(&self) -> bool {
        let expected = self.expected.map_or(0, |expected| expected.sequence);
        self.after.is_some() || self.highest >= expected + SLOTS as u64 / 2
    }

    /// The sender's clock stood still for so long before what waits here.
    fn decided(&mut self, stood: Duration) {
        self.doubt = None;
        self.arrival.shift(stood.as_micros() as u64);
        let Some(expected) = self.expected else {
            return;
        };
        for sequence in expected.sequence..=self.highest {
            let slot = &self.slots[place(sequence)];
            if slot.sequence == sequence && slot.duration > 0 {
                let (at, time) = (slot.at, self.time(slot.timestamp));
                self.arrival.note(at, time);
            }
        }
    }

    /// A packet far from where the stream is. One may be a stray; a second that follows it shows that
    /// the sender counts anew (RFC 3550 appendix A.1).
    fn stranger(&mut self, now: Time, packet: &Arrival<'_>) {
        // One without sound is no place to begin at.
        if self.strange == Some(packet.sequence) && packet.duration > 0 {
            self.reset();
            return self.begin(now, packet, true);
        }
        self.strange = Some(packet.sequence.wrapping_add(1));
    }

    /// The packet in its turn, or first the pause before it.
    fn take(&mut self, now: Time, expected: Place, here: usize) -> Next<'_> {
        let slot = &mut self.slots[here];
        let pause = slot.timestamp.saturating_sub(expected.timestamp);
        let back = expected.timestamp.saturating_sub(slot.timestamp);
        if pause > 0 && self.arrival.allows(self.clock, pause, slot.at) {
            self.expected = Some(Place {
                timestamp: slot.timestamp,
                ..expected
            });
            return Next::Pause { duration: pause };
        }
        if pause > 0 || back > u64::from(slot.duration) {
            // No clock runs like this: the timestamps mean something else from here on.
            self.expected = Some(Place {
                timestamp: slot.timestamp,
                ..expected
            });
            self.arrival = Arrivals::default();
            self.unknown = false;
            return Next::Restart;
        }
        let (timestamp, duration) = (slot.timestamp, slot.duration);
        slot.sequence = 0;
        let held = now - slot.at;
        self.arrival.last = (slot.at, timestamp);
        self.duration = duration;
        self.passed(true, expected.sequence + 1, timestamp + u64::from(duration));
        Next::Packet {
            payload: &self.slots[here].payload,
            duration,
            held,
        }
    }

    /// Nothing more waits here: goes on behind the outage, if there was one.
    fn resume(&mut self, now: Time, expected: Place) -> Option<Next<'_>> {
        let after = self.after.take()?;
        self.counts.lost += after.sequence - expected.sequence;
        self.fates = 0;
        self.known += after.sequence - expected.sequence;
        let here = place(after.sequence);
        self.expected = Some(Place {
            sequence: after.sequence,
            timestamp: expected.timestamp,
        });
        self.slots[here] = after;
        let expected = self.expected?;
        Some(self.take(now, expected, here))
    }

    /// Whether any packet waits here.
    fn waits(&self) -> bool {
        let behind = self
            .expected
            .is_some_and(|next| self.highest >= next.sequence);
        behind || self.after.is_some()
    }

    fn passed(&mut self, handed_out: bool, sequence: u64, timestamp: u64) {
        self.fates = self.fates << 1 | u128::from(handed_out);
        self.known += 1;
        self.expected = Some(Place {
            sequence,
            timestamp,
        });
    }

    /// The first packet there is behind this number.
    fn following(&self, sequence: u64) -> Option<usize> {
        (sequence + 1..sequence + SLOTS as u64)
            .take_while(|next| *next <= self.highest)
            .map(|next| (next, place(next)))
            .find(|(next, at)| self.slots[*at].sequence == *next && self.slots[*at].duration > 0)
            .map(|(_, at)| at)
    }

    /// When the expected packet is too late; the one in slot `following` shows that it was sent.
    fn given_up_at(&self, expected: Place, following: usize) -> Time {
        let following = &self.slots[following];
        let missing = following.sequence - expected.sequence;
        let gap = following.timestamp.saturating_sub(expected.timestamp);
        if gap > missing * u64::from(self.duration) {
            // The sender paused: the packet's time is not known, only that it is before the other's.
            return following.at + self.delay();
        }
        let since_origin =
            self.arrival.base.as_micros() + self.time(expected.timestamp).as_micros() as u64;
        Time::from_micros(since_origin.saturating_sub(ORIGIN)) + self.delay()
    }

    /// The timestamp that new ones are near to.
    fn newest(&self, expected: Place) -> u64 {
        let newest = &self.slots[place(self.highest)];
        if newest.sequence == self.highest && newest.duration > 0 {
            newest.timestamp
        } else {
            expected.timestamp
        }
    }

    fn is_plausible(&self, now: Time, expected: Place, timestamp: u64) -> bool {
        let pause = timestamp.saturating_sub(expected.timestamp);
        pause > 0 && self.arrival.allows(self.clock, pause, now)
    }

    fn time(&self, timestamp: u64) -> Duration {
        units(self.clock, timestamp)
    }
}

impl Slot {
    fn fill(&mut self, sequence: u64, timestamp: u64, at: Time, packet: &Arrival<'_>) {
        self.sequence = sequence;
        self.timestamp = timestamp;
        self.duration = packet.duration;
        self.at = at;
        self.payload.clear();
        self.payload.reserve(ROOM);
        self.payload.extend_from_slice(packet.payload);
    }
}

/// How packets come against their timestamps.
#[derive(Debug, Default)]
struct Arrivals {
    began: bool,
    /// When timestamp 0 would have come on the fastest way: the least of the two newest spans.
    base: Time,
    /// The least of each span, and the worst delay over the base.
    spans: [Span; 2],
    began_at: Time,
    /// The transit of the packet before, microseconds.
    transit: i64,
    /// RFC 3550's estimate, microseconds.
    jitter: f64,
    /// When the packet handed out last came, and its timestamp.
    last: (Time, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    least: u64,
    worst: u64,
}

impl Arrivals {
    /// A packet came at `now` whose timestamp is `time` after timestamp 0.
    fn note(&mut self, now: Time, time: Duration) {
        let zero = zero(now, time);
        if !self.began {
            self.began = true;
            self.began_at = now;
            self.spans = [Span {
                least: zero,
                worst: 0,
            }; 2];
            self.transit = zero as i64;
        }
        if now - self.began_at >= SPAN {
            self.began_at = now;
            self.spans = [
                Span {
                    least: zero,
                    worst: 0,
                },
                self.spans[0],
            ];
        }
        let [newest, before] = &mut self.spans;
        newest.least = newest.least.min(zero);
        let least = newest.least.min(before.least);
        newest.worst = newest.worst.max(zero - least);
        self.base = Time::from_micros(least);
        let change = (zero as i64 - self.transit).unsigned_abs() as f64;
        self.jitter += (change - self.jitter) / 16.0;
        self.transit = zero as i64;
    }

    /// How much later than the fastest a packet came, microseconds.
    fn late(&self, now: Time, time: Duration) -> u64 {
        zero(now, time).saturating_sub(self.base.as_micros())
    }

    /// Timestamp 0 is so many microseconds later from now on: timestamps stood still.
    fn shift(&mut self, stood: u64) {
        for span in &mut self.spans {
            span.least += stood;
        }
        self.base = Time::from_micros(self.base.as_micros() + stood);
        self.transit = self.transit.saturating_add_unsigned(stood);
    }

    fn delay(&self) -> Duration {
        let worst = self.spans.iter().map(|span| span.worst).max().unwrap_or(0);
        (Duration::from_micros(worst) + MARGIN).clamp(LEAST_DELAY, MOST_DELAY)
    }

    /// Whether the stream's clock can have run this much since the packet handed out last, when the next
    /// one came at `at`.
    fn allows(&self, clock: u32, pause: u64, at: Time) -> bool {
        units(clock, pause) <= at - self.last.0 + MOST_AHEAD
    }
}

/// Times of arrival are counted from here (2^48 microseconds, nine years), so that a timestamp may be
/// larger than the engine is old.
const ORIGIN: u64 = 1 << 48;

/// When timestamp 0 would have come, had it been as fast as the packet of `time` that came at `now`. An origin far above
/// zero keeps it positive whatever the timestamp.
fn zero(now: Time, time: Duration) -> u64 {
    (now.as_micros() + ORIGIN).saturating_sub(time.as_micros() as u64)
}

fn units(clock: u32, count: u64) -> Duration {
    Duration::from_micros((u128::from(count) * 1_000_000 / u128::from(clock)) as u64)
}

fn place(sequence: u64) -> usize {
    (sequence % SLOTS as u64) as usize
}

/// The number nearest to `near` whose low 16 bits are these.
fn extend_sequence(near: u64, low: u16) -> u64 {
    near.saturating_add_signed(i64::from(low.wrapping_sub(near as u16) as i16))
}

/// The same for timestamps.
fn extend_timestamp(near: u64, low: u32) -> u64 {
    near.saturating_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

#[cfg(test)]
mod tests;
