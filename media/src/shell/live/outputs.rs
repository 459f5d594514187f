//! One input to the call's machine, and all that the machine asks for because of it.

use super::{Live, Machine};
use crate::call::input::Input;
use crate::call::output::{CallEvent, LlmCommand, Output, RecogniserCommand, SynthesiserCommand};
use crate::shell::engine::{CallNews, tell};
use crate::shell::tools::Tools;
use crate::shell::transport::Transport;
use crate::time::Time;

/// Outputs that one input may have. A call waits after a few; one that never would must not hold its
/// thread.
const MAX_OUTPUTS: usize = 100_000;

/// What a call has come to after an input.
enum Rest {
    Waits(Time),
    Done,
    /// Outputs without end.
    Restless,
}

impl Live {
    /// One input, and all that the call asks for because of it.
    pub(super) fn handle(&mut self, now: Time, input: Input<'_>, tools: &mut Tools) {
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
                Output::Text(text) => self.line.say(now, text, tools),
                Output::Rtp(packet) => {
                    if let Transport::Rtp(line) = &mut self.line {
                        line.send(now, &packet, &mut tools.packet);
                    }
                }
                Output::Packet {
                    timestamp,
                    marker,
                    payload,
                } => {
                    if let (Transport::Peer(peer), Some(webrtc)) =
                        (&mut self.line, &mut tools.webrtc)
                    {
                        peer.packet(now, timestamp, marker, payload, &mut webrtc.net);
                    }
                }
                Output::Close { code, reason } => self.line.close(now, code, reason),
                Output::Recogniser(RecogniserCommand::Begin(id)) => providers.stt.begin(id),
                Output::Recogniser(RecogniserCommand::Audio(id, pcm)) => {
                    providers.stt.audio(id, pcm)
                }
                Output::Recogniser(RecogniserCommand::Finish(id)) => providers.stt.finish(id),
                Output::Recogniser(RecogniserCommand::Cancel(id)) => providers.stt.cancel(id),
                Output::Llm(LlmCommand::Start(reply, request)) => {
                    providers.llm.start(reply, *request)
                }
                Output::Llm(LlmCommand::Cancel(reply)) => providers.llm.cancel(reply),
                Output::Synthesiser(SynthesiserCommand::Speak {
                    reply,
                    segment,
                    text,
                }) => providers.tts.speak(reply, segment, &text),
                Output::Synthesiser(SynthesiserCommand::Cancel(reply)) => {
                    providers.tts.cancel(reply)
                }
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
}
