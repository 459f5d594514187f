//! One frame of 20 ms between the rates that legs and voices have.

#![allow(clippy::unwrap_used, reason = "a bench that fails says so")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::resample::Resampler;
use media::audio::tones::noise;

const PAIRS: [(u32, u32); 6] = [
    (8_000, 16_000),
    (16_000, 8_000),
    (24_000, 16_000),
    (22_050, 16_000),
    (48_000, 16_000),
    (16_000, 48_000),
];

fn resample(c: &mut Criterion) {
    let mut group = c.benchmark_group("resample");
    for (from, to) in PAIRS {
        let frame = noise(1, -20.0, from as usize / 50);
        let mut resampler = Resampler::new(from, to).unwrap();
        let mut out = Vec::with_capacity(4_096);
        group.bench_function(format!("{from}_to_{to}"), |b| {
            b.iter(|| {
                out.clear();
                resampler.process(black_box(&frame), &mut out);
                black_box(&out);
            });
        });
    }
}

criterion_group!(benches, resample);
criterion_main!(benches);
