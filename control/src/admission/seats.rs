//! Seats: whether this node takes one more call, whatever the lease store says. A lease counts for account, pool,
//! agent and trunk; a seat for the node alone.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refusal;
use crate::http::ApiError;
use crate::http::error::Reason;

/// How a node stands that is asked for one more call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Open,
    /// The node was told to end, or the other nodes took it for dead.
    Ending,
    /// Its media threads are behind with the calls they have: so many, where that is known.
    Late(Option<u32>),
}

/// One seat for each call that this node may host.
#[derive(Debug)]
pub struct Seats {
    free: Arc<Semaphore>,
    cap: u32,
}

impl Seats {
    pub fn new(cap: u32) -> Self {
        let seats = (cap as usize).min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(seats)),
            cap,
        }
    }

    /// Whether a new call may ask for a lease at all.
    pub fn open(&self, standing: Standing) -> Result<(), ApiError> {
        match standing {
            Standing::Open => Ok(()),
            Standing::Ending => Err(ApiError::Unavailable {
                code: "service_unavailable",
                message: "The server is ending: try again shortly".to_owned(),
                retry_after: 5,
            }),
            Standing::Late(current) => Err(ApiError::Capacity {
                reason: Reason::ServiceUnavailable,
                resource: Some("node"),
                current,
                cap: Some(self.cap),
                retry_after: 5,
            }),
        }
    }

    /// A seat for one call; given back when it is dropped. A node that is taken for dead has none.
    pub fn take(&self, is_lost: bool) -> Result<OwnedSemaphorePermit, Refusal> {
        let full = || Refusal::full("node", self.cap, self.cap);
        if is_lost {
            return Err(full());
        }
        let free = Arc::clone(&self.free);
        free.try_acquire_owned().map_err(|_| full())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_as_many_seats_as_calls_and_none_when_it_is_lost() {
        let seats = Seats::new(2);
        let first = seats.take(false);
        assert!(first.is_ok() && seats.take(true).is_err());
        let second = seats.take(false);
        assert!(second.is_ok() && seats.take(false).is_err());
        drop(first);
        assert!(seats.take(false).is_ok());
        assert!(Seats::new(0).take(false).is_err());
        assert!(Seats::new(u32::MAX).take(false).is_ok());
    }

    #[test]
    fn a_node_that_ends_or_is_late_says_so() {
        let seats = Seats::new(7);
        assert!(seats.open(Standing::Open).is_ok());
        let ending = seats.open(Standing::Ending);
        assert!(matches!(
            ending,
            Err(ApiError::Unavailable { retry_after: 5, .. })
        ));
        let late = seats.open(Standing::Late(Some(3)));
        assert!(matches!(
            late,
            Err(ApiError::Capacity {
                resource: Some("node"),
                current: Some(3),
                cap: Some(7),
                ..
            })
        ));
    }
}
