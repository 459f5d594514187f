//! One UDP port for all the WebRTC calls of a media thread: the socket, and whose packets are whose.
//!
//! A STUN request names the call it is for, an answer has the number of a request of ours, and anything
//! else counts only from an address that has answered a check or passed one: packets of strangers reach
//! no call, and no key is tried on them. An address that is a call's goes to another only when it has answered
//! that one's check, for whoever knows one call's password can ask in the name of any address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use rustc_hash::FxHashMap;

use super::super::address::way_to;
use super::super::clock::Clock;
use super::super::counters::{Tallies, count};
use super::super::datagram;
use super::super::mailbox::CallKey;
use super::stun::{Class, Message, Transaction, is_stun};
use crate::time::Time;

/// Datagrams read in one pass, so that a flood does not delay what is due: 1,000 calls send 1,000 in
/// 20 ms.
const BATCH: usize = 1024;

/// Nothing longer is sent by anybody here: an Ethernet frame, and room for a tunnel's idea of one.
const LONGEST: usize = 2048;

/// Room for datagrams is made in pieces of this size, bytes.
const PIECE: usize = 64 << 10;

/// Room for payloads on their way into the core, bytes: it drops each when it has encrypted it, so that the room is
/// used again and again.
const SENT: usize = 4 << 10;

/// The kernel's room for datagrams that wait, each way, bytes: 100 ms of 1,000 calls.
const KERNEL: usize = 2 << 20;

/// Checks of ours that may be unanswered: a call makes a few at a time, and repeats them for seconds.
const MOST_CHECKS: usize = 8192;

/// The WebRTC side of one media thread.
pub(in super::super) struct Net {
    socket: UdpSocket,
    /// What it is bound to.
    own: IpAddr,
    /// Addresses that clients are told.
    pub(super) public: Vec<SocketAddr>,
    names: FxHashMap<String, CallKey>,
    tuples: FxHashMap<SocketAddr, CallKey>,
    checks: FxHashMap<Transaction, (u64, CallKey)>,
    /// Counts the checks: the oldest are forgotten.
    made: u64,
    room: BytesMut,
    sent: BytesMut,
    /// The core's clock at our time zero.
    origin: Instant,
    tallies: Arc<Tallies>,
}

/// A datagram and the call it seems to be for.
pub(in super::super) struct Datagram {
    pub(in super::super) key: CallKey,
    pub(in super::super) from: SocketAddr,
    pub(in super::super) bytes: BytesMut,
}

impl Net {
    /// Listens on `listen`; `public` as in [`WebRtcConfig`](crate::shell::WebRtcConfig), for this thread.
    pub(in super::super) fn bind(
        listen: SocketAddr,
        public: &[SocketAddr],
        clock: Clock,
        tallies: Arc<Tallies>,
    ) -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        // The system may allow less; then it is less.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, KERNEL);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, KERNEL);
        let bound = socket.local_addr()?;
        let public = if public.is_empty() {
            vec![SocketAddr::new(own_address(bound)?, bound.port())]
        } else {
            let with_port = |address: &SocketAddr| match address.port() {
                0 => SocketAddr::new(address.ip(), bound.port()),
                _ => *address,
            };
            public.iter().map(with_port).collect()
        };
        Ok(Self {
            socket: UdpSocket::from_std(socket),
            own: bound.ip(),
            public,
            names: FxHashMap::default(),
            tuples: FxHashMap::default(),
            checks: FxHashMap::default(),
            made: 0,
            room: BytesMut::new(),
            sent: BytesMut::with_capacity(SENT),
            origin: clock.origin(),
            tallies,
        })
    }

    pub(in super::super) fn register(
        &mut self,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Reads what came and hands over what may concern a call. `true`: there is more.
    pub(in super::super) fn receive(&mut self, mut take: impl FnMut(Datagram)) -> bool {
        for _ in 0..BATCH {
            self.room.clear();
            if self.room.capacity() < LONGEST {
                self.room.reserve(PIECE);
            }
            self.room.resize(LONGEST, 0);
            let (length, from) = match datagram::receive(&self.socket, &mut self.room) {
                Ok(received) => received,
                // An ICMP error of an earlier datagram says nothing about the next.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(_) => return false,
            };
            count(&self.tallies.bytes_in, length as u64);
            match self.whose(from, &self.room[..length]) {
                Some(key) => {
                    let bytes = self.room.split_to(length);
                    take(Datagram { key, from, bytes });
                }
                None => count(&self.tallies.strangers, 1),
            }
        }
        true
    }

    /// A payload as the core takes it.
    pub(super) fn payload(&mut self, bytes: &[u8]) -> Bytes {
        self.sent.extend_from_slice(bytes);
        self.sent.split().freeze()
    }

    /// Sends a datagram; what the system does not take at once is lost, as on any network.
    pub(super) fn send(&self, bytes: &[u8], to: SocketAddr) {
        let to = way_to(self.own, to);
        if datagram::send(&self.socket, bytes, to) {
            count(&self.tallies.bytes_out, bytes.len() as u64);
        }
    }

    /// A caller has stopped reading.
    pub(super) fn stalled(&self) {
        count(&self.tallies.stalled, 1);
    }

    /// The time as the core counts it.
    pub(super) fn instant(&self, now: Time) -> Instant {
        self.origin + Duration::from_micros(now.as_micros())
    }

    /// The core's time as we count it, never early.
    pub(super) fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.origin);
        Time::from_micros(u64::try_from(since.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    /// The local address that the core is told: one it advertised, of the peer's family.
    pub(super) fn local(&self, peer: SocketAddr) -> SocketAddr {
        let same = |address: &&SocketAddr| address.is_ipv4() == peer.is_ipv4();
        let found = self.public.iter().find(same).or(self.public.first());
        found.copied().unwrap_or(peer)
    }

    /// STUN requests with this name are the call's from now on.
    pub(super) fn name(&mut self, name: &str, key: CallKey) {
        self.names.insert(name.to_owned(), key);
    }

    pub(super) fn unname(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Everything from this address is the call's from now on, unless it is another's. Whether it is the call's.
    pub(super) fn claim(&mut self, tuple: SocketAddr, key: CallKey) -> bool {
        *self.tuples.entry(tuple).or_insert(key) == key
    }

    /// The call's caller has answered from this address: everything from there is the call's from now on.
    pub(super) fn validate(&mut self, tuple: SocketAddr, key: CallKey) {
        self.tuples.insert(tuple, key);
    }

    pub(super) fn invalidate(&mut self, tuple: SocketAddr, key: CallKey) {
        if self.tuples.get(&tuple) == Some(&key) {
            self.tuples.remove(&tuple);
        }
    }

    /// The call sends a check of its own: the answer is for it.
    pub(super) fn checking(&mut self, transaction: Transaction, key: CallKey) {
        if self.checks.len() >= MOST_CHECKS {
            let oldest = self.made.saturating_sub(MOST_CHECKS as u64 / 2);
            self.checks.retain(|_, (made, _)| *made > oldest);
        }
        self.made += 1;
        self.checks.insert(transaction, (self.made, key));
    }

    fn whose(&self, from: SocketAddr, bytes: &[u8]) -> Option<CallKey> {
        if !is_stun(bytes) {
            return self.tuples.get(&from).copied();
        }
        let message = Message::read(bytes)?;
        match message.class {
            Class::Request => self.names.get(message.to?).copied(),
            Class::Success | Class::Other => {
                self.checks.get(&message.transaction).map(|(_, key)| *key)
            }
        }
    }
}

/// The address this machine speaks from, when it listens on all.
fn own_address(bound: SocketAddr) -> io::Result<IpAddr> {
    if !bound.ip().is_unspecified() {
        return Ok(bound.ip());
    }
    let any = SocketAddr::new(bound.ip(), 0);
    // Addresses for documentation (RFC 5737, RFC 3849): choosing a route sends nothing.
    let far = if bound.is_ipv4() {
        "192.0.2.1:9"
    } else {
        "[2001:db8::1]:9"
    };
    let probe = std::net::UdpSocket::bind(any)?;
    let own = probe.connect(far).and_then(|()| probe.local_addr());
    // A machine without a route is reached from itself alone.
    Ok(own.map_or(
        if bound.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        },
        |own| own.ip(),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn on_all_addresses_of_ipv6_clients_of_both_families_are_reached() {
        let tallies = Arc::new(Tallies::default());
        let listen = "[::]:0".parse().unwrap();
        let net = Net::bind(listen, &[], Clock::start(), tallies).unwrap();
        for own in ["127.0.0.1:0", "[::1]:0"] {
            let client = std::net::UdpSocket::bind(own).unwrap();
            let patience = Duration::from_secs(10);
            client.set_read_timeout(Some(patience)).unwrap();
            net.send(&[1; 12], client.local_addr().unwrap());
            assert_eq!(client.recv(&mut [0; 200]).unwrap(), 12, "{own}");
        }
    }
}
