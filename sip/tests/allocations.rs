//! No datagram makes the parser allocate more than 64 KiB at a time, nor hold more than a small multiple
//! of what came in.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "a counting allocator can only be written with unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sip::message::parse::{Framing, parse};

struct Counting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static TOTAL: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counters any more.
        _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        _ = TOTAL.try_with(|total| total.set(total.get() + layout.size()));
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest allocation and the sum of all while `bytes` are read.
fn cost(bytes: &[u8]) -> (usize, usize) {
    LARGEST.set(0);
    TOTAL.set(0);
    let parsed = parse(bytes, Framing::Datagram);
    let cost = (LARGEST.get(), TOTAL.get());
    drop(parsed);
    cost
}

fn head(fields: &str) -> Vec<u8> {
    format!(
        "INVITE sip:a@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKa\r\n\
         From: <sip:b@192.0.2.9>;tag=1\r\nTo: <sip:a@192.0.2.1>\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n{fields}\r\n"
    )
    .into_bytes()
}

#[test]
fn no_allocation_is_larger_than_a_datagram() {
    let fill = |mut bytes: Vec<u8>, with: u8| {
        bytes.resize(65_507, with);
        bytes
    };
    let cases = [
        ("a body", fill(head(""), b'x')),
        ("zeros", vec![0; 65_507]),
        ("one line", vec![b'x'; 65_507]),
        ("short fields", fill(head(&"a:\r\n".repeat(10_000)), b'\n')),
        ("no UTF-8", [head(""), vec![0xff; 60_000]].concat()),
        ("a field of no UTF-8", {
            let mut bytes = head(&format!("Subject: {}\r\n", "x".repeat(8_000)));
            for byte in &mut bytes[200..8_000] {
                *byte = 0xff;
            }
            bytes
        }),
        (
            "commas",
            head(&format!("Contact: {}\r\n", ",".repeat(8_000))),
        ),
        ("contacts", head(&"m: <sip:a@b>\r\n".repeat(240))),
        (
            "parameters",
            head(&format!("m: <sip:a@b>{}\r\n", ";a".repeat(3_900))),
        ),
        (
            "parameters of a URI",
            head(&format!("m: <sip:a@b{}>\r\n", ";a".repeat(3_900))),
        ),
        (
            "few parameters, often",
            head(&format!("m: <sip:a@b>{}\r\n", ";a".repeat(100)).repeat(90)),
        ),
        (
            "folds",
            head(&format!("Subject: x{}\r\n", "\r\n x".repeat(2_000))),
        ),
        (
            "quotes",
            head(&format!("m: \"{}\r\n", "\\\"".repeat(4_000))),
        ),
    ];
    for (name, bytes) in cases {
        let (largest, total) = cost(&bytes);
        assert!(largest <= 65_536, "{name}: {largest} bytes at once");
        // Parameters of short names cost most: some 50 bytes for two, freed at once.
        assert!(total <= 2_000_000, "{name}: {total} bytes in all");
    }
}
