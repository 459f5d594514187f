//! Nodes, their lease store, their database and their outbox in virtual time: processes are killed and
//! sleep, networks are cut, Redis forgets, sleeps, restarts and fails over, the database goes away, clocks
//! are set, answers are lost and requests come late. Whatever happens, the list in [`judge`] and the eyes
//! in [`world`] and [`database`] hold.
//!
//! Decisions are the product's own code: the book of leases, the ledger of a node, what follows from a
//! beat, whom to bury and vouch for, what a writer keeps, when an event is tried again. The stores in
//! memory are held to the real ones by doing runs again on them, step for step (`real.rs`).
//!
//! `SIDETONE_SEEDS` says how many seeds (2,000 when unset), `SIDETONE_REAL_SEEDS` how many of them at real
//! stores (20), `SIDETONE_SEED` replays one and prints its story.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "small numbers of a simulation"
)]
#![allow(
    clippy::large_enum_variant,
    clippy::type_complexity,
    reason = "questions and answers of the stores, as they are"
)]

mod calls;
mod database;
mod executor;
mod judge;
mod mutants;
mod node;
mod outbox;
mod real;
mod run;
mod server;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use mutants::Mutant;
use run::{Keep, run};

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The command that replays a seed.
pub(crate) fn replay(seed: u64) -> String {
    format!(
        "SIDETONE_SEED={seed} cargo test --release -p sidetone-tests --test sim -- --nocapture \
         whatever_breaks"
    )
}

#[test]
fn whatever_breaks_no_call_is_lost_and_no_cap_is_passed() {
    if let Some(seed) = number("SIDETONE_SEED") {
        let outcome = run(seed, None, Keep::Story);
        println!("{}", outcome.story.join("\n"));
        assert!(outcome.wrong.is_empty(), "{}", outcome.wrong.join("\n"));
        return;
    }
    let seeds = number("SIDETONE_SEEDS").unwrap_or(2_000);
    let began = std::time::Instant::now();
    let (next, steps, calls) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let wrong = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || !wrong.lock().unwrap().is_empty() {
                        return;
                    }
                    let outcome = run(seed, None, Keep::Nothing);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    calls.fetch_add(outcome.calls, Ordering::Relaxed);
                    if !outcome.wrong.is_empty() {
                        let what = outcome.wrong.join("\n");
                        let line = format!("seed {seed}:\n{what}\nreplay: {}", replay(seed));
                        wrong.lock().unwrap().push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!(
        "{seeds} seeds, {} calls, {} steps in {:?}",
        calls.load(Ordering::Relaxed),
        steps.load(Ordering::Relaxed),
        began.elapsed()
    );
}

/// A seed is a run: twice the same story.
#[test]
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..20 {
        let stories = [0, 1].map(|_| run(seed, None, Keep::Story).story);
        assert_eq!(stories[0], stories[1], "seed {seed}");
    }
}

/// Faults that the simulation must find; the seed that does is printed.
#[test]
fn planted_faults_are_found() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let found = (0..2_000).find_map(|seed| {
            let wrong = run(seed, Some(mutant), Keep::Nothing).wrong;
            wrong.into_iter().next().map(|first| (seed, first))
        });
        match found {
            Some((seed, first)) => println!("{mutant:?}: seed {seed}: {first}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
