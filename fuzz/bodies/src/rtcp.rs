//! Bytes as reports, and reports of ours over any stream.

use std::time::Duration;

use media::rtp::rtcp::{Reception, Sent, parse, round_trip_ms, write};
use media::time::Time;

/// The sequence number, timestamp of each packet, and the wait before it, ms.
type Packets = Vec<(u16, Option<u32>, u16)>;

/// Runs the body on what `bytes` spell.
pub fn fuzz(bytes: &[u8]) {
    let Some(input) = crate::spelled::<(Vec<u8>, Packets)>(bytes) else {
        return;
    };
    let (bytes, packets) = input;
    let mut now = Time::from_millis(5_000);
    if let Some(told) = parse(&bytes, 7)
        && let Some(block) = told.block
    {
        _ = round_trip_ms(now, &block);
    }
    let mut reception = Reception::new(9, packets.first().map_or(0, |first| first.0), 8_000);
    for (sequence, timestamp, wait) in packets {
        now = now + Duration::from_millis(wait.into());
        reception.packet(now, sequence, timestamp);
        if wait % 7 == 0 {
            reception.report_came(now, u32::from(wait) << 16);
        }
        let (lost, expected) = reception.lost();
        assert!(lost <= expected, "{lost} of {expected}");
        _ = reception.jitter_ms();
    }
    // What we write we can read.
    let block = reception.block(now);
    let sent = Sent {
        packets: 1,
        octets: 160,
        ..Sent::default()
    };
    let mut out = Vec::new();
    write(&mut out, now, 9, Some(sent), Some(block), true);
    let told = parse(&out, 9).expect("our own report");
    assert!(told.sender_time.is_some());
}
