//! The tape of a call on virtual time, written as the shell writes it. When the call is dropped its tape is played
//! again, here and in a second process: what the call put out has to come out again, to the byte.

use std::cell::RefCell;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use media::call::Call;
use media::call::input::Input;
use media::call::output::Output;
use media::config::CallConfig;
use media::tape::{Replay, TapeWriter, replay_with};
use media::time::Time;
use media::vad::Vad;

/// Tells a process that it is the second one.
const SECOND: &str = "SIDETONE_SECOND_PROCESS";

/// The test that a second process runs: it has to ask [`is_second`] first of all.
const ENTRY: &str = "replays::both_processes_notice_a_changed_tape";

/// When the caller's voice sounds, samples: a scripted detector. `None`: the detector of the configuration.
pub type Spans = Option<Vec<(u64, u64)>>;

/// The tape of one call.
pub struct Recorder {
    writer: TapeWriter,
    spans: Spans,
    over: bool,
}

impl Recorder {
    /// Of a call that is made at `start`, with a recogniser that punctuates.
    pub fn new(config: &CallConfig, start: Time, spans: Spans) -> Self {
        Self {
            writer: TapeWriter::new(config, start, true),
            spans,
            over: false,
        }
    }

    /// An input that is about to be handled.
    pub fn input(&mut self, now: Time, input: &Input<'_>) {
        self.writer.input(now, input);
    }

    /// What came of it, up to the output after which the call waits.
    pub fn output(&mut self, output: &Output<'_>) {
        self.writer.output(output);
        match output {
            Output::Wait(_) => self.writer.served(),
            Output::Done => self.over = true,
            _ => {}
        }
    }

    pub fn bytes(&self) -> &[u8] {
        self.writer.pending()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let replay = play(self.bytes(), &self.spans);
        assert_eq!(replay.difference, None, "the replay differs from the call");
        assert_eq!((&replay.broken, replay.stopped), (&None, false));
        assert_eq!(replay.ended, self.over);
        assert!(
            in_second_process(self.bytes(), &self.spans) == told(&replay),
            "a second process plays the tape otherwise"
        );
    }
}

/// What comes of a tape here, as one text.
pub fn in_this_process(tape: &[u8], spans: &Spans) -> String {
    told(&play(tape, spans))
}

/// What comes of it in a second process, which is this test's until its end.
pub fn in_second_process(tape: &[u8], spans: &Spans) -> String {
    thread_local! {
        static PROCESS: RefCell<Option<Second>> = const { RefCell::new(None) };
    }
    PROCESS.with_borrow_mut(|process| {
        let second = process.get_or_insert_with(Second::start);
        second.play(tape, spans).expect("the second process plays")
    })
}

/// Whether this is the second process. If so, it has played what it was sent until the first one was gone.
pub fn is_second() -> bool {
    if std::env::var_os(SECOND).is_none() {
        return false;
    }
    let line = io::stdin().as_fd().try_clone_to_owned();
    let mut line = UnixStream::from(line.expect("the other process"));
    while let Ok(spans) = receive(&mut line) {
        let spans: Spans = serde_json::from_slice(&spans).expect("spans");
        let tape = receive(&mut line).expect("a tape");
        let came = in_this_process(&tape, &spans);
        send(&mut line, came.as_bytes()).expect("the first process listens");
    }
    true
}

fn play(tape: &[u8], spans: &Spans) -> Replay {
    let made = replay_with(tape, |header| {
        let (config, start) = (header.config.clone(), header.start);
        match spans {
            Some(spans) => {
                let vad = Vad::scripted(spans.clone());
                Call::with_vad(config, start, header.punctuates, vad)
            }
            None => Call::new(config, start, header.punctuates),
        }
    });
    made.expect("the tape has a header")
}

fn told(replay: &Replay) -> String {
    let mut told = format!(
        "{} inputs, difference {:?}, broken {:?}, stopped {}, ended {}",
        replay.inputs, replay.difference, replay.broken, replay.stopped, replay.ended
    );
    for output in &replay.outputs {
        told.push('\n');
        told.push_str(output);
    }
    told
}

/// This program once more, at the other end of a line.
struct Second {
    child: Child,
    line: UnixStream,
}

impl Second {
    fn start() -> Self {
        let (line, theirs) = UnixStream::pair().expect("a pair of sockets");
        let program = std::env::current_exe().expect("the test's own path");
        let child = Command::new(program)
            .args(["--exact", ENTRY, "--nocapture"])
            .env(SECOND, "1")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts once more");
        Self { child, line }
    }

    fn play(&mut self, tape: &[u8], spans: &Spans) -> io::Result<String> {
        send(&mut self.line, &serde_json::to_vec(spans)?)?;
        send(&mut self.line, tape)?;
        let came = receive(&mut self.line)?;
        Ok(String::from_utf8(came).expect("outputs are text"))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It ends when nothing can come any more; one that is gone already needs no telling.
        let _ = self.line.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }
}

fn send(line: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    line.write_all(&(bytes.len() as u64).to_le_bytes())?;
    line.write_all(bytes)
}

fn receive(line: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    line.read_exact(&mut length)?;
    let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
    line.read_exact(&mut bytes)?;
    Ok(bytes)
}
