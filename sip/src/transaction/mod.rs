//! The four transaction machines (RFC 3261 17, with RFC 6026's Accepted state), one file each.
//!
//! A machine knows nothing of addresses and sockets. It is told what came ([`ClientInput`],
//! [`ServerInput`]) and polled for what to do ([`Output`]) until it says [`Output::Wait`] or
//! [`Output::Ended`]. An early timeout changes nothing, a late one applies every timer that is due,
//! in order; after `Ended` inputs are ignored.

pub mod client;
pub mod client_invite;
pub mod key;
pub mod server;
pub mod server_invite;
pub mod timers;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use self::client::Client;
use self::client_invite::ClientInvite;
use self::server::Server;
use self::server_invite::ServerInvite;
use crate::message::{Method, Request, Response};
use crate::time::Time;

pub use self::timers::{Timer, Timers, Timing};

/// A message as it goes over the wire, shared with whoever may send it again.
pub type Wire = Arc<[u8]>;

/// What a client transaction is told.
#[derive(Debug)]
pub enum ClientInput {
    Response(Response),
    /// The transport could not send (RFC 3261 17.1.4).
    Failed,
    /// Its user needs no answer any more: an INVITE, which would wait for ever, waits 64 T1 (9.1).
    GiveUp,
    Timeout,
}

/// What a server transaction is told.
#[derive(Debug)]
pub enum ServerInput {
    /// The request came again.
    Again,
    /// The ACK of a final response that is no 2xx.
    Ack,
    /// The user of the transaction answers.
    Respond(u16, Wire),
    Failed,
    Timeout,
}

/// What a transaction asks for.
#[derive(Debug)]
pub enum Output {
    Send(Wire),
    /// A response for the user of a client transaction.
    Response(Response),
    /// Over, and why. Nothing follows.
    Ended(End),
    /// Nothing to do before that time.
    Wait(Time),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Done,
    /// The other side did not answer in time (client), or sent no ACK (server).
    TimedOut,
    /// The transport failed.
    Failed,
}

/// What waits to be polled. An input asks for three things at most, a late timeout for a few sendings.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Output>,
}

impl Outbox {
    fn send(&mut self, wire: &Wire) {
        self.queue.push_back(Output::Send(Arc::clone(wire)));
    }

    fn give(&mut self, response: Response) {
        self.queue.push_back(Output::Response(response));
    }

    fn end(&mut self, end: End) {
        self.queue.push_back(Output::Ended(end));
    }

    fn poll(&mut self, timers: &Timers) -> Output {
        self.queue
            .pop_front()
            .unwrap_or_else(|| Output::Wait(timers.next()))
    }
}

/// Either machine of a client.
#[derive(Debug)]
pub enum AnyClient {
    /// Boxed, as it keeps the request for its ACK and most transactions are of the other kind.
    Invite(Box<ClientInvite>),
    Other(Client),
}

impl AnyClient {
    /// The machine for `request`, which it sends at once.
    pub fn new(now: Time, request: &Request, reliable: bool, timing: Timing) -> Self {
        match request.method {
            Method::Invite => {
                Self::Invite(Box::new(ClientInvite::new(now, request, reliable, timing)))
            }
            _ => Self::Other(Client::new(now, request, reliable, timing)),
        }
    }

    pub fn handle(&mut self, now: Time, input: ClientInput) {
        match self {
            Self::Invite(machine) => machine.handle(now, input),
            Self::Other(machine) => machine.handle(now, input),
        }
    }

    pub fn poll(&mut self) -> Output {
        match self {
            Self::Invite(machine) => machine.poll(),
            Self::Other(machine) => machine.poll(),
        }
    }

    /// Whether an INVITE has no final response.
    pub fn is_inviting(&self) -> bool {
        match self {
            Self::Invite(machine) => machine.is_inviting(),
            Self::Other(_) => false,
        }
    }
}

/// Either machine of a server.
#[derive(Debug)]
pub enum AnyServer {
    Invite(ServerInvite),
    Other(Server),
}

impl AnyServer {
    /// The machine for `request`. An INVITE's says `trying` after 200 ms without an answer.
    pub fn new(now: Time, request: &Request, reliable: bool, timing: Timing) -> Self {
        match request.method {
            Method::Invite => {
                let trying = Response::to(&request.headers, 100, "").to_bytes().into();
                Self::Invite(ServerInvite::new(now, trying, reliable, timing))
            }
            _ => Self::Other(Server::new(reliable, timing)),
        }
    }

    pub fn handle(&mut self, now: Time, input: ServerInput) {
        match self {
            Self::Invite(machine) => machine.handle(now, input),
            Self::Other(machine) => machine.handle(now, input),
        }
    }

    pub fn poll(&mut self) -> Output {
        match self {
            Self::Invite(machine) => machine.poll(),
            Self::Other(machine) => machine.poll(),
        }
    }

    /// Whether an INVITE was given a 2xx.
    pub fn is_accepted(&self) -> bool {
        match self {
            Self::Invite(machine) => machine.is_accepted(),
            Self::Other(_) => false,
        }
    }
}
