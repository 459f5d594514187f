//! One id type a resource, so that an agent's id cannot be passed where a call's is wanted. All are
//! UUIDs; new ones are version 7 (RFC 9562 section 5.7), so they sort by the time they were made.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use crate::time::Clock;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            /// A new id: version 7 with the clock's time.
            pub fn new(clock: &Clock) -> Self {
                Self(v7(clock))
            }

            /// The nil UUID: belongs to nothing.
            pub const NIL: Self = Self(uuid::Uuid::nil());

            /// `None` of [`NIL`](Self::NIL).
            pub fn known(self) -> Option<Self> {
                (self != Self::NIL).then_some(self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                uuid::Uuid::try_parse(text).map(Self)
            }
        }

        impl From<$name> for crate::db::Arg {
            fn from(id: $name) -> Self {
                Self::Text(id.to_string())
            }
        }

        impl crate::db::Value for $name {
            const KIND: crate::db::Kind = crate::db::Kind::Text;
        }

        crate::db::text_column!($name);

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "format": "uuid"})
            }
        }
    )+

        /// Hands the names of all id types to another macro, for the rooms above that give them more to do.
        macro_rules! each_id {
            ($then:ident) => { $then! { $($name),+ } };
        }

        pub(crate) use each_id;
    };
}

ids! {
    /// A tenant.
    AccountId,
    /// An API key (its row; the key string holds a shorter public part).
    ApiKeyId,
    AgentId,
    /// A call, which is also its session and its conversation.
    CallId,
    RecordingId,
    VoiceId,
    EventId,
    UsageTriggerId,
    UsageFiringId,
    /// Credit given to an account, or taken.
    AdjustmentId,
    /// A reason not to call a number.
    SuppressionId,
    /// A tool of an agent.
    ToolId,
    /// A document of an agent's knowledge base.
    DocumentId,
    /// A turn of a transcript.
    TurnId,
    /// A SIP trunk.
    TrunkId,
    /// A phone number that an account registered.
    PhoneNumberId,
    /// One process start of one node.
    NodeId,
}

impl crate::db::Owner for AccountId {}

/// A session is its call.
pub type SessionId = CallId;
/// A conversation is its call.
pub type ConversationId = CallId;

/// Ids that this process makes within a millisecond follow one another, as lists do that are sorted by them.
static ORDER: Mutex<AssertUnwindSafe<uuid::ContextV7>> =
    Mutex::new(AssertUnwindSafe(uuid::ContextV7::new()));

fn v7(clock: &Clock) -> uuid::Uuid {
    let micros = clock.now().micros();
    let seconds = u64::try_from(micros.div_euclid(1_000_000)).unwrap_or(0);
    let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or(0);
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(&ORDER, seconds, nanos))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use std::time::Duration;

    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn ids_sort_by_the_order_they_were_made_in() {
        let clock = Clock::fixed(Timestamp(1_767_323_045_000_006));
        let first = AgentId::new(&clock);
        let second = AgentId::new(&clock);
        assert!(first < second, "within a millisecond");
        clock.advance(Duration::from_millis(2));
        assert!(second < AgentId::new(&clock));
        assert_eq!(first.to_string().parse::<AgentId>().unwrap(), first);
    }
}
