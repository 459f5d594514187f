//! The delivery of events (`jobs::worker` with `webhooks::worker`): claim, send, write down. What becomes
//! of an attempt is decided by the product's own `deliver::settle`.

use control::ids::{AccountId, CallId, EventId};
use control::jobs::Finished;
use control::time::Timestamp;
use control::webhooks::deliver::{Outcome, settle};
use control::webhooks::event::Status;
use control::webhooks::schedule::{Class, Schedule};

use crate::database::{Ask, Told};
use crate::executor::{Life, Slot};
use crate::mutants::Mutant;
use crate::world::{MS, SECOND, START, W};

/// Attempts of a node at the same time.
const IN_FLIGHT: u32 = 8;
/// Attempts of a durable event: three short ones and twenty rounds. One more is made when a process died in
/// the last.
const ATTEMPTS: u32 = 23;

/// An event that a process has.
struct Claimed {
    id: EventId,
    account: AccountId,
    token: i64,
    attempts: u32,
    body: String,
}

/// Delivers what is due until the process ends.
pub(crate) async fn worker(w: W, life: Life) {
    loop {
        w.sleep(500 * MS).await;
        let now = w.wall(life.node);
        if !w.has_due(now) {
            continue;
        }
        let Ok(Told::Sessions(due)) = w.ask(life, Ask::Due { now }).await else {
            continue;
        };
        for (account, call) in due {
            if w.nodes[life.node].borrow().in_flight >= IN_FLIGHT {
                break;
            }
            let now = w.wall(life.node);
            let Ok(Told::Claimed(Some(claim))) = w.ask(life, claim(account, call, now)).await
            else {
                continue;
            };
            w.nodes[life.node].borrow_mut().in_flight += 1;
            let event = claimed(account, call, claim);
            w.executor
                .spawn(Some(life), attempt(w.clone(), life, event, call));
        }
    }
}

fn claim(account: AccountId, call: CallId, now: Timestamp) -> Ask {
    Ask::Claim {
        account,
        call,
        now,
        end: now.plus(Schedule::default().lease()),
    }
}

fn claimed(
    account: AccountId,
    call: CallId,
    (token, attempts, body): (i64, u32, String),
) -> Claimed {
    Claimed {
        id: EventId(call.0),
        account,
        token,
        attempts,
        body,
    }
}

async fn attempt(w: W, life: Life, event: Claimed, call: CallId) {
    let slot = Slot::default();
    let (world, answer) = (w.clone(), slot.clone());
    let body = sent_body(&w, &event, w.wall(life.node));
    let (there, back) = (w.between(MS, 200 * MS), w.between(MS, 12 * SECOND / 5));
    // It is on its way, whatever becomes of the sender.
    w.executor.at(w.now() + there, move || {
        if let Some(takes) = world.receive(call, &body) {
            let again = world.clone();
            world.executor.at(world.now() + back, move || {
                answer.fill(&again.executor, takes)
            });
        }
    });
    let outcome = match slot.within(&w.executor, 10 * SECOND).await {
        Some(true) => Outcome::Taken,
        Some(false) => Outcome::Failed("the receiver answered 503".to_owned()),
        None => Outcome::Failed("no answer".to_owned()),
    };
    let now = w.wall(life.node);
    let finished = settled(&w, &event, outcome, now);
    let finish = Ask::Finish {
        account: event.account,
        call,
        token: event.token,
        finished,
        now,
    };
    // What could not be written down is tried again when the claim is over.
    let _ = w.ask(life, finish).await;
    w.nodes[life.node].borrow_mut().in_flight -= 1;
}

fn sent_body(w: &W, event: &Claimed, now: Timestamp) -> String {
    match w.is(Mutant::BodyMadeAnew) {
        true => format!("{} sent at {}", event.body, now.0),
        false => event.body.clone(),
    }
}

fn settled(w: &W, event: &Claimed, outcome: Outcome, now: Timestamp) -> Finished<Status> {
    let attempts = event.attempts + u32::from(w.is(Mutant::ExhaustsEarly));
    settle(
        event.id,
        Class::Durable,
        attempts,
        outcome,
        &Schedule::default(),
        now,
    )
}

/// Three days and more in which only events are delivered, by processes that die at times.
pub(crate) fn deliver_all(w: &W) {
    let mut looks = 0;
    while let Some((call, next)) = next_due(w) {
        looks += 1;
        if looks > 3000 {
            return w.fail("events are delivered for ever".to_owned());
        }
        let at = (next.0 - START.0).max(0).unsigned_abs();
        w.executor.run_until(at.max(w.now()));
        // What was on its way to the database may have come first.
        if next_due(w) != Some((call, next)) {
            continue;
        }
        let now = Timestamp(START.0 + w.now() as i64);
        let account = w.db.borrow().events[&call].account;
        let Told::Claimed(Some(got)) = w.run(&claim(account, call, now)) else {
            return w.fail(format!("{call}: it is due and cannot be claimed"));
        };
        let event = claimed(account, call, got);
        let attempts = event.attempts;
        // The process dies before it sends, or before it writes down how that went.
        let dies = w.roll(20);
        if dies == 0 {
            continue;
        }
        let outcome = match w.receive(call, &sent_body(w, &event, now)) {
            Some(true) => Outcome::Taken,
            _ => Outcome::Failed("the receiver answered 503".to_owned()),
        };
        if dies == 1 {
            continue;
        }
        let finished = settled(w, &event, outcome, now);
        if let Some(next) = finished.next_attempt_at {
            check_pause(w, call, attempts, (next.0 - now.0) as f64 / 1e6);
        }
        w.run(&Ask::Finish {
            account,
            call,
            token: event.token,
            finished,
            now,
        });
    }
    for (call, event) in &w.db.borrow().events {
        let received = w.received.borrow();
        let (times, taken) = received
            .get(call)
            .map_or((0, false), |(_, times, taken)| (*times, *taken));
        match event.status {
            Status::Delivered if taken => {}
            Status::Exhausted if event.attempts >= ATTEMPTS => {}
            status => w.fail(format!(
                "{call}: {status:?} after {} attempts, sent {times} times, taken: {taken}",
                event.attempts
            )),
        }
        if times > event.attempts {
            w.fail(format!(
                "{call}: sent {times} times in {} attempts",
                event.attempts
            ));
        }
    }
}

/// The open event that is due first.
fn next_due(w: &W) -> Option<(CallId, Timestamp)> {
    let db = w.db.borrow();
    let open = db.events.iter().filter(|(_, event)| {
        matches!(
            event.status,
            Status::Pending | Status::Failed | Status::Delivering
        )
    });
    open.filter_map(|(call, event)| Some((*call, event.next?)))
        .min_by_key(|(call, next)| (*next, *call))
}

/// Document 1's pauses: short ones of a second or two, then from a minute doubling to six hours, each a
/// tenth shorter or longer at most.
fn check_pause(w: &W, call: CallId, attempts: u32, pause: f64) {
    let plain = match attempts {
        1 => 1.0,
        2 => 2.0,
        more => (60.0 * 2_f64.powi(more as i32 - 3)).min(21_600.0),
    };
    if (pause / plain - 1.0).abs() > 0.1001 {
        w.fail(format!(
            "{call}: {pause} s after attempt {attempts}, {plain} s are due"
        ));
    }
}
