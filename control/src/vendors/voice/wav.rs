//! Reads PCM16 out of a WAV that is still being written: espeak-ng and flite leave the lengths in the
//! header open or wrong when they write to a pipe, so they are not believed.

/// What is known after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Samples a second, Hz.
    pub(super) rate: u32,
    /// Where the samples begin, bytes.
    pub(super) data_at: usize,
}

/// The header, once enough bytes are here; `Err` when this is no mono PCM16 WAV.
pub(super) fn header(bytes: &[u8]) -> Result<Option<Header>, &'static str> {
    if bytes.len() < 12 {
        return Ok(None);
    }
    if &bytes[..4] != b"RIFF" || &bytes[8..12] != b"WAVE" {
        return Err("the program wrote no WAV");
    }
    let mut at = 12;
    let mut rate = None;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let length = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]) as usize;
        match &chunk[..4] {
            b"fmt " => {
                let Some(format) = bytes.get(at + 8..at + 24) else {
                    return Ok(None);
                };
                let word = |i: usize| u16::from_le_bytes([format[i], format[i + 1]]);
                if (word(0), word(2), word(14)) != (1, 1, 16) {
                    return Err("the program wrote something other than mono PCM16");
                }
                rate = Some(u32::from_le_bytes([
                    format[4], format[5], format[6], format[7],
                ]));
            }
            b"data" => {
                let rate = rate.ok_or("the program wrote a WAV without format")?;
                return Ok(Some(Header {
                    rate,
                    data_at: at + 8,
                }));
            }
            _ => {}
        }
        // A header of these programs has 44 bytes; a kilobyte without samples is not one.
        at = at.saturating_add(8).saturating_add(length);
        if at > 1024 {
            return Err("the program wrote a WAV without samples");
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(rate: u32) -> Vec<u8> {
        let mut bytes = b"RIFF\x24\xf0\xff\x7fWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * 2).to_le_bytes());
        bytes.extend(b"\x02\0\x10\0data\0\xf0\xff\x7f");
        bytes
    }

    #[test]
    fn a_header_is_found_as_soon_as_it_is_whole() {
        let bytes = wav(22_050);
        for cut in 0..bytes.len() {
            assert_eq!(header(&bytes[..cut]), Ok(None), "{cut} bytes");
        }
        assert_eq!(
            header(&bytes),
            Ok(Some(Header {
                rate: 22_050,
                data_at: 44
            }))
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(header(b"Failed to read voice").is_err());
        let mut stereo = wav(16_000);
        stereo[22] = 2;
        assert!(header(&stereo).is_err());
        let mut endless = wav(16_000);
        endless[36..40].copy_from_slice(b"junk");
        assert!(header(&endless).is_err());
    }
}
