//! A carrier of several addresses, some of which are silent, overloaded or late (RFC 3263 4.3).

use super::alone::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A call to a carrier of three addresses, which may ring for half a minute.
fn placed() -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    resolve(&mut alone, vec![srv(10, 1), srv(20, 2), srv(30, 3)]);
    alone.command(placing(secs(30)));
    alone
}

/// Which of them was asked last, and for what.
fn asked(alone: &Alone) -> (u8, Method) {
    let (peer, request) = alone.last();
    match peer.addr.ip() {
        IpAddr::V4(ip) => (ip.octets()[3], request.method),
        IpAddr::V6(_) => panic!("no address of the carrier"),
    }
}

const CONTACT: (Name, &str) = (Name::Contact, "<sip:there@198.51.100.1:5080>");

#[test]
fn a_silent_address_is_left_after_four_seconds() {
    let mut alone = placed();
    alone.run_for(Duration::from_millis(3_900));
    assert_eq!(asked(&alone), (1, Method::Invite));
    alone.run_for(Duration::from_millis(200));
    assert_eq!(asked(&alone), (2, Method::Invite));
    // This one is there, and has all the time it wants.
    alone.answer(100, &[]);
    alone.run_for(secs(20));
    assert_eq!(asked(&alone), (2, Method::Invite));
    alone.answer(180, &[CONTACT]);
    // It rings for half a minute from now.
    alone.run_for(secs(29));
    assert_eq!(alone.told, ["180"]);
    alone.run_for(secs(2));
    assert_eq!(alone.told, ["180", "ended by Local 408"]);
    assert_eq!(asked(&alone), (2, Method::Cancel));
}

#[test]
fn an_overloaded_address_is_left_though_it_said_100() {
    let mut alone = placed();
    alone.answer(100, &[]);
    alone.answer(503, &[]);
    assert_eq!(asked(&alone), (2, Method::Invite));
    // Who rings has taken the call: that it fails then is the call's end.
    alone.answer(180, &[CONTACT]);
    let sent = alone.sent.len();
    let (peer, request) = alone.last();
    alone.answer_to(&peer, &request, 503, &[]);
    assert_eq!(alone.sent.len(), sent + 1, "an ACK and nothing else");
    assert_eq!(alone.told, ["180", "ended by Remote 503"]);
}

#[test]
fn a_call_that_nobody_hears_was_not_rung() {
    let mut alone = placed();
    alone.run_for(secs(8));
    assert_eq!(asked(&alone), (3, Method::Invite));
    // The last has the whole time, and nobody rang.
    alone.run_for(secs(29));
    assert!(alone.told.is_empty());
    alone.run_for(secs(2));
    assert_eq!(alone.told, ["ended by Network 408"]);
    alone.run_for(secs(90));
    assert_eq!(alone.endpoint.counts(), Counts::default());
    assert!(
        alone
            .sent
            .iter()
            .all(|(_, message)| is(message, Method::Invite)),
        "nothing that was not heard is cancelled"
    );
}

#[test]
fn who_answers_late_is_sent_away() {
    let mut alone = placed();
    let (first, invite) = alone.last();
    alone.run_for(secs(4));
    let (second, other) = alone.last();
    assert_eq!(asked(&alone), (2, Method::Invite));
    // The first rings after all, and again.
    alone.answer_to(&first, &invite, 180, &[CONTACT]);
    assert_eq!(asked(&alone), (1, Method::Cancel));
    let sent = alone.sent.len();
    alone.answer_to(&first, &invite, 180, &[CONTACT]);
    assert_eq!(alone.sent.len(), sent);
    // It picks up before the CANCEL reaches it.
    alone.answer_to(&first, &invite, 200, &[CONTACT]);
    let methods: Vec<Method> = alone.sent[sent..]
        .iter()
        .map(|(_, message)| message.clone().into_request().method)
        .collect();
    assert_eq!(methods, [Method::Ack, Method::Bye]);
    assert!(alone.told.is_empty());
    alone.answer_to(&second, &other, 200, &[CONTACT]);
    assert_eq!(alone.told, ["answered"]);
}

/// What the first address said is no leave to cancel at the second (RFC 3261 9.1).
#[test]
fn a_cancel_waits_for_a_word_of_the_address_that_is_tried() {
    let mut alone = placed();
    alone.answer(100, &[]);
    alone.answer(503, &[]);
    alone.command(Command::HangUp(CALL, None));
    assert_eq!(asked(&alone), (2, Method::Invite));
    alone.answer(100, &[]);
    assert_eq!(asked(&alone), (2, Method::Cancel));
}

/// RFC 3261 18.4: of a message that cannot be sent its own transaction is told, and no other of that peer.
#[test]
fn a_message_that_cannot_be_sent_fails_alone() {
    let mut alone = placed();
    let first = alone.client.unwrap();
    let other = CallId(2);
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    for call in [other, CallId(3)] {
        alone.command(place_as(call, secs(30)));
    }
    assert_eq!(alone.last().0.addr, address(A));
    alone.step(Input::Unsent(alone.client.unwrap()));
    assert_eq!(alone.told, ["ended by Network 503"]);
    assert_eq!(alone.endpoint.counts().calls, 2);
    // Where there is another address it is tried.
    alone.step(Input::Unsent(first));
    assert_eq!(asked(&alone), (2, Method::Invite));
    // Nobody waits for what becomes of an answer.
    alone.bytes(
        "192.0.2.1:5060",
        &invite("", 1).replace("INVITE", "OPTIONS"),
    );
    assert_eq!((alone.last_response().code, alone.client), (200, None));
    assert_eq!(alone.told.len(), 1);
}

/// Over TLS what a late answer needs goes to the host whose certificate was asked for, over the connection with it.
#[test]
fn who_answers_late_over_tls_is_sent_away_over_its_connection() {
    let over = |peer: &Peer, request: &Request, alone: &mut Alone| {
        let mut response = Response::to(&request.headers, 200, "");
        response.set_to_tag("there");
        let contact = "<sip:there@198.51.100.1:5080;transport=tls>";
        response.headers.push(Name::Contact, contact);
        let peer = peer.clone();
        let bytes = response.to_bytes();
        let sent = alone.sent.len();
        alone.step(Input::Stream {
            peer,
            bytes: &bytes,
        });
        sent
    };
    let farewell = |alone: &Alone, sent: usize, peer: &Peer| {
        let requests = alone.sent[sent..].iter();
        let methods: Vec<Method> = requests
            .map(|(to, message)| {
                assert_eq!(to, peer);
                message.clone().into_request().method
            })
            .collect();
        assert_eq!(methods, [Method::Ack, Method::Bye]);
    };
    let mut alone = Alone::new();
    let over_tls = Trunk {
        transport: Transport::Tls,
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(over_tls)));
    resolve(&mut alone, vec![srv(10, 1), srv(20, 2)]);
    alone.command(placing(secs(30)));
    let (first, invite) = alone.last();
    assert_eq!(first.name.as_deref(), Some("carrier.example"));
    // Left behind, as it was silent.
    alone.run_for(secs(5));
    let sent = over(&first, &invite, &mut alone);
    farewell(&alone, sent, &first);
}
