//! Trunks whose carriers are known by name: when it is looked up, and who is let in by it. Where routes lead.

use super::alone::*;
use crate::lookups::{Full, Refused};

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
    // The look-up that is under way is wanted more urgently now, and no second one is asked for.
    assert_eq!(alone.asked.len(), 1);
    alone.command(place_as(CallId(3), Duration::from_secs(60)));
    let wanted: Vec<Urgency> = alone.wishes.iter().map(|wish| wish.urgency).collect();
    assert_eq!(
        wanted,
        [Urgency::Refresh, Urgency::Refresh, Urgency::Call],
        "{:?}",
        alone.wishes
    );
}

/// Nobody answers for the name that was asked for last.
fn fails(alone: &mut Alone) {
    let lookup = alone.asked.pop().unwrap();
    alone.step(Input::Resolved {
        lookup,
        answers: None,
        keep: Duration::ZERO,
    });
}

#[test]
fn a_name_that_was_not_found_is_asked_for_by_calls_and_not_by_what_can_wait() {
    let mut alone = Alone::new();
    let registers = |expires| Trunk {
        register: Some(Register {
            expires,
            user: "alice".to_owned(),
        }),
        keep_alive: Some(Duration::from_secs(1)),
        ..named(1)
    };
    alone.command(Command::SetTrunk(Box::new(registers(300))));
    // It fails until the wait is longer than half a minute.
    for _ in 0..4 {
        fails(&mut alone);
        while alone.asked.is_empty() {
            alone.run_for(Duration::from_secs(1));
        }
    }
    fails(&mut alone);
    let asked = alone.wishes.len();
    assert!(
        asked <= 6,
        "the trunk and its REGISTER ask together: {asked}"
    );
    // Its carrier is pinged each second, it registers when it is told to, it is changed, another trunk has the same
    // carrier.
    for at in 0..20 {
        alone.command(Command::Register(TrunkId(1)));
        alone.command(Command::SetTrunk(Box::new(registers(300 + at))));
        alone.command(Command::SetTrunk(Box::new(named_of(2, u64::from(at)))));
        alone.run_for(Duration::from_secs(1));
    }
    assert_eq!(alone.wishes.len(), asked, "{:?}", alone.wishes);
    // A call asks, and another one shares its look-up.
    alone.command(place_as(CallId(7), Duration::from_secs(60)));
    alone.command(place_as(CallId(8), Duration::from_secs(60)));
    assert_eq!(alone.wishes.len(), asked + 1);
    assert_eq!(alone.wishes[asked].urgency, Urgency::Call);
    let over = alone.told.len();
    fails(&mut alone);
    let failed = alone.told[over..]
        .iter()
        .filter(|told| told.contains("503"));
    assert_eq!(failed.count(), 2, "{:?}", alone.told);
    // Each call may ask once.
    alone.command(place_as(CallId(9), Duration::from_secs(60)));
    assert_eq!(alone.wishes.len(), asked + 2);
    leads_to(&mut alone, &[1]);
    assert!(alone.asked.is_empty());
    assert_eq!(heard(&mut alone), [1]);
}

#[test]
fn who_wants_a_name_is_told_and_a_call_of_another_tenant_wants_it_for_itself() {
    let mut alone = Alone::new();
    for (id, tenant) in [(1, 10), (2, 20)] {
        alone.command(Command::SetTrunk(Box::new(named_of(id, tenant))));
    }
    alone.command(placing(Duration::from_secs(60)));
    let Command::Place(call, mut place) = place_as(CallId(2), Duration::from_secs(60)) else {
        panic!("it is placed");
    };
    place.trunk = TrunkId(2);
    alone.command(Command::Place(call, place));
    let wished: Vec<(Tenant, Urgency)> = alone
        .wishes
        .iter()
        .map(|wish| (wish.tenant, wish.urgency))
        .collect();
    assert_eq!(
        wished,
        [
            (Tenant(10), Urgency::Refresh),
            (Tenant(20), Urgency::Refresh),
            (Tenant(10), Urgency::Call),
            (Tenant(20), Urgency::Call)
        ]
    );
    // One answer serves all of them.
    let sent = alone.sent.len();
    leads_to(&mut alone, &[1]);
    assert_eq!(alone.sent.len(), sent + 2);
}

/// A look-up found no room in the resolver.
fn refuse(alone: &mut Alone, wish: &Wish) {
    alone.asked.retain(|lookup| *lookup != wish.lookup);
    alone.step(Input::LookupRefused(Refused {
        wish: wish.clone(),
        full: Full::Tenant,
    }));
}

const CROWDED: &str = "too many look-ups of this account are waiting";

#[test]
fn a_look_up_without_room_is_an_overload_and_says_nothing_of_the_name() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    alone.command(place_as(CallId(1), Duration::from_secs(60)));
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    let wish = alone.wishes.last().unwrap().clone();
    assert_eq!(wish.urgency, Urgency::Call);
    let before = alone.endpoint.refusals().overload;
    refuse(&mut alone, &wish);
    assert_eq!(alone.told, ["ended by Network 503"; 2]);
    assert_eq!(alone.reasons, [CROWDED; 2]);
    assert_eq!(alone.endpoint.refusals().overload, before + 2);
    // The trunk's own look-up goes on, and serves the next call, which asks for itself as well.
    let wishes = alone.wishes.len();
    alone.command(place_as(CallId(3), Duration::from_secs(60)));
    assert_eq!(alone.wishes.len(), wishes + 1);
    alone.asked.push(wish.lookup);
    leads_to(&mut alone, &[1]);
    assert_eq!(alone.last().1.method, Method::Invite);
    assert_eq!(alone.told.len(), 2);
}

#[test]
fn what_has_no_room_is_wanted_again_as_soon_each_time() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named_of(1, 10))));
    let mut waits = Vec::new();
    for _ in 0..8 {
        let wish = alone.wishes.last().unwrap().clone();
        assert_eq!((wish.tenant, wish.urgency), (Tenant(10), Urgency::Refresh));
        refuse(&mut alone, &wish);
        let from = alone.now;
        while alone.asked.is_empty() {
            alone.run_for(Duration::from_millis(100));
        }
        waits.push(alone.now.since(from).as_secs());
    }
    assert!(waits.iter().all(|wait| (4..=5).contains(wait)), "{waits:?}");
    // Whoever wants the name meanwhile has it asked for at once.
    let wish = alone.wishes.last().unwrap().clone();
    refuse(&mut alone, &wish);
    let wishes = alone.wishes.len();
    alone.command(Command::SetTrunk(Box::new(named_of(2, 20))));
    assert_eq!(alone.wishes.len(), wishes + 1);
    leads_to(&mut alone, &[1]);
    assert_eq!(heard(&mut alone), [1]);
}

/// Several wait for one name, and the room of one of them is full.
#[test]
fn a_refused_look_up_fails_its_own_tenants_requests_alone() {
    let mut alone = Alone::new();
    for (id, tenant) in [(1, 10), (2, 20)] {
        alone.command(Command::SetTrunk(Box::new(named_of(id, tenant))));
    }
    for (call, trunk) in [(1, 1), (2, 2)] {
        let Command::Place(call, mut place) = place_as(CallId(call), Duration::from_secs(60))
        else {
            panic!("it is placed");
        };
        place.trunk = TrunkId(trunk);
        alone.command(Command::Place(call, place));
    }
    let wish = Wish {
        tenant: Tenant(10),
        ..alone.wishes.last().unwrap().clone()
    };
    refuse(&mut alone, &wish);
    assert_eq!(alone.told, ["ended by Network 503"]);
    assert_eq!(alone.endpoint.counts().resolving, 1);
    // A refresh of the other one fails no call.
    let refresh = Wish {
        tenant: Tenant(20),
        urgency: Urgency::Refresh,
        ..wish
    };
    refuse(&mut alone, &refresh);
    assert_eq!(alone.told.len(), 1);
    alone.asked.push(refresh.lookup);
    leads_to(&mut alone, &[1]);
    let (peer, invite) = alone.last();
    assert_eq!((invite.method, peer.addr.port()), (Method::Invite, 5080));
    assert_eq!(alone.endpoint.counts().resolving, 0);
}

/// The REGISTER that waits for a call's look-up fails with it, and the registrar is not taken for one that failed.
#[test]
fn a_registration_without_room_says_so_and_waits_no_longer_each_time() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(Trunk {
        register: Some(Register {
            expires: 300,
            user: "alice".to_owned(),
        }),
        ..named(1)
    })));
    for _ in 0..6 {
        let wish = alone.wishes.last().unwrap().clone();
        let (told, from) = (alone.told.len(), alone.now);
        refuse(&mut alone, &wish);
        assert_eq!(alone.told[told..], [format!("not registered: {CROWDED}")]);
        while alone.endpoint.counts().resolving == 0 {
            alone.run_for(Duration::from_secs(1));
            // The trunk's own look-up has its own pace.
            if alone.endpoint.counts().resolving == 0 && !alone.asked.is_empty() {
                let wish = alone.wishes.last().unwrap().clone();
                refuse(&mut alone, &wish);
            }
        }
        let waited = alone.now.since(from).as_secs();
        assert!((5..=31).contains(&waited), "{waited}");
    }
    leads_to(&mut alone, &[1]);
    assert_eq!(alone.last().1.method, Method::Register);
}

/// Behind one carrier's address calls may be of several tenants: what their routes name is looked up for nobody in
/// particular.
#[test]
fn what_a_call_names_is_looked_up_for_whom_it_is_of() {
    for (tenants, whose) in [(&[5][..], 5), (&[5, 5], 5), (&[5, 6], 0)] {
        let mut alone = Alone::new();
        for (id, tenant) in (1..).zip(tenants) {
            let own = Trunk {
                tenant: Tenant(*tenant),
                ..trunk(id, A, Transport::Udp)
            };
            alone.command(Command::SetTrunk(Box::new(own)));
        }
        let routed = "Record-Route: <sip:proxy.carrier.example;lr>\n";
        alone.bytes("192.0.2.1:5060", &invite(routed, 1));
        let call = CallId(CallId::FIRST_INCOMING);
        alone.command(Command::Answer(call, sdp("answer")));
        let answer = alone.last_response();
        let to = format!("To: {}", answer.headers.get(&Name::To).unwrap());
        let ack = invite("", 1)
            .replace("INVITE", "ACK")
            .replace("To: <sip:+15550100@carrier.example>", &to);
        alone.bytes("192.0.2.1:5060", &ack);
        alone.command(Command::HangUp(call, None));
        let wish = alone.wishes.last().unwrap();
        assert_eq!(wish.lookup.host, "proxy.carrier.example");
        assert_eq!(
            (wish.tenant, wish.urgency),
            (Tenant(whose), Urgency::Call),
            "{tenants:?}"
        );
    }
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
