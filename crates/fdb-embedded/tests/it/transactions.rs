//! What a transaction promises, through the unmodified `foundationdb` crate.

use std::time::{Duration, Instant};

use crate::common::{Scratch, commit, put, scratch};
use fdb_embedded::{Fault, Faults};
use foundationdb::options::{ConflictRangeType, MutationType, StreamingMode, TransactionOption};
use foundationdb::{Database, FdbError, KeySelector, RangeOption};

async fn value(db: &Database, key: &[u8]) -> Option<Vec<u8>> {
    let tr = db.create_trx().unwrap();
    tr.get(key, false).await.unwrap().map(|value| value.to_vec())
}

#[tokio::test]
async fn a_commit_is_seen_by_later_transactions_and_after_reopening() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"1"), (b"empty", b"")]).await;
    assert_eq!(value(&scratch.db, b"a").await.as_deref(), Some(&b"1"[..]));
    let Scratch { db, place, .. } = scratch;
    drop(db);
    let Some(url) = place.embedded_url() else { return };
    let db = Database::from_path(&url).unwrap();
    assert_eq!(value(&db, b"a").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&db, b"empty").await.as_deref(), Some(&b""[..]));
    assert_eq!(value(&db, b"b").await, None);
}

#[tokio::test]
async fn a_transaction_reads_its_snapshot_despite_later_commits() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"old")]).await;
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(&*tr.get(b"a", true).await.unwrap().unwrap(), b"old");
    put(&scratch.db, &[(b"a", b"new"), (b"b", b"new")]).await;
    assert_eq!(&*tr.get(b"a", true).await.unwrap().unwrap(), b"old");
    assert!(tr.get(b"b", true).await.unwrap().is_none());
}

#[tokio::test]
async fn a_read_of_a_changed_key_conflicts_and_a_snapshot_read_does_not() {
    let scratch = scratch();
    for (snapshot, expected) in [(false, Err(1020)), (true, Ok(()))] {
        let tr = scratch.db.create_trx().unwrap();
        tr.get(b"a", snapshot).await.unwrap();
        tr.set(b"mine", b"");
        put(&scratch.db, &[(b"a", b"")]).await;
        assert_eq!(commit(tr).await, expected, "snapshot {snapshot}");
    }
}

#[tokio::test]
async fn a_limited_range_read_conflicts_up_to_its_last_row_only() {
    let scratch = scratch();
    put(&scratch.db, &[(b"k1", b""), (b"k2", b""), (b"k3", b"")]).await;
    for (written, expected) in [(b"k2", Err(1020)), (b"k3", Ok(())), (b"k9", Ok(()))] {
        let tr = scratch.db.create_trx().unwrap();
        let range = RangeOption { limit: Some(2), ..RangeOption::from((&b"k"[..], &b"l"[..])) };
        assert_eq!(tr.get_range(&range, 1, false).await.unwrap().len(), 2);
        tr.set(b"mine", b"");
        put(&scratch.db, &[(written, b"x")]).await;
        assert_eq!(commit(tr).await, expected, "{written:?}");
    }
}

#[tokio::test]
async fn blind_writes_and_atomic_operations_do_not_conflict() {
    let scratch = scratch();
    let (first, second) = (scratch.db.create_trx().unwrap(), scratch.db.create_trx().unwrap());
    for tr in [&first, &second] {
        tr.get_read_version().await.unwrap();
        tr.atomic_op(b"n", &1u64.to_le_bytes(), MutationType::Add);
        tr.set(b"last", b"");
    }
    assert_eq!((commit(first).await, commit(second).await), (Ok(()), Ok(())));
    assert_eq!(value(&scratch.db, b"n").await, Some(2u64.to_le_bytes().to_vec()));
}

#[tokio::test]
async fn conflict_ranges_can_be_added_by_hand_and_the_conflict_is_reported() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
    tr.get_read_version().await.unwrap();
    tr.add_conflict_range(b"r", b"s", ConflictRangeType::Read).unwrap();
    tr.set(b"mine", b"");
    let writer = scratch.db.create_trx().unwrap();
    writer.add_conflict_range(b"rr", b"rs", ConflictRangeType::Write).unwrap();
    assert_eq!(commit(writer).await, Ok(()));
    let error = tr.commit().await.unwrap_err();
    assert_eq!(error.code(), 1020);
    let keys = error.conflicting_keys().await.unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].begin(), keys[0].end()), (&b"r"[..], &b"s"[..]));
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(tr.add_conflict_range(b"s", b"r", ConflictRangeType::Read).unwrap_err().code(), 2005);
}

#[tokio::test]
async fn key_selectors_move_over_present_keys_and_clamp() {
    let scratch = scratch();
    put(&scratch.db, &[(b"b", b""), (b"d", b""), (b"f", b"")]).await;
    let tr = scratch.db.create_trx().unwrap();
    let cases: [(KeySelector, &[u8]); 8] = [
        (KeySelector::first_greater_or_equal(&b"d"[..]), b"d"),
        (KeySelector::first_greater_than(&b"d"[..]), b"f"),
        (KeySelector::last_less_than(&b"d"[..]), b"b"),
        (KeySelector::last_less_or_equal(&b"d"[..]), b"d"),
        (KeySelector::new((&b"b"[..]).into(), false, 3), b"f"),
        (KeySelector::new((&b"f"[..]).into(), false, -1), b"b"),
        (KeySelector::new((&b"b"[..]).into(), false, -1), b""),
        (KeySelector::new((&b"f"[..]).into(), true, 1), b"\xff"),
    ];
    for (selector, expected) in cases {
        assert_eq!(&*tr.get_key(&selector, false).await.unwrap(), expected, "{selector:?}");
    }
}

#[tokio::test]
async fn bounds_may_be_the_end_of_the_key_space_and_not_beyond() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"")]).await;
    let tr = scratch.db.create_trx().unwrap();
    let end = |key: &'static [u8]| RangeOption {
        begin: KeySelector::first_greater_or_equal(&b""[..]),
        end: KeySelector::first_greater_than(key),
        ..RangeOption::default()
    };
    assert_eq!(tr.get_range(&end(b"\xff"), 1, false).await.unwrap().len(), 1);
    assert_eq!(tr.get_range(&end(b"\xff\x01"), 1, false).await.err().map(|e| e.code()), Some(2004));
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    assert!(tr.get_range(&end(b"\xff\x01"), 1, true).await.is_ok());
}

#[tokio::test]
async fn range_reads_stop_at_their_limits_and_report_more_rows() {
    let scratch = scratch();
    let keys: Vec<Vec<u8>> = (0u8..100).map(|n| vec![b'k', n]).collect();
    let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"0123456789"[..])).collect();
    put(&scratch.db, &rows).await;
    let all = || RangeOption::from((&b"k"[..], &b"l"[..]));
    // Each in a transaction of its own: FoundationDB gives what one has read before as a piece by itself.
    let read = async |range: RangeOption<'static>| {
        scratch.db.create_trx().unwrap().get_range(&range, 1, true).await.unwrap()
    };

    let small = read(RangeOption { mode: StreamingMode::Small, ..all() }).await;
    assert_eq!((small.len(), small.more()), (8, true), "36 bytes a row against 256");
    let everything = read(RangeOption { mode: StreamingMode::WantAll, ..all() }).await;
    assert_eq!((everything.len(), everything.more()), (100, false));
    let exact = read(RangeOption { mode: StreamingMode::Exact, limit: Some(100), ..all() }).await;
    assert_eq!((exact.len(), exact.more()), (100, true), "a limit that is just reached counts");
    let back = read(RangeOption { limit: Some(2), ..all().rev() }).await;
    assert_eq!(back.iter().map(|row| row.key()[1]).collect::<Vec<_>>(), [99, 98]);
    let no_limit = RangeOption { mode: StreamingMode::Exact, ..all() };
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(tr.get_range(&no_limit, 1, true).await.err().map(|e| e.code()), Some(2210));
}

#[tokio::test]
async fn versionstamps_order_keys_and_agree_with_the_commit() {
    let scratch = scratch();
    let mut stamps = Vec::new();
    for n in 0u8..3 {
        let tr = scratch.db.create_trx().unwrap();
        let key = [&b"s"[..], &[0xff; 10], &[n], &1u32.to_le_bytes()].concat();
        tr.atomic_op(&key, b"v", MutationType::SetVersionstampedKey);
        let value = [&[0xff; 10][..], &0u32.to_le_bytes()].concat();
        tr.atomic_op(b"stamp", &value, MutationType::SetVersionstampedValue);
        let stamp = tr.get_versionstamp();
        let committed = tr.commit().await.unwrap();
        let stamp = stamp.await.unwrap().to_vec();
        let version = committed.committed_version().unwrap();
        assert_eq!(stamp[..8], version.to_be_bytes());
        assert_eq!(value_of(&scratch.db).await, stamp);
        stamps.push([&b"s"[..], &stamp, &[n]].concat());
    }
    let tr = scratch.db.create_trx().unwrap();
    let rows = tr.get_range(&RangeOption::from((&b"s"[..], &b"sz"[..])), 1, false).await.unwrap();
    assert!(stamps.is_sorted());
    assert_eq!(rows.iter().map(|row| row.key().to_vec()).take(3).collect::<Vec<_>>(), stamps);

    let read_only = scratch.db.create_trx().unwrap();
    let stamp = read_only.get_versionstamp();
    read_only.commit().await.unwrap();
    assert_eq!(stamp.await.err().map(|e| e.code()), Some(2021));
}

async fn value_of(db: &Database) -> Vec<u8> {
    value(db, b"stamp").await.unwrap()
}

#[tokio::test]
async fn a_key_whose_stamp_is_not_known_yet_cannot_be_read() {
    let scratch = scratch();
    put(&scratch.db, &[(b"q\0", b"old")]).await;
    let tr = scratch.db.create_trx().unwrap();
    let key = [&b"q"[..], &[0xff; 10], &1u32.to_le_bytes()].concat();
    tr.atomic_op(&key, b"v", MutationType::SetVersionstampedKey);
    let whole = RangeOption::from((&b"q"[..], &b"r"[..]));
    let first = RangeOption { limit: Some(1), ..whole.clone() };
    assert_eq!(tr.get_range(&whole, 1, false).await.err().map(|e| e.code()), Some(1036));
    assert_eq!(tr.get_range(&first, 1, false).await.unwrap().len(), 1, "below every stamp there is");
    tr.clear_range(b"q", b"r");
    assert_eq!(tr.get_range(&whole, 1, false).await.unwrap().len(), 0);
}

#[tokio::test]
async fn limits_are_reported_by_the_next_call() {
    let scratch = scratch();
    let cases: [(&[u8], usize, i32); 4] =
        [(&[1; 10_001], 0, 2102), (b"k", 100_001, 2103), (b"\xff", 0, 2004), (b"\xff\xff/x", 0, 2114)];
    for (key, value_len, code) in cases {
        let tr = scratch.db.create_trx().unwrap();
        tr.set(key, &vec![0; value_len]);
        assert_eq!(tr.get(b"a", false).await.err().map(|e| e.code()), Some(code));
        assert_eq!(commit(tr).await, Err(code));
    }
    let tr = scratch.db.create_trx().unwrap();
    for n in 0..101u8 {
        tr.set(&[n], &[0; 100_000]);
    }
    assert!(tr.get_approximate_size().await.unwrap() > 10_000_000);
    assert_eq!(commit(tr).await, Err(2101));
}

#[tokio::test]
async fn timeout_and_cancel_end_a_transaction_and_reset_restarts_it() {
    let scratch = scratch();
    let mut tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::Timeout(1)).unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(20) {
        tokio::task::yield_now().await;
    }
    assert_eq!(tr.get(b"a", false).await.err().map(|e| e.code()), Some(1031));
    tr.reset();
    tr.get(b"a", false).await.unwrap();
    let cancelled = tr.cancel();
    let mut tr = cancelled.reset();
    tr.set(b"a", b"1");
    tr.reset();
    assert_eq!(commit(tr).await, Ok(()));
    assert_eq!(value(&scratch.db, b"a").await, None, "the write before the reset is gone");
}

#[tokio::test]
async fn on_error_retries_retryable_errors_up_to_the_limit() {
    let scratch = scratch();
    let error = FdbError::from_code;
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::RetryLimit(2)).unwrap();
    tr.set(b"a", b"1");
    let tr = tr.on_error(error(1020)).await.unwrap();
    assert!(tr.get(b"a", false).await.unwrap().is_none(), "a retry starts without the writes");
    let tr = tr.on_error(error(1007)).await.unwrap();
    assert_eq!(tr.on_error(error(1020)).await.err().map(|e| e.code()), Some(1020));
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(tr.on_error(error(2101)).await.err().map(|e| e.code()), Some(2101));
}

/// The outcome of a watch that ends by itself.
async fn soon(watch: impl Future<Output = Result<(), FdbError>>) -> Result<(), i32> {
    let outcome = tokio::time::timeout(Duration::from_secs(60), watch).await;
    outcome.expect("the watch ends").map_err(FdbError::code)
}

#[tokio::test]
async fn watches_fire_on_a_change_and_not_on_the_same_value() {
    let scratch = scratch();
    put(&scratch.db, &[(b"w", b"1")]).await;
    let tr = scratch.db.create_trx().unwrap();
    let mut watch = Box::pin(tr.watch(b"w"));
    assert_eq!(commit(tr).await, Ok(()));
    put(&scratch.db, &[(b"w", b"1"), (b"other", b"")]).await;
    let early = tokio::time::timeout(Duration::from_millis(50), &mut watch).await;
    assert!(early.is_err(), "the value did not change");
    let tr = scratch.db.create_trx().unwrap();
    tr.clear_range(b"a", b"z");
    assert_eq!(commit(tr).await, Ok(()));
    assert_eq!(soon(watch).await, Ok(()));
}

#[tokio::test]
async fn a_watch_sees_a_change_made_between_its_read_and_its_commit() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    let watch = tr.watch(b"w");
    put(&scratch.db, &[(b"w", b"1")]).await;
    assert_eq!(commit(tr).await, Ok(()), "a read-only transaction does not conflict");
    assert_eq!(soon(watch).await, Ok(()));
}

#[tokio::test]
async fn a_watch_fires_on_a_change_reverted_in_its_own_transaction() {
    let scratch = scratch();
    put(&scratch.db, &[(b"w", b"1")]).await;
    let tr = scratch.db.create_trx().unwrap();
    let watch = tr.watch(b"w");
    tr.set(b"w", b"2");
    tr.set(b"w", b"1");
    assert_eq!(commit(tr).await, Ok(()));
    assert_eq!(soon(watch).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_while_a_commit_is_on_its_way_to_the_disk() {
    let scratch = scratch();
    for n in 0u8..40 {
        let tr = scratch.db.create_trx().unwrap();
        let watch = tr.watch(b"n");
        let db = std::sync::Arc::clone(&scratch.db);
        let writing = tokio::spawn(async move {
            let rows: Vec<[u8; 2]> = (0..10).map(|row| [b'x', row]).collect();
            let mut rows: Vec<(&[u8], &[u8])> = rows.iter().map(|key| (&key[..], &[0; 90_000][..])).collect();
            let value = [n];
            rows.push((b"n", &value));
            put(&db, &rows).await;
        });
        // Any moment of the other commit will do: before, during, after.
        std::thread::sleep(Duration::from_micros(u64::from(n) * 100));
        assert_eq!(commit(tr).await, Ok(()));
        assert_eq!(soon(watch).await, Ok(()), "round {n}");
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_commit_ends_its_versionstamp_and_watches() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::SizeLimit(100)).unwrap();
    tr.set(b"k", &[0; 200]);
    let (stamp, watch) = (tr.get_versionstamp(), tr.watch(b"w"));
    let error = tr.commit().await.unwrap_err();
    assert_eq!(error.code(), 2101);
    assert_eq!(stamp.await.err().map(|e| e.code()), Some(2020));
    assert_eq!(soon(watch).await, Err(2101));
}

#[tokio::test]
async fn getting_a_read_version_does_not_count_as_a_read() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.get_read_version().await.unwrap();
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    tr.set(b"k", b"");
    assert!(tr.get(b"k", false).await.unwrap().is_none());
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    assert_eq!(tr.get(b"k", false).await.err().map(|e| e.code()), Some(2000), "too late");
    for (writes_first, refused) in [(false, None), (true, Some(2000))] {
        let tr = scratch.db.create_trx().unwrap();
        if writes_first {
            tr.set(b"k", b"");
        }
        tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
        tr.set(b"l", b"");
        // Again, which is right after a write that went without.
        tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
        assert_eq!(tr.get(b"k", false).await.err().map(|e| e.code()), refused);
    }
}

#[tokio::test]
async fn watches_are_limited_until_one_ends() {
    let scratch = scratch();
    if scratch.place.is_cluster() {
        return; // There the second watch stays pending instead.
    }
    scratch.db.set_option(foundationdb::options::DatabaseOption::MaxWatches(1)).unwrap();
    let tr = scratch.db.create_trx().unwrap();
    let first = tr.watch(b"a");
    assert_eq!(soon(tr.watch(b"b")).await, Err(1032));
    drop(first);
    let second = tr.watch(b"b");
    drop(tr);
    assert_eq!(soon(second).await, Err(1025), "its transaction never committed");
}

#[tokio::test]
async fn concurrent_increments_are_serializable() {
    let scratch = scratch();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let db = std::sync::Arc::clone(&scratch.db);
            tokio::spawn(async move {
                for _ in 0..25 {
                    increment(&db).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(value(&scratch.db, b"n").await, Some(200u64.to_le_bytes().to_vec()));
}

/// Reads, adds, writes: loses an increment unless conflicts are found.
async fn increment(db: &Database) {
    let mut tr = db.create_trx().unwrap();
    tr.set_option(TransactionOption::MaxRetryDelay(5)).unwrap();
    loop {
        let old = tr.get(b"n", false).await.unwrap();
        let old = old.map_or(0, |old| u64::from_le_bytes(old[..].try_into().unwrap()));
        tr.set(b"n", &(old + 1).to_le_bytes());
        match tr.commit().await {
            Ok(_) => return,
            Err(error) => tr = error.on_error().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn scripted_faults_occur_in_order() {
    let scratch = scratch();
    let Some(url) = scratch.place.embedded_url() else { return };
    let script = [Fault::UnknownNotCommitted, Fault::UnknownCommitted, Fault::Conflict, Fault::TooOld];
    Faults::script(script).install(&url).unwrap();
    for (key, code, stored) in [
        (b"a", Err(1021), false),
        (b"b", Err(1021), true),
        (b"c", Err(1020), false),
        (b"d", Err(1007), false),
    ] {
        let tr = scratch.db.create_trx().unwrap();
        tr.set(key, b"");
        assert_eq!(commit(tr).await, code);
        assert_eq!(value(&scratch.db, key).await.is_some(), stored, "{key:?}");
    }
    put(&scratch.db, &[(b"e", b"")]).await;
    assert!(Faults::default().install("embedded:/nonexistent/directory").is_err());
}

#[tokio::test]
async fn a_database_handle_works_again_after_a_disk_failure() {
    let Scratch { db, place, .. } = scratch();
    let Some(url) = place.embedded_url() else { return };
    put(&db, &[(b"before", b"")]).await;
    Faults::script([Fault::DiskFailure]).install(&url).unwrap();
    let tr = db.create_trx().unwrap();
    tr.set(b"lost", b"");
    assert_eq!(commit(tr).await, Err(1021));
    // The host opens the directory again by itself. Until then transactions fail with errors that a retry is meant for.
    db.run(|tr, _| async move {
        tr.set(b"after", b"");
        Ok(())
    })
    .await
    .unwrap();
    assert!(value(&db, b"before").await.is_some() && value(&db, b"after").await.is_some());
    assert!(value(&db, b"lost").await.is_none(), "what failed is not there");
}

#[tokio::test]
async fn sizes_and_split_points_cover_a_range() {
    let scratch = scratch();
    let keys: Vec<Vec<u8>> = (0u8..200).map(|n| vec![b'k', n]).collect();
    let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[0; 98][..])).collect();
    put(&scratch.db, &rows).await;
    let tr = scratch.db.create_trx().unwrap();
    let addresses = tr.get_addresses_for_key(b"k").await.unwrap();
    if scratch.place.is_cluster() {
        // A cluster has each key once or several times, and estimates from a sample.
        assert!(!addresses.is_empty());
        return;
    }
    assert_eq!(addresses.len(), 1);
    assert_eq!(tr.get_estimated_range_size_bytes(b"k", b"l").await.unwrap(), 20_000);
    let points = tr.get_range_split_points(b"k", b"l", 5_000).await.unwrap();
    let points: Vec<_> = points.iter().map(|point| point.key().to_vec()).collect();
    assert_eq!(points, [&b"k"[..], b"k\x32", b"k\x64", b"k\x96", b"l"]);
}
