//! An RTP leg: packets to caller audio and digits, agent audio to packets. Pure: what comes here is
//! decrypted and from the right address, what goes out is sealed by the shell.
//!
//! What is received goes through the jitter buffer: packets in their order go straight on, so the leg
//! adds no delay of its own; gaps and pauses have the length that the timestamps say. Where timestamps
//! end (another source is followed, a jump), [`LegEvent::Reconnected`] says so, and the call's clock tells the place.
//! Keys come from any source ([`Sources`]).
//!
//! What is sent is one stream in real time: agent audio as it comes, and between it silence, so that
//! networks keep the path open and the other side hears a line that lives; comfort noise instead when
//! both sides know it.

mod codec;
mod keypad;
mod packer;
mod receiver;
mod sender;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::receiver::RtpReceiver;
use self::sender::RtpSender;
use super::sources::Sources;
use super::{Coding, LegEvent, RtpPacket};
use crate::audio::opus::OpusError;
use crate::audio::pacing::Arrivals;
use crate::frame::FRAME;
use crate::peer::MediaTotals;
use crate::rtp::sdp::{self, Agreed, Codec, Flow, Format, Formats, received};
use crate::time::Time;

/// How long the first sign of the other side may take, and any later one: a packet of any kind, or a report in its
/// place. A telephone that suppresses silence sends nothing else while it listens (RFC 3550 section 6.3.5 counts either),
/// and many keep their way open with packets of no meaning (RFC 6263).
const FIRST_PACKET: Duration = Duration::from_secs(30);
const NEXT_PACKET: Duration = Duration::from_secs(15);

/// The hard limit behind both: who sends no sound for so long, and only shows to be there, has left the call, and so has
/// who holds it for so long without a sign. Nobody listens to music for longer.
const HOLD: Duration = Duration::from_secs(1_800);

/// What the leg needs to know of an agreement, and the random beginnings of our stream. It stands in
/// the call's tape, so it holds neither addresses nor keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RtpPlan {
    /// What we send.
    pub codec: Codec,
    pub payload_type: u8,
    pub events: Option<u8>,
    /// In what keypad events count their length, a second.
    #[serde(default = "narrow")]
    pub events_clock: u32,
    pub comfort_noise: Option<u8>,
    /// The payload types of what we hear. `None`: those of what we send.
    #[serde(default)]
    pub heard: Option<Formats>,
    /// The audio in a packet of ours, ms. Opus has 20 always.
    #[serde(default = "usual_packet")]
    pub packet_ms: u8,
    /// The most bits of Opus a second.
    #[serde(default)]
    pub most_bits: Option<u32>,
    pub flow: Flow,
    pub ssrc: u32,
    pub sequence: u16,
    pub timestamp: u32,
}

impl RtpPlan {
    /// `seed`: ten random bytes (RFC 3550 section 5.1 asks for random beginnings). Numbers begin in their lower
    /// half, so that a packet lost at the beginning does not hide a wrap from SRTP (RFC 3711 section 3.3.1).
    pub fn new(agreed: &Agreed, seed: [u8; 10]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = seed;
        Self {
            codec: agreed.codec,
            payload_type: agreed.payload_type,
            events: agreed.events,
            events_clock: agreed.events_clock,
            comfort_noise: agreed.comfort_noise,
            heard: Some(agreed.heard),
            packet_ms: agreed.packet_ms,
            most_bits: agreed.most_bits,
            flow: agreed.flow,
            ssrc: u32::from_be_bytes([a, b, c, d]),
            sequence: u16::from_be_bytes([e, f]) & 0x7fff,
            timestamp: u32::from_be_bytes([g, h, i, j]),
        }
    }

    /// The same stream under another agreement.
    #[must_use]
    pub fn renewed(self, agreed: &Agreed) -> Self {
        Self {
            codec: agreed.codec,
            payload_type: agreed.payload_type,
            events: agreed.events,
            events_clock: agreed.events_clock,
            comfort_noise: agreed.comfort_noise,
            heard: Some(agreed.heard),
            packet_ms: agreed.packet_ms,
            most_bits: agreed.most_bits,
            flow: agreed.flow,
            ..self
        }
    }

    /// What a packet of this payload type holds. `None`: it was not agreed.
    fn format(&self, payload_type: u8) -> Option<Format> {
        let codec = (self.codec, self.payload_type);
        let sent = Formats::of(codec, self.events, self.comfort_noise);
        received(self.heard.as_ref(), &sent, payload_type)
    }
}

/// What tapes mean that do not say it.
const fn narrow() -> u32 {
    8_000
}

const fn usual_packet() -> u8 {
    sdp::PACKET_MS
}

/// Where packets go that are to be sent.
pub type Out<'s> = &'s mut dyn FnMut(RtpPacket<'_>);

type Sink<'s> = &'s mut dyn FnMut(LegEvent<'_>);

/// The caller's side of a telephone call.
pub struct RtpLeg {
    plan: RtpPlan,
    sources: Sources<RtpReceiver>,
    mouth: RtpSender,
    /// When sound, noise or an event came last, and when anything did.
    last_media: Option<Time>,
    last_sign: Option<Time>,
    /// Since when packets are awaited.
    awaited: Time,
    /// The silence was told.
    told_silent: bool,
}

impl RtpLeg {
    /// The codecs that the leg speaks, the preferred ones first.
    pub const CODECS: &'static [Codec] = codec::SPOKEN;

    /// An error when the codec cannot be set up.
    pub fn new(plan: RtpPlan) -> Result<Self, OpusError> {
        Ok(Self {
            plan,
            sources: Sources::new(RtpReceiver::new(&plan)?),
            mouth: RtpSender::new(&plan)?,
            last_media: None,
            last_sign: None,
            awaited: Time::NEVER,
            told_silent: false,
        })
    }

    pub(super) fn exchange(&mut self, coding: &mut Coding) {
        self.sources.heard_mut().exchange(coding);
        self.mouth.exchange(coding);
    }

    /// The call begins: from now on there is something to send and to wait for.
    pub fn start(&mut self, now: Time) {
        self.awaited = now;
        self.mouth.start(now);
    }

    /// Another agreement holds from now on: hold, resume, another codec. An error when that cannot be
    /// set up: then the leg speaks no codec that was agreed.
    pub fn renew(&mut self, now: Time, plan: RtpPlan) -> Result<(), OpusError> {
        if plan.flow != self.plan.flow {
            self.awaited = now;
            self.told_silent = false;
        }
        self.sources.ears().for_each(|ear| ear.renew(&plan));
        self.mouth.renew(now, &plan)?;
        self.plan = plan;
        Ok(())
    }

    /// Whether the other side holds the call: it does not hear us.
    pub const fn is_held(&self) -> bool {
        !matches!(self.plan.flow, Flow::SendRecv | Flow::SendOnly)
    }

    /// Whether neither side hears the other.
    pub const fn is_inactive(&self) -> bool {
        matches!(self.plan.flow, Flow::Inactive)
    }

    /// Takes a packet, and tells what can be heard because of it. One that means nothing here shows that somebody is
    /// there.
    pub fn packet(&mut self, now: Time, packet: &RtpPacket<'_>, sink: Sink<'_>) {
        self.last_sign = Some(now);
        self.told_silent = false;
        let Some(format) = self.plan.format(packet.payload_type) else {
            return;
        };
        self.last_media = Some(now);
        self.sources.packet(now, packet, format, sink);
    }

    /// What the other side sent until now was not given here: it held the call.
    pub fn skip(&mut self) {
        self.sources.skip();
    }

    /// Sends 20 ms of agent audio, 12 dB softer when `ducked`.
    pub fn audio(&mut self, now: Time, frame: &[i16; FRAME], ducked: bool, out: Out<'_>) {
        self.mouth.audio(now, frame, ducked, out);
    }

    /// The agent was interrupted: nothing of it may ring on.
    pub fn cut(&mut self) {
        self.mouth.cut();
    }

    /// The other side's report came: so many per cent of our packets are lost, and somebody is there.
    pub fn reported(&mut self, now: Time, lost_per_cent: u8) {
        self.last_sign = Some(now);
        self.mouth.expect_loss(lost_per_cent);
    }

    /// Queues a key to be sent: as events, or as tones where none were agreed and the codec carries tones.
    /// `false`: neither, it is no key, or too many wait.
    pub fn press(&mut self, now: Time, key: char) -> bool {
        self.mouth.press(now, key)
    }

    /// When [`timeout`](Self::timeout) or [`send_due`](Self::send_due) has something to do.
    pub fn deadline(&self) -> Time {
        let silent = if self.told_silent {
            Time::NEVER
        } else {
            self.silent_at()
        };
        self.sources
            .deadline()
            .min(self.mouth.deadline())
            .min(silent)
    }

    /// Gives up what is missing by now, and a caller who is.
    pub fn timeout(&mut self, now: Time, sink: Sink<'_>) {
        self.sources.timeout(now, sink);
        if !self.told_silent && now >= self.silent_at() {
            self.told_silent = true;
            sink(LegEvent::Silent);
        }
    }

    /// Sends the silence or the digits that are due. Agent audio that is due now goes first.
    pub fn send_due(&mut self, now: Time, arrivals: &Arrivals, out: Out<'_>) {
        self.mouth.timeout(now, arrivals, out);
    }

    /// How much later a sound comes out than it went into the caller's codec.
    pub fn delay(&self) -> Duration {
        self.sources.heard().delay()
    }

    /// What came of the caller's packets.
    pub fn totals(&self) -> MediaTotals {
        self.sources.totals()
    }

    /// Of the caller's packets.
    pub fn jitter(&self) -> Duration {
        self.sources.heard().jitter()
    }

    /// When nothing having come becomes too long. A side that holds the call need not send, and one that only listens
    /// does not, but all of them end at some time.
    fn silent_at(&self) -> Time {
        let since = |last: Option<Time>| last.map_or(self.awaited, |last| last.max(self.awaited));
        if self.plan.flow != Flow::SendRecv {
            return since(self.last_sign) + HOLD;
        }
        let mut end = match self.last_sign {
            Some(_) => since(self.last_sign) + NEXT_PACKET,
            None => self.awaited + FIRST_PACKET,
        };
        if self.last_media.is_none() {
            // Anybody's datagram may have been the sign.
            end = end.max(self.awaited + FIRST_PACKET);
        }
        end.min(since(self.last_media) + HOLD)
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a failed step is a failed test")]
mod tests;
