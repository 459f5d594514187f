//! The binary `sidetone`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A node's calls are woken every millisecond out of more memory than the processor knows its way in: this allocator
/// takes it from the system in pages of 2 MiB, and a frame among hundreds of calls costs a fifth less.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Two TLS libraries in one process must agree on the cryptography; an error means one is set.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    control::cli::run()
}
