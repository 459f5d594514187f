//! Ports for servers and peers of a test.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the kernel gives to whoever names none, and below those of a server's calls: a
/// port that was drawn here and is not yet bound is nobody else's.
const FIRST: u16 = 10_000;
const LAST: u16 = 19_996;

/// A SIPp or a telephone takes the ones that follow for its own RTP and RTCP.
const STEP: u16 = 4;

static DRAWN: AtomicU16 = AtomicU16::new(0);

/// A port on which nobody listens, on UDP or TCP, and which no other test of this process was given;
/// the three that follow it are as free.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let places = (LAST - FIRST) / STEP + 1;
    // Two processes begin in two places.
    let start = u16::try_from(std::process::id() % u32::from(places)).expect("less than all");
    (0..places)
        .map(|_| DRAWN.fetch_add(1, Ordering::Relaxed))
        .map(|drawn| FIRST + (start + drawn % places) % places * STEP)
        .find(|first| (*first..first + STEP).all(is_free))
        .expect("a free port")
}

/// An address of this machine with such a port.
pub fn free_udp() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Ports for the calls of one server, as `rtp.ports` has them, which no other of a dozen servers of this process is given.
/// A telephone whose server was killed goes on sending to its port there: the next server that binds it would take that
/// for a caller of its own.
pub fn of_calls() -> String {
    // Above the range that servers have by default, and below the ports that the kernel gives away.
    const FIRST: u16 = 30_000;
    const COUNT: u16 = 200;
    const BLOCKS: u16 = 13;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % u32::from(BLOCKS)).expect("less than all");
    let block = (begin + NEXT.fetch_add(1, Ordering::Relaxed) % BLOCKS) % BLOCKS;
    let first = FIRST + block * COUNT;
    format!("{first}-{}", first + COUNT - 1)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("0.0.0.0", port)).is_ok() && UdpSocket::bind(("0.0.0.0", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice_and_none_that_is_taken() {
        let first = free_port();
        let next = free_port();
        let places = (LAST - FIRST) / STEP + 1;
        let after = FIRST + (next - FIRST + STEP) % (places * STEP);
        // Its third port is somebody's: it is none to give away.
        let taken = UdpSocket::bind(("127.0.0.1", after + 2));
        let drawn: Vec<u16> = (0..200).map(|_| free_port()).collect();
        let different: HashSet<u16> = drawn.iter().copied().chain([first, next]).collect();
        assert_eq!(different.len(), 202);
        assert!(!drawn.contains(&after), "{taken:?} is taken");
    }
}
