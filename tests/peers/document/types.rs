//! The types of `sidetone.js`: a page that is written with them compiles, and the module has what they say, no less and
//! no more.

use std::path::Path;
use std::process::Command;

use crate::{beside, peers, run};

#[test]
fn the_types_of_the_library_are_those_of_the_module() {
    let compiler = peers("typescript/node_modules/.bin/tsc");
    assert!(
        compiler.exists(),
        "{} is missing: run `bash scripts/setup.sh test`",
        compiler.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../control/web");
    for name in [
        "sidetone.d.ts",
        "sidetone.js",
        "sidetone-error.js",
        "sidetone-rtc.js",
        "sidetone-socket.js",
        "sidetone-sound.js",
    ] {
        std::fs::copy(web.join(name), folder.path().join(name)).unwrap();
    }
    for name in ["page.ts", "package.json"] {
        std::fs::copy(beside("typescript").join(name), folder.path().join(name)).unwrap();
    }
    run(Command::new(compiler)
        .args(["--strict", "--noUncheckedIndexedAccess"])
        .args(["--target", "ES2022", "--module", "NodeNext"])
        .arg("page.ts")
        .current_dir(folder.path()));
    let printed = run(Command::new("node")
        .arg("page.js")
        .current_dir(folder.path()));
    assert!(printed.contains("page: good"), "{printed}");
}
