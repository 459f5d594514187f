//! The claim of a node to its data folder: two nodes with one folder would sweep each other's spool and journal. The
//! file `node.lock` in it names the node, and is locked (flock) for as long as one of its processes lives, however
//! that ends. Processes of one name share the lock, for a start takes over from an earlier one of its name; commands
//! beside a server take none.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The file's name.
const FILE: &str = "node.lock";

/// How often the lock is tried, and the pause between: whoever is about to write its name has it alone for less, and
/// so has a program that a process was just about to start when it ended.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// What is read of the file: a name has at most a hundred characters.
const LONGEST: usize = 256;

/// A data folder that is this node's for as long as this lives.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

/// Why a node has not got its folder. Each names the file.
#[derive(Debug)]
pub enum Unclaimed {
    /// Another node has it: the settings are wrong.
    Held(String),
    /// The file cannot be opened, locked, read or written: the disk is at fault, and a later start may do better.
    Failed(String),
}

impl std::fmt::Display for Unclaimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Unclaimed {}

/// Claims the folder for the node of this name.
pub fn claim(folder: &Path, node: &str) -> Result<Claim, Unclaimed> {
    let path = folder.join(FILE);
    let failed = |error: io::Error| Unclaimed::Failed(format!("{}: {error}", path.display()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let own = Holder {
        node: node.to_owned(),
        process: std::process::id().to_string(),
    };
    let mut why = "another process holds the lock".to_owned();
    for _ in 0..TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Nobody else lives who had it.
            Ok(()) => own.write(&file).map_err(failed)?,
            Err(Errno::WOULDBLOCK) => {}
            Err(error) if cannot_lock(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "the file system locks no files: nothing keeps another node from this data folder"
                );
                return Ok(Claim { _locked: file });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // From alone to shared the lock is free for a moment, in which somebody else may write their name.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let holder = Holder::read(&file).map_err(failed)?;
                if holder.node == own.node {
                    // The process is only for those who read. Some file systems write nothing under a shared lock.
                    if let Err(error) = own.write(&file) {
                        tracing::debug!(path = %path.display(), %error, "the lock names an earlier process");
                    }
                    return Ok(Claim { _locked: file });
                }
                why = holder.refuses(node);
                flock(&file, FlockOperation::Unlock).map_err(|error| failed(error.into()))?;
            }
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(failed(error.into())),
        }
        thread::sleep(PAUSE);
    }
    Err(Unclaimed::Held(format!("{}: {why}", path.display())))
}

/// Whether the file system has no such locks, as some of networks have none.
fn cannot_lock(error: Errno) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOLCK].contains(&error)
}

/// Who has the folder: the node, and the latest of its processes.
struct Holder {
    node: String,
    process: String,
}

impl Holder {
    fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; LONGEST];
        let read = file.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..read]);
        let mut lines = text.lines().map(str::to_owned);
        Ok(Self {
            node: lines.next().unwrap_or_default(),
            process: lines.next().unwrap_or_default(),
        })
    }

    /// In place: a process of the same name, which may read at this moment, finds the name whole.
    fn write(&self, file: &File) -> io::Result<()> {
        let text = format!("{}\n{}\n", self.node, self.process);
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    }

    fn refuses(&self, node: &str) -> String {
        let Self {
            node: holder,
            process,
        } = self;
        format!(
            "the node {holder:?} (process {process}) runs with this data folder, and this one is the node {node:?}: \
             give each node a folder of its own"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a failed step is a failed test"
    )]

    use std::sync::Barrier;

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_node_of_another_name_is_refused_and_told_who_has_the_folder() {
        let folder = TempDir::new().unwrap();
        let claimed = claim(folder.path(), "a").unwrap();
        for _ in 0..2 {
            let Err(Unclaimed::Held(refused)) = claim(folder.path(), "b") else {
                panic!("the node \"a\" has it");
            };
            let path = folder.path().join("node.lock");
            let process = std::process::id();
            for part in [
                path.to_str().unwrap(),
                "\"a\"",
                "\"b\"",
                &process.to_string(),
            ] {
                assert!(refused.contains(part), "{part}: {refused}");
            }
        }
        // As the system lets go of it when the process ends, however that is.
        drop(claimed);
        let _b = claim(folder.path(), "b").unwrap();
        let refused = claim(folder.path(), "a").unwrap_err();
        assert!(refused.to_string().contains("\"b\""), "{refused}");
    }

    /// A start takes over from an earlier one of its name, which may still run.
    #[test]
    fn processes_of_one_name_share_their_folder_and_each_keeps_others_out() {
        let folder = TempDir::new().unwrap();
        let first = claim(folder.path(), "a").unwrap();
        let second = claim(folder.path(), "a").unwrap();
        drop(first);
        assert!(claim(folder.path(), "b").is_err());
        let third = claim(folder.path(), "a").unwrap();
        drop(second);
        assert!(claim(folder.path(), "b").is_err());
        drop(third);
        claim(folder.path(), "b").unwrap();
    }

    /// What a process left that was killed names it, and a longer name leaves nothing of itself.
    #[test]
    fn a_file_that_nobody_holds_keeps_nobody_out() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("node.lock");
        for left in [
            "",
            "a\n",
            "a-much-longer-name\n4194304\nmore\n",
            "\u{0}\u{1}",
        ] {
            std::fs::write(&path, left).unwrap();
            let claimed = claim(folder.path(), "b").unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, format!("b\n{}\n", std::process::id()));
            drop(claimed);
        }
        let nowhere = claim(&folder.path().join("none"), "b");
        let Err(Unclaimed::Failed(why)) = nowhere else {
            panic!("there is no such folder: {nowhere:?}");
        };
        assert!(why.contains("none/node.lock: "), "{why}");
    }

    #[test]
    fn of_nodes_that_start_at_the_same_moment_one_has_the_folder() {
        let folder = TempDir::new().unwrap();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for _ in 0..4 {
            let start = Barrier::new(names.len());
            let claims: Vec<_> = thread::scope(|scope| {
                let claiming = names.map(|node| {
                    let (start, folder) = (&start, folder.path());
                    scope.spawn(move || {
                        start.wait();
                        claim(folder, node)
                    })
                });
                claiming.map(|claim| claim.join().unwrap()).into()
            });
            let claimed = claims.iter().filter(|claim| claim.is_ok()).count();
            assert_eq!(claimed, 1, "{claims:?}");
        }
    }
}
