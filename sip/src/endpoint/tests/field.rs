//! What other people's equipment sends: bytes beyond ASCII, targets that nobody can reach, tokens in any case, and
//! fields that say more, or less, than the grammar has.

use super::alone::*;

const CARRIER: &str = "192.0.2.1:5060";
const CALL_IN: CallId = CallId(CallId::FIRST_INCOMING);

fn with_trunk() -> Alone {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone
}

/// A datagram of the carrier's that may hold any bytes.
fn datagram(alone: &mut Alone, bytes: &[u8]) {
    let from = CARRIER.parse().unwrap();
    alone.step(Input::Datagram { from, bytes });
}

/// A response of the carrier's to the last INVITE, with these lines and our tag's dialog.
fn respond(alone: &mut Alone, status: &[u8], lines: &[u8]) {
    let invites = alone
        .sent
        .iter()
        .rev()
        .filter_map(|(_, message)| match message {
            Message::Request(request) if request.method == Method::Invite => Some(request.clone()),
            _ => None,
        });
    let invite = invites.take(1).next().unwrap();
    let mut bytes = b"SIP/2.0 ".to_vec();
    bytes.extend(status);
    bytes.extend(b"\r\n");
    for name in [Name::Via, Name::From, Name::To, Name::CallId, Name::CSeq] {
        let value = invite.headers.get(&name).unwrap();
        let tag = if name == Name::To { ";tag=there" } else { "" };
        bytes.extend(format!("{}: {value}{tag}\r\n", name.as_str()).as_bytes());
    }
    bytes.extend(lines);
    bytes.extend(b"Content-Type: application/sdp\r\nContent-Length: 6\r\n\r\nanswer");
    datagram(alone, &bytes);
}

/// The requests since then, and where they went.
fn requests(alone: &Alone, from: usize) -> Vec<(String, String)> {
    let sent = alone.sent[from..].iter();
    sent.filter_map(|(peer, message)| match message {
        Message::Request(request) => Some((request.method.to_string(), peer.addr.to_string())),
        Message::Response(_) => None,
    })
    .collect()
}

/// A request of the caller's in the call that came in.
fn within(alone: &Alone, method: &str, number: u32, lines: &[u8]) -> Vec<u8> {
    let answers = alone.sent.iter().filter_map(|(_, message)| match message {
        Message::Response(response) if response.code == 200 => response.headers.get(&Name::To),
        _ => None,
    });
    let to = answers.take(1).next().unwrap();
    let mut bytes = format!(
        "{method} sip:x@192.0.2.2 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{method}{number}\r\n\
         From: <sip:+15550123@carrier.example>;tag=far1\r\nTo: {to}\r\nCall-ID: digest1\r\n\
         CSeq: {number} {method}\r\nMax-Forwards: 70\r\n"
    )
    .into_bytes();
    bytes.extend(lines);
    bytes.extend(b"Content-Length: 0\r\n\r\n");
    bytes
}

/// A call of the carrier's that is up.
fn came_in(alone: &mut Alone, change: impl Fn(String) -> String) {
    alone.bytes(CARRIER, &change(invite("", 1)));
    alone.command(Command::Answer(CALL_IN, sdp("answer")));
    assert_eq!(alone.last_response().code, 200);
    let ack = within(alone, "ACK", 1, b"");
    datagram(alone, &ack);
    assert_eq!(alone.told.last().map(String::as_str), Some("established"));
}

#[test]
fn bytes_beyond_ascii_end_and_begin_calls_as_any() {
    for lines in [
        &b"Reason: Q.850;cause=16;text=\"Geb\xfchr\"\r\n"[..],
        b"User-Agent: \xff\xfe\x80\r\n",
        b"X-Stra\xdfe: 1\r\n",
    ] {
        let mut alone = with_trunk();
        came_in(&mut alone, |text| text);
        let bye = within(&alone, "BYE", 2, lines);
        datagram(&mut alone, &bye);
        assert_eq!(alone.last_response().code, 200, "{lines:?}");
        assert_eq!(alone.told.last().unwrap(), "ended by Remote", "{lines:?}");
    }
    for (status, lines) in [
        (&b"200 OK"[..], &b"Server: M\xe9dia\r\n"[..]),
        (b"200 Angenommen \xfc", b""),
        (
            b"200 OK",
            b"Contact: M\xfcller, GmbH <sip:gw@192.0.2.1>\r\nOrganization: \x93x\x94\r\n",
        ),
    ] {
        let mut alone = with_trunk();
        alone.command(placing(Duration::from_secs(60)));
        respond(&mut alone, status, lines);
        assert_eq!(alone.last().1.method, Method::Ack, "{lines:?}");
        assert_eq!(alone.told, ["answered \"answer\""]);
    }
    // Whoever calls is let in, whatever the name is written in.
    let mut alone = with_trunk();
    let mut bytes = invite("", 1).replace('\n', "\r\n").into_bytes();
    let at = bytes.windows(6).position(|six| six == b"From: ").unwrap();
    bytes.splice(at + 6..at + 6, b"J\xf6rg, (privat) ".iter().copied());
    datagram(&mut alone, &bytes);
    assert_eq!(alone.told, ["incoming"]);
    assert_eq!(alone.incoming[0].display.as_deref(), Some("Jörg, (privat)"));
}

#[test]
fn what_is_refused_is_told_with_its_method_its_field_and_why() {
    let mut alone = with_trunk();
    let told = |alone: &mut Alone, text: &str| {
        alone.told.clear();
        alone.bytes(CARRIER, text);
        alone.told.clone()
    };
    let plain = invite("", 1);
    for (from, to, expected) in [
        (
            "Max-Forwards: 70",
            "Max-Forwards: x",
            "400 Max-Forwards: Bad Max-Forwards",
        ),
        (
            "CSeq: 1 INVITE",
            "CSeq: 1 BYE",
            "400 CSeq: CSeq Method Mismatch",
        ),
        ("To: <sip:", "To: \"x <sip:", "400 To: Bad To"),
        (";rport;", ";;,;,,", "400 Via: Bad Via"),
        (
            "INVITE sip:+15550100@192.0.2.2 SIP/2.0",
            "INVITE sip:x@y SIP/7.0",
            "505 -: Version Not Supported",
        ),
        (
            "Max-Forwards",
            "Require: teleport\nMax-Forwards",
            "420 Require: Bad Extension: teleport",
        ),
        (
            "Content-Length: 0\n",
            "Content-Type: text/plain\nContent-Length: 1\n",
            "415 Content-Type: Unsupported Media Type: text/plain",
        ),
    ] {
        let text = plain.replacen(from, to, 1).replace("\n\n", "\n\nx");
        assert_ne!(text, plain, "{from}");
        let heard = told(&mut alone, &text);
        let expected = format!("refused INVITE of digest1 {expected}");
        assert_eq!(heard, [expected], "{to}");
        let code = expected_code(&heard[0]);
        assert_eq!(alone.last_response().code, code, "{to}");
    }
    // A response that cannot be used is told, too, and answered by nobody.
    alone.command(placing(Duration::from_secs(60)));
    let sent = alone.sent.len();
    let (_, sent_invite) = alone.last();
    let id = sent_invite.call_id().to_owned();
    let via = sent_invite.headers.get(&Name::Via).unwrap().to_owned();
    let text =
        format!("SIP/2.0 200 OK\nVia: {via}\nFrom: x\nTo: y\nCall-ID: {id}\nCSeq: 1 INVITE\n\n");
    let heard = told(&mut alone, &text);
    assert_eq!(
        heard,
        [format!("refused 200 INVITE of {id} 0 From: Bad From")]
    );
    assert_eq!(alone.sent.len(), sent);
    // What is no SIP is noise, and a flood fills no log.
    assert!(told(&mut alone, "\0\0\0\0").is_empty());
    let heard = (0..1_000)
        .filter(|_| {
            !told(
                &mut alone,
                &plain.replace("Max-Forwards: 70", "Max-Forwards: x"),
            )
            .is_empty()
        })
        .count();
    assert!(heard < 64, "{heard}");
}

fn expected_code(told: &str) -> u16 {
    let code = told.split(' ').nth(4);
    code.unwrap().parse().unwrap()
}

/// A name that nobody knows, a number, and what no SIP stack speaks: the dialog goes on where it was heard.
#[test]
fn a_target_that_leads_nowhere_is_reached_where_the_dialog_was_heard() {
    let named = "<sip:gw@sbc01.internal.example>";
    for contact in [
        named,
        "<sip:gw@sbc01.internal.example:5070;transport=udp>",
        "<tel:+15550123>",
        "<h323:gw@192.0.2.1>",
        "<sip:gw@0.0.0.0>",
    ] {
        // A call of ours.
        let mut alone = with_trunk();
        alone.command(placing(Duration::from_secs(60)));
        respond(
            &mut alone,
            b"200 OK",
            format!("Contact: {contact}\r\n").as_bytes(),
        );
        not_found(&mut alone);
        assert_eq!(
            requests(&alone, 1),
            [("ACK".to_owned(), CARRIER.to_owned())],
            "{contact}"
        );
        // The 2xx again: it is acknowledged at once, whatever the resolver does.
        respond(
            &mut alone,
            b"200 OK",
            format!("Contact: {contact}\r\n").as_bytes(),
        );
        assert_eq!(
            requests(&alone, 2),
            [("ACK".to_owned(), CARRIER.to_owned())],
            "{contact}"
        );
        alone.command(Command::HangUp(CALL, None));
        not_found(&mut alone);
        let (to, bye) = alone.last();
        assert_eq!(
            (bye.method, to.addr.to_string().as_str()),
            (Method::Bye, CARRIER),
            "{contact}"
        );
        alone.answer(200, &[]);
        assert_eq!(alone.endpoint.counts().calls, 0, "{contact}");
        // A call of theirs.
        let mut alone = with_trunk();
        let own = "Contact: <sip:+15550123@192.0.2.1>";
        came_in(&mut alone, |text| {
            text.replace(own, &format!("Contact: {contact}"))
        });
        alone.command(Command::HangUp(CALL_IN, None));
        not_found(&mut alone);
        let (to, bye) = alone.last();
        assert_eq!(
            (bye.method, to.addr.to_string().as_str()),
            (Method::Bye, CARRIER),
            "{contact}"
        );
    }
    for route in [
        "<sip:sbc01.internal.example;lr>",
        "<tel:+15550123>",
        "<sip:sbc.internal.example>",
    ] {
        let mut alone = with_trunk();
        came_in(&mut alone, |text| {
            text.replace(
                "Max-Forwards",
                &format!("Record-Route: {route}\nMax-Forwards"),
            )
        });
        alone.command(Command::HangUp(CALL_IN, None));
        not_found(&mut alone);
        let (to, bye) = alone.last();
        assert_eq!(
            (bye.method, to.addr.to_string().as_str()),
            (Method::Bye, CARRIER),
            "{route}"
        );
    }
}

/// The resolver finds none of the names that are asked for.
fn not_found(alone: &mut Alone) {
    while let Some(lookup) = alone.asked.pop() {
        alone.step(Input::Resolved {
            lookup,
            answers: None,
            keep: Duration::from_secs(5),
        });
    }
}

/// A name that is found is where the dialog goes, its ACK, too: at once, and once.
#[test]
fn an_ack_waits_for_the_name_of_its_target() {
    let mut alone = with_trunk();
    alone.command(placing(Duration::from_secs(60)));
    let lines = b"Contact: <sip:gw@sbc.example>\r\n";
    respond(&mut alone, b"200 OK", lines);
    respond(&mut alone, b"200 OK", lines);
    assert!(requests(&alone, 1).is_empty());
    leads_to(&mut alone, &[7]);
    assert_eq!(
        requests(&alone, 1),
        [("ACK".to_owned(), "198.51.100.7:5080".to_owned())]
    );
}

#[test]
fn a_goodbye_that_reaches_nobody_is_told() {
    let mut alone = with_trunk();
    came_in(&mut alone, |text| text);
    alone.command(Command::HangUp(CALL_IN, None));
    alone.run_for(Duration::from_secs(40));
    assert_eq!(alone.told.last().unwrap(), "unreached BYE: no answer came");
    assert_eq!(alone.endpoint.counts().calls, 0);
}

/// The connection or the family that a target names cannot be had: the dialog's own is taken.
#[test]
fn a_target_over_another_transport_is_tried_and_then_the_dialogs_own() {
    let mut alone = with_trunk();
    let own = "Contact: <sip:+15550123@192.0.2.1>";
    came_in(&mut alone, |text| {
        text.replace(own, "Contact: <sip:gw@192.0.2.1:5070;transport=tcp>")
    });
    alone.command(Command::HangUp(CALL_IN, None));
    let (to, _) = alone.last();
    assert_eq!(to.transport, Transport::Tcp);
    alone.step(Input::Failed(to));
    let (to, bye) = alone.last();
    assert_eq!(
        (bye.method, to.addr.to_string().as_str()),
        (Method::Bye, CARRIER)
    );
    assert_eq!(to.transport, Transport::Udp);
}

/// No transaction tells that an ACK is lost: it goes to its target, and over the dialog's own transport and family.
#[test]
fn an_ack_whose_target_is_of_another_transport_goes_both_ways() {
    for (contact, target) in [
        (
            "<sip:gw@192.0.2.1:5070;transport=tcp>",
            (Transport::Tcp, "192.0.2.1:5070"),
        ),
        (
            "<sip:gw@[2001:db8::1]:5070>",
            (Transport::Udp, "[2001:db8::1]:5070"),
        ),
        (
            "<sip:gw@sbc.example;transport=tcp>",
            (Transport::Tcp, "198.51.100.7:5080"),
        ),
    ] {
        let mut alone = with_trunk();
        alone.command(placing(Duration::from_secs(60)));
        let line = format!("Contact: {contact}\r\n");
        let mut from = 1;
        // The 2xx comes again, as the first ACK came too late.
        for _ in 0..2 {
            respond(&mut alone, b"200 OK", line.as_bytes());
            if !alone.asked.is_empty() {
                leads_to(&mut alone, &[7]);
            }
            let went = alone.sent[from..].iter().map(|(peer, message)| {
                assert!(is(message, Method::Ack), "{contact}: {message:?}");
                (peer.transport, peer.addr.to_string())
            });
            let (transport, addr) = target;
            let both = [(transport, addr), (Transport::Udp, CARRIER)];
            let both = both.map(|(transport, addr)| (transport, addr.to_owned()));
            assert_eq!(went.collect::<Vec<_>>(), both, "{contact}");
            from = alone.sent.len();
        }
    }
}

/// As many requests wait for the name of a call's target as may.
#[test]
fn a_goodbye_that_has_no_room_to_wait_for_a_name_goes_where_the_dialog_was_heard() {
    let mut alone = with_trunk();
    // Calls out wait for the name of their carrier.
    alone.command(Command::SetTrunk(Box::new(named(1))));
    alone.command(Command::SetTrunk(Box::new(trunk(2, A, Transport::Udp))));
    came_in(&mut alone, |text| {
        text.replace(
            "<sip:+15550123@192.0.2.1>",
            "<sip:+15550123@carrier.example>",
        )
    });
    let sent = alone.sent.len();
    for id in 1..=1_100 {
        alone.command(place_as(CallId(id), Duration::from_secs(60)));
    }
    assert_eq!(alone.sent.len(), sent, "they wait");
    assert_eq!(alone.reasons.len(), 1_100 - 1_024);
    alone.command(Command::HangUp(CALL_IN, None));
    let (to, bye) = alone.last();
    assert_eq!(
        (bye.method, to.addr.to_string().as_str()),
        (Method::Bye, CARRIER)
    );
}

#[test]
fn a_session_is_refreshed_whatever_case_its_refresher_is_written_in() {
    for refresher in ["UAC", "Uac", "uac"] {
        let mut alone = with_trunk();
        alone.command(placing(Duration::from_secs(60)));
        let value = format!("90;refresher={refresher}");
        alone.answer(200, &[(Name::SessionExpires, value.as_str())]);
        let sent = alone.sent.len();
        alone.run_for(Duration::from_secs(46));
        let methods: Vec<String> = requests(&alone, sent)
            .into_iter()
            .map(|(method, _)| method)
            .collect();
        assert!(
            methods.contains(&"INVITE".to_owned()),
            "{refresher}: {methods:?}"
        );
    }
}

/// RFC 4028 section 9: what a session is granted is never below what its proxies bear.
#[test]
fn a_session_is_never_granted_below_the_least_that_is_borne() {
    for (fields, least) in [
        (
            "Session-Expires: 7200\nMin-SE: 3600\nSupported: timer\n",
            3_600,
        ),
        ("Min-SE: 3600\nSupported: timer\n", 3_600),
        ("Min-SE: 3600\n", 3_600),
        ("Session-Expires: 7200\nMin-SE: 90\nSupported: timer\n", 90),
    ] {
        let mut alone = with_trunk();
        alone.bytes(CARRIER, &invite(fields, 1));
        alone.command(Command::Answer(CALL_IN, sdp("answer")));
        let answer = alone.last_response();
        let granted = answer.headers.get(&Name::SessionExpires).unwrap();
        let seconds: u32 = granted.split(';').next().unwrap().parse().unwrap();
        assert!(seconds >= least, "{fields}: {granted}");
    }
}

/// Whoever crossed several servers gives credentials to each.
#[test]
fn of_several_credentials_those_of_our_realm_count() {
    let other = |realm: &str| {
        format!(
            "Authorization: Digest username=\"bob\", realm=\"{realm}\", nonce=\"n\", uri=\"sip:x\", \
             response=\"0123456789abcdef0123456789abcdef\", qop=AUTH, nc=00000001, cnonce=\"c\"\n"
        )
    };
    for (before, behind) in [(true, false), (false, true), (true, true)] {
        let mut alone = Alone::new();
        alone.command(Command::SetTrunk(Box::new(Trunk {
            inbound: InboundAuth::Digest,
            credentials: Some(credentials()),
            ..trunk(1, A, Transport::Udp)
        })));
        alone.bytes(CARRIER, &invite("", 1));
        let response = alone.last_response();
        let challenge = response.headers.get(&Name::WwwAuthenticate).unwrap();
        let right = authorization(challenge, "alice", "secret");
        let first = if before {
            other("proxy.example")
        } else {
            String::new()
        };
        let last = if behind {
            other("core.example")
        } else {
            String::new()
        };
        alone.bytes(CARRIER, &invite(&format!("{first}{right}{last}"), 2));
        assert_eq!(alone.told, ["incoming"]);
    }
}

/// RFC 3262 section 5: what is answered first and reliably to an INVITE without an offer has ours.
#[test]
fn an_invite_without_an_offer_that_wants_reliable_answers_gets_our_offer_first() {
    let mut alone = with_trunk();
    alone.bytes(CARRIER, &invite("Require: 100rel\n", 1));
    alone.command(Command::Ring(CALL_IN, None));
    assert!(alone.sent.iter().all(|(_, message)| matches!(
        message,
        Message::Response(response) if response.code == 100
    )));
    alone.command(Command::Answer(CALL_IN, sdp("ours")));
    let answer = alone.last_response();
    assert_eq!((answer.code, answer.body()), (200, Some(sdp("ours"))));
    // With a body it rings reliably, and that is the offer.
    let mut alone = with_trunk();
    alone.bytes(CARRIER, &invite("Require: 100REL\n", 1));
    alone.command(Command::Ring(CALL_IN, Some(sdp("ours"))));
    let early = alone.last_response();
    assert_eq!((early.code, early.body()), (183, Some(sdp("ours"))));
    assert!(early.headers.has(&Name::RSeq));
}

/// RFC 3261 section 13.3.1.
#[test]
fn an_invitation_that_expires_is_over() {
    let mut alone = with_trunk();
    alone.bytes(CARRIER, &invite("Expires: 10\n", 1));
    alone.command(Command::Ring(CALL_IN, None));
    alone.run_for(Duration::from_secs(9));
    assert_eq!(alone.told, ["incoming"]);
    alone.run_for(Duration::from_secs(2));
    assert_eq!(alone.told, ["incoming", "ended by Remote 487"]);
    assert_eq!(alone.reasons, ["Expired"]);
    // One that was answered in time goes on, and what is no number says nothing.
    for field in ["Expires: 10\n", "Expires: soon\n", "Expires: 0\n"] {
        let mut alone = with_trunk();
        alone.bytes(CARRIER, &invite(field, 1));
        if field == "Expires: 10\n" {
            alone.command(Command::Answer(CALL_IN, sdp("answer")));
        }
        alone.run_for(Duration::from_secs(20));
        assert_eq!(alone.told, ["incoming"], "{field}");
    }
}

fn several(kind: &str, parts: &str) -> String {
    let parts = parts.replace('\n', "\r\n");
    let length = parts.len();
    let plain = invite("", 1);
    let with = format!("Content-Type: {kind}\nContent-Length: {length}\n\n");
    plain.replace("Content-Length: 0\n\n", &with) + &parts.replace('\r', "")
}

#[test]
fn parts_that_must_be_understood_and_bodies_without_a_session_are_415() {
    let sdp = "--b\nContent-Type: application/sdp\n\nv=0\n";
    let part = |disposition: &str| {
        format!("--b\nContent-Type: application/x-unknown\n{disposition}\nx\n{sdp}--b--\n")
    };
    for (kind, parts, code) in [
        ("multipart/mixed;boundary=b", part(""), None),
        (
            "multipart/related;boundary=\"b\"",
            part("Content-Disposition: x;handling=optional\n"),
            None,
        ),
        ("Multipart/Alternative; Boundary=b", part(""), None),
        (
            "multipart/mixed;boundary=b",
            part("Content-Disposition: x;handling=required\n"),
            Some(415),
        ),
        (
            "multipart/mixed;boundary=b",
            "--b\nContent-Type: text/plain\n\nx\n--b--\n".to_owned(),
            Some(415),
        ),
        ("multipart/related", format!("{sdp}--b--\n"), Some(415)),
        ("text/plain", "x".to_owned(), Some(415)),
        (
            "text/plain\nContent-Disposition: render;handling=optional",
            "x".to_owned(),
            None,
        ),
    ] {
        let mut alone = with_trunk();
        alone.bytes(CARRIER, &several(kind, &parts));
        match code {
            Some(code) => {
                let refusal = alone.last_response();
                assert_eq!(refusal.code, code, "{kind} {parts}");
                assert_eq!(refusal.headers.get(&Name::Accept), Some("application/sdp"));
            }
            None => assert_eq!(alone.incoming.len(), 1, "{kind} {parts}"),
        }
        // What need not be understood is no offer.
        if let Some(incoming) = alone.incoming.first() {
            assert_eq!(
                incoming.offer.is_some(),
                kind.contains("ultipart"),
                "{kind}"
            );
        }
    }
}

/// RFC 3323 and RFC 3325: who withholds the number is told to nobody, and to no trace.
#[test]
fn a_caller_who_withholds_the_number_is_named_nowhere() {
    let identity = "P-Asserted-Identity: \"Alice\" <sip:+4930987654@carrier.example>, <tel:+4930987654>\n\
                    Remote-Party-ID: <sip:4930987654@carrier.example>;party=calling\n";
    for privacy in ["id", "ID", "user;critical", "header; id", "none;id"] {
        let mut alone = with_trunk();
        let text = invite(&format!("{identity}Privacy: {privacy}\n"), 1);
        alone.bytes(CARRIER, &text);
        let incoming = &alone.incoming[0];
        assert!(
            incoming.withheld && incoming.asserted.is_empty(),
            "{privacy}"
        );
        assert_eq!(incoming.display, None);
        alone.command(Command::Answer(CALL_IN, sdp("answer")));
        alone.run_for(Duration::from_secs(2));
        alone.command(Command::HangUp(CALL_IN, None));
        assert!(!alone.traced.is_empty());
        for text in &alone.traced {
            for secret in ["4930987654", "Alice", "15550123"] {
                assert!(!text.contains(secret), "{privacy}: {text}");
            }
        }
    }
    // Whatever From and Contact have: a display name, a number with what makes it easier to read, a name, an extension.
    for (display, user, contact) in [
        ("\"Alice B.\" ", "+49-30-987654", "alice.b"),
        ("Alice ", "alice.b", "200"),
        ("", "%2B49(30)987-654;npdi", "4930987654"),
        ("\"Alice\" ", "+4930987654:5060", "+49-30-987654"),
        ("\"+4930987654\" ", "200", "200"),
    ] {
        let mut alone = with_trunk();
        let text = invite("Privacy: id\n", 1)
            .replace(
                "From: <sip:+15550123@",
                &format!("From: {display}<sip:{user}@"),
            )
            .replace(
                "Contact: <sip:+15550123@",
                &format!("Contact: {display}<sip:{contact}@"),
            );
        alone.bytes(CARRIER, &text);
        alone.command(Command::Answer(CALL_IN, sdp("answer")));
        let mut ack = within(
            &alone,
            "ACK",
            1,
            b"P-Asserted-Identity: <sip:alice.b@h>\r\n",
        );
        let plain = b"<sip:+15550123@";
        let at = ack.windows(plain.len()).position(|own| own == plain);
        let from = format!("{display}<sip:{user}@");
        let at = at.unwrap();
        ack.splice(at..at + plain.len(), from.bytes());
        datagram(&mut alone, &ack);
        alone.command(Command::HangUp(CALL_IN, None));
        let (_, bye) = alone.last();
        assert_eq!(bye.method, Method::Bye);
        alone.answer(200, &[]);
        let told: Vec<&str> = alone
            .traced
            .iter()
            .map(|text| text.lines().next().unwrap())
            .collect();
        assert_eq!(
            told,
            [
                "INVITE sip:+15550100@192.0.2.2 SIP/2.0",
                "SIP/2.0 200 OK",
                "ACK sip:x@192.0.2.2 SIP/2.0",
                "BYE sip:***@192.0.2.1 SIP/2.0",
                "SIP/2.0 200 OK",
            ],
            "{user}"
        );
        for text in &alone.traced {
            for secret in ["987654", "987-654", "Alice", "alice", "sip:200", "200>"] {
                assert!(!text.contains(secret), "{user}: {text}");
            }
            assert!(text.contains("tag=far1"), "{text}");
        }
    }
    for privacy in ["", "Privacy: none\n", "Privacy: session\n"] {
        let mut alone = with_trunk();
        alone.bytes(CARRIER, &invite(&format!("{identity}{privacy}"), 1));
        let incoming = &alone.incoming[0];
        assert!(!incoming.withheld, "{privacy}");
        assert_eq!(incoming.asserted.len(), 2);
        assert!(alone.traced[0].contains("4930987654"));
    }
}

#[test]
fn where_a_carrier_redirects_a_call_to_is_told_before_its_end() {
    let mut alone = with_trunk();
    alone.command(placing(Duration::from_secs(60)));
    let contacts =
        "<sip:+15550111@192.0.2.7>;q=0.2, <sip:+15550112@192.0.2.7>;q=0.85, <tel:+15550113>";
    alone.answer(302, &[(Name::Contact, contacts)]);
    assert_eq!(
        alone.told,
        [
            "redirected to tel:+15550113 sip:+15550112@192.0.2.7 sip:+15550111@192.0.2.7",
            "ended by Remote 302"
        ]
    );
    // The same number of a call may be used again.
    alone.command(placing(Duration::from_secs(60)));
    assert_eq!(alone.last().1.method, Method::Invite);
    alone.answer(302, &[]);
    assert_eq!(alone.told[2..], ["ended by Remote 302"]);
}
