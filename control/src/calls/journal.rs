//! What could not be written to the database yet: a file a call in the data folder, so that not even
//! the end of the process loses it.
//!
//! A line is a checksum and a JSON object: first whose call it is, then what happened to it, in order.
//! A line counts once it is on the disk; one that was cut off by a crash, and what follows it, does
//! not. There are at most as many files as calls can be live, for none begins while the database is
//! away, and a file is as long as one call's transcript.
//!
//! The journal often lies on the disk that the database has filled. A file of [`RESERVE`] bytes beside it
//! holds room, which is given away piece by piece when there is no other, and taken again afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use media::shell::RecordedFile;
use serde::{Deserialize, Serialize};

use super::rules::Ending;
use crate::config::Config;
use crate::ids::{AccountId, CallId};
use crate::time::Timestamp;

/// Whose call it is, and under which claim its host writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub account: AccountId,
    pub call: CallId,
    pub incarnation: i64,
}

/// One thing that happened to a call. It has no `Debug`: a turn is spoken words.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A finished turn, as JSON text, and its words.
    Turn {
        index: u32,
        body: String,
        text: String,
        at: Timestamp,
    },
    /// The end. `recording`: one is being finished.
    End {
        ending: Ending,
        recording: bool,
        at: Timestamp,
    },
    /// The recording is whole.
    Recorded(Recorded),
    /// There will be no recording.
    NotRecorded { error: String },
    /// The tape of a call without a recording is whole.
    Taped { path: PathBuf },
}

/// A finished recording on the disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    path: PathBuf,
    tape_path: PathBuf,
    samples: u64,
    bytes: u64,
    sha256: String,
    gap_ms: u64,
    broken: Option<String>,
}

/// A call's file, read.
#[derive(Clone, PartialEq)]
pub struct Record {
    pub owner: Owner,
    pub entries: Vec<Entry>,
}

/// The folder of all of them.
#[derive(Clone, Debug)]
pub struct Journal {
    folder: PathBuf,
    reserve: PathBuf,
}

/// The room that is held for a full disk, bytes: the ends of some 250 calls, at a block or so each.
const RESERVE: u64 = 1 << 20;
/// The room that the reserve leaves on the disk, bytes: more than tells that the database may write again.
const LEFT: u64 = 2 << 20;
/// The piece in which disks give out room.
const BLOCK: u64 = 4096;

impl Journal {
    pub fn of(config: &Config) -> Self {
        Self::under(&config.server.data_dir)
    }

    fn under(data: &Path) -> Self {
        Self {
            folder: data.join("journal"),
            reserve: data.join("journal.reserve"),
        }
    }

    /// Takes the room that is held for a full disk.
    pub async fn hold_room(&self) -> io::Result<()> {
        let reserve = self.reserve.clone();
        on_disk(move || hold(&reserve)).await
    }

    /// Adds to a call's file. Once this returns it is on the disk.
    pub async fn add(&self, owner: Owner, entries: &[Entry]) -> io::Result<()> {
        let (head, text) = (line(&owner)?, lines(entries)?);
        let (folder, path) = (self.folder.clone(), self.path(owner.call));
        let reserve = self.reserve.clone();
        on_disk(move || {
            let mut added = add(&folder, &path, &head, &text);
            while added.as_ref().is_err_and(is_full)
                && give_way(&reserve, head.len() + text.len()).unwrap_or(false)
            {
                added = add(&folder, &path, &head, &text);
            }
            added
        })
        .await
    }

    /// The calls that have a file, in the order of their ids.
    pub async fn calls(&self) -> io::Result<Vec<CallId>> {
        let folder = self.folder.clone();
        on_disk(move || {
            let entries = match std::fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            let mut ids = Vec::new();
            for entry in entries {
                let name = entry?.file_name();
                let id = name.to_str().and_then(|name| name.strip_suffix(".journal"));
                ids.extend(id.and_then(|id| id.parse::<CallId>().ok()));
            }
            ids.sort_unstable();
            Ok(ids)
        })
        .await
    }

    /// A call's file; `None` when nothing of it can be read.
    pub async fn read(&self, call: CallId) -> io::Result<Option<Record>> {
        let path = self.path(call);
        let bytes = on_disk(move || std::fs::read(path)).await?;
        Ok(Record::parse(&bytes))
    }

    /// Removes a call's file, because everything in it is in the database.
    pub async fn remove(&self, call: CallId) -> io::Result<()> {
        let (path, reserve) = (self.path(call), self.reserve.clone());
        on_disk(move || match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.and_then(|()| hold(&reserve)),
        })
        .await
    }

    fn path(&self, call: CallId) -> PathBuf {
        self.folder.join(format!("{call}.journal"))
    }
}

/// The disk may be slow: not on a thread that serves others.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

fn add(folder: &Path, path: &Path, head: &str, text: &str) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let length = whole_length(&file, path)?;
    file.set_len(length)?;
    let is_new = length == 0;
    let whole = if is_new {
        format!("{head}{text}")
    } else {
        text.to_owned()
    };
    let written = file.write_all(whole.as_bytes()).and_then(|()| {
        file.sync_all()?;
        if is_new {
            // The name of the file is part of the folder.
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    });
    if written.is_err() {
        // A cut line would hide those that are added later; one that stays is taken away by the next try.
        drop(file.set_len(length));
    }
    written
}

/// The length of a file without a line at its end that was cut off.
fn whole_length(file: &File, path: &Path) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last == *b"\n" {
        return Ok(length);
    }
    let bytes = std::fs::read(path)?;
    let cut = bytes.iter().rev().take_while(|byte| **byte != b'\n');
    Ok(length.saturating_sub(cut.count() as u64))
}

fn is_full(error: &io::Error) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    full.contains(&error.kind())
}

/// Fills the reserve up. What there is no room for is left out.
fn hold(reserve: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(reserve)?;
    let length = file.metadata()?.len();
    if length >= RESERVE {
        return Ok(());
    }
    // A disk that is nearly full is not filled by this.
    let disk = rustix::fs::fstatvfs(&file)?;
    let room = disk.f_bavail.saturating_mul(disk.f_frsize);
    let wanted = (RESERVE - length).min(room.saturating_sub(LEFT));
    // Not zeros, which some file systems do not store.
    let filler = vec![b'r'; usize::try_from(wanted).unwrap_or_default()];
    match file.write_all(&filler) {
        Err(error) if is_full(&error) => Ok(()),
        written => written,
    }
}

/// Gives so many bytes of the reserve away, and a few blocks for names. `false`: there is nothing left.
fn give_way(reserve: &Path, bytes: usize) -> io::Result<bool> {
    let file = match OpenOptions::new().write(true).open(reserve) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let length = file.metadata()?.len();
    let wanted = (bytes as u64).next_multiple_of(BLOCK) + 2 * BLOCK;
    file.set_len(length.saturating_sub(wanted))?;
    Ok(length > 0)
}

fn lines(entries: &[Entry]) -> io::Result<String> {
    entries.iter().map(line).collect()
}

fn line(value: &impl Serialize) -> io::Result<String> {
    let json = serde_json::to_string(value)?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())))
}

impl Record {
    /// As it stands in a call's file.
    pub fn text(&self) -> io::Result<String> {
        Ok(line(&self.owner)? + &lines(&self.entries)?)
    }

    /// What is whole of a file; `None`: not even whose it is.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        parse(bytes)
    }
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').map_while(json);
    let owner = serde_json::from_str(lines.next()?).ok()?;
    let entries = lines.map_while(|json| serde_json::from_str(json).ok());
    Some(Record {
        owner,
        entries: entries.collect(),
    })
}

/// The object of a line that was written to its end.
fn json(line: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (sum == crc32fast::hash(json.as_bytes())).then_some(json)
}

impl From<&RecordedFile> for Recorded {
    fn from(file: &RecordedFile) -> Self {
        Self {
            path: file.path.clone(),
            tape_path: file.tape_path.clone(),
            samples: file.samples,
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            gap_ms: file.gap_ms,
            broken: file.broken.clone(),
        }
    }
}

impl Recorded {
    pub fn file(&self) -> RecordedFile {
        RecordedFile {
            path: self.path.clone(),
            tape_path: self.tape_path.clone(),
            samples: self.samples,
            bytes: self.bytes,
            sha256: self.sha256.clone(),
            gap_ms: self.gap_ms,
            broken: self.broken.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a surprise")]

    use super::*;
    use crate::testing::{START, TempDir};
    use crate::time::Clock;

    fn entries() -> Vec<Entry> {
        vec![
            Entry::Turn {
                index: 3,
                body: "{\"text\":\"line\\nbreak, ünï\"}".to_owned(),
                text: "line\nbreak, ünï".to_owned(),
                at: START,
            },
            Entry::End {
                ending: Ending::engine_error("a \"quoted\" error".to_owned()),
                recording: true,
                at: START,
            },
            Entry::Recorded(Recorded {
                path: "spool/x.wav".into(),
                tape_path: "spool/x.tape".into(),
                samples: 5,
                bytes: 54,
                sha256: "ab".to_owned(),
                gap_ms: 0,
                broken: None,
            }),
            Entry::NotRecorded {
                error: "no room".to_owned(),
            },
            Entry::Taped {
                path: "spool/x.tape".into(),
            },
        ]
    }

    fn owner() -> Owner {
        let clock = Clock::fixed(START);
        Owner {
            account: AccountId::new(&clock),
            call: CallId::new(&clock),
            incarnation: 7,
        }
    }

    #[tokio::test]
    async fn a_call_s_file_grows_is_read_and_goes() {
        let folder = TempDir::new().unwrap();
        let journal = Journal::under(folder.path());
        assert_eq!(journal.calls().await.unwrap(), []);
        let (owner, entries) = (owner(), entries());
        journal.add(owner, &entries[..1]).await.unwrap();
        journal.add(owner, &entries[1..]).await.unwrap();
        std::fs::write(folder.path().join("journal/README"), "no call").unwrap();
        assert_eq!(journal.calls().await.unwrap(), [owner.call]);
        let record = journal.read(owner.call).await.unwrap().unwrap();
        assert!(record == Record { owner, entries });
        journal.remove(owner.call).await.unwrap();
        journal.remove(owner.call).await.unwrap();
        assert_eq!(journal.calls().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_line_that_a_full_disk_cut_hides_none_that_is_added_later() {
        let folder = TempDir::new().unwrap();
        let journal = Journal::under(folder.path());
        let (owner, entries) = (owner(), entries());
        let path = journal.path(owner.call);
        let head = line(&owner).unwrap();
        let text = format!("{head}{}", line(&entries[0]).unwrap());
        for cut in 0..text.len() {
            std::fs::create_dir_all(&journal.folder).unwrap();
            std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
            journal.add(owner, &entries[1..]).await.unwrap();
            let record = journal.read(owner.call).await.unwrap().unwrap();
            assert!(
                record.owner == owner && record.entries == entries[1..],
                "{cut}"
            );
        }
    }

    #[tokio::test]
    async fn room_is_held_given_away_piece_by_piece_and_held_again() {
        let folder = TempDir::new().unwrap();
        let journal = Journal::under(folder.path());
        let held = || std::fs::metadata(&journal.reserve).map_or(0, |file| file.len());
        assert!(
            !give_way(&journal.reserve, 1).unwrap(),
            "nothing is held yet"
        );
        journal.hold_room().await.unwrap();
        assert_eq!(held(), RESERVE);
        assert!(give_way(&journal.reserve, 100).unwrap());
        assert_eq!(held(), RESERVE - 3 * BLOCK);
        assert!(give_way(&journal.reserve, 2 << 20).unwrap() && held() == 0);
        assert!(!give_way(&journal.reserve, 1).unwrap());
        // A call that is written leaves its room, and the reserve is filled up.
        let owner = owner();
        journal.add(owner, &entries()).await.unwrap();
        journal.remove(owner.call).await.unwrap();
        assert_eq!(held(), RESERVE);
        assert_eq!(journal.calls().await.unwrap(), []);
    }

    #[test]
    fn a_file_cut_anywhere_is_read_up_to_its_last_whole_line() {
        let (owner, entries) = (owner(), entries());
        let mut text = line(&owner).unwrap();
        let mut ends = vec![text.len()];
        for entry in &entries {
            text.push_str(&line(entry).unwrap());
            ends.push(text.len());
        }
        for cut in 0..=text.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            match parse(&text.as_bytes()[..cut]) {
                None => assert_eq!(whole, 0, "{cut}"),
                Some(record) => {
                    assert!(record.owner == owner && record.entries == entries[..whole - 1]);
                }
            }
        }
    }

    #[test]
    fn a_line_that_was_changed_does_not_count() {
        let (owner, entries) = (owner(), entries());
        let head = line(&owner).unwrap();
        let text = format!("{head}{}", line(&entries[3]).unwrap());
        for at in head.len()..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let record = parse(&bytes).unwrap();
            assert!(record.entries.is_empty(), "byte {at}");
        }
    }
}
