//! The body of a trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sip::event::{self, Traced};
use sip::message;

use crate::ids::CallId;
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// Whether this server received or sent a message.
    pub enum Direction { Received = "received", Sent = "sent" }

    /// What a message came over.
    pub enum Transport { Udp = "udp", Tcp = "tcp", Tls = "tls" }
}

/// The signalling of a call.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SipTrace")]
pub struct SipTrace {
    pub call_id: CallId,
    /// Oldest first, what was sent again too. At most 64 with 64 KiB; none of a call that did not come over
    /// SIP.
    pub messages: Vec<SipMessage>,
    /// How many messages in the middle found no room.
    pub left_out: u32,
}

/// One SIP message. It has no `Debug`: it holds phone numbers.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SipMessage")]
pub struct SipMessage {
    /// When it was sent or received.
    pub at: Timestamp,
    /// Whether this server received or sent it.
    pub direction: Direction,
    /// What it came over.
    pub transport: Transport,
    /// The address and port of the other side.
    pub peer: String,
    /// The message as it went over the wire; `***` stands for what authenticates, for keys and keypad digits.
    pub message: String,
}

impl SipMessage {
    pub fn new(at: Timestamp, traced: &Traced) -> Self {
        Self {
            at,
            direction: match traced.direction {
                event::Direction::Received => Direction::Received,
                event::Direction::Sent => Direction::Sent,
            },
            transport: match traced.peer.transport {
                message::Transport::Udp => Transport::Udp,
                message::Transport::Tcp => Transport::Tcp,
                message::Transport::Tls => Transport::Tls,
            },
            peer: traced.peer.addr.to_string(),
            message: traced.text.clone(),
        }
    }
}
