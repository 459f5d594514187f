//! What messages say of the session: among other parts, in answer to a refresh, and how often it is refreshed.

use super::alone::*;
use crate::message::Body;

/// A description among what carriers send beside it.
fn several(text: &str) -> Body {
    Body::new(
        "multipart/mixed;boundary=\"next part\"",
        format!(
            "--next part\r\nContent-Type: application/isup;version=itu\r\n\r\n\u{1}\r\n--next part\r\n\
             Content-Type: application/sdp\r\n\r\n{text}\r\n--next part--\r\n"
        ),
    )
}

/// Answers the last request with a body.
fn answer_with(alone: &mut Alone, body: Body, fields: &[(Name, &str)]) {
    let (peer, request) = alone.last();
    let mut response = Response::to(&request.headers, 200, "");
    response.set_to_tag("there");
    for (name, value) in fields {
        response.headers.push(name.clone(), *value);
    }
    response.set_body(Some(body));
    let bytes = response.to_bytes();
    alone.step(Input::Datagram {
        from: peer.addr,
        bytes: &bytes,
    });
}

#[test]
fn a_session_among_other_parts_is_offered_and_answered_as_any() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    let with = |text: &str, number: u32| {
        let body = several(text);
        let kind = format!("Content-Type: {}\n", body.content_type);
        let bytes = String::from_utf8(body.bytes).unwrap().replace('\r', "");
        let plain = invite(&kind, number).replace("Content-Length: 0\n", "");
        format!("{plain}{bytes}")
    };
    alone.bytes("192.0.2.1:5060", &with("first", 1));
    assert_eq!(alone.told, ["incoming \"first\""]);
    let call = CallId(CallId::FIRST_INCOMING);
    alone.command(Command::Answer(call, sdp("answer")));
    let answer = alone.last_response();
    let to = format!("To: {}", answer.headers.get(&Name::To).unwrap());
    let within = |text: &str| {
        text.replace("To: <sip:+15550100@carrier.example>", &to)
            .replace("tag=far2", "tag=far1")
            .replace("Call-ID: digest2", "Call-ID: digest1")
    };
    alone.bytes(
        "192.0.2.1:5060",
        &within(
            &invite("", 1)
                .replace("INVITE", "ACK")
                .replace("z9hG4bKt1", "z9hG4bKa"),
        ),
    );
    alone.bytes("192.0.2.1:5060", &within(&with("second", 2)));
    assert_eq!(alone.told[1..], ["established", "offer \"second\""]);
}

#[test]
fn the_answer_to_a_refresh_is_told() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone.command(placing(Duration::from_secs(60)));
    let refreshes = [(Name::SessionExpires, "90;refresher=uac")];
    answer_with(&mut alone, several("answer"), &refreshes);
    for body in [sdp("answer"), several("moved")] {
        alone.run_for(Duration::from_secs(45));
        let (_, again) = alone.last();
        assert_eq!(
            (again.method.as_str(), again.body()),
            ("INVITE", Some(sdp("offer")))
        );
        answer_with(&mut alone, body, &refreshes);
        assert_eq!(alone.last().1.method, Method::Ack);
    }
    assert_eq!(
        alone.told,
        [
            "answered \"answer\"",
            "refreshed \"answer\"",
            "refreshed \"moved\""
        ]
    );
    // Without a body there is nothing to tell.
    alone.run_for(Duration::from_secs(45));
    alone.answer(200, &refreshes);
    assert_eq!(alone.told.len(), 3);
}

/// RFC 4028 section 9: an interval that is asked for may be shortened and not lengthened.
#[test]
fn a_call_whose_session_would_be_refreshed_too_often_is_refused_with_what_we_bear() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    let asks = |fields: &str, number: u32| invite(fields, number);
    let brief = "Session-Expires: 60\nSupported: timer\n";
    alone.bytes("192.0.2.1:5060", &asks(brief, 1));
    let refusal = alone.last_response();
    assert_eq!(refusal.code, 422);
    assert_eq!(refusal.headers.get(&Name::MinSe), Some("90"));
    assert!(alone.told.is_empty());
    // As it asks for what we bear, then; and one that would not understand the refusal.
    let borne = "Session-Expires: 90\nMin-SE: 90\nSupported: timer\n";
    for (number, fields) in [(2, borne), (3, "Session-Expires: 60\n")] {
        alone.bytes("192.0.2.1:5060", &asks(fields, number));
        let call = CallId(CallId::FIRST_INCOMING + u64::from(number) - 2);
        alone.command(Command::Answer(call, sdp("answer")));
        let answer = alone.last_response();
        assert_eq!(answer.code, 200);
        let granted = answer.headers.get(&Name::SessionExpires).unwrap();
        assert!(granted.starts_with("90;"), "{granted}");
    }
}

/// RFC 4028 section 7.3, for a call of ours.
#[test]
fn a_carrier_that_bears_only_longer_sessions_is_called_again_with_one() {
    let mut alone = Alone::new();
    alone.command(Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    alone.command(placing(Duration::from_secs(60)));
    let said = |alone: &Alone| {
        let (_, invite) = alone.last();
        assert_eq!(invite.method, Method::Invite);
        let of = |name| invite.headers.get(name).unwrap().to_owned();
        [
            &Name::CSeq,
            &Name::SessionExpires,
            &Name::MinSe,
            &Name::CallId,
        ]
        .map(of)
    };
    let [number, interval, least, id] = said(&alone);
    assert_eq!([number, interval, least], ["1 INVITE", "1800", "90"]);
    alone.answer(422, &[(Name::MinSe, "3600")]);
    let [number, interval, least, same] = said(&alone);
    assert_eq!([number, interval, least], ["2 INVITE", "3600", "3600"]);
    assert_eq!(same, id);
    // One that wants what it was given is not asked for ever.
    alone.answer(422, &[(Name::MinSe, "3600")]);
    assert_eq!(alone.told, ["ended by Remote 422"]);
}
