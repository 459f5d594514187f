//! A certificate for `localhost` and the authority that vouches for it, made anew for a test.

use std::path::Path;
use std::process::Command;

/// What makes `ca.crt`, `leaf.crt` and `leaf.key` in the folder in which a shell runs it.
pub(crate) const SCRIPT: &str = "
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
        -subj '/CN=sidetone tests' -keyout ca.key -out ca.crt
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj /CN=localhost -keyout leaf.key -out leaf.csr
    printf 'subjectAltName=DNS:localhost' >leaf.ext
    openssl x509 -req -in leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
        -extfile leaf.ext -out leaf.crt
    chmod 600 leaf.key";

/// Makes them in this folder.
pub fn make(folder: &Path) {
    let made = Command::new("sh")
        .args(["-ec", SCRIPT])
        .current_dir(folder)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "openssl is missing? Run `bash scripts/setup.sh test`: {said}"
    );
}
