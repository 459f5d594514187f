//! The deadlines of turn taking: an enum, and a table of its size. The next deadline is the minimum.

use crate::time::Time;

/// Every timer of a call's turn taking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Timer {
    /// The voice has been silent long enough to count as stopped.
    VoiceStop,
    /// The caller's turn is over unless they speak on.
    EndOfTurn,
    /// The recogniser has not said a word about this turn.
    Transcript,
    /// An interruption brought no words: speak on.
    Resume,
    /// No further key was pressed.
    Keypad,
    /// The answering person says nothing: greet.
    Opening,
    /// Nobody speaks: ask whether the caller is still there.
    IdleCheckIn,
    /// The caller has been silent for as long as the agent's settings allow.
    Silence,
    /// The reply takes long: a filler line.
    SoftTimeout,
    /// The reply has not begun within the providers' deadline.
    FirstWord,
    /// The longest that the call may last.
    MaxDuration,
}

impl Timer {
    pub const ALL: [Self; 11] = [
        Self::VoiceStop,
        Self::EndOfTurn,
        Self::Transcript,
        Self::Resume,
        Self::Keypad,
        Self::Opening,
        Self::IdleCheckIn,
        Self::Silence,
        Self::SoftTimeout,
        Self::FirstWord,
        Self::MaxDuration,
    ];
}

/// When each timer is due, if it is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers {
    due: [Time; Timer::ALL.len()],
    /// The earliest of them: asked for with every frame, and most frames have nothing due.
    first: Time,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            due: [Time::NEVER; Timer::ALL.len()],
            first: Time::NEVER,
        }
    }
}

impl Timers {
    pub fn arm(&mut self, timer: Timer, at: Time) {
        let was = std::mem::replace(&mut self.due[timer as usize], at);
        self.first = if at <= self.first {
            at
        } else if was == self.first {
            self.due.into_iter().min().unwrap_or(Time::NEVER)
        } else {
            self.first
        };
    }

    pub fn disarm(&mut self, timer: Timer) {
        self.arm(timer, Time::NEVER);
    }

    pub fn disarm_all(&mut self) {
        *self = Self::default();
    }

    pub fn get(&self, timer: Timer) -> Option<Time> {
        armed(self.due[timer as usize])
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Time> {
        armed(self.first)
    }

    /// Takes the earliest timer that is due at `now`; of equals the one named first.
    pub fn take_due(&mut self, now: Time) -> Option<(Timer, Time)> {
        let at = armed(self.first).filter(|&at| at <= now)?;
        let timer = Timer::ALL
            .into_iter()
            .find(|&timer| self.due[timer as usize] == at)?;
        self.disarm(timer);
        Some((timer, at))
    }
}

fn armed(at: Time) -> Option<Time> {
    (at != Time::NEVER).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_in_order_of_deadline_and_early_ones_stay() {
        let mut timers = Timers::default();
        timers.arm(Timer::MaxDuration, Time::from_millis(30));
        timers.arm(Timer::EndOfTurn, Time::from_millis(20));
        timers.arm(Timer::VoiceStop, Time::from_millis(20));
        assert_eq!(timers.take_due(Time::from_millis(19)), None);
        let due: Vec<_> = std::iter::from_fn(|| timers.take_due(Time::from_millis(25)))
            .map(|(t, _)| t)
            .collect();
        assert_eq!(due, [Timer::VoiceStop, Timer::EndOfTurn]);
        assert_eq!(timers.next(), Some(Time::from_millis(30)));
    }

    #[test]
    fn the_table_has_a_place_for_each_timer() {
        for (place, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place);
        }
    }
}
