//! What the providers of one call did wrong, as its diagnostics tell it. Written by the providers as they work,
//! read when the call is over.

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::queue::lock;

/// The most faults that are kept of a call: each kind of fault has its first, and a screen holds them.
pub const MOST: usize = 20;

/// One try of a provider that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFault {
    /// Offset on the call's clock.
    pub at_ms: u64,
    /// `recogniser`, `model` or `voice`.
    pub stage: Cow<'static, str>,
    /// The provider's name in the settings.
    pub provider: String,
    /// The provider's own word for the fault (`invalid_api_key`), else `status_401`, else what happened:
    /// `broken`, `stalled`, `wrong`.
    pub code: String,
    pub message: String,
}

impl ProviderFault {
    /// Whether it is the same fault at another time.
    fn repeats(&self, other: &Self) -> bool {
        self.stage == other.stage
            && self.provider == other.provider
            && self.code == other.code
            && self.message == other.message
    }
}

/// The faults of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderFaults {
    /// Oldest first, [`MOST`] of them.
    pub kept: Vec<ProviderFault>,
    /// How many there were.
    pub count: u64,
}

/// The log that a call's providers share.
#[derive(Debug)]
pub struct FaultLog {
    began: Instant,
    /// Held for a few instructions, once a fault.
    faults: Mutex<ProviderFaults>,
}

impl FaultLog {
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            faults: Mutex::default(),
        }
    }

    /// Notes a fault that happens now.
    pub fn add(
        &self,
        now: Instant,
        stage: &'static str,
        provider: &str,
        code: String,
        message: String,
    ) {
        lock(&self.faults).add(ProviderFault {
            at_ms: millis(now.saturating_duration_since(self.began)),
            stage: Cow::Borrowed(stage),
            provider: provider.to_owned(),
            code,
            message,
        });
    }

    /// The faults of a call that is just over and lasted so long on its own clock, which began after this log did.
    pub fn over(&self, now: Instant, lasted: Duration) -> ProviderFaults {
        let before = millis(
            now.saturating_duration_since(self.began)
                .saturating_sub(lasted),
        );
        let mut faults = lock(&self.faults).clone();
        for fault in &mut faults.kept {
            fault.at_ms = fault.at_ms.saturating_sub(before);
        }
        faults
    }
}

impl ProviderFaults {
    /// Keeps a fault. Where there is no room, one of another kind takes the place of the newest that repeats an
    /// earlier one.
    fn add(&mut self, fault: ProviderFault) {
        self.count += 1;
        if self.kept.len() == MOST {
            let is_new = !self.kept.iter().any(|kept| kept.repeats(&fault));
            let repeated = (1..self.kept.len()).rev().find(|&at| {
                let (earlier, later) = self.kept.split_at(at);
                earlier.iter().any(|kept| kept.repeats(&later[0]))
            });
            match repeated {
                Some(at) if is_new => {
                    self.kept.remove(at);
                }
                _ => return,
            }
        }
        self.kept.push(fault);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at_ms: u64, stage: &'static str, message: &str) -> ProviderFault {
        ProviderFault {
            at_ms,
            stage: Cow::Borrowed(stage),
            provider: "cloud".to_owned(),
            code: "status_401".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn a_fault_of_another_kind_is_kept_behind_any_number_of_the_first() {
        let mut faults = ProviderFaults::default();
        for at in 0..100 {
            faults.add(fault(at, "recogniser", "no key"));
        }
        faults.add(fault(100, "model", "no quota"));
        faults.add(fault(101, "model", "no quota"));
        assert_eq!((faults.kept.len(), faults.count), (MOST, 102));
        assert_eq!(faults.kept[0], fault(0, "recogniser", "no key"));
        assert_eq!(faults.kept[MOST - 1], fault(100, "model", "no quota"));
    }

    #[test]
    fn of_endless_different_faults_the_first_are_kept() {
        let mut faults = ProviderFaults::default();
        for at in 0..100 {
            faults.add(fault(at, "voice", &at.to_string()));
        }
        let kept: Vec<u64> = faults.kept.iter().map(|fault| fault.at_ms).collect();
        assert_eq!(kept, (0..MOST as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_fault_stands_on_the_clock_of_its_call() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let log = FaultLog::new(began);
        for ms in [0, 700] {
            log.add(
                at(ms),
                "model",
                "cloud",
                "broken".to_owned(),
                ms.to_string(),
            );
        }
        // The call's clock began 200 ms after the log.
        let faults = log.over(at(1000), Duration::from_millis(800));
        let at: Vec<u64> = faults.kept.iter().map(|fault| fault.at_ms).collect();
        assert_eq!(at, [0, 500]);
    }
}
