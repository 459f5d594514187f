//! G.711 of one frame: 20 ms at 8 kHz, 160 samples.

#![allow(clippy::unwrap_used, reason = "a bench that fails says so")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::g711::{alaw_decode, alaw_encode, ulaw_decode, ulaw_encode};
use media::audio::tones::noise;

fn g711(c: &mut Criterion) {
    let samples: [i16; 160] = noise(1, -20.0, 160).try_into().unwrap();
    let mut bytes = [0; 160];
    ulaw_encode(&samples, &mut bytes);
    let (mut decoded, mut encoded) = ([0; 160], [0; 160]);
    let mut group = c.benchmark_group("g711");
    group.bench_function("ulaw_decode", |b| {
        b.iter(|| ulaw_decode(black_box(&bytes), black_box(&mut decoded)));
    });
    group.bench_function("ulaw_encode", |b| {
        b.iter(|| ulaw_encode(black_box(&samples), black_box(&mut encoded)));
    });
    group.bench_function("alaw_decode", |b| {
        b.iter(|| alaw_decode(black_box(&bytes), black_box(&mut decoded)));
    });
    group.bench_function("alaw_encode", |b| {
        b.iter(|| alaw_encode(black_box(&samples), black_box(&mut encoded)));
    });
}

criterion_group!(benches, g711);
criterion_main!(benches);
