//! Who answers whom, and who holds with their answer.

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
