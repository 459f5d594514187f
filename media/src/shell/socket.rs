//! One caller's WebSocket (RFC 6455): bounded in what it reads, holds and is sent.

use std::io::{self, Read, Write};
use std::net;
use std::time::Duration;

use bytes::BytesMut;
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tungstenite::{Bytes, Error, Message, Utf8Bytes, WebSocket};

use crate::bucket::Bucket;
use crate::config::AudioFormat;
use crate::time::Time;

/// The largest frame, bytes: a second of PCM in base64 is 43 KiB. Over it: 1009.
const MAX_FRAME: usize = 64 << 10;
/// The largest message of several frames, bytes. Over it: 1009.
const MAX_MESSAGE: usize = 256 << 10;
/// What may wait here for a caller that reads too slowly, bytes: with what the kernel holds about two
/// seconds of audio. Kept small, as a call that nobody reads should cost no more than one that is.
const MAX_WAITING: usize = 14 << 10;
/// What may be queued in one pass before the kernel was asked to take it, bytes: the longest reply's
/// text beside its audio.
const MAX_PENDING: usize = 96 << 10;
/// The same as a time: a caller that takes nothing for so long has stopped reading.
const MAX_BLOCKED: Duration = Duration::from_secs(2);
/// The kernel's part of what waits: a good second of audio in base64. Without a limit it would hold
/// minutes of it.
const fn send_buffer(audio: AudioFormat) -> usize {
    match audio {
        AudioFormat::Pcm16000 | AudioFormat::Opus48000 => 64 << 10,
        AudioFormat::Ulaw8000 => 16 << 10,
    }
}
/// The head of a frame of more than 125 bytes, as nearly all are.
const FRAME_HEAD: u64 = 4;
/// What is read of one call in one pass, bytes: no caller starves the thread's others.
const READ_BUDGET: usize = 64 << 10;
/// Messages a second, and how many may come at once (1 ms chunks after a hiccup). Over it: 1008.
pub(super) const MESSAGES: Bucket = Bucket::new(200, 400);
/// Bytes a second, and at once: twenty times the heaviest audio. Stops what makes no message, such as
/// endless empty fragments. Over it: 1008.
pub(super) const BYTES: Bucket = Bucket::new(1 << 20, 2 << 20);
/// How long the closing handshake may take (section 7.1.1).
const CLOSING: Duration = Duration::from_secs(1);

/// What a read gave.
pub(super) enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// Nothing more in this pass.
    Nothing,
    /// The caller closed, broke off, or was closed for what it sent.
    Gone,
}

pub(super) struct Socket {
    ws: WebSocket<Wire>,
    state: State,
    messages: Bucket,
    bytes: Bucket,
    /// Bytes given to the socket so far; what the kernel has not taken of them waits.
    queued: u64,
    /// The kernel took nothing since then.
    blocked_since: Option<Time>,
    stalled: bool,
    violation: bool,
    /// Fields are dropped in order: after the connection.
    _held: Option<Box<dyn Send>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Our close frame is sent; the peer's is awaited.
    Closing {
        until: Time,
    },
    /// The peer broke the protocol: what it sends is read away, so that the kernel does not reset the
    /// connection before our close frame is read.
    Discarding {
        until: Time,
    },
    Over,
}

impl Socket {
    /// Takes an upgraded connection: the 101 answer is written, `leftover` was read after the request.
    pub(super) fn new(
        stream: net::TcpStream,
        leftover: Vec<u8>,
        audio: AudioFormat,
        held: Option<Box<dyn Send>>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, send_buffer(audio))?;
        let config = WebSocketConfig::default()
            .read_buffer_size(2 << 10)
            // Nothing is written before the flush at the end of a pass.
            .write_buffer_size(MAX_PENDING - 1)
            .max_write_buffer_size(MAX_PENDING)
            .max_frame_size(Some(MAX_FRAME))
            .max_message_size(Some(MAX_MESSAGE));
        let wire = Wire::new(TcpStream::from_std(stream));
        Ok(Self {
            ws: WebSocket::from_partially_read(wire, leftover, Role::Server, Some(config)),
            state: State::Open,
            messages: MESSAGES,
            bytes: BYTES,
            queued: 0,
            blocked_since: None,
            stalled: false,
            violation: false,
            _held: held,
        })
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.ws
            .get_mut()
            .stream
            .register(registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        // Closing the descriptor takes it out anyway.
        let _ = self.ws.get_mut().stream.deregister(registry);
    }

    /// The poll said so. `end`: the peer's end of stream is among it.
    pub(super) fn ready(&mut self, readable: bool, writable: bool, end: bool) {
        let wire = self.ws.get_mut();
        wire.readable |= readable || end;
        wire.writable |= writable;
        wire.to_the_end |= end;
    }

    /// A new pass: the budget is whole again.
    pub(super) fn new_pass(&mut self) {
        self.ws.get_mut().budget = READ_BUDGET;
    }

    /// The budget ended before the data did: come again without waiting for the poll.
    pub(super) fn wants_more(&self) -> bool {
        let wire = self.ws.get_ref();
        wire.readable && wire.budget == 0 && self.state != State::Over
    }

    pub(super) fn receive(&mut self, now: Time) -> Received {
        loop {
            match self.state {
                State::Open | State::Closing { .. } => {}
                State::Discarding { .. } => return self.discard(),
                State::Over => return Received::Gone,
            }
            let open = self.state == State::Open;
            let before = self.ws.get_ref().received;
            let message = self.ws.read();
            let after = self.ws.get_ref().received;
            // While closing nothing is handed on, so nothing needs a limit but the budget and time.
            if open && !self.bytes.take(now, after - before) {
                return self.refuse(now, CloseCode::Policy, "too much data");
            }
            match message {
                Ok(Message::Close(_)) => {
                    // The answer is queued; reading on sends it and tells when all is over.
                    self.state = State::Closing {
                        until: now + CLOSING,
                    };
                    if open {
                        self.finish_closing();
                        return Received::Gone;
                    }
                }
                Ok(_) if open && !self.messages.take(now, 1) => {
                    return self.refuse(now, CloseCode::Policy, "too many messages");
                }
                Ok(Message::Text(text)) if open => return Received::Text(text),
                Ok(Message::Binary(bytes)) if open => return Received::Binary(bytes),
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Err(Error::Capacity(_)) if open => {
                    return self.refuse(now, CloseCode::Size, "message too large");
                }
                Err(Error::Utf8(_)) if open => {
                    return self.refuse(now, CloseCode::Invalid, "text is not UTF-8");
                }
                Err(Error::Protocol(error)) if open && !lost(&error) => {
                    return self.refuse(now, CloseCode::Protocol, "protocol error");
                }
                Err(_) => {
                    self.state = State::Over;
                    return Received::Gone;
                }
            }
        }
    }

    /// Queues a text message. It leaves with the next [`flush`](Self::flush).
    pub(super) fn send(&mut self, text: &str, scratch: &mut BytesMut) {
        if self.state != State::Open {
            return;
        }
        scratch.clear();
        scratch.extend_from_slice(text.as_bytes());
        self.queued += text.len() as u64 + FRAME_HEAD;
        // The bytes are copied into the send buffer, and the scratch is whole again afterwards.
        let Ok(text) = Utf8Bytes::try_from(scratch.split().freeze()) else {
            return;
        };
        match self.ws.write(Message::Text(text)) {
            Ok(()) => {}
            Err(Error::WriteBufferFull(_)) => self.stalled = true,
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.state = State::Over,
        }
    }

    /// Writes what is queued: one system call, unless the kernel takes it in parts.
    pub(super) fn flush(&mut self, now: Time) {
        if self.state == State::Over {
            return;
        }
        let before = self.ws.get_ref().sent;
        match self.ws.flush() {
            Ok(()) => {
                self.blocked_since = None;
                self.queued = self.ws.get_ref().sent;
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.ws.get_ref().sent != before {
                    self.blocked_since = Some(now);
                }
                let since = *self.blocked_since.get_or_insert(now);
                let waiting = self.queued.saturating_sub(self.ws.get_ref().sent);
                let too_long = now.since(since) >= MAX_BLOCKED;
                if self.state == State::Open && (too_long || waiting > MAX_WAITING as u64) {
                    self.stalled = true;
                }
            }
            Err(Error::WriteBufferFull(_)) => self.stalled = true,
            Err(_) => self.state = State::Over,
        }
    }

    /// Starts the closing handshake, after what is queued.
    pub(super) fn close(&mut self, now: Time, code: u16, reason: &'static str) {
        if self.state == State::Open {
            self.send_close(code.into(), reason);
            if self.state == State::Open {
                self.state = State::Closing {
                    until: now + CLOSING,
                };
            }
        }
    }

    /// The caller takes nothing any more; tells so once.
    pub(super) fn take_stalled(&mut self) -> bool {
        std::mem::take(&mut self.stalled) && self.state == State::Open
    }

    /// The caller was closed for what it sent; tells so once.
    pub(super) fn take_violation(&mut self) -> bool {
        std::mem::take(&mut self.violation)
    }

    /// When to come back though nothing happened.
    pub(super) fn deadline(&self) -> Time {
        match (self.state, self.blocked_since) {
            (State::Closing { until } | State::Discarding { until }, _) => until,
            (State::Open, Some(since)) => since + MAX_BLOCKED,
            (State::Open, None) | (State::Over, _) => Time::NEVER,
        }
    }

    /// Gives up a closing that takes too long.
    pub(super) fn expire(&mut self, now: Time) {
        if let State::Closing { until } | State::Discarding { until } = self.state
            && now >= until
        {
            self.state = State::Over;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Bytes read and written since the last asking.
    pub(super) fn take_traffic(&mut self) -> (u64, u64) {
        let wire = self.ws.get_mut();
        let traffic = (wire.received - wire.told.0, wire.sent - wire.told.1);
        wire.told = (wire.received, wire.sent);
        traffic
    }

    fn refuse(&mut self, now: Time, code: CloseCode, reason: &'static str) -> Received {
        self.violation = true;
        self.send_close(code, reason);
        if self.state != State::Over {
            self.state = State::Discarding {
                until: now + CLOSING,
            };
        }
        Received::Gone
    }

    fn send_close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        };
        match self.ws.close(Some(frame)) {
            Ok(()) => {}
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.state = State::Over,
        }
    }

    /// After the peer's close frame: sends ours and is done with the connection.
    fn finish_closing(&mut self) {
        match self.ws.flush() {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.state = State::Over,
        }
    }

    fn discard(&mut self) -> Received {
        let mut waste = [0; 4096];
        loop {
            match self.ws.get_mut().read(&mut waste) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Ok(0) | Err(_) => {
                    self.state = State::Over;
                    return Received::Gone;
                }
            }
        }
    }
}

/// The peer's connection ended without a closing handshake: nothing of it can be answered.
fn lost(error: &tungstenite::error::ProtocolError) -> bool {
    *error == tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
}

/// The TCP connection, with a budget for reads and no system call that is known to give nothing.
struct Wire {
    stream: TcpStream,
    budget: usize,
    readable: bool,
    writable: bool,
    /// The end of stream was signalled: a short read is no sign of having read all.
    to_the_end: bool,
    received: u64,
    sent: u64,
    told: (u64, u64),
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            budget: READ_BUDGET,
            readable: true,
            writable: true,
            to_the_end: false,
            received: 0,
            sent: 0,
            told: (0, 0),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.readable || self.budget == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let room = buffer.len().min(self.budget);
        let result = again(|| self.stream.read(&mut buffer[..room]));
        match &result {
            Ok(n) => {
                self.budget -= n;
                self.received += *n as u64;
                // epoll(7): with a stream socket, a read of less than was asked for has emptied it.
                if *n < room && *n > 0 && !self.to_the_end {
                    self.readable = false;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
            Err(_) => {}
        }
        result
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.writable {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = again(|| self.stream.write(bytes));
        match &result {
            Ok(n) => self.sent += *n as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
            Err(_) => {}
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A call that a signal interrupted is made again.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
