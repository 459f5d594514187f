//! Whose a call is: numbers in every spelling, and of whichever account.

use super::*;
use crate::calls::matched::{MatchedBy, Proof, Spelling};
use crate::ids::AccountId;

/// Document 3: an inbound trunk matches the called number exactly as the carrier sends it.
#[tokio::test]
async fn a_trunk_with_numbers_takes_calls_to_those_as_they_are_written_there() {
    let bench = Bench::new().await;
    let key = &bench.test.key;
    let trunk = bench.by_address(key).await;
    bench.number(key, NUMBER, trunk, json!({})).await;
    let written = [NUMBER, "4930123456", "030123456", "004930123456"];
    let taken = async || {
        let mut taken = Vec::new();
        for to in written {
            match bench.task().called(&incoming(&[trunk], to)).await {
                Ok(called) => {
                    assert_eq!(called.to, NUMBER);
                    taken.push(to);
                }
                Err(why) => assert_eq!(why, Declined::NOBODY, "{to}"),
            }
        }
        taken
    };
    assert_eq!(taken().await, written, "none are listed");
    let path = format!("/sip-trunks/{trunk}");
    // What is changed holds for the next call.
    for listed in [
        &["030123456"][..],
        &["4930123456", NUMBER],
        &["+4930999999"],
        &[],
    ] {
        let body = json!({"numbers": listed});
        let (status, changed) = bench.test.call("PATCH", &path, Some(body)).await;
        assert!(status.is_success(), "{changed}");
        let expected = written.into_iter();
        let expected: Vec<&str> = expected
            .filter(|to| listed.is_empty() || listed.contains(to))
            .collect();
        assert_eq!(taken().await, expected, "{listed:?}");
    }
}

/// Two accounts have trunks of one carrier.
#[tokio::test]
async fn a_number_is_its_accounts_whatever_others_register_that_ends_alike() {
    let bench = Bench::new().await;
    let (other, key) = bench.test.other_account().await;
    let theirs = bench.by_address(&key).await;
    let ours = bench.by_address(&bench.test.key).await;
    let none = || json!({});
    bench.number(&bench.test.key, NUMBER, ours, none()).await;
    bench.number(&key, "994930123456", theirs, none()).await;
    let whose = async |to: &str| {
        let mut found = Vec::new();
        for trunks in [[theirs, ours], [ours, theirs]] {
            let called = bench.task().called(&incoming(&trunks, to)).await;
            found.push(called.map(|called| called.account));
        }
        assert_eq!(found[0], found[1], "{to}");
        found.remove(0)
    };
    let us = bench.test.account;
    for to in [NUMBER, "4930123456", "030123456", "004930123456"] {
        assert_eq!(whose(to).await, Ok(us), "{to}");
    }
    assert_eq!(whose("994930123456").await, Ok(other));
    // It ends as both do, and means neither.
    assert_eq!(whose("30123456").await, Err(Declined::NOBODY));
    // In France and in Italy the same is dialled for them.
    let french = "+33612345678";
    bench.number(&bench.test.key, french, ours, none()).await;
    assert_eq!(whose("0612345678").await, Ok(us));
    // Who was there first keeps it.
    bench.test.app.clock.advance(Duration::from_secs(1));
    let italian = "+390612345678";
    bench.number(&key, italian, theirs, none()).await;
    assert_eq!(whose("0612345678").await, Ok(us));
    assert_eq!(whose(french).await, Ok(us));
    assert_eq!(whose(italian).await, Ok(other));
    // Of one account's, neither is meant.
    bench
        .number(&bench.test.key, "+33612345679", ours, none())
        .await;
    bench
        .number(&bench.test.key, "+390612345679", ours, none())
        .await;
    assert_eq!(whose("0612345679").await, Err(Declined::NOBODY));
}

/// Two accounts have trunks of one carrier, which any account can say of its own. Who has a number keeps its calls.
#[tokio::test]
async fn no_spelling_that_another_account_registers_later_takes_or_blocks_a_numbers_calls() {
    let bench = Bench::new().await;
    let (_, key) = bench.test.other_account().await;
    let ours = bench.by_address(&bench.test.key).await;
    let theirs = bench.by_address(&key).await;
    let us = bench.test.account;
    let none = || json!({});
    let american = "+12025550123";
    for number in [NUMBER, american] {
        bench.number(&bench.test.key, number, ours, none()).await;
    }
    for spelling in [
        "030123456",
        "004930123456",
        "+49030123456",
        "2025550123",
        "0012025550123",
    ] {
        let body = json!({"phone_number": spelling, "trunk_id": theirs});
        let path = "/phone-numbers/sip/register";
        let (status, answer) = bench.test.call_as(&key, "POST", path, Some(body)).await;
        assert_eq!(status, 409, "{spelling}: {answer}");
        assert_eq!(answer["code"], "number_already_registered");
    }
    // In Egypt and in Italy these are numbers, which are theirs to register.
    bench.test.app.clock.advance(Duration::from_secs(1));
    for number in ["+2025550123", "+39030123456"] {
        bench.number(&key, number, theirs, none()).await;
    }
    for to in [
        NUMBER,
        "4930123456",
        "030123456",
        "004930123456",
        "+49030123456",
        american,
        "12025550123",
        "0012025550123",
    ] {
        for trunks in [[theirs, ours], [ours, theirs]] {
            let called = bench.task().called(&incoming(&trunks, to)).await;
            assert_eq!(called.map(|called| called.account), Ok(us), "{to}");
        }
    }
    // As it is registered, without its plus, it is theirs, though it is what in America is dialled for ours.
    for to in ["+2025550123", "2025550123", "39030123456", "002025550123"] {
        let called = bench.task().called(&incoming(&[ours, theirs], to)).await;
        let whose = called.map(|called| called.account);
        assert!(whose.is_ok_and(|whose| whose != us), "{to}");
    }
}

/// Each country has its own prefix: in Russia it is 8, in Hungary 06, in North America none.
#[tokio::test]
async fn a_number_is_found_as_its_country_dials_it_whatever_its_prefix_is() {
    let bench = Bench::new().await;
    let trunk = bench.by_address(&bench.test.key).await;
    for (number, dialled) in [
        ("+74951234567", "84951234567"),
        ("+3612345678", "0612345678"),
        ("+12025550123", "2025550123"),
        ("+442079460018", "02079460018"),
    ] {
        bench
            .number(&bench.test.key, number, trunk, json!({}))
            .await;
        let called = bench.task().called(&incoming(&[trunk], dialled)).await;
        assert_eq!(called.map(|called| called.to), Ok(number.to_owned()));
    }
}

#[tokio::test]
async fn a_number_of_the_trunk_for_calls_out_is_meant_where_calls_in_come_over_another() {
    let bench = Bench::new().await;
    let key = &bench.test.key;
    let out =
        json!({"type": "outbound", "auth_mode": "ip_acl", "outbound_address": "127.0.0.1:5998"});
    let out = bench.trunk(key, out).await;
    let inward = bench.by_address(key).await;
    bench.number(key, NUMBER, out, json!({})).await;
    let called = async |trunks: Vec<TrunkId>, to: &str| {
        let called = bench.task().called(&incoming(&trunks, to)).await;
        called.map(|called| called.to)
    };
    let ours = || Ok(NUMBER.to_owned());
    for to in [NUMBER, "4930123456", "030123456", "004930123456"] {
        assert_eq!(called(vec![inward], to).await, ours(), "{to}");
    }
    // Where the call may be another account's, what is written so must be on the trunk itself.
    let (_, other) = bench.test.other_account().await;
    let theirs = bench.by_address(&other).await;
    let both = || vec![inward, theirs];
    assert_eq!(called(both(), NUMBER).await, ours());
    assert_eq!(called(both(), "030123456").await, Err(Declined::NOBODY));
}

#[tokio::test]
async fn a_registered_user_who_is_called_without_a_number_is_the_only_one_of_its_trunk() {
    let bench = Bench::new().await;
    // Its user is `a`.
    let trunk = bench.registers().await;
    let called = async |to: &str| {
        let called = bench.task().called(&incoming(&[trunk], to)).await;
        called.map(|called| called.to)
    };
    let nobody = || Err(Declined::NOBODY);
    assert_eq!(called("a").await, nobody());
    bench
        .number(&bench.test.key, NUMBER, trunk, json!({}))
        .await;
    assert_eq!(called("a").await, Ok(NUMBER.to_owned()));
    assert_eq!(called("b").await, nobody());
    // Another trunk of the carrier takes none of it.
    let (_, key) = bench.test.other_account().await;
    let other = bench.by_address(&key).await;
    bench.number(&key, "+4930123457", other, json!({})).await;
    let both = incoming(&[other, trunk], "a");
    let whose = bench.task().called(&both).await.map(|called| called.to);
    assert_eq!(whose, Ok(NUMBER.to_owned()));
    bench
        .number(&bench.test.key, "+4930123458", trunk, json!({}))
        .await;
    assert_eq!(called("a").await, nobody());
}

/// A user that has a hyphen, as some carriers give to each trunk of one customer.
#[tokio::test]
async fn a_registered_user_that_looks_like_a_number_is_called_as_any_other() {
    let bench = Bench::new().await;
    for (user, number) in [("12345-100", NUMBER), ("12345.200", "+4930123457")] {
        let trunk = bench.registers_as(user).await;
        bench
            .number(&bench.test.key, number, trunk, json!({}))
            .await;
        // To names the user, or the number.
        for to in [user, number, &number[1..]] {
            let call = Incoming {
                addressed: Uri::parse(&format!("sip:{to}@127.0.0.1")).unwrap(),
                ..incoming(&[trunk], user)
            };
            let called = bench.task().called(&call).await;
            let called = called.map(|called| called.to);
            assert_eq!(called, Ok(number.to_owned()), "{user}, to {to}");
        }
    }
}

/// What a call is matched with: its account, and by which rule.
type Matched = (AccountId, MatchedBy);

async fn matched(bench: &Bench, incoming: &Incoming) -> Result<Matched, Declined> {
    let called = bench.task().called(incoming).await?;
    Ok((called.account, called.matched_by.unwrap()))
}

const fn by(trunk: Proof, number: Spelling) -> MatchedBy {
    MatchedBy { trunk, number }
}

/// Two accounts have trunks of one carrier. In Egypt a number is theirs that in America is dialled for ours, which
/// was registered first.
struct Shared {
    bench: Bench,
    us: AccountId,
    them: AccountId,
    key: String,
    ours: TrunkId,
    theirs: TrunkId,
}

const DIALLED: &str = "2025550123";

impl Shared {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let (them, key) = bench.test.other_account().await;
        let ours = bench.by_address(&bench.test.key).await;
        let theirs = bench.by_address(&key).await;
        let number = format!("+1{DIALLED}");
        bench
            .number(&bench.test.key, &number, ours, json!({}))
            .await;
        bench.test.app.clock.advance(Duration::from_secs(1));
        let number = format!("+{DIALLED}");
        bench.number(&key, &number, theirs, json!({})).await;
        let us = bench.test.account;
        Self {
            bench,
            us,
            them,
            key,
            ours,
            theirs,
        }
    }
}

#[tokio::test]
async fn the_trunk_whose_password_a_call_gave_names_the_account() {
    let shared = Shared::new().await;
    let Shared {
        bench, us, them, ..
    } = &shared;
    let (us, them, ours, theirs) = (*us, *them, shared.ours, shared.theirs);
    let given = |trunks: &[TrunkId], to: &str| Incoming {
        by_password: true,
        ..incoming(trunks, to)
    };
    // Whoever has the first trunk, its numbers alone are looked at.
    for (trunks, expected) in [
        ([ours, theirs], (us, by(Proof::Digest, Spelling::Other))),
        ([theirs, ours], (them, by(Proof::Digest, Spelling::Exact))),
    ] {
        assert_eq!(matched(bench, &given(&trunks, DIALLED)).await, Ok(expected));
    }
    let american = format!("+1{DIALLED}");
    let other = matched(bench, &given(&[theirs, ours], &american)).await;
    assert_eq!(other, Err(Declined::NOBODY));
    let own = matched(bench, &given(&[ours, theirs], &american)).await;
    assert_eq!(own, Ok((us, by(Proof::Digest, Spelling::Exact))));
}

#[tokio::test]
async fn an_address_of_one_account_names_it_and_where_it_is_shared_the_exact_number_does() {
    let shared = Shared::new().await;
    let Shared {
        bench, us, them, ..
    } = &shared;
    let (us, them, ours, theirs) = (*us, *them, shared.ours, shared.theirs);
    let over = async |trunks: &[TrunkId], to: &str| matched(bench, &incoming(trunks, to)).await;
    let own = |number| by(Proof::Address, number);
    assert_eq!(over(&[ours], DIALLED).await, Ok((us, own(Spelling::Other))));
    assert_eq!(
        over(&[theirs], DIALLED).await,
        Ok((them, own(Spelling::Exact)))
    );
    let exact = by(Proof::SharedAddress, Spelling::Exact);
    for trunks in [[ours, theirs], [theirs, ours]] {
        assert_eq!(over(&trunks, DIALLED).await, Ok((them, exact)));
        assert_eq!(
            over(&trunks, &format!("+1{DIALLED}")).await,
            Ok((us, exact))
        );
        let abroad = format!("001{DIALLED}");
        let other = by(Proof::SharedAddress, Spelling::Other);
        assert_eq!(over(&trunks, &abroad).await, Ok((us, other)));
    }
    // A trunk that is disabled shares nothing.
    let path = format!("/sip-trunks/{theirs}");
    let body = Some(json!({"status": "disabled"}));
    let (status, _) = bench.test.call_as(&shared.key, "PATCH", &path, body).await;
    assert!(status.is_success());
    let alone = over(&[ours, theirs], DIALLED).await;
    assert_eq!(alone, Ok((us, own(Spelling::Other))));
}

/// The carrier calls the user that is registered and tells the number in To.
#[tokio::test]
async fn the_registration_that_a_carrier_calls_names_the_account_once_it_holds() {
    let shared = Shared::new().await;
    let Shared {
        bench, us, them, ..
    } = &shared;
    let app = &bench.test.app;
    // Its user is `a`.
    let registers = bench.registers().await;
    let call = || Incoming {
        addressed: Uri::parse(&format!("sip:{DIALLED}@127.0.0.1")).unwrap(),
        ..incoming(&[shared.theirs, registers], "a")
    };
    let nobody = matched(bench, &call()).await;
    // Who only says that the user is theirs has proved nothing: it is as if only the address told, and of what is on
    // the trunk nothing fits.
    assert_eq!(nobody, Err(Declined::NOBODY));
    bench.claim(&app.config.cluster.node).await;
    let until = app.clock.now().plus(CLAIM);
    assert_eq!(
        bench.stands(registers, Ok(until)).await["status"],
        "registered"
    );
    let expected = (*us, by(Proof::Registration, Spelling::Other));
    assert_eq!(matched(bench, &call()).await, Ok(expected));
    // A call from elsewhere than from who took the registration: anybody may run a registrar.
    let elsewhere = Incoming {
        registered: Vec::new(),
        ..call()
    };
    let nobody = matched(bench, &elsewhere).await;
    assert_eq!(nobody, Err(Declined::NOBODY));
    // It ran out.
    app.clock.advance(CLAIM);
    assert_eq!(matched(bench, &call()).await, Err(Declined::NOBODY));
    // The other account's number is told to its own user, which this is not.
    let theirs = incoming(&[shared.theirs, registers], DIALLED);
    let expected = (*them, by(Proof::SharedAddress, Spelling::Exact));
    assert_eq!(matched(bench, &theirs).await, Ok(expected));
}

#[tokio::test]
async fn the_record_says_by_which_rule_a_call_was_matched() {
    let bench = Bench::new().await;
    let trunk = bench.line().await;
    let mut line = bench.exchange.line();
    let events = &mut line.events;
    let incoming = incoming(&[trunk], "030123456");
    let taken = bench.task().take(line.id, &incoming, events).await;
    assert!(matches!(taken, Ok(Conversation::Agent(_))));
    let record = bench.record().await;
    let rule = json!({"trunk": "address", "number": "spelling"});
    assert_eq!(record["matched_by"], rule, "{record}");
}
