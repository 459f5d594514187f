//! The one rule for all writes of keys: nobody gives by a key what they do not have.
//!
//! A write gives when somebody learns a string (a new key, a rotation), when it says which scopes the key
//! has, and when it moves the key's end to a later time or takes it away. Then the key may have no scope
//! beyond the caller's. Writes that only take away (an earlier end, a revocation) or rename give nothing.

use super::store::ApiKey;
use crate::http::scope::{Scope, Scopes};

/// A write of a key, as far as it may give something.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// A new key with these scopes.
    Create(Scopes),
    /// Another string for this key.
    Rotate(&'a ApiKey),
    /// `scopes`: the request says which scopes the key has afterwards.
    Change {
        before: &'a ApiKey,
        after: &'a ApiKey,
        scopes: bool,
    },
    Revoke,
}

impl Write<'_> {
    /// A scope that this write would give and that the caller, who has these, lacks.
    pub fn beyond(self, caller: Scopes) -> Option<Scope> {
        let given = match self {
            Self::Create(scopes) => scopes,
            Self::Rotate(key) => key.scopes,
            Self::Change {
                before,
                after,
                scopes,
            } if scopes || ends_later(before, after) => after.scopes,
            Self::Change { .. } | Self::Revoke => return None,
        };
        given.beyond(caller)
    }
}

fn ends_later(before: &ApiKey, after: &ApiKey) -> bool {
    match (before.expires_at, after.expires_at) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before), Some(after)) => after > before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AccountId, ApiKeyId};
    use crate::time::Timestamp;

    fn key(scopes: &[Scope], expires_at: Option<i64>) -> ApiKey {
        ApiKey {
            id: ApiKeyId::NIL,
            account: AccountId::NIL,
            name: "a".to_owned(),
            key_prefix: "st_live_a".to_owned(),
            scopes: scopes.iter().copied().collect(),
            expires_at: expires_at.map(Timestamp),
            revoked_at: None,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
        }
    }

    #[test]
    fn only_what_gives_is_held_against_the_caller() {
        let small: Scopes = [Scope::ApiKeysWrite, Scope::AgentsRead]
            .into_iter()
            .collect();
        let big = |expires_at| key(&[Scope::AgentsRead, Scope::CallsWrite], expires_at);
        let beyond = Some(Scope::CallsWrite);
        assert_eq!(Write::Create(big(None).scopes).beyond(small), beyond);
        assert_eq!(Write::Create(small).beyond(small), None);
        assert_eq!(Write::Rotate(&big(Some(5))).beyond(small), beyond);
        assert_eq!(Write::Revoke.beyond(small), None);
        for (before, after, expected) in [
            // Later, and never.
            (Some(5), Some(6), beyond),
            (Some(5), None, beyond),
            // The same, and earlier.
            (Some(5), Some(5), None),
            (Some(6), Some(5), None),
            (None, None, None),
            (None, Some(5), None),
        ] {
            let (before, after) = (big(before), big(after));
            let change = |before, after, scopes| {
                let change = Write::Change {
                    before,
                    after,
                    scopes,
                };
                change.beyond(small)
            };
            assert_eq!(change(&before, &after, false), expected, "{after:?}");
            assert_eq!(change(&before, &after, true), beyond, "scopes are named");
            let narrow = key(
                &[Scope::AgentsRead],
                after.expires_at.map(Timestamp::micros),
            );
            assert_eq!(change(&before, &narrow, true), None, "narrowed");
        }
    }
}
