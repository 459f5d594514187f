//! What the hosts and lists of a trunk's body may hold, beyond the form of one field. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rules::host_and_port;
use crate::egress::{self, Allow};
use crate::http::validate::{FieldError, Loc};

/// An inbound trunk takes what its carrier sends, which may be one number in two ways.
pub(super) fn as_written(number: &str) -> &str {
    number
}

/// Numbers that stand in a list twice: those of which this is the same.
pub(super) fn distinct(numbers: &[String], told_by: fn(&str) -> &str) -> Vec<FieldError> {
    let twice =
        |at: usize, number: &String| numbers[..at].iter().any(|n| told_by(n) == told_by(number));
    numbers
        .iter()
        .enumerate()
        .filter(|(at, number)| twice(*at, number))
        .map(|(at, _)| entry("numbers", at, "The number is given twice"))
        .collect()
}

/// A carrier's host must be one of the public Internet, as its text tells; what its name resolves to is
/// judged when it is called.
pub(super) fn check_host(field: &str, text: &str, allow: &Allow) -> Option<FieldError> {
    let (host, _) = host_and_port(text)?;
    egress::check_host(host, allow)
        .err()
        .map(|why| FieldError::value(field, why))
}

/// Blocks of public IPv4 addresses, /24 to /32; `allow` lets others in, and those of IPv6 that it names, /64 to
/// /128.
pub(super) fn check_addresses(addresses: &[String], allow: &Allow) -> Vec<FieldError> {
    addresses
        .iter()
        .enumerate()
        .filter_map(|(at, text)| {
            let why = check_block(text, allow).err()?;
            Some(entry("allowed_addresses", at, why))
        })
        .collect()
}

fn check_block(text: &str, allow: &Allow) -> Result<(), &'static str> {
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits)),
        None => (text, None),
    };
    let ip: IpAddr = ip
        .parse()
        .map_err(|_| "Input should be an IP address or a block of them")?;
    // Else a block of IPv4 could be larger than it may.
    if ip != ip.to_canonical() {
        return Err("An IPv4 address should be written as one");
    }
    let (least, most) = if ip.is_ipv4() { (24, 32) } else { (64, 128) };
    let bits: u32 = bits
        .map_or(Some(most), |bits| bits.parse().ok())
        .filter(|bits| (least..=most).contains(bits))
        .ok_or("A block should be between /24 and /32, of IPv6 between /64 and /128")?;
    let ends: [IpAddr; 2] = match ip {
        IpAddr::V4(ip) => {
            let hosts = u32::MAX.checked_shr(bits).unwrap_or(0);
            [ip.to_bits() & !hosts, ip.to_bits() | hosts].map(|ip| Ipv4Addr::from_bits(ip).into())
        }
        IpAddr::V6(ip) => {
            let hosts = u128::MAX.checked_shr(bits).unwrap_or(0);
            [ip.to_bits() & !hosts, ip.to_bits() | hosts].map(|ip| Ipv6Addr::from_bits(ip).into())
        }
    };
    let fine = |ip: IpAddr| match ip {
        IpAddr::V4(_) => egress::permits(ip, allow),
        IpAddr::V6(_) => allow.address(ip),
    };
    if ends.into_iter().all(fine) {
        Ok(())
    } else {
        Err("Addresses should be public ones of IPv4")
    }
}

/// A wrong entry of a list.
fn entry(list: &str, at: usize, why: &str) -> FieldError {
    FieldError {
        loc: vec![Loc::from("body"), Loc::from(list), Loc::from(at)],
        msg: why.to_owned(),
        kind: "value_error",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;

    #[test]
    fn blocks_are_public_ones_of_ipv4_and_no_larger_than_24_bits_leave() {
        let allow = Allow::default();
        for good in ["8.8.8.8", "8.8.8.0/24", "8.8.8.8/32", "8.8.8.77/28"] {
            assert_eq!(check_block(good, &allow), Ok(()), "{good}");
        }
        for bad in [
            "8.8.0.0/23",
            "8.8.8.8/33",
            "8.8.8.8/x",
            "0.0.0.0/0",
            "10.0.0.1",
            "127.0.0.1",
            "192.168.1.0/24",
            "169.254.169.254",
            "2001:4860::1",
            "::/0",
            "::1",
            "fd00::/64",
            "fe80::1",
            "::ffff:8.8.8.8",
            "::ffff:8.0.0.0/104",
            "[2001:4860::1]",
            "carrier.example.com",
            "",
        ] {
            assert!(check_block(bad, &allow).is_err(), "{bad}");
        }
        let allow = Allow::parse(&["127.0.0.0/8", "::1", "2001:4860::/32"]).unwrap();
        for good in [
            "127.0.0.1",
            "::1",
            "2001:4860::1",
            "2001:4860:0:0:ffff:ffff:ffff:ffff/128",
            "2001:4860::77/64",
        ] {
            assert_eq!(check_block(good, &allow), Ok(()), "{good}");
        }
        for bad in [
            "10.0.0.1",
            "fd01::/64",
            "2001:4860::/63",
            "2001:4860::/129",
            "2001:4860::/32",
        ] {
            assert!(check_block(bad, &allow).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_carriers_host_is_public() {
        let allow = Allow::default();
        for good in ["sip.acme.com", "sip.acme.com:5070", "8.8.8.8:5060"] {
            assert!(
                check_host("outbound_address", good, &allow).is_none(),
                "{good}"
            );
        }
        for bad in [
            "127.0.0.1",
            "10.0.0.1:5060",
            "169.254.169.254",
            "pbx.internal",
            "pbx.localhost",
            "[::1]:5060",
            "[fd00::1]",
        ] {
            assert!(
                check_host("outbound_address", bad, &allow).is_some(),
                "{bad}"
            );
        }
    }
}
