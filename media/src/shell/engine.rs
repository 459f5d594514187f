//! The engine's face to the rest of the program.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::clock::Clock;
use super::counters::{Counters, Tallies, count};
use super::disk::{self, Disk, Opening};
use super::driver::Driver;
use super::finish::RecordedFile;
use super::lateness::{Histogram, Lateness, LatenessTotals};
use super::live::Renewal;
use super::mailbox::{CallKey, Command, Gate, Keeper, Mailbox, Sink};
use super::peer::{Identity, Net, PeerConnection};
use super::placed::{CountedCall, Placed};
use super::recorder::ring;
use super::rtp::{RtpCarrier, RtpLine};
use super::socket::Socket;
use super::tools::WebRtc;
use super::transport::Transport;
use crate::call::input::{EndRequest, ToolOutcome};
use crate::call::output::CallEvent;
use crate::config::CallConfig;
use crate::error::Refused;
use crate::leg::rtp::RtpPlan;
use crate::peer::{PeerAnswer, PeerRequest, Quality, Reach};
use crate::rtp::sdp::Agreed;
use crate::speech::{Providers, ReplyId, SpeechSink, ToolCall};

/// How the engine is set up.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Media threads; at least one is started.
    pub threads: usize,
    /// Most calls at a time.
    pub node_calls: usize,
    /// Where spools, tapes and finished recordings are written. Made if missing.
    pub spool_dir: PathBuf,
    /// New recordings do not start while less than this is free there, bytes.
    pub min_free: u64,
    /// The most that any call's agent audio is sent ahead of its playing time, ms.
    pub lead_ms: u32,
    /// Where calls over WebRTC meet the network; `None`: this node takes none.
    pub webrtc: Option<WebRtcConfig>,
    /// How far media threads stand above all other work of the machine, in steps of niceness (0 to
    /// 20; `setpriority(2)`). A process that may not ask for it runs them like any other.
    pub priority: u8,
}

/// Where WebRTC calls meet the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebRtcConfig {
    /// Where the media threads listen, one UDP port each: this port for the first, the next for the
    /// second and so on. Port 0: ports that the system chooses.
    pub listen: SocketAddr,
    /// The addresses that clients are told. A port of 0 is the port listened on; another is that of the
    /// first thread, and the others count up from it. Empty: the address listened on, or, when that is
    /// unspecified, the one that this machine speaks from.
    pub public_addresses: Vec<SocketAddr>,
}

impl WebRtcConfig {
    /// The port of the media thread of this number.
    fn bind(&self, thread: usize, clock: Clock, tallies: Arc<Tallies>) -> io::Result<Net> {
        let offset = u16::try_from(thread).unwrap_or(u16::MAX);
        let shifted = |address: &SocketAddr| match address.port() {
            0 => *address,
            port => SocketAddr::new(address.ip(), port.saturating_add(offset)),
        };
        let public: Vec<_> = self.public_addresses.iter().map(shifted).collect();
        Net::bind(shifted(&self.listen), &public, clock, tallies)
    }
}

/// Raises this thread's priority: frames are due every 20 ms, whatever else the machine does.
fn stand_above(steps: u8) {
    if steps == 0 {
        return;
    }
    // Without a process id it is the calling thread that is meant.
    if let Err(error) = rustix::process::setpriority_process(None, -i32::from(steps)) {
        tracing::info!(%error, "media threads run at the usual priority");
    }
}

/// A call to be run.
pub struct NewCall {
    pub config: CallConfig,
    pub carrier: Carrier,
    /// Makes the call's providers. Run by [`Engine::place`] on the caller's thread, so it may need
    /// that thread's runtime.
    pub providers: Box<dyn FnOnce(Arc<dyn SpeechSink>) -> Providers + Send>,
    /// Told all that happens. Called on media and disk threads: it must not block.
    pub on_event: OnEvent,
}

/// How the caller reaches the call.
pub enum Carrier {
    Socket {
        /// The upgraded connection, after the 101 answer was written.
        stream: std::net::TcpStream,
        /// What was read of it after the request.
        leftover: Vec<u8>,
        /// Dropped once the connection is closed: whoever counts connections learns it so. It is dropped
        /// on a media thread, and must not block.
        held: Option<Box<dyn Send>>,
    },
    /// A telephone call: its ports are bound, and both sides have agreed.
    Rtp(Box<RtpCarrier>),
    /// Over WebRTC: the connection is made by what [`CallHandle::peer`] is told.
    Peer { reach: Reach },
}

/// Where a call's news go.
pub(super) type OnEvent = Arc<dyn Fn(CallNews) + Send + Sync>;

/// What a call tells the world outside.
#[derive(Clone, Debug)]
pub enum CallNews {
    /// In order; [`CallEvent::Ended`] comes once and is the last one.
    Event(CallEvent),
    /// Run this tool and answer with [`CallHandle::tool`].
    Tool { reply: ReplyId, call: ToolCall },
    /// How the network was: about every two seconds while the caller is connected over WebRTC.
    Network(Quality),
    /// Nobody waits for this tool's answer any more.
    CancelTool { id: String },
    /// After `Ended`, from the disk thread: the recording is durable (and complete, unless it is
    /// `broken`), or why there is none.
    /// Comes for every call with `recording`.
    Recorded(Result<RecordedFile, String>),
    /// The same for a call without `recording`: its redacted tape.
    Taped(PathBuf),
}

/// The media threads and the disk's. One for the whole process.
pub struct Engine {
    config: EngineConfig,
    clock: Clock,
    threads: Vec<Arc<Mailbox>>,
    histograms: Vec<Arc<Histogram>>,
    tallies: Arc<Tallies>,
    keys: AtomicU64,
    live: Arc<AtomicUsize>,
    /// Read while a call is placed, so that none slips in behind the shutdown.
    stopping: RwLock<bool>,
    running: Mutex<Option<Running>>,
}

struct Running {
    openings: Sender<Opening>,
    /// By their names, in the order in which they end.
    threads: Vec<(String, JoinHandle<()>)>,
}

impl Engine {
    /// Starts all threads.
    pub fn start(config: EngineConfig) -> io::Result<Self> {
        let clock = Clock::start();
        let tallies = Arc::new(Tallies::default());
        let count = config.threads.max(1);
        let (producers, consumers): (Vec<_>, Vec<_>) = (0..count).map(|_| ring()).unzip();
        let disk = disk::start(
            (&config.spool_dir, config.min_free),
            consumers,
            config.node_calls,
            &tallies,
        )?;
        let mut engine = Self {
            clock,
            threads: Vec::new(),
            histograms: Vec::new(),
            tallies,
            keys: AtomicU64::new(1),
            live: Arc::default(),
            stopping: RwLock::new(false),
            running: Mutex::new(None),
            config,
        };
        let identity = engine.config.webrtc.as_ref().map(|_| Identity::new());
        let identity = identity.transpose().map_err(io::Error::other)?;
        let mut threads = Vec::new();
        for (index, producer) in producers.into_iter().enumerate() {
            let (calls, priority) = (engine.config.node_calls, engine.config.priority);
            let webrtc = match (&engine.config.webrtc, &identity) {
                (Some(webrtc), Some(identity)) => Some(WebRtc {
                    net: webrtc.bind(index, clock, engine.tallies.clone())?,
                    identity: identity.clone(),
                }),
                _ => None,
            };
            let (driver, mailbox, histogram) = Driver::new(
                clock,
                (index, calls),
                producer,
                &disk,
                &engine.tallies,
                webrtc,
            )?;
            let name = format!("media-{index}");
            let thread = thread::Builder::new().name(name.clone()).spawn(move || {
                stand_above(priority);
                driver.run();
            })?;
            threads.push((name, thread));
            engine.threads.push(mailbox);
            engine.histograms.push(histogram);
        }
        let Disk {
            openings,
            writer,
            finisher,
        } = disk;
        threads.push(("disk".to_owned(), writer));
        threads.push(("finish".to_owned(), finisher));
        engine.running = Mutex::new(Some(Running { openings, threads }));
        Ok(engine)
    }

    /// A thread that ended though the engine was to go on: its name, and how it ended. Each is told once. The calls of
    /// a media thread are over with it; without a thread of the disk nothing is recorded any more.
    pub fn fallen(&self) -> Option<(String, thread::Result<()>)> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = &mut running.as_mut()?.threads;
        let at = threads
            .iter()
            .position(|(_, thread)| thread.is_finished())?;
        let (name, thread) = threads.remove(at);
        Some((name, thread.join()))
    }

    /// Takes a call: it runs from now on, on the thread with the fewest calls, and its first news
    /// come. After an error nothing was told, and the connection is closed. Of a call whose thread ends before it took
    /// it nothing is told either: `on_event` is dropped, and its handle says that it is over.
    pub fn place(&self, call: NewCall) -> Result<CallHandle, Refused> {
        let stopping = self.stopping.read().unwrap_or_else(PoisonError::into_inner);
        if *stopping {
            return Err(Refused::Stopping);
        }
        let mailbox = self
            .threads
            .iter()
            .filter(|thread| thread.is_alive())
            .min_by_key(|thread| thread.live.load(Ordering::Relaxed));
        let mailbox = mailbox.ok_or(Refused::NoThread)?.clone();
        let seat =
            CountedCall::take(&self.live, &mailbox, self.config.node_calls).ok_or(Refused::Full)?;
        let key: CallKey = self.keys.fetch_add(1, Ordering::Relaxed);
        let line = match call.carrier {
            Carrier::Socket {
                stream,
                leftover,
                held,
            } => {
                let socket = Socket::new(stream, leftover, call.config.audio_format, held)
                    .map_err(|_| Refused::Socket)?;
                Transport::Socket(socket)
            }
            Carrier::Rtp(carrier) => Transport::Rtp(Box::new(RtpLine::new(*carrier))),
            Carrier::Peer { .. } if self.config.webrtc.is_none() => return Err(Refused::Socket),
            Carrier::Peer { reach } => Transport::Peer(Box::new(PeerConnection::new(key, reach))),
        };
        let gate = Arc::new(Gate::default());
        let sink = Arc::new(Sink {
            key,
            gate: gate.clone(),
            mailbox: mailbox.clone(),
        });
        let mut config = call.config;
        config.lead_ms = config.lead_ms.min(self.config.lead_ms);
        let placed = Placed {
            key,
            config,
            line,
            providers: (call.providers)(sink),
            on_event: call.on_event,
            gate: Keeper(gate.clone()),
            seat,
            span: tracing::Span::current(),
        };
        if !mailbox.command(Command::Place(Box::new(placed))) {
            return Err(match mailbox.is_alive() {
                true => Refused::Full,
                false => Refused::NoThread,
            });
        }
        count(&self.tallies.calls, 1);
        Ok(CallHandle { key, gate, mailbox })
    }

    /// Calls that were placed and are not over.
    pub fn live_calls(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub fn lateness(&self) -> Lateness {
        Histogram::sum(
            self.histograms.iter().map(|histogram| &**histogram),
            self.clock.now(),
        )
    }

    /// The same since the start.
    pub fn lateness_totals(&self) -> LatenessTotals {
        Histogram::totals(self.histograms.iter().map(|histogram| &**histogram))
    }

    pub fn counters(&self) -> Counters {
        self.tallies.read()
    }

    /// Ends every call that is live now.
    pub fn drain(&self, request: EndRequest) {
        for thread in &self.threads {
            thread.insist(Command::EndAll(request));
        }
    }

    /// Takes no more calls, ends the live ones, waits for them up to `wait` (then they are cut off),
    /// and returns when every recording is on the disk. A second call returns at once.
    pub fn shutdown(&self, wait: Duration) {
        *self
            .stopping
            .write()
            .unwrap_or_else(PoisonError::into_inner) = true;
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Running { openings, threads }) = running else {
            return;
        };
        self.drain(EndRequest::Drain);
        let start = Instant::now();
        while self.live_calls() > 0 && start.elapsed() < wait {
            thread::sleep(Duration::from_millis(5));
        }
        for thread in &self.threads {
            thread.insist(Command::Stop);
        }
        drop(openings);
        for (name, thread) in threads {
            if thread.join().is_err() {
                tracing::error!(name, "a thread of the engine had ended by a panic");
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.config)
            .field("live_calls", &self.live_calls())
            .finish_non_exhaustive()
    }
}

/// One call, from outside.
#[derive(Clone)]
pub struct CallHandle {
    key: CallKey,
    gate: Arc<Gate>,
    mailbox: Arc<Mailbox>,
}

impl CallHandle {
    /// Whether the call is over, so that it takes no command any more.
    pub fn is_over(&self) -> bool {
        self.gate.is_closed()
    }

    /// Asks the call to end; its news tell when it has. `false`: it is over, or its thread is behind
    /// with its commands.
    pub fn end(&self, request: EndRequest) -> bool {
        !self.gate.is_closed() && self.mailbox.command(Command::End(self.key, request))
    }

    /// Asks something of the call's WebRTC side; `answer` is told what came of it. `false` as with
    /// [`end`](Self::end): then `answer` is dropped.
    pub fn peer(&self, request: PeerRequest, answer: PeerAnswer) -> bool {
        !self.gate.is_closed()
            && self
                .mailbox
                .command(Command::Peer(self.key, request, answer))
    }

    /// The other side of a telephone call hung up. `false` as with [`end`](Self::end).
    pub fn hung_up(&self) -> bool {
        !self.gate.is_closed() && self.mailbox.command(Command::HungUp(self.key))
    }

    /// The other side of a telephone call is not there any more, and did not hang up. `false` as with
    /// [`end`](Self::end).
    pub fn lost(&self) -> bool {
        !self.gate.is_closed() && self.mailbox.command(Command::Lost(self.key))
    }

    /// Both sides of a telephone call agreed anew: hold, resume, another codec or address. `false` as
    /// with [`end`](Self::end).
    pub fn renew(&self, agreed: Agreed, plan: RtpPlan) -> bool {
        let renewal = Box::new(Renewal { agreed, plan });
        !self.gate.is_closed() && self.mailbox.command(Command::Media(self.key, renewal))
    }

    /// Sends keys on a telephone call, in their order. `false` as with [`end`](Self::end).
    pub fn press(&self, keys: &str) -> bool {
        !self.gate.is_closed()
            && keys
                .chars()
                .all(|key| self.mailbox.command(Command::Press(self.key, key)))
    }

    /// The caller of a telephone call pressed a key (`0-9 * # A-D`), and its signalling told it. `false`
    /// as with [`end`](Self::end).
    pub fn pressed(&self, key: char) -> bool {
        !self.gate.is_closed() && self.mailbox.command(Command::Key(self.key, key))
    }

    /// Hands a tool's answer to the call. `false` as with [`end`](Self::end).
    pub fn tool(&self, outcome: ToolOutcome) -> bool {
        !self.gate.is_closed() && self.mailbox.command(Command::Tool(self.key, outcome))
    }
}

impl fmt::Debug for CallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallHandle")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Tells the news. A listener that panics loses this one, and costs no thread and no other call.
pub(super) fn tell(on_event: &OnEvent, news: CallNews) {
    if catch_unwind(AssertUnwindSafe(|| on_event(news))).is_err() {
        tracing::error!("a listener to a call's news panicked");
    }
}
