//! The OpenAPI document in the hands of others: schemathesis holds the program to it, generators make clients
//! of it. What they need is installed by `scripts/setup.sh test`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod clients;
mod schemathesis;

use std::path::{Path, PathBuf};

/// A folder below `peers` of the build folder.
fn peers(name: &str) -> PathBuf {
    // Beside the folder of the built program.
    let built = kit::server::program();
    let target = built.parent().and_then(Path::parent).unwrap();
    target.join("peers").join(name)
}

/// A program of the tools that PyPI has, where `scripts/setup.sh test` installs them.
fn tool(name: &str) -> PathBuf {
    let program = peers("openapi/bin").join(name);
    assert!(
        program.exists(),
        "{} is missing: run `bash scripts/setup.sh test`",
        program.display()
    );
    program
}

/// A file beside this one.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers/document")
        .join(name)
}
