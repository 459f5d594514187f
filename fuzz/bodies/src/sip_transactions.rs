//! The four transaction machines, told anything in any order: each ends its polling, never waits for a
//! time that is past, and says nothing after its end.

use std::time::Duration;

use arbitrary::Arbitrary;
use sip::message::{Method, Name, Request, Response, Uri};
use sip::time::Time;
use sip::transaction::{AnyClient, AnyServer, ClientInput, Output, ServerInput, Timing};

#[derive(Arbitrary, Debug)]
struct Script {
    invite: bool,
    reliable: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// So many milliseconds go by, and a timeout comes when one is due.
    Wait(u16),
    /// A timeout that nobody asked for.
    Timeout,
    Failed,
    /// A client's: a response. A server's: its user answers.
    Response(u16),
    GiveUp,
    Again,
    Ack,
}

/// Runs the body on what `bytes` spell.
pub fn fuzz(bytes: &[u8]) {
    let Some(script) = crate::spelled::<Script>(bytes) else {
        return;
    };
    let method = if script.invite {
        Method::Invite
    } else {
        Method::Options
    };
    let request = request(&method);
    let start = Time::from_millis(1_000);
    let timing = Timing::default();
    let mut client = AnyClient::new(start, &request, script.reliable, timing);
    let mut server = AnyServer::new(start, &request, script.reliable, timing);
    let mut now = start;
    let mut ended = (false, false);
    let mut next = (
        drain(now, &mut ended.0, || client.poll()),
        drain(now, &mut ended.1, || server.poll()),
    );
    for step in script.steps {
        let response = |code: u16| Response::to(&request.headers, 100 + code % 600, "");
        let (for_client, for_server) = match step {
            Step::Wait(ms) => {
                let until = now + Duration::from_millis(ms.into());
                while next.0 <= until || next.1 <= until {
                    now = now.max(next.0.min(next.1));
                    client.handle(now, ClientInput::Timeout);
                    server.handle(now, ServerInput::Timeout);
                    next.0 = drain(now, &mut ended.0, || client.poll());
                    next.1 = drain(now, &mut ended.1, || server.poll());
                }
                now = until;
                continue;
            }
            Step::Timeout => (Some(ClientInput::Timeout), Some(ServerInput::Timeout)),
            Step::Failed => (Some(ClientInput::Failed), Some(ServerInput::Failed)),
            Step::Response(code) => {
                let (one, other) = (response(code), response(code));
                let wire = other.to_bytes().into();
                (
                    Some(ClientInput::Response(one)),
                    Some(ServerInput::Respond(other.code, wire)),
                )
            }
            Step::GiveUp => (Some(ClientInput::GiveUp), None),
            Step::Again => (None, Some(ServerInput::Again)),
            Step::Ack => (None, Some(ServerInput::Ack)),
        };
        if let Some(input) = for_client {
            client.handle(now, input);
            next.0 = drain(now, &mut ended.0, || client.poll());
        }
        if let Some(input) = for_server {
            server.handle(now, input);
            next.1 = drain(now, &mut ended.1, || server.poll());
        }
    }
}

/// Takes all that is asked for; the next deadline.
fn drain(now: Time, ended: &mut bool, mut poll: impl FnMut() -> Output) -> Time {
    for _ in 0..1_000 {
        match poll() {
            Output::Wait(at) => {
                assert!(at > now, "it waits for the past");
                return at;
            }
            Output::Ended(_) => {
                assert!(!*ended, "it ends twice");
                *ended = true;
            }
            Output::Send(_) | Output::Response(_) => assert!(!*ended, "it goes on after its end"),
        }
    }
    panic!("polling does not end");
}

fn request(method: &Method) -> Request {
    let uri = Uri::parse("sip:a@192.0.2.1").expect("a URI");
    let mut request = Request::new(method.clone(), uri);
    let headers = &mut request.headers;
    headers.push(Name::Via, "SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKone;rport");
    headers.push(Name::MaxForwards, "70");
    headers.push(Name::From, "<sip:b@example.com>;tag=f");
    headers.push(Name::To, "<sip:a@example.com>");
    headers.push(Name::CallId, "c");
    headers.push(Name::CSeq, format!("3 {method}"));
    request
}
