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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use mio::Waker;
use rustc_hash::FxHashSet;

use self::driver::Driver;
use crate::endpoint::Config;
use crate::event::{CallId, Command, Event};
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
    ends: Ends,
    events: Receiver<Event>,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
    addresses: Vec<Listen>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Calls that are to end whatever waits before them: each stands here once, so there are no more than calls.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<FxHashSet<CallId>>>);

impl Ends {
    fn add(&self, call: CallId) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ends.insert(call);
    }

    fn take(&self) -> FxHashSet<CallId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
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
        let ends = Ends::default();
        let told = (commands_in, ends.clone());
        let driver = Driver::new(settings, told, events_out, Arc::clone(&stop), permit)?;
        let (waker, addresses) = (driver.waker(), driver.addresses());
        let thread = thread::Builder::new()
            .name("sip".to_owned())
            .spawn(move || driver.run())?;
        Ok(Self {
            commands,
            ends,
            events,
            waker,
            stop,
            addresses,
            thread: Mutex::new(Some(thread)),
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

    /// Ends a call in whatever state it is: refuses it (503), cancels it, or says goodbye. For this there is always
    /// room; commands that wait come first.
    pub fn end(&self, call: CallId) {
        self.ends.add(call);
        // A thread that cannot be woken is gone, and the call with it.
        _ = self.waker.wake();
    }

    /// How the thread ended, if it has though nobody stopped it; told once.
    pub fn fallen(&self) -> Option<(String, thread::Result<()>)> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = thread.take_if(|thread| thread.is_finished())?;
        Some(("sip".to_owned(), ended.join()))
    }

    /// Stops the thread; calls that are up are not ended by that. `false`: it cannot be woken, and sees it at its next
    /// wake-up.
    pub fn stop(&self) -> bool {
        self.stop.store(true, Ordering::Release);
        self.waker.wake().is_ok()
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
        let told = self.stop();
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // One that panicked has nothing left to end.
        if told && let Some(thread) = thread.take() {
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_is_over_is_told_once_and_its_stack_takes_no_more() {
        let sip = Sip::start(Settings {
            endpoint: Config::new(Vec::new()),
            seed: [3; 32],
            listen: vec![Listen {
                transport: Transport::Udp,
                addr: ([127, 0, 0, 1], 0).into(),
            }],
            tls: None,
            dns: Vec::new(),
        })
        .unwrap();
        assert!(sip.fallen().is_none());
        assert!(sip.stop());
        let until = Instant::now() + Duration::from_secs(30);
        let (name, how) = loop {
            if let Some(fallen) = sip.fallen() {
                break fallen;
            }
            assert!(Instant::now() < until, "it lives on");
            thread::yield_now();
        };
        assert_eq!((name.as_str(), how.is_ok()), ("sip", true));
        assert!(sip.fallen().is_none());
        let refused = sip.command(Command::HangUp(CallId(1), None));
        assert_eq!(refused, Err(Refused::Stopped));
        // Whoever waits for events learns of it, too.
        assert!(sip.events().recv_timeout(Duration::from_secs(30)).is_err());
    }
}
