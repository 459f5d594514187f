//! Who asks for a trunk's password and is not its carrier: a stranger whom an answer names, a callee behind the
//! carrier's proxy, whoever answers in its place.

use super::alone::*;
use crate::message::Body;
use crate::message::header::AuthValue;
use crate::trunk::{Outbound, RegistrarRealms};

pub(super) const CARRIER: &str = "198.51.100.1:5080";
pub(super) const STRANGER: &str = "203.0.113.66:5060";

/// Of the carrier's realm.
pub(super) const SHA: &str = CHALLENGE;

/// All that somebody may ask for a password with.
pub(super) const ASKED: [&str; 4] = [
    "Digest realm=\"evil\", nonce=\"n\"",
    "Digest realm=\"evil\", nonce=\"n\", qop=\"auth\", algorithm=SHA-256",
    "Digest realm=\"r\", nonce=\"n\"",
    SHA,
];

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The trunk of a carrier with two hosts, each of which is tried.
fn trunk_of_two() -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(named(1))));
    resolve(&mut alone, vec![srv(10, 1), srv(20, 2)]);
    alone
}

/// A call whose INVITE the carrier asked for the password, in its realm.
fn asked_by_the_carrier(alone: &mut Alone) {
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
    let (peer, invite) = alone.last();
    assert_eq!(peer.addr, at(CARRIER));
    assert!(proves(&invite));
}

/// Such a call, which is answered with these fields.
pub(super) fn up(fields: &[(Name, &str)]) -> Alone {
    let mut alone = trunk_of_two();
    asked_by_the_carrier(&mut alone);
    alone.answer(200, fields);
    alone
}

pub(super) fn proves(request: &Request) -> bool {
    [Name::Authorization, Name::ProxyAuthorization]
        .iter()
        .any(|name| request.headers.has(name))
}

/// The requests with credentials from that one on.
pub(super) fn given(alone: &Alone, from: usize) -> usize {
    let requests = alone.sent[from..].iter();
    requests
        .filter(|(_, message)| matches!(message, Message::Request(request) if proves(request)))
        .count()
}

fn header(code: u16) -> Name {
    match code {
        401 => Name::WwwAuthenticate,
        _ => Name::ProxyAuthenticate,
    }
}

/// Asks for the password in answer to the last request, from there. Nothing but an ACK is sent for it, and the
/// trunk's user is told.
#[track_caller]
pub(super) fn asks_in_vain(alone: &mut Alone, from: &str, code: u16, challenge: &str) {
    let (mut peer, request) = alone.last();
    let (sent, told) = (alone.sent.len(), alone.told.len());
    peer.addr = at(from);
    alone.answer_to(&peer, &request, code, &[(header(code), challenge)]);
    let what = format!("{} {code} {challenge} of {from}", request.method.as_str());
    assert_eq!(given(alone, sent), 0, "{what}");
    let begins = format!(
        "withheld {code} {}: challenge not answered: ",
        request.method.as_str()
    );
    let mut told = alone.told[told..].iter();
    assert!(
        told.any(|told| told.starts_with(&begins)),
        "{what}: {:?}",
        alone.told
    );
}

/// What a call that is up is to ask for, and the method of it.
pub(super) fn wishes() -> Vec<(Method, Command)> {
    vec![
        (
            Method::Info,
            Command::Info(CALL, Body::new("application/dtmf", "1")),
        ),
        (Method::Invite, Command::Offer(CALL, sdp("hold"))),
        (
            Method::Refer,
            Command::Refer(CALL, "sip:x@example.com".to_owned(), None),
        ),
        (Method::Bye, Command::HangUp(CALL, None)),
    ]
}

#[test]
fn a_stranger_whom_the_answer_names_is_given_nothing_whatever_it_asks_with() {
    let contact = format!("<sip:evil@{STRANGER}>");
    for challenge in ASKED {
        for code in [401, 407] {
            for (method, wish) in wishes() {
                let mut alone = up(&[(Name::Contact, &contact)]);
                let sent = alone.sent.len() - 1;
                // The ACK goes there too, and is none of the proxy's that asked.
                assert_eq!(alone.last().1.method, Method::Ack);
                assert_eq!(given(&alone, sent), 0);
                alone.command(wish);
                let (peer, request) = alone.last();
                assert_eq!((&request.method, peer.addr), (&method, at(STRANGER)));
                asks_in_vain(&mut alone, STRANGER, code, challenge);
                // Nor where it writes the carrier's address on what it sends.
                asks_in_vain_again(&mut alone, &method, code, challenge);
                alone.run_for(Duration::from_secs(40));
                assert_eq!(given(&alone, sent), 0, "{method:?} {code} {challenge}");
            }
        }
    }
}

/// The same for the next request of its kind, as if it came from the carrier.
#[track_caller]
fn asks_in_vain_again(alone: &mut Alone, method: &Method, code: u16, challenge: &str) {
    let wish = match method {
        Method::Info => Command::Info(CALL, Body::new("application/dtmf", "2")),
        Method::Refer => Command::Refer(CALL, "sip:y@example.com".to_owned(), None),
        _ => return,
    };
    alone.command(wish);
    asks_in_vain(alone, CARRIER, code, challenge);
}

/// Its answer takes an hour's refresh by UPDATE, and rings reliably before.
#[test]
fn a_stranger_is_given_nothing_for_a_prack_and_a_refresh() {
    for challenge in ASKED {
        let mut alone = trunk_of_two();
        asked_by_the_carrier(&mut alone);
        let (peer, invite) = alone.last();
        let contact = format!("<sip:evil@{STRANGER}>");
        let rings: [(Name, &str); 3] = [
            (Name::Contact, &contact),
            (Name::Require, "100rel"),
            (Name::RSeq, "7"),
        ];
        alone.answer_to(&peer, &invite, 180, &rings);
        let (there, prack) = alone.last();
        assert_eq!((prack.method, there.addr), (Method::Prack, at(STRANGER)));
        asks_in_vain(&mut alone, STRANGER, 401, challenge);
        let answer: [(Name, &str); 3] = [
            (Name::Contact, &contact),
            (Name::Allow, "INVITE, UPDATE, BYE"),
            (Name::SessionExpires, "90;refresher=uac"),
        ];
        alone.answer_to(&peer, &invite, 200, &answer);
        let sent = alone.sent.len();
        alone.run_for(Duration::from_secs(46));
        let (there, update) = alone.last();
        assert_eq!((update.method, there.addr), (Method::Update, at(STRANGER)));
        asks_in_vain(&mut alone, STRANGER, 407, challenge);
        alone.run_for(Duration::from_secs(200));
        assert_eq!(given(&alone, sent), 0, "{challenge}");
    }
}

/// A callee's challenges come from the carrier's own address.
#[test]
fn a_callee_behind_the_carriers_proxy_is_given_nothing_in_its_own_realm() {
    let route = format!("<sip:{CARRIER};lr>");
    let evil = ASKED.into_iter().filter(|asked| asked.contains("evil"));
    for challenge in evil {
        for code in [401, 407] {
            for (method, wish) in wishes() {
                let contact = format!("<sip:evil@{STRANGER}>");
                let mut alone = up(&[(Name::RecordRoute, &route), (Name::Contact, &contact)]);
                alone.command(wish);
                let (peer, request) = alone.last();
                assert_eq!((request.method, peer.addr), (method, at(CARRIER)));
                asks_in_vain(&mut alone, CARRIER, code, challenge);
            }
            // Nor for the INVITE, once the carrier has asked.
            let mut alone = trunk_of_two();
            asked_by_the_carrier(&mut alone);
            asks_in_vain(&mut alone, CARRIER, code, challenge);
            assert!(alone.told.contains(&format!("ended by Remote {code}")));
        }
    }
}

/// A transparent proxy passes on what a callee answers, and the callee knows the carrier's realm.
#[test]
fn a_callee_who_copies_the_carriers_realm_is_found_out_by_its_status_code() {
    let contact = format!("<sip:callee@{CARRIER}>");
    for (usual, other) in [(407, 401), (401, 407)] {
        let placed = || {
            let mut alone = trunk_of_two();
            alone.command(placing(Duration::from_secs(60)));
            alone.answer(usual, &[(header(usual), SHA)]);
            assert!(proves(&alone.last().1), "the carrier itself");
            alone
        };
        let reason = format!("{other} in the realm in which the trunk's carrier asks with {usual}");
        let is_told = |alone: &Alone| alone.told.iter().any(|told| told.ends_with(&reason));
        // Of the INVITE that the carrier passed on.
        let mut alone = placed();
        asks_in_vain(&mut alone, CARRIER, other, SHA);
        assert!(is_told(&alone), "{:?}", alone.told);
        // Of the first INVITE of a later call, and of all that follows an answer.
        alone.command(place_as(CallId(2), Duration::from_secs(60)));
        asks_in_vain(&mut alone, CARRIER, other, SHA);
        for (_, wish) in wishes() {
            let mut alone = placed();
            alone.answer(200, &[(Name::Contact, &contact)]);
            alone.command(wish);
            asks_in_vain(&mut alone, CARRIER, other, SHA);
            assert!(is_told(&alone), "{:?}", alone.told);
        }
        // The trunk is set anew, with another password: its carrier is, too.
        let anew = Trunk {
            credentials: Some(Credentials::new("alice", "new")),
            ..named(1)
        };
        alone.command(Command::SetTrunk(Box::new(anew)));
        alone.command(place_as(CallId(3), Duration::from_secs(60)));
        alone.answer(other, &[(header(other), SHA)]);
        assert!(proves(&alone.last().1));
    }
}

/// Who has it ring is a callee, though it ask with all that the carrier asks with.
#[test]
fn an_invite_that_has_reached_somebody_is_not_given_credentials() {
    let stale = format!("{SHA}, stale=true");
    for progress in [180, 181, 183, 199] {
        let mut alone = trunk_of_two();
        asked_by_the_carrier(&mut alone);
        alone.answer_to(&alone.last().0, &alone.last().1, progress, &[]);
        asks_in_vain(&mut alone, CARRIER, 407, &stale);
        let reason = "the call had reached somebody, who is not the carrier";
        assert!(alone.reasons[0].ends_with(reason), "{:?}", alone.reasons);
    }
    // Without credentials before, and where the realm is known from a REGISTER.
    let mut alone = registered();
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    alone.answer(200, &[]);
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(183, &[]);
    asks_in_vain(&mut alone, CARRIER, 407, SHA);
    // That it is on its way is said by the carrier.
    let mut alone = trunk_of_two();
    alone.command(placing(Duration::from_secs(60)));
    let (peer, invite) = alone.last();
    alone.answer_to(&peer, &invite, 100, &[]);
    alone.answer_to(&peer, &invite, 407, &[(Name::ProxyAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
}

#[test]
fn the_carrier_itself_is_given_them_within_a_call() {
    // By its other host as well, to which no request of this call went before.
    for host in [CARRIER, "198.51.100.2:5080"] {
        for (method, wish) in wishes() {
            let contact = format!("<sip:callee@{host}>");
            let mut alone = up(&[(Name::Contact, &contact)]);
            assert!(proves(&alone.last().1), "the ACK");
            alone.command(wish);
            alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
            let (peer, again) = alone.last();
            assert_eq!((&again.method, peer.addr), (&method, at(host)));
            assert!(proves(&again), "{method:?}");
            // A port of it that is not the carrier's is somebody else's.
            let other = format!("{}:5999", at(host).ip());
            let mut alone = up(&[(Name::Contact, &format!("<sip:callee@{other}>"))]);
            alone.command(Command::HangUp(CALL, None));
            asks_in_vain(&mut alone, &other, 407, SHA);
        }
    }
}

/// Where the carrier takes calls without a password, and where it rings already, a callee is the first who asks.
#[test]
fn what_is_asked_within_a_call_or_after_it_rang_names_no_realm() {
    let contact = format!("<sip:callee@{CARRIER}>");
    let mut alone = trunk_of_two();
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(200, &[(Name::Contact, &contact)]);
    for (_, wish) in wishes() {
        alone.command(wish);
        asks_in_vain(&mut alone, CARRIER, 401, SHA);
    }
    let mut alone = trunk_of_two();
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(180, &[]);
    let (peer, request) = alone.last();
    assert_eq!((request.method, peer.addr), (Method::Invite, at(CARRIER)));
    asks_in_vain(&mut alone, CARRIER, 401, ASKED[1]);
    // What was withheld is not remembered: the carrier may still ask.
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
}

#[test]
fn a_carrier_that_begins_to_ask_after_calls_that_it_took_unasked_is_answered() {
    let contact = format!("<sip:callee@{CARRIER}>");
    let taken = |alone: &mut Alone, call| {
        alone.command(place_as(call, Duration::from_secs(60)));
        alone.answer(200, &[(Name::Contact, &contact)]);
        alone.command(Command::HangUp(call, None));
        // A callee who asks is none that begins to ask.
        asks_in_vain(alone, CARRIER, 407, ASKED[1]);
    };
    let mut alone = trunk_of_two();
    taken(&mut alone, CallId(1));
    taken(&mut alone, CallId(2));
    alone.command(place_as(CallId(3), Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
    alone.answer(486, &[]);
    // From then on that is its realm.
    alone.command(place_as(CallId(4), Duration::from_secs(60)));
    asks_in_vain(&mut alone, CARRIER, 407, ASKED[1]);
    // Where it has a registrar, that one has named it.
    let mut alone = registered();
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    alone.answer(200, &[]);
    taken(&mut alone, CallId(1));
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    asks_in_vain(&mut alone, CARRIER, 407, ASKED[1]);
}

/// RFC 3261 22.3: one answer with the challenges of two servers.
#[test]
fn a_carrier_that_asks_in_two_realms_at_once_is_given_both() {
    let far = "Digest realm=\"far\", nonce=\"f\", qop=\"auth\"";
    let both = [
        (Name::ProxyAuthenticate, SHA),
        (Name::ProxyAuthenticate, far),
    ];
    let realms = |alone: &Alone| -> Vec<String> {
        let (_, request) = alone.last();
        let given = request.headers.all(&Name::ProxyAuthorization);
        let realm = |value| AuthValue::parse(value)?.get("realm").map(str::to_owned);
        given.filter_map(realm).collect()
    };
    let mut alone = trunk_of_two();
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(407, &both);
    assert_eq!(realms(&alone), ["r"]);
    alone.answer(407, &both);
    assert_eq!(realms(&alone), ["r", "far"]);
    // Both were wrong, then.
    let sent = alone.sent.len();
    alone.answer(407, &both);
    assert_eq!(given(&alone, sent), 0);
    // Each of them is the trunk's from then on, alone and beside a stranger's.
    for (number, values) in [(2, vec![far]), (3, vec![ASKED[1], far]), (4, vec![SHA])] {
        alone.command(place_as(CallId(number), Duration::from_secs(60)));
        let asked: Vec<(Name, &str)> = values
            .iter()
            .map(|value| (Name::ProxyAuthenticate, *value))
            .collect();
        alone.answer(407, &asked);
        assert!(!realms(&alone).contains(&"evil".to_owned()));
        assert_eq!(realms(&alone).len(), 1, "{values:?}");
        alone.answer(486, &[]);
    }
    alone.command(place_as(CallId(5), Duration::from_secs(60)));
    asks_in_vain(&mut alone, CARRIER, 407, ASKED[1]);
}

/// A trunk that registers with the carrier's first host.
pub(super) fn registered() -> Alone {
    registered_knowing(RegistrarRealms::Unknown)
}

/// The same, with that known of its registrar.
pub(super) fn registered_knowing(realms: RegistrarRealms) -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(registering(realms))));
    resolve(&mut alone, vec![srv(10, 1), srv(20, 2)]);
    alone
}

pub(super) fn registering(registrar_realms: RegistrarRealms) -> Trunk {
    Trunk {
        register: Some(Register {
            expires: 120,
            user: "alice".to_owned(),
        }),
        registrar_realms,
        allowed: vec![crate::trunk::Net::parse("192.0.2.1").unwrap()],
        ..named(1)
    }
}

#[test]
fn the_registrar_names_the_realm_of_the_trunk() {
    let mut alone = registered();
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
    alone.answer(200, &[]);
    alone.command(placing(Duration::from_secs(60)));
    asks_in_vain(&mut alone, CARRIER, 407, ASKED[1]);
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
    alone.answer(486, &[]);
    // Nor does the registrar change it later.
    alone.run_for(Duration::from_secs(110));
    let (_, register) = alone.last();
    assert_eq!(register.method, Method::Register);
    asks_in_vain(&mut alone, CARRIER, 401, ASKED[1]);
    assert!(alone.told.contains(&"not registered 401".to_owned()));
}

/// The first INVITE is challenged before the REGISTER is, in another realm: by a callee, say.
#[test]
fn the_registrars_realm_is_its_own_whatever_an_invite_named_before() {
    let mut alone = registered();
    let (registrar, register) = alone.last();
    alone.command(placing(Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, ASKED[1])]);
    assert!(proves(&alone.last().1));
    alone.answer(486, &[]);
    alone.answer_to(&registrar, &register, 401, &[(Name::WwwAuthenticate, SHA)]);
    let (_, again) = alone.last();
    assert_eq!(again.method, Method::Register);
    assert!(proves(&again));
    alone.answer(200, &[]);
    assert_eq!(alone.told.last().unwrap(), "registered 120");
    // Now calls are bound to it.
    alone.command(place_as(CallId(2), Duration::from_secs(60)));
    asks_in_vain(&mut alone, CARRIER, 407, ASKED[1]);
    alone.command(place_as(CallId(3), Duration::from_secs(60)));
    alone.answer(407, &[(Name::ProxyAuthenticate, SHA)]);
    assert!(proves(&alone.last().1));
}

/// Its calls go to the domain itself, whose proxy may have a realm of its own.
#[test]
fn a_registrar_names_no_realm_for_calls_that_go_to_another_host() {
    for (outbound, proof) in [(Outbound::Direct, true), (Outbound::Proxy, false)] {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(Trunk {
            host: Host::parse("192.0.2.1"),
            port: Some(5060),
            domain: Host::parse("192.0.2.9"),
            outbound,
            register: Some(Register {
                expires: 120,
                user: "alice".to_owned(),
            }),
            ..named(1)
        })));
        alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
        assert!(proves(&alone.last().1));
        alone.answer(200, &[]);
        alone.command(placing(Duration::from_secs(60)));
        let sent = alone.sent.len();
        alone.answer(407, &[(Name::ProxyAuthenticate, ASKED[1])]);
        assert_eq!(given(&alone, sent), usize::from(proof), "{outbound:?}");
    }
}

/// Anybody may run a registrar: a binding that it took proves only the calls that come from it.
#[test]
fn a_call_tells_whether_who_took_the_registration_makes_it() {
    let mut alone = registered();
    let calls = |alone: &mut Alone, from: &str, branch| {
        alone.bytes(from, &invite("", branch));
        alone.incoming.last().map(|call| call.registered.clone())
    };
    assert_eq!(calls(&mut alone, CARRIER, 1), Some(Vec::new()));
    alone.answer(200, &[(Name::Expires, "120")]);
    let taken = Some(vec![TrunkId(1)]);
    assert_eq!(calls(&mut alone, CARRIER, 2), taken);
    // Another host of the carrier's name, and another address that the trunk allows.
    for (from, branch) in [("198.51.100.2:5080", 3), ("192.0.2.1:5060", 4)] {
        assert_eq!(calls(&mut alone, from, branch), Some(Vec::new()), "{from}");
    }
    assert_eq!(alone.incoming.len(), 4);
}

#[test]
fn whoever_answers_in_the_registrars_place_is_given_nothing() {
    for challenge in ASKED {
        let mut alone = registered();
        let (mut peer, request) = alone.last();
        let sent = alone.sent.len();
        peer.addr = at(STRANGER);
        // It is not even heard.
        alone.answer_to(&peer, &request, 401, &[(Name::WwwAuthenticate, challenge)]);
        assert_eq!((alone.sent.len(), alone.told.len()), (sent, 0));
        // Who has another port of the carrier's address is.
        asks_in_vain(&mut alone, "198.51.100.1:5999", 401, challenge);
        assert!(alone.told.contains(&"not registered 401".to_owned()));
    }
}

/// A call comes in from the carrier, and leads to a stranger; or it stays with the carrier, which asks in its realm or
/// in another.
#[test]
fn a_call_that_comes_in_gives_them_to_nobody_but_the_carrier() {
    let call = CallId(CallId::FIRST_INCOMING);
    let up = |contact: &str| {
        let mut alone = registered();
        alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
        alone.answer(200, &[]);
        let invite = invite("", 1)
            .replace("192.0.2.1", "198.51.100.1:5080")
            .replace("Contact: <sip:+15550123@198.51.100.1:5080>", contact);
        alone.bytes(CARRIER, &invite);
        alone.command(Command::Answer(call, sdp("answer")));
        let answer = alone.last_response();
        let to = format!("To: {}", answer.headers.get(&Name::To).unwrap());
        let ack = invite
            .replace("INVITE", "ACK")
            .replace("To: <sip:+15550100@carrier.example>", &to);
        alone.bytes(CARRIER, &ack);
        alone.command(Command::HangUp(call, None));
        assert_eq!(alone.last().1.method, Method::Bye, "{:?}", alone.told);
        alone
    };
    for challenge in ASKED {
        let mut alone = up(&format!("Contact: <sip:evil@{STRANGER}>"));
        assert_eq!(alone.last().0.addr, at(STRANGER));
        asks_in_vain(&mut alone, STRANGER, 401, challenge);
    }
    for (challenge, proof) in [(ASKED[1], false), (SHA, true)] {
        let mut alone = up(&format!("Contact: <sip:callee@{CARRIER}>"));
        let sent = alone.sent.len();
        alone.answer(401, &[(Name::WwwAuthenticate, challenge)]);
        assert_eq!(given(&alone, sent), usize::from(proof), "{challenge}");
    }
}

#[test]
fn md5_without_qop_is_given_where_the_trunk_allows_it() {
    let without = "Digest realm=\"r\", nonce=\"n\", algorithm=MD5";
    for allowed in [false, true] {
        let mut alone = Alone::new();
        let trunk = Trunk {
            credentials: Some(Credentials {
                md5_without_qop: allowed,
                ..credentials()
            }),
            ..trunk(1, A, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(trunk)));
        alone.command(placing(Duration::from_secs(60)));
        if allowed {
            alone.answer(401, &[(Name::WwwAuthenticate, without)]);
            assert!(proves(&alone.last().1));
            continue;
        }
        asks_in_vain(&mut alone, "192.0.2.1:5060", 401, without);
        let told = alone.told.iter().find(|told| told.starts_with("withheld"));
        assert!(told.unwrap().ends_with("allow_md5_without_qop"), "{told:?}");
        // Beside it the carrier offers something better.
        alone.command(place_as(CallId(2), Duration::from_secs(60)));
        let both = [
            (Name::WwwAuthenticate, without),
            (Name::WwwAuthenticate, SHA),
        ];
        alone.answer(401, &both);
        let (_, again) = alone.last();
        let given = again.headers.get(&Name::Authorization).unwrap();
        let given = AuthValue::parse(given).unwrap();
        assert_eq!(given.get("algorithm"), Some("SHA-256"));
    }
}

/// The trunk is gone, the call goes on: its carrier is still known by where its INVITE went.
#[test]
fn a_call_whose_trunk_is_removed_still_answers_its_carrier_and_nobody_else() {
    let contact = format!("<sip:callee@{CARRIER}>");
    for (challenge, proof) in [(SHA, true), (ASKED[1], false)] {
        let mut alone = up(&[(Name::Contact, &contact)]);
        alone.command(Command::RemoveTrunk(TrunkId(1)));
        alone.command(Command::HangUp(CALL, None));
        let sent = alone.sent.len();
        alone.answer(407, &[(Name::ProxyAuthenticate, challenge)]);
        assert_eq!(given(&alone, sent), usize::from(proof), "{challenge}");
    }
}
