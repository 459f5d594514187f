//! From the engine's news to rows: one task a call writes its turns as they finish, its end once, and
//! its recording. The engine never waits for it, and the database may come and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use media::call::input::ToolOutcome;
use media::call::output::CallEvent;
use media::call::record::Turn;
use media::shell::CallNews;
use tokio::sync::mpsc;

use super::ending::{self, Also};
use super::live::{LiveCall, Pulse};
use super::rules::{self, Ending};
use super::store;
use crate::admission::Lease;
use crate::app::App;
use crate::db::DbError;
use crate::ids::{AccountId, CallId};
use crate::recordings;

/// News that may wait for a call's writer. An hour's call with a turn a second stays below it, so a
/// database that is away for a whole call loses nothing; beyond it news are dropped and counted.
const BACKLOG: usize = 4096;
/// First and longest pause between two tries to write.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

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
    let on_event = move |news: CallNews| {
        match &news {
            CallNews::Event(CallEvent::Agent(state)) => return pulse.set_agent(*state),
            CallNews::Event(CallEvent::Started) => return,
            CallNews::Event(CallEvent::Tool { id, stage }) => return pulse.set_tool(id, *stage),
            CallNews::Event(CallEvent::Turn(_)) => pulse.count_turn(),
            CallNews::CancelTool { .. } => return,
            CallNews::Event(CallEvent::Ended(_))
            | CallNews::Recorded(_)
            | CallNews::Taped(_)
            | CallNews::Tool { .. } => {}
        }
        if sender.try_send(news).is_err() {
            tracing::error!("a call's writer is {BACKLOG} news behind, or gone: one is lost");
        }
    };
    (Arc::new(on_event), receiver)
}

/// Writes down one call until the engine has nothing more to tell, then forgets it.
pub async fn follow(
    app: App,
    claim: Claim,
    call: Arc<LiveCall>,
    lease: Lease,
    mut news: mpsc::Receiver<CallNews>,
) {
    let mut lease = Some(lease);
    let mut ended = false;
    while let Some(item) = news.recv().await {
        match item {
            CallNews::Event(CallEvent::Turn(turn)) if claim.transcript => {
                let mut retry = Retry::of("a turn");
                while retry.wanted(write_turn(&app, &claim, &turn).await).await {}
            }
            CallNews::Event(CallEvent::Ended(summary)) => {
                call.leased.store(false, Ordering::SeqCst);
                drop(lease.take());
                finish(&app, &claim, &Ending::of(&summary), claim.recording).await;
                ended = true;
                call.ended.send_replace(true);
            }
            CallNews::Recorded(Ok(file)) if claim.recording => {
                let mut retry = Retry::of("a recording");
                while retry
                    .wanted(recordings::keep(&app, claim.account, claim.id, &file).await)
                    .await
                {}
            }
            CallNews::Recorded(Err(error)) if claim.recording => {
                let mut retry = Retry::of("a failed recording");
                while retry
                    .wanted(recordings::give_up(&app, claim.account, claim.id, &error).await)
                    .await
                {}
            }
            CallNews::Taped(path) => {
                recordings::keep_tape(&app, claim.account, claim.id, &path).await
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
            CallNews::Event(_) | CallNews::Recorded(_) | CallNews::CancelTool { .. } => {}
        }
    }
    if !ended {
        // The engine let go of the call without a word: the record must not stay open.
        let ending = Ending::engine_error("the engine dropped the call".to_owned());
        call.leased.store(false, Ordering::SeqCst);
        drop(lease.take());
        finish(&app, &claim, &ending, false).await;
        call.ended.send_replace(true);
    }
    app.live.remove(claim.id);
}

async fn finish(app: &App, claim: &Claim, ending: &Ending, recording: bool) {
    let also = Also {
        event: true,
        recording,
    };
    let mut retry = Retry::of("a call's end");
    loop {
        let written = ending::end(
            app,
            claim.account,
            claim.id,
            claim.incarnation,
            ending,
            also,
        )
        .await;
        if !retry.wanted(written.map(drop)).await {
            return;
        }
    }
}

async fn write_turn(app: &App, claim: &Claim, turn: &Turn) -> Result<(), DbError> {
    let body = rules::turn_json(turn).to_string();
    let mut tx = app.db.begin_write().await?;
    let now = app.clock.now();
    store::insert_turn(
        &mut tx,
        claim.account,
        claim.incarnation,
        claim.id,
        turn.index,
        &body,
        now,
    )
    .await?;
    tx.commit().await
}

/// Tries until it is written: the database may be away for a while, the record may not be lost.
struct Retry {
    what: &'static str,
    pause: Duration,
}

impl Retry {
    const fn of(what: &'static str) -> Self {
        Self {
            what,
            pause: RETRY.0,
        }
    }

    /// Whether to try again; then it has waited, longer each time.
    async fn wanted(&mut self, written: Result<(), DbError>) -> bool {
        let Err(error) = written else { return false };
        tracing::warn!(%error, "{} could not be written; trying again in {:?}", self.what, self.pause);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY.1);
        true
    }
}
