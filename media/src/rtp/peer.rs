//! From where packets are taken, and where ours go.
//!
//! The other side says in its SDP where it receives; behind a NAT its packets come from elsewhere, and
//! ours must go there (symmetric RTP, RFC 4961). A stranger who guesses the port must not become the
//! other side by that: another source is believed only within the first packets of a stream, or after
//! a long silence. The address of the SDP is always believed.

use core::net::SocketAddr;
use std::time::Duration;

use crate::time::Time;

/// Packets within which another source than the SDP's is learnt: enough for a NAT's first ones to be
/// lost, too few to be found by chance.
const LEARNING: u8 = 5;

/// After so long without a packet another source is learnt again: a NAT forgot its mapping.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The other end of a call's media.
#[derive(Clone, Debug)]
pub struct Peer {
    /// What its SDP says.
    told: SocketAddr,
    /// From where its packets come.
    found: Option<SocketAddr>,
    /// Packets taken of the stream, up to [`LEARNING`].
    taken: u8,
    last: Time,
}

impl Peer {
    pub const fn new(told: SocketAddr) -> Self {
        Self {
            told,
            found: None,
            taken: 0,
            last: Time::from_micros(0),
        }
    }

    /// A new SDP: the address it says is learnt from anew.
    pub fn renew(&mut self, told: SocketAddr) {
        if told != self.told {
            *self = Self::new(told);
        } else {
            self.taken = 0;
        }
    }

    /// Whether a packet from this source would be taken. Nothing changes by it.
    pub fn may_send(&self, now: Time, from: SocketAddr) -> bool {
        from == self.told
            || self.found.is_none_or(|found| found == from)
            || self.taken < LEARNING
            || now.since(self.last) >= FORGOTTEN
    }

    /// A packet came from there that is one of the call's: with SRTP, an authentic one.
    pub fn sent(&mut self, now: Time, from: SocketAddr) {
        if now.since(self.last) >= FORGOTTEN {
            self.taken = 0;
        }
        self.last = now;
        self.taken = if from == self.told {
            // Nobody else can be right.
            LEARNING
        } else {
            (self.taken + 1).min(LEARNING)
        };
        self.found = Some(from);
    }

    /// Where our packets go.
    pub fn address(&self) -> SocketAddr {
        self.found.unwrap_or(self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "192.0.2.1:4000";
    const NAT: &str = "198.51.100.7:61000";
    const STRANGER: &str = "203.0.113.9:5";

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Whether each packet of a call that began at 0 is taken, 20 ms apart.
    fn run(peer: &mut Peer, start: Time, from: &[&str]) -> Vec<bool> {
        (0..)
            .zip(from)
            .map(|(packet, from)| {
                let now = start + Duration::from_millis(20 * packet);
                let taken = peer.may_send(now, at(from));
                if taken {
                    peer.sent(now, at(from));
                }
                taken
            })
            .collect()
    }

    #[test]
    fn the_address_of_the_sdp_locks_at_once() {
        let mut peer = Peer::new(at(TOLD));
        let start = Time::from_millis(100_000);
        assert_eq!(peer.address(), at(TOLD));
        assert_eq!(run(&mut peer, start, &[TOLD, STRANGER]), [true, false]);
        assert_eq!(peer.address(), at(TOLD));
    }

    #[test]
    fn a_nat_is_learnt_within_five_packets_and_then_nobody_else() {
        let mut peer = Peer::new(at(TOLD));
        let start = Time::from_millis(100_000);
        assert!(run(&mut peer, start, &[NAT; 5]).iter().all(|taken| *taken));
        assert_eq!(peer.address(), at(NAT));
        assert_eq!(
            run(&mut peer, start, &[STRANGER, NAT, STRANGER]),
            [false, true, false]
        );
        // The SDP's own address is never a stranger, and then the NAT's is one.
        assert_eq!(run(&mut peer, start, &[TOLD, NAT]), [true, false]);
    }

    #[test]
    fn a_rebound_nat_is_learnt_after_a_minute_or_a_new_sdp() {
        let mut peer = Peer::new(at(TOLD));
        let start = Time::from_millis(100_000);
        run(&mut peer, start, &[NAT; 9]);
        let later = start + Duration::from_secs(59);
        assert!(!peer.may_send(later, at(STRANGER)));
        assert!(peer.may_send(later + Duration::from_secs(2), at(STRANGER)));
        peer.renew(at(TOLD));
        assert!(peer.may_send(later, at(STRANGER)));
        assert_eq!(peer.address(), at(NAT), "until a packet says otherwise");
        peer.renew(at("192.0.2.2:9"));
        assert_eq!(peer.address(), at("192.0.2.2:9"));
    }
}
