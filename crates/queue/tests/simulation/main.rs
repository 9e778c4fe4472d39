//! A simulation of a queue and of everybody who uses it, in which one seed decides everything.
//!
//! Producers, consumers of every mode of delivery, sweepers and operators work on one queue of a real embedded database. They are
//! futures on one thread, and a scheduler that draws from the seed says which goes on. Every commit waits at a gate
//! ([`fdb_embedded::Gate`]) until the scheduler lets it through, with a conflict, an unknown outcome of either kind, or as too old; or
//! loses it. Workers die at every await, give up what they do, are suspended. There is a true time, which monotonic clocks show;
//! versions go on with it, and a little faster, stand still, and jump; clocks on walls are set ahead and back, and are wrong.
//!
//! After every commit the whole queue is decoded, by code that is not the layer's, and must be what the model makes of what the
//! transaction was to do. Each transaction also logs itself, under a versionstamped key; at the end the log, in commit order,
//! must be the history that the model has been through. What operations tell their workers is held against that history.
//!
//! A queue may have schedules, which operators change and sweepers fire. The model knows the outcome that each nominal time has to have.
//!
//! Items may be changed by operators, one by one or many together, whatever they are doing: cancelled, put off, tried again, given another
//! payload. They may expire before an attempt has begun, have unique keys for a time, be replaced by other pushes, and be members of
//! batches, from the beginning or since they joined one, whatever they were doing; then there may be a second queue, which has members, too. Their ends may be kept
//! for a time, with results.
//!
//! A failure prints the history and the command that repeats it.

#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod claims;
mod coverage;
mod desk;
mod ground;
mod history;
mod image;
mod intent;
mod model;
mod oracle;
mod place;
#[path = "../it/common/rng.rs"]
mod rng;
mod schedule;
mod simulation;
mod worker;
mod workers;
mod world;

use std::sync::Mutex;

use coverage::{
    Coverage, WANTED, WANTED_OF_CHANGES, WANTED_OF_KEYS, WANTED_OF_PARTITIONS, WANTED_OF_SCHEDULES,
};
use ground::{Ground, Setting};

/// How many seeds are run where no other number is asked for: as many as have each kind of event several times. More take too long without
/// optimisation; docs/testing/simulation.md has the command.
const SEEDS: u64 = 300;
/// How many of them are run twice.
const TWICE: u64 = 20;
/// The most threads, each with a database of its own.
const MAX_THREADS: usize = 8;

#[test]
fn simulated_runs_keep_every_promise() {
    let (n, coverage) = run_all(Setting::Plain);
    if n >= SEEDS {
        coverage.check(n, WANTED);
    }
}

#[test]
fn simulated_runs_of_keyed_queues_keep_every_promise() {
    let (n, coverage) = run_all(Setting::Keyed);
    if n >= SEEDS {
        coverage.check(n, WANTED_OF_KEYS);
    }
}

#[test]
fn simulated_runs_of_divided_queues_keep_every_promise() {
    let (n, coverage) = run_all(Setting::Divided);
    if n >= SEEDS {
        coverage.check(n, WANTED_OF_PARTITIONS);
    }
}

#[test]
fn simulated_runs_with_schedules_keep_every_promise() {
    let (n, coverage) = run_all(Setting::Scheduled);
    if n >= SEEDS {
        coverage.check(n, WANTED_OF_SCHEDULES);
    }
}

#[test]
fn simulated_runs_with_changed_items_keep_every_promise() {
    let (n, coverage) = run_all(Setting::Changed);
    if n >= SEEDS {
        coverage.check(n, WANTED_OF_CHANGES);
    }
}

/// Runs all seeds; returns how many there were, and what happened.
fn run_all(setting: Setting) -> (u64, Coverage) {
    let seeds = rng::seeds(SEEDS);
    let n = seeds.end - seeds.start;
    let (next, coverage) = (Mutex::new(seeds), Mutex::new(Coverage::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let ground = Ground::new();
                // A thread that fails takes the other threads' seeds away.
                let take = || next.lock().unwrap().next();
                while let Some(seed) = take() {
                    let run = ground.run(seed, setting).unwrap_or_else(|failed| {
                        next.lock().unwrap().by_ref().for_each(drop);
                        failed.report()
                    });
                    coverage.lock().unwrap().add(&run.coverage);
                }
                ground.check_holdings();
            });
        }
    });
    (n, coverage.into_inner().unwrap())
}

#[test]
fn the_same_seed_repeats_the_same_run() {
    let ground = Ground::new();
    for setting in Setting::ALL {
        let run = |seed| ground.run(seed, setting).unwrap_or_else(|failed| failed.report()).history;
        for seed in rng::seeds(TWICE) {
            let (first, second) = (run(seed), run(seed));
            if let Some(at) = (0..first.len().max(second.len())).find(|at| first.get(*at) != second.get(*at))
            {
                let before = first[at.saturating_sub(20)..at].join("\n  ");
                panic!(
                    "seed {seed} went on in two ways:\n  {before}\n{:?}\n{:?}",
                    first.get(at),
                    second.get(at)
                );
            }
        }
    }
}
