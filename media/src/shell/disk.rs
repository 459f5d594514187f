//! The disk thread: empties the media threads' rings into spool files. A second thread makes the
//! finished files, since a long call's merge would let the rings run full.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rtrb::Consumer;
use rustc_hash::FxHashMap;

use super::counters::{Tallies, count};
use super::engine::{CallNews, OnEvent, tell};
use super::finish::{self, Spools};
use super::mailbox::CallKey;
use super::recorder::{Header, Kind};

/// How long the thread sleeps when nobody wakes it.
const NAP: Duration = Duration::from_millis(100);

/// How old the known amount of free space may be.
const FREE_AGE: Duration = Duration::from_secs(5);

/// Calls whose files wait to be made. More would mean that the disk cannot follow at all: their
/// recordings fail.
const FINISHING: usize = 4096;

/// A call that will be written.
pub(super) struct Opening {
    pub(super) key: CallKey,
    pub(super) session_id: String,
    pub(super) recording: bool,
    /// The media thread that has it: its place among the rings.
    pub(super) thread: usize,
    pub(super) on_event: OnEvent,
    /// What the log says of the call.
    pub(super) span: tracing::Span,
}

/// Both threads, and the way to them.
pub(super) struct Disk {
    pub(super) openings: Sender<Opening>,
    pub(super) writer: JoinHandle<()>,
    pub(super) finisher: JoinHandle<()>,
}

/// Starts both threads. They end when the senders of openings and the rings' producers are gone.
pub(super) fn start(
    (folder, min_free): (&Path, u64),
    rings: Vec<Consumer<u8>>,
    calls: usize,
    tallies: &Arc<Tallies>,
) -> io::Result<Disk> {
    std::fs::create_dir_all(folder)?;
    // A call is opened once, and the thread takes all at each turn.
    let (openings, opened) = bounded(calls.saturating_add(64));
    let (done, finishing) = bounded(FINISHING);
    let finisher = {
        let tallies = tallies.clone();
        thread::Builder::new()
            .name("finish".to_owned())
            .spawn(move || finish_all(&finishing, &tallies))?
    };
    let mut writer = Writer {
        folder: folder.to_owned(),
        min_free,
        rings: rings.into_iter().map(RingEnd::new).collect(),
        opened,
        done,
        calls: FxHashMap::default(),
        free: None,
        tallies: tallies.clone(),
    };
    let writer = thread::Builder::new()
        .name("disk".to_owned())
        .spawn(move || writer.run())?;
    Ok(Disk {
        openings,
        writer,
        finisher,
    })
}

struct Writer {
    folder: PathBuf,
    /// New recordings do not start when less than this is free, bytes: room for what the live ones
    /// still need.
    min_free: u64,
    rings: Vec<RingEnd>,
    opened: Receiver<Opening>,
    done: Sender<Finished>,
    calls: FxHashMap<CallKey, Call>,
    free: Option<(Instant, bool)>,
    tallies: Arc<Tallies>,
}

/// What comes from one media thread.
struct RingEnd {
    ring: Consumer<u8>,
    /// The header whose body has not come yet.
    waiting: Option<Header>,
    /// The thread is over; what is in the ring is all there is.
    abandoned: bool,
}

impl RingEnd {
    const fn new(ring: Consumer<u8>) -> Self {
        Self {
            ring,
            waiting: None,
            abandoned: false,
        }
    }
}

/// A call that is being written.
struct Call {
    spools: Option<Spools>,
    recording: bool,
    thread: usize,
    caller: Option<File>,
    agent: Option<File>,
    tape: Option<File>,
    failed: Option<String>,
    on_event: OnEvent,
    span: tracing::Span,
}

/// A call of which nothing more is written.
struct Finished {
    spools: Option<Spools>,
    recording: bool,
    failed: Option<String>,
    gap_ms: u64,
    on_event: OnEvent,
}

impl Writer {
    fn run(&mut self) {
        loop {
            // Asked before the rings are emptied: what came before is then all there is.
            for end in &mut self.rings {
                end.abandoned = end.ring.is_abandoned();
            }
            self.take_openings();
            for ring in 0..self.rings.len() {
                while self.take_message(ring) {}
                if self.rings[ring].abandoned {
                    self.let_go(ring);
                }
            }
            if self.rings.iter().all(|end| end.abandoned) {
                return;
            }
            thread::park_timeout(NAP);
        }
    }

    /// Ends the files of calls whose media thread died with them: what came of them is kept. A thread that was
    /// told to stop has ended each of its own.
    fn let_go(&mut self, thread: usize) {
        let theirs = self.calls.iter().filter(|(_, call)| call.thread == thread);
        let left: Vec<CallKey> = theirs.map(|(key, _)| *key).collect();
        for key in left {
            self.end(Header {
                key,
                kind: Kind::End,
                at: 0,
                length: 0,
            });
        }
    }

    fn take_openings(&mut self) {
        while let Ok(opening) = self.opened.try_recv() {
            let Opening {
                key: _,
                session_id,
                recording,
                thread,
                on_event,
                span,
            } = opening;
            #[cfg(test)]
            super::faults::reach(super::faults::DISK, &session_id);
            let call = Call {
                spools: None,
                recording,
                thread,
                caller: None,
                agent: None,
                tape: None,
                failed: None,
                on_event,
                span,
            };
            let call = self.open(&session_id, call);
            self.calls.insert(opening.key, call);
        }
    }

    /// Makes a call's files: all of them, or none.
    fn open(&mut self, session_id: &str, mut call: Call) -> Call {
        if self.low() {
            count(&self.tallies.refused_recordings, u64::from(call.recording));
            call.failed = Some("not recorded: the disk is nearly full".to_owned());
            return call;
        }
        let spools = match Spools::new(&self.folder, session_id) {
            Ok(spools) => spools,
            Err(error) => {
                call.failed = Some(format!("not recorded: {error}"));
                return call;
            }
        };
        match call.create(&spools) {
            Ok(()) => call.spools = Some(spools),
            Err(error) => {
                call.failed = Some(format!("not recorded: {error}"));
                (call.caller, call.agent, call.tape) = (None, None, None);
                if let Err(error) = spools.discard() {
                    tracing::warn!(parent: &call.span, %error, "the files of a call that is not recorded stay for now");
                }
            }
        }
        call
    }

    /// Whether the disk is too full for a new recording. One that does not tell is not.
    fn low(&mut self) -> bool {
        let now = now();
        match self.free {
            Some((asked, low)) if now - asked < FREE_AGE => low,
            _ => {
                let low = finish::free(&self.folder).is_ok_and(|free| free < self.min_free);
                self.free = Some((now, low));
                low
            }
        }
    }

    /// Takes one message out of a ring. `false`: there is no whole one.
    fn take_message(&mut self, index: usize) -> bool {
        let RingEnd { ring, waiting, .. } = &mut self.rings[index];
        let header = match waiting.take() {
            Some(header) => header,
            None => {
                let mut bytes = [0; Header::SIZE];
                if ring.pop_entire_slice(&mut bytes).is_err() {
                    return false;
                }
                Header::from_bytes(bytes)
            }
        };
        // Its opening was sent before this message.
        if !self.calls.contains_key(&header.key) {
            self.take_openings();
        }
        if header.kind == Kind::End {
            self.end(header);
            return true;
        }
        let RingEnd { ring, waiting, .. } = &mut self.rings[index];
        let Ok(body) = ring.read_chunk(header.length as usize) else {
            *waiting = Some(header);
            return false;
        };
        if let Some(call) = self.calls.get_mut(&header.key) {
            // In two pieces where the ring goes round.
            let (front, back) = body.as_slices();
            call.write(header, front, back);
        }
        body.commit_all();
        true
    }

    fn end(&mut self, header: Header) {
        let Some(call) = self.calls.remove(&header.key) else {
            return;
        };
        let Call {
            spools,
            recording,
            failed,
            on_event,
            thread: _,
            span: _,
            caller: _,
            agent: _,
            tape: _,
        } = call;
        let finished = Finished {
            spools,
            recording,
            failed,
            gap_ms: header.at,
            on_event,
        };
        if let Err(refused) = self.done.try_send(finished) {
            let finished = refused.into_inner();
            match finished.spools {
                // It is whole as it is.
                Some(spools) if !finished.recording => {
                    tell(&finished.on_event, CallNews::Taped(spools.tape));
                }
                None if !finished.recording => {}
                _ => {
                    count(&self.tallies.failed_recordings, 1);
                    let why = "too many recordings wait to be finished".to_owned();
                    tell(&finished.on_event, CallNews::Recorded(Err(why)));
                }
            }
        }
    }
}

impl Call {
    fn create(&mut self, spools: &Spools) -> io::Result<()> {
        self.tape = Some(create(&spools.tape)?);
        if self.recording {
            self.caller = Some(create(&spools.caller)?);
            self.agent = Some(create(&spools.agent)?);
        }
        Ok(())
    }

    fn write(&mut self, header: Header, front: &[u8], back: &[u8]) {
        let (file, at) = match header.kind {
            Kind::Caller => (&self.caller, header.at * 2),
            Kind::Agent => (&self.agent, header.at * 2),
            Kind::Tape => (&self.tape, header.at),
            Kind::End => return,
        };
        let Some(file) = file else { return };
        let written = file.write_all_at(front, at);
        let written = written.and_then(|()| file.write_all_at(back, at + front.len() as u64));
        match (written, header.kind) {
            (Ok(()), _) => {}
            (Err(error), Kind::Tape) => {
                tracing::warn!(parent: &self.span, %error, "the tape of a call cannot be written");
                self.tape = None;
            }
            (Err(error), _) => {
                // What is kept stays aligned and playable, but it is not the whole call.
                let why = format!("recording broke off: {error}");
                if let Some(spools) = &self.spools {
                    self.span.in_scope(|| spools.mark_broken(&why));
                }
                self.failed.get_or_insert(why);
                (self.caller, self.agent) = (None, None);
            }
        }
    }
}

fn finish_all(finishing: &Receiver<Finished>, tallies: &Tallies) {
    for Finished {
        spools,
        recording,
        failed,
        gap_ms,
        on_event,
    } in finishing
    {
        #[cfg(test)]
        if let Some(spools) = &spools {
            super::faults::reach(super::faults::FINISH, &spools.tape.to_string_lossy());
        }
        if !recording {
            if let Some(spools) = spools {
                tell(&on_event, CallNews::Taped(spools.tape));
            }
            continue;
        }
        let made = spools.map(|spools| {
            spools
                .finish(gap_ms)
                .map_err(|error| format!("recording not finished: {error}"))
        });
        let result = match (failed, made) {
            (Some(failed), Some(Ok(mut file))) => {
                file.broken.get_or_insert(failed);
                Ok(file)
            }
            (Some(failed), _) => Err(failed),
            (None, Some(made)) => made,
            (None, None) => Err("not recorded".to_owned()),
        };
        if result.as_ref().map_or(true, |file| file.broken.is_some()) {
            count(&tallies.failed_recordings, 1);
        }
        tell(&on_event, CallNews::Recorded(result));
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

fn now() -> Instant {
    Instant::now()
}
