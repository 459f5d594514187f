//! What is heard in the place of packets that are lost.

use super::*;
use crate::audio::level::rms_dbfs;
use crate::audio::tones::mix;

/// What is heard of them when these are lost.
fn without(plan: RtpPlan, sound: &[i16], lost: impl Fn(usize) -> bool) -> Bed {
    let mut bed = Bed::new(plan);
    for (count, sent) in packets(plan, sound).iter().enumerate() {
        bed.until(sent.0);
        if !lost(count) {
            bed.receive(sent);
        }
    }
    // What is missing at the end is given up, too.
    bed.until(bed.now + ms(400));
    bed
}

/// What a codec of speech is made for: harmonics of 140 Hz over a soft noise.
fn voice(samples: usize) -> Vec<i16> {
    let mut voice = noise(7, -30.0, samples);
    for harmonic in 1..12 {
        let (hz, level) = (140.0 * f64::from(harmonic), -16.0 - f64::from(harmonic));
        mix(&mut voice, &sine(RATE, hz, level, samples));
    }
    voice
}

#[test]
fn lost_packets_are_filled_with_what_sounded_before() {
    for codec in RtpLeg::CODECS {
        let plan = RtpPlan {
            codec: *codec,
            ..plan()
        };
        let is_opus = *codec == Codec::Opus;
        let sound = if is_opus {
            voice(100 * FRAME)
        } else {
            sine(RATE, 500.0, -15.0, 100 * FRAME)
        };
        // One in ten, and five in a row.
        let heard = without(plan, &sound, |at| at % 10 == 7 || (60..65).contains(&at));
        assert_eq!(heard.audio.len(), 100 * FRAME, "{codec:?}");
        let level = |at: usize| {
            let frame = &heard.audio[at * FRAME..(at + 1) * FRAME];
            match is_opus {
                true => f64::from(rms_dbfs(frame)),
                false => db(goertzel(frame, RATE, 500.0)),
            }
        };
        for single in [17, 27, 37, 47, 77, 87] {
            let (before, hole) = (level(single - 1), level(single));
            assert!(
                (hole - before).abs() < 6.0,
                "{codec:?} at {single}: {hole} after {before}"
            );
        }
        let totals = heard.leg.totals();
        assert_eq!(totals.lost, 15, "{codec:?}");
        assert_eq!(totals.concealed_ms + totals.recovered_ms, 300, "{codec:?}");
        // After 60 ms nothing is made up any more; Opus has its own way.
        assert!(is_opus || level(64) < -60.0, "{codec:?} {}", level(64));
    }
}

#[test]
fn copies_in_opus_packets_are_used() {
    let plan = RtpPlan {
        codec: Codec::Opus,
        ..plan()
    };
    let heard = without(plan, &voice(200 * FRAME), |at| at % 8 == 7);
    assert!(
        heard.leg.totals().recovered_ms >= 40,
        "{:?}",
        heard.leg.totals()
    );
}
