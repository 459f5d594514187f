//! What is sent: agent audio as it comes, silence or comfort noise between, digits instead of both.
//!
//! Timestamps follow the clock: a frame that comes early (the first of a reply does not wait for the
//! grid) is put behind what was sent, and silence after it waits until the clock has come there, or the caller's
//! packet that it keeps company with, so the stream is never more than two frames ahead.

use std::time::Duration;

use super::codec::Encoder;
use super::keypad::Keypad;
use super::packer::Packer;
use super::{Out, RtpPlan};
use crate::audio::opus::OpusError;
use crate::audio::pacing::{Arrivals, Lead};
use crate::frame::{FRAME, FRAME_MS};
use crate::leg::{Coding, RtpPacket};
use crate::rtp::dtmf::Sender;
use crate::rtp::sdp::Flow;
use crate::time::Time;

/// Agent audio may be so late before silence takes its place.
const PATIENCE: Duration = Duration::from_millis(FRAME_MS + 10);

/// Between two packets of silence at least: one that came late does not bring along the next, which is due before its
/// time.
const APART: Duration = Duration::from_millis(1);

/// Between two packets of comfort noise, or of silence where it need not be sent all the time.
const NOISE_EVERY: Duration = Duration::from_millis(200);

/// The level of comfort noise, −dBov (RFC 3389 section 3): as good as none, for a voice that is made by
/// a machine has no room around it.
const NOISE_LEVEL: u8 = 78;

pub(super) struct RtpSender {
    plan: RtpPlan,
    encoder: Encoder,
    payload: Vec<u8>,
    packer: Packer,
    begun: Time,
    sequence: u16,
    /// Units of the codec's clock since the beginning, up to the end of what was sent.
    covered: u64,
    /// The next packet of silence.
    silence: Time,
    /// How long before its time silence goes out.
    lead: Lead,
    /// The next audio follows on nothing.
    talk_begins: bool,
    /// Keys as events, and as tones.
    digits: Sender,
    keypad: Keypad,
    /// Of the last sample sent.
    gain: i32,
}

/// Gains in 1/256: as it is, and 12 dB softer.
const WHOLE: i32 = 256;
const DUCKED: i32 = 64;

impl RtpSender {
    pub(super) fn new(plan: &RtpPlan) -> Result<Self, OpusError> {
        let mut encoder = Encoder::new(plan.codec)?;
        encoder.limit(plan.most_bits)?;
        Ok(Self {
            plan: *plan,
            encoder,
            payload: Vec::new(),
            packer: Packer::default(),
            begun: Time::NEVER,
            sequence: plan.sequence,
            covered: 0,
            silence: Time::NEVER,
            lead: Lead::default(),
            talk_begins: true,
            digits: Sender::default(),
            keypad: Keypad::default(),
            gain: WHOLE,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        std::mem::swap(&mut self.payload, &mut coding.bytes);
        self.encoder.exchange(coding);
    }

    pub(super) fn start(&mut self, now: Time) {
        self.begun = now;
        self.silence = now;
    }

    pub(super) fn renew(&mut self, now: Time, plan: &RtpPlan) -> Result<(), OpusError> {
        if plan.codec != self.encoder.codec() {
            // The stream goes on under the other clock.
            let clock = u64::from(self.encoder.codec().clock());
            self.covered = self.covered * u64::from(plan.codec.clock()) / clock;
            self.encoder = Encoder::new(plan.codec)?;
        }
        self.encoder.limit(plan.most_bits)?;
        self.plan = *plan;
        self.packer.clear();
        self.silence = now;
        self.talk_begins = true;
        Ok(())
    }

    /// 20 ms of the agent.
    pub(super) fn audio(&mut self, now: Time, frame: &[i16; FRAME], ducked: bool, out: Out<'_>) {
        if !self.may_send() || self.digits.is_busy() || self.keypad.is_busy() {
            return;
        }
        let marker = self.begins(now);
        self.payload.clear();
        let gain = if ducked { DUCKED } else { WHOLE };
        let sent = if gain == WHOLE && self.gain == WHOLE {
            self.encoder.encode(frame, &mut self.payload)
        } else {
            let softer = between(frame, self.gain, gain);
            self.gain = gain;
            self.encoder.encode(&softer, &mut self.payload)
        };
        if sent {
            let timestamp = self.timestamp(self.covered);
            self.send_audio(marker, timestamp, out);
        } else {
            // The marker belongs to the first packet that is sent.
            self.talk_begins = true;
        }
        self.covered += self.encoder.frame() as u64;
        self.silence = now + PATIENCE;
        self.lead.begin();
    }

    pub(super) fn cut(&mut self) {
        self.encoder.cut();
        self.packer.clear();
    }

    /// The other side's reports say that so many per cent are lost.
    pub(super) fn expect_loss(&mut self, per_cent: u8) {
        self.encoder.expect_loss(per_cent);
    }

    pub(super) fn press(&mut self, now: Time, key: char) -> bool {
        if self.plan.events.is_some() {
            return self.digits.press(now, key);
        }
        self.encoder.carries_tones() && self.keypad.press(key)
    }

    pub(super) fn deadline(&self) -> Time {
        if !self.may_send() {
            return Time::NEVER;
        }
        if self.digits.is_busy() {
            return self.digits.deadline();
        }
        if self.keypad.is_busy() {
            return self.time_of(self.covered);
        }
        let due = self.time_of(self.covered);
        self.silence.max(due.before(self.lead.duration()))
    }

    /// Sends what is due, and silence in company with the caller's packets.
    pub(super) fn timeout(&mut self, now: Time, arrivals: &Arrivals, out: Out<'_>) {
        let keys = self.digits.is_busy() || self.keypad.is_busy();
        let allowance = if keys {
            Duration::ZERO
        } else {
            arrivals.allowance()
        };
        if now + allowance < self.deadline() {
            return;
        }
        if self.digits.is_busy() {
            return self.send_digit(now, out);
        }
        if self.keypad.is_busy() {
            return self.send_tone(now, out);
        }
        if let Some(number) = self.plan.comfort_noise {
            self.catch_up(now);
            self.payload.clear();
            self.payload.push(NOISE_LEVEL);
            self.send(number, false, self.timestamp(self.covered), out);
            self.silence = now + NOISE_EVERY;
            self.talk_begins = true;
            return;
        }
        let begins = self.begins(now);
        // Where silence is sent all the time it is part of the stream, which begins with it; where it
        // is sent now and then, it comes between talkspurts.
        let between = self.encoder.is_discontinuous();
        self.payload.clear();
        self.encoder.silence(&mut self.payload);
        let timestamp = self.timestamp(self.covered);
        self.send_audio(begins && !between, timestamp, out);
        self.covered += self.encoder.frame() as u64;
        self.talk_begins = between;
        self.silence = now + if between { NOISE_EVERY } else { APART };
        self.lead.follow(arrivals, self.time_of(self.covered));
    }

    fn send_digit(&mut self, now: Time, out: Out<'_>) {
        self.catch_up(now);
        let timestamp = self.timestamp(self.covered);
        let clock = self.plan.events_clock;
        let (Some(number), Some(event)) =
            (self.plan.events, self.digits.send(now, timestamp, clock))
        else {
            return;
        };
        self.payload.clear();
        self.payload.extend_from_slice(&event.payload);
        self.send(number, event.marker, event.timestamp, out);
        self.talk_begins = true;
        self.silence = now + PATIENCE;
    }

    /// 20 ms of a key.
    fn send_tone(&mut self, now: Time, out: Out<'_>) {
        let marker = self.begins(now);
        self.payload.clear();
        let frame = self.keypad.frame();
        self.encoder.encode(&frame, &mut self.payload);
        let timestamp = self.timestamp(self.covered);
        self.send_audio(marker, timestamp, out);
        self.covered += self.encoder.frame() as u64;
        self.silence = now + PATIENCE;
    }

    /// Whether a packet of audio that is sent now follows on nothing and begins a talkspurt: it has the
    /// marker, and no packet after it (RFC 3551 section 4.1).
    fn begins(&mut self, now: Time) -> bool {
        let late = self.catch_up(now);
        std::mem::take(&mut self.talk_begins) || late
    }

    /// Follows the clock when it is more than a frame ahead of what was sent. Whether it was.
    fn catch_up(&mut self, now: Time) -> bool {
        let clock = self.clock_at(now);
        let behind = clock > self.covered + self.encoder.frame() as u64;
        if behind {
            self.covered = clock;
        }
        behind
    }

    /// Sends the payload as audio, in packets of the length that was agreed.
    fn send_audio(&mut self, marker: bool, timestamp: u32, out: Out<'_>) {
        let Self {
            plan,
            packer,
            payload,
            sequence,
            ..
        } = self;
        let mut packed = |marker, timestamp, payload: &[u8]| {
            number(
                plan,
                sequence,
                (plan.payload_type, marker, timestamp),
                payload,
                out,
            );
        };
        if self.encoder.is_discontinuous() {
            // A packet of Opus is what its encoder made.
            packed(marker, timestamp, payload);
        } else {
            packer.push(payload, (marker, timestamp), plan.packet_ms, &mut packed);
        }
    }

    /// Sends the payload as it is, after the audio before it.
    fn send(&mut self, payload_type: u8, marker: bool, timestamp: u32, out: Out<'_>) {
        let Self {
            plan,
            packer,
            payload,
            sequence,
            ..
        } = self;
        packer.flush(&mut |marker, timestamp, payload| {
            number(
                plan,
                sequence,
                (plan.payload_type, marker, timestamp),
                payload,
                out,
            );
        });
        number(
            plan,
            sequence,
            (payload_type, marker, timestamp),
            payload,
            out,
        );
    }

    const fn may_send(&self) -> bool {
        matches!(self.plan.flow, Flow::SendRecv | Flow::SendOnly)
    }

    fn timestamp(&self, units: u64) -> u32 {
        self.plan.timestamp.wrapping_add(units as u32)
    }

    /// The clock as units since the beginning.
    fn clock_at(&self, now: Time) -> u64 {
        let clock = u64::from(self.encoder.codec().clock());
        now.since(self.begun).as_micros() as u64 * clock / 1_000_000
    }

    /// When the clock is there.
    fn time_of(&self, units: u64) -> Time {
        let clock = u64::from(self.encoder.codec().clock());
        self.begun + Duration::from_micros((units * 1_000_000).div_ceil(clock))
    }
}

/// Sends a packet under the next number of the stream.
fn number(
    plan: &RtpPlan,
    sequence: &mut u16,
    (payload_type, marker, timestamp): (u8, bool, u32),
    payload: &[u8],
    out: Out<'_>,
) {
    out(RtpPacket {
        payload_type,
        marker,
        sequence: *sequence,
        timestamp,
        ssrc: plan.ssrc,
        payload,
    });
    *sequence = sequence.wrapping_add(1);
}

/// The frame with a gain that goes from one to the other, so that the change does not click.
fn between(frame: &[i16; FRAME], from: i32, to: i32) -> [i16; FRAME] {
    let mut softer = *frame;
    for (at, sample) in softer.iter_mut().enumerate() {
        let gain = from + (to - from) * at as i32 / FRAME as i32;
        *sample = (i32::from(*sample) * gain / WHOLE) as i16;
    }
    softer
}
