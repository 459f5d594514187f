//! Opus at the engine's rate: a frame of 20 ms of a voice-like sound, each way.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::opus::{Decoder, Encoder, LONGEST};
use media::audio::tones::sine;
use media::frame::FRAME;

fn opus(c: &mut Criterion) {
    let mut group = c.benchmark_group("opus");
    let mut sound = sine(16_000, 150.0, -20.0, FRAME * 50);
    for harmonic in 2..12 {
        let more = sine(16_000, 150.0 * f64::from(harmonic), -24.0, FRAME * 50);
        media::audio::tones::mix(&mut sound, &more);
    }
    let frames = sound.as_chunks::<FRAME>().0;
    for complexity in [1, 5, 10] {
        let Ok(mut encoder) = Encoder::new(complexity) else {
            continue;
        };
        let (mut out, mut at) = (Vec::new(), 0);
        group.bench_function(format!("encode_{complexity}"), |b| {
            b.iter(|| {
                out.clear();
                at = (at + 1) % frames.len();
                black_box(encoder.encode(&frames[at], &mut out))
            });
        });
    }
    let (Ok(mut encoder), Ok(mut decoder)) = (Encoder::new(5), Decoder::new()) else {
        return;
    };
    let packets: Vec<Vec<u8>> = frames
        .iter()
        .map(|frame| {
            let mut packet = Vec::new();
            // An empty packet would be a frame that is not sent; a tone has none.
            let _ = encoder.encode(frame, &mut packet);
            packet
        })
        .collect();
    let (mut pcm, mut at) = ([0; LONGEST], 0);
    group.bench_function("decode", |b| {
        b.iter(|| {
            at = (at + 1) % packets.len();
            black_box(decoder.decode(&packets[at], &mut pcm))
        });
    });
    group.bench_function("conceal", |b| {
        b.iter(|| black_box(decoder.conceal(&mut pcm[..FRAME])));
    });
    group.finish();
}

criterion_group!(benches, opus);
criterion_main!(benches);
