//! The UDP ports of telephone calls: an even one for audio and the next for reports (RFC 3550 section
//! 11), bound before they are offered, and kept a while after the call, so that the next call does not
//! inherit strangers' packets. Those that nobody was told of are free at once.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::net::UdpSocket;

use super::address;

/// How long a call's ports stay bound after it: what the other side still had under way has come by
/// then.
const DRAIN: Duration = Duration::from_secs(5);

/// How many pairs a call tries that are free as far as we know: other programs may have some, many in a row where
/// another server has the same range. They cost a few system calls each, under the lock.
const TRIES: usize = 256;

/// The ports of one node.
#[derive(Debug)]
pub struct Ports {
    address: IpAddr,
    pool: Mutex<Pool>,
}

#[derive(Debug)]
struct Pool {
    /// The even ports of pairs that no call has, the next one first: all take turns, so that one that was given
    /// back rests longest.
    free: VecDeque<u16>,
    /// Pairs of calls that are over, oldest first. At most all pairs.
    drained: VecDeque<Drained>,
}

#[derive(Debug)]
struct Drained {
    at: Instant,
    port: u16,
    _sockets: (UdpSocket, UdpSocket),
}

impl Ports {
    /// Ports of `address` from `first` to `last`. `None`: there is no pair among them.
    pub fn new(address: IpAddr, first: u16, last: u16) -> Option<Arc<Self>> {
        let first = first.checked_add(first % 2)?;
        let count = u32::from(last).checked_sub(first.into())? + 1;
        let pairs = u16::try_from(count / 2).ok().filter(|pairs| *pairs > 0)?;
        let pool = Pool {
            free: (0..pairs).map(|pair| first + 2 * pair).collect(),
            drained: VecDeque::new(),
        };
        Some(Arc::new(Self {
            address,
            pool: Mutex::new(pool),
        }))
    }

    /// Binds a pair for a call. An error when none is free, or why the last of [`TRIES`] could not be bound.
    pub fn take(self: &Arc<Self>) -> io::Result<PortPair> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        while pool
            .drained
            .front()
            .is_some_and(|drained| drained.at.elapsed() >= DRAIN)
        {
            let rested = pool.drained.pop_front();
            pool.free.extend(rested.map(|drained| drained.port));
        }
        let mut error = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..TRIES.min(pool.free.len()) {
            let Some(port) = pool.free.pop_front() else {
                break;
            };
            match self.bind(port) {
                Ok(sockets) => {
                    return Ok(PortPair {
                        port,
                        told: false,
                        sockets: Some(sockets),
                        home: Arc::clone(self),
                    });
                }
                Err(why) => {
                    pool.free.push_back(port);
                    error = why;
                }
            }
        }
        Err(error)
    }

    fn bind(&self, port: u16) -> io::Result<(UdpSocket, UdpSocket)> {
        let audio = UdpSocket::bind(SocketAddr::new(self.address, port))?;
        let reports = UdpSocket::bind(SocketAddr::new(self.address, port + 1))?;
        Ok((audio, reports))
    }
}

/// More datagrams than a socket's buffer holds of early media.
const STALE: usize = 16_384;

/// A call's two sockets. Dropped, they are drained and then closed; at once where nobody was told of them.
#[derive(Debug)]
pub struct PortPair {
    port: u16,
    told: bool,
    /// Taken only when dropped.
    sockets: Option<(UdpSocket, UdpSocket)>,
    home: Arc<Ports>,
}

impl PortPair {
    /// The port of the audio.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The other side is about to be told of them. Sockets that are listened to count as told of, too.
    pub const fn told(&mut self) {
        self.told = true;
    }

    /// Throws away what came so far: early media is not the callee's voice. At most [`STALE`] datagrams of
    /// each socket; a flood that fills them faster is the call's own to bear.
    pub fn discard(&mut self) {
        let mut datagram = [0; 1];
        for socket in self
            .sockets
            .iter()
            .flat_map(|(audio, reports)| [audio, reports])
        {
            // A datagram that is cut off is thrown away whole.
            let came = (0..STALE).take_while(|_| socket.recv_from(&mut datagram).is_ok());
            came.for_each(drop);
        }
    }

    /// An address as the sockets send to it.
    pub(super) fn way_to(&self, to: SocketAddr) -> SocketAddr {
        address::way_to(self.home.address, to)
    }

    pub(super) const fn sockets(&mut self) -> Option<&mut (UdpSocket, UdpSocket)> {
        // Asked for at every packet: written once.
        if !self.told {
            self.told = true;
        }
        self.sockets.as_mut()
    }
}

impl Drop for PortPair {
    fn drop(&mut self) {
        let Some(sockets) = self.sockets.take() else {
            return;
        };
        let pool = self.home.pool.lock();
        let mut pool = pool.unwrap_or_else(PoisonError::into_inner);
        let port = self.port;
        if self.told {
            pool.drained.push_back(Drained {
                at: Instant::now(),
                port,
                _sockets: sockets,
            });
        } else {
            // Before it is free, or the next call finds it bound.
            drop(sockets);
            pool.free.push_back(port);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_pair_is_even_and_rests_after_its_call() {
        let ports = Ports::new(LOOPBACK, 41_001, 41_008).unwrap();
        let mut taken: Vec<PortPair> = (0..3).map(|_| ports.take().unwrap()).collect();
        taken.iter_mut().for_each(PortPair::told);
        let numbers: Vec<u16> = taken.iter().map(PortPair::port).collect();
        assert_eq!(numbers, [41_002, 41_004, 41_006]);
        assert!(ports.take().is_err(), "all are in use");
        drop(taken);
        assert!(ports.take().is_err(), "they rest");
        let mut pool = ports.pool.lock().unwrap();
        assert_eq!(pool.drained.len(), 3);
        for Drained { at, .. } in &mut pool.drained {
            *at = at.checked_sub(DRAIN).unwrap();
        }
        drop(pool);
        assert_eq!(ports.take().unwrap().port(), 41_002);
    }

    #[test]
    fn a_pair_that_nobody_was_told_of_is_free_at_once() {
        let ports = Ports::new(LOOPBACK, 41_031, 41_034).unwrap();
        for _ in 0..10 {
            drop(ports.take().unwrap());
        }
    }

    #[test]
    fn a_call_looks_past_many_ports_of_others_and_no_further() {
        const PAIRS: usize = 500;
        let ports = Ports::new(LOOPBACK, 31_000, 31_999).unwrap();
        let port = |pair: usize| u16::try_from(31_000 + 2 * pair).unwrap();
        let of_others = |pairs: std::ops::Range<usize>| -> Vec<UdpSocket> {
            let bound = |pair| UdpSocket::bind(SocketAddr::new(LOOPBACK, port(pair))).unwrap();
            pairs.map(bound).collect()
        };
        let before = of_others(0..TRIES - 1);
        assert_eq!(ports.take().unwrap().port(), port(TRIES - 1));
        let behind = of_others(TRIES..PAIRS);
        // Those behind, and then the first ones again.
        let why = ports.take().unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::AddrInUse);
        drop((before, behind));
        ports.take().unwrap();
    }

    #[test]
    fn what_came_before_the_answer_is_thrown_away() {
        let ports = Ports::new(LOOPBACK, 41_011, 41_014).unwrap();
        let mut pair = ports.take().unwrap();
        let tone = std::net::UdpSocket::bind((LOOPBACK, 0)).unwrap();
        for port in [pair.port(), pair.port() + 1] {
            for _ in 0..50 {
                tone.send_to(&[0x80; 172], (LOOPBACK, port)).unwrap();
            }
        }
        pair.discard();
        let (audio, reports) = pair.sockets().unwrap();
        for socket in [&*audio, &*reports] {
            let left = socket.recv_from(&mut [0; 200]).unwrap_err();
            assert_eq!(left.kind(), io::ErrorKind::WouldBlock);
        }
        // What comes now is the callee.
        tone.send_to(&[1; 12], (LOOPBACK, pair.port())).unwrap();
        let (audio, _) = pair.sockets().unwrap();
        assert_eq!(audio.recv_from(&mut [0; 200]).unwrap().0, 12);
    }

    #[test]
    fn on_all_addresses_of_ipv6_telephones_of_both_families_are_reached() {
        let ports = Ports::new(IpAddr::from([0_u16; 8]), 41_021, 41_024).unwrap();
        let mut pair = ports.take().unwrap();
        for own in [LOOPBACK, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)] {
            let phone = std::net::UdpSocket::bind((own, 0)).unwrap();
            let timeout = Duration::from_secs(10);
            phone.set_read_timeout(Some(timeout)).unwrap();
            let to = pair.way_to(phone.local_addr().unwrap());
            let from = SocketAddr::new(own, pair.port());
            let (audio, _) = pair.sockets().unwrap();
            audio.send_to(&[1; 12], to).unwrap();
            assert_eq!(phone.recv_from(&mut [0; 200]).unwrap(), (12, from));
        }
    }

    #[test]
    fn a_range_without_a_pair_is_none() {
        assert!(Ports::new(LOOPBACK, 40_000, 40_001).is_some());
        assert!(Ports::new(LOOPBACK, 40_001, 40_002).is_none());
        assert!(Ports::new(LOOPBACK, 40_002, 40_001).is_none());
        assert!(Ports::new(LOOPBACK, 65_535, 65_535).is_none());
    }
}
