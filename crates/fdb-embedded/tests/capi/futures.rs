//! The states of a future: pending, ready, cancelled; and reads that are pending now and then.

use crate::common::{database, on_cluster};

#[test]
fn a_pending_future_has_no_result_and_can_be_cancelled() {
    let database = database();
    let transaction = database.transaction();
    let watch = transaction.watch(b"capi/cancelled");
    assert_eq!(transaction.commit().wait(), 0);
    assert!(!watch.is_ready());
    assert_eq!((watch.error(), watch.int64()), (2015, Err(2015)));
    watch.cancel();
    assert_eq!(watch.wait(), 1101);
    watch.cancel();
    assert_eq!(watch.error(), 1101);
}

#[test]
fn a_ready_future_is_not_cancelled() {
    let database = database();
    let read = database.read(b"capi/ready");
    assert_eq!(read.wait(), 0);
    read.cancel();
    assert_eq!(read.error(), 0);
}

#[test]
fn a_commit_future_can_be_cancelled_or_dropped() {
    let database = database();
    for _ in 0..50 {
        let transaction = database.transaction();
        transaction.set(b"capi/given-up", b"v");
        let commit = transaction.commit();
        commit.cancel();
        let outcome = commit.wait();
        assert!(outcome == 0 || outcome == 1101, "{outcome}");
        let dropped = database.transaction();
        dropped.set(b"capi/given-up", b"w");
        drop(dropped.commit());
    }
}

#[test]
fn the_wrong_getter_is_refused() {
    if on_cluster() {
        return; // FoundationDB does not check.
    }
    let database = database();
    let read = database.read(b"capi/ready");
    assert_eq!(read.wait(), 0);
    assert_eq!((read.int64(), read.bool(), read.range_count()), (Err(2000), Err(2000), Err(2000)));
}

#[test]
fn some_reads_are_pending_at_first_and_every_read_ends() {
    let database = database();
    let transaction = database.transaction();
    let reads: Vec<_> = (0..1000).map(|_| transaction.get(b"capi/many")).collect();
    // One read of many takes a detour that begins when somebody looks: that look finds it pending.
    let mut pending = reads.iter().filter(|read| !read.is_ready()).count();
    for _ in 0..1000 {
        let read = transaction.get(b"capi/many");
        pending += usize::from(!read.is_ready());
        assert_eq!(read.wait(), 0);
    }
    assert!(pending > 0, "no read of 2000 was pending");
    assert!(reads.iter().all(|read| read.wait() == 0));
}
