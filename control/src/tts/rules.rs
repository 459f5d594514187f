//! What can be spoken, and how long it may take. Pure.

use std::time::Duration;

use media::dialog::sentences::Sentences;

/// The rate of all that is synthesised by request, Hz; mono PCM16.
pub const RATE: u32 = 24_000;
/// The longest text of `POST /tts`, characters.
pub const MAX_TEXT: usize = 650;
/// The longest text of `POST /voices/preview`, characters.
pub const MAX_PREVIEW: usize = 300;
/// The longest word that is spoken, characters. The longest words of English and French dictionaries
/// have 45 and 27; what is longer is a code, a token or an address, and nobody could follow it.
pub const MAX_WORD: usize = 60;

/// Why a text is not spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unspeakable {
    /// Nothing in it has a sound.
    Empty,
    TooLong {
        characters: usize,
    },
    /// A word without a space for too long; its beginning.
    WordTooLong {
        beginning: String,
    },
}

/// The number of characters, all of which count, if the text can be spoken.
pub fn check(text: &str) -> Result<usize, Unspeakable> {
    let characters = text.chars().count();
    if characters > MAX_TEXT {
        return Err(Unspeakable::TooLong { characters });
    }
    if !text.chars().any(char::is_alphanumeric) {
        return Err(Unspeakable::Empty);
    }
    match text
        .split_whitespace()
        .find(|word| word.chars().count() > MAX_WORD)
    {
        Some(word) => Err(Unspeakable::WordTooLong {
            beginning: word.chars().take(20).collect(),
        }),
        None => Ok(characters),
    }
}

/// The text as it goes to the voice: sentences, the first one as early as a clause ends.
pub fn sentences(text: &str) -> Vec<String> {
    let mut cutter = Sentences::default();
    cutter.push(text);
    cutter.finish();
    let mut all = Vec::new();
    while let Some(segment) = cutter.take() {
        let sentence = &cutter.text()[segment.start..segment.end];
        if sentence.chars().any(char::is_alphanumeric) {
            all.push(sentence.to_owned());
        }
    }
    all
}

/// About how long the text sounds, rather more than less: a talker says 14 characters a second, but a
/// digit, a sign or a capital may be a whole word.
pub fn estimate(text: &str) -> Duration {
    let ms: u64 = text
        .chars()
        .map(|c| match c {
            c if c.is_lowercase() => 100,
            c if c.is_whitespace() => 50,
            _ => 500,
        })
        .sum();
    Duration::from_millis(ms)
}

/// How long the text may sound before the voice is taken to have gone wrong.
pub fn longest(text: &str) -> Duration {
    2 * estimate(text) + Duration::from_secs(2)
}

/// Bytes of sound at [`RATE`] that last so long.
pub fn bytes_of(sound: Duration) -> usize {
    let samples = sound.as_millis() * u128::from(RATE) / 1000;
    usize::try_from(samples * 2).unwrap_or(usize::MAX)
}

/// The length of [`wav_header`], bytes.
pub const WAV_HEADER: usize = 44;

/// The header of a mono PCM16 WAV at [`RATE`] with this many bytes of samples.
pub fn wav_header(length: usize) -> [u8; WAV_HEADER] {
    // A text's sound is a few megabytes; a RIFF length has 32 bits.
    let length = u32::try_from(length).unwrap_or(u32::MAX - 36);
    let mut header = [0; WAV_HEADER];
    let fields: [&[u8]; 12] = [
        b"RIFF",
        &(36 + length).to_le_bytes(),
        b"WAVEfmt ",
        &16_u32.to_le_bytes(),
        // PCM, one channel.
        &1_u16.to_le_bytes(),
        &1_u16.to_le_bytes(),
        &RATE.to_le_bytes(),
        &(RATE * 2).to_le_bytes(),
        &2_u16.to_le_bytes(),
        &16_u16.to_le_bytes(),
        b"data",
        &length.to_le_bytes(),
    ];
    for (place, byte) in header.iter_mut().zip(fields.into_iter().flatten()) {
        *place = *byte;
    }
    header
}

/// What a voice says when it is only to be heard.
pub fn sample_sentence(language: &str) -> &'static str {
    match language {
        "french" => "Bonjour, je suis là pour vous aider. Que puis-je faire pour vous ?",
        _ => "Hello, I am here to help you. What can I do for you today?",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[test]
    fn a_text_has_one_to_650_characters_and_each_counts() {
        assert_eq!(check("é"), Ok(1));
        assert_eq!(check(" Hello, world. "), Ok(15));
        assert_eq!(check(&"ab ".repeat(217)[..650]), Ok(650));
        assert_eq!(
            check(&"ab ".repeat(217)),
            Err(Unspeakable::TooLong { characters: 651 })
        );
        for silent in ["", " \n", "...", "?!", "—"] {
            assert_eq!(check(silent), Err(Unspeakable::Empty), "{silent:?}");
        }
    }

    #[test]
    fn a_word_nobody_could_follow_is_refused_and_its_beginning_told() {
        assert_eq!(check(&"x".repeat(60)), Ok(60));
        assert_eq!(
            check(&format!("the code {}", "ab3".repeat(21))),
            Err(Unspeakable::WordTooLong {
                beginning: "ab3ab3ab3ab3ab3ab3ab".into()
            })
        );
        assert!(check("See https://example.com/a/b?c=d for more.").is_ok());
    }

    #[test]
    fn a_text_is_spoken_by_sentences_and_none_is_without_sound() {
        assert_eq!(
            sentences("Good day. How are you? ... Fine!"),
            ["Good day.", "How are you?", "Fine!"]
        );
        assert_eq!(sentences("no end"), ["no end"]);
        let long = "word ".repeat(130);
        assert_eq!(sentences(&long).join(" "), long.trim());
    }

    #[test]
    fn digits_take_longer_than_letters() {
        assert_eq!(estimate("abcd"), Duration::from_millis(400));
        assert_eq!(estimate("12 A"), Duration::from_millis(1550));
        assert_eq!(longest("abcd"), Duration::from_millis(2800));
        assert_eq!(bytes_of(Duration::from_millis(500)), 24_000);
    }

    #[test]
    fn the_wav_is_read_back_as_it_was_written() {
        let samples: Vec<i16> = (0..1000).map(|n| n * 7 - 3000).collect();
        let pcm: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes()).collect();
        let wav = [&wav_header(pcm.len())[..], &pcm].concat();
        let mut read = hound::WavReader::new(wav.as_slice()).unwrap();
        let spec = read.spec();
        assert_eq!(
            (spec.channels, spec.sample_rate, spec.bits_per_sample),
            (1, RATE, 16)
        );
        let back: Vec<i16> = read.samples().map(Result::unwrap).collect();
        assert_eq!(back, samples);
    }
}
