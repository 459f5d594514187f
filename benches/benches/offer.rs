//! A first offer of a browser's call: what its check costs before the call begins.

use criterion::{Criterion, criterion_group, criterion_main};
use media::peer::check_offer;

fn offer(c: &mut Criterion) {
    let sdp = include_str!("../../fixtures/sdp/aiortc_offer.sdp").replace('\n', "\r\n");
    assert_eq!(check_offer(&sdp), Ok(()), "the bench is of a good offer");
    c.bench_function("offer/check_aiortc", |b| b.iter(|| check_offer(&sdp)));
}

criterion_group!(benches, offer);
criterion_main!(benches);
