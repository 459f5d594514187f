//! A whole frame of 20 ms in and out through one call, over a vendor's socket, a telephone line or WebRTC,
//! with recording: see
//! [`benches_kit::session`].

use std::time::{Duration, Instant};

use benches_kit::session::{LIFE, Scene, Session};
use criterion::{Criterion, criterion_group, criterion_main};
use media::config::VadKind;
use media::rtp::sdp::Codec;

fn frame(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame");
    for (vad, name) in [(VadKind::Energy, "energy"), (VadKind::Neural, "neural")] {
        for (scene, what) in [
            (Scene::Quiet, "quiet"),
            (Scene::Agent, "agent"),
            (Scene::Caller, "caller"),
        ] {
            group.bench_function(format!("{name}_{what}"), |b| {
                b.iter_custom(|frames| ticks(frames, || Session::new(scene, vad)));
            });
        }
    }
    for (scene, what) in [
        (Scene::Quiet, "quiet"),
        (Scene::Agent, "agent"),
        (Scene::Caller, "caller"),
    ] {
        group.bench_function(format!("rtp_{what}"), |b| {
            b.iter_custom(|frames| ticks(frames, || Session::over_rtp(scene, VadKind::Energy)));
        });
        for codec in [Codec::G722, Codec::Opus] {
            let name = codec.name().to_lowercase();
            group.bench_function(format!("rtp_{name}_{what}"), |b| {
                let new = || Session::over_rtp_in(codec, scene, VadKind::Energy);
                b.iter_custom(|frames| ticks(frames, new));
            });
        }
        group.bench_function(format!("webrtc_{what}"), |b| {
            b.iter_custom(|frames| ticks(frames, || Session::over_webrtc(scene, VadKind::Energy)));
        });
    }
}

/// The time of so many ticks; a new call takes over, untimed, when one's scene is over.
fn ticks(count: u64, new: impl Fn() -> Session) -> Duration {
    let (mut left, mut total) = (count, Duration::ZERO);
    while left > 0 {
        let mut session = new();
        let now = left.min(u64::from(LIFE));
        let start = Instant::now();
        for _ in 0..now {
            session.tick();
        }
        total += start.elapsed();
        left -= now;
    }
    total
}

criterion_group!(benches, frame);
criterion_main!(benches);
