//! Which IP addresses are public, so that a stranger's address may be connected to. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 blocks that are not the public Internet (the special-purpose registry of RFC 6890, with
/// multicast and the reserved class), and one public address that clouds answer on themselves.
const SPECIAL_V4: &[([u8; 4], u32)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Shared address space (RFC 6598).
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local, instance metadata among it.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    // Relays of 6to4 (RFC 7526).
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    // A cloud's own agent, reachable from its virtual machines alone.
    ([168, 63, 129, 16], 32),
];

/// IPv6 blocks inside 2000::/3 that are not the public Internet (the special-purpose registry of
/// RFC 6890): protocol assignments with Teredo and ORCHID, documentation, 6to4.
const SPECIAL_V6: &[([u16; 2], u32)] = &[
    ([0x2001, 0], 23),
    ([0x2001, 0x0db8], 32),
    ([0x2002, 0], 16),
    ([0x3fff, 0], 20),
];

/// Whether the address is one of the public Internet. A form that carries an IPv4 address is judged by
/// what it carries.
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) => match carried(address) {
            Some(Carried::Current(inner)) => is_global_v4(inner),
            // Nobody serves over these any more (RFC 4291 section 2.5.5.1, RFC 7526, RFC 8190), and
            // a relay could be anywhere: refused whatever they carry.
            Some(Carried::Obsolete(_)) => false,
            None => is_global_v6(address),
        },
    }
}

/// The IPv4 address that traffic to this address would reach in the end, if it is a form that carries
/// one; else the address itself.
pub fn unwrapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(inner) => match carried(inner) {
            Some(Carried::Current(inner) | Carried::Obsolete(inner)) => IpAddr::V4(inner),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// An IPv4 address inside an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// In use: mapped (RFC 4291 section 2.5.5.2) and NAT64 (RFC 6052).
    Current(Ipv4Addr),
    /// Compatible (RFC 4291 section 2.5.5.1), 6to4 (RFC 3056), Teredo (RFC 4380), local NAT64
    /// (RFC 8215), ISATAP (RFC 5214).
    Obsolete(Ipv4Addr),
}

fn carried(address: Ipv6Addr) -> Option<Carried> {
    let s = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let last = v4(s[6], s[7]);
    match s {
        [0, 0, 0, 0, 0, 0xffff, ..] => Some(Carried::Current(last)),
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(Carried::Current(last)),
        [0x64, 0xff9b, 1, ..] => Some(Carried::Obsolete(last)),
        // Not :: and ::1, which are addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(Carried::Obsolete(last)),
        [0x2002, high, low, ..] => Some(Carried::Obsolete(v4(high, low))),
        // The client's address stands inverted at the end.
        [0x2001, 0, ..] => Some(Carried::Obsolete(v4(!s[6], !s[7]))),
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some(Carried::Obsolete(last)),
        _ => None,
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, length)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == Ipv4Addr::from(*network).to_bits() & mask
    })
}

/// Only 2000::/3 is given out for unicast (RFC 4291 section 2.4).
fn is_global_v6(address: Ipv6Addr) -> bool {
    let top = (address.to_bits() >> 96) as u32;
    let special = SPECIAL_V6.iter().any(|([first, second], length)| {
        let mask = u32::MAX << (32 - length);
        top & mask == (u32::from(*first) << 16 | u32::from(*second)) & mask
    });
    top >> 29 == 1 && !special
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[test]
    fn special_addresses_in_every_dress_are_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:808:808::1",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
            "2001:0:808:808::f7f7:f7f7",
            "2001:db8::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1::1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2400:cb00::200:5efe:7f00:1",
            "1fff::1",
            "4000::1",
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert!(!is_global(address), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.0.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "168.63.129.17",
            "2001:200::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::200e",
            "3ffe:ffff::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert!(is_global(address), "{text}");
        }
    }

    #[test]
    fn what_is_carried_comes_out() {
        for (text, inner) in [
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::10.0.0.1", "10.0.0.1"),
            ("64:ff9b::10.0.0.1", "10.0.0.1"),
            ("2002:a00:1::", "10.0.0.1"),
            ("2001:0:1:2::f5ff:fffe", "10.0.0.1"),
            ("2606:4700::1", "2606:4700::1"),
            ("::1", "::1"),
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(
                unwrapped(address),
                inner.parse::<IpAddr>().unwrap(),
                "{text}"
            );
        }
    }
}
