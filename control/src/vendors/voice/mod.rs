//! The voices of espeak-ng and flite: programs of the distribution, run once for each sentence.
//!
//! A subprocess keeps the copyleft of espeak-ng outside this program. Starting one per sentence was
//! measured against keeping one warm: the first sound comes after 12 ms (espeak-ng) and 70 ms
//! (flite, whose voices render the whole sentence first) and nothing has to be cleaned up after an
//! interruption. A pool of threads bounds how many run at once; sentences of one call never overtake
//! each other.

mod program;
mod wav;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use media::speech::{ReplyId, SpeechEvent, SpeechSink, Synthesiser, SynthesiserEvent};

use super::queue::{Queue, lock};
use super::{ProviderRole, SpeechUnavailable};
use crate::catalogue::voices::Engine;
use crate::supervisor::Supervisor;
pub use program::{Program, render};

/// Calls that can wait for a thread; each call waits at most once, so this is far above any node's cap.
const WAITING_CALLS: usize = 4096;

/// Sentences one call may have waiting. The engine asks for the next one only when little is left to
/// play, so more than a few means that it lost count.
const WAITING_SEGMENTS: usize = 32;

/// A sentence that takes longer to render is given up. Renderings run at 50 times real time or more.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often the deadline is looked at.
const WATCH: Duration = Duration::from_millis(500);

/// Whether the program of this voice is on the machine.
pub fn installed(engine: Engine) -> Result<(), SpeechUnavailable> {
    let Some(program) = engine.program() else {
        return Ok(());
    };
    if program::on_path(program) {
        return Ok(());
    }
    Err(SpeechUnavailable {
        what: ProviderRole::Voice,
        why: format!("The program {program} of this voice is not installed on the server."),
        may_pass: false,
    })
}

/// How the name begins of a file that a voice is rendered in.
const SCRATCH: &str = "voice-";

/// Removes what was being rendered when the process before this one died: it is what an agent said. A pid that lives is
/// another process's, in tests for example.
fn forget_scratch(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        let pid = name.and_then(|name| name.strip_suffix(".wav")?.split_once('-'));
        let Some(pid) = pid.and_then(|(pid, _)| pid.parse::<u32>().ok()) else {
            continue;
        };
        let lives = Path::new(&format!("/proc/{pid}")).exists();
        if !lives && let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::warn!(%error, "what a voice left could not be removed");
        }
    }
    Ok(())
}

/// The threads that run the voices' programs.
pub struct VoicePool {
    ready: Queue<Arc<SpokenCall>>,
    running: Mutex<Vec<Arc<Program>>>,
    stopping: AtomicBool,
}

impl VoicePool {
    /// Starts `threads` workers and a watch over their deadlines. Renderings that go through a file
    /// do so in `folder`.
    pub fn start(threads: usize, folder: &Path, watch: &Supervisor) -> io::Result<Arc<Self>> {
        forget_scratch(folder)?;
        let pool = Arc::new(Self {
            ready: Queue::new(WAITING_CALLS),
            running: Mutex::new(Vec::new()),
            stopping: AtomicBool::new(false),
        });
        for index in 0..threads.max(1) {
            let scratch = folder.join(format!("{SCRATCH}{}-{index}.wav", std::process::id()));
            let pool = Arc::clone(&pool);
            watch.thread(format!("voice-{index}"), move || {
                while let Some(line) = pool.ready.take() {
                    pool.speak_next(&line, &scratch);
                }
            })?;
        }
        let watched = Arc::clone(&pool);
        watch.thread("voice-watch".to_owned(), move || watched.watch())?;
        Ok(pool)
    }

    /// The voice of one call.
    pub fn synthesiser(
        self: &Arc<Self>,
        engine: Engine,
        sink: Arc<dyn SpeechSink>,
    ) -> ProgramVoice {
        let line = SpokenCall {
            engine,
            sink,
            span: tracing::Span::current(),
            state: Mutex::new(SpokenCallState::default()),
        };
        ProgramVoice {
            line: Arc::new(line),
            pool: Arc::clone(self),
        }
    }

    /// Ends the workers and what they run.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ready.close();
        for program in lock(&self.running).iter() {
            program.kill();
        }
    }

    /// Renders the first waiting sentence of a call, then queues the call again if it has more.
    fn speak_next(&self, line: &Arc<SpokenCall>, scratch: &Path) {
        let Some(job) = lock(&line.state).waiting.pop_front() else {
            lock(&line.state).queued = false;
            return;
        };
        let rendered = self.render(line, &job, scratch);
        // A program that was killed because nobody wants the sentence any longer ends with a signal, too.
        if !line.is_cancelled(job.reply) {
            let event = match rendered {
                Ok(()) => SynthesiserEvent::Done,
                Err(error) => {
                    // A program's own fault: it repeats nothing of the text.
                    tracing::warn!(parent: &line.span, %error, "a voice's program failed");
                    SynthesiserEvent::Failed {
                        message: error.to_string(),
                    }
                }
            };
            line.send(&job, event);
        }
        let mut state = lock(&line.state);
        state.speaking = None;
        state.queued = !state.waiting.is_empty();
        if state.queued && self.ready.push(Arc::clone(line)).is_err() {
            state.queued = false;
        }
    }

    fn render(&self, line: &SpokenCall, job: &Job, scratch: &Path) -> io::Result<()> {
        let program = Arc::new(Program::start(line.engine, &job.text, scratch)?);
        {
            let mut state = lock(&line.state);
            if state.cancelled >= Some(job.reply) {
                program.kill();
            }
            state.speaking = Some((job.reply, Arc::clone(&program)));
        }
        lock(&self.running).push(Arc::clone(&program));
        let result = program.read(|rate, samples| {
            !line.is_cancelled(job.reply)
                && line.send(
                    job,
                    SynthesiserEvent::Audio {
                        rate,
                        samples: samples.to_vec(),
                    },
                )
        });
        lock(&self.running).retain(|other| !Arc::ptr_eq(other, &program));
        result
    }

    fn watch(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            thread::park_timeout(WATCH);
            let now = Instant::now();
            for program in lock(&self.running).iter() {
                if now.saturating_duration_since(program.started) > DEADLINE {
                    program.kill();
                }
            }
        }
    }
}

/// One call's voice, held by the call.
pub struct ProgramVoice {
    line: Arc<SpokenCall>,
    pool: Arc<VoicePool>,
}

/// What one call wants spoken, shared with the worker that speaks it.
struct SpokenCall {
    engine: Engine,
    sink: Arc<dyn SpeechSink>,
    /// The call's, for the log.
    span: tracing::Span,
    state: Mutex<SpokenCallState>,
}

#[derive(Default)]
struct SpokenCallState {
    waiting: VecDeque<Job>,
    /// Waits for a worker, or has one.
    queued: bool,
    speaking: Option<(ReplyId, Arc<Program>)>,
    /// Every reply up to this one is cancelled.
    cancelled: Option<ReplyId>,
}

struct Job {
    reply: ReplyId,
    segment: u32,
    text: String,
}

impl SpokenCall {
    fn is_cancelled(&self, reply: ReplyId) -> bool {
        lock(&self.state).cancelled >= Some(reply)
    }

    fn send(&self, job: &Job, event: SynthesiserEvent) -> bool {
        self.sink.send(SpeechEvent::Synthesiser {
            reply: job.reply,
            segment: job.segment,
            event,
        })
    }
}

impl Synthesiser for ProgramVoice {
    fn speak(&mut self, reply: ReplyId, segment: u32, text: &str) {
        let job = Job {
            reply,
            segment,
            text: text.to_owned(),
        };
        let mut state = lock(&self.line.state);
        if state.waiting.len() >= WAITING_SEGMENTS {
            drop(state);
            let message = "too many sentences wait for the voice".to_owned();
            self.line.send(&job, SynthesiserEvent::Failed { message });
            return;
        }
        state.waiting.push_back(job);
        if !state.queued {
            state.queued = true;
            if self.pool.ready.push(Arc::clone(&self.line)).is_err() {
                state.queued = false;
                let job = state.waiting.pop_back();
                drop(state);
                if let Some(job) = job {
                    let message = "no thread is free for the voice".to_owned();
                    self.line.send(&job, SynthesiserEvent::Failed { message });
                }
            }
        }
    }

    fn cancel(&mut self, reply: ReplyId) {
        let mut state = lock(&self.line.state);
        state.cancelled = state.cancelled.max(Some(reply));
        state.waiting.retain(|job| job.reply > reply);
        if let Some((speaking, program)) = &state.speaking
            && *speaking <= reply
        {
            program.kill();
        }
    }
}

impl Drop for ProgramVoice {
    fn drop(&mut self) {
        self.cancel(ReplyId(u32::MAX));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct EventSink(mpsc::Sender<SpeechEvent>);

    impl SpeechSink for EventSink {
        fn send(&self, event: SpeechEvent) -> bool {
            self.0.send(event).is_ok()
        }
    }

    fn line_to(engine: Engine) -> (Box<dyn Synthesiser>, mpsc::Receiver<SpeechEvent>) {
        let folder = std::env::temp_dir();
        let pool = VoicePool::start(1, &folder, &Supervisor::default()).unwrap();
        let (events, heard) = mpsc::channel();
        (
            Box::new(pool.synthesiser(engine, Arc::new(EventSink(events)))),
            heard,
        )
    }

    /// Seconds of audio of the segment, once it is complete.
    fn listen(
        heard: &mpsc::Receiver<SpeechEvent>,
        reply: u32,
        segment: u32,
    ) -> Result<f64, String> {
        let mut seconds = 0.0;
        while let Ok(event) = heard.recv_timeout(Duration::from_secs(20)) {
            let SpeechEvent::Synthesiser {
                reply: r,
                segment: s,
                event,
            } = event
            else {
                continue;
            };
            assert_eq!(
                (r, s),
                (ReplyId(reply), segment),
                "sentences came out of order"
            );
            match event {
                SynthesiserEvent::Audio { rate, samples } => {
                    seconds += samples.len() as f64 / f64::from(rate);
                }
                SynthesiserEvent::Done => return Ok(seconds),
                SynthesiserEvent::Failed { message } => return Err(message),
            }
        }
        Err("nothing came".into())
    }

    const ESPEAK: Engine = Engine::Espeak {
        name: "en-us",
        pitch: 50,
        words_per_minute: 165,
    };

    #[test]
    fn two_sentences_are_spoken_in_order() {
        let (mut voice, heard) = line_to(ESPEAK);
        voice.speak(ReplyId(1), 0, "Breakfast is at eight.");
        voice.speak(ReplyId(1), 1, "Good bye.");
        let first = listen(&heard, 1, 0).unwrap();
        let second = listen(&heard, 1, 1).unwrap();
        assert!(first > 0.8 && second > 0.3, "{first} s and {second} s");
    }

    #[test]
    fn flite_speaks_the_whole_sentence() {
        let (mut voice, heard) = line_to(Engine::Flite { name: "slt" });
        voice.speak(
            ReplyId(1),
            0,
            "Breakfast is served from seven to ten thirty in the morning.",
        );
        let seconds = listen(&heard, 1, 0).unwrap();
        assert!((2.0..8.0).contains(&seconds), "{seconds} s");
    }

    #[test]
    fn after_a_cancel_the_next_reply_is_the_next_sound() {
        let (mut voice, heard) = line_to(ESPEAK);
        let long = "This sentence goes on for a while. ".repeat(40);
        voice.speak(ReplyId(1), 0, &long);
        assert!(matches!(
            heard.recv_timeout(Duration::from_secs(20)).unwrap(),
            SpeechEvent::Synthesiser {
                event: SynthesiserEvent::Audio { .. },
                ..
            }
        ));
        voice.cancel(ReplyId(1));
        while heard.try_recv().is_ok() {}
        voice.speak(ReplyId(2), 0, "Yes?");
        assert!(listen(&heard, 2, 0).unwrap() > 0.2);
    }

    #[test]
    fn an_unknown_voice_fails_clearly() {
        let (mut voice, heard) = line_to(Engine::Espeak {
            name: "xx-nowhere",
            pitch: 50,
            words_per_minute: 165,
        });
        voice.speak(ReplyId(1), 0, "Hello.");
        let message = listen(&heard, 1, 0).unwrap_err();
        assert!(message.contains("espeak-ng"), "{message}");
    }
}
