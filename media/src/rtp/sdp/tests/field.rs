//! Descriptions of the field: what telephones and exchanges offer and answer, with all that is odd about it. Each answer
//! here is held against the rules.

use super::*;

const HEAD: &str =
    "v=0\r\no=- 1 1 IN IP4 198.51.100.1\r\ns=-\r\nc=IN IP4 198.51.100.1\r\nt=0 0\r\n";
const AUDIO: &str =
    "m=audio 4000 RTP/AVP 0 8 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n";

/// What is agreed when somebody offers this, and when they answer an offer of ours with it.
fn both(text: impl AsRef<[u8]>) -> [Result<Agreed, Refusal>; 2] {
    let local = local(Encryption::Allow);
    let answered = answer(text.as_ref(), &local, Flow::SendRecv).map(|(_, agreed)| agreed);
    [
        answered,
        offer(&local, Flow::SendRecv).accept(text.as_ref()),
    ]
}

#[test]
fn offers_of_exchanges_and_telephones_are_answered() {
    macro_rules! telephone {
        ($name:literal) => {
            include_str!(concat!(
                "../../../../../fixtures/sdp/telephones/",
                $name,
                ".sdp"
            ))
        };
    }
    for (offer, codec, events, is_secure) in [
        (telephone!("pjsip"), Codec::Opus, Some(101), false),
        (telephone!("asterisk"), Codec::G722, Some(101), false),
        (telephone!("freeswitch"), Codec::Opus, Some(103), false),
        (telephone!("linphone"), Codec::Opus, Some(101), true),
        (telephone!("cisco"), Codec::Opus, Some(101), false),
    ] {
        for text in [offer.replace('\n', "\r\n"), offer.to_owned()] {
            let answered = answer(text.as_bytes(), &local(Encryption::Allow), Flow::SendRecv);
            let (_, agreed) = answered.expect("an answer");
            assert_eq!((agreed.codec, agreed.events), (codec, events), "{offer}");
            assert_eq!(agreed.keys.is_some(), is_secure);
        }
    }
}

#[test]
fn lines_that_nobody_needs_fail_no_session() {
    let bare = format!("{HEAD}{AUDIO}");
    let usual = both(&bare);
    let refused = |line: &str| format!("{bare}m=video 5000 RTP/AVP 34\r\n{line}\r\n");
    for (what, text) in [
        (
            "a=rtcp with a name",
            format!("{bare}a=rtcp:4001 IN IP4 media.example.com\r\n"),
        ),
        ("a=rtcp of nothing", format!("{bare}a=rtcp:\r\n")),
        (
            "a=rtcp without a port",
            format!("{bare}a=rtcp:here IN IP4 192.0.2.1\r\n"),
        ),
        ("a name of video", refused("c=IN IP4 media.example.com")),
        ("many places of video", refused("c=IN IP4 224.2.1.1/127/3")),
        ("no address of video", refused("c=IN IP4")),
        (
            "reports of video",
            refused("a=rtcp:5001 IN IP4 media.example.com"),
        ),
        ("a map of video", refused("a=rtpmap:34")),
        (
            "a port of video",
            format!("{bare}m=video soon RTP/AVP 34\r\n"),
        ),
        ("a map without a clock", bare.replace("PCMU/8000", "PCMU")),
        (
            "a map with a leading blank",
            bare.replace("rtpmap:0", "rtpmap: 0"),
        ),
        (
            "a map with many blanks",
            bare.replace("rtpmap:0 ", "rtpmap:\t0  "),
        ),
        (
            "maps of nothing",
            format!("{bare}a=rtpmap:\r\na=rtpmap:x PCMU/8000\r\na=rtpmap:300 x/1\r\n"),
        ),
        (
            "a map of another",
            bare.replace("a=rtpmap:101", "a=rtpmap:97 G726-32\r\na=rtpmap:101"),
        ),
        (
            "a line that is none",
            format!("{HEAD}junk\r\n{AUDIO}junk\r\n"),
        ),
        ("a NUL behind it", format!("{bare}\0")),
        ("NULs behind it", format!("{bare}\0\0\0")),
        ("a line before it", format!("\r\n{bare}")),
        ("lines that end as they like", bare.replace("\r\n", "\n")),
        ("blanks at ends", bare.replace("\r\n", " \t\r\n")),
        ("small letters", bare.replace("IN IP4", "in ip4")),
    ] {
        assert_eq!(both(&text), usual, "{what}");
    }
    // Of any character set.
    for (from, to) in [
        (&b"s=-"[..], &b"s=Telefon\xeda M\xf3vil"[..]),
        (b"s=-", b"s=\xff\xfe\x80"),
        (b"o=-", b"o=J\xfcrgen"),
        (
            b"a=rtpmap:0",
            b"i=Gespr\xe4ch\r\na=label:\xe9\r\na=rtpmap:0",
        ),
    ] {
        let at = bare.find(std::str::from_utf8(from).expect("text"));
        let (before, after) = bare.split_at(at.expect("a place"));
        let text = [before.as_bytes(), to, &after.as_bytes()[from.len()..]].concat();
        assert_eq!(both(&text), usual, "{to:?}");
    }
}

#[test]
fn a_name_is_no_address_and_no_hold() {
    let named =
        format!("{HEAD}{AUDIO}").replace("c=IN IP4 198.51.100.1", "c=IN IP4 sbc.example.com");
    for agreed in both(&named) {
        let agreed = agreed.expect("an agreement");
        assert_eq!(agreed.remote.to_string(), "0.0.0.0:4000");
        assert_eq!(agreed.remote_reports.to_string(), "0.0.0.0:4001");
        assert_eq!(agreed.flow, Flow::SendRecv);
    }
    let six = Local {
        address: "2001:db8::9".parse().expect("an address"),
        ..local(Encryption::Allow)
    };
    let (_, agreed) = answer(named.as_bytes(), &six, Flow::SendRecv).expect("an answer");
    assert_eq!(agreed.remote.to_string(), "[::]:4000");
    // Each session of a call.
    let (text, first) = answer(named.as_bytes(), &six, Flow::SendRecv).expect("an answer");
    let again = accept_again(&six, &text, &first, named.as_bytes());
    assert_eq!(again.map(|again| again.remote), Ok(first.remote));
}

#[test]
fn an_address_that_is_none_of_ours_is_of_another_kind() {
    for (place, why) in [
        ("IN IP7 2001:db8::1", Refusal::Family),
        ("IN IP6 198.51.100.2", Refusal::Family),
        ("IN IP4 2001:db8::1", Refusal::Family),
        ("IN IP4 224.2.17.12/127", Refusal::Family),
        ("IN IP4 239.255.255.250", Refusal::Family),
        ("IN IP6 ff15::101/3", Refusal::Family),
        ("IN IP6 ::ffff:224.0.0.1", Refusal::Family),
        (
            "ATM NSAP 47.0091.8100.0000.0060.3e64.fd01.0060.3e64.fd01.00",
            Refusal::Family,
        ),
        ("IN IP4", Refusal::NoAddress),
        ("IN IP4 300.1.2.3", Refusal::NoAddress),
        ("IN IP6 2001:zz::1", Refusal::NoAddress),
    ] {
        let text = format!("{HEAD}{AUDIO}c={place}\r\n");
        for refused in both(&text) {
            assert_eq!(refused.map(drop), Err(why.clone()), "{place}");
        }
    }
    let nowhere = format!("{HEAD}{AUDIO}").replace("c=IN IP4 198.51.100.1\r\n", "");
    for refused in both(&nowhere) {
        assert_eq!(refused.map(drop), Err(Refusal::NoAddress));
    }
}

#[test]
fn a_map_that_cannot_be_read_refuses_its_format_alone() {
    let codec = |lines: &str| {
        let text = format!("{HEAD}m=audio 4000 RTP/AVP 0 8 96\r\n{lines}\r\n");
        let agreed = answer(text.as_bytes(), &local(Encryption::Allow), Flow::SendRecv);
        agreed.map(|(_, agreed)| agreed.payload_type)
    };
    for (lines, number) in [
        ("a=rtpmap:0 PCMU", Ok(0)),
        ("a=rtpmap:0", Ok(8)),
        ("a=rtpmap:0 PCMU/eight", Ok(8)),
        ("a=rtpmap:0 PCMU/", Ok(8)),
        ("a=rtpmap:0 PCMU/8000/x", Ok(8)),
        ("a=rtpmap:0 /8000", Ok(8)),
        ("a=rtpmap:96 opus", Ok(0)),
        ("a=rtpmap:96 opus/48000/2", Ok(96)),
        ("a=rtpmap:0\r\na=rtpmap:8 PCMA/x", Err(Refusal::NoCodec)),
    ] {
        assert_eq!(codec(lines), number, "{lines}");
    }
    // Events and noise likewise.
    for (lines, events, noise) in [
        ("a=rtpmap:101 telephone-event", Some(101), Some(13)),
        ("a=rtpmap:101 telephone-event/x", None, Some(13)),
        ("a=rtpmap:101", None, Some(13)),
        ("a=rtpmap:13 CN", None, Some(13)),
        ("a=rtpmap:13", None, None),
    ] {
        let text = format!("{HEAD}m=audio 4000 RTP/AVP 0 13 101\r\n{lines}\r\n");
        let answered = answer(text.as_bytes(), &local(Encryption::Allow), Flow::SendRecv);
        let (_, agreed) = answered.expect("an answer");
        assert_eq!(
            (agreed.events, agreed.comfort_noise),
            (events, noise),
            "{lines}"
        );
    }
}

#[test]
fn a_crypto_line_with_what_nobody_knows_is_none() {
    let suite = |rest: &str| {
        let line = format!("a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}{rest}");
        let text = format!("{HEAD}m=audio 4000 RTP/SAVP 0\r\n{line}\r\n");
        let agreed = answer(text.as_bytes(), &local(Encryption::Allow), Flow::SendRecv);
        agreed.map(drop)
    };
    for known in ["", "|2^31", "|2^20", "|1048576"] {
        assert_eq!(suite(known), Ok(()), "{known}");
    }
    for unknown in [
        "|monkeys!",
        "|2^32|2",
        "|2^",
        "|^31",
        "|3^31",
        "|",
        "|2^31|",
        "|-1",
    ] {
        assert_eq!(suite(unknown), Err(Refusal::NoSuite), "{unknown}");
    }
}
