//! The torture messages, each with the answer it gets: once from a carrier's address, once from a stranger's, who
//! hears nothing at all.

mod messages;

use self::messages::{cases, offering, plain, with};
use super::world::*;

#[test]
fn there_are_49() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 49);
}

#[test]
fn a_carrier_hears_the_answer_that_its_message_deserves() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut world = World::new(1, 0, Transport::Udp);
        let from = world.mark();
        world.step(
            B,
            Input::Datagram {
                from: address(A),
                bytes: &case.bytes,
            },
        );
        // What is not used is told, too; by which field, `field.rs` tests.
        let mut line = world.line(from);
        while let Some(begin) = line.find("B[refused ") {
            let end = line[begin..].find(']').map(|end| begin + end + 1);
            line.replace_range(begin..end.unwrap(), "");
        }
        let line = line.trim();
        let expected = match case.answer {
            "-" => String::new(),
            "ring" => "B[incoming".to_owned(),
            answer => format!("B:{answer}"),
        };
        let right = match case.answer {
            "ring" => line.starts_with(&expected),
            _ => line == expected,
        };
        if !right {
            wrong.push(format!("{}: {line:?}, not {expected:?}", case.name));
        }
        // Whatever it was, the next call is served.
        world.step(
            B,
            Input::Datagram {
                from: address(A),
                bytes: plain("OPTIONS").replace('\n', "\r\n").as_bytes(),
            },
        );
        assert!(world.line(from).ends_with("B:200/OPTIONS"), "{}", case.name);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_stranger_hears_nothing() {
    for case in cases() {
        let mut world = World::new(1, 0, Transport::Udp);
        let from = world.mark();
        let stranger = "203.0.113.66:5060".parse().unwrap();
        world.step(
            B,
            Input::Datagram {
                from: stranger,
                bytes: &case.bytes,
            },
        );
        assert_eq!(world.line(from), "", "{}", case.name);
        assert_eq!(world.nodes[B].endpoint.refusals().silenced, 1);
        world.assert_empty();
    }
}

#[test]
fn an_answer_names_what_was_wrong() {
    let mut world = World::new(1, 0, Transport::Udp);
    let mut answer = |text: &str| {
        let from = world.mark();
        world.step(
            B,
            Input::Datagram {
                from: address(A),
                bytes: text.replace('\n', "\r\n").as_bytes(),
            },
        );
        let response = world.seen[from..].iter().find_map(|(_, seen)| match seen {
            Seen::Sent {
                message: Message::Response(response),
                ..
            } => Some(response.clone()),
            _ => None,
        });
        response.expect("an answer")
    };
    let require = answer(&with(
        "OPTIONS",
        "Call-ID",
        "Require: 100rel, foo, bar\nCall-ID",
    ));
    assert_eq!(require.headers.get(&Name::Unsupported), Some("foo, bar"));
    let kind = answer(&offering("application/unknownformat", ""));
    assert_eq!(kind.headers.get(&Name::Accept), Some("application/sdp"));
    let method = answer(&plain("PUBLISH"));
    assert!(method.headers.has(&Name::Allow));
    let bad = answer(&with("OPTIONS", "CSeq: 8 OPTIONS", "CSeq: 8 INVITE"));
    assert_eq!(bad.reason, "CSeq Method Mismatch");
    // The answer has our tag and the same one when asked again.
    assert!(bad.to_tag().is_some());
    let again = answer(&with("OPTIONS", "CSeq: 8 OPTIONS", "CSeq: 8 INVITE"));
    assert_eq!(bad.to_tag(), again.to_tag());
}

/// A carrier that went mad: 20,000 damaged messages beside a live call, which ends as it should; after
/// that nothing is left but what its well-formed INVITEs began, and that ends by itself.
#[test]
fn damaged_messages_hurt_no_live_call() {
    let mut world = World::new(5, 0, Transport::Udp);
    let call = world.up();
    let mut ids = Ids::from_number(11);
    let mut below =
        |bound: usize| usize::try_from(ids.below(u64::try_from(bound).unwrap())).unwrap();
    let models: Vec<Vec<u8>> = cases().into_iter().map(|case| case.bytes).collect();
    for number in 0..20_000_u32 {
        let mut bytes = models[below(models.len())].clone();
        for _ in 0..1 + below(4) {
            let at = below(bytes.len());
            let other = &models[below(models.len())];
            let from = below(other.len());
            let piece = other[from..(from + below(40)).min(other.len())].to_vec();
            let end = (at + below(20)).min(bytes.len());
            bytes.splice(at..end, piece);
        }
        // Each its own transaction, or most would be repetitions.
        let text =
            String::from_utf8_lossy(&bytes).replace("z9hG4bKt", &format!("z9hG4bKt{number}"));
        let bytes = if number % 2 == 0 {
            text.into_bytes()
        } else {
            bytes
        };
        world.nodes[B].endpoint.handle(
            world.now,
            Input::Datagram {
                from: address(A),
                bytes: &bytes,
            },
        );
        loop {
            match world.nodes[B].endpoint.poll() {
                Output::Wait(_) => break,
                Output::Event(Event::Ended { call: ended, .. }) => assert_ne!(ended, call),
                _ => {}
            }
        }
        world.now = world.now + ms_each();
    }
    let from = world.mark();
    world.do_now(A, Command::HangUp(CALL, None));
    world.run_for(Duration::from_millis(100));
    let line = world.line(from);
    assert!(
        line.contains("A:BYE") && line.contains("B:200/BYE B[ended by Remote]"),
        "{line}"
    );
}

fn ms_each() -> Duration {
    Duration::from_millis(1)
}
