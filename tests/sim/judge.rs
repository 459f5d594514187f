//! What must hold in the calm after the storm. What must hold at every moment is looked at in `world.rs`
//! and `database.rs`: caps, one winner, one host, fences, ends that stay, one body, claims that grow, who
//! is taken for dead.
//!
//! Two promises have bounds that a run heeds. A node that is cut off from the lease store for longer than
//! a lease counts on another that reaches it *and* the database: that both fail in the same half minute is
//! left out of the weather. And a call counts as live while a process that runs has it on its engine and
//! its row is open: a process that the others took for dead may speak on for the seconds until it is told.

use std::collections::BTreeMap;

use control::admission::Refusal;
use control::admission::command::{self, Command};
use control::calls::journal::Record;
use control::ids::CallId;
use control::time::Timestamp;
use control::webhooks::event::Status;

use crate::executor::Slot;
use crate::world::{SECOND, START, W};

/// From its taking and from the end of its call, a lease without a call is gone within this: what the
/// reconciler leaves alone, the time between its looks, and a moment for each step.
const GRACE: i64 = 20 * SECOND as i64;

fn leases(w: &W) -> BTreeMap<CallId, (bool, i64)> {
    let words = w.run_lease(&Command::List);
    let held = command::held(&words).unwrap_or_default();
    held.into_iter()
        .map(|held| (held.lease, (held.live, held.age.as_micros() as i64)))
        .collect()
}

/// No lease without a call that has not ended.
pub(crate) fn leases_have_calls(w: &W) {
    for (lease, (live, age)) in leases(w) {
        let open = {
            let db = w.db.borrow();
            db.calls
                .get(&lease)
                .is_some_and(|row| row.ended_at.is_none())
        };
        let ended = w.ended.borrow().get(&lease).copied();
        let over = ended.is_none_or(|ended| (w.now() - ended) as i64 > GRACE);
        if !open && over && age > GRACE {
            let state = if live { "live" } else { "waiting" };
            w.fail(format!(
                "{lease}: a {state} lease of {} s has no call",
                age / 1_000_000
            ));
        }
    }
}

/// Every call on an engine has a live lease, every open row of a host is on its engine.
pub(crate) fn calls_have_leases(w: &W) {
    let leases = leases(w);
    let db = w.db.borrow();
    for (call, life) in &*w.placed.borrow() {
        let open = db.calls.get(call).is_some_and(|row| row.ended_at.is_none());
        if open && leases.get(call).is_none_or(|(live, _)| !live) {
            w.fail(format!(
                "{call} lives at node {} without a lease",
                life.node
            ));
        }
    }
}

/// While there is room, a new call is let in.
pub(crate) fn a_free_slot_was_given(w: &W, slot: &Slot<Option<Refusal>>) {
    match slot.take() {
        Some(None) => {}
        // What still waits or lives fills the pool, or the node.
        Some(Some(refusal)) if refusal.current.is_some() && refusal.resource != Some("account") => {
        }
        answer => w.fail(format!(
            "a call was refused although all is well: {answer:?}"
        )),
    }
}

/// Everything that was begun is over: calls, leases, journals, seats.
pub(crate) fn nothing_is_left(w: &W) {
    let now = Timestamp(START.0 + w.now() as i64);
    let leases = leases(w);
    let mut waiting = Vec::new();
    let db = w.db.borrow();
    for (call, row) in &db.calls {
        if row.ended_at.is_some() {
            continue;
        }
        // One that was opened by a clock ahead may wait for an hour.
        if row.host.is_none() && (w.clocks_jumped.get() || row.expires_at > now) {
            waiting.push(*call);
            continue;
        }
        w.fail(format!("{call} is still open at {now}: {:?}", row.host));
    }
    for lease in leases.keys().filter(|lease| !waiting.contains(lease)) {
        w.fail(format!("a lease is left: {lease}"));
    }
    for (number, node) in w.nodes.iter().enumerate() {
        let node = node.borrow();
        if node.seats > 0 || !node.live.is_empty() {
            w.fail(format!(
                "node {number} has {} seats and {} calls left",
                node.seats,
                node.live.len()
            ));
        }
        if !node.ledger.is_empty() {
            w.fail(format!(
                "node {number} still knows {} leases",
                node.ledger.len()
            ));
        }
        for (call, bytes) in &node.disk {
            // A file torn in its first line cannot be read; its call was ended otherwise.
            if Record::parse(bytes).is_some() {
                w.fail(format!("node {number} has a journal of {call} left"));
            }
        }
    }
}

/// Every end that is to be told has its event, once; the others none.
pub(crate) fn every_end_has_one_event(w: &W) {
    let db = w.db.borrow();
    for (call, row) in &db.calls {
        let told = row.ended_at.is_some() && row.reason.as_deref() != Some("session_expired");
        if told != db.events.contains_key(call) {
            w.fail(format!(
                "{call}: ended as {:?}, event: {}",
                row.reason, !told
            ));
        }
    }
    for (call, event) in &db.events {
        if !matches!(event.status, Status::Delivered | Status::Exhausted) {
            w.fail(format!("{call}: its event is {:?}", event.status));
        }
    }
}
