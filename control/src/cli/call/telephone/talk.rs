//! The sound of a call that the terminal places: a voice, keys and what is heard, through the leg that the server has
//! for its callers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use media::audio::level;
use media::audio::pacing::Arrivals;
use media::frame::FRAME;
use media::leg::rtp::{RtpLeg, RtpPlan};
use media::leg::{LegEvent, RtpPacket};
use media::rtp::packet::{Header, Packet, is_rtcp};
use media::rtp::sdp::{Agreed, Codec};
use media::rtp::srtp::{Opener, Sealer};
use media::time::{RATE, Time};
use tokio::time::Instant;

use crate::cli::call::player::Player;
use crate::cli::call::script::{Act, AgentSpeech, Script};
use crate::cli::call::{CallArgs, CallError};
use crate::secret;

/// A voice that pauses for longer begins anew, ms: shorter than between two sentences of an agent's turn
/// and the caller's.
const PAUSE_MS: u64 = 600;

/// What counts as voice on a line: above −40 dBFS.
const LOUD: u16 = 330;

/// The sound of the call.
pub(super) struct Talk {
    leg: RtpLeg,
    plan: RtpPlan,
    pub(super) agreed: Agreed,
    sealer: Option<Sealer>,
    opener: Option<Opener>,
    began: Instant,
    pub(super) player: Player,
    ears: AgentSpeech,
    /// `None`: there is nothing to say, and the other side hangs up.
    script: Option<Script>,
    voice: Vec<i16>,
    /// The next sample of the voice to be spoken.
    at: usize,
    /// Hang up then, ms.
    until_ms: u64,
    /// Keys that are still to be pressed, and when the next one is.
    keys: VecDeque<char>,
    next_key_ms: u64,
    /// Packets that are to be sent.
    pub(super) out: Vec<Vec<u8>>,
    pub(super) notes: Vec<String>,
    /// The other side sends nothing any more.
    pub(super) is_deaf: bool,
}

/// Between two keys, ms, and before the first.
const KEY_EVERY_MS: u64 = 500;
const FIRST_KEY_MS: u64 = 1_000;

impl Talk {
    pub(super) fn new(
        agreed: &Agreed,
        args: &CallArgs,
        voice: Option<Vec<i16>>,
    ) -> Result<Self, CallError> {
        let seed = secret::random_bytes().map_err(|error| CallError::Socket(error.to_string()))?;
        let plan = RtpPlan::new(agreed, seed);
        let mut leg = RtpLeg::new(plan).map_err(|_| no_codec(agreed.codec))?;
        leg.start(time(Duration::ZERO));
        let linger_ms = (args.linger.clamp(0.0, 3600.0) * 1000.0) as u64;
        let script = voice.as_ref().map(|voice| {
            let file_ms = voice.len() as u64 * 1000 / u64::from(RATE);
            Script::new(file_ms, linger_ms, args.barge_in_at)
        });
        let keys = args.press.as_deref().unwrap_or_default();
        Ok(Self {
            leg,
            plan,
            agreed: agreed.clone(),
            sealer: agreed.keys.as_ref().map(|keys| Sealer::new(&keys.ours)),
            opener: agreed.keys.as_ref().map(|keys| Opener::new(&keys.theirs)),
            began: Instant::now(),
            player: Player::new(RATE),
            ears: AgentSpeech::default(),
            script,
            voice: voice.unwrap_or_default(),
            at: 0,
            until_ms: args.seconds.map_or(u64::MAX, |seconds| seconds * 1000),
            keys: keys.chars().collect(),
            next_key_ms: FIRST_KEY_MS,
            out: Vec::new(),
            notes: Vec::new(),
            is_deaf: false,
        })
    }

    /// 20 ms: what is said in them into `out`. `Some`: it is time to hang up, and why.
    pub(super) fn frame(&mut self) -> Option<&'static str> {
        let passed = self.began.elapsed();
        let (now, now_ms) = (
            time(passed),
            u64::try_from(passed.as_millis()).unwrap_or(u64::MAX),
        );
        // The position is all that is wanted here: nobody has to be told of what was played.
        drop(self.player.advance(samples(passed)));
        self.hear(|leg, sink| leg.timeout(now, sink), passed);
        if self.is_deaf {
            return Some("hanging up: nothing comes any more");
        }
        if now_ms >= self.until_ms {
            return Some("hanging up: the time is over");
        }
        match self
            .script
            .as_mut()
            .map(|script| script.act(now_ms, self.ears))
        {
            Some(Act::HangUp) => return Some("hanging up"),
            Some(Act::Begin) => {
                self.notes.push("speaking".to_owned());
                self.at = 0;
            }
            Some(Act::Silence) => self.at = self.voice.len(),
            Some(Act::Speak) | None => {}
        }
        if now_ms >= self.next_key_ms
            && let Some(key) = self.keys.pop_front()
        {
            self.next_key_ms = now_ms + KEY_EVERY_MS;
            let note = match self.leg.press(now, key) {
                true => format!("pressing {key}"),
                false => format!(
                    "{key} cannot be pressed: no keypad events were agreed, or it is no key"
                ),
            };
            self.notes.push(note);
        }
        let mut frame = [0; FRAME];
        let spoken = self.voice.len().saturating_sub(self.at).min(FRAME);
        frame[..spoken].copy_from_slice(&self.voice[self.at..self.at + spoken]);
        self.at += spoken;
        let (out, sealer) = (&mut self.out, &mut self.sealer);
        let mut send = |packet: RtpPacket<'_>| out.push(sealed(&packet, sealer.as_mut()));
        self.leg.audio(now, &frame, false, &mut send);
        // Keys take the place of audio.
        self.leg.send_due(now, &Arrivals::default(), &mut send);
        None
    }

    /// A datagram that came.
    pub(super) fn datagram(&mut self, datagram: &mut [u8], from: SocketAddr) {
        if from.ip() != self.agreed.remote.ip() || is_rtcp(datagram) {
            return;
        }
        let length = match &mut self.opener {
            // A packet that is not authentic is nobody's.
            Some(opener) => match opener.open(datagram) {
                Ok(length) => length,
                Err(_) => return,
            },
            None => datagram.len(),
        };
        let Some(packet) = Packet::parse(&datagram[..length]) else {
            return;
        };
        let passed = self.began.elapsed();
        self.hear(|leg, sink| leg.packet(time(passed), &packet, sink), passed);
    }

    /// Lets the leg tell what can be heard now.
    fn hear(
        &mut self,
        run: impl FnOnce(&mut RtpLeg, &mut dyn FnMut(LegEvent<'_>)),
        passed: Duration,
    ) {
        let Self {
            leg,
            player,
            ears,
            notes,
            is_deaf,
            ..
        } = self;
        let now = samples(passed);
        run(leg, &mut |event| match event {
            LegEvent::Audio(sound) => {
                let start = player.play(now, 0, sound) * 1000 / u64::from(RATE);
                if sound.iter().any(|sample| sample.unsigned_abs() > LOUD) {
                    if ears.voice_since.is_none() || start > ears.voice_until + PAUSE_MS {
                        ears.voice_since = Some(start);
                        notes.push("the other side speaks".to_owned());
                    }
                    ears.voice_until = player.end() * 1000 / u64::from(RATE);
                }
            }
            LegEvent::Digit(key) => notes.push(format!("key {key}")),
            LegEvent::Silent => *is_deaf = true,
            // What was lost is silence on the call's own time line; a stream that begins anew goes on there.
            _ => {}
        });
    }

    pub(super) fn renew(&mut self, agreed: Agreed) -> Result<(), CallError> {
        self.plan = self.plan.renewed(&agreed);
        let renewed = self.leg.renew(time(self.began.elapsed()), self.plan);
        renewed.map_err(|_| no_codec(agreed.codec))?;
        // A key that stays keeps its count, whatever becomes of the other direction's.
        let (before, keys) = (self.agreed.keys.as_ref(), agreed.keys.as_ref());
        if keys.map(|keys| &keys.ours) != before.map(|keys| &keys.ours) {
            self.sealer = keys.map(|keys| Sealer::new(&keys.ours));
        }
        if keys.map(|keys| &keys.theirs) != before.map(|keys| &keys.theirs) {
            self.opener = keys.map(|keys| Opener::new(&keys.theirs));
        }
        self.agreed = agreed;
        Ok(())
    }

    /// What the network did, and how loud it was.
    pub(super) fn summary(&self) -> String {
        let totals = self.leg.totals();
        let sound = self.player.sound();
        let loudness = match sound.iter().any(|sample| *sample != 0) {
            true => format!("{:.0} dBFS", level::rms_dbfs(sound)),
            false => "silence".to_owned(),
        };
        format!(
            "heard {:.1} s ({loudness}): {} packets, {} lost, {} late, jitter {:.1} ms",
            sound.len() as f64 / f64::from(RATE),
            totals.packets,
            totals.lost,
            totals.late,
            self.leg.jitter().as_secs_f64() * 1000.0
        )
    }
}

/// A packet as it goes over the wire.
fn sealed(packet: &RtpPacket<'_>, sealer: Option<&mut Sealer>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packet.payload.len() + 32);
    let header = Header {
        payload_type: packet.payload_type,
        marker: packet.marker,
        sequence: packet.sequence,
        timestamp: packet.timestamp,
        ssrc: packet.ssrc,
    };
    header.write(&mut bytes);
    bytes.extend_from_slice(packet.payload);
    if let Some(sealer) = sealer {
        sealer.seal(&mut bytes);
    }
    bytes
}

fn no_codec(codec: Codec) -> CallError {
    CallError::Failed(format!("the codec {} cannot be set up", codec.name()))
}

/// The leg's time. It does not begin at zero, where no time has passed.
fn time(passed: Duration) -> Time {
    Time::from_millis(1_000) + passed
}

/// Samples since the call was answered.
fn samples(passed: Duration) -> u64 {
    u64::try_from(passed.as_micros()).unwrap_or(u64::MAX) * u64::from(RATE) / 1_000_000
}
