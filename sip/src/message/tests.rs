//! Messages, read and written: by example, then for any bytes.

use proptest::prelude::*;

use super::header::{AuthValue, Refresher, SessionExpires};
use super::parse::{Framing, MOST_BYTES, MOST_HEADERS, parse};
use super::stream::{Framed, Framer};
use super::*;

const INVITE: &str = "INVITE sip:+15550100@192.0.2.1 SIP/2.0\r\n\
    Via: SIP/2.0/UDP 192.0.2.9:5070;branch=z9hG4bK776asdhds;rport\r\n\
    Max-Forwards: 70\r\n\
    To: Agent <sip:+15550100@192.0.2.1>\r\n\
    From: \"A \\\"B\\\"\" <sip:+15550123@example.com;user=phone>;tag=1928301774\r\n\
    Call-ID: a84b4c76e66710\r\n\
    CSeq: 314159 INVITE\r\n\
    Contact: <sip:caller@192.0.2.9:5070;transport=udp>;expires=60\r\n\
    Content-Type: application/sdp\r\n\
    Content-Length: 4\r\n\r\nv=0\n";

fn read(bytes: &[u8]) -> Message {
    parse(bytes, Framing::Datagram).unwrap().unwrap()
}

fn request(text: &str) -> Request {
    match read(text.as_bytes()) {
        Message::Request(request) => request,
        Message::Response(_) => unreachable!("a response"),
    }
}

fn fault(text: &str) -> Fault {
    parse(text.as_bytes(), Framing::Datagram).unwrap_err().fault
}

#[test]
fn a_plain_invite() {
    let invite = request(INVITE);
    assert_eq!(invite.method, Method::Invite);
    assert_eq!(invite.uri.user().as_deref(), Some("+15550100"));
    assert_eq!(invite.cseq().unwrap().number, 314_159);
    let via = invite.via().unwrap();
    assert_eq!((via.transport.as_str(), via.port), ("UDP", Some(5070)));
    assert_eq!(via.branch(), Some("z9hG4bK776asdhds"));
    assert!(via.params.has("rport"));
    let from = invite.from().unwrap();
    assert_eq!(from.display.as_deref(), Some("A \"B\""));
    assert_eq!(from.tag(), Some("1928301774"));
    assert_eq!(invite.to().unwrap().display.as_deref(), Some("Agent"));
    let contact = invite.contact().unwrap();
    assert_eq!(contact.params.get("expires").as_deref(), Some("60"));
    assert_eq!(
        contact.uri.sip().unwrap().transport().as_deref(),
        Some("udp")
    );
    let body = invite.body().unwrap();
    assert!(body.is("Application/SDP"));
    assert_eq!(body.bytes, b"v=0\n");
    assert_eq!(invite.to_bytes(), INVITE.as_bytes());
}

#[test]
fn compact_names_folds_and_lists() {
    let text = "OPTIONS sip:a@b SIP/2.0\r\nv: SIP / 2.0 / UDP  one.example ;branch=z9hG4bK1,\r\n \
                SIP/2.0/TCP two.example\r\nf: <sip:f@b>\r\n ;\r\n\ttag = 9\r\nT : sip:a@b\r\n\
                i: c\r\nCSEQ: 0009\r\n  OPTIONS\r\nk: timer ,, 100rel\r\nsUPPORTED: replaces\r\n\
                l: 0\r\n\r\n";
    let options = request(text);
    let vias: Vec<&str> = options.headers.list(&Name::Via).collect();
    assert_eq!(vias.len(), 2);
    assert_eq!(Via::parse(vias[1]).unwrap().transport, "TCP");
    assert_eq!(options.from().unwrap().tag(), Some("9"));
    assert_eq!(options.cseq().unwrap().number, 9);
    let supported: Vec<&str> = options.headers.list(&Name::Supported).collect();
    assert_eq!(supported, ["timer", "100rel", "replaces"]);
    assert!(options.headers.lists(&Name::Supported, "100REL"));
    // A parameter after an address without brackets is the header's.
    assert_eq!(options.to().unwrap().uri.to_string(), "sip:a@b");
}

#[test]
fn each_fault_has_its_answer() {
    let cases = [
        ("SIP/2.0\r", "SIP/7.0\r", Fault::Version),
        (
            "CSeq: 314159 INVITE",
            "CSeq: 314159 BYE",
            Fault::Bad("CSeq Method Mismatch"),
        ),
        ("CSeq: 314159", "CSeq: 2147483648", Fault::Bad("Bad CSeq")),
        (
            "Max-Forwards: 70",
            "Max-Forwards: 256",
            Fault::Bad("Bad Max-Forwards"),
        ),
        (
            "Content-Length: 4",
            "Content-Length: 5",
            Fault::Bad("Content-Length Beyond Message"),
        ),
        (
            "Content-Length: 4",
            "Content-Length: -1",
            Fault::Bad("Bad Content-Length"),
        ),
        (
            "Content-Length: 4",
            "Content-Length: 4\r\nl: 4",
            Fault::Bad("Several Content-Length"),
        ),
        (
            "Call-ID: a84b4c76e66710\r\n",
            "",
            Fault::Bad("Missing Call-ID"),
        ),
        (
            "Call-ID: a84b4c76e66710",
            "Call-ID: ",
            Fault::Bad("Missing Call-ID"),
        ),
        ("To: Agent <", "To: \"Agent <", Fault::Bad("Bad To")),
        ("To: Agent <sip:", "To: Agent < sip:", Fault::Bad("Bad To")),
        ("bK776asdhds", "bK", Fault::Bad("Empty Branch")),
        (";rport", ";;,;,,", Fault::Bad("Bad Via")),
        (
            "Call-ID:",
            "Call-ID: x\r\nCall-ID:",
            Fault::Bad("Several Call-ID"),
        ),
        (
            "Max-Forwards: 70",
            "Max-Forwards\n: 70",
            Fault::Bad("Bad Header Field"),
        ),
        (
            "sip:+15550100@192.0.2.1 S",
            "sip:+15550100@192.0.2.1  S",
            Fault::Bad("Bad Request Line"),
        ),
        (
            "sip:+15550100@192.0.2.1 S",
            "<sip:+15550100@192.0.2.1> S",
            Fault::Bad("Bad Request-URI"),
        ),
        (
            "sip:+15550100@192.0.2.1 S",
            "sip:+15550100@192.0.2.1?a=b S",
            Fault::Bad("Headers In Request-URI"),
        ),
    ];
    for (from, to, expected) in cases {
        let text = INVITE.replacen(from, to, 1);
        assert_ne!(text, INVITE, "{from}");
        let malformed = parse(text.as_bytes(), Framing::Datagram).unwrap_err();
        assert_eq!(malformed.fault, expected, "{to}");
        assert!(malformed.answerable.is_some(), "{to}");
        let about = malformed.about.unwrap();
        assert_eq!(about.what, "INVITE", "{to}");
    }
    for junk in [
        "x",
        "\0\0\0",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "INVITE sip:a@b\r\n\r\n",
    ] {
        assert_eq!(fault(junk), Fault::NotSip, "{junk:?}");
    }
    assert!(parse(b"\r\n\r\n", Framing::Datagram).unwrap().is_none());
    assert_eq!(fault(&INVITE[..200]), Fault::Bad("Unfinished Header"));
}

/// Old gateways write Latin-1, and cut UTF-8 in the middle of a character.
#[test]
fn bytes_that_are_no_utf_8_are_read_as_latin_1() {
    let with = |from: &str, to: &[u8]| {
        let at = INVITE.find(from).unwrap();
        let mut bytes = INVITE.as_bytes()[..at].to_vec();
        bytes.extend(to);
        bytes.extend(&INVITE.as_bytes()[at + from.len()..]);
        bytes
    };
    let Message::Request(invite) = read(&with("Agent", b"M\xfcller")) else {
        unreachable!("an INVITE");
    };
    assert_eq!(invite.to().unwrap().display.as_deref(), Some("Müller"));
    let cut = with(
        "Max-Forwards",
        b"User-Agent: M\xc3\xbcller M\xc3\r\nMax-Forwards",
    );
    let Message::Request(invite) = read(&cut) else {
        unreachable!("an INVITE");
    };
    assert_eq!(invite.headers.get(&Name::UserAgent), Some("Müller M\u{c3}"));
    for other in [
        &b"Reason: Q.850;cause=16;text=\"Anruf beendet - Geb\xfchr\"\r\n"[..],
        b"Subject: \x80\xff\xfe\r\n",
        b"X-Gr\xf6\xdfe: 5\r\n",
        b"Organization: a\r\n \xe4\r\n",
    ] {
        let mut text = other.to_vec();
        text.extend(b"Max-Forwards");
        assert!(
            parse(&with("Max-Forwards", &text), Framing::Datagram).is_ok(),
            "{other:?}"
        );
        assert!(
            parse(&with("Max-Forwards", &text), Framing::Stream).is_ok(),
            "{other:?}"
        );
    }
    // What is needed, and what an answer returns as it came.
    for (from, to, expected) in [
        (
            "sip:+15550100@192.0.2.1 ",
            &b"sip:\xfc@192.0.2.1 "[..],
            "Bad Request-URI",
        ),
        ("sip:+15550123@example", b"sip:\xfc@example", "Bad From"),
        ("a84b4c76e66710", b"a84b\xfc", "Call-ID Not UTF-8"),
        (
            "branch=z9hG4bK776asdhds",
            b"branch=z9hG4bK\xfc",
            "Via Not UTF-8",
        ),
        ("314159 INVITE", b"314159 INVIT\xc9", "Bad CSeq"),
    ] {
        let malformed = parse(&with(from, to), Framing::Datagram).unwrap_err();
        assert_eq!(malformed.fault, Fault::Bad(expected));
        assert!(malformed.answerable.is_some(), "{expected}");
    }
    let told = [
        (Fault::Bad("Bad Contact"), Some("Contact")),
        (
            Fault::Bad("Several Session-Expires"),
            Some("Session-Expires"),
        ),
        (Fault::Bad(CALL_ID), Some("Call-ID")),
        (Fault::Bad("CSeq Method Mismatch"), Some("CSeq")),
        (Fault::Bad("Bare Line Feed"), None),
        (Fault::TooLarge, None),
    ];
    for (fault, header) in told {
        assert_eq!(fault.header(), header, "{fault:?}");
    }
}

const CALL_ID: &str = "Call-ID Not UTF-8";

/// A call whose answer, ACK or BYE is dropped is neither acknowledged nor ended.
#[test]
fn what_is_awaited_is_not_lost_over_a_field_that_nobody_reads() {
    let odd = "Contact: <sip:a@b;;>, ,\r\nRecord-Route: nonsense\r\nExpires: 1\r\nExpires: 2\r\n\
               Session-Expires: x\r\nSession-Expires: y\r\nEvent: a\r\nEvent: b\r\nMax-Forwards: 999\r\n";
    let plain = INVITE
        .replace(
            "Contact: <sip:caller@192.0.2.9:5070;transport=udp>;expires=60\r\n",
            odd,
        )
        .replace("Max-Forwards: 70\r\n", "");
    let (_, rest) = plain.split_once("\r\n").unwrap();
    for status in ["200 OK", "486 Besetzt", "180 Klingelt"] {
        assert!(matches!(
            read(format!("SIP/2.0 {status}\r\n{rest}").as_bytes()),
            Message::Response(_)
        ));
    }
    let mut latin = b"SIP/2.0 486 Besch\xe4ftigt\r\nServer: M\xe9dia\r\n".to_vec();
    latin.extend(rest.as_bytes());
    let Message::Response(response) = read(&latin) else {
        unreachable!("a response");
    };
    assert_eq!(
        (response.code, response.reason.as_str()),
        (486, "Beschäftigt")
    );
    for method in ["BYE", "ACK", "CANCEL", "PRACK", "INFO"] {
        assert_eq!(
            request(&plain.replace("INVITE", method)).method.as_str(),
            method
        );
    }
    for method in ["INVITE", "UPDATE", "REFER"] {
        let malformed = parse(
            plain.replace("INVITE", method).as_bytes(),
            Framing::Datagram,
        );
        assert!(malformed.is_err(), "{method}");
    }
    // An ACK is never answered, whatever is wrong with it.
    let ack = INVITE
        .replace("INVITE", "ACK")
        .replace("To: Agent", "To: \"Agent");
    let malformed = parse(ack.as_bytes(), Framing::Datagram).unwrap_err();
    assert!(malformed.answerable.is_none());
    assert_eq!(malformed.about.unwrap().what, "ACK");
    let bad = format!(
        "SIP/2.0 200 OK\r\n{}",
        rest.replace("To: Agent", "To: \"Agent")
    );
    let malformed = parse(bad.as_bytes(), Framing::Datagram).unwrap_err();
    let about = malformed.about.unwrap();
    assert_eq!(
        (about.what.as_str(), about.call_id.as_str()),
        ("200 INVITE", "a84b4c76e66710")
    );
}

/// The address and its parameters count, and the name before them is for people.
/// Each bracket is looked at once: whoever sends a message full of them holds up nobody.
#[test]
fn an_address_behind_a_million_brackets_is_found_at_once() {
    let many = "<".repeat(1 << 20);
    assert_eq!(NameAddr::parse(&many), None);
    let read = NameAddr::parse(&format!("{many} <a> <sip:a@example.com>;tag=7"));
    let read = read.unwrap_or_else(|| unreachable!("an address is there"));
    assert_eq!(read.display, Some(format!("{many} <a>")));
    assert_eq!(read.uri.user().as_deref(), Some("a"));
    assert_eq!(read.tag(), Some("7"));
}

#[test]
fn display_names_decide_nothing() {
    for (name, display) in [
        ("Doe, John", "Doe, John"),
        ("john@example.com", "john@example.com"),
        ("Sales (Berlin)", "Sales (Berlin)"),
        ("Müller & Söhne", "Müller & Söhne"),
        ("\"Sami\\\"", "Sami\\"),
        ("\"Sami\\\", Jr.", "Sami\\\", Jr."),
        ("\"Doe\" John", "Doe John"),
        ("5\" pipe", "5\" pipe"),
        ("a: b; c=d", "a: b; c=d"),
        ("Sales <Berlin>", "Sales <Berlin>"),
        ("大停電", "大停電"),
        ("\"a <sip:x@y>\"", "a <sip:x@y>"),
        ("\"\"", ""),
    ] {
        let value = format!("{name} <sip:+15550123@example.com;user=phone>;tag=7");
        let read = NameAddr::parse(&value).unwrap_or_else(|| unreachable!("{value}"));
        assert_eq!(read.uri.user().as_deref(), Some("+15550123"), "{value}");
        assert_eq!(read.tag(), Some("7"), "{value}");
        assert_eq!(read.display.as_deref(), Some(display), "{value}");
        // As we print it, it is what it was.
        assert_eq!(NameAddr::parse(&read.to_string()), Some(read), "{value}");
        let text = INVITE.replace("\"A \\\"B\\\"\" <", &format!("{name} <"));
        assert_ne!(text, INVITE);
        assert_eq!(
            request(&text).from().unwrap().tag(),
            Some("1928301774"),
            "{value}"
        );
        let text = INVITE.replace("Contact: <", &format!("Contact: {name} <"));
        let contact = request(&text).contact().unwrap();
        assert_eq!(contact.uri.user().as_deref(), Some("caller"), "{name}");
    }
    let bare = NameAddr::parse("\"Bob\" sip:bob@example.com;tag=7").unwrap();
    assert_eq!(
        (bare.display.as_deref(), bare.tag()),
        (Some("Bob"), Some("7"))
    );
    // Where the name ends cannot be told, or there is no address.
    for doubtful in [
        "\"Mr. J. User <sip:j@example.com>",
        "\"Mr. J. User <sip:j@example.com> <sip:k@example.net>",
        "<sip:j@example.com> <sip:k@example.net>",
        "\"A, B\" < sip:b@example.com >",
        "Doe, John",
        "Doe <>",
        "\"Sami\\\"",
    ] {
        assert_eq!(NameAddr::parse(doubtful), None, "{doubtful}");
    }
}

/// RFC 3261 section 7.3.1: what is not said to be told apart by case is not.
#[test]
fn tokens_are_compared_without_case_and_unknown_ones_say_nothing() {
    let read = |text: &str| SessionExpires::parse(text).map(|own| (own.seconds, own.refresher));
    for (text, refresher) in [
        ("90;refresher=UAC", Some(Refresher::Uac)),
        ("90 ; Refresher = Uas", Some(Refresher::Uas)),
        ("90;REFRESHER=\"uac\"", Some(Refresher::Uac)),
        ("90;refresher=proxy", None),
        ("90;refresher", None),
        ("90;refresher=uac;", None),
        ("90;x=y;refresher=uas", Some(Refresher::Uas)),
        ("90;", None),
    ] {
        assert_eq!(read(text), Some((90, refresher)), "{text}");
    }
    for none in ["", "x", "90.5", "-90", ";refresher=uac"] {
        assert_eq!(read(none), None, "{none}");
    }
}

#[test]
fn bounds() {
    let many = format!(
        "Call-ID: a84b4c76e66710\r\n{}",
        "X: y\r\n".repeat(MOST_HEADERS)
    );
    let text = INVITE.replace("Call-ID: a84b4c76e66710\r\n", &many);
    assert_eq!(fault(&text), Fault::TooLarge);
    let long = INVITE.replace("a84b4c76e66710", &"x".repeat(9_000));
    assert_eq!(fault(&long), Fault::TooLarge);
    let hops = INVITE.replace(
        "Max-Forwards",
        &format!(
            "{}Max-Forwards",
            "v: SIP/2.0/UDP h;branch=z9hG4bKx\r\n".repeat(100)
        ),
    );
    assert_eq!(fault(&hops), Fault::TooLarge);
    let huge = vec![b'x'; MOST_BYTES + 1];
    let malformed = parse(&huge, Framing::Datagram).unwrap_err();
    assert_eq!(malformed.fault, Fault::TooLarge);
    assert!(malformed.answerable.is_none());
}

#[test]
fn what_comes_from_elsewhere_cannot_add_fields() {
    let mut invite = request(INVITE);
    invite.headers.push(Name::Subject, "a\r\nX-Evil: 1");
    let again = read(&invite.to_bytes());
    assert_eq!(again, Message::Request(invite.clone()));
    assert!(!invite.headers.has(&"X-Evil".into()));
    let mut response = Response::to(&invite.headers, 486, "Busy\r\nX-Evil: 1");
    response.set_to_tag("t");
    let Message::Response(read) = read(&response.to_bytes()) else {
        unreachable!("a request");
    };
    assert_eq!(read.reason, "Busy  X-Evil: 1");
}

#[test]
fn half_a_line_end_in_a_reason_is_a_space() {
    let text = "SIP/2.0 200 All\rright\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK1\r\n\
        From: <sip:a@192.0.2.9>;tag=1\r\nTo: <sip:b@192.0.2.1>;tag=2\r\nCall-ID: x\r\nCSeq: 1 BYE\r\n\r\n";
    let read = read(text.as_bytes());
    let Message::Response(response) = &read else {
        unreachable!("a request");
    };
    assert_eq!(response.reason, "All right");
    assert_eq!(self::read(&response.to_bytes()), read);
}

#[test]
fn setting_a_field_replaces_all_of_its_name() {
    let mut headers = Headers::default();
    for value in ["1", "2", "3"] {
        headers.push("X-A".into(), value);
        headers.push(Name::To, value);
    }
    headers.set("x-a".into(), "9");
    let left: Vec<&str> = headers.iter().map(|(_, value)| value).collect();
    assert_eq!(left, ["9", "1", "2", "3"]);
}

#[test]
fn uris() {
    for text in [
        "sip:example.com",
        "sips:a@[2001:db8::1]:5061;transport=tls",
        "sip:user;par=u%40example.net@example.com",
        "sip:a:pw@example.com;lr?X=1&Y=2",
        "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1@example.com",
        "tel:+1-201-555-0123;phone-context=example.com",
        "soap.beep://192.0.2.103:3002",
    ] {
        assert_eq!(Uri::parse(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "sip",
        "sip:",
        "sip:@b",
        "sip:a@",
        "sip:a@b@c",
        "sip:a b@c",
        "sip:a@b:",
        "sip:a@b:65536",
        "sip:a@[::1",
        "sip:a%4@b",
        "sip:a@b;",
        "sip:a@b;=x",
        "1sip:a",
        "sip:a@b c",
        "<sip:a@b>",
        "sip:a@é",
    ] {
        assert!(Uri::parse(text).is_err(), "{text}");
    }
    let uri = SipUri::new(Some("a b#%é"), Host::parse("192.0.2.1").unwrap(), None);
    assert_eq!(uri.to_string(), "sip:a%20b%23%25%C3%A9@192.0.2.1");
    assert_eq!(uri.user().as_deref(), Some("a b#%é"));
    assert_eq!(format!("{uri:?}"), "sip:…@192.0.2.1");
    let odd = Uri::parse("sip:null-%00-null@example.com").unwrap();
    assert_eq!(odd.user().as_deref(), Some("null-\0-null"));
}

#[test]
fn other_values() {
    let expires = SessionExpires::parse("1800 ; refresher=uas").unwrap();
    assert_eq!(
        (expires.seconds, expires.refresher),
        (1800, Some(Refresher::Uas))
    );
    assert_eq!(expires.to_string(), "1800;refresher=uas");
    assert!(SessionExpires::parse("-1").is_none());
    let rack = RAck::parse("776656 1  INVITE").unwrap();
    assert_eq!(rack.to_string(), "776656 1 INVITE");
    let auth = AuthValue::parse("Digest a=\"x, \\\"y\\\"\", b=c,d=\"\"").unwrap();
    assert_eq!(auth.get("A"), Some("x, \"y\""));
    assert_eq!(auth.to_string(), "Digest a=\"x, \\\"y\\\"\", b=c, d=\"\"");
    assert!(AuthValue::parse("Digest a=\"x").is_none());
    for bad in [
        "SIP/2.0/UDP",
        "SIP/3.0/UDP a",
        "HTTP/2.0/UDP a",
        "SIP/2.0/UDP a;",
        "SIP/2.0/ a",
        "SIP/2.0/UDP ::1:5060",
        "SIP/2.0/UDP [::1",
        "SIP/2.0/UDP [::1]5060",
    ] {
        assert!(Via::parse(bad).is_none(), "{bad}");
    }
    assert!(NameAddr::parse("sip:a@b?Route=x").is_none());
    assert!(NameAddr::parse("<sip:a@b").is_none());
    assert_eq!(
        NameAddr::parse("\"<a>;\\\"\" <sip:a@b>;x")
            .unwrap()
            .to_string(),
        "\"<a>;\\\"\" <sip:a@b>;x"
    );
}

/// RFC 5118: a last part that looks like a port (4.3), `received` with brackets and without them (4.5), an IPv4
/// address inside (4.9).
#[test]
fn a_via_has_ipv6_addresses_in_brackets_and_received_in_either_form() {
    for (text, host, port, received) in [
        (
            "SIP/2.0/UDP [2001:db8::1]:5060;received=[::1];branch=z",
            "2001:db8::1",
            Some(5060),
            "[::1]",
        ),
        (
            "SIP/2.0/UDP [2001:db8::9:5060];received=2001:db8::9:255;branch=z",
            "2001:db8::9:5060",
            None,
            "2001:db8::9:255",
        ),
        (
            "SIP/2.0/TLS [::ffff:192.0.2.10] : 19823;branch=z",
            "::ffff:192.0.2.10",
            Some(19823),
            "",
        ),
    ] {
        let via = Via::parse(text).unwrap();
        assert_eq!(via.host.ip(), Some(host.parse().unwrap()), "{text}");
        assert_eq!(via.port, port, "{text}");
        let told = via.params.get("received");
        assert_eq!(told.unwrap_or_default(), received, "{text}");
        let again = Via::parse(&via.to_string());
        assert_eq!(again, Some(via), "{text}");
    }
}

#[test]
fn a_stream_is_cut_by_content_length() {
    let mut framer = Framer::default();
    framer.push(b"\r\n\r\n");
    assert!(matches!(framer.next_message(), Some(Framed::Ping)));
    // However it is cut.
    framer.push(b"\r\n\r");
    assert!(framer.next_message().is_none());
    framer.push(b"\n");
    assert!(matches!(framer.next_message(), Some(Framed::Ping)));
    framer.push(b"\r\n");
    assert!(framer.next_message().is_none());
    framer.push(INVITE.as_bytes());
    framer.push(&INVITE.as_bytes()[..300]);
    assert!(matches!(framer.next_message(), Some(Framed::Message(_))));
    assert!(framer.next_message().is_none());
    framer.push(&INVITE.as_bytes()[300..]);
    assert!(matches!(framer.next_message(), Some(Framed::Message(_))));
    assert!(framer.next_message().is_none());
    framer.push(INVITE.replace("CSeq: 314159", "CSeq: x").as_bytes());
    framer.push(INVITE.as_bytes());
    assert!(matches!(framer.next_message(), Some(Framed::Malformed(_))));
    assert!(matches!(framer.next_message(), Some(Framed::Message(_))));
    for (from, to, expected) in [
        (
            "Content-Length: 4\r\n",
            "",
            Fault::Bad("Bad Content-Length"),
        ),
        (
            "Content-Length: 4",
            "Content-Length: 70000",
            Fault::TooLarge,
        ),
        (
            "Content-Length: 4",
            "Content-Length: 4\r\nl: 5",
            Fault::Bad("Bad Content-Length"),
        ),
    ] {
        let mut framer = Framer::default();
        framer.push(INVITE.replace(from, to).as_bytes());
        match framer.next_message() {
            Some(Framed::Lost(malformed)) => {
                assert_eq!(malformed.fault, expected);
                assert!(malformed.answerable.is_some());
            }
            other => unreachable!("{other:?}"),
        }
    }
    let mut framer = Framer::default();
    framer.push(&vec![b'x'; 40_000]);
    assert!(matches!(framer.next_message(), Some(Framed::Lost(_))));
}

/// What is used up is not moved with each: pings in a row are one, and between messages as well.
#[test]
fn pings_in_a_row_are_one() {
    let mut framer = Framer::default();
    framer.push(&b"\r\n".repeat(32_768));
    assert!(matches!(framer.next_message(), Some(Framed::Ping)));
    assert!(framer.next_message().is_none());
    let pings = "\r\n".repeat(9);
    let text = format!("{pings}{INVITE}{pings}\r\n{INVITE}\r\n\r\n\r\n");
    framer.push(text.as_bytes());
    let mut seen = String::new();
    while let Some(framed) = framer.next_message() {
        seen.push(match framed {
            Framed::Message(_) => 'm',
            Framed::Ping => 'p',
            _ => 'x',
        });
    }
    assert_eq!(seen, "pmpmp");
    // The half of one that is left waits for its rest.
    framer.push(b"\r\n");
    assert!(matches!(framer.next_message(), Some(Framed::Ping)));
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9.!%*_+`'~-]{1,12}"
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z]{2,5}){0,2}",
        Just("192.0.2.7".to_owned()),
        Just("[2001:db8::7]".to_owned()),
    ]
}

fn uri() -> impl Strategy<Value = Uri> {
    let user = proptest::option::of("[A-Za-z0-9+._-]([A-Za-z0-9;?&/+$=,]|%[0-9A-F]{2}){0,8}");
    let params = proptest::collection::vec(
        ("[a-z]{1,6}", proptest::option::of("[a-z0-9:&$]{1,6}")),
        0..3,
    );
    (
        any::<bool>(),
        user,
        host(),
        proptest::option::of(any::<u16>()),
        params,
    )
        .prop_map(|(secure, user, host, port, params)| {
            let mut text = String::from(if secure { "sips:" } else { "sip:" });
            if let Some(user) = user {
                text += &format!("{user}@");
            }
            text += &host;
            if let Some(port) = port {
                text += &format!(":{port}");
            }
            for (name, value) in params {
                text += &format!(";{name}");
                if let Some(value) = value {
                    text += &format!("={value}");
                }
            }
            Uri::parse(&text).unwrap()
        })
}

prop_compose! {
    fn address()(display in proptest::option::of("[^\r\n]{0,16}"), uri in uri(),
                 params in proptest::collection::vec((token(), proptest::option::of("[^\r\n]{0,8}")), 0..3)) -> NameAddr {
        let mut address = NameAddr { display, uri, params: Params::default() };
        for (name, value) in params {
            address.params.set(&name, value.as_deref());
        }
        address
    }
}

prop_compose! {
    fn message()(response in any::<bool>(), code in 100..700_u16, reason in "[^\r\n]{0,20}", method in token(),
                 uri in uri(), from in address(), to in address(), host in host(), contact in address(), number in 0..=i32::MAX,
                 others in proptest::collection::vec((token(), "[^\r\n]{0,30}"), 0..6),
                 body in proptest::collection::vec(any::<u8>(), 0..200), branch in token()) -> Message {
        let method = Method::parse(&method).unwrap();
        let mut request = Request::new(method.clone(), uri);
        let headers = &mut request.headers;
        headers.push(Name::Via, format!("SIP/2.0/UDP {host};branch=z9hG4bK{branch}"));
        headers.push(Name::From, from.to_string());
        headers.push(Name::To, to.to_string());
        headers.push(Name::Contact, contact.to_string());
        headers.push(Name::CallId, "x");
        headers.push(Name::CSeq, format!("{number} {method}"));
        for (name, value) in others {
            let name = Name::parse(&name);
            // White space around a value is not part of it; fields with a grammar stand above.
            if matches!(name, Name::Other(_)) {
                headers.push(name, scan::trim(&value));
            }
        }
        request.body = body;
        if !response {
            return Message::Request(request);
        }
        Message::Response(Response { code, reason, headers: request.headers, body: request.body })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn what_is_written_reads_the_same(message in message()) {
        let bytes = message.to_bytes();
        prop_assert_eq!(read(&bytes), message);
    }

    #[test]
    fn addresses_read_as_they_are_written(address in address()) {
        prop_assert_eq!(NameAddr::parse(&address.to_string()), Some(address));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        _ = parse(&bytes, Framing::Datagram);
        let mut framer = Framer::default();
        framer.push(&bytes);
        while framer.next_message().is_some() {}
    }

    /// A message with holes, doubles and noise either is refused, or means the same when written again.
    #[test]
    fn a_damaged_message_reads_the_same_again(
        cuts in proptest::collection::vec((0..420_usize, 0..6_usize, proptest::collection::vec(any::<u8>(), 0..4)), 1..4),
    ) {
        let mut bytes = INVITE.as_bytes().to_vec();
        for (at, length, noise) in cuts {
            let at = at.min(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, noise);
        }
        match parse(&bytes, Framing::Datagram) {
            Ok(Some(message)) => prop_assert_eq!(read(&message.to_bytes()), message),
            Ok(None) => {}
            Err(malformed) => {
                if let Some(answerable) = malformed.answerable {
                    let response = Response::to(&answerable.1, 400, "");
                    prop_assert!(response.headers.has(&Name::Via));
                    prop_assert!(response.to_bytes().starts_with(b"SIP/2.0 400 "));
                }
            }
        }
    }

    /// However a stream is cut into pieces, the same messages come out.
    #[test]
    fn the_pieces_of_a_stream_do_not_matter(sizes in proptest::collection::vec(1..300_usize, 1..20)) {
        let whole = [INVITE, "\r\n\r\n", INVITE, INVITE].concat();
        let mut framer = Framer::default();
        let (mut messages, mut pings) = (0, 0);
        let mut rest = whole.as_bytes();
        for size in sizes.into_iter().chain([usize::MAX]) {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            framer.push(piece);
            while let Some(framed) = framer.next_message() {
                match framed {
                    Framed::Message(message) => {
                        prop_assert_eq!(message.to_bytes(), INVITE.as_bytes());
                        messages += 1;
                    }
                    Framed::Ping => pings += 1,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
        prop_assert_eq!(messages, 3);
        // A ping whose first half came alone cannot be told from the line end before a message.
        prop_assert!(pings <= 1);
    }
}

#[test]
fn a_number_is_told_without_its_parameters_and_a_name_whole() {
    for (uri, user) in [
        ("sip:+4930123456;npdi@192.0.2.1", "+4930123456"),
        ("sip:123;phone-context=%2B49@192.0.2.1", "123"),
        (
            "sips:%2B4930123456;npdi;rn=1@a.example:5061;user=phone",
            "+4930123456",
        ),
        ("sip:*21#;x=y@192.0.2.1", "*21#"),
        ("tel:+49-30-123456;npdi", "+49-30-123456"),
        ("sip:alice;day=tuesday@a.example", "alice;day=tuesday"),
        ("sip:+;x@a.example", "+;x"),
    ] {
        let uri = Uri::parse(uri).unwrap();
        assert_eq!(uri.user().as_deref(), Some(user));
    }
    // Nothing is lost of what is sent back.
    let uri = Uri::parse("sip:+4930123456;npdi@192.0.2.1").unwrap();
    assert_eq!(uri.to_string(), "sip:+4930123456;npdi@192.0.2.1");
}
