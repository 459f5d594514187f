//! Whose request this is. Behind a proxy every connection is the proxy's, and who is behind it stands in
//! `X-Forwarded-For`, which anybody can write. It is believed of the proxies alone that the operator named.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};
use sip::trunk::Net;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The networks of the proxies that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Net>);

impl Proxies {
    /// Reads the setting: addresses and CIDR networks. The error is the entry that is neither.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, String> {
        let read = |entry: &S| {
            let entry = entry.as_ref().trim();
            Net::parse(entry).ok_or_else(|| entry.to_owned())
        };
        entries.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Who asks: the last address of the header that is no proxy's, for what stands before it is the
    /// client's own word. Where all are proxies, the first of them; where the header cannot be read, the other
    /// end of the connection.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.has(peer) {
            return peer;
        }
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        // A line that is no text has no address either.
        let hops = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        let mut client = peer;
        for hop in hops {
            match address(hop.trim()) {
                None => return peer,
                Some(address) if self.has(address) => client = address,
                Some(address) => return address,
            }
        }
        client
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

/// Some proxies write the client's port, too.
fn address(text: &str) -> Option<IpAddr> {
    let alone = text.parse::<IpAddr>().ok();
    let address = alone.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    /// Who asks, when these proxies are believed.
    fn client(proxies: &[&str], peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            let line = http::HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append(FORWARDED_FOR, line);
        }
        let proxies = Proxies::parse(proxies).unwrap();
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    const TWO: [&str; 2] = ["10.0.0.0/8", "2001:db8:1::/48"];

    #[test]
    fn nobody_is_believed_who_is_not_named() {
        assert_eq!(client(&[], "10.0.0.1", &["192.0.2.1"]), "10.0.0.1");
        assert_eq!(client(&TWO, "192.0.2.9", &["192.0.2.1"]), "192.0.2.9");
        assert_eq!(
            client(&TWO, "2001:db8:2::1", &["192.0.2.1"]),
            "2001:db8:2::1"
        );
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_proxys() {
        for (lines, expected) in [
            (&["192.0.2.1"][..], "192.0.2.1"),
            // What the client itself wrote stands first.
            (&["198.51.100.1, 10.0.0.7, 192.0.2.1"], "192.0.2.1"),
            (&["junk, 192.0.2.1"], "192.0.2.1"),
            // Two proxies, in one line and in two.
            (&["192.0.2.1, 10.2.3.4"], "192.0.2.1"),
            (&["198.51.100.1", "192.0.2.1", "10.2.3.4"], "192.0.2.1"),
            (&["192.0.2.1,2001:db8:1::5 ,\t10.2.3.4"], "192.0.2.1"),
            (&["2001:db8:2::5, 10.2.3.4"], "2001:db8:2::5"),
            // With a port, as some write it.
            (&["192.0.2.1:50000"], "192.0.2.1"),
            (&["[2001:db8:2::5]:50000"], "2001:db8:2::5"),
            (&["::ffff:192.0.2.1, ::ffff:10.2.3.4"], "192.0.2.1"),
            // Somebody of the proxies' own network.
            (&["10.9.9.9, 10.2.3.4"], "10.9.9.9"),
        ] {
            assert_eq!(client(&TWO, "10.0.0.1", lines), expected, "{lines:?}");
            let mapped = client(&TWO, "::ffff:10.0.0.1", lines);
            assert_eq!(mapped, expected, "{lines:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_the_proxys_own_request() {
        for lines in [
            &[][..],
            &[""],
            &["unknown"],
            &["192.0.2.1, unknown"],
            &["192.0.2.1, unknown, 10.2.3.4"],
            &["192.0.2.1,"],
            &["192.0.2.1", "é"],
            &["192.0.2.1 10.2.3.4"],
            &["192.0.2.256"],
            &["_hidden"],
        ] {
            assert_eq!(client(&TWO, "10.0.0.1", lines), "10.0.0.1", "{lines:?}");
        }
    }

    #[test]
    fn addresses_and_networks_are_read_and_nothing_else() {
        let mapped = Proxies::parse(&["::ffff:10.0.0.0/104", "::ffff:192.0.2.1"]).unwrap();
        assert_eq!(
            mapped,
            Proxies::parse(&["10.0.0.0/8", "192.0.2.1"]).unwrap()
        );
        assert_eq!(
            client(&["0.0.0.0/0"], "10.0.0.1", &["192.0.2.1"]),
            "192.0.2.1"
        );
        for wrong in [
            "proxy.example.com",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "::/129",
            "::ffff:10.0.0.0/90",
            "10.0.0.1:80",
            "10.0.0",
        ] {
            let entries = ["10.0.0.1", wrong];
            assert_eq!(Proxies::parse(&entries), Err(wrong.to_owned()));
        }
    }
}
