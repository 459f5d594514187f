//! The OpenAPI document in the hands of others: schemathesis holds the program to it, linters judge it, generators make
//! clients of it, and a compiler reads the types of `sidetone.js`. What they need is installed by `scripts/setup.sh test`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod clients;
mod examples;
mod lint;
mod schemathesis;
mod types;

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The copy of the document.
fn copy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json")
}

/// Runs it to its end; what it prints.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}:\n{printed}");
    printed
}

/// A file beside this one.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("peers/document")
        .join(name)
}
