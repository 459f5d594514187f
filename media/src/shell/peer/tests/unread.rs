//! What waits for a caller who takes nothing from the data channel.

use super::alone::Alone;
use super::*;

#[test]
fn a_caller_who_leaves_more_than_256_kib_unread_is_gone_and_may_come_back() {
    let mut alone = Alone::new();
    let mut client = alone.client();
    client.reads = false;
    // What came before may not be acknowledged yet.
    alone.tell(255);
    alone.turn();
    assert_eq!((alone.state, alone.stalled()), (PeerState::Connected, 0));
    alone.tell(2);
    alone.turn();
    assert_eq!((alone.state, alone.stalled()), (PeerState::Failed, 1));
    // It stays so, and is counted once.
    alone.tell(10);
    alone.turn();
    assert_eq!((alone.state, alone.stalled()), (PeerState::Failed, 1));
    // Another connection of theirs takes its place.
    let mut client = alone.client();
    alone.tell(100);
    alone.run(&mut client, |client| client.messages.len() == 101);
    assert_eq!((alone.state, alone.stalled()), (PeerState::Connected, 1));
}

#[test]
fn a_caller_who_reads_is_told_as_much_as_there_is() {
    let mut alone = Alone::new();
    let mut client = alone.client();
    for round in 1..=8 {
        alone.tell(200);
        alone.run(&mut client, |client| {
            client.messages.len() == 1 + 200 * round
        });
    }
    assert_eq!((alone.state, alone.stalled()), (PeerState::Connected, 0));
}
