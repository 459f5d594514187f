//! Who may spend. Pure.

/// Where an account stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether balances count at all.
    pub prepaid: bool,
    /// The operator blocked it.
    pub blocked: bool,
    /// Millionths of a cent.
    pub balance_microcents: i64,
}

impl Standing {
    /// Whole cents, rounded down, so that what cannot be spent is not shown.
    pub const fn balance_cents(self) -> i64 {
        whole_cents(self.balance_microcents)
    }

    /// Whether it may not spend: blocked, or prepaid with less than a cent.
    pub const fn is_hard_blocked(self) -> bool {
        self.blocked || (self.prepaid && self.balance_cents() <= 0)
    }

    /// What a refused client reads.
    pub fn message(self) -> String {
        if self.blocked {
            "This account is blocked: ask the operator of this installation".to_owned()
        } else {
            "This account has no credit left".to_owned()
        }
    }
}

/// Millionths of a cent as whole cents, rounded down.
pub const fn whole_cents(microcents: i64) -> i64 {
    microcents.div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_cent_blocks_only_where_balances_count() {
        let at = |prepaid, blocked, balance_microcents| Standing {
            prepaid,
            blocked,
            balance_microcents,
        };
        assert!(!at(false, false, 0).is_hard_blocked());
        assert!(!at(true, false, 1_000_000).is_hard_blocked());
        assert!(at(true, false, 999_999).is_hard_blocked());
        assert!(at(true, false, -1).is_hard_blocked());
        assert!(at(false, true, 5_000_000).is_hard_blocked());
        assert_eq!(at(true, false, -1).balance_cents(), -1);
    }
}
