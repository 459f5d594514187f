//! One call on its media thread: the machine, its transport, its providers and its recorder.
//!
//! Here the call's part of a pass stands. `live/transport.rs` reads what came in, `live/outputs.rs` does what the
//! machine asks for, and `live/ending.rs` lets go of the call.

mod ending;
mod outputs;
mod transport;

use super::counters::count;
use super::disk::Opening;
use super::engine::OnEvent;
use super::mailbox::{CallKey, Keeper};
use super::placed::{CountedCall, Placed};
use super::recorder::Recorder;
use super::tools::Tools;
use super::transport::Transport;
use crate::call::Call;
use crate::call::input::{EndRequest, Input};
use crate::speech::Providers;
use crate::tape::TapeWriter;
use crate::time::Time;

pub(super) use transport::Renewal;

/// One call, from its first input until its socket is closed.
pub(super) struct Live {
    pub(super) key: CallKey,
    gate: Keeper,
    /// `None` when the call is over and only its socket is still closing.
    machine: Option<Machine>,
    pub(super) line: Transport,
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

struct Machine {
    call: Call,
    providers: Providers,
    /// The call knows that its socket is gone.
    gone: bool,
    _seat: CountedCall,
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
            let begins = live.line.begin(now);
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

    /// This call's part of a pass: what came in, what is due, and one write.
    pub(super) fn serve(&mut self, now: Time, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| {
            live.line.new_pass();
            live.read(now, tools);
            live.catch_up(now, tools);
        });
        self.settle(tools);
    }

    /// What is due of this call, and one write. What came in waits.
    pub(super) fn tick(&mut self, now: Time, tools: &mut Tools) {
        self.guarded(now, tools, |live, tools| live.catch_up(now, tools));
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
}
