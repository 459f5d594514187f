//! A datagram from the network and to it, by the system's call itself: the C library's functions are points at which a
//! thread may be canceled, which costs them two steps more.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};

use super::address::canonical;

/// Reads one: its length in the buffer, and who sent it. What a signal interrupted is begun again.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match recvfrom(&socket, &mut *buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((length, _, from)) => {
                let from = SocketAddr::try_from(from.ok_or(Errno::AFNOSUPPORT)?)?;
                return Ok((length, canonical(from)));
            }
        }
    }
}

/// Sends one; whether the system took it.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], to: SocketAddr) -> bool {
    sendto(socket, bytes, SendFlags::empty(), &to).is_ok()
}
