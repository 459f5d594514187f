//! What the core is told of descriptions, and what the other side is told of the core's.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::offer_answer;

const OPUS: &str = "a=rtpmap:111 opus/48000/2\r\n";
const KEYS: &str = "a=ice-ufrag:u\r\na=ice-pwd:p\r\na=fingerprint:SHA-256 AA:BB\r\n";

fn of(offer: &str) -> Result<Plain, &'static str> {
    plain(offer, None, None, Near::Machine)
}

/// The lines that are in common to all that the core is told.
fn told(group: &str, media: &str) -> String {
    format!("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE {group}\r\n{media}")
}

const WAY_TOLD: &str = "a=ice-ufrag:u\r\na=ice-pwd:p\r\na=fingerprint:sha-256 aa:bb\r\n";

#[test]
fn the_core_is_told_of_the_audio_and_its_channel_alone() {
    let offer = format!(
        "v=0\r\na=group:BUNDLE v a d\r\na=sendonly\r\n{KEYS}m=video 9 X 34\r\na=mid:v\r\na=recvonly\r\n\
         a=candidate:1 1 UDP 7 192.0.2.7 5000 typ srflx raddr 0.0.0.0 rport 0\r\n\
         m=audio 9 X 0 111\r\n{OPUS}a=fmtp:111 stereo=1\r\na=mid:a\r\na=ssrc:5 cname:c\r\n\
         a=candidate:1 1 UDP 7 192.0.2.7 5000 typ srflx generation 0\r\na=candidate:2 1 udp 7 x.local 1 typ host\r\n\
         m=text 9 X 98\r\nm=application 9 X webrtc-datachannel\r\na=mid:d\r\na=sctp-port:5002"
    );
    let audio = |number: u8, flows: &str| {
        format!(
            "m=audio 9 UDP/TLS/RTP/SAVPF {number}\r\nc=IN IP4 0.0.0.0\r\na=rtpmap:{number} opus/48000/2\r\na=mid:0\r\n\
             a=rtcp-mux\r\na={flows}\r\na=ssrc:5 cname:c\r\n{WAY_TOLD}"
        )
    };
    let channel = format!(
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=sctp-port:5002\r\n{WAY_TOLD}\
         a=candidate:1 1 UDP 7 192.0.2.7 5000 typ srflx\r\n"
    );
    let read = of(&offer).expect("a description");
    let media = audio(111, "sendonly") + &channel;
    assert_eq!(read.sdp, told("0 1", &media));
    assert_eq!(read.flows, Direction::Sendonly);
    // It knows Opus under one number, and sends as we say.
    let both = plain(&offer, Some(Direction::Sendrecv), Some(96), Near::Machine);
    let media = audio(96, "sendrecv") + &channel;
    let both = both.expect("a description");
    assert_eq!((both.sdp, both.codecs.opus), (told("0 1", &media), 111));
}

#[test]
fn the_way_is_that_of_the_first_medium_that_is_kept() {
    let audio = |lines: &str| format!("m=audio 9 X 111\r\n{OPUS}a=mid:a\r\n{lines}");
    let channel = |port: u16, lines: &str| {
        format!("m=application {port} X webrtc-datachannel\r\na=mid:d\r\n{lines}")
    };
    let other = KEYS.replace(":u", ":other").replace(":p", ":secret");
    let bundle_only = format!("a=bundle-only\r\n{other}");
    for (group, media, name) in [
        ("a d", audio(KEYS) + &channel(9, &other), "u"),
        ("d a", audio(KEYS) + &channel(9, &other), "other"),
        ("v a d", audio(KEYS) + &channel(9, &other), "u"),
        // What has a port comes before what has none.
        ("d a", audio(KEYS) + &channel(0, &bundle_only), "u"),
        // What is said once is said for all.
        ("a d", audio("") + &channel(9, &other), "other"),
        ("a", audio(KEYS) + &channel(9, &other), "u"),
        ("d", audio(KEYS) + &channel(9, &other), "u"),
    ] {
        let read = of(&format!("v=0\r\na=group:BUNDLE {group}\r\n{media}"));
        assert_eq!(read.expect("a description").way.name, name, "{group}");
    }
    let own =
        "v=0\r\na=ice-lite\r\na=ice-ufrag:session\r\na=ice-pwd:p\r\na=fingerprint:sha-256 AA\r\n";
    let read = of(&(own.to_owned() + &audio("a=setup:holdconn\r\n"))).expect("a description");
    assert_eq!((&*read.way.name, read.way.setup), ("session", None));
    assert!(read.sdp.contains("t=0 0\r\na=ice-lite\r\n"), "{}", read.sdp);
}

#[test]
fn what_cannot_be_taken_is_refused_with_its_reason() {
    let audio = format!("m=audio 9 X 111\r\n{OPUS}a=mid:0\r\n{KEYS}");
    let of = |offer: &str| of(offer).expect_err("a refusal");
    assert_eq!(of("v=0\r\nm=video 9 X 96\r\n"), "no audio");
    assert_eq!(of("v=0\r\nm=audio 0 X 96\r\n"), "no audio");
    let twice = format!("v=0\r\n{audio}m=video 9 X 96\r\na=mid:0\r\n");
    assert!(of(&twice).contains("one mid"));
    let other = format!("v=0\r\n{}", audio.replace("48000", "16000"));
    assert!(of(&other).contains("opus/48000/2"));
    for (from, word) in [
        ("a=ice-ufrag:u\r\n", "ice-ufrag"),
        ("a=ice-pwd:p\r\n", "ice-pwd"),
        ("a=fingerprint:SHA-256 AA:BB\r\n", "no fingerprint"),
        (" AA:BB", "sha-256"),
        ("SHA-256", "sha-256"),
    ] {
        let without = format!("v=0\r\n{}", audio.replace(from, ""));
        assert!(of(&without).contains(word), "{from}");
    }
    let beside = |count: usize| format!("v=0\r\n{audio}{}", "m=video 9 X 96\r\n".repeat(count));
    assert_eq!(of(&beside(64)), "more than 64 media");
    assert!(plain(&beside(63), None, None, Near::Machine).is_ok());
    // Of a group the first names count, and of a way the first candidates.
    let names = "x ".repeat(63);
    let candidates: String = (5_001..=5_200)
        .map(|port| format!("a=candidate:1 1 UDP 7 192.0.2.7 {port} typ srflx\r\n"))
        .collect();
    for (name, group) in [("0", vec![63]), ("y 0", vec![])] {
        let group_line = format!("a=group:BUNDLE {names}{name}\r\n");
        let media = "m=video 9 X 96\r\n".repeat(62);
        let offer = format!("v=0\r\n{group_line}{media}{audio}{candidates}");
        let read = plain(&offer, None, None, Near::Machine).expect("a description");
        assert_eq!((read.taken.audio, read.taken.group), (63, group));
        assert_eq!(read.way.candidates.len(), 101);
    }
    // Without a group the audio alone is there, wherever it stands; and of several it is the one that we speak.
    let second = format!("v=0\r\nm=video 9 X 96\r\na=mid:1\r\nm=audio 9 X 0\r\n{audio}");
    let read = plain(&second, None, None, Near::Machine).expect("a description");
    assert_eq!((read.taken.audio, read.taken.channel), (3, None));
    assert_eq!(read.sdp.matches("m=").count(), 1);
}

#[test]
fn an_answer_is_one_to_each_medium_of_the_offer() {
    let offer = format!(
        "v=0\r\na=group:BUNDLE v s d a\r\n{KEYS}m=video 9 X 34 35\r\na=mid:v\r\na=rtcp-mux\r\na=rtpmap:35 VP8/90000\r\n\
         a=rtpmap:34 H263/90000\r\na=fmtp:34 QCIF=2\r\nm=audio 0 X 8\r\na=mid:s\r\n\
         m=application 9 Y webrtc-datachannel\r\na=mid:d\r\nm=audio 9 Z 0 111\r\n{OPUS}a=mid:a\r\na=rtcp-rsize\r\n\
         m=application 9 DTLS/SCTP 5000\r\n"
    );
    let names = "a=ice-ufrag:our\r\na=ice-pwd:own\r\n";
    let answer = format!(
        "v=0\r\na=fingerprint:sha-256 CC\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 W 111\r\nc=IN IP4 0.0.0.0\r\na=setup:active\r\na=mid:0\r\n{names}a=rtcp-mux\r\na=rtcp-rsize\r\n{OPUS}\
         a=sendrecv\r\na=candidate:1 1 udp 1 192.0.2.7 5000 typ host\r\na=candidate:1 2 udp 1 192.0.2.7 5000 typ host\r\n\
         a=end-of-candidates\r\n\
         m=application 9 W webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=setup:active\r\na=mid:1\r\n{names}a=sctp-port:5000\r\n"
    );
    let asked = super::super::codecs::ASKED;
    let way = "a=setup:active\r\na=ice-ufrag:our\r\na=ice-pwd:own\r\n";
    let expected = format!(
        "v=0\r\na=fingerprint:sha-256 CC\r\na=group:BUNDLE d a\r\n\
         m=video 0 X 34\r\nc=IN IP4 0.0.0.0\r\na=rtcp-mux\r\na=rtpmap:34 H263/90000\r\na=fmtp:34 QCIF=2\r\na=mid:v\r\n\
         a=inactive\r\n{way}\
         m=audio 0 X 8\r\nc=IN IP4 0.0.0.0\r\na=mid:s\r\na=inactive\r\n{way}\
         m=application 9 Y webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=setup:active\r\na=mid:d\r\n{names}a=sctp-port:5000\r\n\
         a=candidate:1 1 udp 1 192.0.2.7 5000 typ host\r\na=end-of-candidates\r\n\
         m=audio 9 Z 111\r\nc=IN IP4 0.0.0.0\r\n{OPUS}a=fmtp:111 {asked}\r\na=setup:active\r\na=mid:a\r\n{names}\
         a=rtcp-rsize\r\na=sendrecv\r\n\
         m=application 0 DTLS/SCTP 5000\r\nc=IN IP4 0.0.0.0\r\n{way}"
    );
    let read = of(&offer).expect("a description");
    assert_eq!(read.answering(&answer, &offer), expected);
}

/// Media that may stand in an offer, without names.
const MEDIA: [&str; 9] = [
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 110 126 101\r\na=rtpmap:111 opus/48000/2\r\na=rtpmap:110 telephone-event/48000\r\n\
     a=rtpmap:126 telephone-event/8000\r\na=rtpmap:101 telephone-event/8000\r\na=rtcp-mux\r\na=rtcp-rsize\r\n",
    "m=audio 9 RTP/SAVPF 96 96 97\r\na=rtpmap:96 OPUS/48000/2\r\na=rtpmap:97 opus/48000/2\r\na=rtcp-mux\r\n",
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=sctp-port:5000\r\n",
    "m=application 0 UDP/DTLS/SCTP webrtc-datachannel\r\n",
    "m=video 9 UDP/TLS/RTP/SAVPF 98 34\r\na=rtpmap:98 VP8/90000\r\na=rtcp-mux\r\n",
    "m=audio 9 UDP/TLS/RTP/SAVPF 109 13 0\r\n",
    "m=audio 0 UDP/TLS/RTP/SAVPF 111\r\na=rtpmap:111 opus/48000/2\r\n",
    "m=application 9 DTLS/SCTP 5000\r\na=sctpmap:5000 webrtc-datachannel 1024\r\n",
    "m=text 11000 RTP/AVP 98\r\n",
];
const FLOWS: [&str; 4] = ["sendrecv", "sendonly", "recvonly", "inactive"];

/// What the core answers to what it is told, as far as that matters here.
fn of_the_core(read: &Plain) -> String {
    let flows = super::super::sdp::mirrored(read.flows);
    let way = "c=IN IP4 0.0.0.0\r\na=setup:active\r\na=ice-ufrag:our\r\na=ice-pwd:own\r\n";
    let mut answer = format!(
        "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=fingerprint:sha-256 CC\r\na=group:BUNDLE 0 1\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n{way}a=mid:0\r\na=rtcp-mux\r\na=rtcp-rsize\r\n{OPUS}a={flows}\r\n\
         a=candidate:1 1 udp 1 192.0.2.7 5000 typ host\r\na=candidate:1 2 udp 1 192.0.2.7 5000 typ host\r\n\
         a=end-of-candidates\r\n"
    );
    if read.taken.channel.is_some() {
        let first = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n";
        answer.push_str(&format!("{first}{way}a=mid:1\r\na=sctp-port:5000\r\n"));
    }
    answer
}

proptest! {
    #[test]
    fn whatever_media_are_offered_the_answer_is_a_good_one(
        media in vec((0..MEDIA.len(), any::<bool>(), any::<bool>(), 0..FLOWS.len()), 1..7),
        backwards in any::<bool>(),
    ) {
        let mut names: Vec<String> = Vec::new();
        let mut written = String::new();
        for (at, (medium, is_named, is_shared, flows)) in media.iter().enumerate() {
            written.push_str(MEDIA[*medium]);
            written.push_str(&format!("c=IN IP4 0.0.0.0\r\na={}\r\n", FLOWS[*flows]));
            if *is_named {
                written.push_str(&format!("a=mid:{at}\r\n"));
                if *is_shared && !MEDIA[*medium].contains(" 0 ") {
                    names.push(at.to_string());
                }
            }
        }
        if backwards {
            names.reverse();
        }
        let group = format!("a=group:BUNDLE {}\r\n", names.join(" "));
        let offer = format!("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n{group}{KEYS}{written}");
        match of(&offer) {
            Ok(read) => {
                let answer = read.answering(&of_the_core(&read), &offer);
                let faults = offer_answer::faults(&offer, &answer);
                prop_assert!(faults.is_empty(), "{faults:?}\n{offer}\n{answer}");
            }
            Err(why) => prop_assert!(!media.iter().any(|(medium, ..)| *medium < 2), "{why}\n{offer}"),
        }
    }

    #[test]
    fn any_text_is_read_or_refused(lines in vec(prop_oneof![
        Just("m=audio 9 X 111".to_owned()),
        Just("a=rtpmap:111 opus/48000/2".to_owned()),
        Just("a=ice-ufrag:u\r\na=ice-pwd:p\r\na=fingerprint:sha-256 A".to_owned()),
        Just("a=group:BUNDLE 0 1".to_owned()),
        "a=mid:[01]",
        "m=.{0,20}",
        "[a-z]=.{0,40}",
        "a=(candidate|rtpmap|fmtp|setup|sctp-port|bundle-only):?.{0,60}",
    ], 0..24)) {
        let text = lines.join("\r\n");
        if let Ok(read) = of(&text) {
            prop_assert!(read.sdp.matches("m=audio ").count() >= 1);
            prop_assert!(read.answering(&of_the_core(&read), &text).starts_with("v=0\r\n"));
        }
    }
}
