//! Over what telephone calls come, and what is said of it: the addresses of this server, and TLS.

use std::io;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use sip::endpoint::Advertised;
use sip::message::{Host, Transport};
use sip::shell::Tls;

use crate::config::sip::Sip;
use crate::http::tls::{Certificates, LOOK_EVERY};
use crate::supervisor::Supervisor;

/// What the other side is told of where we are. What is not among them is told as it is listened on.
pub(super) fn advertised(settings: &Sip) -> Vec<Advertised> {
    let told = settings.listen.iter().flat_map(|listen| {
        let hosts: Vec<Host> = match (listen.transport, &settings.tls_name) {
            (Transport::Tls, Some(name)) => vec![name.clone()],
            _ => settings.public(listen.addr.ip()).map(Host::Ip).collect(),
        };
        hosts.into_iter().map(move |host| Advertised {
            transport: listen.transport,
            host,
            port: listen.addr.port(),
        })
    });
    told.collect()
}

/// Certificates for calls over TLS: ours for connections that come in, if the settings name one, and the
/// system's authorities for those to carriers. Asks for a runtime, on which the files are watched.
pub(super) fn tls(settings: &Sip, watch: &Supervisor) -> io::Result<Tls> {
    let server = match &settings.tls {
        // Telephones are told no protocol above TLS, and many would stumble over one.
        Some(files) => {
            let certificates = Certificates::start(files.clone(), LOOK_EVERY, watch)?;
            Some(certificates.server_config(&[])?)
        }
        None => None,
    };
    Ok(Tls {
        server,
        client: client()?,
    })
}

/// For a stack that makes connections and takes none.
pub(crate) fn client_tls() -> io::Result<Tls> {
    Ok(Tls {
        server: None,
        client: client()?,
    })
}

/// The system's authorities.
fn client() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the system's authorities cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(client))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::config::Config;

    const TLS: &str = "tls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\n";

    fn told(settings: &str) -> Vec<String> {
        told_of("udp:10.0.0.1:5060,tls:10.0.0.1:5061", settings)
    }

    fn told_of(listen: &str, settings: &str) -> Vec<String> {
        let file = format!("[sip]\nlisten = \"{listen}\"\n{TLS}{settings}");
        let config = Config::load(Some(&file), &std::collections::BTreeMap::new()).unwrap();
        advertised(&config.sip)
            .iter()
            .map(|own| format!("{:?} {} {}", own.transport, own.host, own.port))
            .collect()
    }

    #[test]
    fn callers_are_told_the_public_address_and_over_tls_the_name() {
        assert!(told("").is_empty());
        assert_eq!(
            told("public_address = \"203.0.113.5\""),
            ["Udp 203.0.113.5 5060", "Tls 203.0.113.5 5061"]
        );
        assert_eq!(
            told("public_address = \"203.0.113.5\"\ntls_name = \"sip.example.com\""),
            ["Udp 203.0.113.5 5060", "Tls sip.example.com 5061"]
        );
        assert_eq!(
            told("tls_name = \"sip.example.com\""),
            ["Tls sip.example.com 5061"]
        );
        let both = "public_address = \"203.0.113.5, 2001:db8::5\"";
        assert_eq!(
            told_of("udp:10.0.0.1:5060,udp:[fd00::1]:5070", both),
            ["Udp 203.0.113.5 5060", "Udp [2001:db8::5] 5070"]
        );
        assert_eq!(
            told_of("udp:[::]:5060", both),
            ["Udp 203.0.113.5 5060", "Udp [2001:db8::5] 5060"]
        );
    }
}
