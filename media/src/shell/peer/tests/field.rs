//! Descriptions of the field: whatever stands in an offer beside the audio, the audio is taken, and the answer is a good
//! one. Each answer here is held against the rules (see `Placed::offer`).

use super::*;

/// A description of the fixtures.
macro_rules! browser {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(
                "../../../../../fixtures/sdp/browsers/",
                $name,
                ".sdp"
            )),
        )
    };
}

/// Which media of a description are not refused.
fn kept(sdp: &str) -> Vec<usize> {
    let sections = sdp::sections(sdp);
    let ports = sections.iter().enumerate().skip(1);
    ports
        .filter(|(_, medium)| sdp::head(medium)[1] != "0")
        .map(|(at, _)| at)
        .collect()
}

/// What an offer is answered, by a call that has no other.
fn answered(bed: &Bed, name: &str, offer: &str) -> String {
    assert_eq!(check_offer(offer), Ok(()), "{name}");
    let placed = bed.place(&format!("webrtc-field-{name}"));
    let answer = placed.offer(offer, false).unwrap();
    // What was taken once is taken again.
    let again = placed.offer(offer, false).unwrap();
    assert_eq!(kept(&again), kept(&answer), "{name}");
    placed.handle.end(EndRequest::Api);
    answer
}

/// The client's offer with other words: each of these must be there.
fn changed(offer: &str, words: &[(&str, &str)]) -> String {
    let mut changed = offer.to_owned();
    for (from, to) in words {
        assert!(changed.contains(from), "{from} in {changed}");
        changed = changed.replace(from, to);
    }
    changed
}

#[test]
fn offers_of_browsers_and_their_like_are_answered() {
    let bed = Bed::new();
    for ((name, offer), expected) in [
        (browser!("jsep_simple"), &[1][..]),
        (browser!("jsep_detailed"), &[1, 2]),
        (browser!("jsep_again"), &[1, 2]),
        (browser!("chrome"), &[1, 3]),
        (browser!("chrome_plan_b"), &[1]),
        (browser!("chrome_channel_first"), &[1, 2]),
        (browser!("firefox"), &[1, 2]),
        (browser!("firefox_59"), &[1]),
        (browser!("safari"), &[1, 2]),
        (browser!("pion"), &[1, 2]),
        (browser!("asterisk"), &[1]),
        (browser!("freeswitch"), &[1]),
        (browser!("conference"), &[1, 2]),
    ] {
        let offer = offer.replace('\n', "\r\n");
        let answer = answered(&bed, name, &offer);
        assert_eq!(kept(&answer), expected, "{name}\n{answer}");
    }
}

#[test]
fn media_may_have_ways_of_their_own_until_they_share_one() {
    let bed = Bed::new();
    // The first of the group says the way, wherever it stands.
    for (first, group) in [(1, "BUNDLE 0 1"), (2, "BUNDLE 1 0")] {
        let placed = bed.place(&format!("webrtc-ways-{first}"));
        let mut client = Client::new();
        let offer = changed(&client.offer(), &[("BUNDLE 0 1", group)]);
        let sections = sdp::sections(&offer);
        let other = 3 - first;
        let name = sdp::attribute(sections[other], "ice-ufrag").unwrap();
        let password = sdp::attribute(sections[other], "ice-pwd").unwrap();
        let own = sections[other]
            .replace(name, "another")
            .replace(password, "anotherpasswordoftwentytwo");
        let moved: String = sections[1]
            .split_inclusive('\n')
            .filter(|line| line.starts_with("a=candidate:"))
            .collect();
        let mut parts: Vec<String> = sections.iter().map(|part| (*part).to_owned()).collect();
        parts[other] = own + "a=candidate:9 1 udp 1 127.0.0.1 9 typ host\r\n";
        if first == 2 {
            parts[1] = parts[1].replace(&moved, "");
            parts[2].push_str(&moved);
        }
        let answer = placed.offer(&parts.concat(), false).unwrap();
        assert_eq!(kept(&answer), [1, 2]);
        assert!(answer.contains(&format!("a=group:{group}\r\n")), "{answer}");
        client.accept(&answer);
        client.run(|client| client.hears(0, 0.3) && client.has("session_started"));
        placed.handle.end(EndRequest::Api);
    }
}

#[test]
fn media_that_nobody_here_speaks_are_refused_and_the_call_goes_on() {
    const OTHERS: [&str; 9] = [
        "m=application 9 DTLS/SCTP 5000\r\na=sctpmap:5000 webrtc-datachannel 1024\r\na=mid:x\r\n",
        "m=text 11000 RTP/AVP 98\r\na=rtpmap:98 t140/1000\r\n",
        "m=application 9 UDP/TLS/BFCP *\r\na=mid:y\r\n",
        "m=application 5070 TCP/BFCP *\r\n",
        "m=image 4002 udptl t38\r\n",
        "m=message 7394 TCP/MSRP *\r\n",
        "m=video 0 RTP/AVP 31 99\r\n",
        "m=audio 9 UDP/TLS/RTP/SAVPF 109 13\r\na=rtcp-mux\r\n",
        "m=strange 9 UNHEARD/OF 1 2 3\r\n",
    ];
    let bed = Bed::new();
    let placed = bed.place("webrtc-other-media");
    let mut client = Client::new();
    let offer = client.offer();
    let group = "a=group:BUNDLE 0 1";
    assert!(offer.contains(group));
    let all = offer.replace(group, "a=group:BUNDLE 0 1 x y") + &OTHERS.concat();
    let answer = placed.offer(&all, false).unwrap();
    assert_eq!(kept(&answer), [1, 2], "{answer}");
    for refused in sdp::sections(&answer).iter().skip(3) {
        let way = ["a=ice-ufrag:", "a=ice-pwd:", "a=setup:active"];
        assert!(way.iter().all(|line| refused.contains(line)), "{refused}");
    }
    // They may come before what is taken, too.
    let elsewhere = Client::new().offer();
    let at = elsewhere.find("m=audio").unwrap();
    let (session, own) = elsewhere.split_at(at);
    for (number, other) in OTHERS.into_iter().enumerate() {
        let first = [session, other, own].concat();
        assert_eq!(check_offer(&first), Ok(()), "{first}");
        let placed = bed.place(&format!("webrtc-other-medium-{number}"));
        let answer = placed.offer(&first, false).unwrap();
        assert_eq!(kept(&answer), [2, 3], "{answer}");
        placed.handle.end(EndRequest::Api);
    }
    client.accept(&sdp::sections(&answer)[..3].concat());
    client.run(|client| client.hears(0, 0.3) && client.has("session_started"));
}

/// The offer with the name of its last medium at its end.
fn with_name_last(offer: &str) -> String {
    let name = "a=mid:1\r\n";
    assert!(offer.contains(name), "{offer}");
    offer.replace(name, "") + "a=mid:1"
}

#[test]
fn lines_that_nobody_needs_fail_no_offer() {
    let bed = Bed::new();
    let good = Client::new().offer();
    let line = |lines: &str| good.replacen("a=rtcp-mux", &format!("{lines}\r\na=rtcp-mux"), 1);
    for (name, offer) in [
        ("times", changed(&good, &[("t=0 0", "t=never")])),
        ("no-times", changed(&good, &[("t=0 0\r\n", "")])),
        ("origin", changed(&good, &[("o=-", "o=what is this")])),
        ("title", changed(&good, &[("s=-", "s=Caf\u{e9} \u{fffd}")])),
        ("no-title", changed(&good, &[("s=-\r\n", "")])),
        ("unknown", changed(&good, &[("s=-", "s=-\r\nq=?\r\nj")])),
        (
            "named",
            changed(&good, &[("IP4 0.0.0.0", "IP4 media.example.com")]),
        ),
        ("seven", changed(&good, &[("IN IP4", "IN IP7")])),
        ("reports", line("a=rtcp:9 IN IP4 media.example.com")),
        ("extension", line("a=extmap:x y z\r\na=extmap:")),
        ("map", line("a=rtpmap:\r\na=rtpmap:8\r\na=rtpmap:x PCMU/x")),
        ("blank", line("a=rtpmap: 126 telephone-event/8000")),
        ("format", line("a=fmtp:\r\na=fmtp:x\r\na=rtcp-fb:")),
        ("source", line("a=ssrc:x cname:y\r\na=ssrc-group:FID x y")),
        ("bandwidth", line("b=AS\r\nb=x:y:z\r\nk=clear:x")),
        ("candidate", line("a=candidate:\r\na=candidate:1 1 udp x y")),
        (
            "future",
            line("a=candidate:1 1 udp 1 192.0.2.7 5000 typ quantum"),
        ),
        ("nul", format!("{good}\0")),
        ("nuls", format!("{}\0\0", good.trim_end())),
        ("nul-in-name", format!("{}\0", with_name_last(&good))),
        ("lines", good.replace("\r\n", "\n")),
        (
            "channel",
            changed(&good, &[("a=sctp-port:5000", "a=sctp-port:x")]),
        ),
    ] {
        let answer = answered(&bed, name, &offer);
        assert_eq!(kept(&answer), [1, 2], "{name}\n{answer}");
    }
    // What has no name shares no way.
    let nameless = changed(&good, &[("a=mid:", "a=mud:")]);
    let answer = answered(&bed, "nameless", &nameless);
    assert_eq!(kept(&answer), [1]);
    assert!(
        !answer.contains("a=mid:") && !answer.contains("a=group:"),
        "{answer}"
    );
}

#[test]
fn an_answer_has_nothing_that_was_not_offered() {
    let bed = Bed::new();
    let good = Client::new().offer();
    assert!(!answered(&bed, "rules", &good).contains(" 2 udp "));
    let formats = "SAVPF 126 101 96 97 102\r\na=rtpmap:97 opus/48000/2\r\n\
        a=rtpmap:126 telephone-event/8000\r\na=rtpmap:101 telephone-event/8000\r\na=rtpmap:102 telephone-event/8000";
    for (name, words) in [
        ("no-mux", &[("a=rtcp-mux\r\n", "")][..]),
        ("no-rsize", &[("a=rtcp-rsize\r\n", "")]),
        ("protocol", &[("UDP/TLS/RTP/SAVPF", "RTP/SAVPF")]),
        ("old-protocol", &[("UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP")]),
        ("plain-protocol", &[("UDP/TLS/RTP/SAVPF", "RTP/AVPF")]),
        ("formats", &[("SAVPF 96", formats)]),
        ("twice", &[("SAVPF 96", "SAVPF 96 96 96")]),
    ] {
        let offer = changed(&good, words);
        let answer = answered(&bed, name, &offer);
        let audio = sdp::sections(&answer)[1].lines().next().unwrap().to_owned();
        let numbers: Vec<&str> = sdp::formats(&audio).collect();
        let expected = match name {
            "formats" => &["96", "126"][..],
            _ => &["96"],
        };
        assert_eq!(numbers, expected, "{name}");
    }
}

#[test]
fn candidates_of_ways_that_are_given_up_are_passed_over() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-other-round");
    let offer = Client::new().offer();
    placed.offer(&offer, false).unwrap();
    let name = sdp::attribute(&offer, "ice-ufrag").unwrap();
    let told = |count: usize, of: &str| {
        let candidates = (0..count).map(|n| Candidate {
            candidate: format!(
                "candidate:{n} 1 udp 1 127.0.0.1 {} typ host generation 0 ufrag {of}",
                6_000 + n
            ),
            sdp_mid: Some("1".to_owned()),
            sdp_mline_index: Some(1),
        });
        placed.ask(PeerRequest::Candidates(candidates.collect()))
    };
    for _ in 0..3 {
        assert_eq!(told(90, "another"), Ok(PeerReply::Accepted(90)));
    }
    assert_eq!(told(90, name), Ok(PeerReply::Accepted(90)));
    assert!(matches!(
        told(90, name),
        Err(PeerError::InvalidCandidate(_, _))
    ));
}

#[test]
fn a_binary_message_is_told_to_be_none() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("webrtc-binary");
    client.run(|client| client.has("session_started"));
    for bytes in [&[0_u8, 255, 3][..], b"{\"type\":\"ping\"}"] {
        let id = client.channel.unwrap();
        let mut channel = client.core.data_channel(id).unwrap();
        channel.send(Instant::now(), BytesMut::from(bytes)).unwrap();
        client.run(|client| {
            let wanted = format!("a binary message of {} bytes", bytes.len());
            client.messages.iter().any(|message| {
                let told = message["message"].as_str().unwrap_or_default();
                message["code"] == "invalid_frame" && told.starts_with(&wanted)
            })
        });
    }
    // The call goes on.
    let from = client.heard.len();
    client.say(r#"{"type":"user_message","text":"And now?"}"#);
    client.run(|client| client.hears(from, 0.3));
    drop(placed);
}
