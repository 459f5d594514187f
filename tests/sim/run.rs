//! One run: a storm of faults over nodes and clients, then calm, then three days of deliveries.

use control::admission::policy::Caps;

use crate::calls;
use crate::executor::{Slot, Time};
use crate::judge;
use crate::mutants::Mutant;
use crate::node::{self, serving};
use crate::outbox;
use crate::world::{MS, SECOND, Step, W, World};

/// What is kept of a run beside its verdict.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    Story,
    Steps,
}

pub(crate) struct Outcome {
    pub(crate) wrong: Vec<String>,
    pub(crate) story: Vec<String>,
    pub(crate) trace: Vec<Step>,
    pub(crate) caps: Caps,
    pub(crate) steps: u64,
    pub(crate) calls: u64,
    /// What stands in the database at the end, a line a row.
    pub(crate) rows: Vec<String>,
}

pub(crate) fn run(seed: u64, mutant: Option<Mutant>, keep: Keep) -> Outcome {
    let caps = Caps {
        account: 2 + (seed / 3 % 2) as u32,
        pool: 3 + (seed / 6 % 2) as u32,
        node: 2 + (seed / 12 % 3) as u32,
    };
    let nodes = 2 + (seed % 2) as usize;
    let w = World::new(seed, nodes, caps, mutant);
    match keep {
        Keep::Nothing => {}
        Keep::Story => *w.story.borrow_mut() = Some(Vec::new()),
        Keep::Steps => *w.steps.borrow_mut() = Some(Vec::new()),
    }
    let storm = w.between(20 * SECOND, 60 * SECOND);
    for number in 0..nodes {
        let (world, at) = (w.clone(), w.roll(500 * MS));
        w.executor.at(at, move || node::start(&world, number));
    }
    w.storm.set(storm);
    weather(&w, storm);
    let clients = w.between(6, 22);
    for number in 0..clients {
        let (world, after) = (w.clone(), SECOND + w.roll(storm));
        w.executor.spawn(None, async move {
            world.sleep(after).await;
            calls::client(world.clone(), number).await;
        });
    }
    w.executor.run_until(storm);

    w.say(|| "everything works from now on".to_owned());
    w.heal();
    // At once, and once more for those that were about to end.
    for after in [0, 15 * SECOND] {
        for number in 0..nodes {
            let world = w.clone();
            w.executor
                .at(storm + after, move || node::start(&world, number));
        }
    }
    // Dead nodes are found, cold stores opened, late requests have come, journals are written.
    let calm = storm + 30 * SECOND;
    w.executor.run_until(calm);
    for second in 1..=16 {
        judge::leases_have_calls(&w);
        if second == 6 {
            judge::calls_have_leases(&w);
        }
        w.executor.run_until(calm + second * SECOND);
    }
    let slot = Slot::default();
    let at = w.roll(nodes as u64) as usize;
    w.executor
        .spawn(None, calls::probe(w.clone(), at, slot.clone()));
    // The last call is over, the last session expired.
    let end = calm + 50 * SECOND;
    w.executor.run_until(end);
    judge::a_free_slot_was_given(&w, &slot);
    judge::nothing_is_left(&w);
    for number in 0..nodes {
        if serving(&w, number).is_none() {
            w.fail(format!("node {number} does not serve"));
        }
        node::kill(&w, number);
    }
    outbox::deliver_all(&w);
    judge::every_end_has_one_event(&w);

    let calls = w.db.borrow().calls.len() as u64;
    Outcome {
        wrong: w.wrong.take(),
        story: w.story.take().unwrap_or_default(),
        trace: w.steps.take().unwrap_or_default(),
        caps,
        steps: w.executor.steps.get(),
        calls,
        rows: w.db.borrow().rows(),
    }
}

/// Faults that part nodes from what the others know of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A node does not reach the lease store: the others vouch for its calls, which takes a database.
    Redis,
    /// Nodes do not reach the database, or sleep.
    Database,
}

/// Draws what breaks, and when.
fn weather(w: &W, storm: Time) {
    let nodes = w.nodes.len() as u64;
    let mut parted: Vec<(Side, Time, Time)> = Vec::new();
    for _ in 0..w.between(1, 8) {
        let at = w.roll(storm);
        let node = w.roll(nodes) as usize;
        let time = match w.roll(3) {
            0 => w.between(100 * MS, 3 * SECOND),
            _ => w.between(SECOND, 25 * SECOND),
        };
        let kind = w.roll(14);
        let side = match kind {
            2 => Some(Side::Redis),
            1 | 3 | 4 => Some(Side::Database),
            _ => None,
        };
        if let Some(side) = side {
            // Not both at once: who is cut off from the lease store counts on the others, and they on the
            // database. See `judge.rs`.
            let room = 20 * SECOND;
            let both = parted.iter().any(|(other, from, to)| {
                *other != side && at < *to + room && *from < at + time + room
            });
            if both {
                continue;
            }
            parted.push((side, at, at + time));
        }
        let world = w.clone();
        let jump = {
            let size = [5, 60, 3600][w.roll(3) as usize] * 1_000_000;
            if w.roll(2) == 0 { size } else { -size }
        };
        let lag = w.between(0, SECOND);
        let what = move || {
            let w = &world;
            match kind {
                0 | 12 => {
                    node::kill(w, node);
                    let again = w.clone();
                    w.executor
                        .at(w.now() + time / 2, move || node::start(&again, node));
                }
                1 => {
                    w.say(|| format!("node {node} sleeps for {} ms", time / MS));
                    w.executor.put_to_sleep(node, storm.min(w.now() + time));
                }
                2 => {
                    w.say(|| format!("node {node} is cut off from Redis for {} ms", time / MS));
                    w.cut_redis(node, time);
                }
                3 => {
                    w.say(|| {
                        format!(
                            "node {node} is cut off from the database for {} ms",
                            time / MS
                        )
                    });
                    w.cut_db(node, time);
                }
                4 => {
                    w.say(|| format!("the database is away for {} ms", time / MS));
                    w.db_away(time);
                }
                5 | 13 => {
                    w.say(|| "Redis forgets".to_owned());
                    w.redis_forgets();
                }
                6 => {
                    w.say(|| format!("Redis is restarted, away for {} ms", time / 4 / MS));
                    w.redis_restarts(time / 4);
                }
                7 => {
                    w.say(|| format!("Redis sleeps for {} ms", time / MS));
                    w.redis_sleeps(time);
                }
                8 => {
                    w.replica_falls_behind();
                    let again = w.clone();
                    w.executor.at(w.now() + lag, move || {
                        again.say(|| "a replica takes over".to_owned());
                        again.replica_takes_over();
                    });
                }
                9 => {
                    w.say(|| format!("the clock of node {node} is set by {} s", jump / 1_000_000));
                    w.set_node_clock(node, jump);
                }
                10 => {
                    w.say(|| format!("the clock of Redis is set by {} s", jump / 1_000_000));
                    w.set_redis_clock(jump);
                }
                _ => {
                    w.receiver_fails(time);
                    if let Some(life) = serving(w, node) {
                        w.executor.spawn(Some(life), node::drain(w.clone(), life));
                        let again = w.clone();
                        let back = w.now() + 15 * SECOND;
                        w.executor.at(back, move || node::start(&again, node));
                    }
                }
            }
        };
        w.executor.at(at, what);
    }
}
