//! Each media thread has a port of its own, and its callers are told that one.

use std::collections::BTreeSet;

use super::*;

/// The ports of an answer's candidates.
fn ports(answer: &str) -> BTreeSet<u16> {
    let candidates = answer
        .lines()
        .filter_map(|line| line.strip_prefix("a=candidate:"));
    let port = |candidate: &str| candidate.split(' ').nth(5)?.parse().ok();
    candidates.filter_map(port).collect()
}

#[test]
fn calls_of_two_threads_have_a_port_each_and_are_heard() {
    let bed = Bed::of(2, Vec::new());
    let calls: Vec<_> = (0..2)
        .map(|number| {
            let placed = bed.place(&format!("webrtc-thread-{number}"));
            let mut client = Client::new();
            let answer = placed.offer(&client.offer(), false).unwrap();
            client.accept(&answer);
            (placed, client, ports(&answer))
        })
        .collect();
    assert!(
        calls[0].2.is_disjoint(&calls[1].2),
        "one port for two threads"
    );
    for (_placed, mut client, ports) in calls {
        assert_eq!(ports.len(), 1, "{ports:?}");
        client.run(|client| client.hears(0, 0.3));
    }
}

#[test]
fn the_ports_that_callers_are_told_count_up_from_the_public_one() {
    let bed = Bed::of(2, vec!["192.0.2.1:4000".parse().unwrap()]);
    let told: Vec<_> = (0..2)
        .map(|number| {
            let placed = bed.place(&format!("webrtc-public-{number}"));
            let answer = placed.offer(&Client::new().offer(), false).unwrap();
            (placed, ports(&answer))
        })
        .collect();
    let all: BTreeSet<u16> = told.iter().flat_map(|(_, ports)| ports).copied().collect();
    assert_eq!(all, BTreeSet::from([4000, 4001]));
}
