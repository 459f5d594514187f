//! The refusal of an inbound call, as its SIP answer.

use media::rtp::sdp::Refusal;

use super::session::Unusable;
use crate::db::DbError;
use crate::http::ApiError;
use crate::http::error::Reason;

/// Why a call is not taken, as its SIP answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declined {
    pub(super) code: u16,
    /// What a Warning says of it (RFC 3261 section 20.43).
    pub(super) warning: Option<&'static str>,
}

impl Declined {
    pub(super) const NOBODY: Self = Self::with(404);
    pub(super) const AWAY: Self = Self::with(480);
    pub(super) const BUSY: Self = Self::with(486);
    pub(super) const NOT_ACCEPTABLE: Self = Self::with(488);
    /// What is offered is where the call's audio cannot go: over another version of IP, in another network, at many
    /// places.
    pub(super) const WRONG_FAMILY: Self = Self {
        code: 488,
        warning: Some("301 sidetone \"Incompatible network address formats\""),
    };
    pub(super) const MALFORMED: Self = Self::with(400);
    /// The caller may give the password of a trunk, and has not: the stack asks for it.
    pub(super) const UNPROVED: Self = Self::with(401);
    pub(super) const FORBIDDEN: Self = Self::with(403);
    pub(super) const UNAVAILABLE: Self = Self::with(503);
    /// The caller is gone: nobody hears it.
    pub(super) const CANCELED: Self = Self::with(487);

    pub(super) const fn with(code: u16) -> Self {
        Self {
            code,
            warning: None,
        }
    }
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(_) => Self::MALFORMED,
            Refusal::Family => Self::WRONG_FAMILY,
            _ => Self::NOT_ACCEPTABLE,
        }
    }
}

impl From<Unusable> for Declined {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Refused(refusal) => refusal.into(),
            Unusable::OutOfReach => Self::NOT_ACCEPTABLE,
        }
    }
}

pub(super) fn unavailable(error: &DbError) -> Declined {
    tracing::error!(%error, "a telephone call could not be written down");
    Declined::UNAVAILABLE
}

/// What the API would say, as a telephone exchange says it.
pub(super) fn refused(error: &ApiError) -> Declined {
    match is_at_cap(error) {
        true => Declined::BUSY,
        false => Declined::UNAVAILABLE,
    }
}

/// Whether every place is taken, on whichever server one asks. A server that is full or behind is not that, nor
/// is a store of leases that does not answer: the carrier may find room elsewhere.
pub(super) fn is_at_cap(error: &ApiError) -> bool {
    match error {
        ApiError::Capacity {
            reason, resource, ..
        } => *reason == Reason::Capacity && *resource != Some("node"),
        ApiError::TrunkHour { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_busy_at_a_cap_and_unavailable_where_nobody_can_say() {
        let refusal = |reason, resource| ApiError::Capacity {
            reason,
            resource,
            current: None,
            cap: None,
            retry_after: 1,
        };
        for (reason, resource, code) in [
            (Reason::Capacity, Some("account"), 486),
            (Reason::Capacity, Some("trunk"), 486),
            (Reason::Capacity, Some("pool"), 486),
            (Reason::Capacity, Some("node"), 503),
            (Reason::ServiceUnavailable, Some("node"), 503),
            (Reason::RedisUnavailable, Some("pool"), 503),
            (Reason::RedisError, Some("pool"), 503),
            (Reason::RedisError, None, 503),
        ] {
            let told = refused(&refusal(reason, resource));
            assert_eq!(told, Declined::with(code), "{reason:?} of {resource:?}");
        }
    }
}
