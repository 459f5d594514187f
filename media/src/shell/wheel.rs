//! The deadlines of one thread's calls: a timer wheel of half-millisecond slots.
//!
//! Deadlines are rounded *up* to the slot, so a call is never served early, and a call whose
//! deadlines lie on a 20 ms grid keeps its phase: rounding adds a constant, not a jitter. Arming is
//! O(1) and allocates only when a call's key is new.

use crate::time::Time;

/// One slot, microseconds. Half a millisecond bounds the wait that rounding adds, and the wake-ups
/// of a thread to 2,000 a second.
const SLOT_US: u64 = 500;

/// Slots in the wheel (256 ms). A deadline further away waits in the last slot and is put in again.
const SLOTS: usize = 512;

const NONE: u32 = u32::MAX;

pub(super) struct Wheel {
    /// First key of each slot's list.
    heads: [u32; SLOTS],
    occupied: [u64; SLOTS / 64],
    entries: Vec<Entry>,
    /// The last tick that was served.
    cursor: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The tick of the deadline; the slot may come sooner.
    due: u64,
    slot: u32,
    next: u32,
    previous: u32,
}

const IDLE: Entry = Entry {
    due: u64::MAX,
    slot: NONE,
    next: NONE,
    previous: NONE,
};

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            heads: [NONE; SLOTS],
            occupied: [0; SLOTS / 64],
            entries: Vec::new(),
            cursor: 0,
        }
    }

    /// Sets the one deadline of `key`; [`Time::NEVER`] takes it out.
    pub(super) fn arm(&mut self, key: usize, at: Time) {
        if key >= self.entries.len() {
            self.entries.resize(key + 1, IDLE);
        }
        if at == Time::NEVER {
            self.unlink(key);
            return;
        }
        let due = at.as_micros().div_ceil(SLOT_US).max(self.cursor + 1);
        if self.entries[key].due == due {
            return;
        }
        self.unlink(key);
        self.link(key, due);
    }

    /// When to wake up next, if nothing else happens.
    pub(super) fn next(&self) -> Time {
        let first = (self.cursor as usize + 1) % SLOTS;
        // A slot before `first` belongs to the wheel's next turn, hence the wrap.
        for step in 0..=self.occupied.len() {
            let word = (first / 64 + step) % self.occupied.len();
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (first % 64);
            } else if step == self.occupied.len() {
                bits &= !(u64::MAX << (first % 64));
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - first) % SLOTS + 1;
                return Time::from_micros((self.cursor + ahead as u64) * SLOT_US);
            }
        }
        Time::NEVER
    }

    /// Takes out all keys that are due and hands each to `serve` with its deadline, in the order of
    /// slots.
    pub(super) fn expire(&mut self, now: Time, mut serve: impl FnMut(usize, Time)) {
        let tick = now.as_micros() / SLOT_US;
        if tick <= self.cursor {
            return;
        }
        let first = self.cursor + 1;
        let last = tick.min(self.cursor + SLOTS as u64);
        // Moved first: what is put in again below must land ahead of it.
        self.cursor = tick;
        for served in first..=last {
            let slot = (served % SLOTS as u64) as usize;
            if self.occupied[slot / 64] & (1 << (slot % 64)) == 0 {
                continue;
            }
            let mut key = std::mem::replace(&mut self.heads[slot], NONE);
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            while key != NONE {
                let entry = std::mem::replace(&mut self.entries[key as usize], IDLE);
                if entry.due <= tick {
                    serve(key as usize, Time::from_micros(entry.due * SLOT_US));
                } else {
                    self.link(key as usize, entry.due);
                }
                key = entry.next;
            }
        }
    }

    fn link(&mut self, key: usize, due: u64) {
        let slot = (due.min(self.cursor + SLOTS as u64 - 1) % SLOTS as u64) as usize;
        let next = std::mem::replace(&mut self.heads[slot], key as u32);
        if next != NONE {
            self.entries[next as usize].previous = key as u32;
        }
        self.entries[key] = Entry {
            due,
            slot: slot as u32,
            next,
            previous: NONE,
        };
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    fn unlink(&mut self, key: usize) {
        let entry = std::mem::replace(&mut self.entries[key], IDLE);
        if entry.slot == NONE {
            return;
        }
        if entry.next != NONE {
            self.entries[entry.next as usize].previous = entry.previous;
        }
        if entry.previous != NONE {
            self.entries[entry.previous as usize].next = entry.next;
        } else {
            self.heads[entry.slot as usize] = entry.next;
            if entry.next == NONE {
                self.occupied[entry.slot as usize / 64] &= !(1 << (entry.slot % 64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain map: everything is served, once, never early, at most a slot late.
        #[test]
        fn serves_what_a_sorted_map_would(steps in proptest::collection::vec((0_usize..40, 0_u64..2_000_000, 0_u64..30_000), 1..300)) {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<usize, u64> = BTreeMap::new();
            let mut now = 1_000_000;
            for (key, ahead, pass) in steps {
                let at = if ahead % 17 == 0 { Time::NEVER } else { Time::from_micros(now + ahead) };
                wheel.expire(Time::from_micros(now), |key, _| { model.remove(&key); });
                wheel.arm(key, at);
                model.remove(&key);
                if at != Time::NEVER { model.insert(key, at.as_micros()); }
                now += pass;
                let next = wheel.next();
                if let Some(first) = model.values().min() {
                    prop_assert!(next.as_micros() <= first + 2 * SLOT_US, "sleeps past a deadline");
                } else {
                    prop_assert_eq!(next, Time::NEVER);
                }
                let mut served = Vec::new();
                wheel.expire(Time::from_micros(now), |key, _| served.push(key));
                for key in served {
                    let due = model.remove(&key);
                    prop_assert!(due.is_some_and(|due| due <= now), "early or twice");
                }
                prop_assert!(model.values().all(|due| due + 2 * SLOT_US > now), "late");
            }
        }
    }

    #[test]
    fn a_grid_of_20_ms_keeps_its_phase() {
        let mut wheel = Wheel::new();
        let mut due = Time::from_micros(1_000_137);
        wheel.expire(Time::from_millis(1000), |_, _| ());
        let mut phases = Vec::new();
        for _ in 0..50 {
            wheel.arm(3, due);
            let wake = wheel.next();
            wheel.expire(wake, |_, _| ());
            phases.push(wake.since(due));
            due = due + std::time::Duration::from_millis(20);
        }
        assert!(phases.iter().all(|phase| *phase == phases[0]));
    }
}
