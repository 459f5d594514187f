//! Which addresses are a trunk's hosts where its password is asked for: what its names lead to at that time, with their
//! ports, its allowed addresses, and over TLS what bears its name.

use super::alone::*;
use super::withheld::*;
use crate::message::Body;

/// A proxy of the carrier that a route names, in answers to look-ups that are read again for each request.
const PROXY: &str = "<sip:proxy.carrier.example;lr>";

fn leads(alone: &mut Alone, to: &[(u16, &str)]) {
    let lookup = Lookup {
        host: "proxy.carrier.example".to_owned(),
        port: None,
        transport: Transport::Udp,
    };
    let srv = |(priority, to): &(u16, &str)| Srv {
        port: at(to).port(),
        addresses: vec![at(to).ip()],
        ..srv(*priority, 0)
    };
    alone.step(Input::Resolved {
        lookup,
        answers: Some(Answers {
            srv: to.iter().map(srv).collect(),
            addresses: Vec::new(),
        }),
        keep: Duration::from_secs(600),
    });
}

#[test]
fn a_name_that_leads_elsewhere_since_it_was_challenged_is_given_nothing() {
    for (method, wish) in wishes() {
        let mut alone = up(&[(Name::RecordRoute, PROXY)]);
        leads(&mut alone, &[(10, CARRIER)]);
        alone.command(wish);
        let (peer, first) = alone.last();
        assert_eq!((&first.method, peer.addr), (&method, at(CARRIER)));
        leads(&mut alone, &[(10, STRANGER)]);
        let sent = alone.sent.len();
        alone.answer_to(&peer, &first, 407, &[(Name::ProxyAuthenticate, SHA)]);
        let (peer, again) = alone.last();
        assert_eq!((&again.method, peer.addr), (&method, at(STRANGER)));
        assert_eq!(given(&alone, sent), 0, "{method:?}");
        // And it is not heard for them either.
        asks_in_vain(&mut alone, STRANGER, 407, SHA);
    }
}

/// A name that leads to the carrier and to somebody else.
#[test]
fn a_request_with_credentials_goes_to_those_hosts_of_a_name_that_are_the_carriers() {
    for (first, second) in [(10, 20), (20, 10)] {
        let mut alone = up(&[(Name::RecordRoute, PROXY)]);
        leads(&mut alone, &[(10, CARRIER)]);
        alone.command(Command::HangUp(CALL, None));
        let (peer, bye) = alone.last();
        leads(&mut alone, &[(first, CARRIER), (second, STRANGER)]);
        let sent = alone.sent.len();
        alone.answer_to(&peer, &bye, 407, &[(Name::ProxyAuthenticate, SHA)]);
        let (peer, again) = alone.last();
        assert_eq!(peer.addr, at(CARRIER), "{first} {second}");
        assert!(proves(&again));
        // The carrier is overloaded: nobody else is tried.
        alone.answer(503, &[]);
        alone.run_for(Duration::from_secs(40));
        let others = alone.sent[sent..].iter();
        assert!(
            others
                .map(|(peer, _)| peer.addr)
                .all(|addr| addr == at(CARRIER))
        );
    }
}

/// The name is not known any more when the challenge comes, and then leads to somebody else.
#[test]
fn a_request_that_waits_for_a_name_is_judged_when_it_is_sent() {
    for (to, proof) in [(STRANGER, false), (CARRIER, true)] {
        let mut alone = up(&[(Name::RecordRoute, PROXY)]);
        leads(&mut alone, &[(10, CARRIER)]);
        alone.command(Command::Info(CALL, Body::new("application/dtmf", "1")));
        let (peer, info) = alone.last();
        alone
            .endpoint
            .resolved
            .retain(|lookup, _| lookup.host != "proxy.carrier.example");
        let sent = alone.sent.len();
        alone.answer_to(&peer, &info, 407, &[(Name::ProxyAuthenticate, SHA)]);
        assert_eq!(alone.sent.len(), sent, "it waits");
        leads(&mut alone, &[(10, to)]);
        let (peer, again) = alone.last();
        assert_eq!((again.method.clone(), peer.addr), (Method::Info, at(to)));
        assert_eq!(proves(&again), proof, "{to}");
    }
}

/// A user of the API says that these are the carrier's, and its calls in come from any of their ports.
#[test]
fn the_trunks_allowed_addresses_are_its_carriers_with_every_port() {
    let allowing = |transport| {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(Trunk {
            allowed: vec![crate::trunk::Net::parse("203.0.113.64/28").unwrap()],
            transport,
            ..named(1)
        })));
        resolve(&mut alone, vec![srv(10, 1)]);
        alone.command(placing(Duration::from_secs(60)));
        alone
    };
    for host in [STRANGER, "203.0.113.66:40000", "203.0.113.79:5060"] {
        let mut alone = allowing(Transport::Udp);
        alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
        alone.answer(200, &[(Name::Contact, &format!("<sip:callee@{host}>"))]);
        assert!(proves(&alone.last().1), "the ACK");
        alone.command(Command::HangUp(CALL, None));
        alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
        let (peer, again) = alone.last();
        assert_eq!(peer.addr, at(host));
        assert!(proves(&again), "{host}");
    }
    let mut alone = allowing(Transport::Udp);
    alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
    alone.answer(200, &[(Name::Contact, "<sip:evil@203.0.113.80:5060>")]);
    alone.command(Command::HangUp(CALL, None));
    asks_in_vain(&mut alone, "203.0.113.80:5060", 407, SHA);
    // Nor where the trunk's transport is TLS and this one is not.
    let mut alone = allowing(Transport::Tls);
    let (peer, invite) = alone.last();
    alone.answer_over(&peer, &invite, 407, &[(Name::ProxyAuthenticate, SHA)]);
    let (peer, invite) = alone.last();
    assert!(proves(&invite));
    let contact = format!("<sip:callee@{STRANGER};transport=udp>");
    alone.answer_over(&peer, &invite, 200, &[(Name::Contact, &contact)]);
    alone.command(Command::HangUp(CALL, None));
    asks_in_vain(&mut alone, STRANGER, 407, SHA);
}

/// Another port of the carrier's address: over TLS a certificate tells whose it is.
#[test]
fn over_tls_the_verified_name_is_the_carriers_on_every_port() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(Trunk {
        transport: Transport::Tls,
        ..named(1)
    })));
    resolve(&mut alone, vec![srv(10, 1)]);
    let other = Lookup {
        host: "evil.example".to_owned(),
        port: Some(5999),
        transport: Transport::Tls,
    };
    alone.step(Input::Resolved {
        lookup: other,
        answers: Some(Answers {
            srv: Vec::new(),
            addresses: vec![at(CARRIER).ip()],
        }),
        keep: Duration::from_secs(600),
    });
    for (number, contact, name, proof) in [
        (1, "198.51.100.1:5999", "carrier.example", true),
        (2, "evil.example:5999", "evil.example", false),
    ] {
        let call = CallId(number);
        alone.command(place_as(call, Duration::from_secs(60)));
        let (peer, invite) = alone.last();
        assert_eq!(peer.name.as_deref(), Some("carrier.example"));
        alone.answer_over(&peer, &invite, 407, &[(Name::ProxyAuthenticate, SHA)]);
        let (peer, invite) = alone.last();
        assert!(proves(&invite));
        let contact = format!("<sip:callee@{contact};transport=tls>");
        alone.answer_over(&peer, &invite, 200, &[(Name::Contact, &contact)]);
        // The connection is gone, and the next one goes where the answer said.
        alone.step(Input::Failed(peer));
        alone.command(Command::HangUp(call, None));
        let (peer, bye) = alone.last();
        assert_eq!(
            (peer.addr, peer.name.as_deref()),
            (at("198.51.100.1:5999"), Some(name))
        );
        let sent = alone.sent.len();
        alone.answer_over(&peer, &bye, 407, &[(Name::ProxyAuthenticate, SHA)]);
        assert_eq!(given(&alone, sent), usize::from(proof), "{contact}");
    }
}

/// What TLS protects is not asked for in the clear, though it be from the carrier's address.
#[test]
fn a_carrier_over_tls_is_not_answered_over_udp() {
    let mut alone = Alone::new();
    let over_tls = Trunk {
        transport: Transport::Tls,
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(over_tls)));
    resolve(&mut alone, vec![srv(10, 1)]);
    alone.command(placing(Duration::from_secs(60)));
    assert_eq!(alone.last().0.transport, Transport::Tls);
    asks_in_vain(&mut alone, CARRIER, 407, SHA);
}

/// A call is let in by its address, whatever its port is; who makes it from another port than the carrier's may be
/// another customer of the same host, and knows the carrier's realm.
#[test]
fn a_call_that_comes_in_from_another_port_of_the_carriers_address_is_given_nothing() {
    let call = CallId(CallId::FIRST_INCOMING);
    for (from, proof) in [
        (CARRIER, true),
        ("198.51.100.2:5080", true),
        ("198.51.100.1:5999", false),
        ("198.51.100.1:40000", false),
        // The trunk allows this address, with every port.
        ("192.0.2.1:5999", true),
    ] {
        let mut alone = registered();
        alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
        alone.answer(200, &[]);
        let invite = invite("", 1).replace("192.0.2.1", from);
        alone.bytes(from, &invite);
        alone.command(Command::Answer(call, sdp("answer")));
        let answer = alone.last_response();
        let to = format!("To: {}", answer.headers.get(&Name::To).unwrap());
        let ack = invite
            .replace("INVITE", "ACK")
            .replace("To: <sip:+15550100@carrier.example>", &to);
        alone.bytes(from, &ack);
        for wish in [
            Command::Info(call, Body::new("application/dtmf", "1")),
            Command::HangUp(call, None),
        ] {
            alone.command(wish);
            let (peer, request) = alone.last();
            assert_eq!(peer.addr, at(from), "{:?}", alone.told);
            let sent = alone.sent.len();
            alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
            let given = given(&alone, sent);
            assert_eq!(given, usize::from(proof), "{from} {:?}", request.method);
        }
    }
}
