//! G.711 μ-law and A-law (ITU-T G.711; the same values as `ulaw_compress` and its siblings in the
//! ITU-T Software Tool Library G.191). Each law is
//! written once, as arithmetic without branches, which the compiler makes vectors of.
//!
//! All functions convert as many samples as both slices hold; callers give equal lengths.

use super::simd::compiled_twice;

compiled_twice! {
    /// μ-law bytes to 16-bit samples (full scale ±32,124).
    pub fn ulaw_decode(src: &[u8], dst: &mut [i16]) {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = ulaw_expand(*from);
        }
    }
}

compiled_twice! {
    /// 16-bit samples to μ-law bytes.
    pub fn ulaw_encode(src: &[i16], dst: &mut [u8]) {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = ulaw_compress(*from);
        }
    }
}

compiled_twice! {
    /// A-law bytes to 16-bit samples (full scale ±32,256).
    pub fn alaw_decode(src: &[u8], dst: &mut [i16]) {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = alaw_expand(*from);
        }
    }
}

compiled_twice! {
    /// 16-bit samples to A-law bytes.
    pub fn alaw_encode(src: &[i16], dst: &mut [u8]) {
        for (to, from) in dst.iter_mut().zip(src) {
            *to = alaw_compress(*from);
        }
    }
}

/// μ-law silence: the byte that decodes to 0.
pub const ULAW_SILENCE: u8 = 0xFF;

/// The smallest A-law value above zero (A-law has no zero; this one decodes to 8).
pub const ALAW_SILENCE: u8 = 0xD5;

/// Added before the logarithm of μ-law: 33 in the 14-bit scale of the recommendation.
const BIAS: i32 = 33 << 2;

/// The largest magnitude that μ-law tells apart, so that magnitude and bias stay below 2^15.
const CLIP: i16 = i16::MAX - BIAS as i16;

#[inline(always)]
fn ulaw_expand(code: u8) -> i16 {
    let code = i32::from(!code);
    let segment = (code >> 4) & 7;
    let step = code & 15;
    let magnitude = (((step << 3) + BIAS) << segment) - BIAS;
    signed(magnitude, code & 0x80)
}

#[inline(always)]
fn ulaw_compress(sample: i16) -> u8 {
    let sign = sample >> 15;
    let biased = (sample ^ sign).min(CLIP) + BIAS as i16;
    let Segment { number, divisor } = Segment::of(biased);
    let step = high(biased, divisor) & 15;
    !((sign & 0x80) | (number << 4) | step) as u8
}

#[inline(always)]
fn alaw_expand(code: u8) -> i16 {
    // Even bits are inverted on the line (G.711 section 3.1, note).
    let code = i32::from(code ^ 0x55);
    let segment = (code >> 4) & 7;
    let step = code & 15;
    // Segment 0 is linear and as fine as segment 1, which alone has the leading one.
    let leading = i32::from(segment > 0) << 8;
    let magnitude = ((step << 4) + 8 + leading) << (segment - i32::from(segment > 0));
    signed(magnitude, !code & 0x80)
}

#[inline(always)]
fn alaw_compress(sample: i16) -> u8 {
    let sign = sample >> 15;
    let magnitude = sample ^ sign;
    let Segment { number, divisor } = Segment::of(magnitude);
    // Segment 0 has steps as wide as segment 1.
    let step = high(magnitude, divisor.min(1 << 12)) & 15;
    ((!sign & 0x80) | (number << 4) | step) as u8 ^ 0x55
}

/// Which of the eight segments a magnitude lies in: above the first, which ends at 255, each is twice
/// as long as the last.
struct Segment {
    /// 0 to 7.
    number: i16,
    /// 2^(13 - number): times this, the upper 16 of 32 bits are the magnitude shifted by its
    /// segment, and vectors have no shift by another amount in each lane of 16 bits.
    divisor: i16,
}

impl Segment {
    #[inline(always)]
    fn of(magnitude: i16) -> Self {
        // The number in the low bits, the divisor above: one subtraction a segment makes both.
        let mut both = 1_i16 << 13;
        for number in 1..8 {
            let reached = -i16::from(magnitude > ((1_i32 << (7 + number)) - 1) as i16);
            both -= reached & ((1 << (13 - number)) - 1);
        }
        Self {
            number: both & 7,
            divisor: both & !0x3F,
        }
    }
}

/// The upper half of a product.
#[inline(always)]
fn high(magnitude: i16, divisor: i16) -> i16 {
    ((i32::from(magnitude) * i32::from(divisor)) >> 16) as i16
}

#[inline(always)]
fn signed(magnitude: i32, negative: i32) -> i16 {
    let mask = -i32::from(negative != 0);
    ((magnitude ^ mask) - mask) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of the recommendation's tables, as the ITU-T Software Tool Library writes them.
    mod reference {
        pub(super) fn ulaw_compress(sample: i16) -> u8 {
            let mut magnitude = if sample < 0 {
                (!sample >> 2) + 33
            } else {
                (sample >> 2) + 33
            };
            magnitude = magnitude.min(0x1FFF);
            let mut segment = 1;
            let mut rest = magnitude >> 6;
            while rest != 0 {
                segment += 1;
                rest >>= 1;
            }
            let high = 8 - segment;
            let low = 15 - ((magnitude >> segment) & 15);
            let code = (high << 4) | low;
            (if sample >= 0 { code | 0x80 } else { code }) as u8
        }

        pub(super) fn ulaw_expand(code: u8) -> i16 {
            let inverted = i32::from(!code);
            let exponent = (inverted >> 4) & 7;
            let mantissa = inverted & 15;
            let step = 4 << (exponent + 1);
            let value = (0x80 << exponent) + step * mantissa + step / 2 - 4 * 33;
            (if code < 0x80 { -value } else { value }) as i16
        }

        pub(super) fn alaw_compress(sample: i16) -> u8 {
            let mut index = if sample < 0 {
                !sample >> 4
            } else {
                sample >> 4
            };
            if index > 15 {
                let mut exponent = 1;
                while index > 16 + 15 {
                    index >>= 1;
                    exponent += 1;
                }
                index -= 16;
                index += exponent << 4;
            }
            if sample >= 0 {
                index |= 0x80;
            }
            index as u8 ^ 0x55
        }

        pub(super) fn alaw_expand(code: u8) -> i16 {
            let index = i32::from((code ^ 0x55) & 0x7F);
            let exponent = index >> 4;
            let mut mantissa = index & 15;
            if exponent > 0 {
                mantissa += 16;
            }
            mantissa = (mantissa << 4) + 8;
            if exponent > 1 {
                mantissa <<= exponent - 1;
            }
            (if code > 127 { mantissa } else { -mantissa }) as i16
        }
    }

    fn all_codes() -> Vec<u8> {
        (0..=u8::MAX).collect()
    }

    fn all_samples() -> Vec<i16> {
        (i16::MIN..=i16::MAX).collect()
    }

    #[test]
    fn every_code_decodes_as_the_recommendation_says() {
        let (codes, mut out) = (all_codes(), [0; 256]);
        ulaw_decode(&codes, &mut out);
        assert_eq!(
            out.to_vec(),
            codes
                .iter()
                .map(|c| reference::ulaw_expand(*c))
                .collect::<Vec<_>>()
        );
        alaw_decode(&codes, &mut out);
        assert_eq!(
            out.to_vec(),
            codes
                .iter()
                .map(|c| reference::alaw_expand(*c))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn every_sample_encodes_as_the_recommendation_says() {
        let (samples, mut out) = (all_samples(), vec![0; 65_536]);
        ulaw_encode(&samples, &mut out);
        assert_eq!(
            out,
            samples
                .iter()
                .map(|s| reference::ulaw_compress(*s))
                .collect::<Vec<_>>()
        );
        alaw_encode(&samples, &mut out);
        assert_eq!(
            out,
            samples
                .iter()
                .map(|s| reference::alaw_compress(*s))
                .collect::<Vec<_>>()
        );
    }

    /// The portable build of each law, sample by sample: what a processor without AVX2 runs.
    #[test]
    fn the_build_without_vector_instructions_is_the_same() {
        for code in all_codes() {
            assert_eq!(ulaw_expand(code), reference::ulaw_expand(code));
            assert_eq!(alaw_expand(code), reference::alaw_expand(code));
        }
        for sample in all_samples() {
            assert_eq!(ulaw_compress(sample), reference::ulaw_compress(sample));
            assert_eq!(alaw_compress(sample), reference::alaw_compress(sample));
        }
    }

    /// Published anchors: full scale and quiet codes of both laws.
    #[test]
    fn known_values() {
        let mut out = [0; 4];
        ulaw_decode(&[0x00, 0x80, ULAW_SILENCE, 0x7F], &mut out);
        assert_eq!(out, [-32_124, 32_124, 0, 0]);
        alaw_decode(&[0x2A, 0xAA, ALAW_SILENCE, 0x55], &mut out);
        assert_eq!(out, [-32_256, 32_256, 8, -8]);
    }

    /// Decoded values are fixed points, but for μ-law's second zero.
    #[test]
    fn a_code_survives_decoding_and_encoding() {
        let (codes, mut samples, mut again) = (all_codes(), [0; 256], [0; 256]);
        ulaw_decode(&codes, &mut samples);
        ulaw_encode(&samples, &mut again);
        for (code, back) in codes.iter().zip(again) {
            assert_eq!(back, if *code == 0x7F { 0xFF } else { *code });
        }
        alaw_decode(&codes, &mut samples);
        alaw_encode(&samples, &mut again);
        assert_eq!(again.to_vec(), codes);
    }

    #[test]
    fn lengths_that_differ_convert_what_both_hold() {
        let mut out = [7; 3];
        ulaw_decode(&[0x80, 0x80], &mut out);
        assert_eq!(out, [32_124, 32_124, 7]);
    }
}
