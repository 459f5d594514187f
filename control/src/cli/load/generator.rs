//! The one thread that makes all calls of a load run: every call has its slot of 1 ms within the 20 ms
//! of a frame, so calls are as out of step with each other as real ones; at each slot it also reads what came.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpStream as Stream;
use mio::{Events, Interest, Poll, Token};

use super::arrival::{self, Arrival};
use super::browser::BrowserCaller;
use super::listener::{FRAME_US, Figures};
use super::process::{self, Reading};
use super::socket::SocketCaller;
use super::stimulus::Stimulus;
use super::witness::{Stall, Witness};

/// Slots of a frame's 20 ms.
const SLOTS: u64 = 20;
const SLOT_US: u64 = FRAME_US / SLOTS;
/// Most bytes read at once: some forty messages.
const READ: usize = 16 * 1024;

/// How long to run, and whom to watch.
pub(super) struct Plan {
    /// Figures of this first part are forgotten.
    pub warm_up: Duration,
    pub measured: Duration,
    /// The server's process.
    pub pid: Option<u32>,
}

/// What a run brought.
pub(super) struct Outcome {
    pub figures: Figures,
    pub seconds: f64,
    pub at_start: Option<Reading>,
    pub at_end: Option<Reading>,
    /// Lines lost before the end, each with its reason.
    pub lost: Vec<String>,
    /// When the machine itself stood still; `None` where nobody could watch.
    pub stalls: Option<Vec<Stall>>,
}

/// Opens the socket of a session: the upgrade, and nothing beyond it.
pub(super) fn dial(ws_url: &str) -> Result<TcpStream, String> {
    let rest = ws_url
        .strip_prefix("ws://")
        .ok_or("the load generator speaks plain ws:// only")?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut socket = TcpStream::connect(host).map_err(|error| format!("{host}: {error}"))?;
    let failed = |error: io::Error| format!("upgrade: {error}");
    socket.set_nodelay(true).map_err(failed)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .map_err(failed)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: c2lkZXRvbmUgbG9hZCBydW4=\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).map_err(failed)?;
    // Byte by byte up to the empty line: what follows belongs to the call.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).map_err(failed)? == 0 || head.len() > 8192 {
            return Err("upgrade: the server closed the line".to_owned());
        }
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 101") {
        return Ok(socket);
    }
    let first = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Err(format!("upgrade: {}", String::from_utf8_lossy(first)))
}

/// Runs all calls. `progress` is told the share that is done, about once a second.
pub(super) fn run(
    calls: Vec<Call>,
    stimulus: &Stimulus,
    plan: &Plan,
    mut progress: impl FnMut(f64),
) -> io::Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut calls = register(&poll, calls)?;
    let mut lost = Vec::new();
    let mut figures = Figures::new();
    let mut buffer = vec![0; READ];
    let (mut at_start, mut measuring_since, mut witness) = (None, None, None);

    let began = Instant::now();
    // Time 0 means "never" to the ear, so the run's clock starts one frame later.
    let at = move |time: Instant| {
        let micros = time.saturating_duration_since(began).as_micros();
        u64::try_from(micros)
            .unwrap_or(u64::MAX)
            .saturating_add(FRAME_US)
    };
    let now = || at(Instant::now());
    let warm = u64::try_from(plan.warm_up.as_micros()).unwrap_or(u64::MAX) + FRAME_US;
    let end = warm + u64::try_from(plan.measured.as_micros()).unwrap_or(u64::MAX);
    let mut slot = FRAME_US / SLOT_US;
    loop {
        let due = slot * SLOT_US;
        // Not woken by what comes: whoever sends to a sleeper pays for waking it, which would be the server, as if its
        // callers were on its own machine. The kernel notes when what is read had come.
        thread::sleep(Duration::from_micros(due.saturating_sub(now())));
        match poll.poll(&mut events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            let Some(place) = calls.get_mut(event.token().0) else {
                continue;
            };
            if let Some(call) = place
                && let Err(why) = call.serve(event.is_readable(), &mut buffer, &now, &mut figures)
            {
                lost.push(why);
                *place = None;
            }
        }
        while slot * SLOT_US <= now() {
            let due = slot * SLOT_US;
            figures.own_lateness.add(now().saturating_sub(due));
            let first = usize::try_from(slot % SLOTS).unwrap_or_default();
            for (index, place) in calls.iter_mut().enumerate() {
                let Some(call) = place else { continue };
                call.keep(now());
                let due = index % SLOTS as usize == first;
                if let Err(why) = call.send(due, now(), stimulus, &mut figures) {
                    lost.push(why);
                    *place = None;
                }
            }
            slot += 1;
            if measuring_since.is_none() && due >= warm {
                figures.clear();
                measuring_since = Some(Instant::now());
                witness = Witness::of(plan.pid, at);
                at_start = plan.pid.and_then(process::read);
            }
            if slot.is_multiple_of(1000) {
                progress(due as f64 / end as f64);
            }
        }
        if now() >= end {
            break;
        }
    }
    let seconds = measuring_since.map_or(0.0, |since| since.elapsed().as_secs_f64());
    let at_end = plan.pid.and_then(process::read);
    let stalls = witness.and_then(Witness::end);
    for call in calls.iter_mut().flatten() {
        call.stop();
    }
    Ok(Outcome {
        figures,
        seconds,
        at_start,
        at_end,
        lost,
        stalls,
    })
}

/// One call on its wire.
pub(super) enum Call {
    Socket(Box<SocketCaller>, Stream),
    Peer(Box<BrowserCaller>),
}

fn register(poll: &Poll, calls: Vec<Call>) -> io::Result<Vec<Option<Call>>> {
    let mut registered = Vec::with_capacity(calls.len());
    let registry = poll.registry();
    for (index, mut call) in calls.into_iter().enumerate() {
        match &mut call {
            Call::Socket(_, socket) => registry.register(
                socket,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?,
            Call::Peer(peer) => {
                registry.register(&mut peer.socket, Token(index), Interest::READABLE)?;
            }
        }
        registered.push(Some(call));
    }
    Ok(registered)
}

impl Call {
    /// A call on a socket that was dialled.
    pub(super) fn on(socket: TcpStream, line: SocketCaller) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        arrival::note(&socket)?;
        Ok(Self::Socket(Box::new(line), Stream::from_std(socket)))
    }

    /// Reads what is there and writes what is waiting. An error means that the line is lost.
    fn serve(
        &mut self,
        readable: bool,
        buffer: &mut [u8],
        now: &impl Fn() -> u64,
        figures: &mut Figures,
    ) -> Result<(), String> {
        match self {
            Self::Socket(line, socket) => {
                if readable {
                    read(line, socket, buffer, now, figures)?;
                }
                flush(line, socket)
            }
            Self::Peer(peer) => {
                peer.read(buffer, now, figures)?;
                peer.flush();
                Ok(())
            }
        }
    }

    /// Does what is due by the clock.
    fn keep(&mut self, now: u64) {
        match self {
            Self::Socket(line, _) => line.echo_played(now),
            Self::Peer(peer) => peer.keep(),
        }
    }

    /// Sends what waits, and a frame of the stimulus if one is due.
    fn send(
        &mut self,
        due: bool,
        now: u64,
        stimulus: &Stimulus,
        figures: &mut Figures,
    ) -> Result<(), String> {
        match self {
            Self::Socket(line, socket) => {
                if due {
                    line.tick(now, stimulus, figures);
                }
                flush(line, socket)
            }
            Self::Peer(peer) => {
                if due {
                    peer.tick(now, stimulus, figures)?;
                }
                peer.flush();
                Ok(())
            }
        }
    }

    fn stop(&mut self) {
        match self {
            Self::Socket(line, socket) => {
                line.stop();
                // The run is over: a line that breaks now is no loss.
                let _ = flush(line, socket);
            }
            Self::Peer(peer) => peer.stop(),
        }
    }
}

fn read(
    line: &mut SocketCaller,
    socket: &mut Stream,
    buffer: &mut [u8],
    now: &impl Fn() -> u64,
    figures: &mut Figures,
) -> Result<(), String> {
    loop {
        match arrival::read(socket, buffer) {
            Ok(Arrival { length: 0, .. }) => return Err("the server closed a line".to_owned()),
            Ok(arrival) => {
                let came = arrival.before(now());
                line.receive(came, &buffer[..arrival.length], figures)?;
                // A short read has emptied the socket; the next arrival is an edge of its own.
                if arrival.length < buffer.len() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("a line broke: {error}")),
        }
    }
}

fn flush(line: &mut SocketCaller, socket: &mut Stream) -> Result<(), String> {
    /// Ten seconds of audio: a server that reads that little is down.
    const MOST: usize = 200 * 1024;
    while !line.outgoing.is_empty() {
        match socket.write(&line.outgoing) {
            Ok(count) => drop(line.outgoing.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return if line.outgoing.len() > MOST {
                    Err("the server stopped reading a line".to_owned())
                } else {
                    Ok(())
                };
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("a line broke: {error}")),
        }
    }
    Ok(())
}
