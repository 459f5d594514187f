//! Calls to the real program over real sockets: what is said and kept, who is let in, what floods and
//! crashes leave standing. Speech is scripted and the voice a tone, so that times can be measured.
//!
//! `SIDETONE_SOAK=1` adds what takes a minute and more.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod audio;
mod baresip;
mod barge_in;
mod bodies;
mod bucket;
mod bystander;
mod canaries;
mod caps;
mod clock;
mod cost;
mod crash;
mod crowd;
mod database;
mod digest;
mod disk;
mod disk_faults;
mod documented;
mod ends;
mod floods;
mod forward;
mod framing;
mod http2;
mod idle;
mod ipv6;
mod kamailio;
mod leaks;
mod leftovers;
mod loops;
mod names;
mod outbound;
mod providers;
mod readers;
mod recorded;
mod registrar;
mod renewal;
mod routing;
mod scans;
mod sip_floods;
mod strangers;
mod streams;
mod synthesis;
mod telephone;
mod terminal;
mod threads;
mod torture;
mod traces;
mod trunks;
mod ws_url;

use kit::stage;
