//! Whom `sidetone call --sip` calls, and where we are as seen from there.

use std::net::{IpAddr, SocketAddr};

use sip::message::{Host, SipUri, Transport, Uri};
use tokio::net::UdpSocket;

use crate::cli::call::CallError;

/// Whom to call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) user: String,
    pub(super) host: Host,
    pub(super) port: Option<u16>,
    pub(super) transport: Transport,
}

impl Target {
    /// `sip:number@host[:port][;transport=tcp]`, or `sips:`.
    pub(super) fn parse(text: &str) -> Result<Self, CallError> {
        let wrong = || {
            let why = format!("{text}: no SIP address, as in sip:+4930123456@203.0.113.5:5060");
            CallError::Failed(why)
        };
        let named = Uri::parse(text).map_err(|_| wrong())?;
        let Uri::Sip(uri) = &named else {
            return Err(wrong());
        };
        let transport = match uri.transport().as_deref() {
            _ if uri.secure => Transport::Tls,
            None | Some("udp") => Transport::Udp,
            Some("tcp") => Transport::Tcp,
            Some("tls") => Transport::Tls,
            Some(_) => return Err(wrong()),
        };
        Ok(Self {
            // A number without its parameters, and nobody's password (RFC 3261 19.1.1).
            user: named.user().ok_or_else(wrong)?,
            host: uri.host.clone(),
            port: uri.port,
            transport,
        })
    }

    /// Our address as that host sees it: what the system would send from.
    pub(super) async fn seen_from(&self) -> Result<IpAddr, CallError> {
        let wrong = |error: std::io::Error| CallError::Socket(format!("{}: {error}", self.host));
        let port = self.port.unwrap_or(self.transport.default_port());
        let target = match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, port),
            Host::Name(name) => {
                let found = tokio::net::lookup_host((name.as_str(), port)).await;
                let nowhere = || std::io::Error::other("the name has no address");
                found
                    .and_then(|mut found| found.next().ok_or_else(nowhere))
                    .map_err(wrong)?
            }
        };
        let any: IpAddr = match target.is_ipv4() {
            true => [0, 0, 0, 0].into(),
            false => [0; 16].into(),
        };
        let probe = UdpSocket::bind((any, 0)).await.map_err(wrong)?;
        probe.connect(target).await.map_err(wrong)?;
        Ok(probe.local_addr().map_err(wrong)?.ip())
    }
}

/// As it is called: without the password that the address may have had.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut uri = SipUri::new(Some(&self.user), self.host.clone(), self.port);
        if self.transport != Transport::Udp {
            uri.params.set("transport", Some(self.transport.param()));
        }
        Uri::Sip(uri).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn an_address_says_whom_where_and_over_what() {
        let target = |text: &str| Target::parse(text).map_err(|error| error.to_string());
        let one = target("sip:+4930123456@203.0.113.5:5070;transport=TCP").unwrap();
        assert_eq!(
            one,
            Target {
                user: "+4930123456".to_owned(),
                host: Host::Ip([203, 0, 113, 5].into()),
                port: Some(5070),
                transport: Transport::Tcp,
            }
        );
        assert_eq!(
            target("sip:100@pbx.example.com").unwrap().transport,
            Transport::Udp
        );
        assert_eq!(
            target("sips:100@pbx.example.com").unwrap().transport,
            Transport::Tls
        );
        for (text, called) in [
            (
                "sip:+4930123456;npdi;phone-context=example.com@203.0.113.5",
                "+4930123456",
            ),
            (
                "sip:+4930123456:secret@203.0.113.5;user=phone",
                "+4930123456",
            ),
            (
                "sip:+49-30(123)456;isub=1:secret@203.0.113.5",
                "+49-30(123)456",
            ),
            (
                "sip:alice;day=tuesday:secret@203.0.113.5",
                "alice;day=tuesday",
            ),
            ("sip:%2b4930123456;ext=9@203.0.113.5", "+4930123456"),
        ] {
            let target = target(text).unwrap();
            assert_eq!(target.user, called, "{text}");
            assert_eq!(
                target.to_string(),
                format!("sip:{called}@203.0.113.5"),
                "{text}"
            );
        }
        assert_eq!(
            one.to_string(),
            "sip:+4930123456@203.0.113.5:5070;transport=tcp"
        );
        for wrong in [
            "",
            "100",
            "tel:+4930123456",
            "sip:203.0.113.5",
            "sip:100@",
            "sip:100@h;transport=sctp",
        ] {
            assert!(
                target(wrong).unwrap_err().contains("no SIP address"),
                "{wrong}"
            );
        }
    }
}
