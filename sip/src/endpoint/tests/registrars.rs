//! What a trunk's calls are bound to where its registrar was heard by another endpoint, where it was not heard yet, and
//! where it asks in another realm than the proxy of calls.

use super::alone::*;
use super::withheld::*;
use crate::trunk::RegistrarRealms;

/// In the carrier's domain.
const DOMAIN: &str = "Digest realm=\"carrier.example\", nonce=\"n\", qop=\"auth\"";

fn known(realms: &[&str]) -> RegistrarRealms {
    RegistrarRealms::Known(realms.iter().map(|realm| (*realm).to_owned()).collect())
}

/// A trunk that another endpoint registers.
fn elsewhere(realms: RegistrarRealms) -> Trunk {
    Trunk {
        register: None,
        ..registering(realms)
    }
}

fn set(alone: &mut Alone, trunk: Trunk) {
    alone.command(Command::SetTrunk(Box::new(trunk)));
}

/// Places a call; whether it gives credentials to this challenge.
fn gives(alone: &mut Alone, call: u64, code: u16, challenge: &str) -> bool {
    let name = match code {
        401 => Name::WwwAuthenticate,
        _ => Name::ProxyAuthenticate,
    };
    alone.command(place_as(CallId(call), Duration::from_secs(60)));
    let sent = alone.sent.len();
    alone.answer(code, &[(name, challenge)]);
    let given = given(alone, sent) == 1;
    if given {
        alone.answer(486, &[]);
    }
    given
}

/// The realms that events told, the latest last.
fn heard(alone: &Alone) -> Vec<Vec<String>> {
    alone.realms.clone()
}

#[test]
fn an_endpoint_that_does_not_register_gives_nothing_to_a_callee_who_asks_at_once() {
    let mut alone = Alone::new();
    set(&mut alone, elsewhere(known(&["r"])));
    resolve(&mut alone, vec![srv(10, 1)]);
    for (call, challenge) in [(1, ASKED[0]), (2, ASKED[1]), (3, DOMAIN_OF_ANOTHER)] {
        for code in [401, 407] {
            let call = call * 10 + u64::from(code);
            assert!(!gives(&mut alone, call, code, challenge), "{challenge}");
        }
    }
    assert!(gives(&mut alone, 1, 407, SHA));
    // Found out by its code, as everywhere.
    assert!(!gives(&mut alone, 2, 401, SHA));
}

const DOMAIN_OF_ANOTHER: &str = "Digest realm=\"evil.example\", nonce=\"n\", qop=\"auth\"";

#[test]
fn a_registrar_that_changes_its_realm_changes_it_for_all() {
    let mut alone = Alone::new();
    set(&mut alone, elsewhere(known(&["evil"])));
    resolve(&mut alone, vec![srv(10, 1)]);
    assert!(gives(&mut alone, 1, 407, ASKED[1]));
    set(&mut alone, elsewhere(known(&["r"])));
    assert!(!gives(&mut alone, 2, 407, ASKED[1]));
    assert!(gives(&mut alone, 3, 407, SHA));
    // A registrar that asks for nothing leaves it to the first INVITE that is challenged.
    let mut alone = Alone::new();
    set(&mut alone, elsewhere(known(&[])));
    resolve(&mut alone, vec![srv(10, 1)]);
    assert!(gives(&mut alone, 1, 407, SHA));
    assert!(!gives(&mut alone, 2, 407, ASKED[1]));
}

/// What is told of it comes back from those to whom its events went: nothing is registered anew for that.
#[test]
fn realms_that_are_told_send_no_register() {
    let mut alone = registered_knowing(RegistrarRealms::Awaited);
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    alone.answer(200, &[]);
    assert_eq!(alone.told.last().unwrap(), "registered 120");
    let sent = alone.sent.len();
    set(&mut alone, registering(known(&["r"])));
    assert_eq!(alone.sent.len(), sent);
    assert!(!gives(&mut alone, 1, 407, ASKED[1]));
    // A trunk that is set again as it is registers again, as before.
    let sent = alone.sent.len();
    set(&mut alone, registering(known(&["r"])));
    let (_, again) = alone.last();
    assert_eq!(
        (again.method, alone.sent.len()),
        (Method::Register, sent + 1)
    );
}

#[test]
fn while_the_registrar_was_not_heard_no_call_gives_the_password() {
    // Here a REGISTER is under way, there another endpoint's is.
    let mut here = registered_knowing(RegistrarRealms::Awaited);
    let (registrar, register) = here.last();
    let mut there = Alone::new();
    set(&mut there, elsewhere(RegistrarRealms::Awaited));
    resolve(&mut there, vec![srv(10, 1)]);
    for alone in [&mut here, &mut there] {
        for (call, code, challenge) in [(1, 407, SHA), (2, 401, ASKED[1]), (3, 407, DOMAIN)] {
            assert!(!gives(alone, call, code, challenge), "{challenge}");
        }
        let why = "the trunk's registrar, which names the realm, was not heard yet";
        assert!(alone.reasons[0].ends_with(why), "{:?}", alone.reasons);
    }
    here.answer_to(&registrar, &register, 401, &[(Name::WwwAuthenticate, SHA)]);
    assert!(proves(&here.last().1));
    set(&mut there, elsewhere(known(&["r"])));
    for alone in [&mut here, &mut there] {
        assert!(!gives(alone, 4, 407, ASKED[1]));
        assert!(gives(alone, 5, 407, SHA));
    }
}

#[test]
fn a_registration_tells_in_which_realms_it_was_asked() {
    let mut alone = registered_knowing(RegistrarRealms::Awaited);
    let far = "Digest realm=\"far\", nonce=\"f\", qop=\"auth\"";
    let both = [(Name::WwwAuthenticate, SHA), (Name::WwwAuthenticate, far)];
    alone.answer(401, &both);
    alone.answer(200, &[]);
    assert_eq!(heard(&alone), [["r", "far"]]);
    // The refresh is taken unasked, and says the same.
    alone.run_for(Duration::from_secs(110));
    assert_eq!(alone.last().1.method, Method::Register);
    alone.answer(200, &[]);
    assert_eq!(heard(&alone)[1], ["r", "far"]);
    // So does one that fails, and one that was told by whoever registered before.
    alone.run_for(Duration::from_secs(110));
    alone.answer(403, &[]);
    assert_eq!(heard(&alone)[2], ["r", "far"]);
    let mut alone = registered_knowing(known(&["r"]));
    alone.answer(200, &[]);
    assert_eq!(heard(&alone), [["r"]]);
    // A registrar that asks for nothing has none, and one that says nothing tells none.
    let mut alone = registered_knowing(RegistrarRealms::Awaited);
    alone.answer(200, &[]);
    assert_eq!(heard(&alone), [Vec::<String>::new()]);
    let mut alone = registered_knowing(RegistrarRealms::Awaited);
    alone.answer(503, &[]);
    alone.run_for(Duration::from_secs(40));
    assert!(heard(&alone).iter().all(Vec::is_empty));
    assert!(!gives(&mut alone, 1, 407, SHA));
}

/// Its REGISTER is asked for in the realm of one machine, its INVITE in that of the domain.
#[test]
fn a_carrier_with_one_realm_for_register_and_its_domain_for_calls_is_answered() {
    let mut alone = registered_knowing(RegistrarRealms::Awaited);
    alone.answer(401, &[(Name::WwwAuthenticate, SHA)]);
    alone.answer(200, &[]);
    for (call, challenge) in [(1, ASKED[1]), (2, DOMAIN_OF_ANOTHER)] {
        assert!(!gives(&mut alone, call, 407, challenge), "{challenge}");
    }
    assert!(gives(&mut alone, 3, 407, DOMAIN));
    assert!(!gives(&mut alone, 4, 401, DOMAIN));
    assert!(gives(&mut alone, 5, 407, DOMAIN));
}

/// Nobody is there to say which realm is the trunk's.
#[test]
fn a_call_whose_trunk_is_gone_before_it_was_asked_gives_nothing() {
    let mut alone = Alone::new();
    set(&mut alone, named(1));
    resolve(&mut alone, vec![srv(10, 1)]);
    alone.command(placing(Duration::from_secs(60)));
    let (peer, invite) = alone.last();
    alone.command(Command::RemoveTrunk(TrunkId(1)));
    let sent = alone.sent.len();
    alone.answer_to(&peer, &invite, 407, &[(Name::ProxyAuthenticate, SHA)]);
    assert_eq!(given(&alone, sent), 0);
}
