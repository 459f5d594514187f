//! What one caller may ask of the server, and cannot take from another.

use super::*;

#[test]
fn a_caller_has_one_data_channel_and_others_are_closed() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-channels");
    let mut client = Client::new();
    for name in ["events", "files"] {
        client.core.create_data_channel(name, None).unwrap();
    }
    let offer = client.offer();
    let answer = placed.offer(&offer, false).unwrap();
    client.accept(&answer);
    let mut most = 0;
    client.run(|client| {
        most = most.max(client.channels.len());
        client.has("session_started") && most > 1 && client.channels.len() == 1
    });
    client.channel = client.channels.first().copied();
    let from = client.heard.len();
    client.say(r#"{"type":"user_message","text":"Do you hear me?"}"#);
    client.run(|client| client.hears(from, 0.5));
}

#[test]
fn another_calls_address_is_not_taken_by_asking_from_it() {
    let bed = Bed::new();
    let (placed, mut victim) = bed.call("webrtc-victim");
    victim.run(|client| client.channel.is_some() && client.hears(0, 0.2));
    let (_other, mut thief) = bed.call("webrtc-thief");
    thief.connected();
    // The thief's own checks, good in all but where they come from.
    let own = std::mem::replace(&mut thief.socket, victim.socket.try_clone().unwrap());
    let mut asked = 0;
    let until = Instant::now() + PATIENCE;
    while asked < 2 {
        assert!(Instant::now() < until, "the thief's core asks for nothing");
        thief.core.handle_timeout(Instant::now()).unwrap();
        while let Some(out) = thief.core.poll_write() {
            let message = stun::Message::read(&out.message);
            if message.is_some_and(|message| message.class == stun::Class::Request) {
                asked += 1;
                let _ = thief.socket.send_to(&out.message, out.transport.peer_addr);
            }
        }
        // The victim goes on meanwhile.
        victim.run_for(Duration::from_millis(20), |_| false);
    }
    thief.socket = own;
    // No check of the victim's is due so soon that it would take the address back.
    victim.run_for(Duration::from_millis(500), |_| false);
    assert!(placed.handle.end(EndRequest::Api));
    let came = placed.summary().media.unwrap().packets;
    let said = victim.frame as u64;
    assert!(came + 10 > said, "{came} of {said} packets came");
}

#[test]
fn a_caller_has_a_hundred_candidates_until_they_restart() {
    let bed = Bed::new();
    let placed = bed.place("webrtc-candidates");
    let mut client = Client::new();
    let offer = client.offer();
    let line = |number: usize| format!("candidate:{number} 1 udp 1 192.0.2.7 {number} typ host");
    let told = |from: usize, count: usize| {
        let candidates = (from..from + count).map(|number| Candidate {
            candidate: line(number),
            sdp_mid: Some("0".to_owned()),
            sdp_mline_index: Some(0),
        });
        placed.ask(PeerRequest::Candidates(candidates.collect()))
    };
    // In a description.
    let lines: String = (0..101)
        .map(|n| format!("a={}\r\n", line(5_000 + n)))
        .collect();
    match placed.offer(&format!("{offer}{lines}"), false) {
        Err(PeerError::InvalidSdp(why)) => assert!(why.contains("100 candidates"), "{why}"),
        other => panic!("{other:?}"),
    }
    // The one of the offer, and 99 that come later, in however many requests.
    placed.offer(&offer, false).unwrap();
    let own = offer.matches("a=candidate:").count();
    assert_eq!(told(6_000, 50), Ok(PeerReply::Accepted(50)));
    let rest = 50 - own;
    assert_eq!(told(7_000, rest), Ok(PeerReply::Accepted(rest)));
    for _ in 0..3 {
        let refused = told(8_000, 2);
        assert!(
            matches!(refused, Err(PeerError::InvalidCandidate(0, _))),
            "{refused:?}"
        );
    }
    // What points nowhere is not counted.
    let nowhere = vec![Candidate {
        candidate: "candidate:1 1 udp 1 169.254.169.254 80 typ host".to_owned(),
        sdp_mid: None,
        sdp_mline_index: None,
    }];
    assert_eq!(
        placed.ask(PeerRequest::Candidates(nowhere)),
        Ok(PeerReply::Accepted(1))
    );
    // Another round has room again.
    let again = offer.replace(
        &format!(
            "a=ice-ufrag:{}",
            sdp::attribute(&offer, "ice-ufrag").unwrap()
        ),
        "a=ice-ufrag:another",
    );
    placed.offer(&again, false).unwrap();
    assert_eq!(told(9_000, 2), Ok(PeerReply::Accepted(2)));
}
