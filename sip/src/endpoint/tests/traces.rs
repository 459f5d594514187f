//! The messages of calls, as their user is told them: all of them, in order, of the right call.

use super::world::*;
use crate::event::Direction;

/// What a node was told of a call: `> INVITE` was sent, `< 200 INVITE` was received.
fn trace(world: &World, node: usize, call: CallId) -> Vec<String> {
    let told = world.seen.iter().filter_map(|(_, seen)| match seen {
        Seen::Event {
            at,
            event: Event::Message(traced),
        } if *at == node && traced.call == call => Some(traced),
        _ => None,
    });
    told.map(|traced| {
        let way = match traced.direction {
            Direction::Sent => '>',
            Direction::Received => '<',
        };
        let first = traced.text.lines().next().unwrap();
        let word = match first.strip_prefix("SIP/2.0 ") {
            None => first.split(' ').next().unwrap().to_owned(),
            Some(status) => {
                let cseq = traced.text.lines().find(|line| line.starts_with("CSeq: "));
                let method = cseq.unwrap().rsplit(' ').next().unwrap();
                format!("{} {method}", status.split(' ').next().unwrap())
            }
        };
        format!("{way} {word}")
    })
    .collect()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn both_ends_are_told_every_message_in_its_order() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::traced(transport);
        let call = world.place();
        // Beyond 200 ms the server transaction says 100 by itself.
        world.do_in(Duration::from_millis(300), B, Command::Ring(call, None));
        world.do_in(secs(1), B, Command::Answer(call, sdp("answer")));
        world.do_in(secs(2), A, Command::HangUp(CALL, None));
        world.run_out();
        assert_eq!(
            trace(&world, B, call),
            [
                "< INVITE",
                "> 100 INVITE",
                "> 180 INVITE",
                "> 200 INVITE",
                "< ACK",
                "< BYE",
                "> 200 BYE"
            ],
            "{transport:?}"
        );
        assert_eq!(
            trace(&world, A, CALL),
            [
                "> INVITE",
                "< 100 INVITE",
                "< 180 INVITE",
                "< 200 INVITE",
                "> ACK",
                "> BYE",
                "< 200 BYE"
            ],
            "{transport:?}"
        );
    }
}

#[test]
fn a_call_that_is_cancelled_or_refused_is_told_to_its_last_ack() {
    let mut world = World::traced(Transport::Udp);
    let call = world.place();
    world.do_in(secs(1), A, Command::HangUp(CALL, None));
    world.run_out();
    assert_eq!(
        trace(&world, B, call),
        [
            "< INVITE",
            "> 100 INVITE",
            "< CANCEL",
            "> 200 CANCEL",
            "> 487 INVITE",
            "< ACK"
        ]
    );
    let mut world = World::traced(Transport::Udp);
    let call = world.place();
    world.do_now(B, Command::Reject(call, 486, None));
    world.run_out();
    assert_eq!(
        trace(&world, A, CALL),
        ["> INVITE", "< 486 INVITE", "> ACK"]
    );
    assert_eq!(
        trace(&world, B, call),
        ["< INVITE", "> 486 INVITE", "< ACK"]
    );
}

#[test]
fn a_call_to_oneself_has_two_ends() {
    let mut world = World::traced(Transport::Udp);
    // Node A's own carrier leads back to it.
    world.do_now(A, Command::SetTrunk(Box::new(trunk(1, A, Transport::Udp))));
    world.do_now(A, placing(secs(60)));
    let incoming = world.until(A, |event| match event {
        Event::Incoming(call, _) => Some(*call),
        _ => None,
    });
    world.do_now(A, Command::Answer(incoming, sdp("answer")));
    world.do_in(secs(1), A, Command::HangUp(incoming, None));
    world.run_out();
    assert_eq!(
        trace(&world, A, CALL),
        ["> INVITE", "< 200 INVITE", "> ACK", "< BYE", "> 200 BYE"]
    );
    assert_eq!(
        trace(&world, A, incoming),
        ["< INVITE", "> 200 INVITE", "< ACK", "> BYE", "< 200 BYE"]
    );
}

#[test]
fn what_is_sent_again_is_told_again_and_nothing_long_after_the_end() {
    let mut world = World::traced(Transport::Udp);
    // The first INVITE is lost.
    world.censor = Some(|_, censored| censored == 0);
    let call = world.place();
    world.do_now(B, Command::Reject(call, 486, None));
    world.run_out();
    assert_eq!(
        trace(&world, A, CALL),
        ["> INVITE", "> INVITE", "< 486 INVITE", "> ACK"]
    );
    // No trace is kept of what is over.
    let told = world.mark();
    world.run_for(secs(60));
    world.do_now(A, place_as(CallId(2), secs(60)));
    world.run_for(secs(1));
    let more = world.seen[told..].iter().filter(|(_, seen)| {
        matches!(seen, Seen::Event { event: Event::Message(traced), .. } if [CALL, call].contains(&traced.call))
    });
    assert_eq!(more.count(), 0);
}

#[test]
fn nobody_is_told_who_did_not_ask() {
    let mut world = World::new(1, 0, Transport::Udp);
    let call = world.up();
    assert!(trace(&world, B, call).is_empty() && trace(&world, A, CALL).is_empty());
}
