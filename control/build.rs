//! Tells cargo what, besides the sources, the binary is made of, and says which package is missing
//! before the linker says it in its own way.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    let found = Command::new("pkg-config")
        .args(["--exists", "pocketsphinx", "sphinxbase"])
        .status();
    if !found.is_ok_and(|status| status.success()) {
        println!(
            "cargo:warning=pkg-config does not find pocketsphinx: install libpocketsphinx-dev and pkg-config"
        );
    }
}
