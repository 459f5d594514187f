//! One tick of 20 ms of 1 and of 100 telephony calls, in half of which the agent speaks while the
//! other half are quiet: what a media thread does between two sleeps, sockets apart.

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

criterion_group!(benches, calls);
criterion_main!(benches);
