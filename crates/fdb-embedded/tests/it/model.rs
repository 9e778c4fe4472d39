//! Random programs against a plain map: reads must see the database under the transaction's own writes, and a
//! transaction must conflict when, and only when, what it read has changed.

use std::collections::BTreeMap;

use crate::common::{Scratch, scratch};
use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{KeySelector, RangeOption, Transaction};
use futures::TryStreamExt;
use futures::executor::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// All keys of a program start with this, so that selectors have something to run into on both sides.
const SPACE: (&[u8], &[u8]) = (b"m", b"n");

#[derive(Debug, Clone)]
enum Write {
    Set(u8, u8),
    Clear(u8),
    ClearRange(u8, u8),
    Add(u8, u8),
    Max(u8, u8),
    CompareAndClear(u8, u8),
}

#[derive(Debug, Clone)]
struct Selector {
    key: u8,
    or_equal: bool,
    offset: i32,
}

#[derive(Debug, Clone)]
enum Read {
    Get(u8),
    GetKey(Selector),
    GetRange { begin: Selector, end: Selector, limit: usize, reverse: bool },
}

#[derive(Debug, Clone)]
enum Step {
    Write(Write),
    Read(Read),
}

fn key(n: u8) -> Vec<u8> {
    [SPACE.0, &[n]].concat()
}

fn writes() -> impl Strategy<Value = Write> {
    let (k, v) = (0u8..24, 0u8..4);
    prop_oneof![
        3 => (k.clone(), v.clone()).prop_map(|(k, v)| Write::Set(k, v)),
        2 => k.clone().prop_map(Write::Clear),
        1 => (k.clone(), k.clone()).prop_map(|(a, b)| Write::ClearRange(a.min(b), a.max(b))),
        2 => (k.clone(), v.clone()).prop_map(|(k, v)| Write::Add(k, v)),
        1 => (k.clone(), v.clone()).prop_map(|(k, v)| Write::Max(k, v)),
        1 => (k, v).prop_map(|(k, v)| Write::CompareAndClear(k, v)),
    ]
}

fn selectors() -> impl Strategy<Value = Selector> {
    (0u8..24, any::<bool>(), -3i32..5).prop_map(|(key, or_equal, offset)| Selector { key, or_equal, offset })
}

fn reads() -> impl Strategy<Value = Read> {
    prop_oneof![
        (0u8..24).prop_map(Read::Get),
        selectors().prop_map(Read::GetKey),
        (selectors(), selectors(), 0usize..6, any::<bool>())
            .prop_map(|(begin, end, limit, reverse)| Read::GetRange { begin, end, limit, reverse }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![writes().prop_map(Step::Write), reads().prop_map(Step::Read)];
    proptest::collection::vec(step, 1..24)
}

fn apply(model: &mut Model, write: &Write) {
    let update = |model: &mut Model, k: u8, f: &dyn Fn(Option<u8>) -> Option<u8>| {
        let old = model.get(&key(k)).map(|value| value[0]);
        match f(old) {
            Some(new) => model.insert(key(k), vec![new]),
            None => model.remove(&key(k)),
        };
    };
    match *write {
        Write::Set(k, v) => update(model, k, &|_| Some(v)),
        Write::Clear(k) => update(model, k, &|_| None),
        Write::ClearRange(a, b) => model.retain(|k, _| *k < key(a) || *k >= key(b)),
        Write::Add(k, v) => update(model, k, &|old| Some(old.unwrap_or(0).wrapping_add(v))),
        Write::Max(k, v) => update(model, k, &|old| Some(old.map_or(v, |old| old.max(v)))),
        Write::CompareAndClear(k, v) => update(model, k, &|old| old.filter(|old| *old != v)),
    }
}

fn write(tr: &Transaction, write: &Write) {
    match *write {
        Write::Set(k, v) => tr.set(&key(k), &[v]),
        Write::Clear(k) => tr.clear(&key(k)),
        Write::ClearRange(a, b) => tr.clear_range(&key(a), &key(b)),
        Write::Add(k, v) => tr.atomic_op(&key(k), &[v], MutationType::Add),
        Write::Max(k, v) => tr.atomic_op(&key(k), &[v], MutationType::Max),
        Write::CompareAndClear(k, v) => tr.atomic_op(&key(k), &[v], MutationType::CompareAndClear),
    }
}

/// The key that a selector names, by the definition: the last key below (or at) it, then `offset` forward.
fn resolve(model: &Model, selector: &Selector) -> Vec<u8> {
    let at = key(selector.key);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let below = keys.iter().filter(|k| if selector.or_equal { ***k <= at } else { ***k < at }).count();
    let index = i32::try_from(below).unwrap() - 1 + selector.offset;
    match usize::try_from(index) {
        Err(_) => Vec::new(),
        Ok(index) => keys.get(index).map_or(b"\xff".to_vec(), |k| (*k).clone()),
    }
}

/// The outcome of a read, as comparable text.
fn expected(model: &Model, read: &Read) -> String {
    match read {
        Read::Get(k) => format!("{:?}", model.get(&key(*k))),
        Read::GetKey(selector) => format!("{:?}", resolve(model, selector)),
        Read::GetRange { begin, end, limit, reverse } => {
            let (begin, end) = (resolve(model, begin), resolve(model, end));
            let mut rows: Vec<_> = model.iter().filter(|(k, _)| **k >= begin && **k < end).collect();
            if *reverse {
                rows.reverse();
            }
            rows.truncate(if *limit == 0 { usize::MAX } else { *limit });
            format!("{rows:?}")
        }
    }
}

async fn actual(tr: &Transaction, read: &Read) -> String {
    let selector = |s: &Selector| KeySelector::new(key(s.key).into(), s.or_equal, s.offset);
    match read {
        Read::Get(k) => format!("{:?}", tr.get(&key(*k), false).await.unwrap().map(|v| v.to_vec())),
        Read::GetKey(s) => format!("{:?}", tr.get_key(&selector(s), false).await.unwrap().to_vec()),
        Read::GetRange { begin, end, limit, reverse } => {
            let range = RangeOption {
                limit: (*limit > 0).then_some(*limit),
                mode: StreamingMode::WantAll,
                reverse: *reverse,
                ..RangeOption::from((selector(begin), selector(end)))
            };
            format!("{:?}", all_rows(tr, range, false).await)
        }
    }
}

/// Reads a range to its end: a server may give it in pieces.
async fn all_rows(tr: &Transaction, range: RangeOption<'_>, snapshot: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = tr.get_ranges_keyvalues(range, snapshot);
    rows.map_ok(|row| (row.key().to_vec(), row.value().to_vec())).try_collect().await.unwrap()
}

/// Reads everything there is.
async fn contents(scratch: &Scratch) -> Model {
    let tr = scratch.db.create_trx().unwrap();
    let range = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(SPACE) };
    all_rows(&tr, range, true).await.into_iter().collect()
}

/// Clears the database and commits what the program starts from.
async fn start(scratch: &Scratch, before: &[Write]) -> Model {
    let tr = scratch.db.create_trx().unwrap();
    tr.clear_range(SPACE.0, SPACE.1);
    let mut model = Model::new();
    for one in before {
        write(&tr, one);
        apply(&mut model, one);
    }
    tr.commit().await.unwrap();
    model
}

/// Commits writes, and applies them to the model.
async fn commit(scratch: &Scratch, model: &mut Model, batch: &[Write]) {
    let tr = scratch.db.create_trx().unwrap();
    for one in batch {
        write(&tr, one);
        apply(model, one);
    }
    tr.commit().await.unwrap();
}

/// On a cluster, programs go without the one operation that FoundationDB's client gets wrong: a selector counts a
/// key that a compare-and-clear of the transaction's own leaves absent, though a range read does not show it.
fn without_quirks(scratch: &Scratch, program: Vec<Step>) -> Vec<Step> {
    let quirk = |step: &Step| matches!(step, Step::Write(Write::CompareAndClear(..)));
    let on_cluster = scratch.place.embedded_url().is_none();
    program.into_iter().filter(|step| !(on_cluster && quirk(step))).collect()
}

/// Runs `check` on many values of `strategy`; a failing one is made small and printed.
fn for_all<S: Strategy>(strategy: S, check: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&strategy, check).unwrap();
}

#[test]
fn reads_see_the_database_under_own_writes() {
    let scratch = scratch();
    let before = proptest::collection::vec(writes(), 0..24);
    for_all((before, steps()), |(before, program)| {
        let program = without_quirks(&scratch, program);
        block_on(async {
            let mut model = start(&scratch, &before).await;
            let tr = scratch.db.create_trx().unwrap();
            for step in &program {
                match step {
                    Step::Write(one) => {
                        write(&tr, one);
                        apply(&mut model, one);
                    }
                    Step::Read(read) => {
                        prop_assert_eq!(actual(&tr, read).await, expected(&model, read), "{:?}", read);
                    }
                }
            }
            tr.commit().await.unwrap();
            prop_assert_eq!(contents(&scratch).await, model);
            Ok(())
        })
    });
}

#[test]
fn a_transaction_commits_only_if_its_reads_would_be_the_same_now() {
    let scratch = scratch();
    let before = proptest::collection::vec(writes(), 0..24);
    let others = proptest::collection::vec(writes(), 1..3);
    for_all((before, steps(), others), |(before, program, others)| {
        let program = without_quirks(&scratch, program);
        block_on(async {
            let mut model = start(&scratch, &before).await;
            let tr = scratch.db.create_trx().unwrap();
            tr.get_read_version().await.unwrap();
            for step in &program {
                match step {
                    Step::Write(one) => write(&tr, one),
                    Step::Read(read) => drop(actual(&tr, read).await),
                }
            }
            let seen = replay(&model, &program).1;
            commit(&scratch, &mut model, &others).await;
            let (after, would_see) = replay(&model, &program);
            // A read-only transaction never conflicts. A clear of an empty range writes nothing.
            let read_only = |step: &Step| matches!(step, Step::Read(_) | Step::Write(Write::ClearRange(..)));
            match tr.commit().await.map(drop).map_err(|error| error.code()) {
                Ok(()) => {
                    if !program.iter().all(read_only) {
                        prop_assert_eq!(seen, would_see, "committed although its reads had changed");
                    }
                    prop_assert_eq!(contents(&scratch).await, after);
                }
                Err(code) => {
                    prop_assert_eq!(code, 1020);
                    prop_assert_eq!(contents(&scratch).await, model, "a conflict leaves no trace");
                }
            }
            Ok(())
        })
    });
}

/// What a program does to a map, and what its reads see.
fn replay(model: &Model, program: &[Step]) -> (Model, Vec<String>) {
    let (mut model, mut seen) = (model.clone(), Vec::new());
    for step in program {
        match step {
            Step::Write(one) => apply(&mut model, one),
            Step::Read(read) => seen.push(expected(&model, read)),
        }
    }
    (model, seen)
}
