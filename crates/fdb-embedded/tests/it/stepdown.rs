//! A host gives up its role: its storage has failed, or somebody has taken its files away.

use std::path::Path;
use std::time::{Duration, Instant};

use fdb_embedded::{Fault, Faults};
use foundationdb::options::TransactionOption;
use foundationdb::{Database, FdbError};
use futures::executor::block_on;

use crate::common::{Helper, get, guest, open, set};
use crate::processes::{due, insist, signal};

const IO_ERROR: i32 = 1510;
const UNKNOWN: i32 = 1021;
const TIMED_OUT: i32 = 1031;

fn url(directory: &Path) -> String {
    format!("embedded:{}", directory.display())
}

/// Tries on until the database says that it cannot go on; nothing may be acknowledged after `grace`.
fn await_the_end(db: &Database, since: Instant, grace: Duration) {
    loop {
        let result = set(db, b"k", b"written to nowhere");
        match result {
            Ok(_) => assert!(since.elapsed() < grace, "it still acknowledges after {:?}", since.elapsed()),
            Err(error) if error.code() == IO_ERROR => return,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it does not give up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A second is promised. A machine that stands still in between takes longer.
const GRACE: Duration = Duration::from_secs(20);

#[test]
fn no_commit_is_acknowledged_into_a_deleted_file() {
    for file in ["log", "data.redb"] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        set(&db, b"k", b"v").unwrap();
        std::fs::remove_file(dir.path().join(file)).unwrap();
        let error = set(&db, b"k", b"written to nowhere").unwrap_err();
        assert!(error.is_retryable() || error.code() == IO_ERROR, "{file}: {error}");
        await_the_end(&db, Instant::now(), Duration::ZERO);
    }
}

#[test]
fn an_idle_host_ends_within_a_second_of_its_directorys_removal() {
    type Verb = fn(&Path, &Path);
    let verbs: [(&str, Verb); 5] = [
        ("rm -rf DIR", |dir, _| std::fs::remove_dir_all(dir).unwrap()),
        ("rm DIR/*", |dir, _| {
            std::fs::read_dir(dir)
                .unwrap()
                .for_each(|file| std::fs::remove_file(file.unwrap().path()).unwrap());
        }),
        ("mv DIR", |dir, aside| std::fs::rename(dir, aside).unwrap()),
        ("mv DIR; mkdir DIR", |dir, aside| {
            std::fs::rename(dir, aside).unwrap();
            std::fs::create_dir(dir).unwrap();
        }),
        ("a restored copy", |dir, aside| {
            std::fs::rename(dir, aside).unwrap();
            std::fs::create_dir(dir).unwrap();
            for file in ["data.redb", "log", "lock"] {
                std::fs::copy(aside.join(file), dir.join(file)).unwrap();
            }
        }),
    ];
    for (name, verb) in verbs {
        for idle in [true, false] {
            let above = tempfile::tempdir().unwrap();
            let dir = above.path().join("db");
            let db = open(&dir);
            set(&db, b"k", b"v").unwrap();
            let watching = db.create_trx().unwrap();
            let watch = watching.watch(b"never written");
            block_on(watching.commit()).unwrap();
            verb(&dir, &above.path().join("aside"));
            let since = Instant::now();
            if idle {
                let error = due(watch, "an idle guest notices the end").unwrap_err();
                assert_eq!(error.code(), IO_ERROR, "{name}");
                assert!(since.elapsed() < GRACE, "{name}: {:?}", since.elapsed());
            }
            await_the_end(&db, since, GRACE);
            assert_eq!(get(&db, b"k").unwrap_err().code(), IO_ERROR, "{name}: reads end as well");
            // A new opening uses the directory that has the name now.
            let again = open(&dir);
            set(&again, b"new", b"v").unwrap();
            assert_eq!(get(&db, b"new").unwrap_err().code(), IO_ERROR, "{name}");
        }
    }
}

#[test]
fn guests_of_a_replaced_directory_refuse_the_other_database() {
    let (dir, mut host, db) = guest();
    set(&db, b"k", b"v").unwrap();
    let copy = tempfile::tempdir().unwrap();
    set(&open(copy.path()), b"k", b"of another database").unwrap();
    std::fs::rename(copy.path().join("data.redb"), dir.path().join("data.redb")).unwrap();
    std::fs::rename(copy.path().join("log"), dir.path().join("log")).unwrap();
    let error = insist(|| match get(&db, b"k") {
        Ok(Some(value)) if value == b"v" => Err(FdbError::from_code(UNKNOWN)),
        Ok(value) => panic!("read {value:?} from another database"),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) => Ok(error.code()),
    });
    assert_eq!(error, IO_ERROR);
    drop(host.stdin.take());
}

#[test]
fn no_second_host_writes_when_the_lock_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut helpers: Vec<Helper> = (0..3).map(|_| Helper::start("appends_forever", dir.path())).collect();
    for _ in 0..4 {
        std::fs::remove_file(dir.path().join("lock")).unwrap();
        // A newcomer tries for the lock file, which anybody can make again.
        helpers.push(Helper::start("appends_forever", dir.path()));
        let again = Instant::now();
        while !dir.path().join("lock").exists() {
            assert!(again.elapsed() < Duration::from_secs(60), "nobody has opened the directory again");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The host, whose lock file is not the one there, has a second to step down.
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let mut acknowledged = 0;
    let db = open(dir.path());
    for mut helper in helpers {
        helper.kill();
        for line in helper.lines.by_ref().map_while(Result::ok) {
            let Some(name) = line.strip_prefix("ack ").and_then(|line| line.strip_suffix(" .")) else {
                continue;
            };
            let found = insist(|| get(&db, format!("a/{name}").as_bytes()));
            assert!(found.is_some(), "{name} was acknowledged and is lost");
            acknowledged += 1;
        }
    }
    assert!(acknowledged > 100, "only {acknowledged} commits were made");
    set(&db, b"k", b"v").unwrap();
    drop(db);
    let report = fdb_embedded::doctor::check(dir.path());
    assert!(report.is_healthy(), "{report:?}");
}

#[test]
fn no_second_process_hosts_after_the_lock_file_is_removed() {
    let (dir, _host, db) = guest();
    set(&db, b"k", b"v").unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    // In the second in which the host has not noticed.
    let lock = std::fs::File::create(dir.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
    for file in ["data.redb", "log"] {
        let file = std::fs::File::open(dir.path().join(file)).unwrap();
        assert!(matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)), "it is the host's");
    }
    drop(lock);
    let newcomer = open(dir.path());
    assert_eq!(insist(|| get(&newcomer, b"k")).as_deref(), Some(&b"v"[..]));
    insist(|| set(&newcomer, b"k", b"again"));
    assert_eq!(insist(|| get(&db, b"k")).as_deref(), Some(&b"again"[..]));
}

#[test]
fn after_a_disk_failure_host_guests_and_new_processes_continue() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let _busy = Killed(Helper::start("appends_forever", dir.path()));
    let watching = db.create_trx().unwrap();
    let watch = watching.watch(b"watched");
    block_on(watching.commit()).unwrap();
    Faults::script([Fault::DiskFailure]).install(&url(dir.path())).unwrap();
    // The fault fails the next commit, and all commits of its batch.
    let failed = Instant::now();
    insist(|| set(&db, b"own", b"v"));
    let count = || insist(|| get(&db, b"count")).map(|count| u64::from_le_bytes(count.try_into().unwrap()));
    let at_first = count();
    while count() < at_first.map(|count| count + 10) {
        assert!(failed.elapsed() < Duration::from_secs(60), "the guest does not go on");
    }
    let _newcomer = Killed(Helper::start("appends_forever", dir.path()));
    insist(|| set(&db, b"watched", b"v"));
    due(watch, "the watch is armed again").unwrap();
}

/// A helper that works until it is killed.
struct Killed(Helper);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[test]
fn reads_after_a_failed_flush_equal_those_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    set(&db, b"k", b"before").unwrap();
    for round in 0..6u8 {
        Faults::script([Fault::FlushFailure]).install(&url(dir.path())).unwrap();
        assert_eq!(set(&db, b"k", &[round]).unwrap_err().code(), UNKNOWN);
        // It was written, and a restart finds it: so does every read that begins now.
        assert_eq!(insist(|| get(&db, b"k")).as_deref(), Some(&[round][..]), "round {round}");
    }
    drop(db);
    assert_eq!(get(&open(dir.path()), b"k").unwrap().as_deref(), Some(&[5][..]));
}

#[test]
fn opening_storage_is_retried_and_waiting_guests_get_the_error() {
    let (dir, mut host, db) = guest();
    set(&db, b"k", b"v").unwrap();
    signal(&host, "-STOP");
    // Nothing that can be opened.
    let (log, aside) = (dir.path().join("log"), dir.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    std::fs::create_dir(&log).unwrap();
    host.kill();
    let began = Instant::now();
    let code = insist(|| match get(&db, b"k") {
        Err(error) if error.is_retryable() => Err(error),
        other => Ok(other.unwrap_err().code()),
    });
    assert_eq!(code, IO_ERROR);
    assert!(began.elapsed() > Duration::from_secs(2), "it was tried for {:?} only", began.elapsed());
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let value = loop {
        match get(&db, b"k") {
            Ok(value) => break value,
            Err(error) => assert!(Instant::now() < deadline, "it is not tried on: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_directory_whose_host_is_stopped_opens_and_its_transactions_wait() {
    let (dir, host, db) = guest();
    set(&db, b"k", b"v").unwrap();
    let path = dir.path().to_path_buf();
    signal(&host, "-STOP");
    let mut helper = Helper::start("waits_for_a_host", &path);
    helper.wait_for("timed out");
    signal(&host, "-CONT");
    helper.wait_for("read");
    drop(helper.stdin.take());
    assert!(helper.child.wait().unwrap().success());
}

pub fn helper_waits_for_a_host(directory: &Path) {
    // It waits a second for an answer, and then no longer.
    let db = open(directory);
    println!("\nready");
    for commits in [false, true] {
        let tr = db.create_trx().unwrap();
        tr.set_option(TransactionOption::Timeout(200)).unwrap();
        let error = if commits {
            // It may happen yet, as any commit that timed out.
            tr.set(b"other", b"perhaps");
            block_on(tr.commit()).map(drop).map_err(FdbError::from).unwrap_err()
        } else {
            block_on(tr.get(b"k", false)).map(drop).unwrap_err()
        };
        assert_eq!(error.code(), TIMED_OUT);
    }
    println!("timed out");
    assert_eq!(insist(|| get(&db, b"k")).as_deref(), Some(&b"v"[..]));
    println!("read");
}

#[test]
fn files_are_for_their_user_alone_in_any_directory() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let db = open(dir.path());
    set(&db, b"k", b"v").unwrap();
    for file in ["data.redb", "log", "lock", "socket"] {
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}
