//! One call on its media thread: the machine, its socket, its providers and its recorder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use crossbeam_channel::Sender;

use super::counters::{Tallies, count};
use super::disk::Opening;
use super::engine::{CallNews, OnEvent, tell};
use super::line::Line;
use super::mailbox::{CallKey, Keeper, Mailbox};
use super::peer::{Datagram, Heard, Identity, Net};
use super::recorder::{Recorder, Ring};
use super::rtp::Taken;
use super::socket::Received;
use crate::call::input::{EndRequest, Gone, Input};
use crate::call::output::{CallEvent, LlmCommand, Output, SttCommand, TtsCommand};
use crate::call::record::{EndReason, EndedBy, Offsets, Summary};
use crate::call::{Call, Scratch};
use crate::config::CallConfig;
use crate::leg::RtpPacket;
use crate::leg::rtp::RtpPlan;
use crate::peer::{PeerAnswer, PeerError, PeerRequest, PeerState};
use crate::rtp::packet::Packet;
use crate::rtp::sdp::Agreed;
use crate::speech::Providers;
use crate::tape::TapeWriter;
use crate::time::Time;

/// Outputs that one input may have. A call waits after a few; one that never would must not hold its
/// thread.
const MAX_OUTPUTS: usize = 100_000;

/// A call on its way to its thread.
pub(super) struct Placed {
    pub(super) key: CallKey,
    // Dropped before the listener: whoever sees the news end finds the call over, and its place free.
    /// Whoever holds the call's handle learns that it is over, also where its thread died with it or before it took it.
    pub(super) gate: Keeper,
    pub(super) seat: Seat,
    pub(super) config: CallConfig,
    pub(super) line: Line,
    pub(super) providers: Providers,
    pub(super) on_event: OnEvent,
    /// What the log says of the call; whoever placed it chose it.
    pub(super) span: tracing::Span,
}

/// What both sides of a telephone call agreed on anew.
pub(super) struct Renewal {
    pub(super) agreed: Agreed,
    pub(super) plan: RtpPlan,
}

/// A call's place in the counts, given back when dropped.
pub(super) struct Seat {
    all: Arc<AtomicUsize>,
    mailbox: Arc<Mailbox>,
}

impl Seat {
    /// `None`: there are `cap` calls already.
    pub(super) fn take(all: &Arc<AtomicUsize>, mailbox: &Arc<Mailbox>, cap: usize) -> Option<Self> {
        all.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
            (n < cap).then_some(n + 1)
        })
        .ok()?;
        mailbox.live.fetch_add(1, Ordering::SeqCst);
        Some(Self {
            all: all.clone(),
            mailbox: mailbox.clone(),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.mailbox.live.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the calls of one thread share.
pub(super) struct Tools {
    /// Which thread this is.
    pub(super) thread: usize,
    pub(super) ring: Ring,
    pub(super) openings: Sender<Opening>,
    /// For messages on their way into a send buffer.
    pub(super) scratch: BytesMut,
    /// For a datagram of a telephone call, and for a packet on its way to one.
    pub(super) datagram: Vec<u8>,
    pub(super) packet: Vec<u8>,
    /// Lent to the call at hand.
    pub(super) lent: Scratch,
    pub(super) tallies: Arc<Tallies>,
    /// `None`: this node takes no calls over WebRTC.
    pub(super) webrtc: Option<WebRtc>,
}

/// What calls over WebRTC share.
pub(super) struct WebRtc {
    pub(super) net: Net,
    pub(super) identity: Identity,
}

/// One call, from its first input until its socket is closed.
pub(super) struct Live {
    pub(super) key: CallKey,
    gate: Keeper,
    /// `None` when the call is over and only its socket is still closing.
    machine: Option<Machine>,
    pub(super) line: Line,
    recorder: Recorder,
    on_event: OnEvent,
    started: Time,
    span: tracing::Span,
    /// When the machine wants to be woken.
    deadline: Time,
    turns: u32,
    recording: bool,
    /// The disk knows of the call.
    opened: bool,
    ended: bool,
    /// The disk has to be told of the end.
    end_owed: bool,
    /// Waits for its part of the pass.
    pub(super) queued: bool,
}

/// What a call has come to after an input.
enum Rest {
    Waits(Time),
    Done,
    /// Outputs without end.
    Restless,
}

struct Machine {
    call: Call,
    providers: Providers,
    /// The call knows that its socket is gone.
    gone: bool,
    _seat: Seat,
}

impl Live {
    /// Starts the call. It is `Connected` at once.
    pub(super) fn start(placed: Placed, now: Time, tools: &mut Tools) -> Self {
        let Placed {
            key,
            config,
            line,
            providers,
            on_event,
            gate,
            seat,
            span,
        } = placed;
        let punctuates = providers.stt.punctuates();
        let recording = config.recording;
        let session_id = config.session_id.clone();
        let opening = Opening {
            key,
            session_id,
            recording,
            thread: tools.thread,
            on_event: on_event.clone(),
            span: span.clone(),
        };
        let opened = tools.openings.try_send(opening).is_ok();
        let tape = TapeWriter::new(&config, now, punctuates);
        let mut live = Self {
            key,
            machine: None,
            line,
            recorder: Recorder::new(key, tape, recording && opened),
            on_event,
            gate,
            started: now,
            span,
            deadline: Time::NEVER,
            turns: 0,
            recording,
            opened,
            ended: false,
            end_owed: false,
            queued: false,
        };
        live.guarded(now, tools, |live, tools| {
            let call = Call::new(config, now, punctuates);
            live.machine = Some(Machine {
                call,
                providers,
                gone: false,
                _seat: seat,
            });
            let begins = match live.line {
                Line::Socket(_) => Input::Connected,
                Line::Peer(_) => Input::Peer(PeerState::New),
                // Its INVITE is being answered.
                Line::Rtp(ref mut line) => {
                    line.start(now);
                    Input::Connected
                }
            };
            live.handle(now, begins, tools);
        });
        live
    }

    /// What the log says of this call.
    pub(super) const fn span(&self) -> &tracing::Span {
        &self.span
    }

    /// Gives one input that did not come from the socket.
    pub(super) fn deliver(&mut self, now: Time, input: Input<'_>, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| live.handle(now, input, tools));
    }

    /// An answer of a provider was taken out of the queue.
    pub(super) fn taken(&self) {
        self.gate.0.taken();
    }

    /// What is due of this call, and one write. What came in waits.
    pub(super) fn tick(&mut self, now: Time, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| live.catch_up(now, tools));
        self.settle(tools);
    }

    /// This call's part of a pass: what came in, what is due, and one write.
    pub(super) fn serve(&mut self, now: Time, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| {
            match &mut live.line {
                Line::Socket(socket) => socket.new_pass(),
                Line::Peer(_) => {}
                Line::Rtp(line) => line.new_pass(),
            }
            live.read(now, tools);
            live.catch_up(now, tools);
        });
        self.settle(tools);
    }

    fn catch_up(&mut self, now: Time, tools: &mut Tools) {
        if now >= self.deadline {
            self.handle(now, Input::Timeout, tools);
        }
        self.flush(now, tools);
    }

    /// What the thread's own books need after a call was served.
    fn settle(&mut self, tools: &mut Tools) {
        if self.end_owed && self.recorder.end(&mut tools.ring) {
            self.end_owed = false;
        }
        let (received, sent) = self.line.take_traffic();
        count(&tools.tallies.bytes_in, received);
        count(&tools.tallies.bytes_out, sent);
    }

    /// Cuts the call off: the engine ends.
    pub(super) fn cut(&mut self, now: Time, tools: &mut Tools) {
        self.deliver(now, Input::End(EndRequest::Fault), tools);
        if self.machine.is_some() {
            self.fault(now, tools, "the node ended before the call did");
        }
    }

    /// When the call wants to be served though nothing came.
    pub(super) fn wake(&self) -> Time {
        // The disk's ring is full: its thread has it empty in a moment.
        let retry = if self.end_owed {
            Time::from_micros(0)
        } else {
            Time::NEVER
        };
        self.deadline.min(self.line.deadline()).min(retry)
    }

    /// Nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.machine.is_none() && self.line.is_over() && !self.end_owed
    }

    /// Sends what waits, and looks at what became of the line.
    fn flush(&mut self, now: Time, tools: &mut Tools) {
        match &mut self.line {
            Line::Socket(socket) => {
                socket.expire(now);
                socket.flush(now);
                if socket.take_stalled() {
                    count(&tools.tallies.stalled, 1);
                    // Before the call's end, which would close it as a good one.
                    self.line.close(now, 1011, "reader too slow");
                    self.gone(now, Gone::Stalled, tools);
                } else if socket.is_over() {
                    self.gone(now, Gone::Closed, tools);
                }
            }
            Line::Peer(peer) => {
                if let Some(webrtc) = &mut tools.webrtc {
                    peer.serve(now, &mut webrtc.net);
                }
                self.hear(now, tools);
                self.tell_quality(now);
            }
            Line::Rtp(line) => {
                if let Some(quality) = line.report(now, &mut tools.packet) {
                    tell(&self.on_event, CallNews::Network(quality));
                }
            }
        }
    }

    /// Both sides of a telephone call agreed anew.
    pub(super) fn renew(&mut self, now: Time, renewal: Renewal, tools: &mut Tools) {
        if let Line::Rtp(line) = &mut self.line {
            line.renew(renewal.agreed);
            self.deliver(now, Input::Media(renewal.plan), tools);
        }
    }

    fn read_line(&mut self, now: Time, datagram: &mut [u8], tools: &mut Tools) {
        while let Line::Rtp(line) = &mut self.line {
            match line.receive(now, datagram) {
                Taken::Packet(length) => {
                    if let Some(packet) = Packet::parse(&datagram[..length]) {
                        self.handle(now, Input::Packet(packet), tools);
                    }
                }
                Taken::Report(report) => self.handle(now, Input::Report(report), tools),
                Taken::Nothing => return,
            }
        }
    }

    /// Hands a datagram to the call's connection, and what it held to the call.
    pub(super) fn datagram(&mut self, now: Time, datagram: Datagram, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| {
            if let (Line::Peer(peer), Some(webrtc)) = (&mut live.line, &mut tools.webrtc) {
                let Datagram { from, bytes, .. } = datagram;
                peer.datagram(now, from, bytes, &webrtc.identity, &mut webrtc.net);
                live.hear(now, tools);
            }
        });
    }

    /// Asks something of the call's connection.
    pub(super) fn ask(
        &mut self,
        now: Time,
        request: PeerRequest,
        answer: PeerAnswer,
        tools: &mut Tools,
    ) {
        self.guarded(now, tools, |live, tools| {
            let reply = match (&mut live.line, &mut tools.webrtc) {
                (Line::Peer(peer), Some(webrtc)) => {
                    peer.request(now, request, &webrtc.identity, &mut webrtc.net)
                }
                _ => Err(PeerError::NoPeer),
            };
            answer(reply);
            live.hear(now, tools);
        });
    }

    /// Gives the call what its connection has for it.
    fn hear(&mut self, now: Time, tools: &mut Tools) {
        while let Line::Peer(peer) = &mut self.line
            && let Some(heard) = peer.heard()
        {
            match heard {
                Heard::Packet {
                    payload_type,
                    marker,
                    sequence,
                    timestamp,
                    ssrc,
                    payload,
                } => {
                    let packet = RtpPacket {
                        payload_type,
                        marker,
                        sequence,
                        timestamp,
                        ssrc,
                        payload: &payload,
                    };
                    self.handle(now, Input::Packet(packet), tools);
                }
                Heard::Text(bytes) => match std::str::from_utf8(&bytes) {
                    Ok(text) => self.handle(now, Input::Text(text), tools),
                    Err(_) => self.handle(now, Input::Binary(&bytes), tools),
                },
                Heard::State(state) => self.handle(now, Input::Peer(state), tools),
                Heard::Hold(hold) => self.handle(now, Input::Hold(hold), tools),
                Heard::Sends(sends) => self.handle(now, Input::Sends(sends), tools),
                Heard::Limit(most_bits) => self.handle(now, Input::Limit(most_bits), tools),
                Heard::Report(report) => self.handle(now, Input::Report(report), tools),
            }
        }
    }

    fn tell_quality(&mut self, now: Time) {
        if let Line::Peer(peer) = &mut self.line
            && let Some(machine) = &self.machine
            && let Some(quality) = peer.quality(now, machine.call.network())
        {
            tell(&self.on_event, CallNews::Network(quality));
        }
    }

    fn read(&mut self, now: Time, tools: &mut Tools) {
        if let Line::Rtp(_) = self.line {
            let mut datagram = std::mem::take(&mut tools.datagram);
            self.read_line(now, &mut datagram, tools);
            tools.datagram = datagram;
        }
        while let Line::Socket(socket) = &mut self.line {
            match socket.receive(now) {
                Received::Text(text) => self.handle(now, Input::Text(&text), tools),
                Received::Binary(bytes) => self.handle(now, Input::Binary(&bytes), tools),
                Received::Nothing => return,
                Received::Gone => {
                    if socket.take_violation() {
                        count(&tools.tallies.violations, 1);
                    }
                    return self.gone(now, Gone::Closed, tools);
                }
            }
        }
    }

    fn gone(&mut self, now: Time, how: Gone, tools: &mut Tools) {
        if let Some(machine) = &mut self.machine
            && !machine.gone
        {
            machine.gone = true;
            self.handle(now, Input::Gone(how), tools);
        }
    }

    /// One input, and all that the call asks for because of it.
    fn handle(&mut self, now: Time, input: Input<'_>, tools: &mut Tools) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        machine.call.exchange(&mut tools.lent);
        let rest = self.drive(now, input, tools);
        if let Some(machine) = &mut self.machine {
            machine.call.exchange(&mut tools.lent);
        }
        match rest {
            Rest::Waits(until) => {
                self.deadline = until;
                self.recorder.served(&mut tools.ring);
            }
            Rest::Done => self.finish(now, tools),
            Rest::Restless => self.fault(now, tools, "the call did not come to rest"),
        }
    }

    fn drive(&mut self, now: Time, input: Input<'_>, tools: &mut Tools) -> Rest {
        let Some(Machine {
            call, providers, ..
        }) = &mut self.machine
        else {
            return Rest::Waits(self.deadline);
        };
        self.recorder.tape.input(now, &input);
        call.handle(now, input);
        for _ in 0..MAX_OUTPUTS {
            let output = call.poll(now);
            self.recorder.tape.output(&output);
            match output {
                Output::Text(text) => say(&mut self.line, now, text, tools),
                Output::Rtp(packet) => {
                    if let Line::Rtp(line) = &mut self.line {
                        line.send(now, &packet, &mut tools.packet);
                    }
                }
                Output::Packet {
                    timestamp,
                    marker,
                    payload,
                } => {
                    if let (Line::Peer(peer), Some(webrtc)) = (&mut self.line, &mut tools.webrtc) {
                        peer.packet(now, timestamp, marker, payload, &mut webrtc.net);
                    }
                }
                Output::Close { code, reason } => self.line.close(now, code, reason),
                Output::Stt(SttCommand::Begin(id)) => providers.stt.begin(id),
                Output::Stt(SttCommand::Audio(id, pcm)) => providers.stt.audio(id, pcm),
                Output::Stt(SttCommand::Finish(id)) => providers.stt.finish(id),
                Output::Stt(SttCommand::Cancel(id)) => providers.stt.cancel(id),
                Output::Llm(LlmCommand::Start(reply, request)) => {
                    providers.llm.start(reply, *request)
                }
                Output::Llm(LlmCommand::Cancel(reply)) => providers.llm.cancel(reply),
                Output::Tts(TtsCommand::Speak {
                    reply,
                    segment,
                    text,
                }) => providers.tts.speak(reply, segment, &text),
                Output::Tts(TtsCommand::Cancel(reply)) => providers.tts.cancel(reply),
                Output::Tool { reply, call } => {
                    tell(&self.on_event, CallNews::Tool { reply, call })
                }
                Output::CancelTool { id } => tell(&self.on_event, CallNews::CancelTool { id }),
                Output::Record { side, at, samples } => {
                    self.recorder.record(&mut tools.ring, side, at, samples)
                }
                Output::Event(mut event) => {
                    match &mut event {
                        CallEvent::Turn(_) => self.turns += 1,
                        CallEvent::Ended(summary) => {
                            // Only here is it known what did not fit on the way to the disk.
                            summary.recording_gap_ms = self.recorder.gap_ms();
                            self.ended = true;
                        }
                        CallEvent::Started
                        | CallEvent::Agent(_)
                        | CallEvent::Peer(_)
                        | CallEvent::Tool { .. } => {}
                    }
                    tell(&self.on_event, CallNews::Event(event));
                }
                Output::Wait(at) => return Rest::Waits(at),
                Output::Done => return Rest::Done,
            }
        }
        Rest::Restless
    }

    /// The call is over; its socket closes in its own time.
    fn finish(&mut self, now: Time, tools: &mut Tools) {
        self.gate.0.close();
        self.deadline = Time::NEVER;
        self.line.close(now, 1000, "");
        let machine = self.machine.take();
        // A provider that panics as it goes has nothing left to break.
        if catch_unwind(AssertUnwindSafe(|| drop(machine))).is_err() {
            count(&tools.tallies.panics, 1);
        }
        if self.opened {
            self.end_owed = !self.recorder.end(&mut tools.ring);
        } else if self.recording {
            tell(
                &self.on_event,
                CallNews::Recorded(Err("not recorded: the disk is behind".to_owned())),
            );
        }
    }

    /// Runs what belongs to this call alone; a panic in it ends this call alone.
    fn guarded(&mut self, now: Time, tools: &mut Tools, run: impl FnOnce(&mut Self, &mut Tools)) {
        if catch_unwind(AssertUnwindSafe(|| run(self, tools))).is_err() {
            count(&tools.tallies.panics, 1);
            self.fault(now, tools, "the engine failed in this call");
        }
    }

    fn fault(&mut self, now: Time, tools: &mut Tools, error: &str) {
        tracing::error!(parent: &self.span, error, "a call is cut off");
        self.tell_fault(now, tools);
        self.line.close(now, 1011, "internal error");
        if !self.ended {
            self.ended = true;
            let summary = Summary {
                reason: EndReason::EngineError,
                ended_by: EndedBy::System,
                duration_ms: now.since(self.started).as_millis() as u64,
                turn_count: self.turns,
                recording_gap_ms: self.recorder.gap_ms(),
                offsets: Offsets::default(),
                // What is broken is not asked.
                interruptions: 0,
                underruns: 0,
                characters: 0,
                heard_ms: 0,
                media: None,
                errors: vec![error.to_owned()],
            };
            tell(
                &self.on_event,
                CallNews::Event(CallEvent::Ended(Box::new(summary))),
            );
        }
        if self.machine.is_some() || !self.gate.0.is_closed() {
            self.finish(now, tools);
        }
    }

    /// The caller's last messages. The call is broken, and may break again over them.
    fn tell_fault(&mut self, now: Time, tools: &mut Tools) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let line = &mut self.line;
        let told = catch_unwind(AssertUnwindSafe(|| {
            machine
                .call
                .tell_fault(&mut |text| say(line, now, text, tools));
        }));
        if told.is_err() {
            tracing::error!(parent: &self.span, "the caller was not told");
        }
    }
}

/// Sends the caller a message.
fn say(line: &mut Line, now: Time, text: &str, tools: &mut Tools) {
    match (line, &tools.webrtc) {
        (Line::Socket(socket), _) => socket.send(text, &mut tools.scratch),
        (Line::Peer(peer), Some(webrtc)) => peer.text(now, text, &webrtc.net),
        // A telephone has no messages.
        (Line::Peer(_), None) | (Line::Rtp(_), _) => {}
    }
}
