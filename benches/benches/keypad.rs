//! Keys that are searched for in a caller's sound, a frame of 20 ms at a time: in a loud one, and in one that is too
//! faint for a key.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::tones::noise;
use media::frame::FRAME;
use media::rtp::dtmf::Detector;

fn keypad(c: &mut Criterion) {
    for (name, level) in [("loud", -20.0), ("faint", -60.0)] {
        let frame = noise(1, level, FRAME);
        let mut detector = Detector::default();
        c.bench_function(&format!("keypad/{name}"), |b| {
            b.iter(|| detector.hear(&frame, |key| _ = black_box(key)));
        });
    }
}

criterion_group!(benches, keypad);
criterion_main!(benches);
