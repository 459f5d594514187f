//! The data channel of a connection: which one it is, how much may come through it, and what is done about a
//! caller who takes nothing from it.

use std::time::Instant;

use rtc::data_channel::{RTCDataChannelId, RTCDataChannelMessage};
use rtc::peer_connection::RTCPeerConnection;

use super::super::socket::{BYTES, MESSAGES};
use crate::bucket::Bucket;
use crate::time::Time;

/// Its name.
pub(super) const NAME: &str = "events";

/// What may wait to be acknowledged, bytes. A caller behind more than that reads nothing, and what is said to
/// them is lost.
const MOST_UNREAD: usize = 256 << 10;

pub(super) struct Channel {
    id: Option<RTCDataChannelId>,
    messages: Bucket,
    bytes: Bucket,
    clogged: bool,
}

impl Channel {
    pub(super) const fn new() -> Self {
        Self {
            id: None,
            messages: MESSAGES,
            bytes: BYTES,
            clogged: false,
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.id.is_some()
    }

    /// More waits for the caller than they may leave unread.
    pub(super) const fn is_clogged(&self) -> bool {
        self.clogged
    }

    /// A channel is open. The first of our name is it; all others are closed.
    pub(super) fn opened(&mut self, id: RTCDataChannelId, core: &mut RTCPeerConnection) {
        let Some(mut channel) = core.data_channel(id) else {
            return;
        };
        if self.id.is_none() && channel.label() == NAME {
            self.id = Some(id);
        } else if self.id != Some(id)
            && let Err(error) = channel.close()
        {
            // It is closed already, or will be with the connection; nothing that comes through it is heard.
            tracing::debug!(%error, "a caller's second data channel could not be closed");
        }
    }

    pub(super) fn closed(&mut self, id: RTCDataChannelId) {
        if self.id == Some(id) {
            self.id = None;
        }
    }

    /// Whether a message is for the call. All count, whatever they are and wherever they come: as many and as
    /// much as on a socket. What is more is not heard.
    pub(super) fn takes(
        &mut self,
        now: Time,
        id: RTCDataChannelId,
        message: &RTCDataChannelMessage,
    ) -> bool {
        let within = self.messages.take(now, 1) & self.bytes.take(now, message.data.len() as u64);
        within && self.id == Some(id)
    }

    pub(super) fn send(&mut self, at: Instant, text: &str, core: &mut RTCPeerConnection) {
        let Some(id) = self.id.filter(|_| !self.clogged) else {
            return;
        };
        let Some(mut channel) = core.data_channel(id) else {
            return;
        };
        if channel.outstanding_bytes() + text.len() > MOST_UNREAD {
            self.clogged = true;
        } else if let Err(error) = channel.send_text(at, text) {
            // The caller has just closed it.
            tracing::debug!(%error, "an event could not be sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn message(is_string: bool, length: usize) -> RTCDataChannelMessage {
        RTCDataChannelMessage {
            is_string,
            data: BytesMut::zeroed(length),
        }
    }

    #[test]
    fn everything_counts_and_only_our_channel_is_heard() {
        let (ours, other) = (1, 2);
        let channel = || Channel {
            id: Some(ours),
            ..Channel::new()
        };
        let now = Time::from_millis(5_000);

        let mut quiet = channel();
        assert!(quiet.takes(now, ours, &message(true, 100)));
        assert!(quiet.takes(now, ours, &message(false, 100)));
        assert!(!quiet.takes(now, other, &message(true, 100)));

        // As many as on a socket, whichever they are.
        let mut many = channel();
        for _ in 0..399 {
            many.takes(now, other, &message(false, 0));
        }
        assert!(many.takes(now, ours, &message(true, 1)));
        assert!(!many.takes(now, ours, &message(true, 1)));

        // And as much.
        let mut much = channel();
        for _ in 0..31 {
            much.takes(now, ours, &message(false, 64 << 10));
        }
        assert!(much.takes(now, ours, &message(true, 64 << 10)));
        assert!(!much.takes(now, ours, &message(true, 1)));
        let later = now + std::time::Duration::from_millis(1);
        assert!(much.takes(later, ours, &message(true, 1_000)));
    }
}
