//! What waits for a caller who takes nothing from the data channel.

use std::sync::atomic::Ordering;

use super::*;
use crate::shell::clock::Clock;
use crate::shell::counters::Tallies;

/// An event of a KiB.
fn event() -> String {
    format!("\"{}\"", "x".repeat((1 << 10) - 2))
}

/// A caller's side without a call around it, so that there is as much to tell them as a test wants.
struct Alone {
    clock: Clock,
    tallies: Arc<Tallies>,
    identity: Identity,
    net: Net,
    peer: Peer,
    state: PeerState,
}

impl Alone {
    fn new() -> Self {
        let clock = Clock::start();
        let tallies = Arc::new(Tallies::default());
        let listen = "127.0.0.1:0".parse().unwrap();
        Self {
            clock,
            identity: Identity::new().unwrap(),
            net: Net::bind(listen, &[], clock, tallies.clone()).unwrap(),
            tallies,
            peer: Peer::new(1),
            state: PeerState::New,
        }
    }

    /// A client on a new connection, whose data channel is open.
    fn client(&mut self) -> Client {
        let mut client = Client::new();
        client.speaks = false;
        let request = PeerRequest::Offer {
            sdp: client.offer(),
            fresh: true,
        };
        let now = self.clock.now();
        match self
            .peer
            .request(now, request, &self.identity, &mut self.net)
        {
            Ok(PeerReply::Description(answer)) => client.accept(&answer),
            other => panic!("{other:?}"),
        }
        self.tell(1);
        self.run(&mut client, |client| client.messages.len() == 1);
        assert_eq!(self.state, PeerState::Connected);
        client
    }

    /// So many events.
    fn tell(&mut self, count: usize) {
        for _ in 0..count {
            self.peer.text(self.clock.now(), &event(), &self.net);
        }
    }

    /// Both sides do what is due, until `done`.
    fn run(&mut self, client: &mut Client, done: impl Fn(&Client) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(client) {
            assert!(Instant::now() < until, "{} came", client.messages.len());
            client.run_for(Duration::from_millis(1), |_| false);
            self.turn();
        }
    }

    /// What a media thread does for it in one pass.
    fn turn(&mut self) {
        let now = self.clock.now();
        let mut came = Vec::new();
        self.net.receive(|datagram| came.push(datagram));
        for Datagram { from, bytes, .. } in came {
            let (peer, net) = (&mut self.peer, &mut self.net);
            peer.datagram(now, from, bytes, &self.identity, net);
        }
        self.peer.serve(now, &mut self.net);
        while let Some(heard) = self.peer.heard() {
            if let Heard::State(state) = heard {
                self.state = state;
            }
        }
    }

    fn stalled(&self) -> u64 {
        self.tallies.stalled.load(Ordering::Relaxed)
    }
}

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
