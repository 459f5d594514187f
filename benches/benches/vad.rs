//! One verdict on 20 ms: over a noise floor, where the energy gate is shut; over loud sound, where it
//! is open; and 60 % of the one and 40 % of the other, as a call has them.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::tones::noise;
use media::config::VadKind;
use media::vad::Vad;

const SECOND: usize = 16_000;

fn vad(c: &mut Criterion) {
    let mut group = c.benchmark_group("vad");
    for (kind, name) in [(VadKind::Energy, "energy"), (VadKind::Neural, "neural")] {
        for (what, floor, loud) in [("floor", 5, 0), ("loud", 0, 1), ("call", 3, 2)] {
            // Bursts of 100 ms with 25 ms between them keep the gate open, as words do.
            let mut sound = noise(1, -50.0, floor * SECOND);
            for burst in 0..loud * 8 {
                sound.extend(noise(burst, -20.0, SECOND / 10));
                sound.extend(noise(burst, -50.0, SECOND / 40));
            }
            let frames = sound.as_chunks::<320>().0;
            let mut vad = Vad::new(kind);
            for frame in frames.iter().cycle().take(500) {
                vad.frame(frame);
            }
            let mut next = frames.iter().cycle();
            group.bench_function(format!("{name}_{what}"), |b| {
                b.iter(|| next.next().map(|frame| vad.frame(black_box(frame))));
            });
        }
    }
}

criterion_group!(benches, vad);
criterion_main!(benches);
