//! Clients that generators make of the document, as `docs/clients.md` says: they compile, and work against the
//! program.

use std::process::Command;

use kit::server::Server;

use crate::{beside, copy, peers, run, tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_client_compiles_and_works() {
    let modules = peers("typescript/node_modules");
    assert!(
        modules.exists(),
        "{} is missing: run `bash scripts/setup.sh test`",
        modules.display()
    );
    let server = Server::scripted().await;
    let folder = tempfile::tempdir().unwrap();
    for file in ["smoke.ts", "tsconfig.json", "package.json"] {
        std::fs::copy(beside("typescript").join(file), folder.path().join(file)).unwrap();
    }
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    let module = |name: &str| {
        let mut command = Command::new(modules.join(".bin").join(name));
        command.current_dir(folder.path());
        command
    };
    run(module("openapi-typescript")
        .arg(copy())
        .args(["--output", "schema.d.ts"]));
    run(&mut module("tsc"));
    let printed = run(Command::new("node")
        .arg("smoke.js")
        .current_dir(folder.path())
        .env("SIDETONE_URL", &server.url)
        .env("SIDETONE_KEY", &server.key));
    assert!(printed.contains("smoke: good"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_compiles_and_works() {
    let server = Server::scripted().await;
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("sidetone_client");
    let printed = run(Command::new(tool("openapi-python-client"))
        .args(["generate", "--meta", "none", "--fail-on-warning", "--path"])
        .arg(copy())
        .arg("--config")
        .arg(beside("python/config.yaml"))
        .arg("--output-path")
        .arg(&package)
        .env("PATH", path_with_tools())
        .current_dir(folder.path()));
    assert!(!printed.contains("WARNING"), "{printed}");
    run(Command::new(tool("python"))
        .args(["-m", "compileall", "-q"])
        .arg(&package));
    let printed = run(Command::new(tool("python"))
        .arg(beside("python/smoke.py"))
        .current_dir(folder.path())
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SIDETONE_URL", &server.url)
        .env("SIDETONE_KEY", &server.key));
    assert!(printed.contains("smoke: good"), "{printed}");
}

/// The generator tidies what it makes with a formatter of its own folder.
fn path_with_tools() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(peers("openapi/bin")).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap()
}
