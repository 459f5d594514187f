//! No datagram makes the parser, or the whole stack behind it, allocate more than 64 KiB at a time, nor hold
//! more than a small multiple of what came in.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "a counting allocator can only be written with unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sip::endpoint::{Advertised, Config, Endpoint, Input, Output};
use sip::message::parse::{Framing, parse};
use sip::message::{Host, Transport};
use sip::time::Time;
use sip::trunk::{InboundAuth, Net, Outbound, RegistrarRealms, Tenant, Trunk, TrunkId};

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

/// An endpoint that tells of each message, and hears whoever is at 192.0.2.0/24.
fn endpoint() -> Endpoint {
    let mut config = Config::new(vec![Advertised {
        transport: Transport::Udp,
        host: Host::Ip([192, 0, 2, 1].into()),
        port: 5060,
    }]);
    config.trace = true;
    let mut endpoint = Endpoint::new(config, [7; 32]);
    let trunk = Trunk {
        tenant: Tenant::default(),
        id: TrunkId(1),
        host: Some(Host::Ip([192, 0, 2, 9].into())),
        port: Some(5060),
        transport: Transport::Udp,
        allowed: Net::parse("192.0.2.0/24").into_iter().collect(),
        inbound: InboundAuth::Address,
        credentials: None,
        domain: None,
        outbound: Outbound::Host,
        register: None,
        registrar_realms: RegistrarRealms::Unknown,
        keep_alive: None,
    };
    let command = Input::Command(sip::event::Command::SetTrunk(Box::new(trunk)));
    endpoint.handle(Time::from_secs(1), command);
    while !matches!(endpoint.poll(), Output::Wait(_)) {}
    endpoint
}

/// The same while an endpoint serves them, and gives what it has to say; how many outputs there were.
fn cost_to_serve(bytes: &[u8]) -> (usize, usize, usize) {
    let mut endpoint = endpoint();
    let from = ([192, 0, 2, 9], 5060).into();
    LARGEST.set(0);
    TOTAL.set(0);
    endpoint.handle(Time::from_secs(2), Input::Datagram { from, bytes });
    let mut outputs = 0;
    while !matches!(endpoint.poll(), Output::Wait(_)) {
        outputs += 1;
    }
    (LARGEST.get(), TOTAL.get(), outputs)
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

#[test]
fn nothing_that_is_served_allocates_more_than_a_datagram() {
    const CONTACT: &str = "Max-Forwards: 70\r\nContact: <sip:b@192.0.2.9>\r\n";
    let with_body = |kind: &str, body: String| {
        let length = body.len();
        head(&format!(
            "{CONTACT}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    };
    let long =
        |name: &str, count: usize| format!("{name}: {}\r\n", "x".repeat(8_000)).repeat(count);
    let vias = format!(
        "Via: SIP/2.0/UDP 192.0.2.8;branch=z9hG4bK{}\r\n",
        "b".repeat(7_900)
    );
    let cases = [
        ("nothing", head(CONTACT)),
        (
            "many fields",
            head(&format!("{CONTACT}{}", "Subject: a\r\n".repeat(245))),
        ),
        (
            "long fields",
            head(&format!("{CONTACT}{}", long("Subject", 7))),
        ),
        (
            "a way that is echoed",
            head(&format!("{CONTACT}{}", vias.repeat(7))),
        ),
        (
            "a way that is recorded",
            head(&format!(
                "{CONTACT}{}",
                "Record-Route: <sip:192.0.2.8;lr>\r\n".repeat(95)
            )),
        ),
        (
            "a long URI",
            String::from_utf8(head(CONTACT))
                .unwrap()
                .replacen("sip:a@", &format!("sip:{}@", "a".repeat(7_900)), 1)
                .into_bytes(),
        ),
        (
            "a long description",
            with_body(
                "application/sdp",
                format!("v=0\r\n{}", "a=x\r\n".repeat(12_000)),
            ),
        ),
        (
            "many parts",
            with_body("multipart/mixed;boundary=b", "--b\r\n\r\n".repeat(7_000)),
        ),
        (
            "keys",
            with_body("application/dtmf-relay", "Signal=1\r\n".repeat(6_000)),
        ),
    ];
    for (name, bytes) in cases {
        assert!(bytes.len() <= 65_507, "{name}: {} bytes", bytes.len());
        for method in ["INVITE", "OPTIONS", "INFO", "BYE", "REFER", "NOTIFY"] {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let bytes = text.replace("INVITE", method).into_bytes();
            let (largest, total, outputs) = cost_to_serve(&bytes);
            assert!(outputs > 0, "{method}, {name}: nothing is said of it");
            assert!(
                largest <= 65_536,
                "{method}, {name}: {largest} bytes at once"
            );
            assert!(total <= 2_000_000, "{method}, {name}: {total} bytes in all");
        }
    }
}

/// The largest datagram there is, of what an answer has to repeat: that is refused in fewer bytes, or not
/// answered where its way alone is too long.
#[test]
fn the_largest_datagram_is_answered_with_no_more_than_a_datagram() {
    // Lines of one field, each of `most` bytes, of `size` bytes in all.
    let lines = |begin: &str, end: &str, most: usize, size: usize| {
        let mut text = String::new();
        while text.len() < size {
            let line = most.min(size - text.len());
            let fill = line.saturating_sub(begin.len() + end.len() + 2).max(1);
            text.push_str(&format!("{begin}{}{end}\r\n", "b".repeat(fill)));
        }
        text
    };
    let whole = |fields: &dyn Fn(usize) -> String| {
        let rest = head("Max-Forwards: 70\r\nContact: <sip:b@192.0.2.9>\r\n").len() + 48;
        let fields = fields(65_507 - rest);
        let mut bytes = head(&format!(
            "Max-Forwards: 70\r\nContact: <sip:b@192.0.2.9>\r\n{fields}"
        ));
        assert!(bytes.len() <= 65_507, "{} bytes", bytes.len());
        // A body takes what is left.
        bytes.resize(65_507, b'x');
        bytes
    };
    const VIA: &str = "v: SIP/2.0/UDP 192.0.2.8;branch=z9hG4bK";
    const ROUTE: &str = "Record-Route: <sip:192.0.2.8;lr;x=";
    let tokens = |size: usize| format!("Require: {}\r\n", "a,".repeat(3_990)).repeat(size / 8_000);
    let cases = [
        // Written with the long name of the field it is longer than it came.
        ("many hops", whole(&|size| lines(VIA, "", 700, size)), false),
        (
            "long hops",
            whole(&|size| lines(VIA, "", 8_000, size)),
            true,
        ),
        (
            "its route",
            whole(&|size| lines(ROUTE, ">", 8_000, size)),
            true,
        ),
        (
            "both",
            whole(&|size| {
                let half = lines(VIA, "", 8_000, size / 2);
                let rest = lines(ROUTE, ">", 8_000, size - half.len());
                half + &rest
            }),
            true,
        ),
        ("what it requires", whole(&tokens), true),
        (
            "one thing that it requires",
            whole(&|size| lines("Require: ", "", 8_000, size)),
            true,
        ),
    ];
    for (name, bytes, answered) in cases {
        for method in ["INVITE", "OPTIONS", "INFO", "BYE", "REFER", "CANCEL"] {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let mut bytes = text.replace("INVITE", method).into_bytes();
            bytes.resize(65_507, b'x');
            let (largest, total, outputs) = cost_to_serve(&bytes);
            assert_eq!(outputs > 0, answered, "{method}, {name}: {outputs} outputs");
            assert!(
                largest <= 65_536,
                "{method}, {name}: {largest} bytes at once"
            );
            assert!(total <= 2_000_000, "{method}, {name}: {total} bytes in all");
        }
    }
}
