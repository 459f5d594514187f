//! A tick of 20 ms of 1 and of 100 telephony calls, in half of which the agent speaks while the other
//! half are quiet: what a media thread does between two sleeps, sockets apart. And an hour of one.

use std::time::{Duration, Instant};

use benches_kit::session::{LIFE, Scene, Session};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use media::config::VadKind;

fn calls(c: &mut Criterion) {
    let mut group = c.benchmark_group("calls");
    for count in [1_usize, 100] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("tick_of_{count}"), |b| {
            b.iter_custom(|ticks| time(ticks, count));
        });
    }
}

fn time(ticks: u64, count: usize) -> Duration {
    let (mut left, mut total) = (ticks, Duration::ZERO);
    while left > 0 {
        let mut sessions: Vec<Session> = (0..count)
            .map(|at| {
                let scene = if at % 2 == 0 {
                    Scene::Agent
                } else {
                    Scene::Quiet
                };
                Session::new(scene, VadKind::Neural)
            })
            .collect();
        let now = left.min(u64::from(LIFE));
        let start = Instant::now();
        for _ in 0..now {
            for session in &mut sessions {
                session.tick();
            }
        }
        total += start.elapsed();
        left -= now;
    }
    total
}

/// Ticks of 20 ms.
const AN_HOUR: u32 = 180_000;

/// An hour of one conversation, taken all at once; the caller's voice is told by energy.
fn hour(c: &mut Criterion) {
    let mut group = c.benchmark_group("calls");
    group.sample_size(10).bench_function("hour_of_one", |b| {
        b.iter_custom(|hours| {
            let play = |_| {
                let mut session = Session::new(Scene::Conversation, VadKind::Energy);
                let start = Instant::now();
                (0..AN_HOUR).for_each(|_| session.tick());
                start.elapsed()
            };
            (0..hours).map(play).sum()
        });
    });
}

criterion_group!(benches, calls, hour);
criterion_main!(benches);
