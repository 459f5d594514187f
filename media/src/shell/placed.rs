//! A call on its way to its media thread, and its place in the counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::engine::OnEvent;
use super::mailbox::{CallKey, Keeper, Mailbox};
use super::transport::Transport;
use crate::config::CallConfig;
use crate::speech::Providers;

/// A call on its way to its thread.
pub(super) struct Placed {
    pub(super) key: CallKey,
    // Dropped before the listener: whoever sees the news end finds the call over, and its place free.
    /// Whoever holds the call's handle learns that it is over, also where its thread died with it or before it took it.
    pub(super) gate: Keeper,
    pub(super) seat: CountedCall,
    pub(super) config: CallConfig,
    pub(super) line: Transport,
    pub(super) providers: Providers,
    pub(super) on_event: OnEvent,
    /// What the log says of the call; whoever placed it chose it.
    pub(super) span: tracing::Span,
}

/// A call's place in the counts, given back when dropped.
pub(super) struct CountedCall {
    all: Arc<AtomicUsize>,
    mailbox: Arc<Mailbox>,
}

impl CountedCall {
    /// `None`: there are `cap` calls already.
    pub(super) fn take(all: &Arc<AtomicUsize>, mailbox: &Arc<Mailbox>, cap: usize) -> Option<Self> {
        all.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| {
            (n < cap).then_some(n + 1)
        })
        .ok()?;
        mailbox.live.fetch_add(1, Ordering::SeqCst);
        Some(Self {
            all: all.clone(),
            mailbox: mailbox.clone(),
        })
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.mailbox.live.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}
