//! From spools to files: the WAV of a call that is over, or that a crash left behind.
//!
//! A call's spools are `<session>.caller.pcm` and `<session>.agent.pcm`, its tape `<session>.tape`.
//! `<session>.broken` beside them says that the disk ran full. The WAV is written beside its name, made durable and only then renamed: a `.wav` is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::record::wav;
use crate::time::RATE;

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    /// The WAV: stereo, caller left, agent right, 16-bit PCM at 16 kHz.
    pub path: PathBuf,
    /// Beside it; see [`tape`](crate::tape).
    pub tape_path: PathBuf,
    /// Length, samples a side at 16 kHz.
    pub samples: u64,
    /// Size of the WAV.
    pub bytes: u64,
    /// Of the WAV, in hexadecimal.
    pub sha256: String,
    /// Sound that was lost on the way to the disk, both sides together, ms.
    pub gap_ms: u64,
    /// Why this is the beginning of the call only, if it is: the disk ran full.
    pub broken: Option<String>,
}

/// Makes the WAV of a call whose node went down: `None` when nothing of it was recorded. The call
/// must not be live. A second time gives the same answer.
pub fn salvage(spool_dir: &Path, session_id: &str) -> io::Result<Option<RecordedFile>> {
    let spools = Spools::new(spool_dir, session_id)?;
    if !spools.wav.exists() && !spools.caller.exists() && !spools.agent.exists() {
        return Ok(None);
    }
    spools.finish(0).map(Some)
}

/// Removes whatever the folder has of a session: what is kept of it is elsewhere, or nothing is to be kept. The call
/// must not be live.
pub fn discard(spool_dir: &Path, session_id: &str) -> io::Result<()> {
    Spools::new(spool_dir, session_id)?.discard()
}

/// The tape that the folder has of a session, if it has one.
pub fn tape_of(spool_dir: &Path, session_id: &str) -> Option<PathBuf> {
    let spools = Spools::new(spool_dir, session_id).ok()?;
    spools.tape.exists().then_some(spools.tape)
}

/// What the folder has of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spooled {
    /// Sound, or a part of a WAV.
    pub sound: bool,
    pub tape: Option<PathBuf>,
    /// All of it, in no order.
    pub files: Vec<PathBuf>,
}

/// The sessions that have files in the folder. Files of other names are not the engine's.
pub fn spooled(spool_dir: &Path) -> io::Result<BTreeMap<String, Spooled>> {
    let mut found: BTreeMap<String, Spooled> = BTreeMap::new();
    for entry in fs::read_dir(spool_dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.split_once('.'));
        let Some((session, ending)) = name.filter(|(_, ending)| ENDINGS.contains(ending)) else {
            continue;
        };
        let of_session = found.entry(session.to_owned()).or_default();
        of_session.files.push(entry.path());
        match ending {
            TAPE => of_session.tape = Some(entry.path()),
            _ => of_session.sound = true,
        }
    }
    Ok(found)
}

/// How the names of a session's files end.
const ENDINGS: [&str; 6] = [CALLER, AGENT, TAPE, WAV, PART, MARK];
const CALLER: &str = "caller.pcm";
const AGENT: &str = "agent.pcm";
const TAPE: &str = "tape";
const WAV: &str = "wav";
const PART: &str = "wav.part";
const MARK: &str = "broken";

/// Where a session's files are.
#[derive(Clone, Debug)]
pub(super) struct Spools {
    folder: PathBuf,
    pub(super) caller: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) tape: PathBuf,
    wav: PathBuf,
    part: PathBuf,
    /// Says that the spools hold the beginning of the call only, and why.
    mark: PathBuf,
}

/// What is left free beside a WAV that takes what there is, bytes: for the database and the log.
const SPARE: u64 = 64 << 10;

/// A shorter beginning of a call is not worth keeping, samples a side.
const SHORTEST: u64 = RATE as u64;

impl Spools {
    /// An error when the id could be a path to elsewhere.
    pub(super) fn new(folder: &Path, session_id: &str) -> io::Result<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if session_id.is_empty() || session_id.len() > 128 || !session_id.bytes().all(plain) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a session id is no file name",
            ));
        }
        let file = |ending: &str| folder.join(format!("{session_id}.{ending}"));
        Ok(Self {
            folder: folder.to_owned(),
            caller: file(CALLER),
            agent: file(AGENT),
            tape: file(TAPE),
            wav: file(WAV),
            part: file(PART),
            mark: file(MARK),
        })
    }

    /// Removes all of them. What can be removed goes, whatever becomes of the others.
    pub(super) fn discard(&self) -> io::Result<()> {
        let Self {
            folder: _,
            caller,
            agent,
            tape,
            wav,
            part,
            mark,
        } = self;
        let files = [caller, agent, tape, wav, part, mark];
        let removed = files.map(|file| remove(file));
        removed.into_iter().collect()
    }

    /// Merges the spools into the WAV and takes them away. On a full disk the WAV is as long as there is
    /// room for, and says that it is broken.
    pub(super) fn finish(&self, gap_ms: u64) -> io::Result<RecordedFile> {
        // A WAV that is there is complete; what is left of the spools may not be.
        if !self.wav.exists() {
            match self.merge(wav::MAX_SAMPLES) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    self.merge_what_fits(&error)?;
                }
                merged => merged?,
            }
        }
        remove(&self.caller)?;
        remove(&self.agent)?;
        let broken = self.why_broken();
        let (bytes, sha256) = hash(&self.wav)?;
        let samples = hound::WavReader::open(&self.wav)
            .map_err(io::Error::other)?
            .duration()
            .into();
        let (path, tape_path) = (self.wav.clone(), self.tape.clone());
        Ok(RecordedFile {
            path,
            tape_path,
            samples,
            bytes,
            sha256,
            gap_ms,
            broken,
        })
    }

    /// Notes that the spools hold the beginning of the call only.
    pub(super) fn mark_broken(&self, why: &str) {
        // On a full disk there may be room for a name and none for text: the name is what counts.
        let marked = File::create(&self.mark).and_then(|mut mark| mark.write_all(why.as_bytes()));
        if let Err(error) = marked {
            tracing::warn!(%error, "what a broken recording is could not be written beside it");
        }
    }

    fn why_broken(&self) -> Option<String> {
        let why = fs::read_to_string(&self.mark).ok()?;
        Some(if why.is_empty() {
            "recording broke off".to_owned()
        } else {
            why
        })
    }

    fn merge(&self, most: u64) -> io::Result<()> {
        let (caller, agent) = (open_side(&self.caller)?, open_side(&self.agent)?);
        let mut out = BufWriter::with_capacity(64 << 10, File::create(&self.part)?);
        wav::write_stereo(caller, agent, &mut out, most)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&self.part, &self.wav)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Keeps as much of the call's beginning as the full disk has room for, rather than its tape. Where
    /// there is none, nothing of the call stays to fill the disk.
    fn merge_what_fits(&self, full: &io::Error) -> io::Result<()> {
        self.mark_broken(&format!("recording not finished: {full}"));
        remove(&self.tape)?;
        let mut most = wav::MAX_SAMPLES;
        loop {
            remove(&self.part)?;
            // Others may take the room at the same time, so each try wants less.
            most = (free(&self.folder)?.saturating_sub(SPARE) / 4).min(most / 2);
            if most < SHORTEST {
                for file in [&self.caller, &self.agent, &self.mark] {
                    remove(file)?;
                }
                return Err(io::Error::new(full.kind(), full.to_string()));
            }
            match self.merge(most) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
                merged => return merged,
            }
        }
    }
}

/// Bytes that are free where `folder` is.
pub(super) fn free(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A side that never spoke has no spool.
fn open_side(path: &Path) -> io::Result<Box<dyn Read>> {
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(io::empty())),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hash(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&block[..n]);
                bytes += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let hex = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((bytes, hex))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn spools_of_a_crash_become_a_wav_once() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(salvage(folder.path(), "none").unwrap(), None);
        fs::write(folder.path().join("s1.agent.pcm"), [1, 0, 2, 0, 3]).unwrap();
        fs::write(folder.path().join("s1.wav.part"), "half of a file").unwrap();
        let first = salvage(folder.path(), "s1").unwrap().unwrap();
        assert_eq!(
            (first.samples, first.bytes, first.sha256.len()),
            (2, 44 + 8, 64)
        );
        assert_eq!(fs::metadata(&first.path).unwrap().len(), 52);
        let mut wav = hound::WavReader::open(&first.path).unwrap();
        assert_eq!(
            wav.samples::<i16>().map(|s| s.unwrap()).collect::<Vec<_>>(),
            [0, 1, 0, 2]
        );
        assert_eq!(salvage(folder.path(), "s1").unwrap().unwrap(), first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(first.broken, None);
    }

    #[test]
    fn a_recording_that_broke_off_says_so_however_often_it_is_salvaged() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("s1.caller.pcm"), [1, 0, 2, 0]).unwrap();
        let spools = Spools::new(folder.path(), "s1").unwrap();
        spools.mark_broken("recording broke off: no room");
        for _ in 0..2 {
            let kept = salvage(folder.path(), "s1").unwrap().unwrap();
            let why = kept.broken.as_deref();
            assert_eq!(
                (kept.samples, why),
                (2, Some("recording broke off: no room"))
            );
        }
    }

    #[test]
    fn what_a_session_left_is_found_and_goes_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        for name in ENDINGS.map(|ending| format!("s1.{ending}")) {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        for name in [
            "s2.tape",
            "s10.wav",
            "ballast",
            "s1",
            "s1.txt",
            "s1.wav.old",
        ] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let tape = |session: &str| Some(folder.path().join(format!("{session}.tape")));
        let found = spooled(folder.path()).unwrap();
        let left = |(session, of): (String, Spooled)| (session, of.sound, of.tape, of.files.len());
        assert_eq!(
            found.into_iter().map(left).collect::<Vec<_>>(),
            [
                ("s1".to_owned(), true, tape("s1"), ENDINGS.len()),
                ("s10".to_owned(), true, None, 1),
                ("s2".to_owned(), false, tape("s2"), 1),
            ]
        );
        discard(folder.path(), "s1").unwrap();
        discard(folder.path(), "s1").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
        assert_eq!(spooled(folder.path()).unwrap().len(), 2);
        assert!(spooled(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn an_id_cannot_leave_the_folder() {
        for id in ["", "../x", "a/b", "a.b", "é"] {
            assert!(salvage(Path::new("/nowhere"), id).is_err(), "{id}");
        }
    }
}
