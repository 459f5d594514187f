//! Tags, branches, Call-IDs and jitter, all from a seed: the same seed gives the same ids.
//!
//! A stranger must not guess a tag (it is what protects a dialog, RFC 3261 19.3), so the numbers are
//! SHA-256 of the seed and a counter rather than a plain generator.

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// What RFC 3261 17.2.3 starts every branch with.
pub const MAGIC_COOKIE: &str = "z9hG4bK";

/// A stream of ids.
#[derive(Clone)]
pub struct Ids {
    seed: [u8; 32],
    counter: u64,
    /// What is left of the last digest.
    left: [u8; 32],
    used: usize,
}

impl Ids {
    /// `seed`: 32 random bytes from the shell, or any bytes in a test.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            counter: 0,
            left: [0; 32],
            used: 32,
        }
    }

    /// A seed for tests and simulations.
    pub fn from_number(number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Self::new(seed)
    }

    /// Another stream, which says nothing of this one.
    pub fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        for chunk in seed.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes());
        }
        Self::new(seed)
    }

    pub fn number(&mut self) -> u64 {
        if self.used + 8 > self.left.len() {
            let mut hash = Sha256::new();
            hash.update(self.seed);
            hash.update(self.counter.to_le_bytes());
            self.left = hash.finalize().into();
            self.counter += 1;
            self.used = 0;
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.left[self.used..self.used + 8]);
        self.used += 8;
        u64::from_le_bytes(bytes)
    }

    /// A tag: 64 bits (RFC 3261 19.3 wants at least 32).
    pub fn tag(&mut self) -> String {
        format!("{:016x}", self.number())
    }

    /// A branch of 64 bits after the magic cookie.
    pub fn branch(&mut self) -> String {
        format!("{MAGIC_COOKIE}{:016x}", self.number())
    }

    /// A Call-ID of 128 bits, which names no host.
    pub fn call_id(&mut self) -> String {
        let mut id = String::with_capacity(32);
        for _ in 0..2 {
            _ = write!(id, "{:016x}", self.number());
        }
        id
    }

    /// An evenly spread number below `bound` (0 for a bound of 0). The bias of the remainder is below
    /// one in 2⁴⁰ for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number().checked_rem(bound).unwrap_or(0)
    }

    /// An evenly spread time in `from..=to`.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let width = to.saturating_sub(from).as_micros();
        from + Duration::from_micros(
            self.below(
                u64::try_from(width)
                    .unwrap_or(u64::MAX - 1)
                    .saturating_add(1),
            ),
        )
    }
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ids(…)")
    }
}
