//! Who answers whom, who holds with their answer, and who begins the key exchange.

use super::*;

fn is_on_hold(news: &CallNews) -> bool {
    matches!(news, CallNews::Event(CallEvent::Agent(AgentState::OnHold)))
}

#[test]
fn a_client_may_answer_our_offer() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-our-offer");
    let mut client = Client::new();
    let sdp = client.answer(placed.make_offer());
    assert_eq!(placed.ask(PeerRequest::Answer { sdp }), Ok(PeerReply::Done));
    client.run(|client| client.hears(0, 0.5));
}

#[test]
fn an_answer_may_hold_the_call() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-held-answer");
    let mut client = Client::new();
    client.speaks = false;
    let answer = client.answer(placed.make_offer());
    let sdp = answer.replace("a=sendrecv", "a=sendonly");
    assert_eq!(sdp::audio_direction(&sdp), Some(Direction::Sendonly));
    assert_eq!(placed.ask(PeerRequest::Answer { sdp }), Ok(PeerReply::Done));
    client.run(|client| client.has("session_started"));
    client.run_for(Duration::from_millis(500), |_| false);
    assert_eq!(client.packets, 0, "the agent spoke to who holds the call");
    assert!(placed.told().iter().any(is_on_hold));
    // The greeting waits for the client's own offer.
    let offer = client.offer();
    let answer = placed.offer(&offer, false).unwrap();
    client.accept(&answer);
    client.run(|client| client.hears(0, 0.5));
}

/// Which media are not refused, and whether there is a group.
fn shape(sdp: &str) -> (Vec<bool>, bool) {
    let sections = sdp::sections(sdp);
    let refused = |section: &&str| section.split(' ').nth(1) == Some("0");
    let open = sections.iter().skip(1).map(|section| !refused(section));
    (open.collect(), sdp.contains("a=group:"))
}

#[test]
fn who_begins_on_hold_is_greeted_when_they_resume() {
    let bed = Bed::new();
    for (held, answered) in [
        (Direction::Sendonly, Direction::Recvonly),
        (Direction::Inactive, Direction::Inactive),
    ] {
        let placed = bed.place(&format!("webrtc-held-first-{held}"));
        let mut client = Client::new();
        client.speaks = false;
        client.direct(held);
        let offer = client.offer();
        assert_eq!(check_offer(&offer), Ok(()));
        let answer = placed.offer(&offer, false).unwrap();
        assert_eq!(sdp::audio_direction(&answer), Some(answered));
        client.accept(&answer);
        client.run(|client| client.has("session_started"));
        client.run_for(Duration::from_millis(300), |_| false);
        assert_eq!(client.packets, 0, "the agent spoke to who holds the call");
        assert!(placed.told().iter().any(is_on_hold));
        // Held once more, and then resumed.
        for direction in [Direction::Inactive, Direction::Sendrecv] {
            client.direct(direction);
            let offer = client.offer();
            let answer = placed.offer(&offer, false).unwrap();
            assert_eq!(sdp::audio_direction(&answer), Some(direction));
            client.accept(&answer);
        }
        client.run(|client| client.hears(0, 0.5));
    }
}

#[test]
fn an_offer_that_says_no_direction_flows_both_ways() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-no-direction");
    let mut client = Client::new();
    let offer = client.offer().replace("a=sendrecv\r\n", "");
    assert_eq!(sdp::direction(&offer), None);
    let answer = placed.offer(&offer, false).unwrap();
    assert_eq!(shape(&answer), shape(&offer));
    assert_eq!(sdp::audio_direction(&answer), Some(Direction::Sendrecv));
    client.accept(&answer);
    client.run(|client| client.hears(0, 0.5));
}

#[test]
fn an_offer_without_a_group_gets_its_audio_and_no_more() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-no-group");
    let mut client = Client::new();
    let offer = client.offer();
    let group = offer.lines().find(|line| line.starts_with("a=group:"));
    let offer = offer.replace(&format!("{}\r\n", group.unwrap()), "");
    let answer = placed.offer(&offer, false).unwrap();
    assert_eq!(shape(&answer), (vec![true, false], false));
    client.accept(&answer);
    client.run(|client| client.hears(0, 0.5));
}

/// A medium of an offer: one beside the client's own, or one of these by its number.
enum Medium {
    Other(&'static str),
    Own(usize),
}

/// A description whose media are these.
fn with_media(sdp: &str, media: &[Medium]) -> String {
    let sections = sdp::sections(sdp);
    let names = media.iter().map(|medium| match medium {
        Medium::Other(other) => sdp::attribute(other, "mid").unwrap(),
        Medium::Own(at) => sdp::attribute(sections[1 + at], "mid").unwrap(),
    });
    let group = format!("a=group:BUNDLE {}", names.collect::<Vec<_>>().join(" "));
    let session = sections[0].lines().map(|line| match line {
        line if line.starts_with("a=group:") => &group[..],
        line => line,
    });
    let session: String = session.map(|line| format!("{line}\r\n")).collect();
    let media = media.iter().map(|medium| match medium {
        Medium::Other(other) => *other,
        Medium::Own(at) => sections[1 + at],
    });
    session + &media.collect::<String>()
}

const VIDEO: &str = "m=video 9 UDP/TLS/RTP/SAVPF 98\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=rtcp-mux\r\n\
    a=rtpmap:98 VP8/90000\r\na=sendrecv\r\na=setup:actpass\r\n";
const SCREEN: &str = "m=video 9 UDP/TLS/RTP/SAVPF 99\r\nc=IN IP4 0.0.0.0\r\na=mid:w\r\na=rtcp-mux\r\n\
    a=rtpmap:99 H264/90000\r\na=sendonly\r\na=setup:actpass\r\n";
const STOPPED: &str =
    "m=audio 0 UDP/TLS/RTP/SAVPF 8\r\nc=IN IP4 0.0.0.0\r\na=mid:s\r\na=inactive\r\n";

#[test]
fn the_first_medium_that_is_kept_leads_to_us() {
    use Medium::{Other, Own};
    // The client's own media are an audio and a channel.
    let offers: [&[Medium]; 6] = [
        &[Own(0), Own(1)],
        &[Other(VIDEO), Own(0), Own(1)],
        &[Other(VIDEO), Other(SCREEN), Own(0), Own(1)],
        &[Other(STOPPED), Own(1), Own(0)],
        &[Other(STOPPED), Other(VIDEO), Own(1), Own(0)],
        &[Own(1), Other(VIDEO), Own(0)],
    ];
    let bed = Bed::new();
    for (number, media) in offers.iter().enumerate() {
        let placed = bed.place(&format!("webrtc-first-kept-{number}"));
        let mut client = Client::new();
        let offer = with_media(&client.offer(), media);
        let offer = offer.replace("BUNDLE s ", "BUNDLE ");
        assert_eq!(check_offer(&offer), Ok(()), "{offer}");
        let answer = placed.offer(&offer, false).unwrap();
        let (kept, _) = shape(&answer);
        let own = media.iter().map(|medium| matches!(medium, Own(_)));
        assert_eq!(kept, own.collect::<Vec<_>>(), "{answer}");
        let first = kept.iter().position(|kept| *kept).unwrap();
        let sections = sdp::sections(&answer);
        for (at, section) in sections[1..].iter().enumerate() {
            let has = |name: &str| section.contains(name);
            assert_eq!(has("a=candidate:"), at == first, "{answer}");
            assert!(!has("a=end-of-candidates") || at == first, "{answer}");
            // Of those that are refused, too: some peers take no description that lacks them.
            let way = ["a=ice-ufrag:", "a=ice-pwd:", "a=setup:"];
            assert!(way.iter().all(|name| has(name)), "{answer}");
            let shared = sdp::attribute(section, "mid").unwrap();
            let group = sections[0]
                .lines()
                .find(|line| line.starts_with("a=group:"));
            let mut group = group.unwrap().split(' ').skip(1);
            assert_eq!(group.any(|mid| mid == shared), kept[at], "{answer}");
        }
        // The client knows its own media alone, in its own order.
        let place = |own: usize| {
            let is_own = |medium: &Medium| matches!(medium, Own(at) if *at == own);
            Own(media.iter().position(is_own).unwrap())
        };
        client.accept(&with_media(&answer, &[place(0), place(1)]));
        client.run(|client| client.hears(0, 0.5) && client.has("session_started"));
        placed.handle.end(EndRequest::Api);
    }
}

#[test]
fn candidates_may_overtake_the_answer_to_our_offer() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-early-candidates");
    let mut client = Client::new();
    let answer = client.answer(placed.make_offer());
    let is_candidate = |line: &&str| line.starts_with("a=candidate:");
    let candidates: Vec<Candidate> = answer
        .lines()
        .filter(is_candidate)
        .map(|line| Candidate {
            candidate: line.to_owned(),
            sdp_mid: Some("0".to_owned()),
            sdp_mline_index: Some(0),
        })
        .collect();
    let count = candidates.len();
    assert!(count > 0, "{answer}");
    let bare: String = answer
        .split_inclusive('\n')
        .filter(|line| !is_candidate(line))
        .collect();
    // More than there is room for is refused, as it is later.
    let many = vec![candidates[0].clone(); 100];
    let reply = placed.ask(PeerRequest::Candidates(candidates));
    assert_eq!(reply, Ok(PeerReply::Accepted(count)));
    let reply = placed.ask(PeerRequest::Candidates(many));
    assert!(
        matches!(reply, Err(PeerError::InvalidCandidate(index, _)) if index == 100 - count),
        "{reply:?}"
    );
    let reply = placed.ask(PeerRequest::Answer { sdp: bare });
    assert_eq!(reply, Ok(PeerReply::Done));
    client.run(|client| client.hears(0, 0.5));
}

#[test]
fn a_caller_gets_no_more_bits_than_it_wants() {
    let bed = Bed::new();
    let wishes = ["useinbandfec=1", "useinbandfec=1;maxaveragebitrate=6000"];
    let [free, limited] = wishes.map(|wishes| {
        let placed = bed.place(&format!("webrtc-bits-{}", wishes.len()));
        let mut client = Client::new();
        client.speaks = false;
        let offer = client.offer().replace("useinbandfec=1", wishes);
        assert!(offer.contains(wishes));
        let answer = placed.offer(&offer, false).unwrap();
        client.accept(&answer);
        client.run(|client| client.hears(0, 0.5));
        client.bytes / client.packets
    });
    assert!(limited * 2 < free, "bytes a packet: {limited} and {free}");
}

/// What a description says of the key exchange, in all of its media.
fn setups(sdp: &str) -> Vec<&str> {
    let mut all: Vec<&str> = sdp
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("a=setup:"))
        .collect();
    all.dedup();
    all
}

#[test]
fn who_began_the_key_exchange_stays_it() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-began");
    let mut client = Client::new();
    client.speaks = false;
    let sdp = client.answer(placed.make_offer());
    assert_eq!(setups(&sdp), ["active"]);
    assert_eq!(placed.ask(PeerRequest::Answer { sdp }), Ok(PeerReply::Done));
    client.run(|client| client.hears(0, 0.3));
    // Browsers refuse an answer that turns it around.
    for direction in [Direction::Inactive, Direction::Sendrecv] {
        client.direct(direction);
        let offer = client.offer();
        assert_eq!(setups(&offer), ["actpass"]);
        let answer = placed.offer(&offer, false).unwrap();
        assert_eq!(setups(&answer), ["passive"]);
        client.accept(&answer);
    }
    client.run_for(Duration::from_millis(300), |_| false);
    assert_eq!(client.state, RTCPeerConnectionState::Connected);
    // Whose offer is first leaves it to us, and we begin.
    let (placed, mut client) = bed.call("webrtc-begin");
    client.connected();
    let answer = placed.offer(&client.offer(), false).unwrap();
    assert_eq!(setups(&answer), ["active"]);
}

#[test]
fn who_only_begins_key_exchanges_is_waited_for() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-active");
    let mut client = Client::new();
    let offer = client.offer();
    assert_eq!(setups(&offer), ["actpass"]);
    let only = offer.replace("a=setup:actpass", "a=setup:active");
    let answer = placed.offer(&only, false).unwrap();
    assert_eq!(setups(&answer), ["passive"]);
    client.accept(&answer);
    client.run(|client| client.hears(0, 0.3));
}
