//! When the agent's packets go out: together with the caller's, where both come in frames of 20 ms.
//!
//! A call that hears at one time and speaks at another has two turns of its thread in each frame: two wake-ups where
//! few calls are, two ways through its memory where many are. Nothing asks for that. A frame that is sent a little
//! before its time is heard at its time, so the grid of what is sent moves forward, by less than a frame and a
//! little, until it lies where the caller's packets come ([`Arrivals`]). [`Lead`] moves it: at once where a talkspurt
//! begins, which is where listeners set their buffers anew, and by 0.2 ms a frame after.
//!
//! It is never waited for: a frame whose packet does not come goes out at the time that the packets before had.

use std::time::Duration;

use crate::frame::FRAME_MS;
use crate::time::Time;

const FRAME_US: u64 = FRAME_MS * 1000;

/// A frame is due so long after the packet that it goes out with: packets come a little late now and then.
const AFTER_US: u64 = 2_000;

/// What is due so soon after a packet came goes out with it.
const WINDOW: Duration = Duration::from_millis(4);

/// Packets that come further than this from their time, on average, have none.
const STEADY_US: u64 = 3_000;

/// How much of a packet's own time is believed.
const SHARE: u64 = 8;

/// The most that a frame goes out before its time. A little over a frame: where the caller's clock is not ours, the
/// grid reaches the end of its frame seldom and leaves it in one direction.
const MOST_US: u64 = FRAME_US + 4_000;

/// A grid moves by so much a frame.
const STEP_US: u64 = 200;

/// At what time of a frame the caller's packets come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrivals {
    /// Microseconds since a multiple of a frame, and how far packets came from there on average.
    usual: Option<(u64, u64)>,
    /// One has come just now.
    now: bool,
}

impl Arrivals {
    /// Something happens to the call: a packet came, or something else.
    pub fn note(&mut self, now: Time, packet: bool) {
        self.now = packet;
        if !packet {
            return;
        }
        let at = now.as_micros() % FRAME_US;
        let Some((usual, spread)) = &mut self.usual else {
            self.usual = Some((at, 0));
            return;
        };
        // Whichever way round is shorter.
        let later = (at + FRAME_US - *usual) % FRAME_US;
        let earlier = FRAME_US - later;
        *usual = if later <= earlier {
            *usual + later / SHARE
        } else {
            *usual + FRAME_US - earlier / SHARE
        } % FRAME_US;
        *spread = (*spread * (SHARE - 1) + later.min(earlier)) / SHARE;
    }

    /// How long before its time a frame may go out now.
    pub const fn allowance(&self) -> Duration {
        if self.now { WINDOW } else { Duration::ZERO }
    }

    /// How long before `due`, in less than a frame, what goes out with a packet is due; `None`: they have no time.
    fn before(&self, due: Time) -> Option<u64> {
        let (usual, spread) = self.usual?;
        (spread <= STEADY_US)
            .then(|| (due.as_micros() + FRAME_US - (usual + AFTER_US) % FRAME_US) % FRAME_US)
    }
}

/// How long before their time the frames of a stream go out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lead {
    micros: u64,
    /// It has followed since the stream began.
    follows: bool,
}

impl Lead {
    /// The stream begins anew: the next frame may go out whenever it wants.
    pub fn begin(&mut self) {
        self.follows = false;
    }

    /// The next frame's time is `due`.
    pub fn follow(&mut self, arrivals: &Arrivals, due: Time) {
        let Some(before) = arrivals.before(due) else {
            return;
        };
        if !std::mem::replace(&mut self.follows, true) {
            self.micros = before;
            return;
        }
        let next = before + FRAME_US;
        let to = if next <= MOST_US && next.abs_diff(self.micros) < before.abs_diff(self.micros) {
            next
        } else {
            before
        };
        self.micros = to.clamp(self.micros.saturating_sub(STEP_US), self.micros + STEP_US);
    }

    pub const fn duration(&self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(FRAME_MS);

    fn at(micros: u64) -> Time {
        Time::from_micros(1_000_000 + micros)
    }

    /// A caller whose packets come at these times of their frames, and the grid's distance to them after each.
    fn follow(
        lead: &mut Lead,
        grid: u64,
        packets: impl Iterator<Item = (u64, u64)>,
    ) -> Vec<(i64, u64)> {
        let mut arrivals = Arrivals::default();
        packets
            .map(|(frame, packet)| {
                arrivals.note(at(frame * FRAME_US + packet), true);
                let due = at((frame + 2) * FRAME_US + grid);
                lead.follow(&arrivals, due);
                let sent = due.before(lead.duration()).as_micros();
                // How long after a packet of this kind it is.
                let after = (sent + FRAME_US - packet % FRAME_US) % FRAME_US;
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                (after, lead.micros)
            })
            .collect()
    }

    #[test]
    fn a_stream_that_begins_is_in_company_at_once() {
        for packet in (0..FRAME_US).step_by(700) {
            for grid in [0, 1, 5_300, 19_999] {
                let mut lead = Lead::default();
                let after = follow(&mut lead, grid, (0..3).map(|frame| (frame, packet)));
                assert!(after.iter().all(|(after, _)| *after == 2_000), "{after:?}");
                assert!(lead.duration() < FRAME);
            }
        }
    }

    #[test]
    fn a_grid_comes_into_company_in_small_steps() {
        let mut lead = Lead::default();
        let met = follow(&mut lead, 0, (0..50).map(|frame| (frame, 5_000)));
        assert_eq!(met[49].0, 2_000);
        // The caller's path changes: its packets come at another time from now on.
        let met = follow(&mut lead, 0, (50..150).map(|frame| (frame, 12_000)));
        for pair in met.windows(2) {
            assert!(pair[0].1.abs_diff(pair[1].1) <= STEP_US, "{pair:?}");
        }
        assert_eq!(met[99].0, 2_000);
    }

    #[test]
    fn a_clock_that_is_not_ours_never_makes_it_jump() {
        // 500 ppm, ten times what telephones have, both ways: through three frames.
        for faster in [true, false] {
            let mut lead = Lead::default();
            let drift = |frame: u64| {
                let drift = frame * 10;
                (frame, if faster { 200_000 - drift } else { drift })
            };
            let met = follow(&mut lead, 7_000, (0..6_000).map(drift));
            for pair in met.windows(2) {
                assert!(pair[0].1.abs_diff(pair[1].1) <= STEP_US, "{pair:?}");
                assert!(pair[1].1 <= MOST_US);
            }
            let together = met
                .iter()
                .filter(|(after, _)| (1_500..2_500).contains(after));
            assert!(together.count() > 5_400, "faster: {faster}");
        }
    }

    #[test]
    fn jitter_is_not_followed_and_packets_without_a_time_are_not() {
        let jitter = |frame: u64| (frame, 9_000 + frame * 7_919 % 3_000);
        let mut lead = Lead::default();
        let met = follow(&mut lead, 0, (0..500).map(jitter));
        let first = met[20].1;
        assert!(
            met[20..]
                .iter()
                .all(|(_, lead)| lead.abs_diff(first) < 1_000)
        );

        let wild = |frame: u64| (frame, frame * 7_919 % FRAME_US);
        let mut lead = Lead::default();
        let met = follow(&mut lead, 0, (0..500).map(wild));
        assert!(met[50..].windows(2).all(|pair| pair[0].1 == pair[1].1));
    }

    #[test]
    fn only_with_a_packet_a_frame_may_go_out_before_its_time() {
        let mut arrivals = Arrivals::default();
        arrivals.note(at(0), true);
        assert_eq!(arrivals.allowance(), WINDOW);
        arrivals.note(at(3_000), false);
        assert_eq!(arrivals.allowance(), Duration::ZERO);
    }
}
