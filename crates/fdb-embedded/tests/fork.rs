//! A process forks while it has a database open: a real host, a real child, and a guest that sees both.

#![expect(unsafe_code, reason = "to fork")]
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "the tests in tests/it use all of it")]
#[path = "it/helper.rs"]
mod helper;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use fdb_embedded::Network;
use foundationdb::options::TransactionOption;
use foundationdb::{Database, FdbError, Transaction};
use futures::executor::block_on;
use helper::Helper;

/// What an embedded database answers in a forked child.
const IO_ERROR: i32 = 1510;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
}

fn open(directory: &Path) -> Result<Database, FdbError> {
    Database::from_path(&format!("embedded:{}", directory.display()))
}

fn transaction(db: &Database) -> Transaction {
    let tr = db.create_trx().unwrap();
    tr.set_option(TransactionOption::Timeout(500)).unwrap();
    tr
}

fn get(db: &Database, key: &[u8]) -> Result<Option<Vec<u8>>, FdbError> {
    block_on(transaction(db).get(key, false)).map(|value| value.map(|value| value.to_vec()))
}

fn set(db: &Database, key: &[u8], value: &[u8]) -> Result<(), FdbError> {
    let tr = transaction(db);
    tr.set(key, value);
    block_on(tr.commit()).map(drop).map_err(FdbError::from)
}

/// Starts a process that works on the directory.
fn start_forker(directory: &Path) -> Helper {
    Helper::start("forks", directory)
}

/// Makes the process fork, and returns what its child found.
fn fork_in(forker: &mut Helper) -> String {
    forker.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut lines = forker.lines.by_ref().map_while(Result::ok);
    let found = lines.find_map(|line| line.strip_prefix("found ").map(str::to_owned));
    found.expect("the helper ended early")
}

/// What the child finds: every use of the database says at once that it cannot be used.
fn use_after_fork(directory: &Path, db: Database, old: Transaction) -> Result<(), String> {
    let began = Instant::now();
    let expect = |what: &str, code: Option<i32>| match code {
        Some(IO_ERROR) => Ok(()),
        other => Err(format!("{what}: {other:?}")),
    };
    expect("a read", get(&db, b"k").err().map(|error| error.code()))?;
    expect("a commit", set(&db, b"k", b"of the child").err().map(|error| error.code()))?;
    expect("an old read", block_on(old.get(b"other", false)).err().map(|error| error.code()))?;
    old.set(b"k", b"of the child");
    let error = block_on(old.commit()).map(drop).map_err(FdbError::from).err();
    expect("an old commit", error.map(|error| error.code()))?;
    let watching = db.create_trx().unwrap();
    let watch = watching.watch(b"k");
    // This commit only reads, which needs nobody.
    block_on(watching.commit()).map(drop).map_err(|error| format!("{error:?}"))?;
    expect("a watch", block_on(watch).err().map(|error| error.code()))?;
    expect("opening", open(directory).err().map(|error| error.code()))?;
    drop(db);
    if began.elapsed() > SOON {
        return Err(format!("it took {:?}", began.elapsed()));
    }
    Ok(())
}

/// Runs the helper in the process that [`Helper`] starts. Otherwise it does nothing.
#[test]
fn helper_process() {
    helper::run_as_helper(&[("forks", forks)]);
}

fn forks(directory: &Path) {
    let network = Network::start().unwrap();
    let db = open(directory).unwrap();
    if get(&db, b"k").unwrap().is_none() {
        set(&db, b"k", b"of the host").unwrap();
    }
    let old = transaction(&db);
    block_on(old.get(b"k", false)).unwrap();
    println!("\nready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    // SAFETY: the child ends in `_exit`; what it uses of other threads' things is what is tested.
    if unsafe { fork() } == 0 {
        drop(ours);
        let found = use_after_fork(directory, db, old);
        drop(network);
        let text = found.err().unwrap_or_else(|| "errors at once".to_owned());
        let _ = (&theirs).write_all(text.as_bytes());
        drop(theirs);
        std::thread::sleep(OF_CHILD);
        // SAFETY: it ends this process and nothing else.
        unsafe { _exit(0) }
    }
    drop(theirs);
    ours.set_read_timeout(Some(OF_CHILD)).unwrap();
    let mut found = String::new();
    if ours.read_to_string(&mut found).is_err() {
        found = "it hangs".to_owned();
    }
    // The parent goes on as if nothing had been.
    insist(SOON, || set(&db, b"parent", b"goes on"));
    println!("\nfound {found}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// How long a child lives.
const OF_CHILD: Duration = Duration::from_secs(40);
/// What does not wait for a child is over by then, also on a machine that stands still for some seconds.
const SOON: Duration = Duration::from_secs(20);

fn insist<T>(within: Duration, what: impl Fn() -> Result<T, FdbError>) -> T {
    let began = Instant::now();
    loop {
        match what() {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < within, "it fails after {:?}: {error}", began.elapsed()),
        }
    }
}

#[test]
fn a_child_keeps_neither_a_dead_host_nor_its_guests_and_cannot_use_the_database() {
    let _network = Network::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut host = start_forker(dir.path());
    // The connection of this guest is there when its host forks, so the child has a copy of it.
    let db = open(dir.path()).unwrap();
    assert_eq!(get(&db, b"k").unwrap().as_deref(), Some(&b"of the host"[..]));
    let found = fork_in(&mut host);
    host.kill();
    insist(SOON, || set(&db, b"taken over", b""));
    assert_eq!(found, "errors at once");
    assert_eq!(get(&db, b"k").unwrap().as_deref(), Some(&b"of the host"[..]));
    assert_eq!(get(&db, b"parent").unwrap().as_deref(), Some(&b"goes on"[..]));

    // Now this process hosts, and the one that forks is its guest.
    let mut guest = start_forker(dir.path());
    assert_eq!(fork_in(&mut guest), "errors at once");
    guest.kill();
    assert_eq!(get(&db, b"k").unwrap().as_deref(), Some(&b"of the host"[..]));
}
