//! Connections: how many others may make, how soon each of those must say something, and the bytes of each
//! that are no message yet.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Peer;
use crate::message::stream::{Framed, Framer};
use crate::time::Time;

/// Connections at a time; one more is closed.
const MOST: usize = 4_096;

/// Those of strangers among them, and of one stranger.
const MOST_OF_STRANGERS: usize = 256;
const MOST_OF_ONE: usize = 4;

/// How long a connection that others made may be without a whole message, its TLS handshake included.
const FIRST_WORD: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Stream {
    framer: Framer,
    /// Tells it from an earlier one of the same address and port.
    serial: u64,
    /// Made by somebody who was not known then.
    of_stranger: bool,
    spoke: bool,
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    table: FxHashMap<Peer, Stream>,
    /// Those that others made, in their order, and until when each may be silent.
    silent: VecDeque<(Time, Peer, u64)>,
    serial: u64,
}

impl Streams {
    pub(super) fn has(&self, peer: &Peer) -> bool {
        self.table.contains_key(peer)
    }

    /// Whether there is room for a connection that somebody made; then it is counted.
    pub(super) fn accept(&mut self, now: Time, peer: &Peer, of_stranger: bool) -> bool {
        if self.table.len() >= MOST || (of_stranger && !self.has_room_for(peer)) {
            return false;
        }
        self.serial += 1;
        let stream = Stream {
            serial: self.serial,
            of_stranger,
            ..Stream::default()
        };
        self.table.insert(peer.clone(), stream);
        self.silent
            .push_back((now + FIRST_WORD, peer.clone(), self.serial));
        true
    }

    fn has_room_for(&self, stranger: &Peer) -> bool {
        let (mut all, mut own) = (0, 0);
        for (peer, _) in self.table.iter().filter(|(_, stream)| stream.of_stranger) {
            all += 1;
            own += usize::from(peer.addr.ip() == stranger.addr.ip());
        }
        all < MOST_OF_STRANGERS && own < MOST_OF_ONE
    }

    /// Takes what was read. `false` when there is no room for another connection.
    pub(super) fn push(&mut self, peer: &Peer, bytes: &[u8]) -> bool {
        if let Some(stream) = self.table.get_mut(peer) {
            stream.framer.push(bytes);
            return true;
        }
        if self.table.len() >= MOST {
            return false;
        }
        // One that we made.
        let mut stream = Stream::default();
        stream.framer.push(bytes);
        self.table.insert(peer.clone(), stream);
        true
    }

    /// What a connection brought next.
    pub(super) fn next_of(&mut self, peer: &Peer) -> Option<Framed> {
        let stream = self.table.get_mut(peer)?;
        let framed = stream.framer.next_message()?;
        // A carrier may keep a connection for later by pings alone.
        stream.spoke |= match framed {
            Framed::Message(_) => true,
            Framed::Ping => !stream.of_stranger,
            Framed::Malformed(_) | Framed::Lost(_) => false,
        };
        Some(framed)
    }

    pub(super) fn remove(&mut self, peer: &Peer) {
        self.table.remove(peer);
    }

    /// A connection that was silent for too long; it is forgotten.
    pub(super) fn take_silent(&mut self, now: Time) -> Option<Peer> {
        let due = self.next() <= now;
        let (_, peer, _) = self.silent.pop_front_if(|_| due)?;
        self.table.remove(&peer);
        Some(peer)
    }

    /// When the next one will have been silent for too long.
    pub(super) fn next(&mut self) -> Time {
        let table = &self.table;
        let settled = |(_, peer, serial): &mut (Time, Peer, u64)| {
            table
                .get(peer)
                .is_none_or(|stream| stream.spoke || stream.serial != *serial)
        };
        while self.silent.pop_front_if(settled).is_some() {}
        self.silent.front().map_or(Time::NEVER, |(at, ..)| *at)
    }
}
