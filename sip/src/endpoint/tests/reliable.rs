//! Provisional responses that are acknowledged (RFC 3262), told event by event.

use super::world::*;
use crate::message::{Method, Request, Uri};

fn udp() -> World {
    World::new(7, 0, Transport::Udp)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn early_media_is_told_reliably() {
    let mut world = udp();
    let call = world.place();
    world.do_now(B, Command::Ring(call, Some(sdp("early"))));
    // Too early: it waits for the PRACK.
    world.do_now(B, Command::Answer(call, sdp("late")));
    world.run_for(secs(1));
    world.do_now(A, Command::HangUp(CALL, None));
    world.run_out();
    assert_eq!(
        world.line(0),
        "A:INVITE B[incoming \"offer\"] B:183/INVITE A:PRACK A[183 \"early\"] B:200/PRACK \
         B:200/INVITE A:ACK A[answered \"early\"] B[established] A[ended by Local] A:BYE B:200/BYE \
         B[ended by Remote]"
    );
    world.assert_empty();
}

/// A reliable provisional response without a body does not hold up the answer, and its PRACK, which comes
/// after that, is as good as any.
#[test]
fn a_prack_after_the_answer_is_answered() {
    let mut world = udp();
    let mut invite = Request::new(Method::Invite, Uri::parse("sip:x@192.0.2.2").unwrap());
    for (name, value) in [
        (Name::Via, "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKi1"),
        (Name::MaxForwards, "70"),
        (Name::From, "<sip:caller@192.0.2.1>;tag=far"),
        (Name::To, "<sip:x@192.0.2.2>"),
        (Name::CallId, "prack"),
        (Name::CSeq, "1 INVITE"),
        (Name::Contact, "<sip:caller@192.0.2.1>"),
        (Name::Require, "100rel"),
    ] {
        invite.headers.push(name, value);
    }
    invite.set_body(Some(sdp("offer")));
    let text = String::from_utf8(invite.to_bytes()).unwrap();
    inject(&mut world, A, &text);
    let call = CallId(CallId::FIRST_INCOMING);
    world.do_now(B, Command::Ring(call, None));
    world.do_now(B, Command::Answer(call, sdp("answer")));
    assert!(world.line(0).ends_with("B:180/INVITE B:200/INVITE"));
    let rseq = world.seen.iter().find_map(|(_, seen)| match seen {
        Seen::Sent {
            message: Message::Response(response),
            ..
        } => response.headers.get(&Name::RSeq).map(str::to_owned),
        _ => None,
    });
    let rseq: u32 = rseq.unwrap().parse().unwrap();
    let prack = |number: u32, rseq: u32| {
        let rack = format!("Max-Forwards: 70\r\nRAck: {rseq} 1 INVITE");
        in_dialog(&world, A, "PRACK", number, "").replace("Max-Forwards: 70", &rack)
    };
    let (wrong, right, again) = (prack(2, rseq + 1), prack(3, rseq), prack(4, rseq));
    assert_eq!(inject(&mut world, A, &wrong), "B:481/PRACK");
    assert_eq!(inject(&mut world, A, &right), "B:200/PRACK");
    assert_eq!(inject(&mut world, A, &again), "B:481/PRACK");
}

#[test]
fn a_reliable_provisional_that_nobody_acknowledges_refuses_the_call() {
    let mut world = udp();
    world.censor = Some(|message, _| is(message, Method::Prack));
    let call = world.place();
    world.do_now(B, Command::Ring(call, Some(sdp("early"))));
    world.run_out();
    let line = world.line(0);
    assert_eq!(line.matches("B:183/INVITE").count(), 7, "{line}");
    assert!(
        line.contains("B:504/INVITE B[ended by Network 504]"),
        "{line}"
    );
    // The same 183 again is acknowledged by the PRACK's own repetitions alone.
    assert_eq!(line.matches("A[183").count(), 1);
    world.assert_empty();
}

/// A re-INVITE rings nobody: what is provisional of it is not listened to, and nobody may wait for its PRACK.
#[test]
fn a_changed_session_asks_for_nothing_reliable() {
    let mut world = udp();
    world.up();
    world.do_now(A, Command::Offer(CALL, sdp("hold")));
    world.run_for(secs(1));
    let invites = world.seen.iter().filter_map(|(_, seen)| match seen {
        Seen::Sent {
            from: A,
            message: Message::Request(request),
        } if request.method == Method::Invite => request.headers.get(&Name::Supported),
        _ => None,
    });
    assert_eq!(invites.collect::<Vec<_>>(), ["100rel, timer", "timer"]);
}
