//! Addresses of IPv4 at a socket that listens on all addresses of IPv6, where they are inside of one (RFC 3493
//! section 3.7).

use std::net::{IpAddr, SocketAddr};

/// Who sent it: an IPv4 address, whatever it is inside of.
pub(super) fn canonical(from: SocketAddr) -> SocketAddr {
    SocketAddr::new(from.ip().to_canonical(), from.port())
}

/// An address as a socket that is bound to `own` sends to it.
pub(super) fn way_to(own: IpAddr, to: SocketAddr) -> SocketAddr {
    match (own, to) {
        (IpAddr::V6(_), SocketAddr::V4(to)) => {
            SocketAddr::new(IpAddr::V6(to.ip().to_ipv6_mapped()), to.port())
        }
        _ => to,
    }
}
