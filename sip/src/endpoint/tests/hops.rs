//! How a call got here, and what one carries on that is made because of it.

use super::alone::*;
use crate::event::{Forwarded, Hops, MOST_ENTRIES};

/// What is told of an INVITE with these fields more, and without its Max-Forwards where they have one.
fn came(fields: &str) -> Hops {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    let plain = invite("", 1);
    let text = match fields.contains("Max-Forwards") {
        true => plain.replace("Max-Forwards: 70\n", fields),
        false => plain.replace("Max-Forwards", &format!("{fields}Max-Forwards")),
    };
    alone.bytes("192.0.2.1:5060", &text);
    assert_eq!(alone.incoming.len(), 1, "{text}");
    alone.incoming.remove(0).hops
}

#[test]
fn the_way_of_a_call_is_told() {
    let plain = came("");
    assert_eq!(plain.max_forwards, Some(70));
    assert_eq!(plain.branches, ["z9hG4bKt1"]);
    assert!(plain.diversion.is_empty() && plain.history.is_empty());
    let hops = came(
        "Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKold.m1-m2\n\
         Diversion: \"A, B\" <sip:+4930@a.example;x=1,2>;reason=no-answer;counter=2, <tel:+4931>;reason=unknown\n\
         Diversion: <sip:+4932@c.example>\n\
         History-Info: <sip:1@a.example>;index=1, <sip:2@a.example?Reason=SIP%3Bcause%3D486>;index=1.1\n",
    );
    assert_eq!(hops.branches, ["z9hG4bKt1", "z9hG4bKold.m1-m2"]);
    assert_eq!(
        hops.diversion,
        [
            "\"A, B\" <sip:+4930@a.example;x=1,2>;reason=no-answer;counter=2",
            "<tel:+4931>;reason=unknown",
            "<sip:+4932@c.example>"
        ]
    );
    assert_eq!(
        hops.history,
        [
            "<sip:1@a.example>;index=1",
            "<sip:2@a.example?Reason=SIP%3Bcause%3D486>;index=1.1"
        ]
    );
    for (field, told) in [
        ("Max-Forwards: 0\n", Some(0)),
        ("Max-Forwards: 1\n", Some(1)),
        ("Max-Forwards:  255 \n", Some(255)),
        ("Max-Forwards: 007\n", Some(7)),
        ("Expires: 120\n", Some(70)),
    ] {
        assert_eq!(came(field).max_forwards, told, "{field}");
    }
}

/// RFC 2543 knew no Max-Forwards.
#[test]
fn who_counts_no_hops_is_served() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    let text = invite("", 1).replace("Max-Forwards: 70\n", "");
    alone.bytes("192.0.2.1:5060", &text);
    assert_eq!(alone.incoming[0].hops.max_forwards, None);
}

/// RFC 3261 section 16.3, step 1; section 20.22.
#[test]
fn a_max_forwards_that_is_none_is_a_bad_request() {
    for bad in [
        "",
        "x",
        "-1",
        "256",
        "7O",
        "70 70",
        "4294967297",
        "0x10",
        "1.0",
    ] {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
        let text = invite("", 1).replace("Max-Forwards: 70", &format!("Max-Forwards: {bad}"));
        alone.bytes("192.0.2.1:5060", &text);
        assert!(alone.incoming.is_empty(), "{bad:?}");
        assert_eq!(alone.last_response().code, 400, "{bad:?}");
    }
}

#[test]
fn of_a_way_that_is_too_long_the_latest_part_is_told() {
    let entries: Vec<String> = (0..100).map(|at| format!("<sip:{at}@a.example>")).collect();
    let entries = entries.join(",");
    let hops = came(&format!("Diversion: {entries}\nHistory-Info: {entries}\n"));
    assert_eq!(
        (hops.diversion.len(), hops.history.len()),
        (MOST_ENTRIES, MOST_ENTRIES)
    );
    assert_eq!(hops.diversion[0], "<sip:0@a.example>");
    assert_eq!(hops.history[MOST_ENTRIES - 1], "<sip:99@a.example>");
}

#[test]
fn a_forwarded_call_carries_on_its_hops_and_its_mark_also_where_a_password_is_asked_for() {
    let mut alone = Alone::new();
    let carrier = Trunk {
        credentials: Some(credentials()),
        ..trunk(1, A, Transport::Udp)
    };
    alone.command(Command::SetTrunk(Box::new(carrier)));
    for (call, forwarded, left, mark) in [
        (1, None, "70", None),
        (2, Some((41, "f0e1-a2b3")), "41", Some(".f0e1-a2b3")),
        (3, Some((0, "m")), "0", Some(".m")),
        // What is no token would end the parameter.
        (4, Some((5, "a;b")), "5", None),
    ] {
        let Command::Place(call, mut place) = place_as(CallId(call), Duration::from_secs(60))
        else {
            panic!("it is placed");
        };
        place.forwarded = forwarded.map(|(max_forwards, mark)| Forwarded {
            max_forwards,
            mark: mark.to_owned(),
        });
        alone.command(Command::Place(call, place));
        for challenged in [false, true] {
            let (_, request) = alone.last();
            assert_eq!(request.headers.get(&Name::MaxForwards), Some(left));
            let via = request.via().unwrap();
            let branch = via.branch().unwrap();
            match mark {
                Some(mark) => assert!(branch.ends_with(mark), "{branch}"),
                None => assert!(!branch.contains('.'), "{branch}"),
            }
            assert_eq!(request.headers.has(&Name::Authorization), challenged);
            if !challenged {
                alone.answer(401, &[(Name::WwwAuthenticate, CHALLENGE)]);
            }
        }
    }
}
