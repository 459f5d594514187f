//! From the engine's news to rows: one task a call writes its turns as they finish, its end once, and
//! its recording. The engine never waits for it, and the database may come and go
//! ([`super::writer`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use media::call::input::ToolOutcome;
use media::call::output::CallEvent;
use media::shell::CallNews;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::journal::{Entry, Owner};
use super::live::{LiveCall, Pulse};
use super::rules::{self, Ending};
use super::writer::Writer;
use crate::admission::Lease;
use crate::app::App;
use crate::ids::{AccountId, CallId};
use crate::recordings;
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
    app: App,
    claim: Claim,
    call: Arc<LiveCall>,
    lease: Lease,
    mut news: mpsc::Receiver<CallNews>,
) {
    let mut writer = Writer::new(app.clone(), claim.owner());
    // Boxed, what is long gone or seldom comes: a call's task lives as long as the call.
    let mut trace = Box::pin(telemetry::begin(&app, claim.account, claim.id)).await;
    let mut lease = Some(lease);
    let mut ended = false;
    loop {
        let item = tokio::select! {
            item = news.recv() => item,
            () = writer.chance(), if writer.is_behind() => {
                writer.catch_up().await;
                call.ended.send_replace(ended && !writer.holds_end());
                continue;
            }
        };
        let Some(item) = item else { break };
        let at = app.clock.now();
        match &item {
            CallNews::Event(CallEvent::Turn(turn)) => {
                app.metrics.turn(turn);
                if let Some(trace) = &mut trace {
                    app.telemetry.send(trace.turn(turn));
                }
            }
            CallNews::Event(CallEvent::Ended(summary)) => {
                app.metrics.call_over(summary);
                if let Some(trace) = &mut trace {
                    app.telemetry.send([trace.ended(summary)]);
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
        match item {
            CallNews::Event(CallEvent::Turn(turn)) if claim.transcript => {
                let body = rules::turn_json(&turn).to_string();
                writer
                    .put(Entry::Turn {
                        index: turn.index,
                        body,
                        text: turn.text,
                        at,
                    })
                    .await;
            }
            CallNews::Event(CallEvent::Ended(summary)) => {
                let (mut ending, recording) = (Ending::of(&summary), claim.recording);
                ending.network = rules::network(call.pulse.network(), summary.media);
                ending.provider_request_ids = call.usage.request_ids();
                let lasted = Duration::from_millis(summary.duration_ms);
                let faults = call.usage.faults.over(Instant::now(), lasted);
                ending.provider_faults = (faults.count > 0).then(|| Box::new(faults));
                if let Some(used) = &mut ending.used {
                    let models = call.usage.read();
                    used.tokens = models.prompt_tokens + models.completion_tokens;
                }
                writer
                    .put(Entry::End {
                        ending,
                        recording,
                        at,
                    })
                    .await;
                // Not before: the next call in its slot must not stand beside it in the records.
                call.leased.store(false, Ordering::SeqCst);
                drop(lease.take());
                ended = true;
                call.ended.send_replace(!writer.holds_end());
            }
            CallNews::Recorded(Ok(file)) if claim.recording => {
                writer.put(Entry::Recorded((&file).into())).await;
            }
            CallNews::Recorded(Err(error)) if claim.recording => {
                writer.put(Entry::NotRecorded { error }).await;
            }
            CallNews::Taped(path) => {
                Box::pin(recordings::keep_tape_alone(
                    &app,
                    claim.account,
                    claim.id,
                    &path,
                ))
                .await;
            }
            CallNews::Tool { call: wanted, .. } => {
                // Tools that this server itself runs are not part of it yet; one that waits for an
                // answer must not hold up the reply.
                let result =
                    serde_json::json!({ "error": "this server does not run tools of its own" });
                call.handle.tool(ToolOutcome {
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
    if !ended {
        // The engine let go of the call without a word: the record must not stay open.
        let ending = Ending::engine_error("the engine dropped the call".to_owned());
        writer
            .put(Entry::End {
                ending,
                recording: false,
                at: app.clock.now(),
            })
            .await;
        call.leased.store(false, Ordering::SeqCst);
        drop(lease.take());
    }
    writer.finish().await;
    call.ended.send_replace(true);
    app.live.remove(claim.id);
}

/// Ends a call that could not start, now or when the database takes it.
pub async fn could_not_start(app: &App, owner: Owner, ending: Ending) {
    let span = super::span(owner.account, owner.call);
    write_no_start(app, owner, ending).instrument(span).await;
}

async fn write_no_start(app: &App, owner: Owner, ending: Ending) {
    tracing::warn!(reason = %ending.reason, "a call could not start");
    write_end(app, owner, ending).await;
}

/// Writes the end of a call that the engine never had, now or when the database takes it.
pub async fn write_end(app: &App, owner: Owner, ending: Ending) {
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
        tokio::spawn(writer.finish().in_current_span());
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
