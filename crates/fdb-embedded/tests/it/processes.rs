//! Several processes on one directory: sharing, being stopped, and talking nonsense.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foundationdb::options::{MutationType, StreamingMode, TransactionOption};
use foundationdb::{FdbError, RangeOption};
use futures::FutureExt;
use futures::executor::block_on;

use crate::common::{Helper, Rng, get, guest, open, set};

const NOT_COMMITTED: i32 = 1020;
const TIMED_OUT: i32 = 1031;

/// Runs until it succeeds, as every retry loop does.
pub fn insist<T>(what: impl Fn() -> Result<T, FdbError>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match what() {
            Ok(value) => return value,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                assert!(Instant::now() < deadline, "it still fails after a minute: {error}");
            }
        }
    }
}

/// What a future comes to in good time.
pub fn due<T>(future: impl Future<Output = T>, what: &str) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await }).expect(what)
}

#[test]
fn processes_conflict_with_each_other_as_transactions_do() {
    let (dir, _host, db) = guest();
    let increment = |_| Helper::start("increments", dir.path());
    let mut helpers: Vec<Helper> = (0..3).map(increment).collect();
    for helper in &mut helpers {
        drop(helper.stdin.take());
        assert!(helper.child.wait().unwrap().success());
    }
    let total = u64::from_le_bytes(get(&db, b"counter").unwrap().unwrap().try_into().unwrap());
    assert_eq!(total, 3 * INCREMENTS);
}

const INCREMENTS: u64 = 300;

pub fn helper_increments(directory: &Path) {
    let db = open(directory);
    println!("\nready");
    for _ in 0..INCREMENTS {
        block_on(db.run(|tr, _| async move {
            let old = tr.get(b"counter", false).await?;
            let old = old.map_or(0, |old| u64::from_le_bytes(old[..].try_into().expect("eight bytes")));
            tr.set(b"counter", &(old + 1).to_le_bytes());
            Ok(())
        }))
        .unwrap();
    }
}

#[test]
fn a_conflict_is_reported_with_its_keys_over_the_socket() {
    let (_dir, _host, db) = guest();
    let tr = db.create_trx().unwrap();
    tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
    block_on(tr.get(b"a", false)).unwrap();
    block_on(tr.get(b"c", false)).unwrap();
    tr.set(b"z", b"");
    set(&db, b"c", b"changed").unwrap();
    let refused = block_on(tr.commit()).map(drop).unwrap_err();
    assert_eq!(refused.code(), NOT_COMMITTED);
    let ranges = block_on(refused.conflicting_keys()).unwrap();
    let ranges: Vec<_> = ranges.iter().map(|range| (range.begin().to_vec(), range.end().to_vec())).collect();
    assert_eq!(ranges, [(b"c".to_vec(), b"c\0".to_vec())]);
}

#[test]
fn commits_and_special_keys_wait_for_reads_in_flight() {
    let (_dir, host, db) = guest();
    let tr = db.create_trx().unwrap();
    let reading = tr.get(b"a", false);
    let range = (
        &b"\xff\xff/transaction/read_conflict_range/"[..],
        &b"\xff\xff/transaction/read_conflict_range0"[..],
    );
    let conflicts = block_on(tr.get_range(&RangeOption::from(range), 1, false)).unwrap();
    assert_eq!(conflicts.len(), 2, "one range, from a to what follows it");
    block_on(reading).unwrap();

    // The key of the read is written by another meanwhile: the commit has to wait for the read to know that it conflicts.
    let tr = db.create_trx().unwrap();
    block_on(tr.get_read_version()).unwrap();
    set(&db, b"b", b"changed").unwrap();
    signal(&host, "-STOP");
    let reading = tr.get(b"b", false);
    tr.set(b"z", b"");
    let commit = tr.commit();
    signal(&host, "-CONT");
    assert_eq!(block_on(commit).map(drop).unwrap_err().code(), NOT_COMMITTED);
    drop(reading);
}

#[test]
fn a_read_in_flight_sees_only_earlier_own_writes() {
    let (_dir, host, db) = guest();
    set(&db, b"k", b"stored").unwrap();
    let tr = db.create_trx().unwrap();
    block_on(tr.get_read_version()).unwrap();
    signal(&host, "-STOP");
    let before = tr.get(b"k", false);
    let range = RangeOption::from((&b"a"[..], &b"z"[..]));
    let rows_before = tr.get_range(&range, 1, false);
    tr.atomic_op(b"m", &[2], MutationType::Add);
    let added = [tr.get(b"m", false), tr.get(b"m", true)];
    tr.clear(b"m");
    tr.set(b"k", b"own");
    tr.set(b"l", b"own");
    let after = tr.get(b"k", false);
    let rows_after = tr.get_range(&range, 1, false);
    signal(&host, "-CONT");
    assert_eq!(block_on(before).unwrap().as_deref(), Some(&b"stored"[..]));
    assert_eq!(block_on(after).unwrap().as_deref(), Some(&b"own"[..]));
    for added in added {
        assert_eq!(block_on(added).unwrap().as_deref(), Some(&[2][..]));
    }
    let keys =
        |rows: foundationdb::future::FdbValues| rows.iter().map(|row| row.key().to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(block_on(rows_before).unwrap()), [b"k"]);
    assert_eq!(keys(block_on(rows_after).unwrap()), [b"k", b"l"]);
}

#[test]
fn a_watch_in_flight_sees_later_writes_of_its_transaction() {
    let (_dir, host, db) = guest();
    for key in [&b"there and back"[..], b"to another", b"to the same", b"gone"] {
        set(&db, key, b"1").unwrap();
    }
    let tr = db.create_trx().unwrap();
    block_on(tr.get_read_version()).unwrap();
    signal(&host, "-STOP");
    let there_and_back = tr.watch(b"there and back");
    let changed = [tr.watch(b"to another"), tr.watch(b"gone")];
    let kept = [tr.watch(b"to the same"), tr.watch(b"never there")];
    tr.set(b"there and back", b"2");
    tr.set(b"there and back", b"1");
    tr.set(b"to another", b"2");
    tr.set(b"to the same", b"1");
    tr.clear_range(b"gone", b"gone\0");
    tr.clear(b"never there");
    due(there_and_back, "it has changed whatever it was").unwrap();
    signal(&host, "-CONT");
    for watch in changed {
        due(watch, "it has changed, and the transaction need not commit").unwrap();
    }
    block_on(tr.commit()).unwrap();
    let mut kept = kept.map(Box::pin);
    assert!(kept.iter_mut().all(|watch| watch.now_or_never().is_none()), "nothing has changed");
    set(&db, b"to the same", b"2").unwrap();
    set(&db, b"never there", b"2").unwrap();
    for watch in kept {
        due(watch, "it is armed").unwrap();
    }
}

#[test]
fn a_guest_reads_between_its_own_clears() {
    let (_dir, _host, db) = guest();
    let tr = db.create_trx().unwrap();
    (0..=255u8).for_each(|n| tr.set(&[b'k', n], &[n]));
    block_on(tr.commit()).unwrap();
    let tr = db.create_trx().unwrap();
    (0..=255u8).filter(|n| n % 3 == 0).for_each(|n| tr.clear(&[b'k', n]));
    tr.clear_range(b"k\x40", b"k\x60");
    tr.set(b"k\x50", &[0x50]);
    let left: Vec<_> =
        (0..=255u8).filter(|n| *n == 0x50 || n % 3 != 0 && !(0x40..0x60).contains(n)).collect();
    for reverse in [false, true] {
        for limit in [1, 30, 1_000] {
            let range = RangeOption {
                mode: StreamingMode::WantAll,
                limit: Some(limit),
                reverse,
                ..RangeOption::from((&b"k"[..], &b"l"[..]))
            };
            let rows = block_on(tr.get_range(&range, 1, true)).unwrap();
            let found: Vec<_> = rows.iter().map(|row| row.value()[0]).collect();
            let mut expected = left.clone();
            if reverse {
                expected.reverse();
            }
            expected.truncate(limit);
            assert_eq!(found, expected);
        }
    }
}

/// Sends a helper a signal; if that stops it, it has stopped on return.
pub fn signal(helper: &Helper, name: &str) {
    let pid = helper.child.id().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    // The signal is on its way: a thread that runs on another core goes on for a moment.
    while name == "-STOP" && !is_stopped(&pid) {
        std::thread::yield_now();
    }
}

fn is_stopped(pid: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.map_while(Result::ok).all(|thread| {
        let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" T"))
    })
}

#[test]
fn guests_of_a_stopped_host_wait_and_their_timeouts_apply() {
    let (_dir, host, db) = guest();
    set(&db, b"k", b"1").unwrap();
    signal(&host, "-STOP");
    // A transaction's own timeout still ends it, whatever it waits for.
    for commits in [false, true] {
        let tr = db.create_trx().unwrap();
        tr.set_option(TransactionOption::Timeout(200)).unwrap();
        let error = if commits {
            tr.set(b"k", b"perhaps");
            block_on(tr.commit()).map(drop).map_err(FdbError::from).unwrap_err()
        } else {
            block_on(tr.get(b"k", false)).map(drop).unwrap_err()
        };
        assert_eq!(error.code(), TIMED_OUT);
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            set(&db, b"k2", b"after").unwrap();
            is_done.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!is_done.load(Ordering::Acquire), "it cannot be committed without its host");
        signal(&host, "-CONT");
        waiting.join().unwrap();
    });
    assert_eq!(get(&db, b"k2").unwrap().as_deref(), Some(&b"after"[..]));
}

#[test]
fn a_host_that_finds_many_requests_at_once_answers_all_of_them() {
    let (_dir, host, db) = guest();
    // More than a host keeps unsent.
    let keys: Vec<_> = (0..200u8).map(|n| [b'k', n]).collect();
    for key in &keys {
        set(&db, key, &[7; 90_000]).unwrap();
    }
    let tr = db.create_trx().unwrap();
    block_on(tr.get_read_version()).unwrap();
    signal(&host, "-STOP");
    let reads: Vec<_> = keys.iter().map(|key| tr.get(key, true)).collect();
    signal(&host, "-CONT");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let reads = futures::future::join_all(reads);
    let read = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), reads).await });
    for value in read.expect("the host does not answer") {
        assert_eq!(value.unwrap().map(|value| value.len()), Some(90_000));
    }
}

#[test]
fn a_guest_that_is_stopped_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let mut stopped = Helper::start("reads_and_commits_much", dir.path());
    // During a round: answers to its reads and to its commits find nobody who takes them.
    stopped.wait_for("round");
    signal(&stopped, "-STOP");
    let began = Instant::now();
    for n in 0u32..200 {
        set(&db, &n.to_be_bytes(), &[7; 100]).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(60), "commits took {:?}", began.elapsed());
    signal(&stopped, "-CONT");
    drop(stopped.stdin.take());
    // So that it never waits for room in the pipe.
    stopped.lines.by_ref().for_each(drop);
    assert!(stopped.child.wait().unwrap().success(), "it goes on where it was stopped");
}

pub fn helper_reads_and_commits_much(directory: &Path) {
    let db = open(directory);
    let key = |n: u32| [b"big", &n.to_be_bytes()[..]].concat();
    for n in 0..50 {
        insist(|| set(&db, &key(n), &[1; 90_000]));
    }
    println!("\nready");
    let told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            told.store(true, Ordering::Release);
        });
        while !told.load(Ordering::Acquire) {
            let retryable = |result: Result<(), FdbError>| {
                assert!(result.is_ok() || result.is_err_and(|error| error.is_retryable()));
            };
            // Large reads and small commits, all at once.
            let tr = db.create_trx().unwrap();
            let reads = futures::future::join_all((0..50).map(|n| {
                let (tr, key) = (&tr, key(n));
                async move { tr.get(&key, true).await.map(drop) }
            }));
            let commits = futures::future::join_all((0..20u32).map(|n| {
                let tr = db.create_trx().unwrap();
                tr.set(&[b"small", &n.to_be_bytes()[..]].concat(), b"");
                async move { tr.commit().await.map(drop).map_err(FdbError::from) }
            }));
            println!("round");
            let (reads, commits) = block_on(futures::future::join(reads, commits));
            reads.into_iter().chain(commits).for_each(retryable);
        }
    });
}

fn greeting(protocol: u32) -> Vec<u8> {
    [&[13, 0, 0, 0, 1][..], b"fdb-embd", &protocol.to_le_bytes()].concat()
}

/// The protocol of a host, which it names to a guest of any other.
fn protocol_of(directory: &Path) -> u32 {
    let mut socket = UnixStream::connect(directory.join("socket")).unwrap();
    socket.write_all(&greeting(0)).unwrap();
    let mut welcome = [0; 4 + 1 + 8 + 4 + 4];
    socket.read_exact(&mut welcome).unwrap();
    u32::from_le_bytes(welcome[13..17].try_into().unwrap())
}

#[test]
fn invalid_bytes_on_the_socket_end_only_that_connection() {
    let seed = Rng::seed();
    let mut rng = Rng(seed);
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    set(&db, b"k", b"kept").unwrap();
    let protocol = protocol_of(dir.path());
    for round in 0..300 {
        let mut socket = UnixStream::connect(dir.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut bytes = Vec::new();
        if round % 3 > 0 {
            // A proper greeting and a request, and then frames of random kinds.
            bytes.extend_from_slice(&greeting(protocol));
            bytes.extend_from_slice(&[10, 0, 0, 0, 2]);
            bytes.extend_from_slice(&7u64.to_le_bytes());
            bytes.push(0);
        }
        for _ in 0..rng.below(20) {
            let length = rng.below(60) as u32;
            bytes.extend_from_slice(&length.to_le_bytes());
            let kind = rng.below(11) as u8;
            bytes.extend((0..length).map(|i| if i == 0 { kind } else { rng.below(5) as u8 }));
        }
        if round % 2 == 0 {
            bytes.extend((0..rng.below(200)).map(|_| rng.below(256) as u8));
            bytes.extend_from_slice(&[0xff; 8]);
        }
        // The host may close before it has read all of it.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let end = socket.read_to_end(&mut answer);
        if round % 3 > 0 {
            // After the welcome, the view that was asked for: the host has gone on to read requests.
            let next = answer.get(4 + usize::from(answer[0]) + 4);
            assert_eq!(
                next,
                Some(&130),
                "round {round}: the host did not read on (KVQUEUE_TEST_SEED={seed})"
            );
        }
        let timed_out = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "round {round}: the host keeps the connection (KVQUEUE_TEST_SEED={seed})");
        assert!(get(&db, b"k").is_ok(), "round {round}: the host is hurt (KVQUEUE_TEST_SEED={seed})");
    }
    set(&db, b"k2", b"still takes commits").unwrap();
}
