//! The lives of a database: it is opened and judged, clients use it, and it ends somehow.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baton::thread::{Builder, JoinHandle};
use checked_pages::sim::SplitMix;
use fastrand::Rng;

use super::client::{ALL, Client, LOG, rows};
use super::disk::{Contents, End, Files, SlowLog};
use super::judge::{commits, judge};
use super::record::{Outcome, Record};
use crate::engine::Engine;
use crate::engine::directory::{Directory, OpenError};
use crate::engine::faults::Faults;
use crate::engine::mutation::Stamp;
use crate::engine::storage::Storage;

/// How long the engine may take for what is left to do. It does nothing for so long.
const CALM: Duration = Duration::from_millis(20);

/// Transactions of a client at first.
const TRANSACTIONS: u64 = 14;

/// How often a few clients meet afterwards, and how many.
const ROUNDS: u64 = 8;
const MEETING: u64 = 3;

/// Runs all lives, and judges the last one's end.
pub(super) fn all(record: &Arc<Record>, lives: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = Rng::with_seed(record.seed);
    let mut contents = Contents::default();
    let mut known = Vec::new();
    for life in 0..=lives {
        record.with(|state| (state.is_over, state.watches) = (false, Vec::new()));
        let files = Files::new(&contents);
        let engine = open(dir.path(), &files);
        known = open_judged(&engine, record, &known);
        if life == lives {
            engine.close(|| ());
            return;
        }
        contents = live(engine, record, &files, life, &mut random);
    }
}

fn open(dir: &Path, files: &Files) -> Engine {
    let directory = Directory::acquire(dir).expect("it is unlocked");
    let opened = Storage::open_disks(&files.data, Box::new(SlowLog(files.log.clone())))
        .map_err(|source| OpenError::Storage { path: dir.to_path_buf(), source });
    let begun = Engine::begin(&directory, opened).expect("no end of a life damages the database");
    let (engine, committer) = Engine::assemble(directory, begun);
    engine.start(committer).expect("a thread")
}

/// Judges what an earlier life has left. Returns the commits.
fn open_judged(engine: &Engine, record: &Record, known: &[(Stamp, u64)]) -> Vec<(Stamp, u64)> {
    let view = engine.read();
    let log = commits(&rows(&view, LOG).expect("it can be read"), LOG.0.len());
    let all = rows(&view, ALL).expect("it can be read");
    baton::note(|| format!("opened: {} commits, {all:?}", log.len()));
    assert_eq!(log[..known.len()], *known, "commits that were there are not any more");
    record.with(|state| {
        // What an opening did not find, no later one may find.
        for attempt in &mut state.attempts {
            if attempt.outcome == Outcome::Unknown && !log.iter().any(|(_, id)| *id == attempt.id) {
                attempt.outcome = Outcome::Absent;
            }
        }
        judge(state, &log, &all);
    });
    log
}

/// A life, until its end. Returns what is on the disk then.
fn live(engine: Engine, record: &Arc<Record>, files: &Files, life: u32, random: &mut Rng) -> Contents {
    let engine = Arc::new(engine);
    engine.set_faults(Some(faults(random)));
    let first = u64::from(life) << 8;
    let clients = start(&engine, record, first..first + random.u64(2..6), TRANSACTIONS, random);
    let end = [End::Closed, End::Killed, End::PowerFailed, End::Closed][random.usize(0..4)];
    let mut of_crash = SplitMix(random.u64(..));
    let mut crashed = None;
    if !matches!(end, End::Closed) {
        baton::thread::sleep(Duration::from_micros(random.u64(0..9_000)));
        crashed = Some(files.after(end, &mut of_crash));
        record.with(|state| {
            state.is_over = true;
            state.counts.crashes += 1;
        });
        baton::note(|| format!("{end:?}"));
    }
    join(clients);
    if crashed.is_none() {
        engine.set_faults(None);
        come_to_rest(&engine, record);
        // Few transactions meet at a time, so that no later change wakes a watch that an earlier one should have woken.
        for round in 0..ROUNDS {
            if engine.await_end(Duration::ZERO).is_some() {
                break;
            }
            let first = first + 16 + round * MEETING;
            join(start(&engine, record, first..first + MEETING, 1, random));
            come_to_rest(&engine, record);
        }
    }
    engine.close(|| ());
    drop(engine);
    crashed.unwrap_or_else(|| files.after(end, &mut of_crash))
}

/// Starts a client for each number.
fn start(
    engine: &Arc<Engine>,
    record: &Arc<Record>,
    numbers: Range<u64>,
    transactions: u64,
    random: &mut Rng,
) -> Vec<JoinHandle<()>> {
    let spawn = |number| {
        let (engine, record) = (Arc::clone(engine), Arc::clone(record));
        let client = Client { engine, record, number, transactions, random: Rng::with_seed(random.u64(..)) };
        let builder = Builder::new().name("client".to_owned());
        builder.spawn(move || client.run()).expect("a thread")
    };
    numbers.map(spawn).collect()
}

fn join(clients: Vec<JoinHandle<()>>) {
    clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
}

/// Some lives have no faults of the disk, since such a fault ends the life.
fn faults(random: &mut Rng) -> Faults {
    let rare = if random.bool() { 0.0 } else { 0.02 };
    Faults::seeded(random.u64(..))
        .slow(0.1, Duration::from_micros(random.u64(1..2_000)))
        .unknown_committed(0.04)
        .unknown_not_committed(0.04)
        .conflict(0.02)
        .too_old(0.02)
        .disk_failure(rare)
        .flush_failure(rare)
        .read_too_old(0.01)
}

/// Nothing changes any more and no fault happens: every watch whose key has changed fires, and nothing is left in memory.
fn come_to_rest(engine: &Engine, record: &Record) {
    if engine.await_end(Duration::ZERO).is_some() {
        record.with(|state| state.counts.failures += 1);
        return;
    }
    baton::thread::sleep(CALM);
    let watches = record.with(|state| std::mem::take(&mut state.watches));
    let view = engine.read();
    for watched in watches {
        if watched.future.is_ready() {
            let result = watched.future.result();
            assert!(result.is_ok(), "a watch of {:?} failed with {result:?}", watched.key);
            record.with(|state| {
                state.fired.push((watched.key, watched.baseline, watched.version));
                state.counts.fired += 1;
            });
            continue;
        }
        let value = view.get(&watched.key).expect("it can be read");
        assert_eq!(
            value, watched.baseline,
            "a watch of {:?} sleeps: its key has changed (left)",
            watched.key
        );
        record.with(|state| state.counts.asleep += 1);
        watched.future.fail(crate::error::Code::OPERATION_CANCELLED);
    }
    drop(view);
    let holdings = engine.holdings_at_rest().expect("it has not ended");
    assert_eq!(holdings.left_over(), Vec::<String>::new());
    record.with(|state| state.counts.calm_ends += 1);
}
