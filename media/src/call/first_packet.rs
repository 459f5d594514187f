//! Callers over WebRTC whose media never flow: connected, said to send, and never heard.
//!
//! The first packet has 30 s from when the caller is connected and does not hold the call. Reports of RTCP do not
//! count: who gets the agent's voice and sends none is as silent as others. A message on the data channel does: somebody
//! who types is there. Once anything came, nothing more is asked here: a muted microphone may send nothing for as long
//! as it likes (RFC 6716 section 2.1.9), and that the way is lost is told by ICE (RFC 7675).

use std::time::Duration;

use crate::time::Time;

/// How long it may take: as long as a telephone's.
const PATIENCE: Duration = Duration::from_secs(30);

/// The wait for it.
#[derive(Debug, Default)]
pub(super) struct FirstPacket {
    sends: bool,
    connected: bool,
    held: bool,
    came: bool,
    deadline: Option<Time>,
}

impl FirstPacket {
    /// When it is given up; `None`: it is not awaited.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// The caller's description says that they send, or not.
    pub(super) fn sends(&mut self, now: Time, sends: bool) {
        self.sends = sends;
        self.wait(now);
    }

    /// The caller is connected, or away.
    pub(super) fn connected(&mut self, now: Time, connected: bool) {
        self.connected = connected;
        self.wait(now);
    }

    /// The caller holds the call, or resumes it.
    pub(super) fn held(&mut self, now: Time, held: bool) {
        self.held = held;
        self.wait(now);
    }

    /// Something came of the caller.
    pub(super) const fn came(&mut self) {
        self.came = true;
        self.deadline = None;
    }

    fn wait(&mut self, now: Time) {
        let awaited = self.sends && self.connected && !self.held && !self.came;
        self.deadline = awaited.then(|| self.deadline.unwrap_or(now + PATIENCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_millis(1_000);

    fn at(second: u64) -> Time {
        START + Duration::from_secs(second)
    }

    /// Of a caller who sends and is connected.
    fn awaited() -> FirstPacket {
        let mut first = FirstPacket::default();
        first.sends(START, true);
        assert_eq!(first.deadline(), None);
        first.connected(at(5), true);
        assert_eq!(first.deadline(), Some(at(35)));
        first
    }

    #[test]
    fn it_is_awaited_while_the_caller_could_send_it() {
        let mut first = awaited();
        // What was said already does not begin the wait anew.
        first.connected(at(6), true);
        first.sends(at(7), true);
        first.held(at(8), false);
        assert_eq!(first.deadline(), Some(at(35)));
        first.held(at(9), true);
        assert_eq!(first.deadline(), None);
        first.held(at(90), false);
        assert_eq!(first.deadline(), Some(at(120)));
        first.sends(at(91), false);
        assert_eq!(first.deadline(), None);
        first.sends(at(92), true);
        assert_eq!(first.deadline(), Some(at(122)));
        // Who is away is waited for elsewhere.
        first.connected(at(93), false);
        assert_eq!(first.deadline(), None);
    }

    #[test]
    fn once_it_came_nothing_is_awaited() {
        let mut first = awaited();
        first.came();
        first.connected(at(10), false);
        first.connected(at(20), true);
        first.held(at(21), true);
        first.held(at(22), false);
        assert_eq!(first.deadline(), None);
    }
}
