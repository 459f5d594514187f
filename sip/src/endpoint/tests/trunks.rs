//! Trunks: registrations and the next address, who is let in.

use super::alone::*;
use crate::ids::Ids;
use crate::trunk::{Net, Outbound};

#[test]
fn a_registration_finds_its_registrar_answers_its_challenge_and_is_kept() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        register: Some(Register {
            expires: 120,
            user: "alice".to_owned(),
        }),
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    assert_eq!(
        alone.asked[0].service().as_deref(),
        Some("_sip._udp.carrier.example")
    );
    assert!(alone.sent.is_empty());
    resolve(&mut alone, vec![srv(20, 2), srv(10, 1)]);
    let (peer, register) = alone.last();
    assert_eq!(peer.addr, "198.51.100.1:5080".parse().unwrap());
    assert_eq!(register.method, Method::Register);
    alone.answer(401, &[(Name::WwwAuthenticate, CHALLENGE)]);
    let (_, register) = alone.last();
    assert!(register.headers.has(&Name::Authorization));
    assert_ne!(register.via(), alone.sent[0].1.clone().into_request().via());
    alone.answer(200, &[(Name::Expires, "100")]);
    assert_eq!(alone.told, ["registered 100"]);
    assert!(alone.traced.is_empty(), "a registration is no call");
    let sent = alone.sent.len();
    alone.run_for(Duration::from_secs(99));
    assert!(alone.sent.len() > sent, "not refreshed");
    alone.answer(200, &[]);
    alone.command(Command::RemoveTrunk(TrunkId(1)));
    let (_, last) = alone.last();
    assert_eq!(last.headers.get(&Name::Expires), Some("0"));
    alone.answer(200, &[]);
    alone.run_for(Duration::from_secs(60));
    assert_eq!(alone.endpoint.counts(), Counts::default());
    assert_eq!(alone.wait, Time::NEVER);
}

/// A registrar of two addresses, each of which knows its own nonces only.
#[test]
fn the_register_with_credentials_goes_to_the_server_that_asked_for_them() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        register: registering("alice").register,
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    let alike = [1, 2].map(|last| Srv {
        weight: 50,
        ..srv(10, last)
    });
    resolve(&mut alone, alike.to_vec());
    let stale = format!("{CHALLENGE}, stale=true");
    let mut asked = Vec::new();
    for _ in 0..16 {
        let (first, _) = alone.last();
        let sent = alone.sent.len();
        alone.answer(401, &[(Name::WwwAuthenticate, &stale)]);
        assert_eq!(alone.sent.len(), sent + 1);
        assert_eq!(alone.last().0, first);
        asked.push(first.addr);
        alone.answer(200, &[(Name::Expires, "100")]);
        alone.run_for(Duration::from_secs(99));
    }
    asked.dedup();
    assert!(asked.len() > 1, "both are asked first");
}

/// A trunk that registers as that user.
fn registering(user: &str) -> Trunk {
    Trunk {
        register: Some(Register {
            expires: 120,
            user: user.to_owned(),
        }),
        ..trunk(1, A, Transport::Udp)
    }
}

/// The last REGISTER: whose it is, for how long, and in which row of them.
fn register(alone: &Alone) -> (String, String, String) {
    let (_, register) = alone.last();
    assert_eq!(register.method, Method::Register);
    let expires = register.headers.get(&Name::Expires).unwrap();
    let user = register.to().unwrap().uri.user().unwrap();
    (user, expires.to_owned(), register.call_id().to_owned())
}

#[test]
fn a_trunk_that_is_changed_keeps_its_registration() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(registering("alice"))));
    let (_, _, row) = register(&alone);
    alone.answer(200, &[]);
    let mut changed = registering("alice");
    changed.allowed.clear();
    changed.credentials = Some(credentials());
    changed.register = Some(Register {
        expires: 300,
        user: "alice".to_owned(),
    });
    let sent = alone.sent.len();
    alone.command(Command::SetTrunk(Box::new(changed)));
    // It is asked for again, and nothing is taken back.
    assert_eq!(alone.sent.len(), sent + 1);
    let again = ("alice".to_owned(), "300".to_owned(), row);
    assert_eq!(register(&alone), again);
    alone.answer(401, &[(Name::WwwAuthenticate, CHALLENGE)]);
    assert!(alone.last().1.headers.has(&Name::Authorization));
    alone.answer(200, &[]);
    assert_eq!(alone.told, ["registered 120", "registered 300"]);
}

#[test]
fn a_binding_is_made_when_the_former_one_is_taken_back() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(registering("alice"))));
    alone.answer(200, &[]);
    let sent = alone.sent.len();
    alone.command(Command::SetTrunk(Box::new(registering("bob"))));
    // And changed again, while that is under way.
    alone.command(Command::RemoveTrunk(TrunkId(1)));
    alone.command(Command::SetTrunk(Box::new(registering("carol"))));
    assert_eq!(alone.sent.len(), sent + 1);
    let (user, expires, _) = register(&alone);
    assert_eq!((user.as_str(), expires.as_str()), ("alice", "0"));
    alone.answer(200, &[]);
    let (user, expires, _) = register(&alone);
    assert_eq!((user.as_str(), expires.as_str()), ("carol", "120"));
    alone.answer(200, &[]);
    assert_eq!(alone.told, ["registered 120", "registered 120"]);
    // A registrar that is away does not keep it from that.
    alone.command(Command::SetTrunk(Box::new(registering("dave"))));
    alone.run_for(Duration::from_secs(33));
    assert_eq!(register(&alone).0, "dave");
}

#[test]
fn a_registrar_that_is_away_is_tried_elsewhere_and_later() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        register: Some(Register {
            expires: 120,
            user: "alice".to_owned(),
        }),
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    resolve(&mut alone, vec![srv(10, 1), srv(20, 2), srv(30, 3)]);
    // The first does not answer at all, the second is overloaded, the third cannot be reached.
    alone.run_for(Duration::from_secs(32));
    assert_eq!(alone.last().0.addr, "198.51.100.2:5080".parse().unwrap());
    alone.answer(503, &[]);
    let (third, _) = alone.last();
    assert_eq!(third.addr, "198.51.100.3:5080".parse().unwrap());
    alone.step(Input::Failed(third));
    assert_eq!(alone.told, ["not registered: cannot be reached"]);
    alone.run_for(Duration::from_secs(30));
    assert!(alone.sent.len() > 11 + 2);
}

#[test]
fn a_name_without_an_address_fails_the_call_and_one_let_go_is_never_sent() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    alone.command(placing(Duration::from_secs(60)));
    let lookup = alone.asked.pop().unwrap();
    alone.step(Input::Resolved {
        lookup,
        answers: None,
        keep: Duration::ZERO,
    });
    assert_eq!(alone.told, ["ended by Network 503"]);
    alone.command(placing(Duration::from_secs(60)));
    alone.command(Command::HangUp(CALL, None));
    resolve(&mut alone, vec![srv(10, 1)]);
    assert_eq!(alone.told[1..], ["ended by Local"]);
    assert!(alone.sent.is_empty());
    assert_eq!(alone.endpoint.counts(), Counts::default());
}

#[test]
fn a_stranger_calls_a_digest_trunk_with_the_password_and_not_without() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        inbound: InboundAuth::Digest,
        allowed: Vec::new(),
        host: None,
        credentials: Some(credentials()),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    let stranger = "203.0.113.9:7777";
    // What is no INVITE gets silence from an open trunk too.
    alone.bytes(stranger, &invite("", 1).replace("INVITE", "OPTIONS"));
    alone.bytes(stranger, &invite("", 1).replace("INVITE", "REGISTER"));
    alone.bytes(stranger, &invite("", 1).replace("CSeq: 1 ", "CSeq: x "));
    assert!(alone.sent.is_empty());
    alone.bytes(stranger, &invite("", 1));
    let asked = alone.last_response();
    assert_eq!(asked.code, 401);
    // rport: the answer goes to where it came from.
    assert_eq!(alone.sent[0].0.addr, stranger.parse().unwrap());
    let via = asked.via().unwrap();
    assert_eq!(via.params.get("received").as_deref(), Some("203.0.113.9"));
    assert_eq!(via.params.get("rport").as_deref(), Some("7777"));
    let challenge = asked
        .headers
        .get(&Name::WwwAuthenticate)
        .unwrap()
        .to_owned();
    let mut shapes = Vec::new();
    for (number, (user, password)) in [("alice", "wrong"), ("nobody", "secret")]
        .into_iter()
        .enumerate()
    {
        let number = u32::try_from(number).unwrap() + 2;
        alone.bytes(
            stranger,
            &invite(&authorization(&challenge, user, password), number),
        );
        let refused = alone.last_response();
        shapes.push((
            refused.code,
            refused.reason.clone(),
            refused.to_bytes().len(),
        ));
    }
    // No oracle: a wrong password and an unknown user get the same answer.
    assert_eq!(shapes[0], shapes[1]);
    assert_eq!(shapes[0].0, 401);
    assert!(alone.told.is_empty());
    alone.bytes(
        stranger,
        &invite(&authorization(&challenge, "alice", "secret"), 9),
    );
    assert_eq!(alone.told, ["incoming"]);
    // The same credentials again, from a scanner that saw them.
    alone.bytes(
        stranger,
        &invite(&authorization(&challenge, "alice", "secret"), 10),
    );
    let replayed = alone.last_response();
    assert_eq!(replayed.code, 401);
    let again = replayed.headers.get(&Name::WwwAuthenticate).unwrap();
    assert!(again.contains("stale=true"), "{again}");
}

#[test]
fn an_address_alone_does_not_open_a_trunk_that_wants_both() {
    let mut alone = Alone::new();
    let trunk = Trunk {
        inbound: InboundAuth::AddressAndDigest,
        credentials: Some(credentials()),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(trunk)));
    alone.bytes("192.0.2.1:5060", &invite("", 1));
    let challenge = alone.last_response();
    let challenge = challenge
        .headers
        .get(&Name::WwwAuthenticate)
        .unwrap()
        .to_owned();
    let right = authorization(&challenge, "alice", "secret");
    // The password from elsewhere is not heard at all.
    alone.bytes("203.0.113.9:5060", &invite(&right, 2));
    assert!(alone.told.is_empty());
    alone.bytes("192.0.2.1:5060", &invite(&right, 3));
    assert_eq!(alone.told, ["incoming"]);
}

#[test]
fn a_peer_of_a_live_call_is_heard_and_one_of_a_dead_call_is_not() {
    let mut world = World::new(3, 0, Transport::Udp);
    let call = world.up();
    world.do_now(B, Command::RemoveTrunk(TrunkId(2)));
    let options = invite("", 1)
        .replace("INVITE", "OPTIONS")
        .replace('\n', "\r\n");
    let probe = |world: &mut World| {
        let from = world.mark();
        world.step(
            B,
            Input::Datagram {
                from: address(A),
                bytes: options.as_bytes(),
            },
        );
        world.line(from)
    };
    assert_eq!(probe(&mut world), "B:200/OPTIONS");
    world.do_now(B, Command::HangUp(call, None));
    world.run_out();
    assert_eq!(probe(&mut world), "");
}

#[test]
fn a_flood_of_strangers_costs_nothing_and_hurts_nobody() {
    let mut world = World::new(3, 0, Transport::Udp);
    let call = world.up();
    let from = world.mark();
    let mut ids = Ids::from_number(1);
    let text = invite("", 1).replace('\n', "\r\n");
    for _ in 0..10_000 {
        let source = SocketAddr::new(
            IpAddr::from([203, 0, 113, u8::try_from(ids.below(255)).unwrap()]),
            5060,
        );
        world.step(
            B,
            Input::Datagram {
                from: source,
                bytes: text.as_bytes(),
            },
        );
    }
    assert_eq!(world.line(from), "");
    assert_eq!(world.nodes[B].endpoint.refusals().silenced, 10_000);
    world.do_now(B, Command::HangUp(call, None));
    world.run_out();
    world.assert_empty();
}

#[test]
fn beyond_its_bounds_an_endpoint_says_503() {
    let mut config = Config::new(vec![Advertised {
        transport: Transport::Udp,
        host: Host::Ip(address(B).ip()),
        port: 5060,
    }]);
    config.most_calls = 2;
    let mut alone = Alone {
        endpoint: Endpoint::new(config, [7; 32]),
        ..Alone::new()
    };
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    for number in 1..=3 {
        alone.bytes("192.0.2.1:5060", &invite("", number));
    }
    assert_eq!(alone.told, ["incoming", "incoming"]);
    let refused = alone.last_response();
    assert_eq!(refused.code, 503);
    assert_eq!(refused.headers.get(&Name::RetryAfter), Some("5"));
    assert_eq!(alone.endpoint.refusals().overload, 1);
    alone.command(placing(Duration::from_secs(1)));
    assert_eq!(
        alone.told.last().map(String::as_str),
        Some("ended by Local 503")
    );
}

#[test]
fn a_carrier_is_asked_whether_it_is_there() {
    let mut alone = Alone::new();
    let asks = Trunk {
        keep_alive: Some(Duration::from_secs(60)),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(asks)));
    let (_, options) = alone.last();
    assert_eq!(options.method, Method::Options);
    // Any answer will do.
    alone.answer(404, &[]);
    assert_eq!(alone.told, ["reachable true"]);
    alone.run_for(Duration::from_secs(200));
    assert_eq!(alone.told, ["reachable true", "reachable false"]);
    alone.run_for(Duration::from_secs(45));
    alone.answer(200, &[]);
    alone.run_for(Duration::from_secs(20));
    assert_eq!(alone.told.len(), 3);
}

#[test]
fn a_merged_invite_is_refused_and_the_same_one_again_is_not() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone.bytes("192.0.2.1:5060", &invite("", 1));
    alone.bytes("192.0.2.1:5060", &invite("", 1));
    assert_eq!(alone.last_response().code, 100);
    alone.bytes(
        "192.0.2.1:5060",
        &invite("", 1).replace("z9hG4bKt1", "z9hG4bKother"),
    );
    assert_eq!(alone.last_response().code, 482);
    assert_eq!(alone.told, ["incoming"]);
    // A CANCEL of nothing, and of that call.
    let cancel = invite("", 1)
        .replace("CSeq: 1 INVITE", "CSeq: 1 CANCEL")
        .replace("INVITE sip", "CANCEL sip");
    alone.bytes(
        "192.0.2.1:5060",
        &cancel.replace("z9hG4bKt1", "z9hG4bKnone"),
    );
    assert_eq!(alone.last_response().code, 481);
    alone.bytes("192.0.2.1:5060", &cancel);
    assert_eq!(alone.last_response().code, 487);
    assert_eq!(
        alone.told.last().map(String::as_str),
        Some("ended by Remote 487")
    );
}

/// Where the last message went.
fn went(alone: &Alone) -> String {
    let peer = &alone.sent.last().unwrap().0;
    format!("{:?} {}", peer.transport, peer.addr)
}

#[test]
fn an_address_that_a_carrier_names_is_called_only_where_it_may_be() {
    let inside = "<sip:x@127.0.0.1:6379;transport=tcp>";
    let public = "<sip:x@203.0.113.9:5070>";
    let sibling = "<sip:x@192.0.2.77>";
    let carrier = "Udp 192.0.2.1:5060";
    for (contact, route, expected) in [
        (inside, None, carrier),
        (public, None, "Udp 203.0.113.9:5070"),
        // An address of the same trunk.
        (sibling, None, "Udp 192.0.2.77:5060"),
        (public, Some("<sip:10.0.0.5:80;transport=tcp;lr>"), carrier),
        (inside, Some("<sip:203.0.113.8;lr>"), "Udp 203.0.113.8:5060"),
    ] {
        let mut alone = Alone::new();
        alone
            .endpoint
            .judge_by(Arc::new(|ip| ip.to_string().starts_with("203.")));
        let carrier = Trunk {
            allowed: vec![Net::parse("192.0.2.64/26").unwrap()],
            ..trunk(1, A, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(carrier)));
        alone.command(placing(Duration::from_secs(60)));
        let mut fields = vec![(Name::Contact, contact)];
        fields.extend(route.map(|route| (Name::RecordRoute, route)));
        alone.answer(200, &fields);
        assert_eq!(alone.last().1.method, Method::Ack);
        assert_eq!(went(&alone), expected, "{contact} {route:?}");
        alone.command(Command::HangUp(CALL, None));
        assert_eq!(alone.last().1.method, Method::Bye);
        assert_eq!(went(&alone), expected, "{contact} {route:?}");
    }
}

#[test]
fn the_domain_of_a_trunk_is_called_through_its_proxy_or_itself() {
    for (outbound, uri, over) in [
        (
            Outbound::Host,
            "sip:+15550100@192.0.2.1:5060",
            Some("Udp 192.0.2.1:5060"),
        ),
        (
            Outbound::Proxy,
            "sip:+15550100@acme.example",
            Some("Udp 192.0.2.1:5060"),
        ),
        (Outbound::Direct, "sip:+15550100@acme.example", None),
    ] {
        let mut alone = Alone::new();
        let own = Trunk {
            outbound,
            domain: Host::parse("acme.example"),
            ..trunk(1, A, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(own)));
        alone.command(placing(Duration::from_secs(60)));
        if over.is_none() {
            assert_eq!(alone.asked.last().unwrap().host, "acme.example");
            resolve(&mut alone, vec![srv(10, 1)]);
        }
        let over = over.unwrap_or("Udp 198.51.100.1:5080");
        let (_, invite) = alone.last();
        assert_eq!(
            (invite.uri.to_string().as_str(), went(&alone).as_str()),
            (uri, over),
            "{outbound:?}"
        );
        let from = invite.headers.get(&Name::From).unwrap();
        assert!(from.contains("@acme.example"), "{from}");
    }
}

#[test]
fn a_trunk_that_registers_is_asked_with_options_after_a_while() {
    let mut alone = Alone::new();
    let registers = Trunk {
        keep_alive: Some(Duration::from_secs(30)),
        register: Some(Register {
            expires: 600,
            user: "alice".to_owned(),
        }),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(registers)));
    assert_eq!(alone.last().1.method, Method::Register);
    alone.answer(200, &[(Name::Expires, "600")]);
    alone.run_for(Duration::from_secs(29));
    assert_eq!(alone.last().1.method, Method::Register);
    alone.run_for(Duration::from_secs(1));
    assert_eq!(alone.last().1.method, Method::Options);
    assert_eq!(went(&alone), "Udp 192.0.2.1:5060");
}

/// Two accounts whose carriers' names lead to one address: each is spoken with over a connection of its own,
/// on which its own name's certificate is asked for.
#[test]
fn a_connection_over_tls_is_for_one_name() {
    let mut alone = Alone::new();
    for (id, host) in [(1, "one.example"), (2, "two.example")] {
        let trunk = Trunk {
            host: Host::parse(host),
            transport: Transport::Tls,
            register: Some(Register {
                expires: 120,
                user: "alice".to_owned(),
            }),
            ..named(id)
        };
        alone.command(Command::SetTrunk(Box::new(trunk)));
        leads_to(&mut alone, &[1]);
    }
    let peers: Vec<&Peer> = alone.sent.iter().map(|(peer, _)| peer).collect();
    let names: Vec<Option<&str>> = peers.iter().map(|peer| peer.name.as_deref()).collect();
    assert_eq!(names, [Some("one.example"), Some("two.example")]);
    assert_eq!(peers[0].addr, peers[1].addr);
    // What fails over the one is nothing to the other.
    let one = peers[0].clone();
    alone.step(Input::Failed(one));
    assert_eq!(alone.told, ["not registered: cannot be reached"]);
}
