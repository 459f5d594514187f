//! Trunks whose carriers are known by name: when it is looked up, and who is let in by it. Where routes lead.

use super::alone::*;

/// Which of ten addresses of a carrier are heard.
fn heard(alone: &mut Alone) -> Vec<u8> {
    let options = invite("", 1).replace("INVITE", "OPTIONS");
    let hears = |alone: &mut Alone, last: u8| {
        let sent = alone.sent.len();
        alone.bytes(&format!("198.51.100.{last}:5060"), &options);
        alone.sent.len() > sent
    };
    (1..=10).filter(|last| hears(alone, *last)).collect()
}

#[test]
fn an_address_that_a_carrier_gave_up_is_not_trusted_for_ever() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    leads_to(&mut alone, &[1, 2]);
    assert_eq!(heard(&mut alone), [1, 2]);
    // The next look-up, 300 s on, finds another set: the former is heard for five minutes more.
    alone.run_for(Duration::from_secs(300));
    leads_to(&mut alone, &[2, 3]);
    assert_eq!(heard(&mut alone), [1, 2, 3]);
    // A resolver that is away takes nobody's trust.
    alone.run_for(Duration::from_secs(300));
    let lookup = alone.asked.pop().unwrap();
    alone.step(Input::Resolved {
        lookup,
        answers: None,
        keep: Duration::from_secs(5),
    });
    assert_eq!(heard(&mut alone), [1, 2, 3]);
    alone.run_for(Duration::from_secs(300));
    leads_to(&mut alone, &[3]);
    assert_eq!(heard(&mut alone), [2, 3]);
    // One that comes back within its grace stays.
    alone.run_for(Duration::from_secs(300));
    leads_to(&mut alone, &[2]);
    assert_eq!(heard(&mut alone), [2, 3]);
    alone.run_for(Duration::from_secs(300));
    leads_to(&mut alone, &[2]);
    assert_eq!(heard(&mut alone), [2]);
}

/// Runs for so many seconds; when each name was asked for. `found`: each leads to one address.
fn asked(alone: &mut Alone, seconds: u64, found: bool) -> Vec<u64> {
    let mut times = Vec::new();
    for _ in 0..seconds {
        for lookup in std::mem::take(&mut alone.asked) {
            times.push(alone.now.as_secs());
            alone.step(Input::Resolved {
                lookup,
                answers: found.then(|| Answers {
                    srv: vec![srv(10, 1)],
                    addresses: Vec::new(),
                }),
                keep: Duration::from_secs(5),
            });
        }
        alone.run_for(Duration::from_secs(1));
    }
    times
}

/// A resolver that is away for a moment, or has no room, does not keep a carrier out for five minutes.
#[test]
fn a_name_that_is_not_found_is_looked_up_again_soon_and_then_more_slowly() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    let waits =
        |times: &[u64]| -> Vec<u64> { times.windows(2).map(|two| two[1] - two[0]).collect() };
    let waits_in_vain = waits(&asked(&mut alone, 1_300, false));
    let most = [5, 10, 20, 40, 80, 160, 300, 300];
    assert!(waits_in_vain.len() >= most.len(), "{waits_in_vain:?}");
    for (wait, most) in waits_in_vain.iter().zip(most) {
        let about = most * 4 / 5..=most + 1;
        assert!(about.contains(wait), "{waits_in_vain:?}");
    }
    assert_eq!(heard(&mut alone), [0; 0]);
    // Once it is found the interval is the usual one, and after that it begins anew.
    let found = waits(&asked(&mut alone, 900, true));
    assert!(
        !found.is_empty() && found.iter().all(|wait| *wait >= 239),
        "{found:?}"
    );
    assert_eq!(heard(&mut alone), [1]);
    assert!(asked(&mut alone, 400, false).len() > 3);
    assert_eq!(heard(&mut alone), [1]);
}

/// There is room for 256 look-ups at a time.
#[test]
fn many_trunks_do_not_look_their_names_up_all_at_once() {
    let mut alone = Alone::new();
    for id in 1..=300 {
        let trunk = Trunk {
            host: Host::parse(&format!("carrier{id}.example")),
            ..named(id)
        };
        alone.command(Command::SetTrunk(Box::new(trunk)));
    }
    assert_eq!(asked(&mut alone, 1, true).len(), 300);
    let times = asked(&mut alone, 301, true);
    assert_eq!(times.len(), 300);
    let at_once = times.chunk_by(|one, two| one == two).map(<[u64]>::len);
    assert!(at_once.max() < Some(30), "{times:?}");
}

#[test]
fn a_trunk_that_is_changed_is_heard_from_where_it_was_found() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    leads_to(&mut alone, &[1]);
    alone.command(Command::SetTrunk(Box::new(named(1))));
    assert_eq!(heard(&mut alone), [1]);
    alone.command(Command::RemoveTrunk(TrunkId(1)));
    assert_eq!(heard(&mut alone), [0; 0]);
}

#[test]
fn a_carrier_with_more_addresses_than_are_kept_is_heard_from_the_latest() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    leads_to(&mut alone, &[1]);
    for round in 0..4_u8 {
        alone.run_for(Duration::from_secs(300));
        let from = 11 + round * 60;
        let all: Vec<u8> = (from..from + 60).collect();
        leads_to(&mut alone, &all);
    }
    let known = alone.endpoint.trunks[&TrunkId(1)].addresses();
    assert_eq!(known, 64);
}

/// A resolver that is away does not keep calls from a carrier that was found an hour ago.
#[test]
fn what_is_known_of_a_name_serves_while_it_is_looked_up_again() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    leads_to(&mut alone, &[1]);
    // Kept for ten minutes; nobody answers the look-ups since.
    alone.run_for(Duration::from_secs(601));
    assert_eq!(alone.asked.len(), 1);
    alone.command(placing(Duration::from_secs(60)));
    assert_eq!(alone.last().0.addr, "198.51.100.1:5080".parse().unwrap());
    alone.run_for(Duration::from_secs(3_600));
    let sent = alone.sent.len();
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    assert_eq!(alone.sent.len(), sent, "what is older is not believed");
    // Nor is a second question asked while one is under way.
    assert_eq!(alone.asked.len(), 1);
}

/// RFC 3261 8.1.2: where the first router is a strict one the request goes to it, as its Request-URI says, and not
/// to the loose one behind it.
#[test]
fn a_request_goes_to_the_first_router_whether_it_is_strict_or_loose() {
    for (routes, first, uri) in [
        (
            "Record-Route: <sip:192.0.2.77>, <sip:192.0.2.78;lr>\n",
            77,
            "sip:192.0.2.77",
        ),
        ("Record-Route: <sip:192.0.2.77>\n", 77, "sip:192.0.2.77"),
        (
            "Record-Route: <sip:192.0.2.78;lr>, <sip:192.0.2.77>\n",
            78,
            "sip:+15550123@192.0.2.1",
        ),
    ] {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
        alone.bytes("192.0.2.1:5060", &invite(routes, 1));
        let call = CallId(CallId::FIRST_INCOMING);
        alone.command(Command::Answer(call, sdp("answer")));
        let answer = alone.last_response();
        let to = format!("To: {}", answer.headers.get(&Name::To).unwrap());
        let ack = invite("", 1)
            .replace("INVITE", "ACK")
            .replace("To: <sip:+15550100@carrier.example>", &to);
        alone.bytes("192.0.2.1:5060", &ack);
        alone.command(Command::HangUp(call, None));
        let (peer, bye) = alone.last();
        assert_eq!(bye.method, Method::Bye, "{routes}");
        assert_eq!(bye.uri.to_string(), uri, "{routes}");
        let there = SocketAddr::new(IpAddr::from([192, 0, 2, first]), 5060);
        assert_eq!(peer.addr, there, "{routes}");
    }
}
