//! Trunks that are known by a password, where others are known by the address that the call comes from.

use super::alone::*;

const CARRIER: &str = "192.0.2.1:5060";

/// A trunk that is known by its address, and one of the same carrier that wants a password.
fn beside(inbound: InboundAuth) -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    let with_password = Trunk {
        inbound,
        host: None,
        credentials: Some(credentials()),
        ..trunk(2, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(with_password)));
    alone
}

/// The trunks of the last call that came in, and whether it may give a password.
fn last(alone: &Alone) -> (Vec<u64>, bool) {
    let incoming = alone.incoming.last().unwrap();
    let trunks = incoming.trunks.iter().map(|trunk| trunk.0).collect();
    (trunks, incoming.may_prove)
}

/// Refuses the last call with a challenge.
fn challenge(alone: &mut Alone) -> String {
    let number = u64::try_from(alone.incoming.len()).unwrap() - 1;
    let call = CallId(CallId::FIRST_INCOMING + number);
    alone.command(Command::Reject(call, 401, None));
    assert_eq!(
        alone.told.last().map(String::as_str),
        Some("ended by Local 401")
    );
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
            credentials: Some(Credentials {
                username: user.to_owned(),
                ..credentials()
            }),
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
