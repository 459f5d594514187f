//! Each machine, row by row: what is told it and when, then all that it did, read aloud.

use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::message::parse::{Framing, parse};
use crate::message::{Message, Name, Uri};

fn request(method: Method) -> Request {
    let mut request = Request::new(method.clone(), Uri::parse("sip:a@192.0.2.1").unwrap());
    let headers = &mut request.headers;
    headers.push(Name::Via, "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKone;rport");
    headers.push(Name::Route, "<sip:192.0.2.1;lr>");
    headers.push(Name::MaxForwards, "70");
    headers.push(Name::From, "<sip:b@example.com>;tag=f");
    headers.push(Name::To, "<sip:a@example.com>");
    headers.push(Name::CallId, "c");
    headers.push(Name::CSeq, format!("3 {method}"));
    request
}

fn response(method: Method, code: u16) -> Response {
    let mut response = Response::to(&request(method).headers, code, "");
    response.set_to_tag("t");
    response
}

/// A client's inputs: a code, 0 for a failed transport, 1 for a user that gives up, each at a time in ms.
fn client(method: Method, reliable: bool, script: &[(u64, u16)], until: u64) -> String {
    let request = request(method.clone());
    let mut machine = AnyClient::new(Time::default(), &request, reliable, Timing::default());
    let mut log = String::new();
    let mut next = drain(&mut log, 0, || machine.poll());
    let mut script = script.iter().peekable();
    loop {
        let now = Time::from_millis(script.peek().map_or(until, |(at, _)| *at));
        while next <= now {
            machine.handle(next, ClientInput::Timeout);
            next = drain(&mut log, next.as_micros() / 1_000, || machine.poll());
        }
        let Some((at, code)) = script.next() else {
            return log;
        };
        let input = match code {
            0 => ClientInput::Failed,
            1 => ClientInput::GiveUp,
            code => ClientInput::Response(response(method.clone(), *code)),
        };
        machine.handle(now, input);
        next = drain(&mut log, *at, || machine.poll());
    }
}

/// A server's inputs.
#[derive(Clone, Copy)]
enum In {
    Again,
    Ack,
    Say(u16),
    Fail,
}

fn server(method: Method, reliable: bool, script: &[(u64, In)], until: u64) -> String {
    let request = request(method.clone());
    let mut machine = AnyServer::new(Time::default(), &request, reliable, Timing::default());
    let mut log = String::new();
    let mut next = drain(&mut log, 0, || machine.poll());
    let mut script = script.iter().peekable();
    loop {
        let now = Time::from_millis(script.peek().map_or(until, |(at, _)| *at));
        while next <= now {
            machine.handle(next, ServerInput::Timeout);
            next = drain(&mut log, next.as_micros() / 1_000, || machine.poll());
        }
        let Some((at, input)) = script.next() else {
            return log;
        };
        machine.handle(
            now,
            match input {
                In::Again => ServerInput::Again,
                In::Ack => ServerInput::Ack,
                In::Fail => ServerInput::Failed,
                In::Say(code) => {
                    ServerInput::Respond(*code, response(method.clone(), *code).to_bytes().into())
                }
            },
        );
        next = drain(&mut log, *at, || machine.poll());
    }
}

/// Writes what is polled and gives the next deadline. Sent messages are named by their first word or
/// code, responses given to the user stand in brackets.
fn drain(log: &mut String, ms: u64, mut poll: impl FnMut() -> Output) -> Time {
    for _ in 0..100 {
        let what = match poll() {
            Output::Wait(at) => return at,
            Output::Send(wire) => match parse(&wire, Framing::Datagram).unwrap().unwrap() {
                Message::Request(request) => request.method.to_string(),
                Message::Response(response) => response.code.to_string(),
            },
            Output::Response(response) => format!("[{}]", response.code),
            Output::Ended(end) => format!("{end:?}"),
        };
        if !log.is_empty() {
            log.push_str(", ");
        }
        _ = write!(log, "{ms} {what}");
    }
    unreachable!("poll does not end: {log}");
}

const INVITE: Method = Method::Invite;
const OTHER: Method = Method::Options;

#[test]
fn invite_client_without_an_answer_sends_seven_times_and_gives_up_after_32_s() {
    assert_eq!(
        client(INVITE, false, &[], 60_000),
        "0 INVITE, 500 INVITE, 1500 INVITE, 3500 INVITE, 7500 INVITE, 15500 INVITE, \
         31500 INVITE, 32000 TimedOut"
    );
}

#[test]
fn invite_client_on_a_stream_sends_once() {
    assert_eq!(
        client(INVITE, true, &[], 60_000),
        "0 INVITE, 32000 TimedOut"
    );
}

#[test]
fn invite_client_waits_for_ever_once_somebody_answered_provisionally() {
    assert_eq!(
        client(INVITE, false, &[(700, 100), (1_000, 180)], 600_000),
        "0 INVITE, 500 INVITE, 700 [100], 1000 [180]"
    );
}

#[test]
fn invite_client_waits_32_s_for_an_answer_that_nobody_needs() {
    assert_eq!(
        client(INVITE, false, &[(700, 180), (1_000, 1)], 600_000),
        "0 INVITE, 500 INVITE, 700 [180], 33000 TimedOut"
    );
    assert_eq!(
        client(
            INVITE,
            false,
            &[(700, 180), (1_000, 1), (2_000, 487)],
            600_000
        ),
        "0 INVITE, 500 INVITE, 700 [180], 2000 ACK, 2000 [487], 34000 Done"
    );
    // That it rings on is no answer, before a provisional response as after one.
    assert_eq!(
        client(
            INVITE,
            false,
            &[(700, 180), (1_000, 1), (20_000, 180)],
            600_000
        ),
        "0 INVITE, 500 INVITE, 700 [180], 20000 [180], 33000 TimedOut"
    );
    assert_eq!(
        client(INVITE, false, &[(300, 1), (700, 180)], 600_000),
        "0 INVITE, 700 [180], 32000 TimedOut"
    );
}

#[test]
fn invite_client_gives_every_2xx_for_32_s() {
    assert_eq!(
        client(
            INVITE,
            false,
            &[
                (100, 200),
                (600, 200),
                (700, 180),
                (800, 486),
                (32_200, 200)
            ],
            60_000
        ),
        "0 INVITE, 100 [200], 600 [200], 32100 Done"
    );
}

#[test]
fn invite_client_acknowledges_a_refusal_each_time_and_gives_it_once() {
    assert_eq!(
        client(
            INVITE,
            false,
            &[(100, 180), (200, 486), (700, 486), (800, 200), (1_700, 486)],
            60_000
        ),
        "0 INVITE, 100 [180], 200 ACK, 200 [486], 700 ACK, 1700 ACK, 32200 Done"
    );
}

#[test]
fn invite_client_on_a_stream_is_done_with_the_refusal() {
    assert_eq!(
        client(INVITE, true, &[(200, 603), (300, 603)], 60_000),
        "0 INVITE, 200 ACK, 200 [603], 200 Done"
    );
}

#[test]
fn invite_client_ends_when_the_transport_fails_but_not_once_it_was_answered() {
    assert_eq!(
        client(INVITE, false, &[(100, 0)], 60_000),
        "0 INVITE, 100 Failed"
    );
    assert_eq!(
        client(INVITE, false, &[(100, 200), (200, 0)], 60_000),
        "0 INVITE, 100 [200], 32100 Done"
    );
}

#[test]
fn invite_client_that_was_heard_awaits_its_answer_over_another_connection() {
    assert_eq!(
        client(INVITE, true, &[(100, 180), (200, 0), (9_000, 200)], 60_000),
        "0 INVITE, 100 [180], 9000 [200], 41000 Done"
    );
    assert_eq!(
        client(INVITE, true, &[(100, 100), (200, 0), (9_000, 486)], 60_000),
        "0 INVITE, 100 [100], 9000 ACK, 9000 [486], 9000 Done"
    );
}

#[test]
fn an_ack_has_the_invites_branch_and_route_and_the_responses_to() {
    let mut machine = AnyClient::new(Time::default(), &request(INVITE), false, Timing::default());
    machine.handle(
        Time::default(),
        ClientInput::Response(response(INVITE, 404)),
    );
    let sent: Vec<Wire> = std::iter::from_fn(|| match machine.poll() {
        Output::Send(wire) => Some(Some(wire)),
        Output::Response(_) => Some(None),
        _ => None,
    })
    .flatten()
    .collect();
    let Ok(Some(Message::Request(ack))) = parse(&sent[1], Framing::Datagram) else {
        unreachable!("no ACK");
    };
    assert_eq!(ack.method, Method::Ack);
    assert_eq!(ack.via().unwrap().branch(), Some("z9hG4bKone"));
    assert_eq!(ack.headers.get(&Name::Route), Some("<sip:192.0.2.1;lr>"));
    assert_eq!(ack.headers.get(&Name::CSeq), Some("3 ACK"));
    assert_eq!(ack.to().unwrap().tag(), Some("t"));
}

#[test]
fn client_without_an_answer_sends_eleven_times_and_gives_up_after_32_s() {
    assert_eq!(
        client(OTHER, false, &[], 60_000),
        "0 OPTIONS, 500 OPTIONS, 1500 OPTIONS, 3500 OPTIONS, 7500 OPTIONS, 11500 OPTIONS, \
         15500 OPTIONS, 19500 OPTIONS, 23500 OPTIONS, 27500 OPTIONS, 31500 OPTIONS, \
         32000 TimedOut"
    );
}

#[test]
fn client_sends_every_4_s_after_a_provisional_response() {
    assert_eq!(
        client(OTHER, false, &[(100, 100), (9_000, 200)], 60_000),
        "0 OPTIONS, 100 [100], 500 OPTIONS, 4500 OPTIONS, 8500 OPTIONS, 9000 [200], 14000 Done"
    );
}

#[test]
fn client_gives_the_final_response_once() {
    assert_eq!(
        client(OTHER, false, &[(100, 200), (600, 200), (700, 500)], 60_000),
        "0 OPTIONS, 100 [200], 5100 Done"
    );
    assert_eq!(
        client(OTHER, true, &[(100, 404)], 60_000),
        "0 OPTIONS, 100 [404], 100 Done"
    );
    assert_eq!(
        client(OTHER, true, &[(100, 0)], 60_000),
        "0 OPTIONS, 100 Failed"
    );
}

#[test]
fn invite_server_says_trying_after_200_ms_unless_something_was_said() {
    assert_eq!(server(INVITE, false, &[], 10_000), "200 100");
    assert_eq!(
        server(
            INVITE,
            false,
            &[(100, In::Say(180)), (900, In::Again)],
            10_000
        ),
        "100 180, 900 180"
    );
    assert_eq!(
        server(INVITE, false, &[(50, In::Again), (600, In::Again)], 10_000),
        "50 100, 600 100"
    );
}

#[test]
fn invite_server_repeats_a_refusal_until_the_ack() {
    assert_eq!(
        server(
            INVITE,
            false,
            &[
                (100, In::Say(486)),
                (300, In::Again),
                (4_000, In::Ack),
                (4_100, In::Ack),
                (4_200, In::Again)
            ],
            60_000
        ),
        "100 486, 300 486, 600 486, 1600 486, 3600 486, 9000 Done"
    );
}

#[test]
fn invite_server_gives_up_a_refusal_that_nobody_acknowledges() {
    assert_eq!(
        server(INVITE, false, &[(0, In::Say(500))], 60_000),
        "0 500, 500 500, 1500 500, 3500 500, 7500 500, 11500 500, 15500 500, 19500 500, \
         23500 500, 27500 500, 31500 500, 32000 TimedOut"
    );
    assert_eq!(
        server(INVITE, true, &[(0, In::Say(500))], 60_000),
        "0 500, 32000 TimedOut"
    );
    assert_eq!(
        server(INVITE, true, &[(0, In::Say(500)), (10, In::Ack)], 60_000),
        "0 500, 10 Done"
    );
}

#[test]
fn invite_server_lets_its_user_repeat_a_2xx_and_absorbs_the_invite() {
    assert_eq!(
        server(
            INVITE,
            false,
            &[
                (100, In::Say(200)),
                (400, In::Again),
                (600, In::Say(200)),
                (700, In::Say(486))
            ],
            60_000
        ),
        "100 200, 600 200, 32100 Done"
    );
}

#[test]
fn server_repeats_its_answer_when_the_request_comes_again() {
    assert_eq!(
        server(
            OTHER,
            false,
            &[
                (10, In::Again),
                (100, In::Say(200)),
                (500, In::Again),
                (900, In::Say(500))
            ],
            60_000
        ),
        "100 200, 500 200, 32100 Done"
    );
    assert_eq!(
        server(OTHER, false, &[(100, In::Say(100)), (200, In::Again)], 300),
        "100 100, 200 100"
    );
    assert_eq!(
        server(OTHER, true, &[(100, In::Say(200))], 60_000),
        "100 200, 100 Done"
    );
    assert_eq!(
        server(OTHER, false, &[(100, In::Fail)], 60_000),
        "100 Failed"
    );
}

#[test]
fn an_early_timeout_changes_nothing_and_a_late_one_does_all_that_is_due() {
    let mut machine = AnyClient::new(Time::default(), &request(INVITE), false, Timing::default());
    let mut log = String::new();
    drain(&mut log, 0, || machine.poll());
    machine.handle(Time::from_millis(499), ClientInput::Timeout);
    assert_eq!(
        drain(&mut log, 499, || machine.poll()),
        Time::from_millis(500)
    );
    machine.handle(Time::from_secs(40), ClientInput::Timeout);
    drain(&mut log, 40_000, || machine.poll());
    assert_eq!(
        log,
        "0 INVITE, 40000 INVITE, 40000 INVITE, 40000 INVITE, 40000 INVITE, 40000 INVITE, \
         40000 INVITE, 40000 TimedOut"
    );
    // After the end inputs are ignored.
    machine.handle(
        Time::from_secs(41),
        ClientInput::Response(response(INVITE, 200)),
    );
    drain(&mut log, 41_000, || machine.poll());
    assert!(log.ends_with("TimedOut"));
}

#[test]
fn timers_are_taken_in_the_order_of_their_deadlines() {
    let mut timers = Timers::default();
    timers.arm(Timer::B, Time::from_millis(30));
    timers.arm(Timer::A, Time::from_millis(20));
    timers.arm(Timer::A, Time::from_millis(10));
    assert_eq!(timers.next(), Time::from_millis(10));
    assert_eq!(timers.take_due(Time::from_millis(9)), None);
    let due = |timers: &mut Timers| timers.take_due(Time::from_secs(1)).map(|(timer, _)| timer);
    assert_eq!(due(&mut timers), Some(Timer::A));
    assert_eq!(due(&mut timers), Some(Timer::B));
    assert_eq!(due(&mut timers), None);
    assert_eq!(timers.next(), Time::NEVER);
    assert_eq!(Timing::default().patience(), Duration::from_secs(32));
}
