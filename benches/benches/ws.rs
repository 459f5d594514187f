//! The messages of a WebSocket leg: one of 20 ms read, and one written.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use media::audio::g711::ulaw_encode;
use media::audio::tones::noise;
use media::config::{AudioFormat, Protocol};
use media::leg::ws::{ServerHeader, WsLeg};

const START: &str = r#"{"event":"start","streamSid":"MZ0123456789abcdef","start":{"streamSid":"MZ0123456789abcdef","customParameters":{}}}"#;

fn ws(c: &mut Criterion) {
    let samples = noise(1, -20.0, 320);
    let mut ulaw = [0; 160];
    ulaw_encode(&samples[..160], &mut ulaw);
    let pcm: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let (ulaw, pcm) = (base64(&ulaw), base64(&pcm));
    let native = |payload: &str| format!(r#"{{"type":"audio","audio":"{payload}"}}"#);
    let telco = format!(
        r#"{{"event":"media","sequenceNumber":"4","media":{{"track":"inbound","chunk":"2","payload":"{ulaw}"}},"streamSid":"MZ0123456789abcdef"}}"#
    );
    // The same with a field after the audio that only the full parser can read.
    let odd = telco.replace("\"event\"", "\"ev\\u0065nt\"");
    let cases = [
        ("telco", Protocol::Telco, AudioFormat::Ulaw8000, telco),
        ("telco_unusual", Protocol::Telco, AudioFormat::Ulaw8000, odd),
        (
            "native_ulaw",
            Protocol::Native,
            AudioFormat::Ulaw8000,
            native(&ulaw),
        ),
        (
            "native_pcm",
            Protocol::Native,
            AudioFormat::Pcm16000,
            native(&pcm),
        ),
    ];
    let header = ServerHeader {
        event_id: 1_234,
        ts_ms: 56_789,
    };
    let mut group = c.benchmark_group("ws");
    for (name, protocol, format, message) in cases {
        let mut leg = WsLeg::new(protocol, format);
        if protocol == Protocol::Telco {
            leg.receive(START, &mut |_| {});
        }
        group.bench_function(format!("{name}_read"), |b| {
            b.iter(|| leg.receive(black_box(&message), &mut |event| _ = black_box(event)));
        });
        let mut out = String::with_capacity(4_096);
        group.bench_function(format!("{name}_write"), |b| {
            b.iter(|| {
                out.clear();
                leg.audio(&mut out, &header, black_box(&samples), "turn_12", 1_240);
                black_box(&out);
            });
        });
    }
}

fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

criterion_group!(benches, ws);
criterion_main!(benches);
