//! A call on the engine: its handle, its lease, and the waiting for its answers and its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use media::peer::{PeerError, PeerReply, PeerRequest};
use media::shell::CallHandle;
use tokio::sync::{Notify, oneshot, watch};

use super::{PeerConnection, Pulse};
use crate::admission::Renewal;
use crate::ids::AccountId;
use crate::time::Moment;
use crate::vendors::usage::SpeechUsage;

/// One call that this process hosts.
pub struct LiveCall {
    pub account: AccountId,
    /// When it began here.
    pub since: Moment,
    /// What is renewed at the lease store while it lives.
    pub slot: Renewal,
    pub handle: CallHandle,
    pub pulse: Arc<Pulse>,
    /// Where it is a browser's.
    pub peer: Option<PeerConnection>,
    /// What its speech providers use, to be read when the call is over.
    pub usage: Arc<SpeechUsage>,
    /// Whether it holds a slot: until the engine is done with it.
    pub leased: AtomicBool,
    /// Becomes `true` once the end of the call is in the database.
    pub ended: watch::Sender<bool>,
}

/// How long the engine may take to answer: a description takes it a few milliseconds.
const PEER_PATIENCE: Duration = Duration::from_secs(5);

/// How often a media thread that is behind with its commands is told again: it takes a thousand in a pass.
const INSIST_EVERY: Duration = Duration::from_millis(10);

impl LiveCall {
    /// Asks the browser's side of the call for something. `None`: the call is over, or its thread does
    /// not answer.
    pub async fn ask_peer(&self, request: PeerRequest) -> Option<Result<PeerReply, PeerError>> {
        let (sender, answer) = oneshot::channel();
        let reply = Box::new(move |reply| {
            // Who asked may have gone.
            let _ = sender.send(reply);
        });
        if !self.handle.peer(request, reply) {
            return None;
        }
        tokio::time::timeout(PEER_PATIENCE, answer).await.ok()?.ok()
    }

    /// Tells the engine what it must learn of the call: again, until the call's thread takes it or the call is over.
    pub async fn insist(&self, tell: impl Fn(&CallHandle) -> bool) {
        while !tell(&self.handle) && !self.handle.is_over() {
            tokio::time::sleep(INSIST_EVERY).await;
        }
    }

    /// Waits until the call's end is in the database, at most `patience`.
    pub async fn wait_ended(&self, patience: Duration) -> bool {
        let mut ended = self.ended.subscribe();
        let done = tokio::time::timeout(patience, ended.wait_for(|ended| *ended)).await;
        done.is_ok_and(|ended| ended.is_ok())
    }
}

/// Tells somebody when it is dropped, however that comes.
pub struct TellDropped(pub Arc<Notify>);

impl Drop for TellDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
