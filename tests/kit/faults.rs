//! Disks that are full or fail on demand: a small file system of the test's own, and a library that makes
//! the writes of a program fail.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A file system in memory. It is mounted in a namespace that ends with it, so nothing is left behind
/// however the test ends; a program has to [enter](SmallDisk::enter) it. (SQLite resolves paths by itself, so
/// the way through `/proc/<id>/root` does not lead it there.)
pub struct SmallDisk {
    keeper: Child,
    folder: TempDir,
}

/// Mounts, says so, and waits for the end of its input.
const KEEPER: &str = "mount -t tmpfs -o size=$1m tmpfs $2 && echo mounted && exec cat";

impl SmallDisk {
    pub fn new(mib: u32) -> Self {
        let folder = folder("sidetone-disk");
        let mut keeper = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", KEEPER, "sh"])
            .arg(mib.to_string())
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut said = [0; 8];
        let out = keeper.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut said).expect("tmpfs can be mounted");
        Self { keeper, folder }
    }

    /// Its root, for programs that entered.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The words before the command of a program that is to enter.
    pub fn enter(&self) -> Vec<String> {
        let target = self.keeper.id().to_string();
        let words = [
            "nsenter",
            "--user",
            "--mount",
            "--preserve-credentials",
            "--target",
        ];
        words
            .map(str::to_owned)
            .into_iter()
            .chain([target])
            .collect()
    }

    /// Takes all room that is left.
    pub fn fill(&self) {
        let mut file = File::create(self.ballast()).expect("a file");
        let block = [b'x'; 4096];
        loop {
            match file.write_all(&block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("the disk cannot be filled: {error}"),
            }
        }
    }

    /// Gives the room back.
    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        let inside = self.path().strip_prefix("/").expect("an absolute path");
        let root = Path::new("/proc").join(self.keeper.id().to_string());
        root.join("root").join(inside).join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // At the end of its input it ends, and the mount with it.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// How writes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `ENOSPC`
    Full,
    /// `EIO`, of syncs too
    Io,
}

/// The library, and the switch of one program's faults.
pub struct Injector {
    folder: TempDir,
}

impl Injector {
    pub fn new() -> Self {
        let folder = folder("sidetone-faults");
        let source = folder.path().join("faults.c");
        std::fs::write(&source, include_str!("faults.c")).expect("the source is written");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("faults.so"))
            .arg(&source)
            .arg("-ldl")
            .status()
            .expect("cc is missing: run `bash scripts/setup.sh test`");
        assert!(status.success(), "faults.c does not compile");
        Self { folder }
    }

    /// The environment of a program whose files with this text in their path may fail.
    pub fn environment(&self, mark: &str) -> [(&'static str, String); 3] {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        [
            ("LD_PRELOAD", path("faults.so")),
            ("FAULT_CONTROL", path("now")),
            ("FAULT_MARK", mark.to_owned()),
        ]
    }

    pub fn begin(&self, fault: Fault) {
        std::fs::write(self.switch(fault), "").expect("the switch can be set");
    }

    pub fn end(&self, fault: Fault) {
        std::fs::remove_file(self.switch(fault)).expect("the switch was set");
    }

    fn switch(&self, fault: Fault) -> PathBuf {
        self.folder.path().join(match fault {
            Fault::Full => "now.full",
            Fault::Io => "now.io",
        })
    }
}

impl Default for Injector {
    fn default() -> Self {
        Self::new()
    }
}

/// A folder that other users of this machine can read: PostgreSQL runs as its own.
fn folder(prefix: &str) -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir()
        .expect("a temporary folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("permissions");
    folder
}
