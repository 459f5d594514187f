//! The thread that owns an endpoint and its sockets. One pass: wait, read what has arrived, take
//! commands, let the endpoint say what to do, send.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use rustc_hash::FxHashMap;

use super::resolve::{Ended, Permit, Resolver};
use super::tcp::{Connection, Read};
use super::tls::{Session, Tls};
use super::udp::{BATCH, Udp};
use super::{Ends, Listen, Settings, canonical};
use crate::endpoint::{Advertised, Endpoint, Input, Output, Peer};
use crate::event::{Command, Event};
use crate::message::{Host, Transport};
use crate::time::Time;

const WAKE: Token = Token(0);

/// A connection that nobody used for this long is closed, unless it is of a call or a registration; a
/// carrier that wants to keep another one sends something, if only line ends, every two minutes
/// (RFC 5626 4.4.1).
const IDLE: Duration = Duration::from_secs(600);

/// How long a connection that is being closed may take to write what was said before.
const LINGER: Duration = Duration::from_secs(30);

/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_secs(30);

/// Connections accepted at one wake-up.
const ACCEPTS: usize = 64;

/// Pieces of 64 KiB read from one connection at one wake-up before others have their turn.
const READS: usize = 16;

/// What became of a message.
enum Sent {
    Yes,
    /// Whose message it was may hear of it, and nobody else.
    No,
    /// The connection is of no use any more.
    Broken(Token),
}

struct Listener {
    socket: TcpListener,
    transport: Transport,
    addr: SocketAddr,
    /// Not all that wait were accepted.
    more: bool,
}

pub(super) struct Driver {
    endpoint: Endpoint,
    poll: Poll,
    waker: Arc<Waker>,
    origin: Instant,
    udp: Vec<Udp>,
    listeners: Vec<Listener>,
    /// By token: whether it is a datagram socket, and its place in its table.
    order: Vec<(bool, usize)>,
    connections: FxHashMap<Token, Connection>,
    by_peer: FxHashMap<Peer, Token>,
    next_token: usize,
    /// Connections that were not read to the end.
    unread: Vec<Token>,
    tls: Option<Tls>,
    resolver: Resolver,
    commands: Receiver<Command>,
    ends: Ends,
    events: Sender<Event>,
    /// Events that found no room.
    waiting: VecDeque<Event>,
    stop: Arc<AtomicBool>,
    next_sweep: Time,
    wait: Time,
    buffer: Vec<u8>,
    plain: Vec<u8>,
}

impl Driver {
    pub(super) fn new(
        settings: Settings,
        (commands, ends): (Receiver<Command>, Ends),
        events: Sender<Event>,
        stop: Arc<AtomicBool>,
        permit: Option<Permit>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (mut udp, mut listeners, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for (index, listen) in settings.listen.iter().enumerate() {
            let token = Token(index + 1);
            match listen.transport {
                Transport::Udp => {
                    order.push((true, udp.len()));
                    udp.push(Udp::bind(listen.addr, poll.registry(), token)?);
                }
                transport => {
                    let mut socket = TcpListener::bind(listen.addr)?;
                    poll.registry()
                        .register(&mut socket, token, Interest::READABLE)?;
                    let addr = socket.local_addr()?;
                    order.push((false, listeners.len()));
                    listeners.push(Listener {
                        socket,
                        transport,
                        addr,
                        more: false,
                    });
                }
            }
        }
        let mut config = settings.endpoint;
        let bound = udp
            .iter()
            .map(|udp| (Transport::Udp, udp.addr))
            .chain(listeners.iter().map(|own| (own.transport, own.addr)));
        for (transport, addr) in bound {
            // A listener on all addresses has none of its own to tell.
            let (ip, all) = (addr.ip(), addr.ip().is_unspecified());
            let told = |own: &Advertised| own.transport == transport && (all || own.is_for(ip));
            if !config.advertised.iter().any(told) {
                config.advertised.push(Advertised {
                    transport,
                    host: Host::Ip(ip),
                    port: addr.port(),
                });
            }
        }
        let mut endpoint = Endpoint::new(config, settings.seed);
        if let Some(permit) = permit.clone() {
            // An address is its own name.
            endpoint.judge_by(Arc::new(move |ip| permit(&ip.to_string(), ip)));
        }
        Ok(Self {
            endpoint,
            resolver: Resolver::start(settings.dns, Arc::clone(&waker), permit)?,
            poll,
            waker,
            origin: Instant::now(),
            next_token: settings.listen.len() + 1,
            udp,
            listeners,
            order,
            connections: FxHashMap::default(),
            by_peer: FxHashMap::default(),
            unread: Vec::new(),
            tls: settings.tls,
            commands,
            ends,
            events,
            waiting: VecDeque::new(),
            stop,
            next_sweep: Time::default() + SWEEP,
            wait: Time::NEVER,
            buffer: vec![0; 65_536],
            plain: Vec::new(),
        })
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    pub(super) fn addresses(&self) -> Vec<Listen> {
        let udp = self.udp.iter().map(|udp| Listen {
            transport: Transport::Udp,
            addr: udp.addr,
        });
        let tcp = self.listeners.iter().map(|own| Listen {
            transport: own.transport,
            addr: own.addr,
        });
        udp.chain(tcp).collect()
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(1_024);
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.until_next();
            if !self.turn(&mut events, timeout) {
                return;
            }
        }
    }

    /// Waits, and does all that is due then. `false`: without its poll the thread can do nothing more.
    fn turn(&mut self, events: &mut Events, timeout: Duration) -> bool {
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => return false,
            Ok(()) => {}
        }
        for event in &*events {
            self.note(event.token(), event.is_readable(), event.is_writable());
        }
        self.pass();
        true
    }

    /// All that is due, once.
    fn pass(&mut self) {
        let now = self.now();
        if now >= self.wait {
            self.tell(now, Input::Timeout);
        }
        self.hand_over();
        // Without room for events nothing more is read that would make some.
        if self.waiting.is_empty() {
            self.read_datagrams();
            for at in 0..self.listeners.len() {
                self.accept(at);
            }
            for token in std::mem::take(&mut self.unread) {
                self.read(self.now(), token);
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            let now = self.now();
            self.tell(now, Input::Command(command));
        }
        // Not before: what begins a call may stand among the commands.
        for call in self.ends.take() {
            let now = self.now();
            self.tell(now, Input::Command(Command::Reject(call, 503, None)));
            self.tell(now, Input::Command(Command::HangUp(call, None)));
        }
        while let Some(ended) = self.resolver.next() {
            self.looked_up(ended);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep(now);
        }
        self.hand_over();
    }

    fn now(&self) -> Time {
        let micros = self.origin.elapsed().as_micros();
        // A second on, so that nothing happens at time zero.
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX) + 1_000_000)
    }

    fn until_next(&self) -> Duration {
        let busy = self.udp.iter().any(|udp| udp.more)
            || self.listeners.iter().any(|own| own.more)
            || !self.unread.is_empty();
        if busy && self.waiting.is_empty() {
            return Duration::ZERO;
        }
        let until = self.wait.min(self.next_sweep).since(self.now());
        match self.waiting.is_empty() {
            true => until,
            // The user takes events at its own pace.
            false => until.min(Duration::from_millis(5)),
        }
    }

    /// What a socket that is ready needs.
    fn note(&mut self, token: Token, readable: bool, writable: bool) {
        if token == WAKE {
            return;
        }
        match self.order.get(token.0 - 1) {
            Some((true, at)) => self.udp[*at].more = true,
            Some((false, at)) => self.listeners[*at].more = true,
            None => {
                let now = self.now();
                if writable {
                    self.write(now, token);
                }
                if readable && !self.unread.contains(&token) {
                    self.unread.push(token);
                }
            }
        }
    }

    fn read_datagrams(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for at in 0..self.udp.len() {
            for _ in 0..BATCH {
                if !self.udp[at].more {
                    break;
                }
                let Some((from, bytes)) = self.udp[at].receive(&mut buffer) else {
                    break;
                };
                let now = self.now();
                self.tell(now, Input::Datagram { from, bytes });
            }
        }
        self.buffer = buffer;
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS {
            if !self.listeners[at].more {
                return;
            }
            let Ok((stream, addr)) = self.listeners[at].socket.accept() else {
                self.listeners[at].more = false;
                return;
            };
            let now = self.now();
            let transport = self.listeners[at].transport;
            let session = match (transport, &self.tls) {
                (Transport::Tls, Some(tls)) => match Session::server(tls) {
                    Some(session) => Some(session),
                    None => continue,
                },
                (Transport::Tls, None) => continue,
                _ => None,
            };
            let peer = Peer::new(transport, canonical(addr));
            // A stranger's connection is closed before anything is read or said.
            if !self.endpoint.accepts(now, &peer) {
                continue;
            }
            match self.keep(now, stream, peer.clone(), session) {
                // Its silence has a deadline.
                Some(_) => self.tell(now, Input::Timeout),
                None => self.tell(now, Input::Failed(peer)),
            }
        }
    }

    fn keep(
        &mut self,
        now: Time,
        stream: mio::net::TcpStream,
        peer: Peer,
        session: Option<Session>,
    ) -> Option<Token> {
        let token = Token(self.next_token);
        self.next_token += 1;
        let registry = self.poll.registry();
        let connection =
            Connection::new(stream, peer.clone(), session, now, registry, token).ok()?;
        self.connections.insert(token, connection);
        self.by_peer.insert(peer, token);
        Some(token)
    }

    fn read(&mut self, now: Time, token: Token) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut plain = std::mem::take(&mut self.plain);
        let (mut gone, mut reads) = (false, 0);
        while let Some(connection) = self.connections.get_mut(&token) {
            if reads == READS {
                self.unread.push(token);
                break;
            }
            reads += 1;
            plain.clear();
            let read = connection.read(now, &mut buffer, &mut plain);
            let peer = connection.peer.clone();
            if !plain.is_empty() {
                self.tell(
                    now,
                    Input::Stream {
                        peer,
                        bytes: &plain,
                    },
                );
            }
            match read {
                Read::Bytes => {}
                Read::Nothing => break,
                Read::Gone => {
                    gone = true;
                    break;
                }
            }
        }
        self.buffer = buffer;
        self.plain = plain;
        if gone {
            self.lose(now, token);
        } else {
            // A handshake may have something to say.
            self.write(now, token);
        }
    }

    fn write(&mut self, now: Time, token: Token) {
        let registry = self.poll.registry();
        if let Some(connection) = self.connections.get_mut(&token)
            && (connection.has_failed() || !connection.flush(registry, token))
        {
            self.lose(now, token);
        }
    }

    /// A connection is gone, for whatever reason.
    fn lose(&mut self, now: Time, token: Token) {
        if let Some(mut connection) = self.connections.remove(&token) {
            connection.deregister(self.poll.registry());
            let peer = connection.peer;
            if self.by_peer.get(&peer) == Some(&token) {
                self.by_peer.remove(&peer);
            }
            self.tell(now, Input::Failed(peer));
        }
    }

    fn sweep(&mut self, now: Time) {
        let kept = self.endpoint.flows();
        let idle: Vec<Token> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let silent = now.since(connection.last_used);
                match connection.closing {
                    true => silent >= LINGER,
                    false => silent >= IDLE && !kept.contains(&connection.peer),
                }
            })
            .map(|(token, _)| *token)
            .collect();
        for token in idle {
            self.lose(now, token);
        }
    }

    fn looked_up(&mut self, ended: Ended) {
        let now = self.now();
        let input = match ended {
            Ended::Found(found) => Input::Resolved {
                lookup: found.lookup,
                answers: found.answers,
                keep: found.keep,
            },
            Ended::Refused(refused) => Input::LookupRefused(refused),
        };
        self.tell(now, input);
    }

    /// One input, and all that the endpoint asks for after it.
    fn tell(&mut self, now: Time, input: Input<'_>) {
        self.endpoint.handle(now, input);
        let (mut unsent, mut broken) = (Vec::new(), Vec::new());
        loop {
            match self.endpoint.poll() {
                Output::Wait(at) => {
                    self.wait = at;
                    break;
                }
                Output::Transmit { to, wire, client } => match self.transmit(now, &to, &wire) {
                    Sent::Yes => {}
                    Sent::No => unsent.extend(client),
                    Sent::Broken(token) => broken.push(token),
                },
                Output::Close(peer) => self.close(now, &peer),
                Output::Resolve(wish) => {
                    if !self.resolver.ask(wish) {
                        self.waiting_for_nothing();
                    }
                }
                Output::Event(event) => self.waiting.push_back(event),
            }
        }
        for client in unsent {
            self.tell(now, Input::Unsent(client));
        }
        for token in broken {
            self.lose(now, token);
        }
    }

    /// The resolver is overloaded: a look-up is refused at the next pass.
    fn waiting_for_nothing(&self) {
        // Waking oneself fails only when the poll is gone, which ends the thread.
        _ = self.waker.wake();
    }

    fn hand_over(&mut self) {
        while let Some(event) = self.waiting.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.waiting.push_front(event);
                    return;
                }
                // Nobody listens any more: the thread is about to be stopped.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }

    fn transmit(&mut self, now: Time, to: &Peer, wire: &[u8]) -> Sent {
        if to.transport == Transport::Udp {
            // The first socket of the right family: an answer leaves from where it is expected when
            // one address of each family is listened on, as the settings advise.
            let socket = self.udp.iter().find(|udp| udp.reaches(to.addr));
            return match socket.is_some_and(|udp| udp.send(to.addr, wire)) {
                true => Sent::Yes,
                false => Sent::No,
            };
        }
        let token = match self.by_peer.get(to) {
            Some(token) => Some(*token),
            None => self.connect(now, to),
        };
        let Some(token) = token else {
            return Sent::No;
        };
        let registry = self.poll.registry();
        match self.connections.get_mut(&token) {
            Some(connection) => {
                match connection.send(now, wire) && connection.flush(registry, token) {
                    true => Sent::Yes,
                    false => Sent::Broken(token),
                }
            }
            None => Sent::No,
        }
    }

    fn connect(&mut self, now: Time, to: &Peer) -> Option<Token> {
        let session = match (to.transport, &self.tls) {
            (Transport::Tls, Some(tls)) => {
                Some(Session::client(tls, to.name.as_deref(), to.addr.ip())?)
            }
            (Transport::Tls, None) => return None,
            _ => None,
        };
        let stream = Connection::connect(to.addr).ok()?;
        self.keep(now, stream, to.clone(), session)
    }

    fn close(&mut self, now: Time, peer: &Peer) {
        if let Some(token) = self.by_peer.get(peer).copied() {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.closing = true;
            }
            self.write(now, token);
        }
    }
}

#[cfg(test)]
mod tests;
