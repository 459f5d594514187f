//! Offers and answers, as a table and as any text.

use proptest::prelude::*;

use super::*;
use crate::offer_answer;

mod field;

const KEY: &str = "PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR";

fn local(encryption: Encryption) -> Local {
    Local {
        address: "192.0.2.9".parse().expect("an address"),
        port: 20_000,
        session: 7,
        version: 1,
        codecs: Codec::ALL.to_vec(),
        encryption,
        random: [0x42; Suite::Aes256Tag80.material()],
    }
}

/// An offer whose session level is usual, with these media lines.
fn offer_of(media: &str) -> Vec<u8> {
    let head = "v=0\r\no=- 1 1 IN IP4 198.51.100.1\r\ns=call\r\nc=IN IP4 198.51.100.1\r\nt=0 0\r\n";
    let media = media.trim().replace('\n', "\r\n");
    format!("{head}{media}\r\n").into_bytes()
}

/// The answer to an offer, which is a good one.
fn answer(offer: &[u8], local: &Local, flow: Flow) -> Result<(String, Agreed), Refusal> {
    let answered = super::answer(offer, local, flow);
    if let Ok((text, _)) = &answered {
        offer_answer::check(&String::from_utf8_lossy(offer), text);
    }
    answered
}

fn agreed(media: &str) -> Agreed {
    answer(&offer_of(media), &local(Encryption::Allow), Flow::SendRecv)
        .expect("an answer")
        .1
}

#[test]
fn the_preferred_codec_is_taken_under_the_number_of_the_offer() {
    for (media, codec, number) in [
        ("m=audio 4000 RTP/AVP 0", Codec::Pcmu, 0),
        ("m=audio 4000 RTP/AVP 8 0", Codec::Pcmu, 0),
        ("m=audio 4000 RTP/AVP 8", Codec::Pcma, 8),
        ("m=audio 4000 RTP/AVP 0 9", Codec::G722, 9),
        (
            "m=audio 4000 RTP/AVP 0 107\na=rtpmap:107 OPUS/48000/2",
            Codec::Opus,
            107,
        ),
        (
            "m=audio 4000 RTP/AVP 97\na=rtpmap:97 pcma/8000/1",
            Codec::Pcma,
            97,
        ),
        // A number that is given another meaning has that one.
        (
            "m=audio 4000 RTP/AVP 0 8\na=rtpmap:0 iLBC/8000",
            Codec::Pcma,
            8,
        ),
    ] {
        let agreed = agreed(media);
        assert_eq!(
            (agreed.codec, agreed.payload_type),
            (codec, number),
            "{media}"
        );
        assert_eq!(agreed.remote.to_string(), "198.51.100.1:4000");
        assert_eq!(agreed.remote_reports.to_string(), "198.51.100.1:4001");
        assert_eq!((agreed.flow, agreed.keys), (Flow::SendRecv, None));
    }
}

#[test]
fn an_answer_says_what_is_agreed_and_refuses_the_rest_by_port() {
    let offer = offer_of(
        "m=video 5000 RTP/AVP 96
a=rtpmap:96 VP8/90000
m=audio 4000 RTP/AVP 18 0 8 101 13
c=IN IP4 198.51.100.2
a=rtpmap:101 telephone-event/8000
a=fmtp:101 0-16
a=rtcp:4010 IN IP4 198.51.100.3
a=ptime:20",
    );
    let (text, agreed) =
        answer(&offer, &local(Encryption::Allow), Flow::SendRecv).expect("an answer");
    assert_eq!(
        text.replace("\r\n", "\n"),
        "v=0
o=- 7 1 IN IP4 192.0.2.9
s=-
c=IN IP4 192.0.2.9
t=0 0
m=video 0 RTP/AVP 96
m=audio 20000 RTP/AVP 0 101 13
a=rtpmap:0 PCMU/8000
a=rtpmap:101 telephone-event/8000
a=fmtp:101 0-15
a=rtpmap:13 CN/8000
a=ptime:20
a=sendrecv
"
    );
    assert_eq!((agreed.events, agreed.comfort_noise), (Some(101), Some(13)));
    assert_eq!(agreed.remote.to_string(), "198.51.100.2:4000");
    assert_eq!(agreed.remote_reports.to_string(), "198.51.100.3:4010");
}

#[test]
fn audio_over_ipv6_is_answered_over_it_and_neither_family_by_the_other() {
    let six = Local {
        address: "2001:db8::9".parse().expect("an address"),
        ..local(Encryption::Allow)
    };
    let four = local(Encryption::Allow);
    let at = |address: &str| offer_of(&format!("m=audio 4000 RTP/AVP 0\nc=IN {address}"));
    let answered = |local: &Local, address: &str| {
        let answered = answer(&at(address), local, Flow::SendRecv);
        let accepted = offer(local, Flow::SendRecv).accept(&at(address));
        let remote = answered.map(|(_, agreed)| agreed.remote);
        assert_eq!(remote, accepted.map(|agreed| agreed.remote), "{address}");
        remote.map(|remote| remote.to_string())
    };
    for (local, address, remote) in [
        (&six, "IP6 2001:db8::7", Ok("[2001:db8::7]:4000")),
        (&six, "IP4 198.51.100.2", Err(Refusal::Family)),
        (&four, "IP6 2001:db8::7", Err(Refusal::Family)),
        // Of both families, as one: RFC 5118 section 4.9.
        (&four, "IP6 ::ffff:198.51.100.2", Ok("198.51.100.2:4000")),
        (&six, "IP6 ::ffff:198.51.100.2", Err(Refusal::Family)),
        // Hold is no address.
        (&six, "IP4 0.0.0.0", Ok("0.0.0.0:4000")),
        (&six, "IP6 ::", Ok("[::]:4000")),
    ] {
        assert_eq!(
            answered(local, address),
            remote.map(str::to_owned),
            "{address}"
        );
    }
    let (text, _) = answer(&at("IP6 2001:db8::7"), &six, Flow::SendRecv).expect("an answer");
    let head = "v=0\r\no=- 7 1 IN IP6 2001:db8::9\r\ns=-\r\nc=IN IP6 2001:db8::9\r\nt=0 0\r\n";
    assert!(text.starts_with(head), "{text}");
    // Of two lines the one that can be reached, and reports go where its audio goes.
    let offer = offer_of(
        "m=audio 4000 RTP/AVP 0\nc=IN IP6 2001:db8::7\nm=audio 4002 RTP/AVP 0\na=rtcp:4010 IN IP6 2001:db8::7",
    );
    let (_, agreed) = answer(&offer, &four, Flow::SendRecv).expect("an answer");
    assert_eq!(agreed.remote.to_string(), "198.51.100.1:4002");
    assert_eq!(agreed.remote_reports.to_string(), "198.51.100.1:4010");
}

/// RFC 3264 section 8: as many lines as before, the numbers of the call, and what is encrypted stays it.
#[test]
fn an_offer_within_a_call_keeps_its_lines_its_numbers_and_its_keys() {
    let key = format!("a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:{KEY}");
    for (protocol, key) in [("RTP/AVP", ""), ("RTP/SAVP", &*key)] {
        let offer = offer_of(&format!(
            "m=video 5000 RTP/AVP 96
m=audio 4000 {protocol} 107 97
a=rtpmap:107 opus/48000/2
a=rtpmap:97 telephone-event/48000
{key}"
        ));
        let mut local = local(Encryption::Allow);
        let (text, first) = answer(&offer, &local, Flow::SendRecv).expect("an answer");
        local.version += 1;
        let held = Agreed {
            flow: Flow::RecvOnly,
            ..first.clone()
        };
        let again = offer_again(&local, &text, &held, Flow::SendRecv).expect("an offer");
        assert!(again.text.contains("o=- 7 2 "), "{}", again.text);
        let lines: Vec<&str> = again.text.lines().collect();
        let media: Vec<&&str> = lines.iter().filter(|line| line.starts_with("m=")).collect();
        let audio = format!("m=audio 5062 {protocol} 107 9 0 8 97 101 13");
        let audio = audio.replace("5062", &local.port.to_string());
        assert_eq!(media, [&"m=video 0 RTP/AVP 96", &audio.as_str()]);
        for said in [
            "a=rtpmap:107 opus/48000/2",
            "a=rtpmap:97 telephone-event/48000",
            "a=rtpmap:101 telephone-event/8000",
        ] {
            assert!(lines.contains(&said), "{said}: {}", again.text);
        }
        let keys = |text: &str| {
            let lines = text.lines().filter(|line| line.starts_with("a=crypto"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(keys(&again.text), keys(&text));
        let theirs = format!(
            "m=video 0 RTP/AVP 96\nm=audio 4400 {protocol} 107 97\na=rtpmap:107 opus/48000/2\n\
             a=rtpmap:97 telephone-event/48000\n{key}"
        );
        let agreed = again.accept(&offer_of(&theirs)).expect("an agreement");
        assert_eq!(agreed.remote.to_string(), "198.51.100.1:4400");
        let numbers = |agreed: &Agreed| (agreed.codec, agreed.payload_type, agreed.events);
        assert_eq!(numbers(&agreed), (Codec::Opus, 107, Some(97)));
        assert_eq!(agreed.keys, first.keys);
        let fewer = offer_of("m=audio 4400 RTP/AVP 107\na=rtpmap:107 opus/48000/2");
        assert_eq!(again.accept(&fewer), Err(Refusal::NoAudio));
    }
    let none = offer_again(
        &local(Encryption::Allow),
        "v=0",
        &agreed("m=audio 4000 RTP/AVP 0"),
        Flow::SendRecv,
    );
    assert_eq!(none.err(), Some(Refusal::NoAudio));
}

/// RFC 3261 section 14.2: whoever asks for an offer within a call gets all codecs, and may go over to another one.
#[test]
fn an_offer_within_a_call_has_every_codec_and_no_number_twice() {
    let local = local(Encryption::Allow);
    for (media, first) in [
        ("m=audio 4000 RTP/AVP 0", "0"),
        (
            "m=audio 4000 RTP/AVP 8 101\na=rtpmap:101 telephone-event/8000",
            "8",
        ),
        ("m=audio 4000 RTP/AVP 9 13", "9"),
        // Numbers that we use for something else by ourselves.
        (
            "m=audio 4000 RTP/AVP 101 111\na=rtpmap:101 opus/48000/2\na=rtpmap:111 telephone-event/48000",
            "101",
        ),
        (
            "m=audio 4000 RTP/AVP 8 111\na=rtpmap:111 telephone-event/8000",
            "8",
        ),
    ] {
        let (text, before) = answer(&offer_of(media), &local, Flow::SendRecv).expect("an answer");
        let again = offer_again(&local, &text, &before, Flow::SendRecv).expect("an offer");
        let line = again.text.lines().find(|line| line.starts_with("m=audio"));
        let numbers: Vec<&str> = line.unwrap_or_default().split(' ').skip(3).collect();
        assert_eq!(numbers.first(), Some(&first), "{media}");
        let mut once = numbers.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), numbers.len(), "{line:?}");
        for codec in Codec::ALL {
            let number = again.numbers.codecs.iter().find(|(_, own)| *own == codec);
            let number = number.map(|(number, _)| number.to_string());
            assert!(
                number.is_some_and(|number| numbers.contains(&&*number)),
                "{codec:?}"
            );
        }
        // Whichever of them the answer has is spoken, and heard under the number that we gave it.
        for (number, codec) in &again.numbers.codecs {
            let (name, clock, channels) = (codec.name(), codec.clock(), codec.channels());
            let theirs = format!("m=audio 4400 RTP/AVP 98\na=rtpmap:98 {name}/{clock}/{channels}");
            let agreed = again.accept(&offer_of(&theirs)).expect("an agreement");
            assert_eq!((agreed.codec, agreed.payload_type), (*codec, 98));
            assert_eq!(agreed.format(*number), Some(Format::Audio(*codec)));
        }
    }
}

/// RFC 3264 section 8: what a session refresh of ours is answered is held against what was said before.
#[test]
fn an_answer_to_what_was_said_before_changes_what_it_changes() {
    let key = format!("a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:{KEY}");
    for (protocol, key) in [("RTP/AVP", ""), ("RTP/SAVP", &*key)] {
        let theirs = |port: u16, flow: &str| {
            offer_of(&format!(
                "m=audio {port} {protocol} 107 97\na=rtpmap:107 opus/48000/2\n\
                 a=rtpmap:97 telephone-event/48000\na={flow}\n{key}"
            ))
        };
        let local = local(Encryption::Allow);
        let (text, first) =
            answer(&theirs(4000, "sendonly"), &local, Flow::SendRecv).expect("an agreement");
        let again = |answer: &[u8]| accept_again(&local, &text, &first, answer);
        assert_eq!(again(&theirs(4000, "sendonly")), Ok(first.clone()));
        let moved = Agreed {
            remote: "198.51.100.1:4400".parse().expect("an address"),
            remote_reports: "198.51.100.1:4401".parse().expect("an address"),
            ..first.clone()
        };
        assert_eq!(again(&theirs(4400, "sendonly")), Ok(moved));
        assert_eq!(again(&theirs(0, "sendonly")), Err(Refusal::NoAudio));
    }
    // An offer of ours: another of its codecs may be taken now.
    for encryption in [Encryption::Disable, Encryption::Require] {
        let local = local(encryption);
        let offered = offer(&local, Flow::SendRecv);
        let theirs = |number: u8| match encryption {
            Encryption::Require => format!(
                "m=audio 4000 RTP/SAVP {number}\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"
            ),
            Encryption::Allow | Encryption::Disable => format!("m=audio 4000 RTP/AVP {number}"),
        };
        let first = offered.accept(&offer_of(&theirs(0))).expect("an agreement");
        let again = |number| {
            accept_again(&local, &offered.text, &first, &offer_of(&theirs(number)))
                .expect("an agreement")
        };
        assert_eq!(again(0), first);
        let other = again(8);
        assert_eq!((other.codec, other.payload_type), (Codec::Pcma, 8));
        assert_eq!((other.heard, other.keys), (first.heard, first.keys));
    }
}

/// What Opus' telephones offer: events with its own clock, with another, or both.
#[test]
fn keypad_events_keep_the_clock_that_the_offer_gave_them() {
    for (numbers, number, clock) in [
        ("101", 101, 8_000),
        ("102", 102, 48_000),
        ("101 102", 102, 48_000),
    ] {
        let offer = offer_of(&format!(
            "m=audio 4000 RTP/AVP 96 {numbers}
a=rtpmap:96 opus/48000/2
a=fmtp:96 stereo=0;sprop-stereo=0;useinbandfec=1
a=rtpmap:101 telephone-event/8000
a=rtpmap:102 telephone-event/48000"
        ));
        let (text, agreed) =
            answer(&offer, &local(Encryption::Allow), Flow::SendRecv).expect("an answer");
        assert_eq!((agreed.codec, agreed.payload_type), (Codec::Opus, 96));
        assert_eq!((agreed.events, agreed.events_clock), (Some(number), clock));
        let said = format!(
            "m=audio 20000 RTP/AVP 96 {number}\r\na=rtpmap:96 opus/48000/2\r\na=fmtp:96 useinbandfec=1\r\n\
             a=rtpmap:{number} telephone-event/{clock}\r\n"
        );
        assert!(text.contains(&said), "{text}");
        assert_eq!(agreed.comfort_noise, None);
    }
    let agreed = agreed(
        "m=audio 4000 RTP/AVP 9 101\na=rtpmap:9 G722/8000\na=rtpmap:101 telephone-event/8000",
    );
    assert_eq!((agreed.codec, agreed.events_clock), (Codec::G722, 8_000));
}

#[test]
fn the_bits_that_they_want_of_opus_are_agreed() {
    let bits = |parameters: &str| {
        let lines = "m=audio 4000 RTP/AVP 96 0\na=rtpmap:96 opus/48000/2\na=fmtp:";
        agreed(&format!("{lines}{parameters}")).most_bits
    };
    assert_eq!(
        bits("96 useinbandfec=1; maxaveragebitrate=20000"),
        Some(20_000)
    );
    for none in [
        "96 useinbandfec=1",
        "0 maxaveragebitrate=20000",
        "96",
        "x maxaveragebitrate=1",
    ] {
        assert_eq!(bits(none), None, "{none}");
    }
}

#[test]
fn our_offer_has_every_codec_and_events_for_each() {
    let offered = offer(&local(Encryption::Disable), Flow::SendRecv);
    let lines = "m=audio 20000 RTP/AVP 111 9 0 8 101 102 13
a=rtpmap:111 opus/48000/2
a=fmtp:111 useinbandfec=1
a=rtpmap:9 G722/8000
a=rtpmap:0 PCMU/8000
a=rtpmap:8 PCMA/8000
a=rtpmap:101 telephone-event/8000
a=fmtp:101 0-15
a=rtpmap:102 telephone-event/48000
a=fmtp:102 0-15
a=rtpmap:13 CN/8000
a=ptime:20
a=sendrecv
a=rtcp-mux
";
    assert!(
        offered.text.replace("\r\n", "\n").ends_with(lines),
        "{}",
        offered.text
    );
    for (answered, codec, events) in [
        (
            "m=audio 4000 RTP/AVP 9 101\na=rtpmap:101 telephone-event/8000",
            Codec::G722,
            (Some(101), 8_000),
        ),
        (
            "m=audio 4000 RTP/AVP 111 102\na=rtpmap:111 opus/48000/2\na=rtpmap:102 telephone-event/48000",
            Codec::Opus,
            (Some(102), 48_000),
        ),
        ("m=audio 4000 RTP/AVP 8", Codec::Pcma, (None, 8_000)),
    ] {
        let agreed = offered.accept(&offer_of(answered)).expect("an agreement");
        assert_eq!(
            (agreed.codec, (agreed.events, agreed.events_clock)),
            (codec, events)
        );
    }
    let narrow = Local {
        codecs: vec![Codec::Pcma],
        ..local(Encryption::Disable)
    };
    assert!(
        offer(&narrow, Flow::SendRecv)
            .text
            .contains("m=audio 20000 RTP/AVP 8 101 13\r\n")
    );
}

#[test]
fn the_answer_says_what_is_sent_and_our_offer_what_is_heard() {
    let offered = offer(&local(Encryption::Disable), Flow::SendRecv);
    let accept = |media: &str| offered.accept(&offer_of(media)).expect("an agreement");
    // Their first codec, not ours; what else was offered may come at any time.
    let agreed = accept("m=audio 4000 RTP/AVP 8 0 101\na=rtpmap:101 telephone-event/8000");
    assert_eq!((agreed.codec, agreed.payload_type), (Codec::Pcma, 8));
    for (number, format) in [
        (8, Some(Format::Audio(Codec::Pcma))),
        (0, Some(Format::Audio(Codec::Pcmu))),
        (9, Some(Format::Audio(Codec::G722))),
        (111, Some(Format::Audio(Codec::Opus))),
        (101, Some(Format::Event)),
        (102, Some(Format::Event)),
        (13, Some(Format::Noise)),
        (18, None),
    ] {
        assert_eq!(agreed.format(number), format, "{number}");
    }
    // They count in numbers of their own, in which we send; they send in ours.
    let agreed = accept(
        "m=audio 4000 RTP/AVP 96 111
a=rtpmap:96 opus/48000/2
a=rtpmap:111 telephone-event/48000",
    );
    assert_eq!((agreed.codec, agreed.payload_type), (Codec::Opus, 96));
    assert_eq!((agreed.events, agreed.events_clock), (Some(111), 48_000));
    assert_eq!(agreed.format(111), Some(Format::Audio(Codec::Opus)));
    assert_eq!(agreed.format(102), Some(Format::Event));
    // Some send in the numbers that they gave.
    assert_eq!(agreed.format(96), Some(Format::Audio(Codec::Opus)));
    // Without events in the answer none come.
    let agreed = accept("m=audio 4000 RTP/AVP 0");
    assert_eq!((agreed.events, agreed.format(101)), (None, None));
}

#[test]
fn packets_are_as_long_as_they_ask() {
    for (asked, ms) in [
        ("", 20),
        ("a=ptime:20", 20),
        ("a=ptime:10", 10),
        ("a=ptime:30", 30),
        ("a=ptime:50", 40),
        ("a=ptime:60", 60),
        ("a=ptime:200", 60),
        ("a=maxptime:10", 10),
        ("a=maxptime:150", 20),
        ("a=ptime:60\na=maxptime:40", 40),
        ("a=maxptime:30\na=ptime:60", 30),
        ("a=ptime:0", 10),
        ("a=ptime:soon", 20),
        ("a=ptime:99999999999", 20),
    ] {
        let offer = offer_of(&format!("m=audio 4000 RTP/AVP 0\n{asked}"));
        let (text, agreed) =
            answer(&offer, &local(Encryption::Allow), Flow::SendRecv).expect("an answer");
        assert_eq!(agreed.packet_ms, ms, "{asked}");
        assert!(text.contains(&format!("a=ptime:{ms}\r\n")), "{text}");
        let offered = super::offer(&local(Encryption::Disable), Flow::SendRecv);
        let agreed = offered.accept(&offer).expect("an agreement");
        assert_eq!(agreed.packet_ms, ms, "{asked}");
    }
    let opus =
        agreed("m=audio 4000 RTP/AVP 96\na=rtpmap:96 opus/48000/2\na=ptime:60\na=maxptime:120");
    assert_eq!(opus.packet_ms, 20);
}

#[test]
fn hold_and_resume_turn_the_flow() {
    for (theirs, wanted, flow) in [
        ("sendrecv", Flow::SendRecv, Flow::SendRecv),
        ("sendonly", Flow::SendRecv, Flow::RecvOnly),
        ("recvonly", Flow::SendRecv, Flow::SendOnly),
        ("inactive", Flow::SendRecv, Flow::Inactive),
        ("sendrecv", Flow::SendOnly, Flow::SendOnly),
        ("sendonly", Flow::SendOnly, Flow::Inactive),
    ] {
        let offer = offer_of(&format!("m=audio 4000 RTP/AVP 0\na={theirs}"));
        let (text, agreed) = answer(&offer, &local(Encryption::Allow), wanted).expect("an answer");
        assert_eq!(agreed.flow, flow, "{theirs}");
        assert!(text.contains(&format!("a={}\r\n", flow.name())), "{text}");
    }
    // At the session level, and with an address of zeros.
    let text = String::from_utf8(offer_of("m=audio 4000 RTP/AVP 0")).expect("text");
    let session = text.replace("t=0 0\r\n", "t=0 0\r\na=inactive\r\n");
    let (_, agreed) = answer(
        session.as_bytes(),
        &local(Encryption::Allow),
        Flow::SendRecv,
    )
    .expect("an answer");
    assert_eq!(agreed.flow, Flow::Inactive);
    let agreed = self::agreed("m=audio 4000 RTP/AVP 0\nc=IN IP4 0.0.0.0");
    assert_eq!(agreed.flow, Flow::RecvOnly);
}

#[test]
fn encryption_is_as_the_setting_says() {
    let plain = "m=audio 4000 RTP/AVP 0";
    let secure = format!(
        "m=audio 4002 RTP/SAVP 0\na=crypto:1 F8_128_HMAC_SHA1_80 inline:{KEY}
a=crypto:4 AES_CM_128_HMAC_SHA1_32 inline:{KEY}|2^31"
    );
    let both = format!("{plain}\n{secure}");
    let port = |media: &str, encryption| {
        answer(&offer_of(media), &local(encryption), Flow::SendRecv)
            .map(|(_, agreed)| (agreed.remote.port(), agreed.keys.is_some()))
    };
    for (media, encryption, expected) in [
        (plain, Encryption::Allow, Ok((4000, false))),
        (plain, Encryption::Disable, Ok((4000, false))),
        (plain, Encryption::Require, Err(Refusal::Encryption)),
        (&secure, Encryption::Allow, Ok((4002, true))),
        (&secure, Encryption::Disable, Err(Refusal::Encryption)),
        (&secure, Encryption::Require, Ok((4002, true))),
        (&both, Encryption::Allow, Ok((4002, true))),
        (&both, Encryption::Disable, Ok((4000, false))),
        (&both, Encryption::Require, Ok((4002, true))),
    ] {
        assert_eq!(port(media, encryption), expected, "{media} {encryption:?}");
    }
    let (text, agreed) = answer(
        &offer_of(&secure),
        &local(Encryption::Require),
        Flow::SendRecv,
    )
    .expect("an answer");
    let keys = agreed.keys.expect("keys");
    assert_eq!(keys.theirs.suite, Suite::Aes128Tag32);
    assert_eq!(keys.ours.suite, Suite::Aes128Tag32);
    assert!(text.contains("m=audio 20000 RTP/SAVP 0\r\n"), "{text}");
    let ours = base64_simd::STANDARD.encode_to_string(keys.ours.material());
    let line = format!("a=crypto:4 AES_CM_128_HMAC_SHA1_32 inline:{ours}\r\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn no_two_suites_have_a_key_in_common() {
    let ours = local(Encryption::Require);
    let keys = Suite::ALL.map(|suite| ours.keys(suite).expect("a key"));
    for (at, key) in keys.iter().enumerate() {
        assert!(
            keys[..at]
                .iter()
                .all(|other| !other.material().starts_with(&key.material()[..16])),
            "{:?}",
            key.suite
        );
    }
}

#[test]
fn a_crypto_line_that_asks_for_more_is_not_chosen() {
    for line in [
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|monkeys!"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^32|2"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^49"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|3^20"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|0"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|+5"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|1:4|2^20"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:0"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:129"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|256:1"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:4|1"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY};inline:{KEY}"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|1:1;inline:{KEY}|2:2"),
        format!("1 AES_CM_128_HMAC_SHA1_80 uri:{KEY}"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY} UNENCRYPTED_SRTP"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{KEY} KDR=1"),
        format!("1 AES_CM_128_HMAC_SHA1_80 inline:{}", &KEY[..36]),
        format!("one AES_CM_128_HMAC_SHA1_80 inline:{KEY}"),
        "1 AES_CM_128_HMAC_SHA1_80 inline:***".to_owned(),
        "1 AES_CM_128_HMAC_SHA1_80".to_owned(),
    ] {
        let offer = offer_of(&format!("m=audio 4000 RTP/SAVP 0\na=crypto:{line}"));
        let refused = answer(&offer, &local(Encryption::Allow), Flow::SendRecv);
        assert_eq!(refused.map(|_| ()), Err(Refusal::NoSuite), "{line}");
    }
}

#[test]
fn keys_with_an_identifier_and_a_lifetime_are_taken() {
    for parameters in [
        format!("inline:{KEY}"),
        format!("INLINE:{KEY}|2^48"),
        format!("inline:{KEY}|1048576"),
        format!("inline:{KEY}|2^31|1:4"),
        format!("inline:{KEY}|1:1"),
        format!("inline:{KEY}|2^20|65535:2"),
        format!("inline:{KEY}|2^20|1:128"),
        format!("inline:{KEY}|2^20|1:4;inline:{KEY}|2^20|2:4"),
    ] {
        // The line before it is not one, and the call's is the second.
        let offer = offer_of(&format!(
            "m=audio 4000 RTP/SAVP 0\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|monkeys!\n\
             a=crypto:2 AES_CM_128_HMAC_SHA1_80 {parameters}"
        ));
        let (text, agreed) =
            answer(&offer, &local(Encryption::Allow), Flow::SendRecv).expect(&parameters);
        assert!(text.contains("a=crypto:2 "), "{text}");
        // Our own key needs no name.
        assert!(!text.contains('|'), "{text}");
        let theirs = agreed.keys.expect("keys").theirs;
        assert_eq!(
            theirs.material(),
            base64_simd::STANDARD_NO_PAD
                .decode_to_vec(KEY)
                .expect("a key")
        );
    }
}

#[test]
fn what_cannot_be_agreed_is_refused_with_its_reason() {
    for (media, why) in [
        ("", Refusal::NoAudio),
        ("m=audio 0 RTP/AVP 0", Refusal::NoAudio),
        ("m=image 4000 udptl t38", Refusal::NoAudio),
        ("m=audio 4000 UDP/TLS/RTP/SAVPF 0", Refusal::NoAudio),
        ("m=audio 4000 RTP/AVP 18 3", Refusal::NoCodec),
        (
            "m=audio 4000 RTP/AVP 96\na=rtpmap:96 opus/48000",
            Refusal::NoCodec,
        ),
    ] {
        let refused = answer(&offer_of(media), &local(Encryption::Allow), Flow::SendRecv);
        assert_eq!(refused.map(|_| ()), Err(why), "{media}");
    }
    for text in [
        &b"v=1\r\n"[..],
        b"",
        b"\xff\xfe",
        b"v=0\r\nm=audio\r\n",
        b"v=0\r\nm=audio 99999 RTP/AVP 0\r\n",
        b"v=0\r\nm=audio\xe9 4000 RTP/AVP 0\r\n",
    ] {
        let refused = answer(text, &local(Encryption::Allow), Flow::SendRecv);
        assert!(matches!(refused, Err(Refusal::Malformed(_))), "{refused:?}");
    }
    let long = [b"v=0\r\n".as_slice(), &vec![b'a'; LONGEST_TRIED]].concat();
    let refused = answer(&long, &local(Encryption::Allow), Flow::SendRecv);
    assert!(matches!(refused, Err(Refusal::Malformed(_))));
}

const LONGEST_TRIED: usize = 20_000;

#[test]
fn our_offer_is_answered_by_ourselves() {
    for encryption in [Encryption::Allow, Encryption::Disable, Encryption::Require] {
        let offered = offer(&local(encryption), Flow::SendRecv);
        let mut other = local(encryption);
        other.address = "192.0.2.33".parse().expect("an address");
        other.random = [0x17; Suite::Aes256Tag80.material()];
        let (text, theirs) =
            answer(offered.text.as_bytes(), &other, Flow::SendRecv).expect("an answer");
        let ours = offered.accept(text.as_bytes()).expect("an agreement");
        assert_eq!(
            (ours.codec, ours.payload_type),
            (theirs.codec, theirs.payload_type)
        );
        assert_eq!(ours.remote.to_string(), "192.0.2.33:20000");
        assert_eq!(ours.events, theirs.events);
        assert_eq!(ours.keys.is_some(), encryption == Encryption::Require);
        if let (Some(ours), Some(theirs)) = (ours.keys, theirs.keys) {
            assert_eq!((ours.ours, ours.theirs), (theirs.theirs, theirs.ours));
        }
    }
}

#[test]
fn an_answer_that_takes_the_encryption_back_is_refused() {
    let offered = offer(&local(Encryption::Require), Flow::SendRecv);
    assert!(offered.text.contains("RTP/SAVP"));
    assert!(!offered.text.contains("RTP/AVP"));
    let plain = offer_of("m=audio 4000 RTP/AVP 0");
    assert_eq!(offered.accept(&plain), Err(Refusal::Encryption));
    let other = offer_of(&format!(
        "m=audio 4000 RTP/SAVP 0\na=crypto:9 AES_CM_128_HMAC_SHA1_80 inline:{KEY}"
    ));
    assert_eq!(offered.accept(&other), Err(Refusal::NotOffered));
    let none = offer_of("m=audio 4000 RTP/SAVP 0");
    assert_eq!(offered.accept(&none), Err(Refusal::NoSuite));
    let declined = offer_of("m=audio 0 RTP/SAVP 0");
    assert_eq!(offered.accept(&declined), Err(Refusal::NoAudio));
}

proptest! {
    #[test]
    fn any_text_is_answered_or_refused(lines in proptest::collection::vec(
        prop_oneof![
            Just("m=audio 4000 RTP/AVP 0 8 101".to_owned()),
            Just("m=audio 4000 RTP/SAVP 0".to_owned()),
            Just("c=IN IP4 198.51.100.1".to_owned()),
            Just("a=rtcp:1".to_owned()),
            "[a-z]=.{0,40}",
            "a=(crypto|rtpmap|fmtp|rtcp|ptime):.{0,60}",
            "m=audio [0-9]{1,6} .{0,20}",
        ], 0..20)) {
        let text = format!("v=0\r\n{}\r\n", lines.join("\r\n"));
        if let Ok((answered, _)) = super::answer(text.as_bytes(), &local(Encryption::Allow), Flow::SendRecv) {
            prop_assert!(answered.starts_with("v=0\r\n"));
        }
    }
}
