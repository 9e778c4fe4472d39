//! The whole engine under one seed: clients, committer, flusher, watches, and several lives of one database on a simulated disk.
//!
//! The seed decides which thread goes on (`crates/baton`), what the clients do, which faults there are, how slow the disk is, the bounds,
//! and when the power fails. `judge.rs` holds what came of it against a plain model.
//!
//! `FDB_EMBEDDED_SEED=N` runs that seed alone and prints its history. `FDB_EMBEDDED_SEEDS=N` runs so many.

mod client;
mod disk;
mod judge;
mod life;
mod record;

use std::sync::Arc;

use baton::Simulation;
use mutant::Bounds;

use record::{Counts, Record};

/// The seeds that are run if the environment says nothing.
const SEEDS: u64 = 80;

/// The lives of the database in a run.
const LIVES: u32 = 3;

/// Runs a seed, and returns its history and what happened in it.
fn run(seed: u64) -> (Vec<String>, Counts) {
    let bounds = move || Box::new(Bounds::drawn(seed).enter()) as Box<dyn std::any::Any>;
    let run = Simulation::new(seed).on_each_thread(bounds).run(|| {
        let record = Arc::new(Record::new(seed));
        life::all(&record, LIVES);
        record.counts()
    });
    (run.history, run.value)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("it is a number"))
}

#[test]
fn simulated_engines_keep_their_promises() {
    if let Some(seed) = variable("FDB_EMBEDDED_SEED") {
        let (history, counts) = run(seed);
        history.iter().for_each(|line| println!("{line}"));
        println!("{counts:?}");
        return;
    }
    let mut all = Counts::default();
    let seeds = variable("FDB_EMBEDDED_SEEDS").unwrap_or(SEEDS);
    for seed in 0..seeds {
        all.add(&run(seed).1);
    }
    println!("{seeds} seeds: {all:?}");
    // So that it cannot become an empty one.
    assert!(seeds < SEEDS || all.has_all(), "{all:?}");
}

#[test]
fn the_same_seed_is_the_same_history_line_by_line() {
    for seed in 0..4 {
        let (first, second) = (run(seed).0, run(seed).0);
        let differ = first.iter().zip(&second).find(|(one, other)| one != other);
        assert!(differ.is_none() && first.len() == second.len(), "seed {seed}: {differ:?}");
        assert!(first.len() > 30, "{first:?}");
    }
}
