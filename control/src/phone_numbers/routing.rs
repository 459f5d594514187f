//! What becomes of a call to a number while no agent answers it (document 3, routing rules): it rings and
//! asks again, and when its time is over the number's rules are applied. Pure: time and randomness are
//! arguments.
//!
//! | Happened | Time is left | Next |
//! |---|---|---|
//! | `Refused`, the number has no rules | | `Refuse` |
//! | `Refused` | yes | `Wait`, at most until its time is over |
//! | `Refused` | no | `Message`, `Forward` or `Refuse`, as `fallback_action` says |
//! | `Due` | | `Ask` |
//! | `Left` | | `Drop` |
//! | `Leaving` | | `Refuse`: this node takes no calls any more |

use std::time::Duration;

use super::rules::{FallbackAction, MAX_RING_SECONDS, RoutingRules};

/// Why no agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The number has no agent, or one that is not active.
    Agent,
    /// Every place that the account, the agent or the trunk has is taken.
    Room,
    /// This server cannot serve the call now.
    Server,
}

impl Lack {
    /// The final response that tells it (RFC 3261 sections 21.4.18, 21.4.22 and 21.5.4).
    pub const fn code(self) -> u16 {
        match self {
            Self::Agent => 480,
            Self::Room => 486,
            Self::Server => 503,
        }
    }
}

/// What the lobby is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The call was asked for and not let in.
    Refused(Lack),
    /// The pause is over.
    Due,
    /// The caller hung up.
    Left,
    /// This process ends.
    Leaving,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Let the caller hear it ring until then, on the clock that `now` is of.
    Wait(Duration),
    /// Ask whether somebody can answer now.
    Ask,
    /// Record what the caller has to say.
    Message(Lack),
    /// Call this number, and let both speak.
    Forward(String, Lack),
    /// The call is over, with the final response of [`Lack::code`].
    Refuse(Lack),
    /// The caller is gone.
    Drop,
}

/// The first pause between two tries; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest: a caller who rings answers a freed place within it.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// One call that rings.
#[derive(Clone, Debug)]
pub struct Lobby {
    rules: Option<RoutingRules>,
    until: Duration,
    pause: Duration,
    lack: Lack,
}

impl Lobby {
    /// A call that begins to ring at `now`. Without rules nothing is waited for.
    pub fn new(rules: Option<RoutingRules>, now: Duration) -> Self {
        let rings = rules.as_ref().and_then(|rules| rules.max_ring_seconds);
        let rings = Duration::from_secs(rings.unwrap_or(MAX_RING_SECONDS).into());
        Self {
            rules,
            until: now + rings,
            pause: FIRST_PAUSE,
            lack: Lack::Agent,
        }
    }

    /// One thing happened at `now`. `random`: any number, so that the calls of a full server do not ask
    /// all at once.
    pub fn handle(&mut self, now: Duration, happened: Happened, random: u64) -> Next {
        match happened {
            Happened::Due => Next::Ask,
            Happened::Left => Next::Drop,
            Happened::Leaving => Next::Refuse(Lack::Server),
            Happened::Refused(lack) => {
                self.lack = lack;
                match &self.rules {
                    None => Next::Refuse(lack),
                    Some(_) if now < self.until => {
                        Next::Wait((now + self.next_pause(random)).min(self.until))
                    }
                    Some(rules) => self.fall_back(rules),
                }
            }
        }
    }

    fn fall_back(&self, rules: &RoutingRules) -> Next {
        match (rules.fallback_action, &rules.fallback_number) {
            (FallbackAction::Voicemail, _) => Next::Message(self.lack),
            (FallbackAction::Forward, Some(number)) => Next::Forward(number.clone(), self.lack),
            // Rules without their number are refused when they are written.
            (FallbackAction::Forward, None) | (FallbackAction::Hangup, _) => {
                Next::Refuse(self.lack)
            }
        }
    }

    /// Three to five quarters of the pause that is due.
    fn next_pause(&mut self, random: u64) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        let spread = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX);
        pause * 3 / 4 + Duration::from_micros(random % spread.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn rules(action: FallbackAction, seconds: Option<u32>) -> RoutingRules {
        RoutingRules {
            fallback_action: action,
            fallback_number: (action == FallbackAction::Forward).then(|| "+15550100".to_owned()),
            max_ring_seconds: seconds,
        }
    }

    fn refused(lack: Lack) -> Happened {
        Happened::Refused(lack)
    }

    #[test]
    fn a_number_without_rules_refuses_at_once() {
        for lack in [Lack::Agent, Lack::Room, Lack::Server] {
            let mut lobby = Lobby::new(None, START);
            assert_eq!(lobby.handle(START, refused(lack), 0), Next::Refuse(lack));
        }
        assert_eq!(
            [Lack::Agent, Lack::Room, Lack::Server].map(Lack::code),
            [480, 486, 503]
        );
    }

    /// Asks until the end; the pauses, and what came of it.
    fn rings(rules: RoutingRules, random: u64) -> (Vec<Duration>, Duration, Next) {
        let mut lobby = Lobby::new(Some(rules), START);
        let (mut now, mut pauses) = (START, Vec::new());
        loop {
            match lobby.handle(now, refused(Lack::Room), random) {
                Next::Wait(until) => {
                    assert!(until > now, "it asks without a pause");
                    pauses.push(until - now);
                    now = until;
                }
                end => return (pauses, now - START, end),
            }
            assert_eq!(lobby.handle(now, Happened::Due, random), Next::Ask);
        }
    }

    #[test]
    fn it_asks_again_in_growing_pauses_until_its_time_is_over_and_no_longer() {
        for (random, most) in [(0, 3.0), (u64::MAX, 5.0), (12_345, 5.0)] {
            let (pauses, took, end) = rings(rules(FallbackAction::Hangup, Some(60)), random);
            assert_eq!(took, Duration::from_secs(60), "to the moment");
            assert_eq!(end, Next::Refuse(Lack::Room));
            let (_, whole) = pauses
                .split_last()
                .unwrap_or_else(|| unreachable!("pauses"));
            assert!(whole[0] >= FIRST_PAUSE * 3 / 4 && whole[0] <= FIRST_PAUSE * 5 / 4);
            let longest = whole.iter().max().map_or(0.0, Duration::as_secs_f64);
            assert!(longest <= most, "{longest}");
            assert!((12..=30).contains(&pauses.len()), "{}", pauses.len());
        }
    }

    #[test]
    fn calls_that_were_refused_together_do_not_ask_together() {
        let first = |random| {
            let mut lobby = Lobby::new(Some(rules(FallbackAction::Hangup, None)), START);
            lobby.handle(START, refused(Lack::Room), random)
        };
        assert_ne!(first(1), first(200_000));
    }

    #[test]
    fn the_rules_say_what_follows() {
        let (_, took, end) = rings(rules(FallbackAction::Voicemail, None), 7);
        assert_eq!(took, Duration::from_secs(MAX_RING_SECONDS.into()));
        assert_eq!(end, Next::Message(Lack::Room));
        let (_, took, end) = rings(rules(FallbackAction::Forward, Some(5)), 7);
        assert_eq!(took, Duration::from_secs(5));
        assert_eq!(end, Next::Forward("+15550100".to_owned(), Lack::Room));
        let broken = RoutingRules {
            fallback_number: None,
            ..rules(FallbackAction::Forward, Some(5))
        };
        assert_eq!(rings(broken, 7).2, Next::Refuse(Lack::Room));
    }

    #[test]
    fn the_last_refusal_is_told() {
        let mut lobby = Lobby::new(Some(rules(FallbackAction::Hangup, Some(5))), START);
        lobby.handle(START, refused(Lack::Agent), 0);
        let over = START + Duration::from_secs(5);
        assert_eq!(
            lobby.handle(over, refused(Lack::Server), 0),
            Next::Refuse(Lack::Server)
        );
    }

    #[test]
    fn who_leaves_is_waited_for_no_longer() {
        let mut lobby = Lobby::new(Some(rules(FallbackAction::Voicemail, None)), START);
        lobby.handle(START, refused(Lack::Agent), 0);
        assert_eq!(lobby.handle(START, Happened::Left, 0), Next::Drop);
        assert_eq!(
            lobby.handle(START, Happened::Leaving, 0),
            Next::Refuse(Lack::Server)
        );
    }
}
