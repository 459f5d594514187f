//! `deploy/` as far as it can be run here: the manifests are read by the tools that would take them and
//! by the program's own settings, two real nodes stand behind the real proxy, and the trunks of `sip/` are made.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod manifests;
mod ports;
mod proxy;
mod relay;
mod sip;

use std::path::{Path, PathBuf};

/// A file of `deploy/`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name)
}

fn read(name: &str) -> String {
    let path = file(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
