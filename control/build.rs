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
    paths.sort();
    let lines: String = paths
        .iter()
        .filter_map(|path| Some((path.file_name()?.to_str()?, path)))
        .map(|(name, path)| format!("({name:?}, include_bytes!({path:?}).as_slice()),\n"))
        .collect();
    let list = Path::new(&variable("OUT_DIR")?).join("web.rs");
    fs::write(list, format!("&[\n{lines}]\n"))
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}
