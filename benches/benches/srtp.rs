//! SRTP of a 20 ms packet of G.711: sealed, and opened.

use criterion::{Criterion, criterion_group, criterion_main};
use media::rtp::packet::Header;
use media::rtp::srtp::{Keys, Opener, Sealer, Suite};

fn srtp(c: &mut Criterion) {
    let mut group = c.benchmark_group("srtp");
    for suite in Suite::ALL {
        let material: Vec<u8> = (0..suite.material() as u8).collect();
        let Some(keys) = Keys::new(suite, &material) else {
            continue;
        };
        let (mut sealer, mut opener) = (Sealer::new(&keys), Opener::new(&keys));
        let (mut packet, mut sequence) = (Vec::with_capacity(256), 0_u16);
        group.bench_function(format!("seal_and_open_{}", suite.name()), |b| {
            b.iter(|| {
                packet.clear();
                let header = Header {
                    payload_type: 0,
                    marker: false,
                    sequence,
                    timestamp: 0,
                    ssrc: 9,
                };
                header.write(&mut packet);
                packet.extend_from_slice(&[0x55; 160]);
                sequence = sequence.wrapping_add(1);
                sealer.seal(&mut packet);
                opener.open(&mut packet)
            });
        });
    }
}

criterion_group!(benches, srtp);
criterion_main!(benches);
