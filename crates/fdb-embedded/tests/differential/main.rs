//! Random programs over the client API, held against a plain model: every result, error code and conflict must agree.
//!
//! Programs run on an embedded database, or, with `KVQUEUE_TEST_CLUSTER_FILE`, on a cluster, so that the engine and
//! FoundationDB are held against the same model. `KVQUEUE_TEST_SEEDS` is how many programs run, and
//! `KVQUEUE_TEST_SEED` the first one's seed.

#![expect(clippy::unwrap_used, reason = "tests")]

mod generate;
mod host;
mod model;
mod program;
mod rng;
mod run;
mod scenarios;
mod shrink;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdb_embedded::testing::{Database, network};

use host::Host;

/// How long the programs may take where their number is not given.
const TIME: Duration = Duration::from_secs(12);
/// How many failures are shown before the test gives up.
const SHOWN: usize = 5;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {value}")))
}

/// One test at a time: on a cluster they share the keys.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty database, and what keeps it: with `KVQUEUE_TEST_GUEST` the process that hosts it, and its directory.
fn open() -> (Database, Option<(Option<Host>, tempfile::TempDir)>) {
    if let Ok(cluster) = std::env::var("KVQUEUE_TEST_CLUSTER_FILE") {
        return (Database::open(&cluster).unwrap(), None);
    }
    let directory = tempfile::tempdir().unwrap();
    let host = std::env::var_os("KVQUEUE_TEST_GUEST").map(|_| Host::start(directory.path()));
    let url = format!("embedded:{}", directory.path().display());
    (Database::open(&url).unwrap(), Some((host, directory)))
}

#[test]
fn random_programs_agree_with_the_model() {
    let _turn = turn();
    let _network = network();
    let (database, directory) = open();
    let strict = directory.is_some();
    let first = number("KVQUEUE_TEST_SEED").unwrap_or(1);
    let count = number("KVQUEUE_TEST_SEEDS");
    let start = Instant::now();
    let (mut run, mut failures) = (0, Vec::new());
    let goes_on = |run: u64| count.map_or_else(|| start.elapsed() < TIME, |count| run < count);
    while goes_on(run) && failures.len() < SHOWN {
        let seed = first + run;
        run += 1;
        let program = generate::program(seed);
        if let Err(found) = run::check(&database, strict, &program) {
            let (small, found) =
                shrink::shrink(program, found, |program| run::check(&database, strict, program).err());
            failures.push(seed);
            println!(
                "seed {seed} disagrees at step {:?}:\n{small}  expected {}\n  seen     {}\n  \
                 again: KVQUEUE_TEST_SEED={seed} KVQUEUE_TEST_SEEDS=1 cargo test -p fdb-embedded --test differential\n",
                found.step, found.expected, found.seen
            );
        }
    }
    let minute = run * 60_000 / u64::try_from(start.elapsed().as_millis().max(1)).unwrap();
    println!("{run} programs, {minute} a minute");
    assert!(failures.is_empty(), "programs of these seeds disagree: {failures:?}");
}
