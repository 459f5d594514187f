//! The way into a media thread: bounded queues and one wake-up for all that is in them.
//!
//! A thread that has ended takes nothing any more. What lay in its queue then is dropped, by the thread as it ends or by
//! whoever sent it at that moment, so that a call in it is over as those are that ran.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::counters::{Tallies, count};
use super::live::Renewal;
use super::placed::Placed;
use crate::call::input::{EndRequest, ToolOutcome};
use crate::peer::{PeerAnswer, PeerRequest};
use crate::speech::{NotTaken, SpeechEvent, SpeechSink};

/// Names a call for as long as the engine lives; never used twice, so a late word cannot reach
/// another call.
pub(super) type CallKey = u64;

/// What the API's world tells a media thread.
pub(super) enum Command {
    Place(Box<Placed>),
    End(CallKey, EndRequest),
    Tool(CallKey, ToolOutcome),
    /// The other side of a telephone call hung up.
    HungUp(CallKey),
    /// The other side of a telephone call is not there any more, without a word.
    Lost(CallKey),
    /// Send a key on a telephone call.
    Press(CallKey, char),
    /// The other side of a telephone call told of a key by its signalling.
    Key(CallKey, char),
    /// Both sides of a telephone call agreed anew.
    Media(CallKey, Box<Renewal>),
    Peer(CallKey, PeerRequest, PeerAnswer),
    /// Every call ends.
    EndAll(EndRequest),
    /// The thread ends, as soon as its calls have closed their sockets.
    Stop,
}

/// Answers of providers that a thread may hold. A thread empties its queue at every pass, and a call
/// may have [`PENDING`] in it, so this is reached only when the thread itself is behind.
const SPEECH_QUEUE: usize = 4096;

/// Answers of one call's providers that may wait. A voice's chunk is at most a few tens of KiB and a
/// pass takes them all, so a call holds little and cannot fill the thread's queue alone.
const PENDING: u32 = 64;

/// How long a provider waits for room before its answer is dropped. Providers have their own
/// threads; one that waits longer than a caller would is of no use.
const PATIENCE: Duration = Duration::from_secs(1);

/// One media thread as others see it.
pub(super) struct Mailbox {
    commands: Sender<Command>,
    /// What nobody will take is taken out here.
    queue: Receiver<Command>,
    /// The thread takes what is sent.
    alive: AtomicBool,
    speech: Sender<(CallKey, SpeechEvent)>,
    waker: mio::Waker,
    /// A wake-up is under way: more would be system calls for nothing.
    woken: AtomicBool,
    thread: OnceLock<ThreadId>,
    /// Calls placed on the thread and not yet over.
    pub(super) live: AtomicUsize,
    pub(super) tallies: Arc<Tallies>,
}

/// The thread's ends of the queues. Dropped with the thread.
pub(super) struct Inbox {
    pub(super) commands: Receiver<Command>,
    pub(super) speech: Receiver<(CallKey, SpeechEvent)>,
    mailbox: Arc<Mailbox>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Whoever sends later sees it; whoever sent before it is in the queue.
        self.mailbox.alive.store(false, Ordering::SeqCst);
        self.mailbox.clear();
    }
}

impl Mailbox {
    /// `calls`: how many calls the thread may be given. A call has one placing, one end, and a few
    /// tool results under way, so four commands a call.
    pub(super) fn new(
        waker: mio::Waker,
        calls: usize,
        tallies: Arc<Tallies>,
    ) -> (Arc<Self>, Inbox) {
        let (commands, commands_out) = bounded(calls.saturating_mul(4).saturating_add(64));
        let (speech, speech_out) = bounded(SPEECH_QUEUE);
        let mailbox = Arc::new(Self {
            commands,
            queue: commands_out.clone(),
            alive: AtomicBool::new(true),
            speech,
            waker,
            woken: AtomicBool::new(false),
            thread: OnceLock::new(),
            live: AtomicUsize::new(0),
            tallies,
        });
        let inbox = Inbox {
            commands: commands_out,
            speech: speech_out,
            mailbox: mailbox.clone(),
        };
        (mailbox, inbox)
    }

    /// `false`: the thread is behind with its commands, or gone.
    pub(super) fn command(&self, command: Command) -> bool {
        let sent = self.is_alive() && self.commands.try_send(command).is_ok();
        self.sent(sent)
    }

    /// Waits for room: for the few commands that must arrive. `false`: the thread is gone.
    pub(super) fn insist(&self, command: Command) -> bool {
        // A thread that ends makes room in its queue.
        let sent = self.is_alive() && self.commands.send(command).is_ok();
        self.sent(sent)
    }

    /// Whether the thread takes what it is sent.
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// A command was sent, or was not. `false`: nobody will take it.
    fn sent(&self, sent: bool) -> bool {
        if !self.is_alive() {
            self.clear();
            return false;
        }
        self.wake();
        sent
    }

    /// Drops what waits for a thread that has ended.
    fn clear(&self) {
        for command in self.queue.try_iter() {
            // Providers of a call go with it. One that panics has nothing left to break, and others still wait.
            if catch_unwind(AssertUnwindSafe(|| drop(command))).is_err() {
                count(&self.tallies.panics, 1);
            }
        }
    }

    /// Called once by the media thread itself.
    pub(super) fn owned_by_this_thread(&self) {
        // Only the first owner counts, and there is one.
        let _ = self.thread.set(thread::current().id());
    }

    /// Called by the media thread before it empties its queues: what is sent from now on wakes it.
    pub(super) fn awake(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "cannot wake a media thread");
        }
    }

    fn on_media_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }
}

/// What a call and its providers' sink share.
#[derive(Debug, Default)]
pub(super) struct Gate {
    pending: AtomicU32,
    gone: AtomicBool,
}

impl Gate {
    /// An answer was taken out of the queue.
    pub(super) fn taken(&self) {
        self.pending.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn close(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    fn enter(&self) -> bool {
        self.pending
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
                (n < PENDING).then_some(n + 1)
            })
            .is_ok()
    }
}

/// Closes the gate when it is dropped: a call is over when nobody has it any more, however that came.
pub(super) struct Keeper(pub(super) Arc<Gate>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The engine's [`SpeechSink`] of one call.
pub(super) struct Sink {
    pub(super) key: CallKey,
    pub(super) gate: Arc<Gate>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl SpeechSink for Sink {
    /// Usually returns at once. Waits up to a second while the call's queue is full, except on the
    /// media thread itself, where waiting would be for oneself.
    fn send(&self, event: SpeechEvent) -> bool {
        let waits = if self.mailbox.on_media_thread() {
            0
        } else {
            PATIENCE.as_millis()
        };
        let mut event = event;
        for wait in 0..=waits {
            if wait > 0 {
                // No condition to wait on: the media thread must not pay for a full queue.
                thread::sleep(Duration::from_millis(1));
            }
            match self.offer(event) {
                Ok(()) => return true,
                Err(NotTaken::Gone) => return false,
                Err(NotTaken::Full(back)) => event = *back,
            }
        }
        count(&self.mailbox.tallies.dropped_events, 1);
        false
    }

    fn offer(&self, event: SpeechEvent) -> Result<(), NotTaken> {
        if self.gate.is_closed() {
            return Err(NotTaken::Gone);
        }
        if !self.gate.enter() {
            return Err(NotTaken::Full(Box::new(event)));
        }
        match self.mailbox.speech.try_send((self.key, event)) {
            Ok(()) => {
                self.mailbox.wake();
                Ok(())
            }
            Err(TrySendError::Full((_, back))) => {
                self.gate.taken();
                Err(NotTaken::Full(Box::new(back)))
            }
            Err(TrySendError::Disconnected(_)) => Err(NotTaken::Gone),
        }
    }
}
