//! From the engine's news to rows: one task a call writes its turns as they finish, its end once, and
//! its recording. The engine never waits for it, and the database may come and go
//! ([`super::writer`]).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use media::call::input::{EndRequest, ToolOutcome};
use media::call::output::CallEvent;
use media::shell::CallNews;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::journal::{Entry, Owner};
use super::live::{LiveCall, Pulse};
use super::rules::{self, Ending};
use super::trace;
use super::writer::Writer;
use crate::admission::Lease;
use crate::ids::{AccountId, CallId};
use crate::node::Node;
use crate::supervisor::{self, panic_text};
use crate::telemetry;

/// News that may wait for a call's writer. An hour's call with a turn a second stays below it, so a
/// disk or a database that answers nothing for a whole call loses nothing; beyond it news are dropped
/// and counted.
const BACKLOG: usize = 4096;

/// Which call the writer follows, and under what claim.
pub struct Claim {
    pub account: AccountId,
    pub id: CallId,
    pub incarnation: i64,
    /// Turns are kept (the agent's `transcription_enabled`).
    pub transcript: bool,
    /// A recording will come (the agent's `recording_enabled`).
    pub recording: bool,
}

/// The engine's end of the line: what to hand it as `on_event`, and the receiver for [`follow`].
/// Called on media threads, so it never waits.
pub fn line(
    pulse: Arc<Pulse>,
) -> (
    Arc<dyn Fn(CallNews) + Send + Sync>,
    mpsc::Receiver<CallNews>,
) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let span = tracing::Span::current();
    let on_event = move |news: CallNews| {
        match &news {
            CallNews::Event(CallEvent::Agent(state)) => return pulse.set_agent(*state),
            CallNews::Event(CallEvent::Started) => return,
            CallNews::Event(CallEvent::Tool { id, stage }) => return pulse.set_tool(id, *stage),
            CallNews::Event(CallEvent::Turn(_)) => pulse.count_turn(),
            CallNews::Event(CallEvent::Peer(state)) => return pulse.set_peer(*state),
            CallNews::Network(quality) => return pulse.note_network(*quality),
            CallNews::CancelTool { .. } => return,
            CallNews::Event(CallEvent::Ended(_))
            | CallNews::Recorded(_)
            | CallNews::Taped(_)
            | CallNews::Tool { .. } => {}
        }
        if sender.try_send(news).is_err() {
            tracing::error!(parent: &span, "a call's writer is {BACKLOG} news behind, or gone: one is lost");
        }
    };
    (Arc::new(on_event), receiver)
}

/// Writes down one call until the engine has nothing more to tell and all of it is written, then
/// forgets it.
pub async fn follow(
    app: Node,
    claim: Claim,
    call: Arc<LiveCall>,
    lease: Lease,
    news: mpsc::Receiver<CallNews>,
) {
    let (id, owner) = (claim.id, claim.owner());
    let mut following = Following {
        writer: Writer::new(app.clone(), owner),
        // Boxed, what is long gone or seldom comes: a call's task lives as long as the call.
        trace: Box::pin(trace::begin(&app, claim.account, id)).await,
        lease: Some(lease),
        ended: false,
        app: app.clone(),
        call: call.clone(),
        claim,
        news,
    };
    if let Err(panic) = AssertUnwindSafe(following.run()).catch_unwind().await {
        let why = panic_text(&*panic).to_owned();
        tracing::error!(why, "a call's writer panicked: the call ends");
        let again = AssertUnwindSafe(Box::pin(following.go_on())).catch_unwind();
        if again.await.is_err() {
            tracing::error!("a call's writer panicked again: its end alone is written");
            let last = AssertUnwindSafe(Box::pin(write_end(&app, owner, broken()))).catch_unwind();
            if last.await.is_err() {
                tracing::error!("the end of a call could not be written for a panic");
            }
            // Until the disk is done with its files, which are the next sweep's then.
            while following.news.recv().await.is_some() {}
        }
    }
    following.let_go();
    call.ended.send_replace(true);
    app.live.remove(id);
}

/// How a call ends whose writer broke.
fn broken() -> Ending {
    Ending::engine_error("the server failed in this call".to_owned())
}

/// A call that is being written down.
struct Following {
    app: Node,
    claim: Claim,
    call: Arc<LiveCall>,
    news: mpsc::Receiver<CallNews>,
    writer: Writer,
    trace: Option<telemetry::spans::CallTrace>,
    /// Until the call is over.
    lease: Option<Lease>,
    /// Its end was written, or is kept.
    ended: bool,
}

impl Following {
    /// Takes news until there are no more, and writes what is still to be written then.
    async fn run(&mut self) {
        loop {
            let item = tokio::select! {
                item = self.news.recv() => item,
                () = self.writer.chance(), if self.writer.is_behind() => {
                    self.writer.catch_up().await;
                    self.call.ended.send_replace(self.ended && !self.writer.holds_end());
                    continue;
                }
            };
            let Some(item) = item else { break };
            #[cfg(test)]
            supervisor::faults::reach("a call's writer", self.claim.id);
            self.note(&item);
            self.take(item).await;
        }
        if !self.ended {
            // The engine let go of the call without a word: the record must not stay open.
            self.dropped(false).await;
        }
        self.writer.finish().await;
    }

    /// The same after a panic: the call ends, and what the engine still tells of it, its recording, is written.
    async fn go_on(&mut self) {
        self.call
            .insist(|handle| handle.end(EndRequest::Fault))
            .await;
        self.end(broken(), self.claim.recording).await;
        self.run().await;
    }

    /// Counts and traces a piece of news.
    fn note(&mut self, item: &CallNews) {
        match item {
            CallNews::Event(CallEvent::Turn(turn)) => {
                self.app.metrics.turn(turn);
                if let Some(trace) = &mut self.trace {
                    self.app.telemetry.send(trace.turn(turn));
                }
            }
            CallNews::Event(CallEvent::Ended(summary)) => {
                self.app.metrics.call_over(summary);
                if let Some(trace) = &mut self.trace {
                    self.app.telemetry.send([trace.ended(summary)]);
                }
                tracing::info!(
                    reason = summary.reason.name(),
                    duration_ms = summary.duration_ms,
                    turns = summary.turn_count,
                    "a call is over"
                );
            }
            _ => {}
        }
    }

    /// Writes a piece of news down.
    async fn take(&mut self, item: CallNews) {
        let is_file = matches!(item, CallNews::Recorded(_) | CallNews::Taped(_));
        if is_file && !self.ended {
            // Its media thread died with it, and only the disk still tells of it.
            self.dropped(self.claim.recording).await;
        }
        match item {
            CallNews::Event(CallEvent::Turn(turn)) if self.claim.transcript => {
                let body = rules::turn_json(&turn).to_string();
                let turn = Entry::Turn {
                    index: turn.index,
                    body,
                    text: turn.text,
                    at: self.app.clock.now(),
                };
                self.writer.put(turn).await;
            }
            CallNews::Event(CallEvent::Ended(summary)) => {
                let mut ending = Ending::of(&summary);
                ending.network = rules::network(self.call.pulse.network(), summary.media);
                ending.provider_request_ids = self.call.usage.request_ids();
                let lasted = Duration::from_millis(summary.duration_ms);
                let faults = self.call.usage.faults.over(Instant::now(), lasted);
                ending.provider_faults = (faults.count > 0).then(|| Box::new(faults));
                if let Some(used) = &mut ending.used {
                    let models = self.call.usage.read();
                    used.tokens = models.prompt_tokens + models.completion_tokens;
                }
                self.end(ending, self.claim.recording).await;
            }
            CallNews::Recorded(Ok(file)) if self.claim.recording => {
                self.writer.put(Entry::Recorded((&file).into())).await;
            }
            CallNews::Recorded(Err(error)) if self.claim.recording => {
                self.writer.put(Entry::NotRecorded { error }).await;
            }
            CallNews::Taped(path) => self.writer.put(Entry::Taped { path }).await,
            CallNews::Tool { call: wanted, .. } => {
                // Tools that this server itself runs are not part of it yet; one that waits for an
                // answer must not hold up the reply.
                let result =
                    serde_json::json!({ "error": "this server does not run tools of its own" });
                self.call.handle.tool(ToolOutcome {
                    id: wanted.id,
                    result: result.to_string(),
                    is_error: true,
                });
            }
            CallNews::Event(_)
            | CallNews::Network(_)
            | CallNews::Recorded(_)
            | CallNews::CancelTool { .. } => {}
        }
    }

    /// The engine has the call no more, and did not say how it ended.
    async fn dropped(&mut self, recording: bool) {
        let lasted = self.app.clock.moment().since(self.call.since).as_millis();
        let mut ending = Ending::engine_error("the engine dropped the call".to_owned());
        ending.duration_ms = u64::try_from(lasted).ok();
        self.end(ending, recording).await;
    }

    /// Writes the end, once. `recording`: one is to come.
    async fn end(&mut self, ending: Ending, recording: bool) {
        if self.ended {
            return;
        }
        let at = self.app.clock.now();
        let end = Entry::End {
            ending,
            recording,
            at,
        };
        self.writer.put(end).await;
        self.ended = true;
        // Not before: the next call in its slot must not stand beside it in the records.
        self.let_go();
        self.call.ended.send_replace(!self.writer.holds_end());
    }

    /// Frees the call's slot.
    fn let_go(&mut self) {
        self.call.leased.store(false, Ordering::SeqCst);
        drop(self.lease.take());
    }
}

/// Ends a call that could not start, now or when the database takes it.
pub async fn could_not_start(app: &Node, owner: Owner, ending: Ending) {
    let span = super::span(owner.account, owner.call);
    write_no_start(app, owner, ending).instrument(span).await;
}

async fn write_no_start(app: &Node, owner: Owner, ending: Ending) {
    tracing::warn!(reason = %ending.reason, "a call could not start");
    write_end(app, owner, ending).await;
}

/// Writes the end of a call that the engine never had, now or when the database takes it.
pub async fn write_end(app: &Node, owner: Owner, ending: Ending) {
    let mut writer = Writer::new(app.clone(), owner);
    let at = app.clock.now();
    let recording = false;
    writer
        .put(Entry::End {
            ending,
            recording,
            at,
        })
        .await;
    if writer.is_behind() {
        let finish = async move { writer.finish().await };
        supervisor::detached("the end of a call is written", finish);
    }
}

impl Claim {
    const fn owner(&self) -> Owner {
        Owner {
            account: self.account,
            call: self.id,
            incarnation: self.incarnation,
        }
    }
}
