//! Calls that came another way, and those that come back.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use uuid::Uuid;

use super::*;

const NUMBER: &str = "+4930123456";
const CALLER: &str = "+33123456789";

fn id(number: u128) -> PhoneNumberId {
    PhoneNumberId(Uuid::from_u128(number))
}

fn hops() -> Hops {
    Hops {
        max_forwards: Some(70),
        branches: vec!["z9hG4bKcarrier".to_owned()],
        ..Hops::default()
    }
}

fn judged(hops: &Hops) -> Result<Onward, Looped> {
    judged_as(hops, NUMBER, NUMBER)
}

fn judged_as(hops: &Hops, number: &str, dialled: &str) -> Result<Onward, Looped> {
    judged_while(hops, number, dialled, &[])
}

fn judged_while(
    hops: &Hops,
    number: &str,
    dialled: &str,
    live: &[LiveForward],
) -> Result<Onward, Looped> {
    let call = Arrival {
        id: id(7),
        number,
        dialled,
        caller: Some(CALLER),
        extension: None,
        hops,
    };
    judge(&call, live)
}

/// A call of this caller that our number forwards at this moment.
fn under_way(caller: &str) -> [LiveForward; 1] {
    [forward(caller, (7, NUMBER), "+15550100")]
}

fn owned(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

#[test]
fn each_forwarding_takes_one_hop_and_without_one_there_is_none() {
    for (came, left) in [
        (Some(70), Ok(69)),
        (Some(255), Ok(254)),
        (Some(1), Ok(0)),
        (Some(0), Err(Looped::NoHops)),
        (None, Ok(69)),
    ] {
        let hops = Hops {
            max_forwards: came,
            ..hops()
        };
        let judged = judged(&hops).map(|onward| onward.forwarded.max_forwards);
        assert_eq!(judged, left, "{came:?}");
    }
}

#[test]
fn a_number_knows_its_mark_again_and_those_of_others_are_carried_on() {
    let onward = judged(&hops()).unwrap();
    assert_eq!(onward.forwarded.mark, "00000007");
    // Another number, then a third one, behind proxies that put theirs before.
    let of = |branches: &[&str]| Hops {
        branches: owned(branches),
        ..hops()
    };
    let second = of(&["z9hG4bKproxy.0", "z9hG4bK0123456789abcdef.000000aa"]);
    let onward = judged(&second).unwrap();
    assert_eq!(onward.forwarded.mark, "00000007-000000aa");
    let back = of(&["z9hG4bKproxy", "z9hG4bKx.y.00000007-000000aa"]);
    assert_eq!(judged(&back), Err(Looped::Again));
    let often = of(&[
        "z9hG4bK1.00000011-00000012-00000013",
        "z9hG4bK2.00000014-00000015",
    ]);
    assert_eq!(judged(&often), Err(Looped::TooOften));
    // What others have behind a dot is no mark.
    let other = of(&[
        "z9hG4bK1.7",
        "z9hG4bK.00000007x",
        "z9hG4bK1.x-y-z",
        "z9hG4bK.",
    ]);
    assert_eq!(judged(&other).unwrap().forwarded.mark, "00000007");
}

#[test]
fn a_number_that_diverted_the_call_does_so_once() {
    let live = under_way(CALLER);
    for (entries, expected) in [
        (&[][..], Ok(())),
        (
            &["<sip:+4989654321@carrier.example>;reason=no-answer"],
            Ok(()),
        ),
        (
            &["<sip:+4930123456@carrier.example>;reason=unknown;counter=1"],
            Err(Looped::Again),
        ),
        // In other spellings, and further down.
        (&["<sip:030123456@carrier.example>"], Err(Looped::Again)),
        (&["<sip:004930123456@x>;counter=1"], Err(Looped::Again)),
        (&["\"Front desk\" <tel:+49-30-123456>"], Err(Looped::Again)),
        (
            &["<sip:+4989654321@x>", "<sip:4930123456;npdi@x;user=phone>"],
            Err(Looped::Again),
        ),
        // Who diverts often, or by themselves.
        (&["<sip:+4989654321@x>;counter=4"], Ok(())),
        (&["<sip:+4989654321@x>;counter=5"], Err(Looped::TooOften)),
        (
            &["<sip:a@x>;counter=3", "<sip:b@x>;counter=2"],
            Err(Looped::TooOften),
        ),
        (
            &[
                "<sip:a@x>;counter=4294967295",
                "<sip:b@x>;counter=4294967295",
            ],
            Err(Looped::TooOften),
        ),
        (
            &[
                "<sip:a@x>",
                "<sip:b@x>",
                "<sip:c@x>",
                "<sip:d@x>",
                "<sip:e@x>",
            ],
            Err(Looped::TooOften),
        ),
        // What cannot be read counts, too, and is not passed on.
        (
            &["garbage", "<sip:", "", "<sip:d@x>;counter=x", "\u{0}"],
            Err(Looped::TooOften),
        ),
        (&["garbage", "<sip:a@x>;counter=-1"], Ok(())),
        (&["<sip:+49301234567@x>", "<sip:123456@x>"], Ok(())),
    ] {
        let hops = Hops {
            diversion: owned(entries),
            ..hops()
        };
        let judged = judged_while(&hops, NUMBER, NUMBER, &live).map(|_| ());
        assert_eq!(judged, expected, "{entries:?}");
    }
}

/// A PBX may divert its own number to the same number here, and then we have not had the call yet.
#[test]
fn a_number_that_a_pbx_diverts_to_itself_is_forwarded_unless_the_call_was_here() {
    let own = "<sip:+4930123456@pbx.example>;reason=unconditional;counter=1";
    let ours = "<sip:030123456@carrier.example>;reason=no-answer;counter=1";
    let diverted = |entries: &[&str]| Hops {
        diversion: owned(entries),
        ..hops()
    };
    let gone = |entries: &[&str]| Hops {
        history: owned(entries),
        ..hops()
    };
    let (here, desk, wanted) = (
        "<sip:+4930123456@x>;index=1",
        "<sip:12@pbx>;index=1.1",
        "<sip:+15550100@x>;index=1.1",
    );
    let nothing = &[][..];
    let (same, other) = (under_way(CALLER), under_way("+33199999999"));
    let of_another = [forward(CALLER, (2, "+4930222222"), "+15550100")];
    for (hops, live, expected) in [
        (diverted(&[own]), nothing, Ok(())),
        (diverted(&["<sip:+4989654321@x>", own]), nothing, Ok(())),
        // Others of its callers are forwarded, and others of its numbers.
        (diverted(&[own]), &other, Ok(())),
        (diverted(&[own]), &of_another, Ok(())),
        // This one is, or went where it is told to have been.
        (diverted(&[own]), &same, Err(Looped::Again)),
        (
            diverted(&["<sip:+15550100@x>", own]),
            &other,
            Err(Looped::Again),
        ),
        // We did so, too, whatever is known of it.
        (diverted(&[ours, own]), nothing, Err(Looped::Again)),
        // The same in the other header.
        (gone(&[here, desk, here]), nothing, Ok(())),
        (gone(&[here, desk, here]), &other, Ok(())),
        (gone(&[here, desk, here]), &same, Err(Looped::Again)),
        (gone(&[here, wanted, here]), &other, Err(Looped::Again)),
        (
            gone(&[here, desk, here, wanted, here]),
            nothing,
            Err(Looped::Again),
        ),
    ] {
        let judged = judged_while(&hops, NUMBER, NUMBER, live).map(|_| ());
        assert_eq!(judged, expected, "{hops:?} {live:?}");
    }
}

/// A main number with an extension is another telephone than the main number.
#[test]
fn an_extension_of_a_number_is_not_the_number() {
    let live = under_way(CALLER);
    let judged = |entry: &str, number: &str| {
        let hops = Hops {
            diversion: owned(&[entry]),
            ..hops()
        };
        judged_while(&hops, number, number, &live).map(|_| ())
    };
    for other in [
        "<sip:+4930123456;ext=12@pbx.example;user=phone>",
        "<sip:030123456;EXT=12;isub=1@pbx.example>",
        "<tel:+49-30-123456;ext=1-2>",
        "<sip:+493012345612@pbx.example>",
    ] {
        assert_eq!(judged(other, NUMBER), Ok(()), "{other}");
    }
    for same in [
        "<sip:+4930123456;ext=@pbx.example>",
        "<tel:+4930123456;phone-context=pbx.example>",
    ] {
        assert_eq!(judged(same, NUMBER), Err(Looped::Again), "{same}");
    }
    for (one, other, same) in [
        ("+4930123456;ext=12", "030123456;ext=12", true),
        ("+4930123456;ext=12", "+4930123456;ext=13", false),
        ("+4930123456;ext=12", "+493012345612", false),
        ("alice;ext=12", "alice;ext=12", true),
    ] {
        assert_eq!(is_same(one, other), same, "{one} {other}");
        assert_eq!(is_same(other, one), same, "{other} {one}");
    }
}

/// Somebody at a PBX calls a number of ours while that is forwarded to their main number, or is the main number.
#[test]
fn an_extension_of_a_number_that_rings_may_call() {
    let main = "+4930222222";
    let hops = hops();
    let call = |caller, extension, live: &[LiveForward]| {
        let call = Arrival {
            id: id(7),
            number: NUMBER,
            dialled: NUMBER,
            caller: Some(caller),
            extension,
            hops: &hops,
        };
        judge(&call, live).map(|_| ())
    };
    let rings = [forward(CALLER, (7, NUMBER), main)];
    assert_eq!(call(main, Some("12"), &rings), Ok(()));
    assert_eq!(call(NUMBER, Some("12"), &rings), Ok(()));
    assert_eq!(call("+493022222212", None, &rings), Ok(()));
    for back in [main, NUMBER] {
        assert_eq!(call(back, None, &rings), Err(Looped::Again), "{back}");
    }
    let uri = |text: &str| Uri::parse(text).unwrap();
    for (text, told) in [
        ("sip:+4930222222;ext=12@pbx", Some("12")),
        ("tel:+4930222222;ext=12", Some("12")),
        ("sip:+4930222222@pbx;ext=12", None),
        ("sip:+4930222222@pbx", None),
        ("sip:+4930222222;npdi@pbx", None),
        ("sip:pbx", None),
    ] {
        assert_eq!(extension(&uri(text)).as_deref(), told, "{text}");
    }
}

/// The user that we registered is called, and the carrier says that the number was diverted to it.
#[test]
fn a_number_that_leads_to_a_registered_user_has_not_come_back_by_that() {
    let own = "<sip:+4930123456@carrier.example>;reason=unconditional";
    let hops = |entries: &[&str]| Hops {
        diversion: owned(entries),
        ..hops()
    };
    for user in ["acme-trunk", "1234567"] {
        let once = judged_as(&hops(&[own]), NUMBER, user);
        assert!(once.is_ok(), "{user}");
        let live = under_way(CALLER);
        let once = judged_while(&hops(&[own]), NUMBER, user, &live);
        assert!(once.is_ok(), "{user}");
        let twice = judged_while(&hops(&[own, own]), NUMBER, user, &live);
        assert_eq!(twice, Err(Looped::Again), "{user}");
        let thrice = judged_as(&hops(&[own, own, own]), NUMBER, user);
        assert_eq!(thrice, Err(Looped::Again), "{user}");
    }
    assert_eq!(
        judged_while(&hops(&[own]), "030123456", NUMBER, &under_way(CALLER)),
        Err(Looped::Again)
    );
}

#[test]
fn a_history_that_left_the_number_and_came_back_is_a_loop() {
    let entry = |user: &str, index: &str| format!("<sip:{user}@carrier.example>;index={index}");
    for (users, dialled, expected) in [
        (&[][..], NUMBER, Ok(())),
        // The way of a plain call, in one spelling or two.
        (&[NUMBER, "030123456", NUMBER], NUMBER, Ok(())),
        // The number leads to the user that we registered.
        (&[NUMBER, "1234567"], "1234567", Ok(())),
        (&[NUMBER, "acme-trunk"], "acme-trunk", Ok(())),
        // Somebody diverted it to us.
        (&["+4989654321", NUMBER], NUMBER, Ok(())),
        (&["+4989654321"], NUMBER, Ok(())),
        // We did, and it is back.
        (&[NUMBER, "+4989654321", NUMBER], NUMBER, Err(Looped::Again)),
        (&["030123456", "+4989654321"], NUMBER, Err(Looped::Again)),
        (&["1", "2", "3", "4"], NUMBER, Ok(())),
        (&["1", "2", "3", "4", "5"], NUMBER, Err(Looped::TooOften)),
        (&["1", "1", "2", "2", "2", "3", "3", "4"], NUMBER, Ok(())),
    ] {
        let history = users.iter().map(|user| entry(user, "1")).collect();
        let hops = Hops { history, ..hops() };
        let judged = judged_while(&hops, NUMBER, dialled, &under_way(CALLER)).map(|_| ());
        assert_eq!(judged, expected, "{users:?}");
    }
}

#[test]
fn the_call_that_goes_out_says_who_diverted_it_and_why() {
    let hops = Hops {
        diversion: owned(&["<sip:+4989654321@x>;reason=no-answer", "garbage"]),
        ..hops()
    };
    let headers = |hops: &Hops, lack| {
        judged(hops)
            .unwrap()
            .headers(NUMBER, "+15550100", "carrier.example:5070", lack)
    };
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        headers(&hops, Lack::Agent),
        [
            text(
                "Diversion",
                "<sip:+4930123456@carrier.example:5070>;reason=no-answer;counter=1"
            ),
            text("Diversion", "<sip:+4989654321@x>;reason=no-answer"),
        ]
    );
    for (lack, reason) in [(Lack::Room, "user-busy"), (Lack::Server, "unavailable")] {
        let own = &headers(&hops, lack)[0].1;
        assert!(own.contains(&format!(";reason={reason};")), "{own}");
    }
}

#[test]
fn a_history_goes_on_where_there_is_one_and_is_bounded() {
    let history = |entries: &[String]| {
        let hops = Hops {
            history: entries.to_vec(),
            ..hops()
        };
        let headers = judged(&hops)
            .unwrap()
            .headers(NUMBER, "+15550100", "c.example", Lack::Room);
        let mut found = headers
            .into_iter()
            .filter(|(name, _)| name == "History-Info");
        found.next().map(|(_, value)| value)
    };
    assert_eq!(history(&[]), None);
    let own = "<sip:+4930123456@a.example>;index=1.2".to_owned();
    assert_eq!(
        history(std::slice::from_ref(&own)).unwrap(),
        format!("{own}, <sip:+15550100@c.example;cause=486>;index=1.2.1;mp=1.2")
    );
    let other = "<sip:+4989654321@a.example>;index=x".to_owned();
    assert_eq!(
        history(std::slice::from_ref(&other)).unwrap(),
        format!(
            "{other}, <sip:+4930123456@c.example>;index=1.1, \
             <sip:+15550100@c.example;cause=486>;index=1.1.1;mp=1.1"
        )
    );
    let many = vec![own.clone(); 30];
    let carried = history(&many).unwrap();
    assert_eq!(carried.matches("<sip:").count(), MOST_HISTORY + 1);
    let long = format!("<sip:{}@a.example>;index=1", "1".repeat(300));
    let carried = history(&[long, own]).unwrap();
    assert!(carried.len() < 200, "{carried}");
}

fn forward(caller: &str, called: (u128, &str), to: &str) -> LiveForward {
    let told = |number: &str| (!number.is_empty()).then(|| number.to_owned());
    LiveForward {
        caller: told(caller),
        called: told(called.1),
        number: Some(id(called.0)),
        from: told(called.1),
        to: told(to),
        answered: false,
        came: Timestamp::default(),
        went: Timestamp::default(),
    }
}

/// A call of that caller to our number while these ring.
fn while_ringing(caller: &str, ringing: &[LiveForward]) -> Result<(), Looped> {
    let hops = hops();
    let call = Arrival {
        id: id(7),
        number: NUMBER,
        dialled: NUMBER,
        caller: (!caller.is_empty()).then_some(caller),
        extension: None,
        hops: &hops,
    };
    judge(&call, ringing).map(|_| ())
}

#[test]
fn a_loop_over_a_carrier_that_leaves_nothing_of_the_way_is_known_by_what_rings() {
    let (second, third, outside) = ("+4930222222", "+4930333333", "+15550100");
    let first = (7, NUMBER);
    for (caller, ringing, expected) in [
        // Two numbers that forward to each other, whatever the carrier shows as the caller.
        (
            second,
            vec![
                forward(CALLER, first, second),
                forward(NUMBER, (2, second), NUMBER),
            ],
            Err(Looped::Again),
        ),
        (
            "",
            vec![
                forward(CALLER, first, second),
                forward("", (2, second), NUMBER),
            ],
            Err(Looped::Again),
        ),
        (
            "030222222",
            vec![
                forward(CALLER, first, second),
                forward(NUMBER, (2, second), NUMBER),
            ],
            Err(Looped::Again),
        ),
        // Three.
        (
            third,
            vec![
                forward(second, (3, third), NUMBER),
                forward(NUMBER, (2, second), third),
                forward(CALLER, first, second),
            ],
            Err(Looped::Again),
        ),
        // A carrier diverts to us what we forward to it, as ours or as the callee's.
        (
            NUMBER,
            vec![forward(CALLER, first, outside)],
            Err(Looped::Again),
        ),
        (
            outside,
            vec![forward(CALLER, first, outside)],
            Err(Looped::Again),
        ),
        // Others may call while it rings, and be called by whom we forward to.
        (CALLER, vec![forward(CALLER, first, outside)], Ok(())),
        ("", vec![forward(CALLER, first, outside)], Ok(())),
        ("+33199999999", vec![forward(CALLER, first, second)], Ok(())),
        (second, vec![forward(CALLER, (2, second), NUMBER)], Ok(())),
        (
            third,
            vec![
                forward(CALLER, (2, second), NUMBER),
                forward(outside, (3, third), second),
            ],
            Ok(()),
        ),
    ] {
        assert_eq!(
            while_ringing(caller, &ringing),
            expected,
            "{caller} {ringing:?}"
        );
    }
}

#[test]
fn calls_alike_are_forwarded_at_once_as_often_as_a_loop_may_take() {
    // Who hides their number may be anybody.
    for (caller, most) in [("", MOST_HIDDEN), ("+33100000000", MOST_ALIKE)] {
        let mut ringing = vec![forward(CALLER, (7, NUMBER), "+15550100")];
        for _ in 0..most {
            assert_eq!(while_ringing(caller, &ringing), Ok(()));
            ringing.push(forward(caller, (7, NUMBER), "+15550100"));
        }
        assert_eq!(while_ringing(caller, &ringing), Err(Looped::TooManyAlike));
        assert_eq!(while_ringing("+33111111111", &ringing), Ok(()));
        // Those who were answered are no loop of calls that ring.
        for forward in &mut ringing {
            forward.answered = true;
        }
        assert_eq!(while_ringing(caller, &ringing), Ok(()));
    }
}

/// A carrier may answer before it calls on.
#[test]
fn a_loop_over_a_carrier_that_answers_at_once_is_known_by_the_numbers_that_are_called() {
    let (second, outside) = ("+4930222222", "+15550100");
    let answered = |forward: LiveForward| LiveForward {
        answered: true,
        ..forward
    };
    let first = answered(forward(CALLER, (7, NUMBER), second));
    let back = answered(forward("", (2, second), NUMBER));
    assert_eq!(while_ringing("", &[first, back]), Err(Looped::Again));
    let diverted = answered(forward(CALLER, (7, NUMBER), outside));
    assert_eq!(
        while_ringing(NUMBER, std::slice::from_ref(&diverted)),
        Err(Looped::Again)
    );
    // Whoever is talking there may share the number that they show with others.
    assert_eq!(while_ringing(outside, &[diverted]), Ok(()));
}

/// Somebody who shows the number of one that is forwarded, and is forwarded to it, keeps nobody from calling it.
#[test]
fn a_call_that_went_out_later_was_not_on_the_way() {
    let (second, outside) = ("+4930222222", "+15550100");
    let at = |came, went, forward: LiveForward| LiveForward {
        came: Timestamp(came),
        went: Timestamp(went),
        ..forward
    };
    let to_us = at(10_000_000, 11_000_000, forward(NUMBER, (2, second), NUMBER));
    let ours = at(
        20_000_000,
        21_000_000,
        forward(second, (7, NUMBER), outside),
    );
    assert_eq!(while_ringing(CALLER, &[to_us.clone(), ours]), Ok(()));
    let before = at(1_000_000, 2_000_000, forward(CALLER, (7, NUMBER), second));
    let loops = while_ringing(CALLER, &[to_us, before]);
    assert_eq!(loops, Err(Looped::Again));
}
