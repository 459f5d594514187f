//! Via (RFC 3261 20.42) with `received` and `rport` (RFC 3581).

use std::fmt;

use crate::message::scan::{self, Params};
use crate::message::uri::{Host, host_port};

/// One Via: who sent the message on, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// In upper case: `UDP`, `TCP`, `TLS`, or any other token.
    pub transport: String,
    pub host: Host,
    pub port: Option<u16>,
    pub params: Params,
}

/// The ways that this stack sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    Udp,
    Tcp,
    Tls,
}

impl Transport {
    /// Whether it loses nothing, so that nothing need be sent twice.
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// As a Via names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// As a URI's `transport` parameter names it (`sips` or a trunk's setting tells TLS apart).
    pub const fn param(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    /// RFC 3261 19.1.2.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5060,
            Self::Tls => 5061,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Udp, Self::Tcp, Self::Tls]
            .into_iter()
            .find(|transport| transport.as_str().eq_ignore_ascii_case(text))
    }
}

impl Via {
    /// `SIP/2.0/transport host:port;branch=…;rport`
    pub fn new(transport: Transport, host: Host, port: Option<u16>, branch: &str) -> Self {
        let mut params = Params::default();
        params.push("branch", Some(branch));
        params.push("rport", None);
        Self {
            transport: transport.as_str().to_owned(),
            host,
            port,
            params,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, rest) = text.split_once('/')?;
        let (version, rest) = rest.split_once('/')?;
        if !scan::trim(protocol).eq_ignore_ascii_case("SIP") || scan::trim(version) != "2.0" {
            return None;
        }
        let rest = rest.trim_start_matches(scan::is_space);
        let (transport, rest) = rest.split_once(scan::is_space)?;
        if !scan::is_token(transport) {
            return None;
        }
        let (sent_by, params) = rest.split_once(';').unwrap_or((rest, ""));
        // White space may stand around the colon before the port.
        let sent_by = sent_by.replace(scan::is_space, "");
        let (host, port) = host_port(&sent_by)?;
        if rest.trim_end().ends_with(';') {
            return None;
        }
        Some(Self {
            transport: transport.to_ascii_uppercase(),
            host,
            port,
            params: Params::parse(params)?,
        })
    }

    pub fn branch(&self) -> Option<&str> {
        self.params.raw("branch").flatten()
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIP/2.0/{} {}", self.transport, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "{}", self.params)
    }
}
