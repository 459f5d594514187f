//! When a request is tried again, where, and how long each try may take. Pure: the time spent is an
//! argument.

use std::time::Duration;

use super::complaint::Complaint;

/// What went wrong with one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// 429 or 5xx: the same request may pass later; `after`: when, if the server says so.
    Busy {
        status: u16,
        after: Option<Duration>,
        words: Complaint,
    },
    /// Another status: asking again changes nothing.
    Refused { status: u16, words: Complaint },
    /// The connection could not be made, or broke.
    Broken(String),
    /// Nothing came within the deadline.
    Stalled(Duration),
    /// An answer that is none.
    Wrong(String),
    /// An answer that tells of a fault in the provider's own words.
    Told(Complaint),
    /// An answer of another kind than was asked for: what it is, and the text of a page. Any other answer may hold what was
    /// said in the call, which is nobody's to keep beside a fault.
    Garbage { what: String, page: Option<String> },
}

impl Fault {
    /// In one word, as it is counted.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Refused { .. } => "refused",
            Self::Broken(_) => "broken",
            Self::Stalled(_) => "stalled",
            Self::Wrong(_) | Self::Told(_) | Self::Garbage { .. } => "wrong",
        }
    }

    /// In one word, as diagnostics show it: the provider's own, where it has one.
    pub(super) fn code(&self) -> String {
        let own = match self {
            Self::Busy { words, .. } | Self::Refused { words, .. } | Self::Told(words) => {
                words.code.clone()
            }
            _ => None,
        };
        let status = || self.status().map(|status| format!("status_{status}"));
        own.or_else(status)
            .unwrap_or_else(|| self.kind().to_owned())
    }

    /// The HTTP status, where there was one.
    pub(super) const fn status(&self) -> Option<u16> {
        match self {
            Self::Busy { status, .. } | Self::Refused { status, .. } => Some(*status),
            Self::Broken(_)
            | Self::Stalled(_)
            | Self::Wrong(_)
            | Self::Told(_)
            | Self::Garbage { .. } => None,
        }
    }

    /// What there is to say of it. The provider's part may repeat keys and what was said in the call: it comes as
    /// `shown` makes it.
    pub(super) fn words(&self, shown: impl Fn(&str) -> String) -> String {
        match self {
            Self::Busy { status, words, .. } | Self::Refused { status, words } => {
                format!("status {status}: {}", shown(&words.message))
            }
            Self::Broken(why) => format!("the connection failed: {}", shown(why)),
            Self::Stalled(within) => format!("nothing came within {} ms", within.as_millis()),
            Self::Wrong(why) => shown(why),
            Self::Told(words) => shown(&words.message),
            // An answer that is neither an error nor a page may hold what was said in the call, which is nobody's to keep
            // beside a fault.
            Self::Garbage { what, page: None } => shown(what),
            Self::Garbage {
                what,
                page: Some(text),
            } => format!("{}: {}", shown(what), shown(text)),
        }
    }
}

/// The tries of one request. Where there is a fallback it takes over at the first fault; else what may
/// pass is tried once more.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// All tries together.
    budget: Duration,
    /// One try that something may follow.
    patience: Duration,
    fallback: bool,
    /// Whether a silent server is asked again when nobody else is there to ask.
    insists: bool,
    tried: bool,
}

/// One try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Try {
    /// Wait before it.
    pub(super) pause: Duration,
    /// Its first answer has to come within this, counted after the pause.
    pub(super) within: Duration,
}

/// What follows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Again(Try),
    /// The fallback takes over.
    HandOver,
    GiveUp,
}

/// Between the tries where the server names no time.
const PAUSE: Duration = Duration::from_millis(250);

/// A try shorter than this is not worth making.
const SHORTEST: Duration = Duration::from_millis(300);

impl Plan {
    /// A language model's answer: its first word has to come within the 8 s that a turn grants it. A
    /// silent one is given up for the fallback halfway, else waited for: asking it again would only
    /// begin its work anew.
    pub(super) const fn answer(fallback: bool) -> Self {
        Self {
            budget: Duration::from_millis(7_500),
            patience: Duration::from_millis(3_500),
            fallback,
            insists: false,
            tried: false,
        }
    }

    /// A segment's sound: no bytes for 1.5 s is a fault, and then it is asked for again, in the other
    /// voice if there is one.
    pub(super) const fn sound(fallback: bool) -> Self {
        Self {
            budget: Duration::from_millis(4_000),
            patience: Duration::from_millis(1_500),
            fallback,
            insists: true,
            tried: false,
        }
    }

    /// An utterance's text. The longest that a turn waits for it is 6 s.
    pub(super) const fn transcript(fallback: bool) -> Self {
        Self {
            budget: Duration::from_millis(5_500),
            patience: Duration::from_millis(2_000),
            fallback,
            insists: false,
            tried: false,
        }
    }

    /// The first try.
    pub(super) fn first(&self) -> Try {
        Try {
            pause: Duration::ZERO,
            within: if self.fallback || self.insists {
                self.patience
            } else {
                self.budget
            },
        }
    }

    /// What follows a fault, `spent` after the first try began.
    pub(super) fn next(&mut self, spent: Duration, fault: &Fault) -> Next {
        if self.fallback {
            return Next::HandOver;
        }
        if std::mem::replace(&mut self.tried, true) {
            return Next::GiveUp;
        }
        let pause = match fault {
            Fault::Busy { after, .. } => after.unwrap_or(PAUSE),
            Fault::Broken(_) | Fault::Wrong(_) | Fault::Told(_) | Fault::Garbage { .. } => {
                Duration::ZERO
            }
            Fault::Stalled(_) if self.insists => Duration::ZERO,
            Fault::Stalled(_) | Fault::Refused { .. } => return Next::GiveUp,
        };
        let left = self.budget.saturating_sub(spent + pause);
        let within = if self.insists {
            left.min(self.patience)
        } else {
            left
        };
        if within < SHORTEST {
            return Next::GiveUp;
        }
        Next::Again(Try { pause, within })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn busy(after: Option<Duration>) -> Fault {
        Fault::Busy {
            status: 429,
            after,
            words: Complaint::default(),
        }
    }

    fn refused() -> Fault {
        Fault::Refused {
            status: 401,
            words: Complaint::default(),
        }
    }

    fn again(pause: u64, within: u64) -> Next {
        Next::Again(Try {
            pause: ms(pause),
            within: ms(within),
        })
    }

    #[test]
    fn a_busy_model_is_asked_once_more_within_the_budget() {
        let mut plan = Plan::answer(false);
        assert_eq!(plan.first().within, ms(7_500));
        assert_eq!(plan.next(ms(100), &busy(None)), again(250, 7_150));
        assert_eq!(plan.next(ms(500), &busy(None)), Next::GiveUp);
        assert_eq!(
            Plan::answer(false).next(ms(100), &busy(Some(ms(2_000)))),
            again(2_000, 5_400)
        );
        assert_eq!(
            Plan::answer(false).next(ms(100), &busy(Some(ms(60_000)))),
            Next::GiveUp,
            "the turn does not wait a minute"
        );
        assert_eq!(
            Plan::answer(false).next(ms(7_400), &busy(None)),
            Next::GiveUp
        );
    }

    #[test]
    fn what_asking_again_does_not_change_is_not_asked_again() {
        assert_eq!(Plan::answer(false).next(ms(50), &refused()), Next::GiveUp);
        let stalled = Fault::Stalled(ms(7_500));
        assert_eq!(Plan::answer(false).next(ms(7_500), &stalled), Next::GiveUp);
    }

    #[test]
    fn a_fallback_takes_over_at_once_whatever_the_fault() {
        for fault in [
            busy(Some(ms(60_000))),
            refused(),
            Fault::Stalled(ms(3_500)),
            Fault::Broken(String::new()),
            Fault::Wrong(String::new()),
        ] {
            let mut plan = Plan::answer(true);
            assert_eq!(plan.first().within, ms(3_500));
            assert_eq!(plan.next(ms(3_500), &fault), Next::HandOver);
        }
    }

    #[test]
    fn a_silent_voice_is_asked_again_and_no_try_is_longer_than_its_deadline() {
        let mut plan = Plan::sound(false);
        assert_eq!(plan.first().within, ms(1_500));
        let stalled = Fault::Stalled(ms(1_500));
        assert_eq!(plan.next(ms(1_500), &stalled), again(0, 1_500));
        assert_eq!(plan.next(ms(3_000), &stalled), Next::GiveUp);
        assert_eq!(Plan::sound(false).next(ms(3_800), &stalled), Next::GiveUp);
    }
}
