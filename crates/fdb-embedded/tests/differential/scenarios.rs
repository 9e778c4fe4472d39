//! What random programs do not reach, step by step; the same is expected of the engine and of a cluster.

use std::time::Duration;

use fdb_embedded::testing::{Database, Future, KeySelector, Range, Reply, Transaction};

use crate::{network, open, turn};

const MAX_WATCHES: u32 = 20;
const TIMEOUT: u32 = 500;
const MAX_RETRY_DELAY: u32 = 502;
const PROTECTION_DISABLED: u32 = 701;
const READ_YOUR_WRITES_DISABLE: u32 = 51;
const ADD: u32 = 2;
const SET_VERSIONSTAMPED_KEY: u32 = 14;
const SET_VERSIONSTAMPED_VALUE: u32 = 15;
const NOT_COMMITTED: i32 = 1020;
/// A page, of which costs are made, bytes.
const PAGE: i64 = 4096;
const DUE: Duration = Duration::from_secs(60);

fn error(future: &Future) -> Option<i32> {
    match future.wait_for(DUE).expect("it is due") {
        Reply::Error(code) => Some(code),
        _ => None,
    }
}

fn int(value: i64) -> [u8; 8] {
    value.to_le_bytes()
}

/// A read of all rows of a range.
fn everything(begin: KeySelector, end: KeySelector) -> Range {
    Range { begin, end, limit: 0, target_bytes: 0, mode: -2, iteration: 1, snapshot: false, reverse: false }
}

type Row = (Vec<u8>, Vec<u8>);

/// Where conflict ranges begin and end, as the special keys show it for one `kind` of them, and the value there.
fn shown(transaction: &Transaction, kind: &str) -> Result<Vec<Row>, i32> {
    let module = [b"\xff\xff/transaction/", kind.as_bytes(), b"_conflict_range"].concat();
    let at = |end: &[u8]| KeySelector { key: [&module, end].concat(), or_equal: false, offset: 1 };
    match transaction.get_range(&everything(at(b"/"), at(b"0"))).wait() {
        Reply::Rows { rows, .. } => {
            let rows = rows.into_iter().map(|(key, value)| (key[module.len() + 1..].to_vec(), value));
            // Of a cluster's client, which makes a transaction conflict with itself if it is sent twice.
            Ok(rows.filter(|(key, _)| !key.starts_with(b"\xff/SC/")).collect())
        }
        Reply::Error(code) => Err(code),
        other => panic!("rows are {other:?}"),
    }
}

fn key_rows(key: &[u8]) -> [Row; 2] {
    [(key.to_vec(), b"1".to_vec()), ([key, &[0]].concat(), b"0".to_vec())]
}

/// A transaction that has begun, so that what its calls wait for is only what they ask for.
fn begun(database: &Database) -> Transaction {
    let transaction = database.transaction().unwrap();
    assert!(matches!(transaction.get_read_version().wait(), Reply::Int64(_)));
    transaction
}

#[test]
fn watches_above_the_limit_are_refused_until_others_end() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    database.set_option(MAX_WATCHES, Some(&int(1))).unwrap();
    let transaction = begun(&database);
    let first = transaction.watch(b"watch");
    assert_eq!(
        transaction.get(b"watch", true).wait(),
        Reply::Value(None),
        "the watch has read the same before"
    );
    for _ in 0..2 {
        assert_eq!(error(&transaction.watch(b"watch")), Some(1032));
    }
    assert_eq!(error(&transaction.commit()), None, "a refused watch spoils nothing");
    assert!(!first.is_ready());
    first.cancel();
    assert_eq!(error(&first), Some(1101));
    let transaction = begun(&database);
    let again = transaction.watch(b"watch");
    assert_eq!(transaction.get(b"watch", true).wait(), Reply::Value(None));
    assert_eq!(error(&transaction.commit()), None);
    assert!(!again.is_ready(), "the place is free again");
}

#[test]
fn a_call_during_a_commit_ends_the_transaction_unless_it_is_not_protected() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    for protected in [true, false] {
        let transaction = begun(&database);
        if !protected {
            transaction.set_option(PROTECTION_DISABLED, None).unwrap();
        }
        transaction.set(b"during", b"a commit");
        let commit = transaction.commit();
        assert_eq!(error(&transaction.get(b"during", false)), Some(2017));
        // It may have been over already.
        let outcome = error(&commit);
        assert!(outcome.is_none() || protected && outcome == Some(2017), "{outcome:?}");
        let expected = protected.then_some(2017);
        assert_eq!(error(&transaction.get_read_version()), expected);
        transaction.reset();
        assert_eq!(error(&transaction.get(b"during", false)), None);
    }
}

#[test]
fn a_timeout_ends_all_futures_of_a_transaction_but_watches() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    let transaction = begun(&database);
    let (stamp, watch) = (transaction.get_versionstamp(), transaction.watch(b"watch"));
    assert_eq!(transaction.get(b"watch", true).wait(), Reply::Value(None));
    transaction.set_option(TIMEOUT, Some(&int(20))).unwrap();
    assert_eq!(error(&stamp), Some(1031), "without any further call");
    assert!(!watch.is_ready());
    transaction.set_option(TIMEOUT, Some(&int(0))).unwrap();
    assert_eq!(error(&transaction.get(b"k", false)), Some(1031), "what is over stays over");
    drop(transaction);
    assert_eq!(error(&watch), Some(1025));
}

#[test]
fn a_timeout_ends_the_wait_before_a_retry() {
    let _turn = turn();
    let _network = network();
    let (database, keep) = open();
    if keep.is_none() {
        return; // A cluster's client takes no second error before it has waited for the first.
    }
    let transaction = begun(&database);
    transaction.set_option(MAX_RETRY_DELAY, Some(&int(i32::MAX.into()))).unwrap();
    // Each doubles the wait of the next: in the end it is days.
    for _ in 0..40 {
        drop(transaction.on_error(NOT_COMMITTED));
    }
    transaction.set_option(TIMEOUT, Some(&int(300))).unwrap();
    assert_eq!(error(&transaction.on_error(NOT_COMMITTED)), Some(1031));
    assert_eq!(error(&transaction.get(b"k", false)), Some(1031));
}

#[test]
fn a_read_version_far_ahead_fails_reads_and_allows_commits() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    let transaction = begun(&database);
    assert_eq!(error(&transaction.get(b"ahead", false)), None, "the client finds its servers");
    transaction.reset();
    transaction.set_read_version(1 << 62);
    assert_eq!(transaction.get_read_version().wait(), Reply::Int64(1 << 62));
    assert_eq!(error(&transaction.get(b"ahead", false)), Some(1009));
    transaction.set(b"ahead", b"");
    assert_eq!(error(&transaction.commit()), Some(1009), "the read that failed fails the commit");
    assert_eq!(error(&transaction.on_error(1009)), None);
    assert!(matches!(transaction.get_read_version().wait(), Reply::Int64(version) if version < 1 << 61));
    transaction.reset();
    transaction.set_read_version(1 << 62);
    transaction.set(b"ahead", b"");
    assert_eq!(error(&transaction.commit()), None, "what has read nothing conflicts with nothing");
}

#[test]
fn conflict_ranges_are_shown_after_the_commit_as_before_it() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    for is_plain in [false, true] {
        let transaction = begun(&database);
        if is_plain {
            transaction.set_option(READ_YOUR_WRITES_DISABLE, None).unwrap();
        }
        assert_eq!(error(&transaction.get(b"shown", false)), None);
        transaction.set(b"w", b"");
        transaction.atomic_op(b"s0123456789\x01\0\0\0", b"", SET_VERSIONSTAMPED_KEY);
        let stamp = transaction.get_versionstamp();
        assert_eq!(error(&transaction.commit()), None);
        let Some(Reply::Key(stamp)) = stamp.wait_for(DUE) else { panic!("there is a versionstamp") };
        assert_eq!(shown(&transaction, "read"), Ok(key_rows(b"shown").into()));
        let stamped = key_rows(&[b"s", &stamp[..]].concat());
        assert_eq!(shown(&transaction, "write"), Ok([stamped, key_rows(b"w")].concat()));
        transaction.reset();
        assert_eq!((shown(&transaction, "read"), shown(&transaction, "write")), (Ok(vec![]), Ok(vec![])));
    }
}

#[test]
fn read_conflict_ranges_are_hidden_after_a_failed_read() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    type Spoil = fn(&Transaction);
    let ends: [(Spoil, i32); 3] = [
        (|transaction| transaction.cancel(), 1025),
        (|transaction| assert_eq!(error(&transaction.on_error(2000)), Some(2000)), 1025),
        (
            |transaction| {
                transaction.atomic_op(b"shown", &[0; 14], SET_VERSIONSTAMPED_VALUE);
                assert_eq!(error(&transaction.get(b"shown", false)), Some(1036));
            },
            1036,
        ),
    ];
    for (end, code) in ends {
        let transaction = begun(&database);
        assert_eq!(error(&transaction.get(b"shown", false)), None);
        transaction.set(b"w", b"");
        end(&transaction);
        assert_eq!(shown(&transaction, "read"), Err(code));
        assert!(shown(&transaction, "write").is_ok_and(|rows| rows.ends_with(&key_rows(b"w"))));
    }
}

#[test]
fn an_empty_commit_has_no_version() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    let transaction = begun(&database);
    transaction.set(b"k", b"");
    assert_eq!(error(&transaction.commit()), None);
    let committed = transaction.committed_version().unwrap();
    assert!(committed > 0);
    assert_eq!(error(&transaction.on_error(NOT_COMMITTED)), None);
    assert_eq!(transaction.committed_version(), Ok(committed), "a retry still knows it");
    assert_eq!(error(&transaction.get(b"k", false)), None);
    assert_eq!(error(&transaction.commit()), None);
    assert_eq!(transaction.committed_version(), Ok(-1));
}

fn cost(transaction: &Transaction) -> i64 {
    match transaction.get_total_cost().wait() {
        Reply::Int64(cost) => cost,
        other => panic!("a cost is {other:?}"),
    }
}

#[test]
fn transaction_cost_counts_reads_and_sent_bytes() {
    let _turn = turn();
    let _network = network();
    let (database, _keep) = open();
    let fill = begun(&database);
    fill.clear_range(b"", b"\xff");
    (0..100).for_each(|n| fill.set(&[b'c', n], &[n; 95]));
    assert_eq!(error(&fill.commit()), None);
    assert_eq!(cost(&fill), PAGE * (101 + 4 * 100), "the clear goes around the keys");
    let at = |key: &[u8]| KeySelector { key: key.to_vec(), or_equal: false, offset: 1 };
    for is_plain in [false, true] {
        let transaction = begun(&database);
        if is_plain {
            transaction.set_option(READ_YOUR_WRITES_DISABLE, None).unwrap();
        }
        // A get of a row, one of nothing, a selector, and a hundred rows of 97 bytes and 24 more.
        let reads: [(Future, i64); 4] = [
            (transaction.get(b"c\0", false), 1),
            (transaction.get(b"absent", true), 1),
            (transaction.get_key(&at(b"c\x10"), true), i64::from(!is_plain)),
            (transaction.get_range(&everything(at(b"c"), at(b"d"))), 3),
        ];
        let mut expected = 0;
        for (read, pages) in reads {
            assert_eq!(error(&read), None);
            expected += PAGE * pages;
        }
        assert_eq!(cost(&transaction), expected, "with option 51: {is_plain}");

        transaction.set(b"k", &[0; 9000]);
        transaction.set(b"k", &[0; 5000]);
        transaction.atomic_op(b"n", &[0; 5000], ADD);
        transaction.clear(b"nn");
        transaction.clear_range(b"o", b"p");
        transaction.set(b"o5", b"");
        // What reads its own writes sends the last value of a key, and a clear in two parts around one that is set.
        let sent = PAGE * if is_plain { 12 + 8 + 4 + 1 + 4 } else { 8 + 4 + 1 + 2 + 4 };
        assert_eq!(cost(&transaction), expected + if is_plain { sent } else { 0 });
        assert_eq!(error(&transaction.commit()), None);
        assert_eq!(cost(&transaction), expected + sent);
        assert_eq!(error(&transaction.on_error(NOT_COMMITTED)), None);
        assert_eq!(cost(&transaction), 0);
        transaction.set(&[0; 10_001], b"");
        assert_eq!(transaction.get_total_cost().wait(), Reply::Error(2102), "what a call could not say");
    }
}
