//! What random programs do not reach, step by step; the same is expected of the engine and of a cluster.

use std::time::Duration;

use fdb_embedded::testing::{Database, Future, Reply, Transaction};

use crate::{network, open, turn};

const MAX_WATCHES: u32 = 20;
const TIMEOUT: u32 = 500;
const MAX_RETRY_DELAY: u32 = 502;
const PROTECTION_DISABLED: u32 = 701;
const NOT_COMMITTED: i32 = 1020;
const DUE: Duration = Duration::from_secs(20);

fn error(future: &Future) -> Option<i32> {
    match future.wait_for(DUE).expect("it is due") {
        Reply::Error(code) => Some(code),
        _ => None,
    }
}

fn int(value: i64) -> [u8; 8] {
    value.to_le_bytes()
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
    network();
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
    network();
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
fn a_timeout_ends_what_waits_for_the_transaction_but_no_watch() {
    let _turn = turn();
    network();
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
    network();
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
fn a_read_version_far_ahead_cannot_be_read_at_but_committed_with() {
    let _turn = turn();
    network();
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
