//! Keys that come twice: some telephones tell each press in their stream and in their signalling (SIP INFO), too.

use std::time::Duration;

use crate::time::Time;

/// A press that signalling told reaches the stream within this time, if it does. The same key pressed again takes
/// no less.
const SAME_PRESS: Duration = Duration::from_millis(500);

/// The presses of one side. Once its stream has brought an agreed event, what its signalling tells is passed over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Presses {
    /// Events were agreed on: else a key in the stream is a tone, which a voice may resemble.
    events: bool,
    /// The stream has brought one.
    in_stream: bool,
    /// What signalling told last.
    signalled: Option<(Time, char)>,
}

impl Presses {
    /// `events`: the other side may send them.
    pub fn new(events: bool) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }

    /// Both agreed anew.
    pub fn renew(&mut self, events: bool) {
        self.events = events;
    }

    /// The stream brought a key. `false`: signalling has told that press already.
    pub fn heard(&mut self, now: Time, key: char) -> bool {
        if !self.events {
            return true;
        }
        let first = !std::mem::replace(&mut self.in_stream, true);
        let told = self.signalled.take().filter(|_| first);
        !told.is_some_and(|(at, told)| told == key && now <= at + SAME_PRESS)
    }

    /// Signalling told a key. `false`: the stream tells them.
    pub fn told(&mut self, now: Time, key: char) -> bool {
        self.signalled = Some((now, key));
        !(self.events && self.in_stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn a_press_that_comes_both_ways_counts_once_whichever_is_first() {
        let mut presses = Presses::new(true);
        assert!(presses.heard(at(1_000), '5'));
        assert!(!presses.told(at(1_050), '5'));
        assert!(!presses.told(at(2_000), '6'));
        assert!(presses.heard(at(2_010), '6'));
        let mut presses = Presses::new(true);
        assert!(presses.told(at(1_000), '5'));
        assert!(!presses.heard(at(1_040), '5'));
        assert!(presses.heard(at(1_400), '5'), "pressed again");
        assert!(!presses.told(at(1_410), '5'));
    }

    #[test]
    fn another_key_or_a_later_one_is_another_press() {
        for (ms, key) in [(1_040, '6'), (1_501, '5')] {
            let mut presses = Presses::new(true);
            assert!(presses.told(at(1_000), '5'));
            assert!(presses.heard(at(ms), key));
        }
    }

    #[test]
    fn a_side_that_only_signals_is_heard_for_ever() {
        for events in [false, true] {
            let mut presses = Presses::new(events);
            assert!((0..100).all(|ms| presses.told(at(ms), '5')));
        }
    }

    #[test]
    fn a_tone_silences_no_signalling() {
        let mut presses = Presses::new(false);
        assert!(presses.heard(at(1_000), '5'));
        assert!(presses.told(at(1_100), '7'));
        presses.renew(true);
        assert!(presses.told(at(2_000), '7'));
        assert!(presses.heard(at(3_000), '8') && !presses.told(at(3_010), '8'));
        presses.renew(false);
        assert!(presses.told(at(4_000), '9'));
    }
}
