//! The binary `sidetone`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Two TLS libraries in one process must agree on the cryptography; an error means one is set.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    control::cli::run()
}
