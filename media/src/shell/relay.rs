//! The thread that relays calls between two telephones: sockets, time and the way in for
//! [`crate::relay::Relay`]. One for the whole process; it is started with the first relayed call, beside
//! the media threads of calls that agents answer.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use mio::{Events, Poll, Registry, Token, Waker};
use slab::Slab;

use super::clock::{Alarm, Clock, wake_in_time};
use super::rtp::{LARGEST, RtpCarrier, RtpLine, Taken};
use super::wheel::Wheel;
use crate::leg::rtp::RtpPlan;
use crate::relay::{Relay, Side};
use crate::rtp::packet::Packet;
use crate::rtp::sdp::Agreed;
use crate::time::Time;

const WAKE: Token = Token(0);
const ALARM: Token = Token(1);
/// Calls have the tokens from here on, four each: audio and reports of the caller, then of the callee.
const FIRST_CALL: usize = 2;

/// Events taken from the poll at once.
const EVENTS: usize = 1024;

/// Commands on their way to the thread, which takes them all in each pass: one for each call that a node
/// may have begin or be put on hold within a few milliseconds.
const COMMANDS: usize = 4096;

/// One side of a relayed call: its ports are bound, and both have agreed.
pub struct RelayLeg {
    pub carrier: RtpCarrier,
    pub plan: RtpPlan,
}

/// Told once, from the thread, when a side is not there any more (nothing came from it for too long), or
/// when the relay failed.
pub type OnLost = Box<dyn FnOnce() + Send>;

/// The thread, and the way to it.
pub struct Relays {
    thread: JoinHandle<()>,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    keys: AtomicU64,
}

/// A call that is being relayed; dropped, both sides hear nothing more.
pub struct RelayHandle {
    key: u64,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    dropped: Arc<AtomicBool>,
}

enum Command {
    Begin(Box<Beginning>),
    Renew(u64, Side, Box<(Agreed, RtpPlan)>),
    Pressed(u64, Side, char),
}

struct Beginning {
    key: u64,
    legs: [RelayLeg; 2],
    on_lost: OnLost,
    dropped: Arc<AtomicBool>,
    span: tracing::Span,
}

impl Relays {
    /// Starts the thread. It ends when this and every handle are gone.
    pub fn start() -> io::Result<Self> {
        let poll = Poll::new()?;
        let clock = Clock::start();
        let alarm = Alarm::new(clock, poll.registry(), ALARM)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (commands, inbox) = bounded(COMMANDS);
        let driver = Driver {
            poll,
            alarm,
            inbox,
            calls: Slab::new(),
            wheel: Wheel::new(),
            work: Vec::new(),
            datagram: vec![0; LARGEST],
            packet: Vec::with_capacity(LARGEST),
        };
        let thread = thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || driver.run())?;
        Ok(Self {
            thread,
            commands,
            waker,
            keys: AtomicU64::new(1),
        })
    }

    /// Whether the thread is over: nobody hears anybody over it any more.
    pub fn has_fallen(&self) -> bool {
        self.thread.is_finished()
    }

    /// Joins caller and callee. An error when the thread cannot take one more.
    pub fn begin(&self, legs: [RelayLeg; 2], on_lost: OnLost) -> io::Result<RelayHandle> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let dropped = Arc::new(AtomicBool::new(false));
        let beginning = Beginning {
            key,
            legs,
            on_lost,
            dropped: Arc::clone(&dropped),
            span: tracing::Span::current(),
        };
        self.commands
            .try_send(Command::Begin(Box::new(beginning)))
            .map_err(|_| io::Error::other("the relay takes no more calls"))?;
        self.waker.wake()?;
        Ok(RelayHandle {
            key,
            commands: self.commands.clone(),
            waker: Arc::clone(&self.waker),
            dropped,
        })
    }
}

impl RelayHandle {
    /// A side and we agreed anew. `false`: the thread cannot be told.
    pub fn renew(&self, side: Side, agreed: Agreed, plan: RtpPlan) -> bool {
        let renewal = Command::Renew(self.key, side, Box::new((agreed, plan)));
        self.commands.try_send(renewal).is_ok() && self.waker.wake().is_ok()
    }

    /// A side pressed a key, and its signalling told it: the other side is sent it. `false`: the thread
    /// cannot be told.
    pub fn pressed(&self, side: Side, key: char) -> bool {
        let pressed = Command::Pressed(self.key, side, key);
        self.commands.try_send(pressed).is_ok() && self.waker.wake().is_ok()
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        // A thread that is gone has no calls left.
        if let Err(error) = self.waker.wake() {
            tracing::debug!(%error, "the relay could not be woken");
        }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        if let Err(error) = self.waker.wake() {
            tracing::debug!(%error, "the relay could not be woken");
        }
    }
}

struct Driver {
    poll: Poll,
    alarm: Alarm,
    inbox: Receiver<Command>,
    calls: Slab<Box<Joined>>,
    wheel: Wheel,
    work: Vec<usize>,
    /// One that came, and one that is sent.
    datagram: Vec<u8>,
    packet: Vec<u8>,
}

/// One relayed call.
struct Joined {
    key: u64,
    relay: Relay,
    lines: [RtpLine; 2],
    on_lost: Option<OnLost>,
    dropped: Arc<AtomicBool>,
    span: tracing::Span,
    over: bool,
    queued: bool,
}

impl Driver {
    fn run(mut self) {
        wake_in_time();
        let mut events = Events::with_capacity(EVENTS);
        let mut more = false;
        loop {
            let now = match self.sleep(&mut events, more) {
                Ok(now) => now,
                Err(error) => {
                    // Nothing that a caller can cause; whose call it was hears nothing more.
                    tracing::error!(%error, "the relay cannot poll");
                    return;
                }
            };
            for event in &events {
                match event.token() {
                    WAKE => {}
                    ALARM => self.alarm.rang(),
                    Token(token) => {
                        let (place, socket) = ((token - FIRST_CALL) / 4, (token - FIRST_CALL) % 4);
                        if let Some(call) = self.calls.get_mut(place) {
                            call.lines[socket / 2].ready(socket % 2);
                            mark(&mut self.work, call, place);
                        }
                    }
                }
            }
            let ended = self.handle_command(now);
            let (calls, work) = (&mut self.calls, &mut self.work);
            for (place, call) in calls.iter_mut() {
                if call.dropped.load(Ordering::Acquire) {
                    mark(work, call, place);
                }
            }
            self.wheel.expire(now, |place, _| {
                if let Some(call) = calls.get_mut(place) {
                    mark(work, call, place);
                }
            });
            more = self.serve(now);
            if ended && self.calls.is_empty() {
                return;
            }
        }
    }

    fn sleep(&mut self, events: &mut Events, more: bool) -> io::Result<Time> {
        self.alarm.sleep(
            &mut self.poll,
            events,
            (self.calls.len(), self.wheel.next()),
            more,
        )
    }

    /// Takes what was asked for. `true`: nobody can ask any more.
    fn handle_command(&mut self, now: Time) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Begin(beginning)) => self.begin(now, *beginning),
                Ok(Command::Renew(key, side, renewal)) => {
                    let (agreed, plan) = *renewal;
                    let found = self.calls.iter_mut().find(|(_, call)| call.key == key);
                    if let Some((place, call)) = found {
                        call.renew(now, side, agreed, plan);
                        mark(&mut self.work, call, place);
                    }
                }
                Ok(Command::Pressed(key, side, pressed)) => {
                    let found = self.calls.iter_mut().find(|(_, call)| call.key == key);
                    if let Some((place, call)) = found {
                        if !call.relay.pressed(now, side, pressed) {
                            tracing::debug!(parent: &call.span, "a key goes no further: too many wait, or it is none");
                        }
                        mark(&mut self.work, call, place);
                    }
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    fn begin(&mut self, now: Time, beginning: Beginning) {
        let Beginning {
            key,
            legs,
            on_lost,
            dropped,
            span,
        } = beginning;
        let [caller, callee] = legs;
        let plans = [caller.plan, callee.plan];
        let Ok(mut relay) = Relay::new(plans) else {
            tracing::error!(parent: &span, "a call is not relayed: its codec cannot be set up");
            return on_lost();
        };
        relay.start(now);
        let mut lines = [caller, callee].map(|leg| RtpLine::new(leg.carrier));
        let entry = self.calls.vacant_entry();
        let place = entry.key();
        let first = FIRST_CALL + 4 * place;
        for (at, line) in lines.iter_mut().enumerate() {
            line.start(now);
            let tokens = [0, 1].map(|socket| Token(first + 2 * at + socket));
            if let Err(error) = line.register(self.poll.registry(), tokens) {
                tracing::error!(parent: &span, %error, "a call's socket cannot be polled");
                return on_lost();
            }
        }
        let mut call = Box::new(Joined {
            key,
            relay,
            lines,
            on_lost: Some(on_lost),
            dropped,
            span,
            over: false,
            queued: false,
        });
        mark(&mut self.work, &mut call, place);
        entry.insert(call);
    }

    /// Serves all that is marked. `true`: a call has more to read.
    fn serve(&mut self, now: Time) -> bool {
        let mut work = std::mem::take(&mut self.work);
        for place in work.drain(..) {
            let Some(call) = self.calls.get_mut(place) else {
                continue;
            };
            call.queued = false;
            let buffers = (&mut self.datagram[..], &mut self.packet);
            if catch_unwind(AssertUnwindSafe(|| call.serve(now, buffers))).is_err() {
                tracing::error!(parent: &call.span, "the relay failed in this call");
                call.over = true;
            }
            if call.over {
                self.wheel.arm(place, Time::NEVER);
                self.calls.remove(place).end(now, self.poll.registry());
                continue;
            }
            self.wheel.arm(place, call.deadline());
            if call.lines.iter().any(RtpLine::wants_more) {
                mark(&mut self.work, call, place);
            }
        }
        // Keeps the list's room, and what was marked for the next pass.
        work.append(&mut self.work);
        self.work = work;
        !self.work.is_empty()
    }
}

impl Joined {
    /// Reads, relays and sends what there is.
    fn serve(&mut self, now: Time, (datagram, bytes): (&mut [u8], &mut Vec<u8>)) {
        if self.dropped.load(Ordering::Acquire) {
            self.over = true;
            return;
        }
        for side in Side::BOTH {
            self.lines[side as usize].new_pass();
            self.read(now, side, (datagram, bytes));
        }
        let Self { relay, lines, .. } = self;
        relay.timeout(now, &mut |to, packet| {
            lines[to as usize].send(now, &packet, bytes);
        });
        for line in lines {
            // Sent; how the network was is shown of calls with agents only.
            line.report(now, bytes);
        }
        self.over |= self.relay.silent().is_some();
    }

    fn read(&mut self, now: Time, side: Side, (datagram, bytes): (&mut [u8], &mut Vec<u8>)) {
        let Self { relay, lines, .. } = self;
        loop {
            match lines[side as usize].receive(now, datagram) {
                Taken::Packet(length) => {
                    let Some(packet) = Packet::parse(&datagram[..length]) else {
                        continue;
                    };
                    relay.packet(now, side, &packet, &mut |to, packet| {
                        lines[to as usize].send(now, &packet, bytes);
                    });
                }
                Taken::Report(report) => {
                    let per_cent = u32::from(report.lost) * 100 / 256;
                    relay.reported(now, side, u8::try_from(per_cent).unwrap_or(100));
                }
                Taken::Nothing => return,
            }
        }
    }

    fn renew(&mut self, now: Time, side: Side, agreed: Agreed, plan: RtpPlan) {
        self.lines[side as usize].renew(agreed);
        if self.relay.renew(now, side, plan).is_err() {
            tracing::error!(parent: &self.span, "a call's new codec cannot be set up");
            self.over = true;
        }
    }

    fn deadline(&self) -> Time {
        let [caller, callee] = &self.lines;
        let reports = caller.deadline().min(callee.deadline());
        self.relay.deadline().min(reports)
    }

    /// Says goodbye to both, and tells unless it was asked to end.
    fn end(mut self: Box<Self>, now: Time, registry: &Registry) {
        for line in &mut self.lines {
            line.close(now);
            line.deregister(registry);
        }
        if !self.dropped.load(Ordering::Acquire)
            && let Some(on_lost) = self.on_lost.take()
        {
            on_lost();
        }
    }
}

fn mark(work: &mut Vec<usize>, call: &mut Joined, place: usize) {
    if !call.queued {
        call.queued = true;
        work.push(place);
    }
}
