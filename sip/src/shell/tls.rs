//! TLS over a connection, by rustls; the sockets stay ours.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Certificates and keys, made by whoever knows where they are kept.
#[derive(Clone, Debug)]
pub struct Tls {
    /// For connections that come in; `None` where none is listened for.
    pub server: Option<Arc<ServerConfig>>,
    /// For connections that we make: which authorities are trusted.
    pub client: Arc<ClientConfig>,
}

pub(super) struct Session(Connection);

impl Session {
    pub(super) fn server(tls: &Tls) -> Option<Self> {
        let config = tls.server.as_ref()?;
        ServerConnection::new(Arc::clone(config))
            .ok()
            .map(|connection| Self(connection.into()))
    }

    /// `name`: the host that was looked up, whose certificate is expected (RFC 5922 7.1).
    pub(super) fn client(tls: &Tls, name: Option<&str>, ip: IpAddr) -> Option<Self> {
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).ok()?,
            None => ServerName::IpAddress(ip.into()),
        };
        ClientConnection::new(Arc::clone(&tls.client), name)
            .ok()
            .map(|connection| Self(connection.into()))
    }

    /// `false` when the session takes no more.
    pub(super) fn write(&mut self, plain: &[u8]) -> bool {
        self.0.writer().write_all(plain).is_ok()
    }

    /// What is to go over the wire.
    pub(super) fn take_encrypted(&mut self, out: &mut Vec<u8>) {
        while self.0.wants_write() {
            // Writing to a vector cannot fail.
            if !matches!(self.0.write_tls(out), Ok(1..)) {
                return;
            }
        }
    }

    /// Takes what came over the wire, and gives what it says. `false` when the session is broken.
    pub(super) fn read(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> bool {
        while !wire.is_empty() {
            if !matches!(self.0.read_tls(&mut wire), Ok(1..)) {
                return false;
            }
            let Ok(state) = self.0.process_new_packets() else {
                return false;
            };
            let mut left = state.plaintext_bytes_to_read();
            let mut piece = [0; 4_096];
            while left > 0 {
                let room = left.min(piece.len());
                match self.0.reader().read(&mut piece[..room]) {
                    Ok(count @ 1..) => {
                        plain.extend_from_slice(&piece[..count]);
                        left -= count;
                    }
                    _ => break,
                }
            }
        }
        true
    }
}
