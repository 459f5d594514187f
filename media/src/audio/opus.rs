//! Opus (RFC 6716) at the engine's rate, mono, by libopus, which is built along and linked in. Everything that
//! names the library is in this file.
//!
//! RTP counts Opus at 48 kHz whatever was encoded (RFC 7587 section 4.1); [`CLOCK`] is that clock.

use std::time::Duration;

use opus::{Application, Bitrate, Channels, Signal};

use crate::frame::FRAME;
use crate::time::RATE;

/// Units of RTP timestamps a second, Hz.
pub const CLOCK: u32 = 48_000;

/// Units of the clock in one sample of the engine.
pub const UNITS: u32 = CLOCK / RATE;

/// The longest packet: 120 ms (RFC 6716 section 2.1.4), samples.
pub const LONGEST: usize = RATE as usize * 120 / 1000;

/// The largest packet of one frame (RFC 6716 section 3.4), bytes. What we encode stays far below it.
const LARGEST: usize = 1275;

/// Bits a second for the agent's voice: enough for an encoder that does not work hard, and for the copies of in-band
/// FEC (`scripts/opus_quality.sh` compares).
const BITRATE: i32 = 48_000;

/// Bits a second where nothing is lost. Copies are of SILK, the codec's mode for voices with few bits; without them its
/// other mode, CELT, sounds no worse with this many, for two thirds of the work (`scripts/opus_quality.sh`).
const CLEAN_BITRATE: i32 = 64_000;

/// How much later a sound comes out of a decoder than it went into the encoder: what encoders look ahead, 2.5 ms for
/// overlapping frames and 4 ms for one of their modes to wait for the other (RFC 7845 section 4.2 has the same 312
/// samples at 48 kHz). Encoders for low delay alone save the 4 ms.
pub const DELAY: Duration = Duration::from_micros(6_500);

/// No listener may ask for fewer (RFC 7587 section 6.1).
const FEWEST_BITS: i32 = 6_000;

/// With fewer bits than this a second the encoder works harder, for there it can be heard: at 24 kbit/s PESQ-WB is 3.9
/// at complexity 1 and 4.3 at 5, at 48 kbit/s 4.4 and 4.5 (`scripts/opus_quality.sh`).
const FEW_BITS: i32 = 40_000;

/// The least complexity with few bits.
const HARDER: u8 = 5;

/// The loss the encoder makes provision for before a report tells it, per cent: enough for it to send copies at all.
const EXPECTED_LOSS: u8 = 10;

/// So many reports in a row after a loss that nothing was lost (of browsers: a quarter of a minute and more), and no
/// copies are sent any more: each frame is encoded twice for them, which is a sixth of the work, and a third at complexity 5
/// (`scripts/opus_quality.sh`). The next loss brings them back.
const CLEAN_REPORTS: u32 = 5;

/// Nothing louder than this is silence: −60 dBFS. Discontinuous transmission goes by it, and not by the
/// library's, which must encode a frame to find that it need not be sent, and takes a steady sound (a
/// tone, music) for noise.
const SILENT: u16 = 32;

/// Frames of silence that are sent before none is (200 ms), so that the listener's side has faded.
const HANGOVER: u32 = 10;

/// The library could not be used as asked. It cannot be set up (its memory), or the packet is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpusError;

/// The most bits a second that a listener wants to get (`maxaveragebitrate`, RFC 7587 section 6.1), by a format's line in
/// its description (`a=fmtp:`, what follows on it), and of which payload type. `None`: the line limits nothing.
pub fn most_bits(format: &str) -> Option<(u8, u32)> {
    let (number, parameters) = format.split_once(' ')?;
    let bits = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let asked = name.trim().eq_ignore_ascii_case("maxaveragebitrate");
        asked.then(|| value.trim().parse().ok()).flatten()
    });
    Some((number.parse().ok()?, bits?))
}

/// What one packet holds, as far as its head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Units of [`CLOCK`]: 120 (2.5 ms) to 5760 (120 ms).
    pub duration: u32,
    /// It holds a copy of the packet before it (in-band FEC).
    pub copy: bool,
}

impl Head {
    /// Reads the head (RFC 6716 section 3). `None`: no Opus packet begins like this.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (&toc, rest) = packet.split_first()?;
        let config = toc >> 3;
        // Section 3.1, table 2, in units of the clock.
        let frame = match config {
            0..=11 => [480, 960, 1920, 2880][usize::from(config & 3)],
            12..=15 => [480, 960][usize::from(config & 1)],
            _ => [120, 240, 480, 960][usize::from(config & 3)],
        };
        let (frames, first) = match toc & 3 {
            0 => (1, rest.first()),
            1 => (2, rest.first()),
            // The length of the first frame stands before it, in one byte or two (section 3.2.1).
            2 if *rest.first()? < 252 => (2, rest.get(1)),
            2 => (2, rest.get(2)),
            _ => (u32::from(rest.first()? & 63), None),
        };
        let duration = frame * frames;
        if duration == 0 || duration > CLOCK * 120 / 1000 {
            return None;
        }
        // Sections 4.2.3 and 4.2.4: after a bit of voice activity for each 20 ms comes the bit that says
        // whether copies follow, for the middle channel first. Only SILK has copies.
        let silk = config < 16;
        let parts = (frame / 960).max(1);
        let copy = silk
            && first.is_some_and(|&byte| {
                let stereo = toc & 4 != 0;
                let middle = byte >> (7 - parts) & 1;
                let side = if stereo {
                    byte >> (6 - 2 * parts) & 1
                } else {
                    0
                };
                middle | side == 1
            });
        Some(Self { duration, copy })
    }
}

/// One stream from the network.
#[derive(Debug)]
pub struct Decoder {
    library: opus::Decoder,
}

impl Decoder {
    pub fn new() -> Result<Self, OpusError> {
        let library = opus::Decoder::new(RATE, Channels::Mono).map_err(|_| OpusError)?;
        Ok(Self { library })
    }

    /// Decodes a packet into the front of `out` (room for [`LONGEST`]); the number of samples.
    pub fn decode(&mut self, packet: &[u8], out: &mut [i16]) -> Result<usize, OpusError> {
        self.run(packet, out, false)
    }

    /// Decodes the copy that `following` holds of the packet before it, `out` being as long as that
    /// packet was.
    pub fn recover(&mut self, following: &[u8], out: &mut [i16]) -> Result<usize, OpusError> {
        self.run(following, out, true)
    }

    /// Makes up sound for a lost packet, `out` being as long as it was (a multiple of 2.5 ms).
    pub fn conceal(&mut self, out: &mut [i16]) -> Result<usize, OpusError> {
        // No bytes are a lost packet to the library.
        self.library.decode(&[], out, false).map_err(|_| OpusError)
    }

    fn run(&mut self, packet: &[u8], out: &mut [i16], copy: bool) -> Result<usize, OpusError> {
        if packet.is_empty() {
            return Err(OpusError);
        }
        self.library
            .decode(packet, out, copy)
            .map_err(|_| OpusError)
    }
}

/// The agent's voice to the network.
#[derive(Debug)]
pub struct Encoder {
    library: opus::Encoder,
    /// With bits enough.
    complexity: u8,
    /// Bits a second, as the listener limits them.
    most: i32,
    /// The loss it makes provision for, per cent.
    loss: u8,
    /// Reports in a row that nothing is lost.
    clean: u32,
    /// Frames of silence in a row.
    quiet: u32,
}

impl Encoder {
    /// `complexity`: 0 to 10.
    pub fn new(complexity: u8) -> Result<Self, OpusError> {
        let make = || -> opus::Result<opus::Encoder> {
            let mut library = opus::Encoder::new(RATE, Channels::Mono, Application::Voip)?;
            library.set_inband_fec(true)?;
            Ok(library)
        };
        let mut encoder = Self {
            library: make().map_err(|_| OpusError)?,
            complexity: complexity.min(10),
            most: i32::MAX,
            loss: EXPECTED_LOSS,
            // Copies until the network is heard of; when its first report is a good one, that is enough.
            clean: CLEAN_REPORTS - 1,
            quiet: 0,
        };
        encoder.set()?;
        Ok(encoder)
    }

    /// The listener wants no more than so many bits a second; `None`: it does not say.
    pub fn limit(&mut self, most_bits: Option<u32>) -> Result<(), OpusError> {
        let most = most_bits.and_then(|bits| i32::try_from(bits).ok());
        self.most = most.map_or(i32::MAX, |most| most.max(FEWEST_BITS));
        self.set()
    }

    /// Tells the library how to encode, by the bits there are and what is lost of them.
    fn set(&mut self) -> Result<(), OpusError> {
        let clean = self.loss == 0 && self.most >= CLEAN_BITRATE;
        // What the library takes for music with so many bits has no SILK in it.
        let (signal, bits) = match clean {
            true => (Signal::Music, CLEAN_BITRATE),
            false => (Signal::Voice, self.most.min(BITRATE)),
        };
        let complexity = match bits {
            ..FEW_BITS => self.complexity.max(HARDER),
            _ => self.complexity,
        };
        let mut tell = || -> opus::Result<()> {
            self.library.set_complexity(complexity.into())?;
            self.library.set_bitrate(Bitrate::Bits(bits))?;
            self.library.set_signal(signal)?;
            self.library.set_packet_loss_perc(self.loss.into())
        };
        tell().map_err(|_| OpusError)
    }

    /// A report of the listener's says that so many per cent are lost, rounded up.
    pub fn expect_loss(&mut self, per_cent: u8) {
        self.clean = if per_cent == 0 {
            self.clean.saturating_add(1)
        } else {
            0
        };
        let loss = match self.clean {
            CLEAN_REPORTS.. => 0,
            // A report tells of a few seconds: one without loss does not end a bad time.
            1.. => self.loss,
            0 => per_cent.clamp(EXPECTED_LOSS, 30),
        };
        let before = std::mem::replace(&mut self.loss, loss);
        if loss != before && self.set().is_err() {
            // It goes on as it was told last, and is told again with the next report.
            self.loss = before;
        }
    }

    /// Appends 20 ms as a packet. `false`: there is nothing worth sending (discontinuous transmission), and
    /// nothing was appended.
    pub fn encode(&mut self, frame: &[i16; FRAME], out: &mut Vec<u8>) -> Result<bool, OpusError> {
        if frame.iter().any(|sample| sample.unsigned_abs() > SILENT) {
            self.quiet = 0;
        } else {
            self.quiet = self.quiet.saturating_add(1);
            if self.quiet > HANGOVER {
                return Ok(false);
            }
        }
        let start = out.len();
        out.resize(start + LARGEST, 0);
        let length = self.library.encode(frame, &mut out[start..]);
        out.truncate(start + length.as_ref().copied().unwrap_or(0));
        length.map(|_| true).map_err(|_| OpusError)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;
    use crate::audio::level::rms_dbfs;

    /// A voice-like sound: harmonics of 150 Hz that swell and fade.
    fn voice(n: usize) -> i16 {
        let t = n as f64 / f64::from(RATE);
        let sum: f64 = (1..12)
            .map(|h| (std::f64::consts::TAU * 150.0 * f64::from(h) * t).sin() / f64::from(h))
            .sum();
        (sum * 5000.0 * (1.0 + (std::f64::consts::TAU * 3.0 * t).sin())) as i16
    }

    fn frames(count: usize) -> Vec<[i16; FRAME]> {
        (0..count)
            .map(|f| std::array::from_fn(|i| voice(f * FRAME + i)))
            .collect()
    }

    fn packets(count: usize) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new(5).unwrap();
        let encode = |frame: &[i16; FRAME]| {
            let mut packet = Vec::new();
            assert!(
                encoder.encode(frame, &mut packet).unwrap(),
                "a voice is sent"
            );
            packet
        };
        frames(count).iter().map(encode).collect()
    }

    fn energy(samples: &[i16]) -> f64 {
        samples.iter().map(|&s| f64::from(s).powi(2)).sum()
    }

    #[test]
    fn a_voice_comes_back() {
        let mut decoder = Decoder::new().unwrap();
        let mut out = [0; LONGEST];
        let mut heard = Vec::new();
        for packet in packets(50) {
            assert_eq!(Head::of(&packet).unwrap().duration, 960);
            let n = decoder.decode(&packet, &mut out).unwrap();
            assert_eq!(n, FRAME);
            heard.extend_from_slice(&out[..n]);
        }
        let said = frames(50).concat();
        let ratio = energy(&heard[8000..]) / energy(&said[8000..]);
        assert!((0.7..1.3).contains(&ratio), "{ratio}");
        assert!(rms_dbfs(&heard[8000..]) > -20.0);
    }

    /// Of all shifts the sound is most like what was said at the one that is told, whatever the encoder's effort.
    #[test]
    fn a_voice_comes_back_so_much_later() {
        let said = frames(100).concat();
        for complexity in [1, 5] {
            let mut encoder = Encoder::new(complexity).unwrap();
            let mut decoder = Decoder::new().unwrap();
            let (mut packet, mut out, mut heard) = (Vec::new(), [0; LONGEST], Vec::new());
            for frame in frames(100) {
                packet.clear();
                encoder.encode(&frame, &mut packet).unwrap();
                let n = decoder.decode(&packet, &mut out).unwrap();
                heard.extend_from_slice(&out[..n]);
            }
            let alike = |later: usize| -> f64 {
                let pairs = said[8_000..30_000].iter().zip(&heard[8_000 + later..]);
                pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            // The voice repeats itself after 107 samples.
            let best = (60..150)
                .max_by(|a, b| alike(*a).total_cmp(&alike(*b)))
                .unwrap();
            let told = usize::try_from(DELAY.as_micros()).unwrap() * RATE as usize / 1_000_000;
            assert!(
                best.abs_diff(told) <= 4,
                "complexity {complexity}: {best} samples, told {told}"
            );
        }
    }

    #[test]
    fn the_following_packet_holds_a_copy() {
        let packets = packets(50);
        let with_copy = |n: &usize| Head::of(&packets[*n]).unwrap().copy;
        let following = (20..50).find(with_copy).expect("a packet with a copy");
        let mut decoder = Decoder::new().unwrap();
        let mut out = [0; LONGEST];
        for packet in &packets[..following - 1] {
            decoder.decode(packet, &mut out).unwrap();
        }
        let mut copy = [0; FRAME];
        assert_eq!(
            decoder.recover(&packets[following], &mut copy).unwrap(),
            FRAME
        );
        let lost = frames(50)[following - 1];
        let ratio = energy(&copy) / energy(&lost);
        assert!(
            (0.4..2.0).contains(&ratio),
            "the copy is as loud as the lost: {ratio}"
        );
    }

    #[test]
    fn copies_are_sent_until_the_network_is_known_to_be_good() {
        let frames = frames(200);
        let mut encoder = Encoder::new(5).unwrap();
        let mut copies = |reports: &[u8]| {
            for report in reports {
                encoder.expect_loss(*report);
            }
            let mut packet = Vec::new();
            let holds_one = |frame| {
                packet.clear();
                encoder.encode(frame, &mut packet).unwrap();
                Head::of(&packet).unwrap().copy
            };
            // The first still holds the copy of the one before the change.
            frames.iter().map(holds_one).skip(1).filter(|c| *c).count()
        };
        assert!(copies(&[]) > 20);
        assert_eq!(copies(&[0]), 0);
        assert!(copies(&[3]) > 20);
        assert!(copies(&[0, 0, 0, 0]) > 20);
        assert_eq!(copies(&[0]), 0);
        assert!(copies(&[1, 0, 0]) > 20);
    }

    #[test]
    fn without_losses_the_voice_needs_no_silk_and_goes_on_through_each_change() {
        let frames = frames(300);
        let (mut encoder, mut decoder) = (Encoder::new(1).unwrap(), Decoder::new().unwrap());
        let (mut packet, mut out, mut heard) = (Vec::new(), [0; LONGEST], Vec::new());
        // RFC 6716 section 3.1: from the sixteenth configuration on it is CELT alone.
        let mut celt = Vec::new();
        for (at, frame) in frames.iter().enumerate() {
            match at {
                100 => encoder.expect_loss(0),
                200 => encoder.expect_loss(5),
                _ => {}
            }
            packet.clear();
            encoder.encode(frame, &mut packet).unwrap();
            celt.push(packet[0] >> 3 >= 16);
            let n = decoder.decode(&packet, &mut out).unwrap();
            heard.extend_from_slice(&out[..n]);
        }
        // A change takes a frame or two, in which both modes are sent.
        assert!(!celt[..100].contains(&true), "{celt:?}");
        assert!(!celt[103..200].contains(&false), "{celt:?}");
        assert!(!celt[203..].contains(&true), "{celt:?}");
        // Around each change it is as loud as anywhere, frame by frame.
        let later = usize::try_from(DELAY.as_micros()).unwrap() * RATE as usize / 1_000_000;
        for at in (95..115).chain(195..215) {
            let ratio = energy(&heard[at * FRAME + later..][..FRAME]) / energy(&frames[at]);
            assert!((0.5..2.0).contains(&ratio), "frame {at}: {ratio}");
        }
        // Who limits the bits is served with SILK.
        encoder.expect_loss(0);
        (0..CLEAN_REPORTS).for_each(|_| encoder.expect_loss(0));
        for (most, celt) in [(None, true), (Some(56_000), false), (Some(64_000), true)] {
            encoder.limit(most).unwrap();
            for frame in &frames[..5] {
                packet.clear();
                encoder.encode(frame, &mut packet).unwrap();
            }
            assert_eq!(packet[0] >> 3 >= 16, celt, "{most:?}");
        }
    }

    #[test]
    fn a_listener_gets_no_more_bits_than_it_wants() {
        let frames = frames(250);
        let mut encoder = Encoder::new(1).unwrap();
        let mut sent = |most| {
            encoder.limit(most).unwrap();
            let mut out = Vec::new();
            for frame in &frames {
                encoder.encode(frame, &mut out).unwrap();
            }
            // 250 frames are five seconds.
            out.len() as f64 * 8.0 / 5.0
        };
        let free = sent(None);
        assert!((30_000.0..53_000.0).contains(&free), "{free}");
        for most in [24_000_u32, 12_000] {
            let bits = sent(Some(most));
            assert!(bits < f64::from(most) * 1.1, "{bits} of {most}");
        }
        // Nobody is served with less than the codec can do, nor with more than we do.
        assert!(sent(Some(1)) > 4_000.0);
        assert!((sent(Some(u32::MAX)) - free).abs() < free / 10.0);
    }

    #[test]
    fn with_few_bits_the_encoder_works_harder_and_with_many_no_more() {
        let frames = frames(50);
        let sent = |complexity, mosts: &[Option<u32>]| {
            let mut encoder = Encoder::new(complexity).unwrap();
            for most in mosts {
                encoder.limit(*most).unwrap();
            }
            let mut out = Vec::new();
            for frame in &frames {
                encoder.encode(frame, &mut out).unwrap();
            }
            out
        };
        let few = [Some(24_000)];
        assert_eq!(sent(1, &few), sent(5, &few));
        assert_ne!(sent(1, &few), sent(10, &few));
        assert_ne!(sent(1, &[None]), sent(5, &[None]));
        assert_eq!(sent(1, &[Some(24_000), None]), sent(1, &[None]));
        assert_eq!(sent(1, &[Some(40_000)]), sent(1, &[None, Some(40_000)]));
        assert_ne!(sent(1, &[Some(40_000)]), sent(5, &[Some(40_000)]));
    }

    #[test]
    fn the_limit_stands_among_other_parameters() {
        assert_eq!(most_bits("96 maxaveragebitrate=20000"), Some((96, 20_000)));
        let many = "111 minptime=10; useinbandfec=1; MaxAverageBitrate = 24000 ;stereo=0";
        assert_eq!(most_bits(many), Some((111, 24_000)));
        for none in [
            "",
            "96",
            "96 useinbandfec=1",
            "96 maxaveragebitrate=",
            "96 maxaveragebitrate=fast",
            "96 maxaveragebitrate",
            "x maxaveragebitrate=1",
            "maxaveragebitrate=1",
        ] {
            assert_eq!(most_bits(none), None, "{none}");
        }
    }

    #[test]
    fn silence_is_not_sent() {
        let mut encoder = Encoder::new(5).unwrap();
        let mut out = Vec::new();
        let sent = (0..100)
            .filter(|_| encoder.encode(&[0; FRAME], &mut out).unwrap())
            .count();
        assert_eq!(sent, 10);
        assert!(encoder.encode(&frames(1)[0], &mut out).unwrap());
    }

    #[test]
    fn a_loss_is_made_up_and_fades() {
        let mut decoder = Decoder::new().unwrap();
        let mut out = [0; LONGEST];
        for packet in packets(30) {
            decoder.decode(&packet, &mut out).unwrap();
        }
        let mut first = [0; FRAME];
        let mut last = [0; FRAME];
        assert_eq!(decoder.conceal(&mut first).unwrap(), FRAME);
        for _ in 0..20 {
            decoder.conceal(&mut last).unwrap();
        }
        assert!(energy(&first) > 0.0 && energy(&last) < energy(&first) / 4.0);
    }

    #[test]
    fn heads_of_all_shapes_agree_with_the_library() {
        let decoder = opus::Decoder::new(CLOCK, Channels::Mono).unwrap();
        for toc in 0..=255_u8 {
            let packet = [toc, 3, 0, 0];
            let library = decoder.get_nb_samples(&packet);
            let ours = Head::of(&packet).map(|head| head.duration as usize);
            assert_eq!(ours, library.ok().filter(|n| *n > 0), "{toc:#010b}");
        }
        assert_eq!(Head::of(&[]), None);
        let mut ours = Decoder::new().unwrap();
        assert!(ours.decode(&[], &mut [0; LONGEST]).is_err());
    }
}
