//! Requests of ours that are challenged, in calls both ways.

use super::alone::*;
use crate::message::Body;
use crate::message::header::AuthValue;

#[test]
fn a_challenge_to_an_invite_is_answered_under_the_next_number() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    resolve(&mut alone, vec![srv(10, 1)]);
    assert!(alone.asked.is_empty());
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
    // ACK, then the INVITE again.
    let (_, again) = alone.last();
    assert_eq!(again.headers.get(&Name::CSeq), Some("2 INVITE"));
    assert!(again.headers.has(&Name::ProxyAuthorization));
    assert!(!again.body.is_empty());
    let shown = alone.traced.last().unwrap();
    assert!(shown.contains("response=\"***\""), "{shown}");
    let given = again.headers.get(&Name::ProxyAuthorization).unwrap();
    let given = AuthValue::parse(given).unwrap();
    assert!(!shown.contains(given.get("response").unwrap()), "{shown}");
    alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
    assert_eq!(alone.told, ["ended by Remote 407"]);
    alone.run_for(Duration::from_secs(40));
    assert_eq!(alone.endpoint.counts(), Counts::default());
}

/// A carrier of two addresses, each of which knows its own nonces only.
#[test]
fn the_invite_with_credentials_goes_to_the_server_that_asked_for_them() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    let alike = [1, 2].map(|last| Srv {
        weight: 50,
        ..srv(10, last)
    });
    resolve(&mut alone, alike.to_vec());
    let mut asked = Vec::new();
    for _ in 0..16 {
        alone.command(placing(Duration::from_secs(60)));
        let (first, _) = alone.last();
        alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
        let (again, invite) = alone.last();
        assert_eq!(invite.headers.get(&Name::CSeq), Some("2 INVITE"));
        assert_eq!(again, first);
        // Where that one is gone meanwhile the other is asked.
        alone.run_for(Duration::from_secs(5));
        let (other, invite) = alone.last();
        assert_eq!(invite.headers.get(&Name::CSeq), Some("2 INVITE"));
        assert_ne!(other, first);
        alone.answer(486, &[]);
        alone.run_for(Duration::from_secs(33));
        asked.push(first.addr);
    }
    asked.dedup();
    assert!(asked.len() > 1, "both are asked first");
}

/// Nobody can ask for credentials in place of an ACK: it has those of its INVITE (RFC 3261 13.2.2.4).
#[test]
fn the_ack_of_an_answer_has_the_credentials_of_its_invite() {
    let given = |alone: &Alone, method: Method| {
        let (_, request) = alone.last();
        assert_eq!(request.method, method);
        let of = |name| request.headers.get(name).map(str::to_owned);
        [&Name::Authorization, &Name::ProxyAuthorization].map(of)
    };
    for (code, challenge) in [(407, Name::ProxyAuthenticate), (401, Name::WwwAuthenticate)] {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(named(1))));
        resolve(&mut alone, vec![srv(10, 1)]);
        alone.command(placing(Duration::from_secs(60)));
        let mut before = [None, None];
        for method in ["INVITE", "re-INVITE"] {
            assert_eq!(given(&alone, Method::Invite), [None, None], "{method}");
            alone.answer(code, &[(challenge.clone(), CHALLENGE)]);
            let with = given(&alone, Method::Invite);
            let (peer, invite) = alone.last();
            alone.answer(200, &[]);
            assert_eq!(given(&alone, Method::Ack), with, "{method}");
            assert_ne!(with, before, "{method}");
            before = with.clone();
            // The answer again, and that of another fork.
            alone.answer_to(&peer, &invite, 200, &[]);
            assert_eq!(given(&alone, Method::Ack), with, "{method}");
            alone.command(Command::Offer(CALL, sdp("hold")));
        }
        assert_eq!(alone.told, ["answered", "accepted"]);
    }
}

/// The realm is configured: no REGISTER and no INVITE of ours tells it.
fn of_realm() -> Credentials {
    Credentials {
        realm: Some("r".to_owned()),
        ..credentials()
    }
}

/// A call of theirs that is up.
fn taken(alone: &mut Alone) -> CallId {
    alone.bytes("192.0.2.1:5060", &invite("", 1));
    let call = CallId(CallId::FIRST_INCOMING);
    alone.command(Command::Answer(call, sdp("answer")));
    let answer = alone.last_response();
    let to = answer.headers.get(&Name::To).unwrap();
    let ack = invite("", 1)
        .replace("INVITE", "ACK")
        .replace("To: <sip:+15550100@carrier.example>", &format!("To: {to}"))
        .replace("z9hG4bKt1", "z9hG4bKack");
    alone.bytes("192.0.2.1:5060", &ack);
    assert_eq!(alone.told, ["incoming", "established"]);
    call
}

#[test]
fn a_goodbye_to_a_caller_that_asks_who_we_are_is_said_again_with_credentials() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        credentials: Some(of_realm()),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    let call = taken(&mut alone);
    alone.command(Command::HangUp(call, None));
    assert_eq!(alone.last().1.method, Method::Bye);
    alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
    let (_, again) = alone.last();
    assert_eq!(again.headers.get(&Name::CSeq), Some("2 BYE"));
    assert!(again.headers.has(&Name::ProxyAuthorization));
    alone.answer(200, &[]);
    alone.run_for(Duration::from_secs(40));
    assert_eq!(alone.endpoint.counts(), Counts::default());
}

/// Where two trunks share an address it is not known whose call it is, and neither's password is used.
#[test]
fn a_call_that_may_be_of_two_trunks_answers_no_challenge() {
    let mut alone = Alone::new();
    for id in 1..=2 {
        let trunk = Trunk {
            credentials: Some(of_realm()),
            ..trunk(id, A, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(trunk)));
    }
    let call = taken(&mut alone);
    alone.command(Command::HangUp(call, None));
    let sent = alone.sent.len();
    alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
    assert_eq!(alone.sent.len(), sent);
}

/// A session that is refreshed for hours is challenged for hours.
#[test]
fn a_call_answers_challenges_for_as_long_as_what_it_asks_for_succeeds() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        credentials: Some(of_realm()),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    let call = taken(&mut alone);
    for count in 1..=20 {
        alone.command(Command::Info(call, Body::new("application/dtmf", "1")));
        alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
        let (_, again) = alone.last();
        let given = again.headers.get(&Name::ProxyAuthorization).unwrap();
        // It asks with the same nonce each time (RFC 7616 3.4).
        let given = AuthValue::parse(given).unwrap();
        assert_eq!(given.get("nc"), Some(format!("{count:08x}").as_str()));
        alone.answer(200, &[]);
    }
}

/// A server that asks again and again, each time with a new nonce, is not answered for ever.
#[test]
fn a_server_that_only_asks_is_left() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(Trunk {
        credentials: Some(of_realm()),
        ..trunk(1, A, Transport::Udp)
    })));
    let call = taken(&mut alone);
    alone.command(Command::HangUp(call, None));
    let stale = format!("{CHALLENGE}, stale=true");
    let sent = alone.sent.len();
    for _ in 0..40 {
        alone.answer(407, &[(Name::ProxyAuthenticate, &stale)]);
    }
    assert_eq!(alone.sent.len(), sent + 12);
}

/// Who rings reliably and asks who we are gets its PRACK all the same, each fork under the numbers of its own
/// dialog (RFC 3262 4, RFC 3261 22.2).
#[test]
fn a_prack_is_said_again_with_credentials() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(Trunk {
        credentials: Some(of_realm()),
        ..trunk(1, A, Transport::Udp)
    })));
    alone.command(placing(Duration::from_secs(60)));
    let (peer, invite) = alone.last();
    let rings = |alone: &mut Alone, tag: &str, rseq: u32| {
        let mut response = Response::to(&invite.headers, 180, "");
        response.set_to_tag(tag);
        let headers = &mut response.headers;
        headers.push(Name::Contact, format!("<sip:{tag}@192.0.2.1:5060>"));
        headers.push(Name::Require, "100rel");
        headers.push(Name::RSeq, rseq.to_string());
        alone.step(Input::Datagram {
            from: peer.addr,
            bytes: &response.to_bytes(),
        });
        assert_eq!(alone.last().1.headers.get(&Name::CSeq), Some("2 PRACK"));
    };
    for (tag, rseq) in [("one", 7), ("two", 70)] {
        rings(&mut alone, tag, rseq);
        alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
        let (_, again) = alone.last();
        assert_eq!(again.headers.get(&Name::CSeq), Some("3 PRACK"));
        let rack = format!("{rseq} 1 INVITE");
        assert_eq!(again.headers.get(&Name::RAck), Some(rack.as_str()));
        assert_eq!(again.to().unwrap().tag(), Some(tag));
        assert!(again.headers.has(&Name::ProxyAuthorization));
        // Wrong, then.
        let sent = alone.sent.len();
        alone.answer(407, &[(Name::ProxyAuthenticate, CHALLENGE)]);
        assert_eq!(alone.sent.len(), sent);
    }
    assert_eq!(alone.told, ["180", "180"]);
}
