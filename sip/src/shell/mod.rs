//! The only folder with sockets, a clock and threads.
//!
//! [`Sip`] is the face: it starts one thread that owns an [`Endpoint`](crate::endpoint::Endpoint) and
//! all its sockets ([`driver`]), takes commands and gives events over bounded channels. A few
//! more threads ask DNS ([`resolve`]), since an answer may take seconds.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one folder that reads the clock, spawns, and touches sockets and files"
)]

mod driver;
pub mod resolve;
mod tcp;
mod tls;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use mio::Waker;

use self::driver::Driver;
use crate::endpoint::Config;
use crate::event::{Command, Event};
use crate::message::Transport;

pub use self::resolve::Permit;
pub use self::tls::Tls;

/// Commands that wait for the thread: it takes them all at each wake-up, so this is a burst of 4,096
/// within a millisecond. One more is refused.
const MOST_COMMANDS: usize = 4_096;

/// Events that wait for the user. When they are not taken, the thread stops reading its sockets, and
/// peers send again, until there is room.
const MOST_EVENTS: usize = 16_384;

/// Where is listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub transport: Transport,
    /// Port 0 takes a free one; see [`Sip::addresses`].
    pub addr: SocketAddr,
}

/// A socket on all addresses of IPv6 shows those of IPv4 inside of them (RFC 4291 section 2.5.5.2): what they are.
fn canonical(mut addr: SocketAddr) -> SocketAddr {
    addr.set_ip(addr.ip().to_canonical());
    addr
}

/// What a running stack is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// With nothing advertised for a transport and a family of addresses, the address that is listened on is
    /// advertised.
    pub endpoint: Config,
    /// 32 random bytes.
    pub seed: [u8; 32],
    pub listen: Vec<Listen>,
    /// Needed for listening on TLS and for trunks over TLS.
    pub tls: Option<Tls>,
    /// DNS servers; empty for those of `/etc/resolv.conf`.
    pub dns: Vec<SocketAddr>,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// [`MOST_COMMANDS`] wait already.
    Full,
    /// The thread is gone.
    Stopped,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "too many SIP commands wait",
            Self::Stopped => "the SIP thread is stopped",
        })
    }
}

impl std::error::Error for Refused {}

/// A running stack. Dropping it stops its threads; calls that are up are not ended by that.
pub struct Sip {
    commands: Sender<Command>,
    events: Receiver<Event>,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
    addresses: Vec<Listen>,
    thread: Option<JoinHandle<()>>,
}

impl Sip {
    /// Binds all sockets and starts.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Self::begin(settings, None)
    }

    /// The same; a host is called only at those of its addresses that are permitted, and so is an address
    /// that another side names in a Contact or a Record-Route.
    pub fn start_permitting(settings: Settings, permit: Permit) -> io::Result<Self> {
        Self::begin(settings, Some(permit))
    }

    fn begin(settings: Settings, permit: Option<Permit>) -> io::Result<Self> {
        let (commands, commands_in) = bounded(MOST_COMMANDS);
        let (events_out, events) = bounded(MOST_EVENTS);
        let stop = Arc::new(AtomicBool::new(false));
        let driver = Driver::new(settings, commands_in, events_out, Arc::clone(&stop), permit)?;
        let (waker, addresses) = (driver.waker(), driver.addresses());
        let thread = std::thread::Builder::new()
            .name("sip".to_owned())
            .spawn(move || driver.run())?;
        Ok(Self {
            commands,
            events,
            waker,
            stop,
            addresses,
            thread: Some(thread),
        })
    }

    pub fn command(&self, command: Command) -> Result<(), Refused> {
        self.commands
            .try_send(command)
            .map_err(|error| match error {
                TrySendError::Full(_) => Refused::Full,
                TrySendError::Disconnected(_) => Refused::Stopped,
            })?;
        self.waker.wake().map_err(|_| Refused::Stopped)
    }

    pub fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// What is listened on, ports filled in.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }
}

impl Drop for Sip {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A thread that cannot be woken sees the flag at its next wake-up; one that panicked has
        // nothing left to end.
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            _ = thread.join();
        }
    }
}
