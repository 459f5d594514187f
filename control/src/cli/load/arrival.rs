//! When bytes came to this machine, as its kernel saw it: a generator that reads late measures the server, and
//! not its own lateness.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

/// What one read brought.
pub(super) struct Arrival {
    pub length: usize,
    /// Of a datagram over IPv4.
    pub from: Option<SocketAddr>,
    /// How long ago the last byte of it came.
    pub age: Duration,
}

impl Arrival {
    /// When it came, by a clock of μs that says `now`.
    pub(super) fn before(&self, now: u64) -> u64 {
        now.saturating_sub(u64::try_from(self.age.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Asks the kernel to note when the bytes of this socket come.
pub(super) fn note(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, ReceiveTimestampns, &true)?)
}

/// Reads what is there, of a socket whose arrivals are noted.
pub(super) fn read(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Arrival> {
    let mut notes = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
    let message = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut notes), flags)?;
    let came = message.cmsgs()?.find_map(|note| match note {
        ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
        _ => None,
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let age = match (now, came) {
        (Ok(now), Some(came)) => now.saturating_sub(came),
        _ => Duration::ZERO,
    };
    Ok(Arrival {
        length: message.bytes,
        from: message.address.map(SocketAddr::from),
        age,
    })
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Instant;

    use super::*;

    /// The two clocks may go a little apart.
    const NEARLY: Duration = Duration::from_millis(1);

    /// The age is that of the bytes, however late they are read.
    fn comes_of_age(socket: &(impl AsFd + AsRawFd), mut send: impl FnMut()) -> Arrival {
        note(socket).unwrap();
        // The first one in the system that asks is noted for a moment later.
        for _ in 0..200 {
            let before = Instant::now();
            send();
            let sent = Instant::now();
            while sent.elapsed() < 10 * NEARLY {
                std::hint::spin_loop();
            }
            let waited = sent.elapsed();
            let arrival = read(socket, &mut [0; 100]).unwrap();
            assert!(arrival.age <= before.elapsed() + NEARLY);
            if arrival.age + NEARLY >= waited {
                return arrival;
            }
        }
        panic!("the kernel notes nothing");
    }

    #[test]
    fn bytes_of_a_stream_are_as_old_as_their_arrival() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let arrival = comes_of_age(&near, || far.write_all(b"four").unwrap());
        assert_eq!(arrival.length, 4);
    }

    #[test]
    fn a_datagram_is_as_old_as_its_arrival_and_has_its_sender() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = near.local_addr().unwrap();
        let arrival = comes_of_age(&near, || {
            far.send_to(b"five5", to).unwrap();
        });
        assert_eq!(arrival.length, 5);
        assert_eq!(arrival.from, Some(far.local_addr().unwrap()));
    }
}
