//! Calls told event by event. `A:INVITE` was sent by A, `B[incoming "offer"]` was heard by B's user.

use super::world::*;
use crate::message::{Body, Method};

fn udp() -> World {
    World::new(7, 0, Transport::Udp)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn hang_up(call: CallId) -> Command {
    Command::HangUp(call, None)
}

#[test]
fn a_call_that_is_answered_and_ended_by_the_caller() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Ring(call, None));
    world.do_in(ms(300), B, Command::Answer(call, sdp("answer")));
    world.do_in(ms(900), A, hang_up(CALL));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:180/INVITE A[180] B:200/INVITE A:ACK \
         A[answered \"answer\"] B[established] A[ended by Local] A:BYE B:200/BYE B[ended by Remote]"
    );
    world.assert_empty();
}

#[test]
fn the_same_over_a_stream() {
    let mut world = World::new(7, 0, Transport::Tcp);
    let call = world.up();
    world.do_now(B, Command::HangUp(call, Some("Q.850;cause=16".to_owned())));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:200/INVITE A:ACK A[answered \"answer\"] B[established] \
         B[ended by Local] B:BYE A:200/BYE A[ended by Remote]"
    );
    world.assert_empty();
    let Some(Event::Ended { reason, .. }) = last_event(&world, A) else {
        panic!("no end");
    };
    assert_eq!(reason, "Q.850;cause=16");
}

fn last_event(world: &World, node: usize) -> Option<Event> {
    world.seen.iter().rev().find_map(|(_, seen)| match seen {
        Seen::Event { at, event } if *at == node => Some(event.clone()),
        _ => None,
    })
}

#[test]
fn what_an_invite_tells() {
    let mut world = udp();
    world.do_now(A, placing(secs(60)));
    let incoming = world.until(B, |event| match event {
        Event::Incoming(_, incoming) => Some(incoming.clone()),
        _ => None,
    });
    assert_eq!(incoming.trunks, [TrunkId(2)]);
    assert_eq!(incoming.to.user().as_deref(), Some("+15550100"));
    assert_eq!(incoming.from.user().as_deref(), Some("+15550123"));
    assert_eq!(incoming.headers, [("X-Session".to_owned(), "1".to_owned())]);
    assert_eq!(incoming.source, address(A));
}

#[test]
fn a_call_that_is_refused() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Reject(call, 486, None));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:486/INVITE B[ended by Local 486] A:ACK A[ended by Remote 486]"
    );
    world.assert_empty();
}

#[test]
fn a_refusal_may_warn_of_its_reason() {
    let mut world = udp();
    let call = world.place();
    let warning = "305 sidetone \"Incompatible media format\"";
    world.do_now(B, Command::Reject(call, 488, Some(warning.to_owned())));
    let warned = world.seen.iter().find_map(|(_, seen)| match seen {
        Seen::Sent {
            message: Message::Response(response),
            ..
        } if response.code == 488 => response.headers.get(&Name::Warning),
        _ => None,
    });
    assert_eq!(warned, Some(warning));
    world.run_out();
    world.assert_empty();
}

#[test]
fn a_call_that_nobody_answers_is_cancelled() {
    let mut world = udp();
    world.do_now(A, placing(secs(20)));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:100/INVITE A[ended by Local 408] A:CANCEL B:200/CANCEL \
         B:487/INVITE B[ended by Remote 487] A:ACK"
    );
    world.assert_empty();
}

#[test]
fn a_call_to_nobody_times_out() {
    let mut world = udp();
    world.censor = Some(|_, _| true);
    world.do_now(A, placing(secs(60)));
    world.run_out();
    let line = world.line(0);
    assert_eq!(line.matches("A:INVITE").count(), 7);
    assert!(line.ends_with("A[ended by Network 408]"), "{line}");
    world.assert_empty();
}

#[test]
fn a_cancel_waits_for_a_provisional_response() {
    let mut world = udp();
    world.do_now(A, placing(secs(60)));
    world.do_now(A, hang_up(CALL));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE A[ended by Local] B[incoming \"offer\"] B:100/INVITE A:CANCEL B:200/CANCEL \
         B:487/INVITE B[ended by Remote 487] A:ACK"
    );
    world.assert_empty();
}

#[test]
fn an_answer_that_crosses_the_cancel_is_acknowledged_and_ended() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Ring(call, None));
    world.run_for(ms(100));
    // Both at once: each is under way when the other is told.
    world.do_now(A, hang_up(CALL));
    world.do_now(B, Command::Answer(call, sdp("answer")));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:180/INVITE A[180] A[ended by Local] A:CANCEL \
         B:200/INVITE B:200/CANCEL A:ACK A:BYE B[established] B:200/BYE B[ended by Remote]"
    );
    world.assert_empty();
}

#[test]
fn two_goodbyes_may_cross() {
    let mut world = udp();
    let call = world.up();
    let from = world.mark();
    world.do_now(A, hang_up(CALL));
    world.do_now(B, hang_up(call));
    world.run_out();
    assert_eq!(
        world.line(from),
        "A[ended by Local] A:BYE B[ended by Local] B:BYE B:200/BYE A:200/BYE"
    );
    world.assert_empty();
}

#[test]
fn an_answer_is_sent_until_it_is_acknowledged() {
    let mut world = udp();
    world.censor = Some(|message, count| count < 3 && is(message, Method::Ack));
    let call = world.up();
    let line = world.line(0);
    assert_eq!(line.matches("B:200/INVITE").count(), 4, "{line}");
    assert_eq!(line.matches("A:ACK").count(), 4);
    assert_eq!(line.matches("A[answered").count(), 1);
    world.do_now(B, hang_up(call));
    world.run_out();
    world.assert_empty();
}

#[test]
fn an_answer_that_nobody_acknowledges_ends_the_call() {
    let mut world = udp();
    world.censor = Some(|message, _| is(message, Method::Ack));
    let call = world.place();
    world.do_now(B, Command::Answer(call, sdp("answer")));
    world.run_out();
    let line = world.line(0);
    assert_eq!(line.matches("B:200/INVITE").count(), 11, "{line}");
    assert!(
        line.ends_with("B[ended by Network 408] B:BYE A:200/BYE A[ended by Remote]"),
        "{line}"
    );
    world.assert_empty();
}

/// An ACK of a 2xx has a branch of its own; some phones take that of the INVITE (RFC 6026 7.1).
#[test]
fn an_ack_with_the_branch_of_its_invite_is_heard() {
    let mut world = udp();
    world.censor = Some(|message, _| is(message, Method::Ack));
    let call = world.place();
    world.do_now(B, Command::Answer(call, sdp("answer")));
    world.run_for(ms(700));
    let sent = |method| {
        world.seen.iter().find_map(|(_, seen)| match seen {
            Seen::Sent {
                message: Message::Request(request),
                ..
            } if request.method == method => Some(request.clone()),
            _ => None,
        })
    };
    let (invite, mut ack) = (sent(Method::Invite).unwrap(), sent(Method::Ack).unwrap());
    let via = invite.headers.get(&Name::Via).unwrap();
    ack.headers.set(Name::Via, via);
    let text = String::from_utf8(ack.to_bytes()).unwrap();
    assert_eq!(inject(&mut world, A, &text), "B[established]");
    let from = world.mark();
    world.run_for(secs(60));
    assert_eq!(world.line(from), "");
    world.do_now(B, hang_up(call));
    world.run_out();
    world.assert_empty();
}

#[test]
fn a_callee_waits_for_the_ack_before_it_says_goodbye() {
    let mut world = udp();
    world.censor = Some(|message, count| count < 1 && is(message, Method::Ack));
    let call = world.place();
    world.do_now(B, Command::Answer(call, sdp("answer")));
    world.do_now(B, hang_up(call));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:200/INVITE B[ended by Local] A:ACK \
         A[answered \"answer\"] B:200/INVITE A:ACK B:BYE A:200/BYE A[ended by Remote]"
    );
    world.assert_empty();
}

#[test]
fn a_phone_that_rings_for_minutes_says_so() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Ring(call, None));
    world.run_for(secs(110));
    assert_eq!(world.line(0).matches("B:180/INVITE").count(), 2);
    world.run_out();
    world.assert_empty();
}

#[test]
fn hold_and_resume() {
    let mut world = udp();
    let call = world.up();
    let from = world.mark();
    world.do_now(B, Command::Offer(call, sdp("hold")));
    world.until(A, |event| {
        matches!(event, Event::Offer { .. }).then_some(())
    });
    world.do_now(A, Command::AcceptOffer(CALL, sdp("held")));
    world.run_for(secs(1));
    world.do_now(A, Command::Offer(CALL, sdp("other")));
    world.until(B, |event| {
        matches!(event, Event::Offer { .. }).then_some(())
    });
    world.run_for(ms(50));
    world.do_now(B, Command::RefuseOffer(call, 488));
    world.run_for(secs(1));
    assert_eq!(
        world.line(from),
        "B:INVITE A[offer \"hold\"] A:200/INVITE B:ACK B[accepted \"held\"] \
         A:INVITE B[offer \"other\"] B:488/INVITE A:ACK A[refused 488]"
    );
    world.do_now(A, hang_up(CALL));
    world.run_out();
    world.assert_empty();
}

#[test]
fn two_offers_at_once_are_put_off_and_made_again() {
    let mut world = udp();
    let call = world.up();
    let from = world.mark();
    world.do_now(A, Command::Offer(CALL, sdp("a")));
    world.do_now(B, Command::Offer(call, sdp("b")));
    // B did not make the Call-ID, so it comes first: within 2 s, A after 2.1 s at the earliest.
    world.until(A, |event| {
        matches!(event, Event::Offer { .. }).then_some(())
    });
    world.do_now(A, Command::AcceptOffer(CALL, sdp("b2")));
    world.until(B, |event| {
        matches!(event, Event::Offer { .. }).then_some(())
    });
    world.do_now(B, Command::AcceptOffer(call, sdp("a2")));
    world.run_for(secs(5));
    assert_eq!(
        world.line(from),
        "A:INVITE B:INVITE B:491/INVITE A:491/INVITE A:ACK B:ACK \
         B:INVITE A[offer \"b\"] A:200/INVITE B:ACK B[accepted \"b2\"] \
         A:INVITE B[offer \"a\"] B:200/INVITE A:ACK A[accepted \"a2\"]"
    );
    world.do_now(A, hang_up(CALL));
    world.run_out();
    world.assert_empty();
}

#[test]
fn an_invite_without_an_offer_gets_one_in_the_answer() {
    let mut world = udp();
    world.censor = None;
    let call = world.up();
    let from = world.mark();
    // B asks for A's offer by a re-INVITE without a body.
    let reinvite = in_dialog(&world, B, "INVITE", 9, "");
    world.step(
        A,
        Input::Datagram {
            from: address(B),
            bytes: reinvite.as_bytes(),
        },
    );
    world.do_now(A, Command::AcceptOffer(CALL, sdp("fresh offer")));
    let ack = in_dialog(&world, B, "ACK", 9, "its answer");
    world.step(
        A,
        Input::Datagram {
            from: address(B),
            bytes: ack.as_bytes(),
        },
    );
    assert_eq!(
        world.line(from),
        "A[offer] A:200/INVITE A[accepted \"its answer\"]"
    );
    world.do_now(B, hang_up(call));
    world.run_out();
}

#[test]
fn requests_of_a_dialog() {
    let mut world = udp();
    let call = world.up();
    let mut try_one = |method: &str, number: u32, body: &str| {
        let text = in_dialog(&world, A, method, number, body);
        inject(&mut world, A, &text)
    };
    assert_eq!(try_one("OPTIONS", 10, ""), "B:200/OPTIONS");
    // The same again is answered the same; an old number with another branch is stale.
    assert_eq!(try_one("OPTIONS", 10, ""), "B:200/OPTIONS");
    assert_eq!(try_one("OPTIONS", 9, ""), "B:500/OPTIONS");
    assert_eq!(try_one("MESSAGE", 11, ""), "B:405/MESSAGE");
    assert_eq!(try_one("FOO", 12, ""), "B:501/FOO");
    assert_eq!(try_one("UPDATE", 13, ""), "B:200/UPDATE");
    assert_eq!(try_one("PRACK", 14, ""), "B:481/PRACK");
    assert_eq!(try_one("INFO", 15, ""), "B:200/INFO");
    assert_eq!(try_one("INFO", 16, "x"), "B:415/INFO");
    assert_eq!(try_one("NOTIFY", 17, ""), "B:489/NOTIFY");
    assert_eq!(try_one("REFER", 18, ""), "B:400/REFER");
    assert_eq!(try_one("UPDATE", 19, "new"), "B[offer \"new\"]");
    // While that one has no answer: an UPDATE gets 500 (RFC 3311 5.2), a re-INVITE too.
    assert_eq!(try_one("UPDATE", 20, "newer"), "B:500/UPDATE");
    assert_eq!(try_one("INVITE", 21, "newest"), "B:500/INVITE");
    world.do_now(B, Command::AcceptOffer(call, sdp("fine")));
    let text = in_dialog(&world, A, "BYE", 22, "");
    let other = text.replace(";tag=", ";tag=0");
    assert_eq!(inject(&mut world, A, &other), "B:481/BYE");
    assert_eq!(inject(&mut world, A, &text), "B:200/BYE B[ended by Remote]");
}

#[test]
fn digits_come_in_info() {
    let mut world = udp();
    world.up();
    let from = world.mark();
    let relay = Body::new("application/dtmf-relay", "Signal=5\r\nDuration=120\r\n");
    world.do_now(A, Command::Info(CALL, relay));
    world.run_for(secs(1));
    assert_eq!(world.line(from), "A:INFO B:200/INFO B[digit 5 120 ms]");
}

#[test]
fn a_call_is_passed_on() {
    let mut world = udp();
    let call = world.up();
    let from = world.mark();
    world.do_now(
        A,
        Command::Refer(CALL, "sip:+15550199@carrier.example".to_owned(), None),
    );
    let target = world.until(B, |event| match event {
        Event::Referred { target, .. } => Some(target.clone()),
        _ => None,
    });
    assert_eq!(target.user().as_deref(), Some("+15550199"));
    world.do_now(B, Command::AnswerRefer(call, 202));
    world.do_in(secs(1), B, Command::NotifyRefer(call, 180));
    world.do_in(secs(2), B, Command::NotifyRefer(call, 200));
    world.do_in(secs(3), A, hang_up(CALL));
    world.run_out();
    assert_eq!(
        world.line(from),
        "A:REFER B[referred to sip:+15550199@carrier.example] B:202/REFER B:NOTIFY \
         A[refer 100] A:200/NOTIFY A[refer 100] B:NOTIFY A:200/NOTIFY A[refer 180] \
         B:NOTIFY A:200/NOTIFY A[refer 200] A[ended by Local] A:BYE B:200/BYE B[ended by Remote]"
    );
    world.assert_empty();
}

#[test]
fn a_refused_refer_is_told() {
    let mut world = udp();
    let call = world.up();
    let from = world.mark();
    world.do_now(
        A,
        Command::Refer(
            CALL,
            "sip:x@carrier.example".to_owned(),
            Some("a@b;to-tag=1;from-tag=2".to_owned()),
        ),
    );
    let target = world.until(B, |event| match event {
        Event::Referred { target, .. } => Some(target.to_string()),
        _ => None,
    });
    assert_eq!(
        target,
        "sip:x@carrier.example?Replaces=a%40b%3Bto-tag%3D1%3Bfrom-tag%3D2"
    );
    world.do_now(B, Command::AnswerRefer(call, 603));
    world.run_for(secs(1));
    assert!(world.line(from).ends_with("B:603/REFER A[refer 603]"));
    // No more than one at a time, and nonsense is told at once.
    world.do_now(A, Command::Refer(CALL, "not a uri".to_owned(), None));
    assert!(world.line(from).ends_with("A[refer 400]"));
}

#[test]
fn a_session_is_refreshed_by_the_caller_with_update() {
    let mut world = World::new(7, 90, Transport::Udp);
    world.up();
    let from = world.mark();
    world.run_for(secs(200));
    assert_eq!(
        world.line(from),
        "A:UPDATE B:200/UPDATE A:UPDATE B:200/UPDATE A:UPDATE B:200/UPDATE A:UPDATE B:200/UPDATE"
    );
    world.do_now(A, hang_up(CALL));
    world.run_out();
    world.assert_empty();
}

#[test]
fn a_session_that_is_not_refreshed_ends() {
    let mut world = World::new(7, 90, Transport::Udp);
    world.up();
    let from = world.mark();
    world.censor = Some(|_, _| true);
    world.run_out();
    let line = world.line(from);
    // A's refresh times out after 32 s of trying, B waits for it until 30 s before the end.
    assert!(line.contains("A[ended by Network 408]"), "{line}");
    assert!(line.contains("B[ended by Network 408]"), "{line}");
    world.assert_empty();
}

#[test]
fn a_redirect_is_not_followed() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Reject(call, 302, None));
    world.run_out();
    assert!(world.line(0).ends_with("A:ACK A[ended by Remote 302]"));
    world.assert_empty();
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let run = || {
        let mut world = World::new(99, 90, Transport::Udp);
        world.weather = Weather {
            lost: 200,
            doubled: 100,
            delay: (ms(5), ms(400)),
        };
        world.do_now(A, placing(secs(60)));
        world.run_for(secs(3));
        world.do_in(secs(20), A, hang_up(CALL));
        world.run_out();
        world
            .seen
            .iter()
            .filter_map(|(at, seen)| match seen {
                Seen::Sent { message, .. } => Some((*at, message.to_bytes())),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
