//! What bytes of sound are, told by how they begin: a file or a compressed stream has a mark, bare samples have none.
//! Pure.

/// A kind of sound that is not bare samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Wav,
    Mp3,
    Aac,
    Ogg,
    WebM,
    Mp4,
    Flac,
    Aiff,
    Au,
    Caf,
    Amr,
}

impl Kind {
    /// The name that people call it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wav => "WAV",
            Self::Mp3 => "MP3",
            Self::Aac => "AAC",
            Self::Ogg => "Ogg",
            Self::WebM => "WebM",
            Self::Mp4 => "MP4",
            Self::Flac => "FLAC",
            Self::Aiff => "AIFF",
            Self::Au => "AU",
            Self::Caf => "CAF",
            Self::Amr => "AMR",
        }
    }
}

/// What a beginning shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Is(Kind),
    /// Nothing that is known: bare samples, as far as one can tell.
    Bare,
    /// More bytes are needed to tell.
    Short,
}

/// Marks, and where they stand.
const MARKS: [(usize, &[u8], Kind); 15] = [
    (0, b"RIFF", Kind::Wav),
    (0, b"RF64", Kind::Wav),
    (0, b"OggS", Kind::Ogg),
    (0, b"\x1aE\xdf\xa3", Kind::WebM),
    (0, b"fLaC", Kind::Flac),
    (0, b"ID3\x02", Kind::Mp3),
    (0, b"ID3\x03", Kind::Mp3),
    (0, b"ID3\x04", Kind::Mp3),
    (0, b"FORM", Kind::Aiff),
    (0, b".snd", Kind::Au),
    (0, b"caff", Kind::Caf),
    (0, b"#!AMR", Kind::Amr),
    (4, b"ftyp", Kind::Mp4),
    (4, b"moof", Kind::Mp4),
    (4, b"styp", Kind::Mp4),
];

/// What a body that begins with these bytes is. `over`: it has no others.
pub fn look(bytes: &[u8], over: bool) -> Look {
    for (at, mark, kind) in MARKS {
        if bytes.get(at..).is_some_and(|rest| rest.starts_with(mark)) {
            return Look::Is(kind);
        }
    }
    if !over && bytes.len() < 8 && may_become_marked(bytes) {
        return Look::Short;
    }
    frames(bytes, over)
}

/// Whether more bytes may complete a mark.
fn may_become_marked(bytes: &[u8]) -> bool {
    MARKS.iter().any(|(at, mark, _)| match bytes.get(*at..) {
        Some(rest) => mark.starts_with(rest),
        // A length of four bytes stands before it, which says nothing; that of a file's first part is short.
        None => bytes.iter().take(2).all(|byte| *byte == 0),
    })
}

/// Compressed sound without a file around it: frames that each tell their length, so that the next one proves the first.
fn frames(bytes: &[u8], over: bool) -> Look {
    let Some(head) = bytes.first_chunk::<4>() else {
        let sync = bytes.first() == Some(&0xff) && bytes.get(1).is_none_or(|byte| *byte >= 0xe0);
        return if sync && !over {
            Look::Short
        } else {
            Look::Bare
        };
    };
    let (kind, length) = if let Some(length) = mpeg_frame(*head) {
        (Kind::Mp3, length)
    } else if head[0] == 0xff && head[1] & 0xf6 == 0xf0 {
        let Some(six) = bytes.first_chunk::<6>() else {
            return if over { Look::Bare } else { Look::Short };
        };
        match adts_frame(*six) {
            Some(length) => (Kind::Aac, length),
            None => return Look::Bare,
        }
    } else {
        return Look::Bare;
    };
    match bytes.get(length..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(next) if is_like(*head, *next) => Look::Is(kind),
        // Behind a frame's head stands something that no voice begins with.
        Some(_) if is_noise(bytes.get(4..).unwrap_or_default()) => Look::Is(kind),
        Some(_) => Look::Bare,
        None if over => Look::Is(kind),
        None => Look::Short,
    }
}

/// The kind of compressed sound of which these bytes are one frame, neither more nor less.
pub fn one_frame(bytes: &[u8]) -> Option<Kind> {
    let head = *bytes.first_chunk::<4>()?;
    if mpeg_frame(head) == Some(bytes.len()) {
        return Some(Kind::Mp3);
    }
    let is_adts = head[0] == 0xff && head[1] & 0xf6 == 0xf0;
    let length = bytes.first_chunk::<6>().and_then(|six| adts_frame(*six));
    (is_adts && length == Some(bytes.len())).then_some(Kind::Aac)
}

/// Whether two frames are of one stream: their version, layer and rate are.
fn is_like(one: [u8; 4], other: [u8; 4]) -> bool {
    one[0] == other[0] && one[1] & 0xfe == other[1] & 0xfe && one[2] & 0x0c == other[2] & 0x0c
}

/// The length of an MPEG audio frame of layers II and III (ISO 11172-3 section 2.4.2.3, and ISO 13818-3), bytes. No voice
/// sends layer I, whose head is the two samples -1 in silence.
fn mpeg_frame(head: [u8; 4]) -> Option<usize> {
    const V1_III: [u16; 14] = [
        32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    ];
    const V1_II: [u16; 14] = [
        32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
    ];
    const V2: [u16; 14] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let [sync, second, third, _] = head;
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    if sync != 0xff || second & 0xe0 != 0xe0 || version == 1 || !(1..=2).contains(&layer) {
        return None;
    }
    let (first, third_layer) = (version == 3, layer == 1);
    let rates = match (first, third_layer) {
        (true, true) => V1_III,
        (true, false) => V1_II,
        (false, _) => V2,
    };
    let kilobits = *rates.get(usize::from(third >> 4).checked_sub(1)?)?;
    let hz = *[44_100, 48_000, 32_000].get(usize::from(third >> 2 & 3))?;
    let hz = match version {
        3 => hz,
        2 => hz / 2,
        _ => hz / 4,
    };
    let samples = if first || !third_layer { 144 } else { 72 };
    Some(samples * usize::from(kilobits) * 1000 / hz + usize::from(third >> 1 & 1))
}

/// The length of an AAC frame in its transport stream (ISO 13818-7 section 6.2), bytes.
fn adts_frame(head: [u8; 6]) -> Option<usize> {
    let rate = head[2] >> 2 & 15;
    let length =
        usize::from(head[3] & 3) << 11 | usize::from(head[4]) << 3 | usize::from(head[5] >> 5);
    (rate < 13 && length > 7).then_some(length)
}

/// Samples by which noise is told.
const LEAST: usize = 128;

/// Whether bytes, taken for 16-bit samples, are noise at full scale: compressed sound is, and no voice begins so.
pub fn is_noise(bytes: &[u8]) -> bool {
    is_noise_of(bytes, i16::from_le_bytes)
}

/// The same of samples whose first byte is the high one.
pub fn is_noise_swapped(bytes: &[u8]) -> bool {
    is_noise_of(bytes, i16::from_be_bytes)
}

fn is_noise_of(bytes: &[u8], sample: impl Fn([u8; 2]) -> i16) -> bool {
    /// Even noise has a power of a third of full scale's, and its steps have twice that.
    const LOUD: i64 = 13_000 * 13_000;
    let (pairs, _) = bytes.as_chunks::<2>();
    if pairs.len() < LEAST {
        return false;
    }
    let mut before = 0_i64;
    let (mut power, mut steps) = (0_i64, 0_i64);
    for pair in pairs {
        let now = i64::from(sample(*pair));
        power += now * now;
        steps += (now - before) * (now - before);
        before = now;
    }
    power / pairs.len() as i64 > LOUD && 2 * steps > 3 * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tones::{noise, sine};

    fn bytes(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|s| s.to_le_bytes()).collect()
    }

    /// Bytes as compression leaves them.
    fn random(length: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..length).map(next).collect()
    }

    /// Frames of this head and length.
    fn stream(head: &[u8], length: usize) -> Vec<u8> {
        let frame = [head, &random(length - head.len())].concat();
        frame.repeat(4)
    }

    #[test]
    fn frames_are_known_without_a_file_around_them() {
        // MPEG 2 layer III, 64 kbit/s at 24 kHz; MPEG 1 layer III, 128 kbit/s at 44.1 kHz; MPEG 2.5, 8 kHz; layer II.
        for (head, length) in [
            ([0xff, 0xf3, 0x84, 0xc4], 192),
            ([0xff, 0xfb, 0x90, 0x64], 417),
            ([0xff, 0xe3, 0x48, 0xc4], 288),
            ([0xff, 0xfd, 0x84, 0x04], 384),
        ] {
            assert_eq!(mpeg_frame(head), Some(length), "{head:x?}");
            let body = stream(&head, length);
            assert_eq!(look(&body, false), Look::Is(Kind::Mp3), "{head:x?}");
            assert_eq!(look(&body[..length], true), Look::Is(Kind::Mp3));
            assert_eq!(look(&body[..length], false), Look::Short);
            assert_eq!(one_frame(&body[..length]), Some(Kind::Mp3));
            assert_eq!(one_frame(&body[..length - 1]), None);
            // A last frame that was cut, and frames that somebody made up.
            assert_eq!(look(&body[..20], true), Look::Is(Kind::Mp3));
            let odd = [&head[..], &random(2000)].concat();
            assert_eq!(look(&odd, false), Look::Is(Kind::Mp3));
        }
        // AAC of 371 bytes a frame at 24 kHz.
        for protection in [0xf1, 0xf9, 0xf0] {
            let head = [0xff, protection, 0x58, 0x80, 0x2e, 0x7f, 0xfc];
            let body = stream(&head, 371);
            assert_eq!(look(&body, false), Look::Is(Kind::Aac));
            assert_eq!(look(&body[..6], false), Look::Short);
        }
    }

    #[test]
    fn files_are_known_by_their_marks_and_their_beginnings_wait() {
        for (file, kind) in [
            (&b"RIFF\0\0\0\0WAVE"[..], Kind::Wav),
            (b"RF64\xff\xff\xff\xffWAVE", Kind::Wav),
            (b"OggS\0\x02", Kind::Ogg),
            (b"\x1aE\xdf\xa3\x9f", Kind::WebM),
            (b"fLaC\0\0", Kind::Flac),
            (b"ID3\x04\0\0", Kind::Mp3),
            (b"\0\0\0\x20ftypisom", Kind::Mp4),
            (b".snd\0\0\0\x18", Kind::Au),
            (b"FORM\0\0\0\0AIFF", Kind::Aiff),
            (b"#!AMR\n", Kind::Amr),
        ] {
            assert_eq!(look(file, false), Look::Is(kind));
            assert_eq!(look(&file[..2], false), Look::Short, "{kind:?}");
            assert_eq!(look(&file[..2], true), Look::Bare, "{kind:?}");
        }
        assert_eq!(look(&[], false), Look::Short);
    }

    #[test]
    fn samples_are_bare() {
        let mut sounds = vec![
            vec![0; 4000],
            sine(16_000, 440.0, -1.0, 4000),
            sine(24_000, 7000.0, -12.0, 4000),
            noise(1, -12.0, 4000),
            noise(2, -40.0, 4000),
            vec![-1; 4000],
            vec![-257; 4000],
        ];
        // A first sample that looks like the head of a frame.
        for first in [-1025_i16, -3073, -7425, -3841, -1793] {
            let mut sound = sine(16_000, 300.0, -12.0, 4000);
            (sound[0], sound[1]) = (first, 0x0490);
            sounds.push(sound);
        }
        for sound in &sounds {
            let bytes = bytes(sound);
            assert_eq!(look(&bytes, false), Look::Bare, "{:?}", &sound[..4]);
            assert!(!is_noise(&bytes));
        }
        assert!(is_noise(&random(2000)) && is_noise_swapped(&random(2000)));
        let swapped: Vec<u8> = sine(16_000, 440.0, -3.0, 4000)
            .iter()
            .flat_map(|s| s.to_be_bytes())
            .collect();
        assert!(!is_noise_swapped(&swapped));
    }
}
