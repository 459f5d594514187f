//! An INVITE that is forked on its way: each branch answers for itself, and one of them is the call.

use super::world::*;
use crate::message::{Method, Request, Response};

fn udp() -> World {
    World::new(7, 0, Transport::Udp)
}

/// The INVITE that A sent first.
fn first_invite(world: &World) -> Request {
    let invite = world.seen.iter().find_map(|(_, seen)| match seen {
        Seen::Sent {
            from: A,
            message: Message::Request(request),
        } => Some(request.clone()),
        _ => None,
    });
    invite.unwrap()
}

/// What one of those says to whom B forked A's INVITE. `reliably`: the RSeq of a provisional response;
/// `body`: nothing when empty.
fn of_fork(world: &mut World, code: u16, tag: &str, reliably: Option<u32>, body: &str) -> String {
    let mut response = Response::to(&first_invite(world).headers, code, "");
    response.set_to_tag(tag);
    let headers = &mut response.headers;
    headers.push(Name::Contact, format!("<sip:{tag}@192.0.2.2:5060>"));
    if let Some(rseq) = reliably {
        headers.push(Name::Require, "100rel");
        headers.push(Name::RSeq, rseq.to_string());
    }
    response.set_body((!body.is_empty()).then(|| sdp(body)));
    let mark = world.mark();
    world.step(
        A,
        Input::Datagram {
            from: address(B),
            bytes: &response.to_bytes(),
        },
    );
    world.line(mark)
}

/// An announcement answers our offer reliably, then the call is forwarded and somebody else picks up: what
/// holds is what that one says, and not the announcement's.
#[test]
fn the_answer_is_of_the_fork_that_picks_up() {
    let mut world = udp();
    world.place();
    assert_eq!(
        of_fork(&mut world, 183, "announcement", Some(1), "played"),
        "A:PRACK A[183 \"played\"]"
    );
    assert_eq!(
        of_fork(&mut world, 200, "person", None, "spoken"),
        "A:ACK A[answered \"spoken\"]"
    );
}

/// Of a fork that answered reliably its own answer holds, whatever others said since; without one the 2xx
/// counts before what was said unreliably.
#[test]
fn a_fork_that_answered_reliably_is_held_to_it() {
    let mut world = udp();
    world.place();
    of_fork(&mut world, 183, "one", Some(7), "first");
    of_fork(&mut world, 183, "two", Some(3), "second");
    of_fork(&mut world, 183, "one", Some(8), "changed");
    assert_eq!(
        of_fork(&mut world, 200, "one", None, "last"),
        "A:ACK A[answered \"first\"]"
    );
    for (last, holds) in [("last", "last"), ("", "early")] {
        let mut world = udp();
        world.place();
        of_fork(&mut world, 183, "other", None, "elsewhere");
        of_fork(&mut world, 183, "one", None, "early");
        of_fork(&mut world, 183, "other", None, "elsewhere");
        assert_eq!(
            of_fork(&mut world, 200, "one", None, last),
            format!("A:ACK A[answered \"{holds}\"]")
        );
    }
}

#[test]
fn forks_one_answer_wins_and_the_other_is_sent_away() {
    let mut world = udp();
    world.place();
    let invite = first_invite(&world);
    let answer = |code: u16, tag: &str| {
        let mut response = Response::to(&invite.headers, code, "");
        response.set_to_tag(tag);
        response
            .headers
            .push(Name::Contact, format!("<sip:{tag}@192.0.2.2:5060>"));
        String::from_utf8(response.to_bytes()).unwrap()
    };
    let from = world.mark();
    for (code, tag) in [
        (180, "one"),
        (183, "two"),
        (200, "two"),
        (200, "one"),
        (200, "two"),
    ] {
        let text = answer(code, tag);
        world.step(
            A,
            Input::Datagram {
                from: address(B),
                bytes: text.as_bytes(),
            },
        );
    }
    assert_eq!(
        world.line(from),
        "A[180] A[183] A:ACK A[answered] A:ACK A:BYE A:ACK"
    );
    let goodbye = world.seen.iter().rev().find_map(|(_, seen)| match seen {
        Seen::Sent {
            message: Message::Request(request),
            ..
        } if request.method == Method::Bye => Some(request.uri.to_string()),
        _ => None,
    });
    assert_eq!(goodbye.as_deref(), Some("sip:one@192.0.2.2:5060"));
}

/// An UPDATE of an early dialog, with a number of its own.
fn update(world: &World, tag: &str, number: u32, body: &str) -> String {
    let invite = first_invite(world);
    let mut update = Request::new(Method::Update, invite.from().unwrap().uri);
    let headers = &mut update.headers;
    let via = format!("SIP/2.0/UDP 192.0.2.2;branch=z9hG4bK{tag}{number}");
    headers.push(Name::Via, via);
    headers.push(Name::MaxForwards, "70");
    let to = invite.to().unwrap().with_tag(tag);
    headers.push(Name::From, to.to_string());
    headers.push(Name::To, invite.headers.get(&Name::From).unwrap());
    headers.push(Name::CallId, invite.call_id());
    headers.push(Name::CSeq, format!("{number} UPDATE"));
    headers.push(Name::Contact, format!("<sip:{tag}-moved@192.0.2.2:5060>"));
    update.set_body(Some(sdp(body)));
    String::from_utf8(update.to_bytes()).unwrap()
}

fn last_target(world: &World, method: &Method) -> Option<String> {
    world.seen.iter().rev().find_map(|(_, seen)| match seen {
        Seen::Sent {
            from: A,
            message: Message::Request(request),
        } if request.method == *method => Some(request.uri.to_string()),
        _ => None,
    })
}

/// A callee that answered our offer reliably may make one before it picks up (RFC 3311 5.1); one that did
/// not may not, and a second one may not change the session either.
#[test]
fn an_early_dialog_may_offer_another_session() {
    let mut world = udp();
    world.place();
    of_fork(&mut world, 180, "other", None, "");
    let early = update(&world, "other", 1, "too early");
    assert_eq!(inject(&mut world, B, &early), "A:491/UPDATE");
    of_fork(&mut world, 183, "one", Some(1), "first");
    of_fork(&mut world, 183, "other", Some(1), "elsewhere");
    let offer = update(&world, "one", 1, "moved");
    assert_eq!(inject(&mut world, B, &offer), "A[offer \"moved\"]");
    let mark = world.mark();
    world.do_now(A, Command::AcceptOffer(CALL, sdp("fine")));
    assert_eq!(world.line(mark), "A:200/UPDATE");
    let second = update(&world, "other", 2, "me too");
    assert_eq!(inject(&mut world, B, &second), "A:488/UPDATE");
    // What was agreed on in the UPDATE holds, and the PRACK of the next goes to where it moved.
    of_fork(&mut world, 180, "one", Some(2), "");
    let moved = "sip:one-moved@192.0.2.2:5060";
    assert_eq!(last_target(&world, &Method::Prack).as_deref(), Some(moved));
    assert_eq!(
        of_fork(&mut world, 200, "one", None, "first"),
        "A:ACK A[answered]"
    );
}

/// An offer that our user does not answer is refused by and by; one of a callee that was not called in the
/// end, at once.
#[test]
fn an_offer_that_nobody_answers_is_refused() {
    let mut world = udp();
    world.place();
    of_fork(&mut world, 183, "one", Some(1), "first");
    let offer = update(&world, "one", 1, "moved");
    inject(&mut world, B, &offer);
    world.run_for(Duration::from_secs(15));
    assert!(!world.line(0).contains("A:504/UPDATE"));
    world.run_for(Duration::from_secs(2));
    assert!(world.line(0).contains("A:504/UPDATE"), "{}", world.line(0));
    let offer = update(&world, "one", 2, "moved again");
    assert_eq!(inject(&mut world, B, &offer), "A[offer \"moved again\"]");
    assert_eq!(
        of_fork(&mut world, 200, "other", None, "theirs"),
        "A:487/UPDATE A:ACK A[answered \"theirs\"]"
    );
}

/// Nothing is left of an offer whose call was refused meanwhile.
#[test]
fn an_offer_ends_with_its_call() {
    for refused in [false, true] {
        let mut world = udp();
        let call = world.place();
        of_fork(&mut world, 183, "one", Some(1), "first");
        let offer = update(&world, "one", 1, "moved");
        inject(&mut world, B, &offer);
        match refused {
            true => world.do_now(B, Command::Reject(call, 486, None)),
            false => world.do_now(A, Command::HangUp(CALL, None)),
        }
        world.run_out();
        assert!(world.line(0).contains("A:487/UPDATE"), "{}", world.line(0));
        world.assert_empty();
    }
}
