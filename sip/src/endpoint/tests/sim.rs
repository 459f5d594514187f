//! Many calls over a network that loses, doubles and reorders. Whatever happens, both ends come to
//! rest with one end told for each call, nothing is left, and every message was repeated as often as
//! RFC 3261 wants and no oftener.
//!
//! `SIDETONE_SEEDS` says how many seeds (2,000 when unset), `SIDETONE_SEED` replays one and prints it.

use std::collections::BTreeMap;

use super::world::*;
use crate::event::EndedBy;
use crate::message::{Body, Method};
use crate::seam::{Mutant, plant};

/// What a run found wrong; empty when nothing.
type Wrong = Vec<String>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One run: up to three calls with users that do what the seed says.
fn run(seed: u64) -> (World, Wrong) {
    let session = if seed.is_multiple_of(2) { 90 } else { 120 };
    let mut world = World::new(seed, session, Transport::Udp);
    world.weather = Weather {
        lost: [0, 50, 150, 300][usize::try_from(world.below(4)).unwrap()],
        doubled: world.below(100),
        delay: (ms(1), ms(1 + world.below(600))),
    };
    let calls = 1 + world.below(3);
    for number in 1..=calls {
        let call = CallId(number);
        let begin = world.between(0, 2_000);
        let ring = world.between(5_000, 40_000);
        world.do_in(begin, A, place_as(call, ring));
        // The caller hangs up some time: before the answer, about it, or long after.
        let talk = match world.below(4) {
            0 => world.between(0, 3_000),
            1 => world.between(0, 12_000),
            _ => world.between(10_000, 200_000),
        };
        world.do_in(begin + talk, A, Command::HangUp(call, None));
        for _ in 0..world.below(3) {
            let at = begin + world.between(0, 60_000);
            let what = world.below(3);
            world.do_in(at, A, in_call(call, what));
        }
    }
    let mut read = 0;
    for _ in 0..50_000 {
        while read < world.seen.len() {
            if let Seen::Event { at, event } = world.seen[read].1.clone() {
                react(&mut world, at, &event);
            }
            read += 1;
        }
        if !world.advance() {
            let wrong = judge(&world, seed);
            return (world, wrong);
        }
    }
    (world, vec!["does not come to rest".to_owned()])
}

fn in_call(call: CallId, what: u64) -> Command {
    match what {
        0 => Command::Offer(call, sdp("again")),
        1 => Command::Info(
            call,
            Body::new("application/dtmf-relay", "Signal=1\r\nDuration=100\r\n"),
        ),
        _ => Command::Refer(call, "sip:+15550199@carrier.example".to_owned(), None),
    }
}

/// What a user does when it hears something.
fn react(world: &mut World, at: usize, event: &Event) {
    match event {
        Event::Incoming(call, _) => {
            let call = *call;
            let answer = world.between(0, 10_000);
            if world.below(3) > 0 {
                let early = (world.below(2) == 0).then(|| sdp("early"));
                let wait = answer / 2;
                world.do_in(wait, at, Command::Ring(call, early));
            }
            match world.below(6) {
                0 => world.do_in(answer, at, Command::Reject(call, 486, None)),
                // Nobody at home; a machine gives up after a while.
                1 => world.do_in(ms(60_000), at, Command::Reject(call, 480, None)),
                _ => world.do_in(answer, at, Command::Answer(call, sdp("answer"))),
            }
            if world.below(2) == 0 {
                let wait = answer + world.between(0, 90_000);
                world.do_in(wait, at, Command::HangUp(call, None));
            }
            for _ in 0..world.below(3) {
                let wait = answer + world.between(0, 30_000);
                let what = world.below(3);
                world.do_in(wait, at, in_call(call, what));
            }
        }
        Event::Offer { call, .. } => {
            let wait = world.between(0, 1_500);
            let reply = match world.below(4) {
                0 => Command::RefuseOffer(*call, 488),
                _ => Command::AcceptOffer(*call, sdp("fine")),
            };
            world.do_in(wait, at, reply);
        }
        Event::Referred { call, .. } => {
            let refuse = world.below(3) == 0;
            let code = if refuse { 603 } else { 202 };
            world.do_in(ms(50), at, Command::AnswerRefer(*call, code));
            world.do_in(ms(900), at, Command::NotifyRefer(*call, 200));
        }
        _ => {}
    }
}

fn judge(world: &World, seed: u64) -> Wrong {
    let mut wrong = Vec::new();
    for (index, node) in world.nodes.iter().enumerate() {
        let counts = node.endpoint.counts();
        if counts != Counts::default() {
            wrong.push(format!("left at {index}: {counts:?}"));
        }
    }
    one_end_for_each_call(world, &mut wrong);
    each_call_ends_alike_at_both_ends(world, &mut wrong);
    if world.weather.lost == 0 {
        both_ends_agree(world, &mut wrong);
        an_end_is_heard(world, &mut wrong);
    }
    requests_keep_their_intervals(world, &mut wrong);
    requests_are_repeated_until_answered(world, &mut wrong);
    finals_are_repeated_until_acknowledged(world, &mut wrong);
    finals_are_acknowledged_each_time(world, &mut wrong);
    if !wrong.is_empty() {
        wrong.push(format!("replay with SIDETONE_SEED={seed}"));
    }
    wrong
}

fn call_of(event: &Event) -> Option<CallId> {
    Some(match event {
        Event::Incoming(call, _)
        | Event::Progress { call, .. }
        | Event::Answered { call, .. }
        | Event::Established { call, .. }
        | Event::Offer { call, .. }
        | Event::OfferAccepted { call, .. }
        | Event::OfferRefused { call, .. }
        | Event::Refreshed { call, .. }
        | Event::Digit { call, .. }
        | Event::Referred { call, .. }
        | Event::ReferProgress { call, .. }
        | Event::Redirected { call, .. }
        | Event::Ended { call, .. } => *call,
        Event::Message(traced) => traced.call,
        Event::Registered { .. }
        | Event::RegistrationFailed { .. }
        | Event::ChallengeWithheld { .. }
        | Event::SharedPassword { .. }
        | Event::MessageRefused(_)
        // Of the BYE it is told after the end.
        | Event::Unreached { .. }
        | Event::Reachable { .. } => return None,
    })
}

/// Every call that was placed or came in has exactly one end, and nothing is told after it.
fn one_end_for_each_call(world: &World, wrong: &mut Wrong) {
    let mut ended: BTreeMap<(usize, CallId), u32> = BTreeMap::new();
    for (_, seen) in &world.seen {
        let Seen::Event { at, event } = seen else {
            continue;
        };
        let Some(call) = call_of(event) else {
            continue;
        };
        let count = ended.entry((*at, call)).or_default();
        if *count > 0 {
            wrong.push(format!("{} after the end of {call:?}", told(event)));
        }
        *count += u32::from(matches!(event, Event::Ended { .. }));
    }
    for ((at, call), count) in ended {
        if count != 1 {
            wrong.push(format!("{count} ends of {call:?} at {at}"));
        }
    }
}

/// On a network that loses nothing a call is up at both ends or at none, and is refused with the code
/// that was said.
fn both_ends_agree(world: &World, wrong: &mut Wrong) {
    let count = |node: usize, fits: fn(&Event) -> bool| {
        let of_node = |seen: &&(Time, Seen)| matches!(&seen.1, Seen::Event { at, event } if *at == node && fits(event));
        world.seen.iter().filter(of_node).count()
    };
    let refused = |event: &Event| {
        matches!(
            event,
            Event::Ended {
                code: Some(486),
                ..
            }
        )
    };
    let (said, heard) = (count(B, refused), count(A, refused));
    // A refusal that crosses the caller's own end is not heard.
    if heard > said {
        wrong.push(format!("{said} refusals, {heard} heard"));
    }
    let lost = |event: &Event| {
        matches!(
            event,
            Event::Ended {
                by: EndedBy::Network,
                ..
            }
        )
    };
    for node in [A, B] {
        if count(node, lost) > 0 {
            wrong.push(format!(
                "{node} lost a call on a network that loses nothing"
            ));
        }
    }
    let up = count(A, |event| matches!(event, Event::Answered { .. }));
    let established = count(B, |event| matches!(event, Event::Established { .. }));
    if established
        > up + count(A, |event| {
            matches!(
                event,
                Event::Ended {
                    by: EndedBy::Local,
                    ..
                }
            )
        })
    {
        wrong.push(format!("{established} established, {up} answered"));
    }
}

/// The calls that A placed, each with what B calls it: more than one name where it came to B again, which had
/// forgotten it.
fn pairs(world: &World) -> Vec<(CallId, Vec<CallId>)> {
    let mut theirs: BTreeMap<u64, Vec<CallId>> = BTreeMap::new();
    for (_, seen) in &world.seen {
        if let Seen::Event {
            at: B,
            event: Event::Incoming(call, incoming),
        } = seen
        {
            let number = incoming.headers[0].1.parse().unwrap();
            theirs.entry(number).or_default().push(*call);
        }
    }
    let pairs = theirs.into_iter();
    pairs.map(|(ours, theirs)| (CallId(ours), theirs)).collect()
}

/// How and when a call ended at a node.
fn end_of(world: &World, node: usize, wanted: CallId) -> Option<(Time, EndedBy, Option<u16>)> {
    world.seen.iter().find_map(|(time, seen)| match seen {
        Seen::Event {
            at,
            event: Event::Ended { call, by, code, .. },
        } if *at == node && *call == wanted => Some((*time, *by, *code)),
        _ => None,
    })
}

fn is_told(world: &World, node: usize, fits: impl Fn(&Event) -> bool) -> bool {
    world
        .seen
        .iter()
        .any(|(_, seen)| matches!(seen, Seen::Event { at, event } if *at == node && fits(event)))
}

/// Who is told that the other side ended a call is right: it did, or gave the network up. On a network that loses
/// nothing it did, with the code that is told, and a call that is up at the callee was answered at the caller
/// unless the caller had ended it.
fn each_call_ends_alike_at_both_ends(world: &World, wrong: &mut Wrong) {
    let calm = world.weather.lost == 0;
    for (ours, theirs) in pairs(world) {
        let [theirs] = theirs[..] else {
            continue;
        };
        let (one, two) = (end_of(world, A, ours), end_of(world, B, theirs));
        let (Some((_, by, code)), Some((_, their, said))) = (one, two) else {
            // Told of as a call without an end.
            continue;
        };
        let alike = match (by, their) {
            (EndedBy::Remote, EndedBy::Remote) => false,
            (EndedBy::Remote, EndedBy::Local) if calm => code == said,
            _ => true,
        };
        if !alike {
            wrong.push(format!(
                "{ours:?} ended by {by:?} {code:?}, {theirs:?} by {their:?} {said:?}"
            ));
        }
        let up = is_told(
            world,
            B,
            |event| matches!(event, Event::Established { call, .. } if *call == theirs),
        );
        let answered = is_told(
            world,
            A,
            |event| matches!(event, Event::Answered { call, .. } if *call == ours),
        );
        if calm && up && !answered && by != EndedBy::Local {
            wrong.push(format!("{theirs:?} is up, and {ours:?} was never answered"));
        }
    }
}

/// On a network that loses nothing the callee hears of the caller's end within seconds.
fn an_end_is_heard(world: &World, wrong: &mut Wrong) {
    for (ours, theirs) in pairs(world) {
        let latest = theirs[theirs.len() - 1];
        if let (Some((one, ..)), Some((two, ..))) =
            (end_of(world, A, ours), end_of(world, B, latest))
            && two.since(one) > ms(5_000)
        {
            wrong.push(format!(
                "the end of {ours:?} was heard after {:?}",
                two.since(one)
            ));
        }
    }
}

/// A request is sent after T1, 2 T1 … and at most 11 times; no interval is shorter than T1.
fn requests_keep_their_intervals(world: &World, wrong: &mut Wrong) {
    let mut sent: BTreeMap<(usize, Vec<u8>), Vec<Time>> = BTreeMap::new();
    for (at, seen) in &world.seen {
        if let Seen::Sent {
            from,
            message: Message::Request(request),
        } = seen
            && request.method != Method::Ack
        {
            sent.entry((*from, request.to_bytes()))
                .or_default()
                .push(*at);
        }
    }
    for ((_, bytes), times) in sent {
        let what = String::from_utf8_lossy(&bytes[..12]).into_owned();
        let most = if bytes.starts_with(b"INVITE") { 7 } else { 11 };
        if times.len() > most {
            wrong.push(format!("{what} sent {} times", times.len()));
        }
        let mut least = ms(500);
        for pair in times.windows(2) {
            let gap = pair[1].since(pair[0]);
            if gap < least && gap < ms(4_000) {
                wrong.push(format!("{what} again after {gap:?}"));
            }
            least = gap;
        }
    }
}

/// A request that is no INVITE is sent by T1, 2 T1 … T2 until its answer comes, or for 32 s (17.1.2.2).
fn requests_are_repeated_until_answered(world: &World, wrong: &mut Wrong) {
    // A CANCEL has its INVITE's branch.
    let mut sent: BTreeMap<(usize, String, String), (Time, usize)> = BTreeMap::new();
    let mut heard: BTreeMap<(usize, String, String), Time> = BTreeMap::new();
    for (at, seen) in &world.seen {
        let (node, via, method) = match seen {
            Seen::Sent {
                from,
                message: Message::Request(request),
            } => (*from, request.via(), Some(request.method.clone())),
            Seen::Arrived {
                to,
                message: Message::Response(response),
            } => {
                let method = response.cseq().map(|cseq| cseq.method);
                (*to, response.via(), method)
            }
            _ => continue,
        };
        let branch = via.and_then(|via| Some(via.branch()?.to_owned()));
        let (Some(branch), Some(method)) = (branch, method) else {
            continue;
        };
        if matches!(method, Method::Invite | Method::Ack) {
            continue;
        }
        let key = (node, branch, method.to_string());
        match seen {
            Seen::Sent { .. } => sent.entry(key).or_insert((*at, 0)).1 += 1,
            _ => _ = heard.entry(key).or_insert(*at),
        }
    }
    for (key, (first, count)) in sent {
        let until = heard.get(&key).copied().unwrap_or(Time::NEVER);
        let (mut offset, mut step, mut expected) = (ms(0), ms(500), 0);
        while offset < ms(32_000) && first + offset < until {
            expected += 1;
            offset += step;
            step = (step * 2).min(ms(4_000));
        }
        if count < expected {
            let (_, _, method) = key;
            wrong.push(format!("{method} was sent {count} times, not {expected}"));
        }
    }
}

/// Call-ID and number of an INVITE.
type Key = (String, u32);

fn key_of(headers: &crate::message::Headers) -> Option<Key> {
    let cseq = crate::message::CSeq::parse(headers.get(&Name::CSeq)?)?;
    Some((headers.get(&Name::CallId)?.to_owned(), cseq.number))
}

/// A final response to an INVITE is sent by T1, 2 T1 … T2 until the ACK arrives (13.3.1.4, 17.2.1).
fn finals_are_repeated_until_acknowledged(world: &World, wrong: &mut Wrong) {
    let mut sent: BTreeMap<(usize, Key), (Time, usize)> = BTreeMap::new();
    let mut done: BTreeMap<(usize, Key), Time> = BTreeMap::new();
    let mut gone: BTreeMap<(usize, String), Vec<Time>> = BTreeMap::new();
    for (at, seen) in &world.seen {
        match seen {
            Seen::Sent {
                from,
                message: Message::Response(response),
            } => {
                let invite = response
                    .cseq()
                    .is_some_and(|cseq| cseq.method == Method::Invite);
                // What is answered without a transaction is sent again when the request comes again.
                let stateless = response.code == 481;
                if invite
                    && !stateless
                    && response.code >= 200
                    && let Some(key) = key_of(&response.headers)
                {
                    sent.entry((*from, key)).or_insert((*at, 0)).1 += 1;
                }
            }
            Seen::Arrived {
                to,
                message: Message::Request(request),
            } => {
                let Some(key) = key_of(&request.headers) else {
                    continue;
                };
                match request.method {
                    Method::Ack => _ = done.entry((*to, key)).or_insert(*at),
                    // A goodbye ends all, and whoever invites again has the answer.
                    Method::Bye | Method::Invite => {
                        gone.entry((*to, key.0)).or_default().push(*at);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    for ((node, key), (first, count)) in sent {
        let acknowledged = done.get(&(node, key.clone())).copied();
        let ended = gone
            .get(&(node, key.0.clone()))
            .and_then(|times| times.iter().copied().find(|at| *at > first));
        let until = acknowledged
            .into_iter()
            .chain(ended)
            .min()
            .unwrap_or(Time::NEVER);
        let (mut offset, mut step, mut expected) = (ms(0), ms(500), 0);
        while offset < ms(32_000) && first + offset < until {
            expected += 1;
            offset += step;
            step = (step * 2).min(ms(4_000));
        }
        if count < expected {
            wrong.push(format!(
                "a final response was sent {count} times, not {expected}"
            ));
        }
    }
}

/// Each final response to an INVITE that arrives within 32 s of the first is acknowledged.
fn finals_are_acknowledged_each_time(world: &World, wrong: &mut Wrong) {
    let mut arrived: BTreeMap<(usize, Key), (Time, usize)> = BTreeMap::new();
    let mut acks: BTreeMap<(usize, Key), usize> = BTreeMap::new();
    for (at, seen) in &world.seen {
        match seen {
            Seen::Arrived {
                to,
                message: Message::Response(response),
            } => {
                let invite = response
                    .cseq()
                    .is_some_and(|cseq| cseq.method == Method::Invite);
                if !invite || response.code < 200 {
                    continue;
                }
                if let Some(key) = key_of(&response.headers) {
                    let first = arrived.entry((*to, key)).or_insert((*at, 0));
                    first.1 += usize::from(at.since(first.0) < ms(31_900));
                }
            }
            Seen::Sent {
                from,
                message: Message::Request(request),
            } if request.method == Method::Ack => {
                if let Some(key) = key_of(&request.headers) {
                    *acks.entry((*from, key)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    // An INVITE that timed out or was given up after a CANCEL has no transaction left to acknowledge.
    for ((node, key), (first, count)) in arrived {
        let sent = acks.get(&(node, key.clone())).copied().unwrap_or(0);
        let late = world.seen.iter().any(|(at, seen)| {
            matches!(seen, Seen::Sent { from, message: Message::Request(request) }
                if *from == node && request.method == Method::Invite
                    && key_of(&request.headers).as_ref() == Some(&key)
                    && first.since(*at) >= ms(31_900))
        });
        if sent < count && !late {
            wrong.push(format!("{count} final responses came, {sent} ACKs went"));
        }
    }
}

#[test]
fn many_calls_over_a_bad_network() {
    if let Some(seed) = number("SIDETONE_SEED") {
        let (world, wrong) = run(seed);
        println!("{}", world.story());
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        return;
    }
    for seed in 0..number("SIDETONE_SEEDS").unwrap_or(2_000) {
        let (world, wrong) = run(seed);
        assert!(
            wrong.is_empty(),
            "seed {seed}:\n{}\n{}",
            world.story(),
            wrong.join("\n")
        );
    }
}

/// Six faults that the simulation must find; the first seed that does is printed.
#[test]
fn planted_faults_are_found() {
    for fault in [
        Mutant::AckOnlyOnce,
        Mutant::RefusalSentOnce,
        Mutant::AnswerSentOnce,
        Mutant::AnswerAckedOnce,
        Mutant::CrossedCancelForgotten,
        Mutant::RequestSentOnce,
    ] {
        plant(Some(fault));
        let found = (0..2_000).find(|seed| !run(*seed).1.is_empty());
        plant(None);
        println!("{fault:?}: found by seed {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}

/// A number from the environment, which only tests ask.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "a person says which seeds a test runs"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
