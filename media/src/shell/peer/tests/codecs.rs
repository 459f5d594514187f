//! Codecs of the field: whatever browsers and others wish of Opus, and offer beside it, both sides hear each other.

use super::*;

/// Format parameters of Opus, as they come.
const WISHES: &[&str] = &[
    // Firefox, Chromium, Safari; an offer of Chromium's that was changed for stereo.
    "maxplaybackrate=48000;stereo=1;useinbandfec=1",
    "maxplaybackrate=48000;stereo=1",
    "minptime=10;useinbandfec=1",
    "minptime=10;stereo=1;sprop-stereo=1;useinbandfec=1",
    // GStreamer and aiortc say nothing; Pion; others.
    "",
    "minptime=10;useinbandfec=1;stereo=0;sprop-stereo=0",
    "sprop-stereo=1",
    "cbr=1",
    "usedtx=0",
    "useinbandfec=0;usedtx=0;minptime=60",
    "maxaveragebitrate=510000;maxplaybackrate=8000;sprop-maxcapturerate=16000",
    "MINPTIME=3; UseInbandFEC=0 ;stereo = 1",
    " minptime=10;  useinbandfec=1;",
    "a",
    "apt=96",
    "0-15",
];

/// Formats beside it: what the first line says, and their lines.
const BESIDE: &[(&str, &str)] = &[
    ("", ""),
    ("110", "a=rtpmap:110 telephone-event/48000\r\n"),
    (
        "126",
        "a=rtpmap:126 telephone-event/8000/1\r\na=fmtp:126 0-15\r\n",
    ),
    (
        "110 126",
        "a=rtpmap:110 telephone-event/48000\r\na=rtpmap:126 telephone-event/8000\r\na=fmtp:126 0-16\r\n",
    ),
    // What has no line of its own has a number that says all (RFC 3551 section 6).
    ("9 0 8 3", ""),
    (
        "63 13 105 106 112 126",
        "a=rtpmap:63 red/48000/2\r\na=fmtp:63 96/96\r\na=rtpmap:13 CN/8000\r\na=rtpmap:105 CN/16000\r\n\
         a=rtpmap:106 CN/32000\r\na=rtpmap:112 telephone-event/32000\r\na=rtpmap:126 telephone-event/8000\r\n",
    ),
    (
        "97 121 122",
        "a=rtpmap:97 OPUS/48000/2\r\na=fmtp:97 stereo=1\r\na=rtpmap:121 ulpfec/48000\r\na=rtpmap:122 multiopus/48000/6\r\n",
    ),
];

/// A client's offer with these wishes and formats beside Opus, which `name` spells.
fn offer_of(plain: &str, wishes: &str, (numbers, lines): (&str, &str), name: &str) -> String {
    let old = "a=rtpmap:96 opus/48000/2\r\na=fmtp:96 minptime=10;useinbandfec=1\r\n";
    assert!(plain.contains(old), "{plain}");
    let fmtp = match wishes {
        "" => String::new(),
        wishes => format!("a=fmtp:96 {wishes}\r\n"),
    };
    let new = format!("{fmtp}{lines}a=rtpmap:96 {name}\r\n");
    let first = format!("SAVPF {numbers} 96\r\n").replace("  ", " ");
    plain.replace(old, &new).replace("SAVPF 96\r\n", &first)
}

/// The audio of a description: its numbers, and what each stands for.
fn audio(sdp: &str) -> Vec<(u8, String)> {
    let sections = sdp::sections(sdp);
    let audio = sections[sdp::audio_of(&sections).unwrap()];
    let numbers = audio.lines().next().unwrap().split(' ').skip(3);
    let of = |number: &str| {
        let head = format!("a=rtpmap:{number} ");
        let maps: Vec<&str> = audio
            .lines()
            .filter_map(|l| l.strip_prefix(&head))
            .collect();
        let [one] = maps[..] else {
            return (number.parse().unwrap(), maps.join(" and "));
        };
        let one = one.to_ascii_lowercase();
        (
            number.parse().unwrap(),
            one.trim_end_matches("/1").to_owned(),
        )
    };
    numbers.map(of).collect()
}

#[test]
fn whatever_is_wished_of_opus_and_offered_beside_it_opus_is_agreed() {
    let bed = Bed::new();
    let plain = Client::new().offer();
    let mut count = 0;
    for wishes in WISHES {
        for beside in BESIDE {
            for name in ["opus/48000/2", "OPUS/48000/2"] {
                let offer = offer_of(&plain, wishes, *beside, name);
                assert_eq!(check_offer(&offer), Ok(()), "{offer}");
                count += 1;
                let placed = bed.place(&format!("codecs-{count}"));
                let answer = placed.offer(&offer, false).unwrap();
                let (offered, agreed) = (audio(&offer), audio(&answer));
                let opus = agreed.iter().filter(|(_, codec)| codec == "opus/48000/2");
                assert_eq!(opus.count(), 1, "{offer}\n{answer}");
                for (at, one) in agreed.iter().enumerate() {
                    assert!(offered.contains(one), "{one:?}\n{offer}\n{answer}");
                    assert!(!agreed[..at].contains(one), "{answer}");
                }
                let events = |of: &[(u8, String)]| {
                    let known = ["telephone-event/48000", "telephone-event/8000"];
                    let known = |(_, codec): &&(u8, String)| known.contains(&&codec[..]);
                    of.iter().filter(known).cloned().collect::<Vec<_>>()
                };
                assert_eq!(events(&agreed), events(&offered), "{offer}\n{answer}");
                placed.handle.end(EndRequest::Api);
            }
        }
    }
}

/// The caller's tone is in the recording, and the agent's is heard.
fn both_are_heard(placed: &Placed, client: &mut Client) {
    client.run(|client| client.hears(0, 0.5));
    client.run_for(Duration::from_millis(500), |_| false);
    assert!(placed.handle.end(EndRequest::Api));
    client.run(|client| client.has("call_ended"));
    let (caller, _) = wav(&placed.recorded());
    let loud = caller
        .chunks_exact(1600)
        .filter(|part| db(goertzel(part, 16_000, CALLER_HZ)) > -30.0);
    assert!(loud.count() > 4, "the caller was not heard");
}

#[test]
fn a_caller_with_the_offer_of_firefox_hears_and_is_heard() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-firefox");
    let mut client = Client::new();
    let beside = (
        "9 0 8 101",
        "a=fmtp:101 0-15\r\na=rtpmap:9 G722/8000/1\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\n\
         a=rtpmap:101 telephone-event/8000/1\r\n",
    );
    let offer = offer_of(&client.offer(), WISHES[0], beside, "opus/48000/2");
    let answer = placed.offer(&offer, false).unwrap();
    let agreed = [(96, "opus/48000/2"), (101, "telephone-event/8000")];
    assert_eq!(
        audio(&answer),
        agreed.map(|(n, codec)| (n, codec.to_owned()))
    );
    client.accept(&answer);
    both_are_heard(&placed, &mut client);
}

/// The description with another number for the payload type.
fn renumbered(sdp: &str, from: u8, to: u8) -> String {
    let mut new = sdp.replace(&format!("SAVPF {from}"), &format!("SAVPF {to}"));
    for of in ["rtpmap", "fmtp"] {
        new = new.replace(&format!("a={of}:{from} "), &format!("a={of}:{to} "));
    }
    assert_ne!(new, sdp);
    new
}

#[test]
fn a_later_offer_may_number_its_codecs_anew() {
    let bed = Bed::new();
    let (placed, mut client) = bed.call("webrtc-renumbered");
    client.run(|client| client.hears(0, 0.2));
    let offer = renumbered(&client.offer(), 96, 109);
    let answer = placed.offer(&offer, false).unwrap();
    assert_eq!(audio(&answer), [(109, "opus/48000/2".to_owned())]);
    client.accept(&renumbered(&answer, 109, 96));
    let from = client.heard.len();
    client.say(r#"{"type":"user_message","text":"And now?"}"#);
    client.run(|client| client.hears(from, 0.3));
    both_are_heard(&placed, &mut client);
}

#[test]
fn an_answer_to_our_offer_may_wish_and_number_as_it_likes() {
    let bed = Bed::new();
    for (number, wishes) in [(111, WISHES[0]), (96, ""), (35, WISHES[11])] {
        let placed = bed.place(&format!("webrtc-our-offer-{number}"));
        let mut client = Client::new();
        let offer = placed.make_offer();
        let ours = [
            (111, "opus/48000/2"),
            (110, "telephone-event/48000"),
            (126, "telephone-event/8000"),
        ];
        assert_eq!(audio(&offer), ours.map(|(n, codec)| (n, codec.to_owned())));
        let answer = client.answer(offer);
        let wished: String = answer
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("a=fmtp:111"))
            .map(|line| match line.starts_with("a=rtpmap:111 ") {
                true => format!("{line}a=fmtp:111 {wishes}\r\n"),
                false => line.to_owned(),
            })
            .collect();
        let beside = wished.replace("SAVPF 111", "SAVPF 111 126").replace(
            "a=rtpmap:111",
            "a=rtpmap:126 telephone-event/8000\r\na=rtpmap:111",
        );
        let sdp = match number {
            111 => beside,
            number => renumbered(&beside, 111, number),
        };
        assert_eq!(placed.ask(PeerRequest::Answer { sdp }), Ok(PeerReply::Done));
        client.run(|client| client.hears(0, 0.3));
    }
    let placed = bed.place("webrtc-our-offer-refused");
    let answer = Client::new().answer(placed.make_offer());
    let sdp = answer.replace("opus/48000/2", "PCMU/8000");
    let refused = placed.ask(PeerRequest::Answer { sdp });
    assert!(
        matches!(&refused, Err(PeerError::InvalidSdp(why)) if why.contains("no audio codec in common")),
        "{refused:?}"
    );
}

#[test]
fn a_second_audio_without_opus_is_refused_and_the_first_is_taken() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-two-audios");
    let mut client = Client::new();
    let offer = client.offer();
    let sections = sdp::sections(&offer);
    let at = sdp::audio_of(&sections).unwrap();
    let mid = sdp::attribute(sections[at], "mid").unwrap();
    let second = sections[at]
        .replace("SAVPF 96", "SAVPF 8")
        .replace("a=rtpmap:96 opus/48000/2\r\n", "a=rtpmap:8 PCMA/8000\r\n")
        .replace(&format!("a=mid:{mid}"), "a=mid:second");
    let second: String = second
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("a=fmtp:") && !line.starts_with("a=ssrc"))
        .collect();
    let group = offer
        .lines()
        .find(|line| line.starts_with("a=group:"))
        .unwrap();
    let grouped = offer.replace(group, &format!("{group} second")) + &second;
    let answer = placed.offer(&grouped, false).unwrap();
    let sections = sdp::sections(&answer);
    let last = sections.last().unwrap();
    assert!(
        last.starts_with("m=audio 0 UDP/TLS/RTP/SAVPF 8\r\n"),
        "{answer}"
    );
    assert!(answer.contains(&format!("{group}\r\n")), "{answer}");
    assert_eq!(audio(&answer), [(96, "opus/48000/2".to_owned())]);
}
