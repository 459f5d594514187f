//! TLS in the server itself: a certificate and key from files, read again when they change.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::serve::Slot;
use crate::config::Tls;
use crate::supervisor::{self, Supervisor};

/// How often the files are looked at: a renewed certificate is good for days before the old one ends.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long one side of an upgraded connection may go on after the other has closed.
const LAST_BYTES: Duration = Duration::from_secs(5);

/// A certificate and its key, as they are at the moment.
#[derive(Clone, Debug)]
pub struct Certificates(watch::Receiver<Arc<CertifiedKey>>);

impl Certificates {
    /// Reads the files, and reads them again whenever their content has changed, until nobody shows
    /// them any more. Files that are no certificate and key then change nothing and are told in the log.
    pub fn start(files: Tls, look_every: Duration, watch: &Supervisor) -> io::Result<Self> {
        let (mut certificate, mut key) = read(&files)?;
        let (sender, receiver) = watch::channel(certified(&certificate, &key)?);
        watch.once("the reader of TLS files", async move {
            let mut tick = tokio::time::interval(look_every);
            while !sender.is_closed() {
                tick.tick().await;
                let files = files.clone();
                let now = match tokio::task::spawn_blocking(move || read(&files)).await {
                    Ok(Ok(now)) => now,
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the TLS files cannot be read: the old ones are used");
                        continue;
                    }
                    Err(_) => continue,
                };
                if now == (certificate.clone(), key.clone()) {
                    continue;
                }
                match certified(&now.0, &now.1) {
                    Ok(now) => {
                        sender.send_replace(now);
                        tracing::info!("the TLS files have changed and are used from now on");
                    }
                    // Perhaps one of the two is not written yet: the next look tells.
                    Err(error) => tracing::warn!(%error, "the changed TLS files cannot be used"),
                }
                (certificate, key) = now;
            }
        });
        Ok(Self(receiver))
    }

    /// What new connections are greeted with: TLS 1.2 and 1.3 with rustls' own choice of suites, and
    /// these protocols above it (RFC 7301), or whatever is spoken where there are none.
    pub fn server_config(self, protocols: &[&[u8]]) -> io::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.borrow()))
    }
}

/// The TLS side of the server: what new connections are greeted with.
#[derive(Clone, Debug)]
pub struct Greeting(Arc<ServerConfig>);

impl Greeting {
    /// HTTP/2 before HTTP/1.1, with the certificate of these files.
    pub fn start(files: Tls, look_every: Duration, watch: &Supervisor) -> io::Result<Self> {
        Self::with(Certificates::start(files, look_every, watch)?)
    }

    fn with(certificates: Certificates) -> io::Result<Self> {
        Ok(Self(certificates.server_config(&[b"h2", b"http/1.1"])?))
    }

    /// The handshake of one connection.
    pub async fn greet(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.0);
        tokio_rustls::TlsAcceptor::from(config).accept(stream).await
    }
}

fn read(files: &Tls) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let named = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    Ok((named(&files.certificate)?, named(&files.key)?))
}

fn certified(certificate: &[u8], key: &[u8]) -> io::Result<Arc<CertifiedKey>> {
    let wrong = |what: &str, why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("the {what}: {why}"))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong("certificate is not PEM", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| wrong("private key is not PEM", &error))?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider)
        .map_err(|error| wrong("certificate and key do not work together", &error))?;
    Ok(Arc::new(certified))
}

/// Turns an upgraded TLS connection into a plain one for the engine: two ends of a connection within
/// this machine, with a task that carries bytes between TLS and it until either side closes, and that has
/// the connection's slot. A media thread knows no TLS; frames of such calls pass through one more thread,
/// as behind a proxy.
pub async fn plain_end(tls: TlsStream<TcpStream>, slot: Slot) -> io::Result<std::net::TcpStream> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let (near, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, (far, peer)) = (near?, accepted?);
    if near.local_addr()? != peer {
        // Somebody else was quicker; it is sent away.
        return Err(io::Error::other("a stranger took the other end"));
    }
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    supervisor::detached("the bytes of a TLS socket", async move {
        carry(tls, far).await;
        drop(slot);
    });
    near.into_std()
}

/// Carries bytes both ways. Once one side has closed, the other gets a little time to do the same: a
/// peer that never closes must not hold a task.
async fn carry(tls: TlsStream<TcpStream>, far: TcpStream) {
    let (mut from_peer, mut to_peer) = tokio::io::split(tls);
    let (mut from_engine, mut to_engine) = far.into_split();
    let up = async {
        tokio::io::copy(&mut from_peer, &mut to_engine).await.ok();
        // Gone already, most likely.
        to_engine.shutdown().await.ok();
    };
    let down = async {
        tokio::io::copy(&mut from_engine, &mut to_peer).await.ok();
        to_peer.shutdown().await.ok();
    };
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    let left = tokio::select! {
        () = &mut up => tokio::time::timeout(LAST_BYTES, down).await,
        () = &mut down => tokio::time::timeout(LAST_BYTES, up).await,
    };
    if left.is_err() {
        tracing::debug!("one side of a TLS connection did not close");
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
