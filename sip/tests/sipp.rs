//! The running stack against SIPp, both ways round, over datagrams and streams. Traffic stays on
//! loopback.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test of the shell with a real peer: processes, sockets and clocks are its subject"
)]

#[path = "kit/capture.rs"]
mod capture;
mod kit;
#[path = "kit/process.rs"]
mod process;

use std::time::{Duration, Instant};

use capture::Capture;
use kit::{free_port, loopback, trunk_to};
use process::{Answering, Sipp, sipp, take_the_first_processor, times_are_told};
use sip::event::{CallId, Command, EndedBy, Event, Place};
use sip::message::{Body, Transport};
use sip::shell::Sip;
use sip::trunk::TrunkId;

/// `sipp -sn uac` calls us: each call is answered, talked in for a moment and ended by SIPp.
fn we_answer(transport: Transport, calls: u32, rate: u32) {
    let sip = process::start(transport);
    they_call(sip, transport, calls, rate);
}

fn they_call(sip: Sip, transport: Transport, calls: u32, rate: u32) {
    let port = sip.addresses()[0].addr.port();
    let answering = Answering::start(sip, free_port(), transport);
    let (calls_text, rate_text) = (calls.to_string(), rate.to_string());
    let target = format!("127.0.0.1:{port}");
    let report = sipp(
        transport,
        &[
            "-sn",
            "uac",
            "-m",
            &calls_text,
            "-r",
            &rate_text,
            "-d",
            "100",
            &target,
        ],
    );
    let heard = answering.stop();
    assert_eq!(report.failed, 0, "{}", report.text);
    assert_eq!(report.successful, calls, "{}", report.text);
    assert_eq!(heard.incoming, calls);
    assert_eq!(heard.established, calls);
    assert_eq!(heard.ended, calls);
}

/// We call `sipp -sn uas` and hang up once it has answered.
fn we_call(transport: Transport, calls: u32) {
    let sip = process::start(transport);
    let port = free_port();
    let (calls_text, port_text) = (calls.to_string(), port.to_string());
    let peer = Sipp::start(
        transport,
        &["-sn", "uas", "-m", &calls_text, "-p", &port_text],
    );
    peer.wait_for_port(transport, port);
    sip.command(Command::SetTrunk(Box::new(trunk_to(port, transport))))
        .unwrap();
    for number in 1..=calls {
        let place = Place {
            trunk: TrunkId(1),
            to: "service".to_owned(),
            from: "sidetone".to_owned(),
            display: None,
            headers: Vec::new(),
            offer: Body::sdp(process::SDP),
            ring_for: Duration::from_secs(20),
            forwarded: None,
        };
        sip.command(Command::Place(CallId(u64::from(number)), Box::new(place)))
            .unwrap();
    }
    let until = Instant::now() + Duration::from_secs(60);
    let next = |what: &str, count: u32| {
        sip.events()
            .recv_deadline(until)
            .unwrap_or_else(|_| panic!("{count} {what} of {calls} within a minute"))
    };
    let mut talking = Vec::new();
    while talking.len() < calls as usize {
        match next("answered", talking.len() as u32) {
            Event::Answered { call, body } => {
                assert!(body.is_some_and(|body| body.is("application/sdp")));
                talking.push(call);
            }
            Event::Ended { code, reason, .. } => panic!("{code:?} {reason}"),
            _ => {}
        }
    }
    // SIPp repeats a response whose ACK its full socket lost; the ACK that this repeats must not cross the BYE, which it
    // would take for a failed call.
    let quiet = sip.events().recv_timeout(Duration::from_secs(1));
    assert!(quiet.is_err(), "{quiet:?} in a call that nobody ended");
    for call in talking {
        sip.command(Command::HangUp(call, None)).unwrap();
    }
    let mut ended = 0;
    while ended < calls {
        if let Event::Ended {
            by, code, reason, ..
        } = next("ended", ended)
        {
            assert_eq!(by, EndedBy::Local, "{code:?} {reason}");
            ended += 1;
        }
    }
    let report = peer.finish();
    assert_eq!(
        (report.successful, report.failed),
        (calls, 0),
        "{}",
        report.text
    );
}

#[test]
fn sipp_calls_us_over_datagrams() {
    we_answer(Transport::Udp, 2_000, 500);
}

#[test]
fn sipp_calls_us_over_a_stream() {
    we_answer(Transport::Tcp, 500, 250);
}

#[test]
fn we_call_sipp_over_datagrams() {
    we_call(Transport::Udp, 500);
}

#[test]
fn we_call_sipp_over_a_stream() {
    we_call(Transport::Tcp, 200);
}

/// An address that is no trunk's: not a byte comes back.
#[test]
fn a_stranger_hears_nothing() {
    let sip = process::start(Transport::Udp);
    let addr = sip.addresses()[0].addr;
    let socket = std::net::UdpSocket::bind((loopback(), 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    for method in ["OPTIONS", "REGISTER", "INVITE"] {
        let text = kit::request(method, socket.local_addr().unwrap());
        socket.send_to(text.as_bytes(), addr).unwrap();
    }
    let mut buffer = [0; 2_048];
    assert!(socket.recv(&mut buffer).is_err(), "a stranger was answered");
    // The same socket as a trunk hears an answer at once, so the silence was meant.
    kit::trust_loopback(&sip, socket.local_addr().unwrap().port(), Transport::Udp);
    let text = kit::request("OPTIONS", socket.local_addr().unwrap());
    socket.send_to(text.as_bytes(), addr).unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    assert!(buffer[..length].starts_with(b"SIP/2.0 200 "));
}

/// Of a hundred calls 99 are answered so soon after their INVITE, when 3,000 of them come a second.
const SET_UP: Duration = Duration::from_millis(2);

/// Calls a second that are served over datagrams without one lost, and how soon each is answered: from its INVITE on
/// the wire to the answer there. `SIDETONE_SIPP_RATE` and `SIDETONE_SIPP_CALLS` ask for more than the usual thousand,
/// and for answers within [`SET_UP`]; it has the first processor for itself then.
#[test]
fn calls_a_second() {
    let number = |name: &str, usual| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(usual)
    };
    let rate = number("SIDETONE_SIPP_RATE", 1_000);
    let calls = number("SIDETONE_SIPP_CALLS", 3_000);
    take_the_first_processor();
    let sip = process::start(Transport::Udp);
    let capture = Capture::start(sip.addresses()[0].addr.port());
    let begin = Instant::now();
    they_call(sip, Transport::Udp, calls, rate);
    let elapsed = begin.elapsed();
    let answers = capture.answers();
    // What the capture's own buffer lost tells nothing.
    assert!(
        answers.len() * 10 >= calls as usize * 9,
        "{} answers were seen",
        answers.len()
    );
    let [median, most] = [50, 99].map(|share| answers[answers.len() * share / 100]);
    println!(
        "{calls} calls at {rate} a second in {elapsed:?}, answered after {median:?} (p50) and {most:?} (p99)"
    );
    assert!(!times_are_told() || most <= SET_UP, "answers are late");
}

/// Commands and events pass the bounded channels; dropping the stack ends its threads.
#[test]
fn a_stack_that_is_dropped_lets_its_port_go() {
    let sip = process::start(Transport::Udp);
    let addr = sip.addresses()[0].addr;
    assert!(std::net::UdpSocket::bind(addr).is_err());
    drop::<Sip>(sip);
    assert!(std::net::UdpSocket::bind(addr).is_ok());
}
