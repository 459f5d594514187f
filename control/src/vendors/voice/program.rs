//! One run of a voice's program: text in on stdin, sound out while it comes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use super::super::queue::lock;
use super::wav;
use crate::catalogue::voices::Engine;

/// Characters of one sentence that are spoken; the engine's segments are far shorter. It keeps the
/// text within a pipe's buffer, so that writing it never waits.
const MAX_CHARS: usize = 4000;

/// The first piece of sound, ms: small, so that playing starts at once. Each piece is twice as long
/// as the one before, up to [`LAST_PIECE_MS`].
const FIRST_PIECE_MS: u32 = 40;
const LAST_PIECE_MS: u32 = 640;

/// Quieter than this (of 32768) at the very start is not yet speech.
const SILENCE: u16 = 96;

/// Silence kept before the first sound, ms: a soft onset must not be cut.
const KEPT_SILENCE_MS: u32 = 10;

/// A running program.
pub struct Program {
    name: &'static str,
    child: Mutex<Child>,
    stdout: Mutex<Option<ChildStdout>>,
    /// Where the sound is, if not on stdout.
    file: Option<PathBuf>,
    pub(super) started: Instant,
}

impl Program {
    /// Starts the program of this voice and gives it the text. flite cannot write a WAV to a pipe,
    /// so it writes to `scratch`.
    pub fn start(engine: Engine, text: &str, scratch: &Path) -> io::Result<Self> {
        let (name, arguments, file) = command(engine, scratch)?;
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        let written = child
            .stdin
            .take()
            .map_or(Ok(()), |mut stdin| stdin.write_all(&speakable(text)));
        let stdout = child.stdout.take();
        let program = Self {
            name,
            child: Mutex::new(child),
            stdout: Mutex::new(stdout),
            file,
            started: Instant::now(),
        };
        // A program that left before reading shows why in its exit status, below.
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                program.kill();
                Err(error)
            }
            _ => Ok(program),
        }
    }

    /// Ends it; nothing more comes out. Harmless when it has ended.
    pub fn kill(&self) {
        // The only failure is "it is gone already", which is what was wanted.
        drop(lock(&self.child).kill());
    }

    /// Hands over the sound in pieces, as it comes, until the end or until `piece` says `false`.
    pub fn read(&self, mut piece: impl FnMut(u32, &[i16]) -> bool) -> io::Result<()> {
        let Some(mut stdout) = lock(&self.stdout).take() else {
            return Ok(());
        };
        let mut cutter = Cutter::default();
        let mut wanted = true;
        let mut buffer = [0; 8192];
        // With a file, stdout says nothing: its end is the program's end.
        loop {
            let count = stdout.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            if self.file.is_none() {
                wanted = cutter
                    .feed(&buffer[..count], &mut piece)
                    .map_err(|why| self.fault(why))?;
                if !wanted {
                    self.kill();
                    break;
                }
            }
        }
        let status = lock(&self.child).wait()?;
        if !wanted {
            return Ok(());
        }
        if !status.success() {
            return Err(self.fault(&format!("ended with {status}")));
        }
        if let Some(path) = &self.file {
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            wanted = cutter
                .feed(&bytes, &mut piece)
                .map_err(|why| self.fault(why))?;
        }
        if wanted {
            cutter.rest(&mut piece).map_err(|why| self.fault(why))?;
        }
        Ok(())
    }

    fn fault(&self, why: &str) -> io::Error {
        io::Error::other(format!("{}: {why}", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        // Reaps it. It was told to end, so this does not wait.
        drop(lock(&self.child).wait());
        if let Some(path) = &self.file {
            // It may never have been written.
            drop(std::fs::remove_file(path));
        }
    }
}

/// The whole text as one piece of sound, with its rate in Hz. For commands and tests.
pub fn render(engine: Engine, text: &str, scratch: &Path) -> io::Result<(u32, Vec<i16>)> {
    let mut rate = 0;
    let mut sound = Vec::new();
    Program::start(engine, text, scratch)?.read(|hz, samples| {
        rate = hz;
        sound.extend_from_slice(samples);
        true
    })?;
    Ok((rate, sound))
}

pub(super) fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

type CommandLine = (&'static str, Vec<OsString>, Option<PathBuf>);

fn command(engine: Engine, scratch: &Path) -> io::Result<CommandLine> {
    match engine {
        Engine::Espeak {
            name,
            pitch,
            words_per_minute,
        } => {
            let arguments = [
                "--stdin".to_owned(),
                "--stdout".to_owned(),
                "-b1".to_owned(),
                format!("-v{name}"),
                format!("-p{pitch}"),
                format!("-s{words_per_minute}"),
            ];
            Ok(("espeak-ng", arguments.map(OsString::from).to_vec(), None))
        }
        Engine::Flite { name } => {
            let arguments = vec![
                "-voice".into(),
                name.into(),
                "-f".into(),
                "/dev/stdin".into(),
                "-o".into(),
                scratch.as_os_str().to_owned(),
            ];
            Ok(("flite", arguments, Some(scratch.to_owned())))
        }
        Engine::Scripted { .. } => Err(io::Error::other("a scripted voice has no program")),
        Engine::Provider { .. } => Err(io::Error::other("a provider's voice has no program")),
    }
}

/// The text without what the programs would take for a command: control characters, and espeak-ng's
/// `[[phonemes]]`.
fn speakable(text: &str) -> Vec<u8> {
    let mut clean: String = text
        .chars()
        .take(MAX_CHARS)
        .map(|c| {
            if c.is_control() || c == '[' || c == ']' {
                ' '
            } else {
                c
            }
        })
        .collect();
    clean.push('\n');
    clean.into_bytes()
}

/// Cuts the bytes of a WAV into pieces of growing length, without the silence at the start.
#[derive(Default)]
struct Cutter {
    bytes: Vec<u8>,
    header: Option<wav::Header>,
    samples: Vec<i16>,
    started: bool,
    piece_ms: u32,
}

impl Cutter {
    fn feed(
        &mut self,
        bytes: &[u8],
        piece: &mut impl FnMut(u32, &[i16]) -> bool,
    ) -> Result<bool, &'static str> {
        self.bytes.extend_from_slice(bytes);
        let header = match self.header {
            Some(header) => header,
            None => match wav::header(&self.bytes)? {
                None => return Ok(true),
                Some(header) => {
                    self.bytes.drain(..header.data_at);
                    self.piece_ms = FIRST_PIECE_MS;
                    *self.header.insert(header)
                }
            },
        };
        let whole = self.bytes.len() / 2 * 2;
        let new = self.bytes[..whole]
            .chunks_exact(2)
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        self.samples.extend(new);
        self.bytes.drain(..whole);
        if !self.started {
            self.skip_silence(header.rate);
        }
        if self.started {
            loop {
                let length = (header.rate * self.piece_ms / 1000) as usize;
                if self.samples.len() < length {
                    break;
                }
                if !piece(header.rate, &self.samples[..length]) {
                    return Ok(false);
                }
                self.samples.drain(..length);
                self.piece_ms = (self.piece_ms * 2).min(LAST_PIECE_MS);
            }
        }
        Ok(true)
    }

    fn skip_silence(&mut self, rate: u32) {
        let kept = (rate * KEPT_SILENCE_MS / 1000) as usize;
        match self
            .samples
            .iter()
            .position(|sample| sample.unsigned_abs() > SILENCE)
        {
            Some(at) => {
                self.samples.drain(..at.saturating_sub(kept));
                self.started = true;
            }
            None => {
                let quiet = self.samples.len().saturating_sub(kept);
                self.samples.drain(..quiet);
            }
        }
    }

    fn rest(&mut self, piece: &mut impl FnMut(u32, &[i16]) -> bool) -> Result<(), &'static str> {
        let header = self.header.ok_or("wrote no sound")?;
        if !self.samples.is_empty() {
            piece(header.rate, &self.samples);
        }
        Ok(())
    }
}
