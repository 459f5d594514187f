//! Datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use super::canonical;

/// What the socket may hold while the thread is busy: at 12,000 messages a second of 700 bytes, half a
/// second. The system may grant less.
const BUFFER: usize = 4 << 20;

/// Datagrams read at one wake-up before others have their turn.
pub(super) const BATCH: usize = 256;

pub(super) struct Udp {
    socket: UdpSocket,
    pub(super) addr: SocketAddr,
    /// Not all that has arrived was read.
    pub(super) more: bool,
}

impl Udp {
    pub(super) fn bind(addr: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        let mut socket = UdpSocket::bind(addr)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER)?;
        registry.register(&mut socket, token, Interest::READABLE)?;
        let addr = socket.local_addr()?;
        Ok(Self {
            socket,
            addr,
            more: false,
        })
    }

    /// The next datagram, if one has arrived.
    pub(super) fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Option<(SocketAddr, &'a [u8])> {
        loop {
            match self.socket.recv_from(buffer) {
                Ok((length, from)) => return Some((canonical(from), &buffer[..length])),
                // Told of an earlier datagram that could not be delivered; its sender's timers see to it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.more = false;
                    return None;
                }
            }
        }
    }

    /// Whether it sends to addresses of that one's family. On all addresses of IPv6 it does so to those of IPv4,
    /// too (RFC 3493 section 5.3).
    pub(super) fn reaches(&self, to: SocketAddr) -> bool {
        self.addr.is_ipv4() == to.is_ipv4()
            || self.addr.is_ipv6() && self.addr.ip().is_unspecified()
    }

    /// `false` when it cannot be sent at all. A full buffer counts as sent and lost: it is sent again.
    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8]) -> bool {
        let to = match (self.addr, to) {
            (SocketAddr::V6(_), SocketAddr::V4(to)) => {
                SocketAddr::new(IpAddr::V6(to.ip().to_ipv6_mapped()), to.port())
            }
            _ => to,
        };
        match self.socket.send_to(bytes, to) {
            Ok(_) => true,
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionRefused
            ),
        }
    }
}
