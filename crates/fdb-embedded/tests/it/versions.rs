//! Read versions that a client chooses.

use std::time::{Duration, Instant};

use crate::common::{put, scratch};
use foundationdb::options::TransactionOption;

#[tokio::test]
async fn a_read_version_can_be_chosen_while_its_snapshot_is_held() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"old")]).await;
    let holder = scratch.db.create_trx().unwrap();
    let version = holder.get_read_version().await.unwrap();
    put(&scratch.db, &[(b"a", b"new")]).await;
    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(version);
    assert_eq!(&*tr.get(b"a", false).await.unwrap().unwrap(), b"old");
    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(42);
    assert_eq!(tr.get_read_version().await.unwrap(), 42, "what was set is not checked before it is read at");
    for (version, code) in [(1, 1007), (1 << 62, 1009), (0, 2011)] {
        let tr = scratch.db.create_trx().unwrap();
        tr.set_read_version(version);
        assert_eq!(tr.get(b"a", false).await.err().map(|e| e.code()), Some(code), "{version}");
    }
}

#[tokio::test]
async fn a_read_of_a_future_version_fails_after_a_second() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"1")]).await;
    let newest = scratch.db.create_trx().unwrap().get_read_version().await.unwrap();
    let begun = Instant::now();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(newest + 1_000_000_000);
    assert_eq!(tr.get(b"a", false).await.err().map(|e| e.code()), Some(1009));
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(tr.get(b"a", true).await.err().map(|e| e.code()), Some(1009), "and so does the next");
    assert!(begun.elapsed() >= Duration::from_millis(1_800), "{:?}", begun.elapsed());

    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(newest + 1_000_000_000);
    tr.set_option(TransactionOption::Timeout(200)).unwrap();
    assert_eq!(tr.get(b"a", false).await.err().map(|e| e.code()), Some(1031), "a timeout is sooner");

    if scratch.place.is_cluster() {
        return; // Its versions grow by leaps when nobody writes.
    }
    let holder = scratch.db.create_trx().unwrap();
    let newest = holder.get_read_version().await.unwrap();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(newest + 100_000);
    assert_eq!(&*tr.get(b"a", false).await.unwrap().unwrap(), b"1", "reached in a tenth of a second");
    let reached = scratch.db.create_trx().unwrap().get_read_version().await.unwrap();
    assert!(reached >= newest + 100_000);
}

#[tokio::test]
async fn a_commit_waits_for_a_read_of_a_future_version() {
    let (scratch, mut tries) = (scratch(), 0);
    put(&scratch.db, &[(b"a", b"1")]).await;
    loop {
        let began = Instant::now();
        let tr = scratch.db.create_trx().unwrap();
        tr.set_read_version(1 << 62);
        let reading = tr.get(b"a", false);
        tr.set(b"b", b"");
        let failed = tr.commit().await.err().map(|error| error.code());
        assert_eq!(failed, Some(1009));
        assert_eq!(reading.await.err().map(|error| error.code()), Some(1009));
        if began.elapsed() < Duration::from_millis(1_800) {
            break;
        }
        // Two seconds, not one; unless the machine stood still.
        tries += 1;
        assert!(tries < 10, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn size_estimates_do_not_wait_for_another_reads_version() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"1")]).await;
    let tr = scratch.db.create_trx().unwrap();
    tr.set_read_version(1 << 62);
    let reading = tr.get(b"a", false);
    let size = || {
        let size = tr.get_estimated_range_size_bytes(b"a", b"b");
        async {
            tokio::time::timeout(Duration::from_secs(10), size).await.expect("it has no version").unwrap()
        }
    };
    size().await;
    // By now the read has learned that its version is yet to come, and waits for that.
    drop(reading);
    size().await;
}
