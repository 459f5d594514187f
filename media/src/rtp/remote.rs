//! From where packets are taken, and where ours go.
//!
//! The other side says in its SDP where it receives; behind a NAT its packets come from elsewhere, and
//! ours must go there (symmetric RTP, RFC 4961). A stranger who guesses the port must not become the
//! other side by that. While the source that is known sends, no other is taken, and within the first packets of a stream
//! alone it may be anybody's. Later another one is learnt where the known one has been silent for two seconds, or has
//! said that it leaves, and the other sends as a telephone does; or where the known side's reports name its stream. The
//! address of the SDP is always believed. Encrypted packets are told by their key: whoever has it is the other side.

use core::net::SocketAddr;
use std::time::Duration;

use crate::time::Time;

/// Packets within which another source than the SDP's is learnt: enough for a NAT's first ones to be
/// lost, too few to be found by chance.
const LEARNING: u8 = 5;

/// After so long without a packet of the known source another that is steady is learnt: a server for music on hold took
/// over, or a NAT forgot its mapping.
const SILENT: Duration = Duration::from_secs(2);

/// Packets in their order that make a source steady, and the time that they have to take for each: nobody sends more than
/// one in 10 ms, a little jitter aside.
const STEADY: u16 = 5;
const APART: Duration = Duration::from_millis(7);

/// A packet so far ahead goes on with the stream before it.
const FOLLOWS: u16 = 50;

/// A stream that goes on from elsewhere may have lost so many packets meanwhile: a minute of 20 ms.
const GOES_ON: u16 = 3_000;

/// A source that is not known and has sent nothing for so long has its place taken by another.
const STALE: Duration = Duration::from_millis(500);

/// A packet's stream, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub ssrc: u32,
    pub sequence: u16,
}

/// The other end of a call's media.
#[derive(Clone, Debug)]
pub struct RemoteMedia {
    /// What its SDP says.
    told: SocketAddr,
    /// From where its packets come.
    found: Option<SocketAddr>,
    /// Packets taken of the stream, up to [`LEARNING`].
    taken: u8,
    last: Time,
    newest: Option<Numbered>,
    /// It has said that it leaves.
    left: bool,
    other: Option<Other>,
}

/// A source that is not known.
#[derive(Clone, Copy, Debug)]
struct Other {
    from: SocketAddr,
    newest: Numbered,
    /// Packets in their order since then.
    count: u16,
    since: Time,
    last: Time,
    /// It goes on with the stream that is known.
    goes_on: bool,
}

impl RemoteMedia {
    pub const fn new(told: SocketAddr) -> Self {
        Self {
            told,
            found: None,
            taken: 0,
            last: Time::from_micros(0),
            newest: None,
            left: false,
            other: None,
        }
    }

    /// A new SDP: the address it says is learnt from anew.
    pub fn renew(&mut self, told: SocketAddr) {
        if told != self.told {
            *self = Self::new(told);
        } else {
            self.taken = 0;
            (self.left, self.other) = (false, None);
        }
    }

    /// Whether a packet from this source is the other side's: one that came in plain, and is one of the call's.
    pub fn takes(&mut self, now: Time, from: SocketAddr, packet: Numbered) -> bool {
        let known = self.is_known(from) || self.taken < LEARNING;
        if !known && !self.is_next(now, from, packet) {
            return false;
        }
        self.sent(now, from, Some(packet));
        true
    }

    /// Whether a report from this source is the other side's, whose audio comes from `audio`. Reports are too seldom to
    /// show a source: another than the known ones has to be at the same host.
    pub fn takes_report(&mut self, now: Time, from: SocketAddr, audio: SocketAddr) -> bool {
        let known = self.is_known(from) || from.ip() == audio.ip();
        if known {
            self.sent(now, from, None);
        }
        known
    }

    /// Whether this is the source that is known, or the SDP's; while none is known, anybody's may be.
    pub fn is_known(&self, from: SocketAddr) -> bool {
        from == self.told || self.found.is_none_or(|found| found == from)
    }

    /// A packet came from there whose key is the other side's.
    pub fn sent(&mut self, now: Time, from: SocketAddr, packet: Option<Numbered>) {
        // Who sends has not left: a goodbye was that of a stream.
        if packet.is_some() || self.found != Some(from) {
            self.left = false;
        }
        self.last = now;
        self.taken = if from == self.told {
            // Nobody else can be right.
            LEARNING
        } else {
            (self.taken + 1).min(LEARNING)
        };
        self.found = Some(from);
        self.newest = packet.or(self.newest);
        self.other = None;
    }

    /// The known side's reports say that this stream is over.
    pub fn leaves(&mut self, ssrc: u32) {
        self.left |= self.newest.is_some_and(|newest| newest.ssrc == ssrc);
    }

    /// The known side's reports say that it sends this stream. One that comes from elsewhere is its own.
    pub fn names(&mut self, ssrc: u32) {
        let is_new = self.newest.is_none_or(|newest| newest.ssrc != ssrc);
        if let Some(other) = self.other
            && other.newest.ssrc == ssrc
            && is_new
        {
            self.found = Some(other.from);
            (self.newest, self.last) = (Some(other.newest), other.last);
            (self.left, self.other) = (false, None);
        }
    }

    /// Where our packets go.
    pub fn address(&self) -> SocketAddr {
        self.found.unwrap_or(self.told)
    }

    /// A packet of a source that is not known: whether that takes the place of the known one.
    fn is_next(&mut self, now: Time, from: SocketAddr, packet: Numbered) -> bool {
        let follows = |before: Numbered, most: u16| {
            let ahead = packet.sequence.wrapping_sub(before.sequence);
            before.ssrc == packet.ssrc && (1..=most).contains(&ahead)
        };
        let goes_on = self.newest.is_some_and(|newest| follows(newest, GOES_ON));
        let begin = Other {
            from,
            newest: packet,
            count: 1,
            since: now,
            last: now,
            goes_on,
        };
        let silent = self.left || now - self.last >= SILENT;
        let other = match &mut self.other {
            Some(other) if other.from == from => {
                if follows(other.newest, FOLLOWS) && now - other.last < STALE {
                    other.count = other.count.saturating_add(1);
                    (other.newest, other.last) = (packet, now);
                } else {
                    *other = begin;
                }
                other
            }
            // Whoever goes on with the stream is nearer to it than others; else who is here first.
            Some(other) if now - other.last < STALE && (other.goes_on || !goes_on) => {
                return false;
            }
            place => place.insert(begin),
        };
        if other.count < STEADY {
            return false;
        }
        let least = APART * u32::from(other.count - 1);
        if now - other.since < least {
            // Faster than sound.
            *other = begin;
            return false;
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOLD: &str = "192.0.2.1:4000";
    const NAT: &str = "198.51.100.7:61000";
    const STRANGER: &str = "203.0.113.9:5";

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    const fn of(ssrc: u32, sequence: u16) -> Numbered {
        Numbered { ssrc, sequence }
    }

    const fn start() -> Time {
        Time::from_millis(100_000)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Whether each packet of a call that began then is taken, 20 ms apart. Each source has a stream of its own.
    fn run(peer: &mut RemoteMedia, start: Time, from: &[&str]) -> Vec<bool> {
        (0..)
            .zip(from)
            .map(|(packet, from)| {
                let now = start + ms(20 * packet);
                let ssrc = u32::from(at(from).port());
                peer.takes(now, at(from), of(ssrc, packet as u16))
            })
            .collect()
    }

    #[test]
    fn the_address_of_the_sdp_locks_at_once() {
        let mut peer = RemoteMedia::new(at(TOLD));
        assert_eq!(peer.address(), at(TOLD));
        assert_eq!(run(&mut peer, start(), &[TOLD, STRANGER]), [true, false]);
        assert_eq!(peer.address(), at(TOLD));
    }

    #[test]
    fn a_nat_is_learnt_within_five_packets_and_then_nobody_else() {
        let mut peer = RemoteMedia::new(at(TOLD));
        assert!(
            run(&mut peer, start(), &[NAT; 5])
                .iter()
                .all(|taken| *taken)
        );
        assert_eq!(peer.address(), at(NAT));
        assert_eq!(
            run(&mut peer, start() + ms(100), &[STRANGER, NAT, STRANGER]),
            [false, true, false]
        );
        // The SDP's own address is never a stranger, and then the NAT's is one.
        assert_eq!(
            run(&mut peer, start() + ms(200), &[TOLD, NAT]),
            [true, false]
        );
        // Another SDP is learnt from anew.
        peer.renew(at(TOLD));
        assert!(peer.takes(start() + ms(300), at(STRANGER), of(1, 1)));
        peer.renew(at("192.0.2.2:9"));
        assert_eq!(peer.address(), at("192.0.2.2:9"));
    }

    #[test]
    fn a_source_that_moves_is_followed_after_two_seconds() {
        // A server for music on hold with a stream of its own, and a NAT that forgot its mapping: the stream goes on.
        for (ssrc, first) in [(77, 9_000), (4_000, 200)] {
            let mut peer = RemoteMedia::new(at(TOLD));
            run(&mut peer, start(), &[TOLD; 50]);
            let last = start() + ms(49 * 20);
            let taken: Vec<u64> = (1..150_u16)
                .map(|packet| (u64::from(packet) * 20, of(ssrc, first + packet)))
                .filter(|(after, packet)| peer.takes(last + ms(*after), at(STRANGER), *packet))
                .map(|(after, _)| after)
                .collect();
            assert_eq!(taken.first(), Some(&2_000));
            assert_eq!(taken.len(), 50, "and every packet from then on");
            assert_eq!(peer.address(), at(STRANGER));
            // The one before has lost its place, unless it is the SDP's own.
            assert!(!peer.takes(last + ms(3_000), at(NAT), of(5, 5)));
            assert!(peer.takes(last + ms(3_000), at(TOLD), of(4_000, 51)));
        }
    }

    #[test]
    fn while_the_known_source_sends_no_other_is_taken_however_steady() {
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[NAT; 9]);
        // The known one sends little: one packet in 1.9 s.
        for step in 0..3_000_u64 {
            let now = start() + ms(200 + 20 * step);
            if step % 95 == 0 {
                assert!(peer.takes(now, at(NAT), of(61_000, 10 + step as u16)));
            }
            assert!(!peer.takes(now, at(STRANGER), of(1, step as u16)), "{step}");
        }
        assert_eq!(peer.address(), at(NAT));
    }

    #[test]
    fn who_is_not_steady_is_not_learnt_however_long_the_other_is_silent() {
        let long = start() + Duration::from_secs(90);
        type Number = fn(u16) -> Numbered;
        let numbers: [(u64, Number); 4] = [
            // A thousand a second; one in ten seconds; any number; a stream each.
            (1, |n| of(1, n)),
            (10_000, |n| of(1, n)),
            (20, |n| of(1, n.wrapping_mul(7_919))),
            (20, |n| of(n.into(), n)),
        ];
        for (apart, number) in numbers {
            let mut peer = RemoteMedia::new(at(TOLD));
            run(&mut peer, start(), &[TOLD; 9]);
            for n in 0..500 {
                let now = long + ms(apart * u64::from(n));
                assert!(!peer.takes(now, at(STRANGER), number(n)), "{apart} {n}");
            }
        }
    }

    #[test]
    fn a_flood_does_not_keep_the_stream_s_own_new_address_away() {
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[TOLD; 9]);
        let mut taken = 0;
        for step in 0..4_000_u64 {
            let now = start() + ms(200 + step);
            assert!(!peer.takes(now, at(STRANGER), of(1, step as u16)));
            if step.is_multiple_of(20) {
                let packet = of(4_000, 10 + (step / 20) as u16);
                taken += usize::from(peer.takes(now, at(NAT), packet));
            }
        }
        assert!(taken > 90, "{taken}");
        assert_eq!(peer.address(), at(NAT));
    }

    #[test]
    fn reports_of_the_known_side_say_who_is_next() {
        // It says goodbye for the old stream: a steady one follows at once.
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[TOLD; 9]);
        peer.leaves(1);
        assert!(!peer.left, "another's goodbye is none");
        peer.leaves(4_000);
        let next = run(&mut peer, start() + ms(200), &[NAT; 6]);
        assert_eq!(next, [false, false, false, false, true, true]);
        // It names the new one.
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[TOLD; 9]);
        assert!(!peer.takes(start() + ms(200), at(NAT), of(7, 1)));
        peer.names(8);
        assert!(!peer.takes(start() + ms(220), at(NAT), of(7, 2)));
        peer.names(7);
        assert!(peer.takes(start() + ms(240), at(NAT), of(7, 3)));
    }

    #[test]
    fn who_says_goodbye_and_goes_on_has_not_left() {
        // A goodbye for each of its streams; the next has the same name, or another.
        for ssrc in [4_000, 4_001] {
            let mut peer = RemoteMedia::new(at(TOLD));
            run(&mut peer, start(), &[TOLD; 9]);
            peer.leaves(4_000);
            for packet in 9..500 {
                let now = start() + ms(20 * u64::from(packet));
                assert!(peer.takes(now, at(TOLD), of(ssrc, packet)));
                assert!(!peer.takes(now, at(STRANGER), of(1, packet)), "{packet}");
            }
            assert_eq!(peer.address(), at(TOLD));
        }
        // The same agreement again forgets the goodbye and who was about to follow; the first may be anybody then.
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[TOLD; 9]);
        peer.leaves(4_000);
        run(&mut peer, start() + ms(200), &[STRANGER; 3]);
        peer.renew(at(TOLD));
        run(&mut peer, start() + ms(300), &[TOLD]);
        let strangers = run(&mut peer, start() + ms(320), &[STRANGER; 50]);
        assert!(strangers.iter().all(|taken| !taken));
        // Nor does the goodbye of the one before hold for the one that was named.
        let mut peer = RemoteMedia::new(at(TOLD));
        run(&mut peer, start(), &[TOLD; 9]);
        assert!(!peer.takes(start() + ms(200), at(NAT), of(7, 1)));
        peer.leaves(4_000);
        peer.names(7);
        assert_eq!(peer.address(), at(NAT));
        let strangers = run(&mut peer, start() + ms(220), &[STRANGER; 50]);
        assert!(strangers.iter().all(|taken| !taken));
    }

    #[test]
    fn reports_come_from_where_they_are_told_or_from_beside_the_audio() {
        let audio = at(NAT);
        let mut reports = RemoteMedia::new(at("192.0.2.1:4001"));
        assert!(reports.takes_report(start(), at("192.0.2.1:4001"), audio));
        for (from, taken) in [
            (STRANGER, false),
            ("198.51.100.7:61001", true),
            (STRANGER, false),
            ("192.0.2.1:4001", true),
        ] {
            let long = start() + Duration::from_secs(3_600);
            assert_eq!(reports.takes_report(long, at(from), audio), taken, "{from}");
        }
    }

    proptest! {
        /// Whatever strangers send, the known source stays while it sends once in two seconds.
        #[test]
        fn strangers_never_take_a_place_that_is_held(
            packets in proptest::collection::vec((0..1_900_u64, 0..4_u16, 0..3_u32, any::<u16>()), 0..300),
        ) {
            let mut peer = RemoteMedia::new(at(TOLD));
            run(&mut peer, start(), &[TOLD; 9]);
            let (mut now, mut last) = (start() + ms(160), start() + ms(160));
            for (wait, port, ssrc, sequence) in packets {
                now = now + ms(wait % 40);
                if now - last >= ms(1_900) {
                    last = now;
                    prop_assert!(peer.takes(now, at(TOLD), of(4_000, sequence)));
                }
                let from = SocketAddr::new(at(STRANGER).ip(), port);
                prop_assert!(!peer.takes(now, from, of(ssrc, sequence)));
            }
            prop_assert_eq!(peer.address(), at(TOLD));
        }
    }
}
