//! One media thread: a poll loop that owns its calls.
//!
//! A pass first serves each call that is past its deadline: a frame that is due is sent however much
//! else is to be done. Then come commands and answers of providers, and each call that has something to
//! read or to write, in turn, until [`PASS`] is over; what is left of these stays in its place. So a
//! processor that is too slow for a while hears late, and still speaks in time. Between passes the thread
//! sleeps until a socket is ready, somebody wakes it, or the next deadline comes; `clock.rs` keeps passes
//! a little apart, that one serves many.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mio::{Events, Poll, Token, Waker};
use rtrb::Producer;
use rustc_hash::FxHashMap;
use slab::Slab;

use super::clock::{Alarm, Clock, wake_in_time};
use super::counters::{Tallies, count};
use super::disk::Disk;
use super::lateness::Histogram;
use super::live::Live;
use super::mailbox::{CallKey, Command, Inbox, Mailbox};
use super::peer::Datagram;
use super::placed::Placed;
use super::recorder::Ring;
use super::rtp::LARGEST;
use super::tools::{Tools, WebRtc};
use super::transport::Transport;
use super::wheel::Wheel;
use crate::audio::fetch::fetch;
use crate::call::Scratch;
use crate::call::input::{Gone, Input};
use crate::peer::PeerError;
use crate::time::Time;

const WAKE: Token = Token(0);
const ALARM: Token = Token(1);
/// The UDP port of the calls over WebRTC.
const PORT: Token = Token(2);
/// Calls have the tokens from here on, two each.
const FIRST_CALL: usize = 3;

/// Events taken from the poll at once. What is more comes in the next pass.
const EVENTS: usize = 1024;

/// How long a pass goes on: then what has become due in the meantime comes first again. A call that came
/// to its turn is served to the end, and at least one is.
const PASS: Duration = Duration::from_millis(1);

/// Commands and answers taken in one pass, so that a flood of them does not delay what is due.
const MAIL: usize = 1024;

pub(super) struct Driver {
    clock: Clock,
    poll: Poll,
    alarm: Alarm,
    mailbox: Arc<Mailbox>,
    inbox: Inbox,
    calls: Slab<Box<Live>>,
    places: FxHashMap<CallKey, usize>,
    wheel: Wheel,
    /// Calls whose deadline has come.
    due: Vec<usize>,
    /// Calls that have something to read or to write and since when, who waits longest first.
    work: VecDeque<(usize, Time)>,
    tools: Tools,
    histogram: Arc<Histogram>,
    /// The port has datagrams that were not read.
    port_ready: bool,
    /// Those that were read and not yet handed over.
    datagrams: VecDeque<Datagram>,
    stopping: bool,
}

impl Driver {
    pub(super) fn new(
        clock: Clock,
        (thread, calls): (usize, usize),
        ring: Producer<u8>,
        disk: &Disk,
        tallies: &Arc<Tallies>,
        mut webrtc: Option<WebRtc>,
    ) -> io::Result<(Self, Arc<Mailbox>, Arc<Histogram>)> {
        let poll = Poll::new()?;
        if let Some(webrtc) = &mut webrtc {
            webrtc.net.register(poll.registry(), PORT)?;
        }
        let alarm = Alarm::new(clock, poll.registry(), ALARM)?;
        let (mailbox, inbox) =
            Mailbox::new(Waker::new(poll.registry(), WAKE)?, calls, tallies.clone());
        let histogram = Arc::new(Histogram::new());
        let tools = Tools {
            thread,
            ring: Ring::new(ring, disk.writer.thread().clone(), tallies.clone()),
            openings: disk.openings.clone(),
            scratch: BytesMut::with_capacity(4 << 10),
            datagram: vec![0; LARGEST],
            packet: Vec::with_capacity(LARGEST),
            lent: Scratch::with_room(),
            tallies: tallies.clone(),
            webrtc,
        };
        let driver = Self {
            clock,
            poll,
            alarm,
            mailbox: mailbox.clone(),
            inbox,
            calls: Slab::new(),
            places: FxHashMap::default(),
            wheel: Wheel::new(),
            due: Vec::new(),
            work: VecDeque::new(),
            tools,
            histogram: histogram.clone(),
            port_ready: false,
            datagrams: VecDeque::new(),
            stopping: false,
        };
        Ok((driver, mailbox, histogram))
    }

    /// The thread's whole life.
    pub(super) fn run(mut self) {
        self.mailbox.owned_by_this_thread();
        wake_in_time();
        let mut events = Events::with_capacity(EVENTS);
        let mut more = false;
        while !(self.stopping && self.calls.is_empty()) {
            let mut now = match self.sleep(&mut events, more) {
                Ok(now) => now,
                Err(error) => {
                    // Nothing that a caller can cause; without a poll the thread has no calls.
                    tracing::error!(%error, "a media thread cannot poll");
                    return;
                }
            };
            self.mailbox.awake();
            let until = self.clock.now() + PASS;
            if let Some(due) = self.serve_due(now) {
                // A call that is heard late is served late, too.
                let since = self.work.front().map_or(due, |(_, since)| due.min(*since));
                let late = self.clock.now().since(since).as_micros() as u64;
                self.histogram.add(now, late);
            }
            self.take_events(now, &events);
            more = self.take_mail(&mut now);
            more |= self.take_datagrams(now, until);
            more |= self.serve(now, until);
            count(&self.tools.tallies.passes, 1);
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

    fn take_events(&mut self, now: Time, events: &Events) {
        for event in events {
            match event.token() {
                WAKE => {}
                ALARM => self.alarm.rang(),
                PORT => self.port_ready = true,
                Token(call) => {
                    let (place, socket) = ((call - FIRST_CALL) / 2, (call - FIRST_CALL) % 2);
                    if let Some(live) = self.calls.get_mut(place) {
                        let end = event.is_read_closed() || event.is_error();
                        let (readable, writable) = (event.is_readable(), event.is_writable());
                        live.line.ready(socket, readable, writable, end);
                        mark(&mut self.work, live, place, now);
                    }
                }
            }
        }
    }

    /// Reads the port and hands each datagram to its call. `true`: there is more.
    fn take_datagrams(&mut self, now: Time, until: Time) -> bool {
        if let Some(webrtc) = &mut self.tools.webrtc
            && self.port_ready
            && self.datagrams.is_empty()
        {
            let datagrams = &mut self.datagrams;
            self.port_ready = webrtc.net.receive(|datagram| datagrams.push_back(datagram));
        }
        while let Some(datagram) = self.datagrams.pop_front() {
            if let Some(&place) = self.places.get(&datagram.key) {
                let live = &mut self.calls[place];
                live.datagram(now, datagram, &mut self.tools);
                mark(&mut self.work, live, place, now);
            }
            if self.clock.now() >= until {
                break;
            }
        }
        self.port_ready || !self.datagrams.is_empty()
    }

    /// `true`: there is more than one pass should take.
    fn take_mail(&mut self, now: &mut Time) -> bool {
        for _ in 0..MAIL {
            match self.inbox.commands.try_recv() {
                Ok(command) => self.handle_command(now, command),
                Err(_) => break,
            }
        }
        for _ in 0..MAIL {
            let Ok((key, event)) = self.inbox.speech.try_recv() else {
                break;
            };
            // Late words of a call that is over find nobody.
            if let Some(&place) = self.places.get(&key) {
                let live = &mut self.calls[place];
                live.taken();
                live.deliver(*now, Input::Speech(event), &mut self.tools);
                mark(&mut self.work, live, place, *now);
            }
        }
        !self.inbox.commands.is_empty() || !self.inbox.speech.is_empty()
    }

    fn handle_command(&mut self, now: &mut Time, command: Command) {
        match command {
            Command::Place(placed) => {
                // Calls that come together get 20 ms grids of their own, not one for all.
                *now = self.clock.now();
                self.place(*now, *placed);
            }
            Command::End(key, request) => self.deliver(*now, key, Input::End(request)),
            Command::Tool(key, outcome) => self.deliver(*now, key, Input::Tool(outcome)),
            Command::HungUp(key) => self.deliver(*now, key, Input::Gone(Gone::Closed)),
            Command::Lost(key) => self.deliver(*now, key, Input::Gone(Gone::Stalled)),
            Command::Press(key, digit) => self.deliver(*now, key, Input::Press(digit)),
            Command::Key(key, digit) => self.deliver(*now, key, Input::Key(digit)),
            Command::Media(key, renewal) => {
                if let Some(&place) = self.places.get(&key) {
                    let live = &mut self.calls[place];
                    live.renew(*now, *renewal, &mut self.tools);
                    mark(&mut self.work, live, place, *now);
                }
            }
            Command::Peer(key, request, answer) => {
                if let Some(&place) = self.places.get(&key) {
                    let live = &mut self.calls[place];
                    live.ask(*now, request, answer, &mut self.tools);
                    mark(&mut self.work, live, place, *now);
                } else {
                    answer(Err(PeerError::NoPeer));
                }
            }
            Command::EndAll(request) => {
                for (place, live) in &mut self.calls {
                    live.deliver(*now, Input::End(request), &mut self.tools);
                    mark(&mut self.work, live, place, *now);
                }
            }
            Command::Stop => {
                self.stopping = true;
                for (place, live) in &mut self.calls {
                    live.cut(*now, &mut self.tools);
                    mark(&mut self.work, live, place, *now);
                }
            }
        }
    }

    fn place(&mut self, now: Time, placed: Placed) {
        #[cfg(test)]
        super::faults::reach(super::faults::MEDIA, &placed.config.session_id);
        let mut live = Box::new(Live::start(placed, now, &mut self.tools));
        let entry = self.calls.vacant_entry();
        let place = entry.key();
        let tokens = [0, 1].map(|socket| Token(2 * place + socket + FIRST_CALL));
        if let Err(error) = live.line.register(self.poll.registry(), tokens) {
            tracing::error!(parent: live.span(), %error, "a call's socket cannot be polled");
            live.cut(now, &mut self.tools);
        }
        // What came with the upgrade is read without waiting for the poll.
        mark(&mut self.work, &mut live, place, now);
        self.places.insert(live.key, place);
        entry.insert(live);
    }

    fn deliver(&mut self, now: Time, key: CallKey, input: Input<'_>) {
        if let Some(&place) = self.places.get(&key) {
            let live = &mut self.calls[place];
            live.deliver(now, input, &mut self.tools);
            mark(&mut self.work, live, place, now);
        }
    }

    /// Serves the calls whose deadline has come, in the order of their times; tells the earliest.
    fn serve_due(&mut self, now: Time) -> Option<Time> {
        let mut earliest = None;
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, |place, at| {
            due.push(place);
            earliest = Some(earliest.map_or(at, |earlier: Time| earlier.min(at)));
        });
        for (at, &place) in due.iter().enumerate() {
            self.soon(due.get(at + 1));
            if let Some(live) = self.calls.get_mut(place) {
                live.tick(now, &mut self.tools);
                self.served(place);
            }
        }
        due.clear();
        self.due = due;
        earliest
    }

    /// Serves what is marked, each call once, until the pass is over. `true`: some are left, or have more
    /// to read.
    fn serve(&mut self, now: Time, until: Time) -> bool {
        for _ in 0..self.work.len() {
            let Some((place, _)) = self.work.pop_front() else {
                break;
            };
            self.soon(self.work.front().map(|(next, _)| next));
            let live = &mut self.calls[place];
            live.queued = false;
            live.serve(now, &mut self.tools);
            if live.line.wants_more() && !live.is_over() {
                mark(&mut self.work, live, place, now);
            }
            self.served(place);
            if self.clock.now() >= until {
                break;
            }
        }
        !self.work.is_empty()
    }

    /// The call that has the next turn is brought near while this one has its own.
    fn soon(&self, next: Option<&usize>) {
        if let Some(live) = next.and_then(|place| self.calls.get(*place)) {
            fetch(&**live);
        }
    }

    /// Sets when the call wants to be served next, or lets go of one that is over.
    fn served(&mut self, place: usize) {
        let live = &self.calls[place];
        // One that waits for its turn is let go of then.
        if live.is_over() && !live.queued {
            self.remove(place);
        } else {
            self.wheel.arm(place, live.wake());
        }
    }

    fn remove(&mut self, place: usize) {
        self.wheel.arm(place, Time::NEVER);
        let mut live = self.calls.remove(place);
        match &mut live.line {
            Transport::Socket(socket) => socket.deregister(self.poll.registry()),
            Transport::Rtp(line) => line.deregister(self.poll.registry()),
            Transport::Peer(peer) => {
                if let Some(webrtc) = &mut self.tools.webrtc {
                    peer.forget(&mut webrtc.net);
                }
            }
        }
        self.places.remove(&live.key);
    }
}

fn mark(work: &mut VecDeque<(usize, Time)>, live: &mut Live, place: usize, now: Time) {
    if !live.queued {
        live.queued = true;
        work.push_back((place, now));
    }
}
