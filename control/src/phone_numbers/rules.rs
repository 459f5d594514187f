//! What a phone number is and what it does. Pure.

use crate::http::validate::Kind;
use crate::http::wire::body;
use crate::words::words;

pub use crate::numbers::{digits, is_wire_number};

/// Who carries the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The cloud telephony vendor.
    Telco,
    /// A trunk of the account.
    Sip,
    /// A regional carrier's short code; its word.
    Regional(String),
}

/// The word of the API.
impl std::fmt::Display for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Telco => "telco",
            Self::Sip => "sip",
            Self::Regional(name) => name,
        })
    }
}

impl std::str::FromStr for Provider {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name {
            "telco" => Self::Telco,
            "sip" => Self::Sip,
            other => Self::Regional(other.to_owned()),
        })
    }
}

words! {
    /// What is done with a call when no agent answers.
    pub enum FallbackAction { Voicemail = "voicemail", Forward = "forward", Hangup = "hangup" }
}

/// How long a number rings, when its rules do not say; seconds.
pub const MAX_RING_SECONDS: u32 = 30;

const RING: Kind = Kind::int(5, 120);

body! {
    /// Applied when no agent answers (document 3, routing rules). The body of `POST /phone-numbers/{id}/routing`.
    #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
    pub struct RoutingRules = "SetRouting";
    required fallback_action: FallbackAction, "What is done with a call that no agent answers";
    nullable fallback_number: String = Kind::Callee, "Required when fallback_action is forward";
    nullable max_ring_seconds: u32 = RING, "How long a call rings while no agent can answer (default 30)";
}

impl RoutingRules {
    /// Whether they can be followed.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.fallback_action == FallbackAction::Forward && self.fallback_number.is_none() {
            return Err("Field required when fallback_action is forward");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_forward_takes_a_number() {
        let mut rules = RoutingRules {
            fallback_action: FallbackAction::Forward,
            fallback_number: None,
            max_ring_seconds: None,
        };
        assert!(rules.check().is_err());
        rules.fallback_number = Some("+15550100".to_owned());
        assert_eq!(rules.check(), Ok(()));
        rules.fallback_action = FallbackAction::Hangup;
        rules.fallback_number = None;
        assert_eq!(rules.check(), Ok(()));
    }
}
