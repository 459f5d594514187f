//! Tells cargo what, besides the sources, the binary is made of, lists the console's files, and says which
//! package is missing before the linker says it in its own way.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=web");
    list_web()?;
    let found = Command::new("pkg-config")
        .args(["--exists", "pocketsphinx", "sphinxbase"])
        .status();
    if !found.is_ok_and(|status| status.success()) {
        println!(
            "cargo:warning=pkg-config does not find pocketsphinx: install libpocketsphinx-dev and pkg-config"
        );
    }
    Ok(())
}

/// The files of `web/`, by name, as an array of names and contents for `src/web.rs`.
fn list_web() -> io::Result<()> {
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("web");
    let entries = fs::read_dir(&folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| is_served(path));
    paths.sort();
    let lines: String = paths
        .iter()
        .filter_map(|path| Some((path.file_name()?.to_str()?, path)))
        .map(|(name, path)| format!("({name:?}, include_bytes!({path:?}).as_slice()),\n"))
        .collect();
    let list = Path::new(&variable("OUT_DIR")?).join("web.rs");
    fs::write(list, format!("&[\n{lines}]\n"))
}

/// Whether a file of `web/` is meant for browsers. What an editor or a system leaves beside them is not: `.app.js.swp`,
/// `app.js~`, `app.js.orig`, folders.
fn is_served(path: &Path) -> bool {
    const KINDS: [&str; 7] = ["css", "html", "js", "svg", "ts", "txt", "woff2"];
    let name = path.file_name().and_then(|name| name.to_str());
    let kind = path.extension().and_then(|kind| kind.to_str());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    name.is_some_and(|name| !name.starts_with('.') && name.chars().all(is_plain))
        && kind.is_some_and(|kind| KINDS.contains(&kind))
        && path.is_file()
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}
