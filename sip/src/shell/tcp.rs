//! One connection, with or without TLS: bytes in and out without ever blocking.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::tls::Session;
use crate::endpoint::Peer;
use crate::time::Time;

/// Bytes that may wait for a peer that does not read: some 300 messages. Beyond it the connection is
/// closed.
const MOST_WAITING: usize = 256 << 10;

/// Bytes read at one wake-up before others have their turn.
const BATCH: usize = 64 << 10;

pub(super) struct Connection {
    stream: TcpStream,
    pub(super) peer: Peer,
    session: Option<Session>,
    out: Vec<u8>,
    /// Asks to be told when it can be written.
    writing: bool,
    pub(super) last_used: Time,
    /// Close once all is written.
    pub(super) closing: bool,
}

/// What reading brought.
pub(super) enum Read {
    /// Nothing more for now.
    Nothing,
    /// More may be there.
    Bytes,
    /// The connection is gone.
    Gone,
}

impl Connection {
    pub(super) fn new(
        mut stream: TcpStream,
        peer: Peer,
        session: Option<Session>,
        now: Time,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            stream,
            peer,
            session,
            out: Vec::new(),
            writing: true,
            last_used: now,
            closing: false,
        })
    }

    pub(super) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(to)
    }

    /// Takes what is to be sent; `false` when the peer lets too much wait.
    pub(super) fn send(&mut self, now: Time, bytes: &[u8]) -> bool {
        self.last_used = now;
        match &mut self.session {
            Some(session) => session.write(bytes),
            None => {
                self.out.extend_from_slice(bytes);
                true
            }
        }
    }

    /// Writes what can be written; `false` when the connection is gone.
    pub(super) fn flush(&mut self, registry: &Registry, token: Token) -> bool {
        if let Some(session) = &mut self.session {
            session.take_encrypted(&mut self.out);
        }
        let mut written = 0;
        let alive = loop {
            if written == self.out.len() {
                break true;
            }
            match self.stream.write(&self.out[written..]) {
                Ok(0) => break false,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected
                    ) =>
                {
                    break true;
                }
                Err(_) => break false,
            }
        };
        self.out.drain(..written);
        let waits = !self.out.is_empty();
        if waits != self.writing {
            let interest = match waits {
                true => Interest::READABLE | Interest::WRITABLE,
                false => Interest::READABLE,
            };
            self.writing = waits;
            if registry
                .reregister(&mut self.stream, token, interest)
                .is_err()
            {
                return false;
            }
        }
        let finished = self.closing && !waits;
        alive && !finished && self.out.len() <= MOST_WAITING
    }

    /// Reads into `plain` what has arrived, decrypted.
    pub(super) fn read(&mut self, now: Time, buffer: &mut [u8], plain: &mut Vec<u8>) -> Read {
        let room = buffer.len().min(BATCH);
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) => Read::Gone,
            Ok(count) => {
                self.last_used = now;
                match &mut self.session {
                    None => plain.extend_from_slice(&buffer[..count]),
                    Some(session) => {
                        if !session.read(&buffer[..count], plain) {
                            return Read::Gone;
                        }
                    }
                }
                Read::Bytes
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Read::Nothing,
                io::ErrorKind::Interrupted => Read::Bytes,
                _ => Read::Gone,
            },
        }
    }

    /// Whether the connection failed to come up.
    pub(super) fn has_failed(&self) -> bool {
        !matches!(self.stream.take_error(), Ok(None))
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        // A socket that is closed next is gone from the poll anyway.
        _ = registry.deregister(&mut self.stream);
    }
}
