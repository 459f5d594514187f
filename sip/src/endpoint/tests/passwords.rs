//! Trunks that are known by a password, where others are known by the address that the call comes from.

use super::alone::*;

const CARRIER: &str = "192.0.2.1:5060";

/// A trunk of the carrier that wants a password.
fn with_password(inbound: InboundAuth) -> Command {
    Command::SetTrunk(Box::new(Trunk {
        inbound,
        host: None,
        credentials: Some(credentials()),
        ..trunk(2, A, Transport::Udp)
    }))
}

/// Such a trunk alone.
fn only(inbound: InboundAuth) -> Alone {
    let mut alone = Alone::new();
    alone.command(with_password(inbound));
    alone
}

/// A trunk that is known by its address, and one of the same carrier that wants a password.
fn beside(inbound: InboundAuth) -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone.command(with_password(inbound));
    alone
}

/// The trunks of the last call that came in, and whether it may give a password.
fn last(alone: &Alone) -> (Vec<u64>, bool) {
    let incoming = alone.incoming.last().unwrap();
    let trunks = incoming.trunks.iter().map(|trunk| trunk.0).collect();
    (trunks, incoming.may_prove)
}

/// The challenge that the last INVITE is answered with; where it made a call, that is refused with one.
fn challenge(alone: &mut Alone) -> String {
    if let Some(last) = alone.incoming.len().checked_sub(1) {
        let call = CallId(CallId::FIRST_INCOMING + u64::try_from(last).unwrap());
        alone.command(Command::Reject(call, 401, None));
        assert_eq!(
            alone.told.last().map(String::as_str),
            Some("ended by Local 401")
        );
    }
    let response = alone.last_response();
    assert_eq!(response.code, 401);
    let asked = response.headers.get(&Name::WwwAuthenticate);
    asked.unwrap().to_owned()
}

#[test]
fn a_password_is_asked_for_though_another_trunk_names_the_address() {
    for inbound in [InboundAuth::Digest, InboundAuth::AddressAndDigest] {
        let mut alone = beside(inbound);
        alone.bytes(CARRIER, &invite("", 1));
        assert_eq!(last(&alone), (vec![1], true), "{inbound:?}");
        let challenge = challenge(&mut alone);
        let right = authorization(&challenge, "alice", "secret");
        alone.bytes(CARRIER, &invite(&right, 2));
        assert_eq!(last(&alone), (vec![2, 1], false), "{inbound:?}");
        // A wrong one takes nothing from what the address is enough for.
        let wrong = authorization(&challenge, "alice", "wrong");
        alone.bytes(CARRIER, &invite(&wrong, 3));
        assert_eq!(last(&alone), (vec![1], true), "{inbound:?}");
        // The right one again: its count is used.
        alone.bytes(CARRIER, &invite(&right, 4));
        assert_eq!(alone.incoming.len(), 3, "{inbound:?}");
        let again = alone.last_response();
        assert_eq!(again.code, 401);
        let asked = again.headers.get(&Name::WwwAuthenticate).unwrap();
        assert!(asked.contains("stale=true"), "{asked}");
    }
}

#[test]
fn where_no_trunk_has_a_password_none_is_asked_for() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone.bytes(CARRIER, &invite("", 1));
    assert_eq!(last(&alone), (vec![1], false));
}

#[test]
fn a_password_does_not_open_a_trunk_that_wants_another_address_too() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    for (id, to, user) in [(2, B, "bob"), (3, A, "alice")] {
        let with_password = Trunk {
            inbound: InboundAuth::AddressAndDigest,
            credentials: Some(Credentials::new(user, "secret")),
            ..trunk(id, to, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(with_password)));
    }
    alone.bytes(CARRIER, &invite("", 1));
    let challenge = challenge(&mut alone);
    let elsewhere = authorization(&challenge, "bob", "secret");
    alone.bytes(CARRIER, &invite(&elsewhere, 2));
    assert_eq!(last(&alone), (vec![1], true));
}

/// All that is answered to a carrier's address which scans for that user, but for the name: it asks with each
/// method, and then calls with a wrong password.
fn scanned(mut alone: Alone, user: &str) -> Vec<String> {
    let asks = |method: &str, authorization: &str, branch: u32| {
        let request = invite(authorization, branch).replace("INVITE", method);
        request.replace("+15550100", user)
    };
    for (method, branch) in [("REGISTER", 1), ("OPTIONS", 2), ("INVITE", 3)] {
        alone.bytes(CARRIER, &asks(method, "", branch));
    }
    let wrong = authorization(&challenge(&mut alone), user, "wrong");
    alone.bytes(CARRIER, &asks("INVITE", &wrong, 4));
    challenge(&mut alone);
    let answers = alone.sent.iter().map(|(_, answer)| answer.to_bytes());
    answers
        .map(|bytes| String::from_utf8(bytes).unwrap().replace(user, "someone"))
        .collect()
}

#[test]
fn who_scans_from_a_carriers_address_learns_of_no_user() {
    let made: [fn(InboundAuth) -> Alone; 2] = [only, beside];
    for make in made {
        for inbound in [InboundAuth::Digest, InboundAuth::AddressAndDigest] {
            let there = scanned(make(inbound), "alice");
            let codes: Vec<&str> = there.iter().map(|answer| &answer[8..11]).collect();
            assert_eq!(codes, ["405", "200", "401", "401"], "{inbound:?}");
            // Both begin with the same seed, so that even the nonces are the same.
            assert_eq!(there, scanned(make(inbound), "carol"), "{inbound:?}");
        }
    }
}

/// Trunks of several accounts whose carriers call the user the same.
fn alike(passwords: &[&str]) -> Alone {
    let mut alone = Alone::new();
    for (id, password) in (1..).zip(passwords) {
        let trunk = Trunk {
            inbound: InboundAuth::Digest,
            host: None,
            allowed: Vec::new(),
            credentials: Some(Credentials::new("alice", *password)),
            ..trunk(id, A, Transport::Udp)
        };
        alone.command(Command::SetTrunk(Box::new(trunk)));
    }
    alone
}

#[test]
fn of_trunks_with_one_user_name_the_password_tells_which_it_is() {
    let mut alone = alike(&["one", "two", "three"]);
    alone.bytes(CARRIER, &invite("", 1));
    let challenge = challenge(&mut alone);
    for (branch, (password, expected)) in (2..).zip([("two", 2), ("one", 1), ("three", 3)]) {
        let right = authorization(&challenge, "alice", password);
        let right = right.replace("nc=00000001", &format!("nc={:08x}", 1));
        alone.bytes(CARRIER, &invite(&right, branch));
        if branch > 2 {
            // The count of this nonce is used: it asks again, whosever the answer is.
            assert_eq!(alone.last_response().code, 401);
            let asked = alone.last_response();
            let asked = asked
                .headers
                .get(&Name::WwwAuthenticate)
                .unwrap()
                .to_owned();
            let right = authorization(&asked, "alice", password);
            alone.bytes(CARRIER, &invite(&right, branch + 10));
        }
        assert_eq!(last(&alone), (vec![expected], false), "{password}");
        assert!(alone.incoming.last().unwrap().by_password);
    }
}

#[test]
fn a_password_that_two_trunks_have_in_common_opens_neither() {
    let mut alone = alike(&["one", "same", "same"]);
    // One of the address beside does not take it either.
    alone.command(Command::SetTrunk(Box::new(trunk(9, A, Transport::Udp))));
    let asked = |alone: &mut Alone, branch: u32| {
        alone.bytes("203.0.113.9:5060", &invite("", branch));
        let response = alone.last_response();
        assert_eq!(response.code, 401);
        response
            .headers
            .get(&Name::WwwAuthenticate)
            .unwrap()
            .to_owned()
    };
    let challenge = asked(&mut alone, 1);
    let both = authorization(&challenge, "alice", "same");
    alone.bytes("203.0.113.9:5060", &invite(&both, 2));
    assert_eq!(alone.last_response().code, 403);
    assert_eq!(alone.told, ["shared by [2, 3]"]);
    // One is gone, and the other has it alone.
    alone.command(Command::RemoveTrunk(TrunkId(3)));
    let challenge = asked(&mut alone, 3);
    let only = authorization(&challenge, "alice", "same");
    alone.bytes("203.0.113.9:5060", &invite(&only, 4));
    assert_eq!(last(&alone), (vec![2], false));
    // A wrong one is told nothing of it.
    let challenge = asked(&mut alone, 5);
    for (branch, user) in [(6, "alice"), (7, "carol")] {
        let wrong = authorization(&challenge, user, "wrong");
        alone.bytes("203.0.113.9:5060", &invite(&wrong, branch));
        assert_eq!(alone.last_response().code, 401);
    }
}
