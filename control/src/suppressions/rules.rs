//! Why a number is not called. Pure.

use crate::words::words;

words! {
    /// Who wanted it.
    pub enum Source {
        /// The account added it.
        Manual = "manual",
        /// The person asked for it.
        PersonRequest = "person_request",
        /// The person texted STOP.
        SmsStop = "sms_stop",
    }

    /// Whether calls to the number are refused.
    pub enum Status { Active = "active", Released = "released" }
}

impl Source {
    /// Those that a client may write.
    pub const WRITABLE: &'static [&'static str] = &["manual", "person_request"];

    /// Whether the account may take it off the list again.
    pub const fn releasable(self) -> bool {
        matches!(self, Self::Manual)
    }
}
