//! Writing a tape: records are appended to a buffer that the shell carries to the disk.

use super::digest::Digest;
use super::{FORMAT, Header, Kind, MAX_BYTES, PACKET_HEAD, VERSION, redact};
use crate::call::input::{Gone, Input};
use crate::call::output::Output;
use crate::config::CallConfig;
use crate::speech::{SpeechEvent, SynthesiserEvent};
use crate::time::Time;

/// Room that a tape keeps between two pieces, bytes: the piece that the shell waits for, and an input.
const KEPT: usize = 6 << 10;

/// The tape of one live call.
///
/// For each input: [`input`](Self::input) before it is handled (so the input that broke a call is on
/// its tape), [`output`](Self::output) for each output, then [`served`](Self::served).
#[derive(Debug)]
pub struct TapeWriter {
    /// Not yet taken by the shell.
    pending: Vec<u8>,
    /// Bytes of the whole tape so far.
    total: u64,
    last: Time,
    digest: Digest,
    redacted: bool,
    stopped: bool,
    done: bool,
}

impl TapeWriter {
    /// Starts the tape with its header. A call that is not recorded has a redacted tape.
    pub fn new(config: &CallConfig, start: Time, punctuates: bool) -> Self {
        let redacted = !config.recording;
        let mut header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            start,
            punctuates,
            redacted,
            config: config.clone(),
        };
        if redacted {
            redact::config(&mut header.config);
        }
        let mut writer = Self {
            pending: Vec::new(),
            total: 0,
            last: start,
            digest: Digest::default(),
            redacted,
            stopped: false,
            done: false,
        };
        match serde_json::to_vec(&header) {
            Ok(json) => {
                writer.pending = json;
                let more = KEPT.saturating_sub(writer.pending.len());
                writer.pending.reserve_exact(more);
                writer.pending.push(b'\n');
                writer.total = writer.pending.len() as u64;
            }
            // A float that is no number has no JSON. A tape that cannot start does not.
            Err(_) => writer.stopped = true,
        }
        writer
    }

    /// Notes an input that is about to be handled at `now`.
    pub fn input(&mut self, now: Time, input: &Input<'_>) {
        if self.stopped || self.done {
            return;
        }
        let before = self.pending.len();
        self.write_input(now, input);
        self.total += (self.pending.len() - before) as u64;
        if self.total > MAX_BYTES {
            self.total -= (self.pending.len() - before) as u64;
            self.pending.truncate(before);
            self.stop();
        }
        self.last = now;
    }

    /// Notes an output of the input that is being served.
    pub fn output(&mut self, output: &Output<'_>) {
        if !self.redacted && !self.stopped && !self.done {
            self.digest.add(output);
        }
        if *output == Output::Done && !self.done {
            self.finish();
        }
    }

    /// The call waits again: its outputs since the last input are complete.
    pub fn served(&mut self) {
        if self.redacted || self.stopped || self.done {
            return;
        }
        self.pending.push(Kind::Check as u8);
        self.pending
            .extend_from_slice(&self.digest.short().to_le_bytes());
        self.total += 3;
    }

    /// Ends the tape here, for good: it is full, or bytes of it were lost.
    pub fn stop(&mut self) {
        if !self.stopped && !self.done {
            self.stopped = true;
            self.pending.push(Kind::Stop as u8);
            self.total += 1;
        }
    }

    /// Whether [`stop`](Self::stop) was called, or the tape is full.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// What was written and not yet taken.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Takes the first `length` bytes of [`pending`](Self::pending) away: they are on their way.
    pub fn take(&mut self, length: usize) {
        self.pending.drain(..length.min(self.pending.len()));
        if self.pending.is_empty() {
            // A voice may have sent a whole sentence at once.
            self.pending.shrink_to(KEPT);
        }
    }

    fn finish(&mut self) {
        self.done = true;
        if !self.redacted && !self.stopped {
            self.pending.push(Kind::Done as u8);
            self.pending
                .extend_from_slice(&self.digest.value().to_le_bytes());
            self.total += 9;
        }
    }

    fn write_input(&mut self, now: Time, input: &Input<'_>) {
        let delta = now.as_micros().saturating_sub(self.last.as_micros());
        match input {
            Input::Connected => self.start(Kind::Connected, delta),
            Input::Timeout => self.start(Kind::Timeout, delta),
            Input::Text(text) => {
                self.start(Kind::Text, delta);
                let from = self.payload(text.as_bytes());
                if self.redacted {
                    redact::json(&mut self.pending[from..]);
                }
            }
            Input::Binary(bytes) => {
                self.start(Kind::Binary, delta);
                let from = self.payload(bytes);
                if self.redacted {
                    self.pending[from..].fill(0);
                }
            }
            Input::Packet(packet) => {
                self.start(Kind::Packet, delta);
                varint(
                    &mut self.pending,
                    (PACKET_HEAD + packet.payload.len()) as u64,
                );
                let kind = packet.payload_type & 0x7f | u8::from(packet.marker) << 7;
                self.pending.push(kind);
                self.pending.extend(packet.sequence.to_le_bytes());
                self.pending.extend(packet.timestamp.to_le_bytes());
                self.pending.extend(packet.ssrc.to_le_bytes());
                let from = self.pending.len();
                self.pending.extend_from_slice(packet.payload);
                if self.redacted {
                    self.pending[from..].fill(0);
                }
            }
            Input::Peer(state) => self.json(Kind::Peer, delta, state),
            Input::Hold(hold) => {
                self.start(Kind::Hold, delta);
                self.pending.push(u8::from(*hold));
            }
            Input::Sends(sends) => {
                self.start(Kind::Sends, delta);
                self.pending.push(u8::from(*sends));
            }
            Input::Limit(most_bits) => self.json(Kind::Limit, delta, most_bits),
            Input::Report(report) => self.json(Kind::Report, delta, report),
            Input::Media(plan) => self.json(Kind::Media, delta, plan),
            Input::Press(key) | Input::Key(key) => {
                let kind = match input {
                    Input::Press(_) => Kind::Press,
                    _ => Kind::Key,
                };
                self.start(kind, delta);
                // Keys are ASCII; what is none is no key when it is played again either.
                let key = if self.redacted { '0' } else { *key };
                self.pending.push(u8::try_from(key).unwrap_or(b'?'));
            }
            Input::Gone(gone) => {
                self.start(Kind::Gone, delta);
                self.pending.push(u8::from(*gone == Gone::Stalled));
            }
            Input::Speech(SpeechEvent::Synthesiser {
                reply,
                segment,
                event: SynthesiserEvent::Audio { rate, samples },
            }) => {
                self.start(Kind::Audio, delta);
                for number in [reply.0, *segment, *rate] {
                    varint(&mut self.pending, number.into());
                }
                varint(&mut self.pending, samples.len() as u64 * 2);
                if self.redacted {
                    self.pending
                        .resize(self.pending.len() + samples.len() * 2, 0);
                } else {
                    self.pending
                        .extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
                }
            }
            Input::Speech(event) if self.redacted => {
                let mut event = event.clone();
                redact::speech(&mut event);
                self.json(Kind::Speech, delta, &event);
            }
            Input::Speech(event) => self.json(Kind::Speech, delta, event),
            Input::Tool(outcome) if self.redacted => {
                let mut outcome = outcome.clone();
                redact::tool(&mut outcome);
                self.json(Kind::Tool, delta, &outcome);
            }
            Input::Tool(outcome) => self.json(Kind::Tool, delta, outcome),
            Input::End(request) => self.json(Kind::End, delta, request),
        }
    }

    fn start(&mut self, kind: Kind, delta: u64) {
        self.pending.push(kind as u8);
        varint(&mut self.pending, delta);
    }

    /// Writes the bytes with their length, and returns where they begin.
    fn payload(&mut self, bytes: &[u8]) -> usize {
        varint(&mut self.pending, bytes.len() as u64);
        self.pending.extend_from_slice(bytes);
        self.pending.len() - bytes.len()
    }

    fn json(&mut self, kind: Kind, delta: u64, value: &impl serde::Serialize) {
        match serde_json::to_vec(value) {
            Ok(json) => {
                self.start(kind, delta);
                self.payload(&json);
            }
            // Without this input the rest would not replay.
            Err(_) => self.stop(),
        }
    }
}

/// LEB128.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
