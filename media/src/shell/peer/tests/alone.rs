//! A caller's side without a call around it.

use std::sync::atomic::Ordering;

use super::*;
use crate::shell::clock::Clock;
use crate::shell::counters::Tallies;

/// An event of a KiB.
fn event() -> String {
    format!("\"{}\"", "x".repeat((1 << 10) - 2))
}

/// A caller's side without a call around it, so that there is as much to tell them as a test wants.
pub(super) struct Alone {
    clock: Clock,
    tallies: Arc<Tallies>,
    identity: Identity,
    net: Net,
    peer: PeerConnection,
    pub(super) state: PeerState,
    /// How far its time is ahead of the client's.
    pub(super) ahead: Duration,
}

impl Alone {
    pub(super) fn new() -> Self {
        let clock = Clock::start();
        let tallies = Arc::new(Tallies::default());
        let listen = "127.0.0.1:0".parse().unwrap();
        Self {
            clock,
            identity: Identity::new().unwrap(),
            net: Net::bind(listen, &[], clock, tallies.clone()).unwrap(),
            tallies,
            peer: PeerConnection::new(1, Reach::Private),
            state: PeerState::New,
            ahead: Duration::ZERO,
        }
    }

    /// A client on a new connection, whose data channel is open.
    pub(super) fn client(&mut self) -> Client {
        let mut client = Client::new();
        client.speaks = false;
        let answer = self.answer(client.offer(), true);
        client.accept(&answer);
        self.tell(1);
        self.run(&mut client, |client| client.messages.len() == 1);
        assert_eq!(self.state, PeerState::Connected);
        client
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now() + self.ahead
    }

    pub(super) fn answer(&mut self, sdp: String, fresh: bool) -> String {
        let request = PeerRequest::Offer { sdp, fresh };
        let (now, net) = (self.now(), &mut self.net);
        match self.peer.request(now, request, &self.identity, net) {
            Ok(PeerReply::Description(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// So many events.
    pub(super) fn tell(&mut self, count: usize) {
        for _ in 0..count {
            self.peer.text(self.now(), &event(), &self.net);
        }
    }

    /// Both sides do what is due, until `done`.
    pub(super) fn run(&mut self, client: &mut Client, done: impl Fn(&Client) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(client) {
            assert!(Instant::now() < until, "{} came", client.messages.len());
            client.run_for(Duration::from_millis(1), |_| false);
            self.turn();
        }
    }

    /// What a media thread does for it in one pass.
    pub(super) fn turn(&mut self) {
        let now = self.now();
        let mut came = Vec::new();
        self.net.receive(|datagram| came.push(datagram));
        for Datagram { from, bytes, .. } in came {
            let (peer, net) = (&mut self.peer, &mut self.net);
            peer.datagram(now, from, bytes, &self.identity, net);
        }
        self.peer.serve(now, &mut self.net);
        while let Some(heard) = self.peer.heard() {
            if let PeerEvent::State(state) = heard {
                self.state = state;
            }
        }
    }

    pub(super) fn stalled(&self) -> u64 {
        self.tallies.stalled.load(Ordering::Relaxed)
    }
}
