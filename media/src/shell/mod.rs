//! The only folder with sockets, a clock, threads and files.
//!
//! [`Engine`] is the face. Below it: `driver` is one media thread, `placed` a call on its way there, `live` one call
//! on it, and `tools` what the calls of a thread share. `socket` is the call's WebSocket, `peer` its WebRTC connection
//! (with the thread's UDP port), `recorder` its way to the disk, `mailbox` its way in; `disk` writes what the recorders
//! hand over and `finish` makes the files of it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one folder that reads the clock, spawns, and touches sockets and files"
)]

mod address;
mod clock;
mod counters;
mod datagram;
mod disk;
mod driver;
mod engine;
mod finish;
mod lateness;
mod live;
mod mailbox;
mod peer;
mod placed;
mod ports;
mod recorder;
mod relay;
mod rtp;
mod socket;
mod tools;
mod transport;
mod wheel;

pub use self::counters::Counters;
pub use self::engine::{
    CallHandle, CallNews, Carrier, Engine, EngineConfig, NewCall, WebRtcConfig,
};
pub use self::finish::{RecordedFile, Spooled, discard, salvage, spooled, tape_of};
pub use self::lateness::{LATENESS_BOUNDS, Lateness, LatenessTotals};
pub use self::peer::check_offer;
pub use self::ports::{PortPair, Ports};
pub use self::relay::{OnLost, RelayHandle, RelayLeg, Relays};
pub use self::rtp::RtpCarrier;
pub use crate::error::Refused;

/// Where a thread panics in a test: over a call whose session is named so.
#[cfg(test)]
mod faults {
    pub(super) const MEDIA: &str = "breaks-media";
    pub(super) const DISK: &str = "breaks-disk";
    pub(super) const FINISH: &str = "breaks-finish";

    pub(super) fn reach(place: &str, session: &str) {
        assert!(!session.contains(place), "a fault that was asked for");
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]
mod tests;
