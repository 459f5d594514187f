//! The binary `sidetone`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A node's calls are woken every millisecond out of more memory than the processor has cache for: this allocator
/// keeps what belongs together close together, and a frame costs a fifth less.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Two TLS libraries in one process must agree on the cryptography; an error means one is set.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    control::cli::run()
}
