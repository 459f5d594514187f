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
