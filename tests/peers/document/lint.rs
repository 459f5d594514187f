//! Linters over the document: the recommended rules of Redocly and of Spectral find nothing in it. A rule that is
//! switched off stands in their settings with its reason.

use std::path::Path;
use std::process::Command;

use crate::{beside, copy, peers, run};

/// The document, the settings and the linters, as a linter wants them.
fn set_up(folder: &Path) {
    let modules = peers("lint/node_modules");
    assert!(
        modules.exists(),
        "{} is missing: run `bash scripts/setup.sh test`",
        modules.display()
    );
    for file in [
        "package.json",
        "redocly.js",
        "redocly.yaml",
        "spectral.yaml",
    ] {
        std::fs::copy(beside("lint").join(file), folder.join(file)).unwrap();
    }
    std::fs::copy(copy(), folder.join("openapi.json")).unwrap();
    std::os::unix::fs::symlink(&modules, folder.join("node_modules")).unwrap();
}

#[test]
fn redocly_finds_no_fault_in_the_document() {
    let folder = tempfile::tempdir().unwrap();
    set_up(folder.path());
    let printed = run(Command::new("node")
        .arg("redocly.js")
        .current_dir(folder.path()));
    assert!(
        printed.contains("redocly: 0 errors, 0 warnings"),
        "{printed}"
    );
}

#[test]
fn spectral_finds_no_fault_in_the_document() {
    let folder = tempfile::tempdir().unwrap();
    set_up(folder.path());
    let printed = run(Command::new("node_modules/.bin/spectral")
        .args(["lint", "--ruleset", "spectral.yaml"])
        .args(["--fail-severity", "hint", "openapi.json"])
        .current_dir(folder.path()));
    assert!(
        printed.contains("No results with a severity of 'hint' or higher found"),
        "{printed}"
    );
}
