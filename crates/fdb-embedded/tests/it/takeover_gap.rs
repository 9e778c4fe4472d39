//! The time between the end of a host and the beginning of the next: new transactions wait.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foundationdb::options::TransactionOption;
use foundationdb::{Database, FdbError};
use futures::executor::block_on;

use crate::common::{Helper, guest, open, set};
use crate::processes::signal;

const TIMED_OUT: i32 = 1031;

/// One call of a new transaction.
type Call = fn(&Database) -> Result<(), FdbError>;

const CALLS: [(&str, Call); 3] = [
    ("a read version", |db| block_on(db.create_trx()?.get_read_version()).map(drop)),
    ("a read", |db| block_on(db.create_trx()?.get(b"k", false)).map(drop)),
    ("a commit", |db| set(db, b"k", b"v").map(drop)),
];

#[test]
fn a_takeover_fails_no_transaction_that_has_read_nothing() {
    for (name, call) in CALLS {
        for kill in [true, false] {
            for with_another_guest in [false, true] {
                let (dir, mut host, db) = guest();
                let _another = with_another_guest.then(|| Helper::start("hosts", dir.path()));
                let end = || {
                    if kill {
                        host.kill();
                    }
                    drop(host);
                };
                let failed = failures_over_the_end(&db, call, end);
                assert!(
                    failed.is_empty(),
                    "{name}: codes {failed:?}; killed: {kill}, another guest: {with_another_guest}"
                );
            }
        }
    }
}

/// The codes of calls that fail, with their numbers, from some time before the end of the host until some time after it.
/// A commit may have an unknown outcome.
fn failures_over_the_end(db: &Database, call: Call, end: impl FnOnce()) -> BTreeMap<i32, u32> {
    let (is_done, succeeded, failed) =
        (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for_more = || {
        let until = succeeded.load(Ordering::Acquire) + 100;
        while succeeded.load(Ordering::Acquire) < until {
            assert!(Instant::now() < deadline, "calls have stopped");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) && Instant::now() < deadline {
                    match call(db) {
                        Err(error) if error.is_maybe_committed() => {}
                        Err(error) => *failed.lock().unwrap().entry(error.code()).or_default() += 1,
                        Ok(()) => drop(succeeded.fetch_add(1, Ordering::AcqRel)),
                    }
                }
            });
        }
        wait_for_more();
        end();
        wait_for_more();
        is_done.store(true, Ordering::Release);
    });
    failed.into_inner().unwrap()
}

#[test]
fn a_read_version_in_flight_outlives_its_host_and_timeouts_apply() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = Helper::start("hosts", dir.path());
    let mut guest = Helper::start("waits_in_a_gap", dir.path());
    let tell = |guest: &mut Helper| writeln!(guest.stdin.as_mut().unwrap(), "go on").unwrap();
    signal(&host, "-STOP");
    tell(&mut guest);
    guest.wait_for("asked");
    signal(&guest, "-STOP");
    host.kill();
    // Nobody hosts the directory while this test has its lock.
    let lock = std::fs::File::open(dir.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
    signal(&guest, "-CONT");
    tell(&mut guest);
    guest.wait_for("timed out");
    drop(lock);
    drop(guest.stdin.take());
    assert!(guest.child.wait().unwrap().success(), "it gets what it asked for");
}

pub fn helper_waits_in_a_gap(directory: &Path) {
    let db = open(directory);
    set(&db, b"k", b"v").unwrap();
    println!("\nready");
    let wait = || assert!(std::io::stdin().lock().read_line(&mut String::new()).is_ok());
    wait();
    let (versioned, reading) = (db.create_trx().unwrap(), db.create_trx().unwrap());
    let (version, read) = (versioned.get_read_version(), reading.get(b"k", false));
    println!("asked");
    wait();
    let timed = || {
        let tr = db.create_trx().unwrap();
        tr.set_option(TransactionOption::Timeout(100)).unwrap();
        tr
    };
    let [for_version, for_read, for_commit] = [timed(), timed(), timed()];
    for_commit.set(b"k", b"never seen by this process");
    let of_commit = block_on(for_commit.commit()).map(drop).map_err(FdbError::from);
    let results = [
        block_on(for_version.get_read_version()).map(drop),
        block_on(for_read.get(b"k", false)).map(drop),
        of_commit,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().code(), TIMED_OUT);
    }
    println!("timed out");
    wait();
    assert!(block_on(version).unwrap() > 0);
    assert!(block_on(read).unwrap().is_some());
    // The transaction goes on with the version that it has been given.
    assert!(block_on(versioned.get(b"k", false)).unwrap().is_some());
}
