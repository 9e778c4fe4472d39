//! A host against what talks to its socket without being this library, and guests against their own large requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use fdb_embedded::{Fault, Faults};
use foundationdb::options::{StreamingMode, TransactionOption};
use foundationdb::{Database, FdbError, KeySelector, RangeOption};
use futures::executor::block_on;

use crate::common::{get, guest, open, set};

const TOO_LARGE: i32 = 2101;
const TOO_OLD: i32 = 1007;

/// A connection whose messages are put together by hand.
struct Raw(UnixStream);

impl Raw {
    /// Connects without a greeting.
    fn connect(dir: &Path) -> Raw {
        let socket = UnixStream::connect(dir.join("socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Raw(socket)
    }

    /// Connects and is welcomed.
    fn greeted(dir: &Path) -> Raw {
        let mut raw = Raw::connect(dir);
        raw.send(&[&[1], b"fdb-embd", &3u32.to_le_bytes()]);
        assert_eq!(raw.next().unwrap()[0], 129, "a welcome");
        raw
    }

    fn send(&mut self, fields: &[&[u8]]) {
        let message = fields.concat();
        let length = u32::try_from(message.len()).unwrap().to_le_bytes();
        // A host that has closed the connection is found out by the answer.
        let _ = self.0.write_all(&[&length[..], &message].concat());
    }

    /// The next message; `None` when the host has closed the connection.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the host says nothing"),
            Err(_) => return None,
        }
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut message).unwrap();
        Some(message)
    }
}

fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat()
}

/// The message of a commit that has read nothing and waits for its flush, with one mutation.
fn commit(mutation: &[Vec<u8>]) -> Vec<u8> {
    let none = 0u32.to_le_bytes();
    let head = [&[6][..], &9u64.to_le_bytes(), &[0, 0, 0], &none, &none, &1u32.to_le_bytes()].concat();
    [head, mutation.concat()].concat()
}

#[test]
fn invalid_mutations_of_a_guest_do_not_end_the_hosts_commits() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    for n in 0u8..100 {
        set(&db, &[b'k', n], b"kept").unwrap();
    }
    let max = vec![0xff; 30_000];
    let made_up: [(&str, Vec<Vec<u8>>); 8] = [
        ("an inverted clear", vec![vec![33], bytes(b"z"), bytes(b"a")]),
        ("an empty clear", vec![vec![33], bytes(b"k\x05"), bytes(b"k\x05")]),
        ("a clear above all keys", vec![vec![33], bytes(b"\xff\xff"), bytes(&max)]),
        ("an empty key", vec![vec![32], bytes(b""), bytes(b"v")]),
        ("a long key", vec![vec![32], bytes(&max), bytes(&[1; 100_000])]),
        ("an addition of nothing", vec![vec![2], bytes(b"k\x05"), bytes(b"")]),
        ("an addition of much", vec![vec![2], bytes(b"k\x05"), bytes(&[255; 100_000])]),
        ("a stamp at the end", vec![vec![34], bytes(&[7; 10]), bytes(b""), 0u32.to_le_bytes().to_vec()]),
    ];
    for (what, mutation) in made_up {
        let mut raw = Raw::greeted(dir.path());
        raw.send(&[&commit(&mutation)]);
        // It is answered, or the connection is closed.
        let answer = raw.next();
        set(&db, b"after", what.as_bytes()).unwrap_or_else(|error| panic!("{what}: {error} ({answer:?})"));
        assert_eq!(get(&db, b"k\x09").unwrap().as_deref(), Some(&b"kept"[..]), "{what}");
    }
}

#[test]
fn a_connection_closes_after_the_outcomes_of_its_commits() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let nonsense = |raw: &mut Raw| raw.send(&[&[99]]);
    let end = |raw: &mut Raw| raw.0.shutdown(std::net::Shutdown::Write).unwrap();
    for (key, break_off) in [(b"n", &nonsense as &dyn Fn(&mut Raw)), (b"e", &end)] {
        let slow = Faults::script([Fault::Slow(Duration::from_millis(500))]);
        slow.install(&format!("embedded:{}", dir.path().display())).unwrap();
        let mut raw = Raw::greeted(dir.path());
        raw.send(&[&commit(&[vec![32], bytes(key), bytes(b"v")])]);
        break_off(&mut raw);
        assert_eq!(raw.next().expect("the commit's answer")[..10], [133, 9, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(raw.next().is_none());
        assert_eq!(get(&db, key).unwrap().as_deref(), Some(&b"v"[..]));
    }
}

/// Runs something on a guest, and finds it connected all along: a read version from before is good for a commit after.
fn stays_connected(db: &Database, what: impl Fn(&Database) -> Result<(), FdbError>) {
    loop {
        let began = Instant::now();
        let before = db.create_trx().unwrap();
        let result = block_on(before.get(b"unrelated", false)).map(drop).and_then(|()| {
            before.set(b"done", b"");
            what(db)?;
            Ok(block_on(before.commit()).map(drop)?)
        });
        match result {
            Ok(()) => return,
            // A machine that held this up for five seconds has made its versions too old, connected or not.
            Err(error) if error.code() == TOO_OLD && began.elapsed() >= Duration::from_secs(4) => {}
            Err(error) => panic!("the guest has lost its host: {error}"),
        }
    }
}

#[test]
fn a_guest_keeps_its_connection_after_reading_overlong_keys() {
    let (_dir, _host, db) = guest();
    set(&db, b"\x01k", b"value").unwrap();
    let long = [3; 60_000];
    stays_connected(&db, |db| {
        let tr = db.create_trx().unwrap();
        let size = block_on(tr.get_estimated_range_size_bytes(b"\x01", &long))?;
        assert_eq!(size, 7);
        assert!(block_on(tr.get(&long, false))?.is_none());
        let above = KeySelector::first_greater_than(&long[..]);
        assert_eq!(&block_on(tr.get_key(&above, false))?[..], b"\xff");
        let range =
            RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((&b"\x01"[..], &long[..])) };
        assert_eq!(block_on(tr.get_range(&range, 1, false))?.len(), 1);
        tr.add_conflict_range(b"\x01", &long, foundationdb::options::ConflictRangeType::Write).unwrap();
        tr.clear_range(b"\x02", &long);
        Ok(block_on(tr.commit()).map(drop)?)
    });
}

#[test]
fn a_guest_keeps_its_connection_after_mapping_to_overlong_keys() {
    use foundationdb::tuple::pack;
    let (_dir, _host, db) = guest();
    set(&db, &pack(&("index", 1)), &pack(&(&[b'x'; 90_000][..],))).unwrap();
    let mapper = pack(&("row", "{V[0]}", "{V[0]}"));
    stays_connected(&db, |db| {
        let tr = db.create_trx().unwrap();
        let range = RangeOption::from(pack(&("index",))..pack(&("index", 9)));
        let rows = block_on(tr.get_mapped_range(&range, &mapper, 1, false))?;
        assert_eq!(rows.len(), 1);
        tr.set(b"z", b"");
        Ok(block_on(tr.commit()).map(drop)?)
    });
}

#[test]
fn a_commit_over_the_message_limit_fails_alone() {
    let (_dir, _host, db) = guest();
    stays_connected(&db, |db| {
        let tr = db.create_trx().unwrap();
        tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
        // Without its own writes in view, the ranges that a transaction reads count nothing against its size.
        for n in 0u32..1_000 {
            let begin = [&n.to_be_bytes()[..], &[1; 9_000]].concat();
            let end = [&n.to_be_bytes()[..], &[2; 9_000]].concat();
            let range = RangeOption::from((begin, end));
            assert!(block_on(tr.get_range(&range, 1, false))?.is_empty());
        }
        tr.set(b"k", b"");
        let error = block_on(tr.commit()).map(drop).unwrap_err();
        assert_eq!(error.code(), TOO_LARGE, "{error}");
        Ok(())
    });
}

#[test]
fn a_silent_connection_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let _db = open(dir.path());
    let began = Instant::now();
    assert!(Raw::connect(dir.path()).next().is_none(), "closed after a while");
    assert!(began.elapsed() > Duration::from_secs(1), "a slow guest has time to say who it is");
    // One that has said so may be silent for as long as it likes.
    let mut silent = Raw::greeted(dir.path());
    silent.0.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    let kept = silent.0.read(&mut [0; 1]).unwrap_err();
    assert_eq!(kept.kind(), std::io::ErrorKind::WouldBlock);
}

/// A value as large as one may be, nearly; a hundred of them are more than a host keeps unsent.
static LARGE: [u8; 90_000] = [7; 90_000];

#[test]
fn a_burst_of_requests_with_large_answers_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    set(&db, b"k", &LARGE).unwrap();
    let mut raw = Raw::greeted(dir.path());
    let frame = |message: Vec<u8>| bytes(&message);
    let mut burst = frame([&[2][..], &1u64.to_le_bytes(), &[0]].concat());
    for request in 0..150u64 {
        let fields = [&[4][..], &request.to_le_bytes(), &1u64.to_le_bytes(), &bytes(b"k")];
        burst.extend(frame(fields.concat()));
    }
    raw.0.write_all(&burst).unwrap();
    assert_eq!(raw.next().unwrap()[0], 130, "the view");
    for request in 0..150u64 {
        let answer = raw.next().unwrap();
        assert_eq!(
            (answer[0], &answer[1..9], answer.len() > LARGE.len()),
            (131, &request.to_le_bytes()[..], true)
        );
    }
}

#[test]
fn views_are_limited_without_counting_expired_ones() {
    let dir = tempfile::tempdir().unwrap();
    let _db = open(dir.path());
    let mut raw = filled_with_views(dir.path());
    loop {
        let began = Instant::now();
        let mut other = filled_with_views(dir.path());
        other.send(&[&[2], &65_536u64.to_le_bytes(), &[0]]);
        if other.next().is_none() {
            break;
        }
        assert!(began.elapsed() >= Duration::from_secs(4), "one view too many");
        // The first were too old by then.
    }
    std::thread::sleep(Duration::from_millis(5_100));
    raw.send(&[&[2], &65_536u64.to_le_bytes(), &[0]]);
    assert_eq!(raw.next().unwrap()[0], 130, "one more view");
}

/// A connection with as many views as one may have.
fn filled_with_views(dir: &Path) -> Raw {
    let mut raw = Raw::greeted(dir);
    for view in 0..65_536u64 {
        raw.send(&[&[2], &view.to_le_bytes(), &[0]]);
    }
    for _ in 0..65_536 {
        assert_eq!(raw.next().unwrap()[0], 130, "a view");
    }
    raw
}

#[test]
fn pinned_snapshots_are_released_with_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    set(&db, b"k", b"v").unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let to = copies.path().join(name);
        fdb_embedded::backup(dir.path(), &to, &mut |_| std::ops::ControlFlow::Continue(()))
    };
    let mut raw = Raw::greeted(dir.path());
    // An answer ends with its version, or with the error that there are too many.
    for (view, is_opened) in [(1_u64, 1), (2, 1), (3, 0)] {
        raw.send(&[&[2], &view.to_le_bytes(), &[2]]);
        assert_eq!(raw.next().unwrap()[9], is_opened, "view {view}");
    }
    let refused = copy("too many");
    assert!(matches!(refused, Err(fdb_embedded::BackupError::Busy)), "{refused:?}");
    raw.send(&[&[3], &1u64.to_le_bytes()]);
    // It follows the next command after that.
    raw.send(&[&[4], &1u64.to_le_bytes(), &2u64.to_le_bytes(), &bytes(b"k")]);
    assert_eq!(raw.next().unwrap()[0], 131);
    copy("one is closed").unwrap();
    drop(raw);
    let copied = || copy("all are").is_ok_and(|copied| copied.is_some_and(|copied| copied.rows == 1));
    assert!(copied());
}
