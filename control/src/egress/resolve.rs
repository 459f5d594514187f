//! From a name to addresses that may be connected to. All addresses of a name must be public: a name
//! that has a private one beside a public one is an attack or a mistake, and is refused whole.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use reqwest::dns::{Addrs, Name, Resolve};

use super::address::{is_global, unwrapped};
use super::url::Allow;

/// The addresses of a name, or why there are none, for the log.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, String>> + Send>>;

/// Where names are looked up. The tests have one of their own.
pub trait Resolver: Send + Sync {
    fn addresses(&self, host: &str) -> Resolving;
}

/// How long one question to one server may take; a connection has three seconds in all.
const PATIENCE: Duration = Duration::from_millis(1200);

/// The servers of the system (`/etc/resolv.conf`, and `/etc/hosts` before them), or the one server of
/// the setting `egress.dns`. A look-up that is given up holds no thread.
#[derive(Clone, Debug)]
pub struct System(TokioResolver);

impl System {
    /// The error is for the operator.
    pub fn new(server: Option<SocketAddr>) -> Result<Self, String> {
        let mut builder = match server {
            Some(server) => {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                for connection in &mut config.connections {
                    connection.port = server.port();
                }
                let config = ResolverConfig::from_name_servers(vec![config]);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
            None => TokioResolver::builder_tokio().map_err(|error| error.to_string())?,
        };
        builder.options_mut().timeout = PATIENCE;
        builder.options_mut().attempts = 2;
        builder.build().map(Self).map_err(|error| error.to_string())
    }
}

impl Resolver for System {
    fn addresses(&self, host: &str) -> Resolving {
        // A full name: the system's search list would try it below domains of the network's own.
        let name = format!("{}.", host.trim_end_matches('.'));
        let resolver = self.0.clone();
        Box::pin(async move {
            let found = resolver.lookup_ip(name).await;
            found
                .map(|found| found.iter().collect())
                .map_err(|error| error.to_string())
        })
    }
}

/// A name resolved to an address that is not public.
#[derive(Debug)]
pub(super) struct NotPublic {
    address: IpAddr,
}

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the host has the address {}, which is not public",
            self.address
        )
    }
}

impl std::error::Error for NotPublic {}

/// A name could not be looked up.
#[derive(Debug)]
pub(super) struct NoAddress(String);

impl fmt::Display for NoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host has no address: {}", self.0)
    }
}

impl std::error::Error for NoAddress {}

/// The resolver as the HTTP client sees it: it connects to what comes out of here and to nothing
/// else, so no second look-up can bring another answer.
pub(super) struct Guard {
    pub resolver: Arc<dyn Resolver>,
    pub allow: Allow,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> reqwest::dns::Resolving {
        let found = self.resolver.addresses(name.as_str());
        let allow = self.allow.clone();
        Box::pin(async move {
            let found = found.await.map_err(NoAddress)?;
            let addresses = permitted(name.as_str(), found, &allow)?;
            // The port is the URL's.
            let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// The addresses, if all may be connected to.
fn permitted(
    host: &str,
    found: Vec<IpAddr>,
    allow: &Allow,
) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
    if found.is_empty() {
        return Err(Box::new(NoAddress("the answer is empty".to_owned())));
    }
    let refused = found.iter().copied().find(|address| {
        !allow.address(*address) && !allow.address(unwrapped(*address)) && !is_global(*address)
    });
    match refused {
        Some(address) if !allow.name(host) => Err(Box::new(NotPublic { address })),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use std::net::Ipv4Addr;

    use tokio::net::UdpSocket;

    use super::*;

    #[track_caller]
    fn judge(host: &str, found: &[&str], allow: &[&str]) -> Result<usize, String> {
        let found = found.iter().map(|text| text.parse().unwrap()).collect();
        permitted(host, found, &Allow::parse(allow).unwrap())
            .map(|addresses| addresses.len())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn all_addresses_must_be_public() {
        assert_eq!(judge("a.com", &["8.8.8.8", "2606:4700::1"], &[]), Ok(2));
        for found in [
            &["127.0.0.1"][..],
            &["8.8.8.8", "10.0.0.1"],
            &["10.0.0.1", "8.8.8.8"],
            &["8.8.8.8", "::ffff:10.0.0.1"],
        ] {
            assert!(
                judge("a.com", found, &[])
                    .unwrap_err()
                    .contains("not public")
            );
        }
        assert!(judge("a.com", &[], &[]).unwrap_err().contains("no address"));
    }

    /// A name server on loopback whose answers for one name alternate, never to be remembered.
    async fn name_server(answers: [Ipv4Addr; 2]) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut packet, mut turn) = ([0; 512], 0);
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let question = &packet[..length];
                // RFC 1035 section 4.1: the name ends with an empty label, type and class follow.
                let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
                let kind = question[end - 3];
                let known = question[12..end].starts_with(b"\x05hooks");
                let mut answer = question[..end].to_vec();
                answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
                if !known {
                    // No such name.
                    answer[3] = 0x83;
                } else if kind == 1 {
                    answer[7] = 1;
                    // The name again, type A, class IN, kept for no second, four bytes.
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                    answer.extend(answers[turn % 2].octets());
                    turn += 1;
                }
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_name_server_is_asked_anew_and_each_answer_is_judged() {
        let (public, private) = (Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(10, 0, 0, 1));
        let server = name_server([public, private]).await;
        let guard = Guard {
            resolver: Arc::new(System::new(Some(server)).unwrap()),
            allow: Allow::default(),
        };
        let ask = async |name: &str| {
            let found = guard.resolve(name.parse().unwrap()).await;
            found.map(|found| found.map(|address| address.ip()).collect::<Vec<_>>())
        };
        for round in 0..100 {
            match ask("hooks.example.com").await {
                Ok(found) => assert_eq!((found, round % 2), (vec![IpAddr::V4(public)], 0)),
                Err(error) => assert!(error.is::<NotPublic>() && round % 2 == 1, "{error}"),
            }
        }
        let unknown = ask("nobody.example.com").await.unwrap_err();
        assert!(unknown.is::<NoAddress>(), "{unknown}");
    }

    #[tokio::test]
    async fn a_silent_name_server_is_given_up_in_time() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let system = System::new(Some(silent.local_addr().unwrap())).unwrap();
        let began = std::time::Instant::now();
        assert!(system.addresses("hooks.example.com").await.is_err());
        assert!(
            began.elapsed() < Duration::from_secs(6),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn the_setting_lets_names_and_ranges_through() {
        assert_eq!(judge("hooks.test", &["10.0.0.1"], &["hooks.test"]), Ok(1));
        assert_eq!(
            judge("a.com", &["10.0.0.1", "8.8.8.8"], &["10.0.0.0/8"]),
            Ok(2)
        );
        assert_eq!(judge("a.com", &["::ffff:10.0.0.1"], &["10.0.0.0/8"]), Ok(1));
        assert!(judge("a.com", &["10.0.0.1", "127.0.0.1"], &["10.0.0.0/8"]).is_err());
        assert!(judge("other.test", &["10.0.0.1"], &["hooks.test"]).is_err());
    }
}
