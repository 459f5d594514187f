//! What a caller hears. Pieces of agent audio are placed at their playing time: at once when nothing
//! waits, behind what waits else; an interruption takes back what is not yet played. Pure: time is a
//! position in samples since the call's start, at the player's rate.

use std::collections::VecDeque;

/// The loudspeaker of a caller, and a record of all that came out of it.
pub(crate) struct Player {
    rate: u32,
    sound: Vec<i16>,
    waiting: VecDeque<Piece>,
    marks: VecDeque<Mark>,
}

struct Piece {
    id: u64,
    start: u64,
    len: u64,
}

struct Mark {
    name: String,
    /// Echoed once this much was played.
    place: u64,
}

/// What came out of the loudspeaker, to be told to the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlaybackReport {
    /// So much of the audio message was played, ms.
    Played { id: u64, ms: u64 },
    /// Everything before this mark was played, or taken back.
    Mark(String),
}

impl Player {
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            rate,
            sound: Vec::new(),
            waiting: VecDeque::new(),
            marks: VecDeque::new(),
        }
    }

    /// Takes a piece that arrived now; gives the position at which it is heard.
    pub(crate) fn play(&mut self, now: u64, id: u64, samples: &[i16]) -> u64 {
        let start = self.end().max(now);
        // A call is bounded by its longest duration, and so is this.
        self.sound
            .resize(usize::try_from(start).unwrap_or(usize::MAX), 0);
        self.sound.extend_from_slice(samples);
        self.waiting.push_back(Piece {
            id,
            start,
            len: samples.len() as u64,
        });
        start
    }

    /// A mark stands behind all that has arrived so far.
    pub(crate) fn mark(&mut self, name: String) {
        self.marks.push_back(Mark {
            name,
            place: self.end(),
        });
    }

    /// Takes back every piece up to that id, as far as it is not yet played.
    pub(crate) fn drop_to(&mut self, now: u64, id: u64) -> Vec<PlaybackReport> {
        let mut heard = self.advance(now);
        let cut = now.min(self.end());
        let rest = self
            .sound
            .split_off(usize::try_from(cut).unwrap_or(usize::MAX));
        let mut kept = Vec::new();
        for piece in std::mem::take(&mut self.waiting) {
            let played = cut.saturating_sub(piece.start).min(piece.len);
            if piece.id <= id {
                heard.push(PlaybackReport::Played {
                    id: piece.id,
                    ms: self.ms(played),
                });
            } else {
                let from = usize::try_from((piece.start + played).saturating_sub(cut))
                    .unwrap_or(usize::MAX);
                let to = usize::try_from((piece.start + piece.len).saturating_sub(cut))
                    .unwrap_or(usize::MAX);
                kept.push((piece.id, rest.get(from..to).unwrap_or_default().to_vec()));
            }
        }
        for (id, samples) in kept {
            self.play(now, id, &samples);
        }
        heard
    }

    /// Takes back all that is not yet played; every mark is echoed at once, as a telephony vendor does.
    pub(crate) fn clear(&mut self, now: u64) -> Vec<PlaybackReport> {
        let mut heard = self.drop_to(now, u64::MAX);
        heard.extend(
            self.marks
                .drain(..)
                .map(|mark| PlaybackReport::Mark(mark.name)),
        );
        heard
    }

    /// What was played to its end since the last question.
    pub(crate) fn advance(&mut self, now: u64) -> Vec<PlaybackReport> {
        let mut heard = Vec::new();
        while let Some(piece) = self.waiting.front() {
            if piece.start + piece.len > now {
                break;
            }
            heard.push(PlaybackReport::Played {
                id: piece.id,
                ms: self.ms(piece.len),
            });
            self.waiting.pop_front();
        }
        while self.marks.front().is_some_and(|mark| mark.place <= now) {
            heard.extend(
                self.marks
                    .pop_front()
                    .map(|mark| PlaybackReport::Mark(mark.name)),
            );
        }
        heard
    }

    /// Where the last sample ends that was or will be heard.
    pub(crate) fn end(&self) -> u64 {
        self.sound.len() as u64
    }

    /// All that was heard, from the call's first sample on.
    pub(crate) fn sound(&self) -> &[i16] {
        &self.sound
    }

    fn ms(&self, samples: u64) -> u64 {
        samples * 1000 / u64::from(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 16;

    fn played(id: u64, ms: u64) -> PlaybackReport {
        PlaybackReport::Played { id, ms }
    }

    #[test]
    fn pieces_queue_and_gaps_are_silence() {
        let mut player = Player::new(16_000);
        assert_eq!(player.play(10 * MS, 1, &[1; 320]), 10 * MS);
        assert_eq!(player.play(11 * MS, 2, &[2; 320]), 30 * MS);
        assert_eq!(player.play(100 * MS, 3, &[3; 320]), 100 * MS);
        assert_eq!(player.sound()[..160], [0; 160]);
        assert_eq!(player.sound()[50 * 16..100 * 16], [0; 800]);
        assert_eq!(player.end(), 120 * MS);
        assert_eq!(player.advance(30 * MS), [played(1, 20)]);
        assert_eq!(player.advance(119 * MS), [played(2, 20)]);
    }

    #[test]
    fn an_interruption_takes_back_what_was_not_heard() {
        let mut player = Player::new(16_000);
        player.play(0, 1, &[1; 320]);
        player.play(0, 2, &[2; 320]);
        player.play(0, 7, &[7; 320]);
        assert_eq!(player.drop_to(25 * MS, 2), [played(1, 20), played(2, 5)]);
        // The newer piece moves up to where the old ones were cut.
        assert_eq!(player.end(), 45 * MS);
        assert_eq!(
            player.sound()[24 * 16..26 * 16],
            [[2; 16], [7; 16]].concat()
        );
    }

    #[test]
    fn a_clear_echoes_all_marks_at_once() {
        let mut player = Player::new(8000);
        player.play(0, 0, &[1; 160]);
        player.mark("a".to_owned());
        player.play(0, 0, &[1; 1600]);
        player.mark("b".to_owned());
        assert_eq!(
            player.advance(160),
            [played(0, 20), PlaybackReport::Mark("a".to_owned())]
        );
        let heard = player.clear(320);
        assert_eq!(heard, [played(0, 20), PlaybackReport::Mark("b".to_owned())]);
        assert_eq!(player.end(), 320);
    }

    #[test]
    fn taking_back_from_an_empty_queue_changes_nothing() {
        let mut player = Player::new(16_000);
        assert_eq!(player.clear(500), []);
        player.play(0, 1, &[1; 16]);
        assert_eq!(player.drop_to(900, 5), [played(1, 1)]);
        assert_eq!(player.end(), 16);
    }
}
