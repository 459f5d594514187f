//! Whose a call is: numbers in every spelling, and of whichever account.

use super::*;

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
            match bench.desk().called(&incoming(&[trunk], to)).await {
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
            let called = bench.desk().called(&incoming(&trunks, to)).await;
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
        "2025550123",
        "0012025550123",
    ] {
        for trunks in [[theirs, ours], [ours, theirs]] {
            let called = bench.desk().called(&incoming(&trunks, to)).await;
            assert_eq!(called.map(|called| called.account), Ok(us), "{to}");
        }
    }
    for to in ["+2025550123", "39030123456", "002025550123"] {
        let called = bench.desk().called(&incoming(&[ours, theirs], to)).await;
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
        let called = bench.desk().called(&incoming(&[trunk], dialled)).await;
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
        let called = bench.desk().called(&incoming(&trunks, to)).await;
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
        let called = bench.desk().called(&incoming(&[trunk], to)).await;
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
    let whose = bench.desk().called(&both).await.map(|called| called.to);
    assert_eq!(whose, Ok(NUMBER.to_owned()));
    bench
        .number(&bench.test.key, "+4930123458", trunk, json!({}))
        .await;
    assert_eq!(called("a").await, nobody());
}
