//! What clients see of the file under the engine: damage, a disk that fails, old versions, and faults of reads.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fdb_embedded::Faults;
use foundationdb::{Database, FdbError, RangeOption, options::StreamingMode};
use futures::TryStreamExt;
use futures::executor::block_on;

use crate::common::{network, scratch, set};
use crate::processes::insist;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn url(dir: &Path) -> String {
    format!("embedded:{}", dir.display())
}

async fn rows(tr: &foundationdb::Transaction) -> Result<Rows, FdbError> {
    let range = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((&b""[..], &b"\xff"[..])) };
    let rows: Vec<_> = tr.get_ranges_keyvalues(range, true).try_collect().await?;
    Ok(rows.iter().map(|row| (row.key().to_vec(), row.value().to_vec())).collect())
}

#[test]
fn every_recent_version_can_be_read() {
    let scratch = scratch();
    let db = &scratch.db;
    let mut versions = Vec::new();
    // Few enough to be read again within the five seconds of the first, on a slow disk too.
    for n in 0..10_u8 {
        let committed = set(db, b"k", &[n]).unwrap();
        set(db, &[b'k', n], b"x").unwrap();
        let read = block_on(db.create_trx().unwrap().get_read_version()).unwrap();
        versions.push((committed, n, n));
        versions.push((read, n, n + 1));
    }
    for (version, value, others) in versions {
        let tr = db.create_trx().unwrap();
        tr.set_read_version(version);
        let k = block_on(tr.get(b"k", false)).unwrap();
        assert_eq!(k.as_deref(), Some(&[value][..]), "at {version}");
        assert_eq!(block_on(rows(&tr)).unwrap().len(), 1 + usize::from(others), "at {version}");
    }
}

/// Waits until the directory's file is closed: the engine goes with the last of its handles, some on other threads.
fn wait_until_closed(dir: &Path) {
    let lock = fs::File::open(dir.join("lock")).unwrap();
    lock.lock().unwrap();
}

/// A directory with a few hundred rows, and what is in them.
fn filled() -> (tempfile::TempDir, Rows) {
    network();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::from_path(&url(dir.path())).unwrap();
    for n in 0..20_u32 {
        let tr = db.create_trx().unwrap();
        for m in 0..20_u32 {
            tr.set(format!("{n}/{m}").as_bytes(), &[7; 300]);
        }
        block_on(tr.commit()).unwrap();
    }
    let rows = block_on(rows(&db.create_trx().unwrap())).unwrap();
    assert_eq!(rows.len(), 400);
    drop(db);
    wait_until_closed(dir.path());
    (dir, rows)
}

#[test]
fn a_damaged_page_is_an_error_and_never_data() {
    let (dir, right) = filled();
    let whole = fs::read(dir.path().join("data.redb")).unwrap();
    let (mut refused, mut failed) = (0, 0);
    for page in 0..whole.len() / 4096 {
        let copy = tempfile::tempdir().unwrap();
        let mut damaged = whole.clone();
        damaged[page * 4096 + 600] ^= 0x10;
        fs::write(copy.path().join("data.redb"), &damaged).unwrap();
        fs::copy(dir.path().join("log"), copy.path().join("log")).unwrap();
        let db = match Database::from_path(&url(copy.path())) {
            Ok(db) => db,
            Err(error) => {
                assert_eq!(error.code(), 1522);
                let words = fdb_embedded::open_error().unwrap();
                assert!(words.contains("data.redb is damaged"), "{words}");
                refused += 1;
                continue;
            }
        };
        // The process may open the directory again at any time, and finds the damage again.
        let read = || {
            insist(|| match block_on(rows(&db.create_trx().unwrap())) {
                Err(error) if error.is_retryable() => Err(error),
                end => Ok(end.map_err(|error| error.code())),
            })
        };
        match read() {
            Ok(found) => assert_eq!(found, right, "page {page}"),
            Err(code) => {
                assert!([1522, 1510].contains(&code), "page {page}: {code}");
                let again = read();
                assert!(
                    matches!(again, Err(1522 | 1510)),
                    "page {page}: {:?}",
                    again.map(|_| "read as if it were whole")
                );
                failed += 1;
            }
        }
    }
    assert!(refused > 0 && failed > 5, "{refused} refused, {failed} failed");
}

#[test]
fn an_empty_file_or_one_of_another_format_is_refused() {
    let (dir, _) = filled();
    let file = dir.path().join("data.redb");
    for (bytes, words) in [(&b""[..], "0 bytes long"), (&[b"redb", &[0; 8192][..]].concat(), "format 1")] {
        fs::write(&file, bytes).unwrap();
        let error = Database::from_path(&url(dir.path())).map(drop).unwrap_err();
        assert_eq!(error.code(), 1522);
        let told = fdb_embedded::open_error().unwrap();
        assert!(told.contains(words), "{told}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "what is refused is not changed");
    }
}

#[test]
fn injected_faults_fail_reads_and_delay_commits() {
    let scratch = scratch();
    let Some(url) = scratch.place.embedded_url() else { return };
    let db = &scratch.db;
    set(db, b"k", b"v").unwrap();
    let read = || block_on(db.create_trx().unwrap().get(b"k", false)).map_err(|error| error.code());
    let plan = || Faults::seeded(1);
    for (faults, code) in [
        (plan().future_version(1.0), 1009),
        (plan().read_too_old(1.0), 1007),
        (plan().process_behind(1.0), 1037),
        (plan().read_failure(1.0), 1510),
    ] {
        faults.install(&url).unwrap();
        assert_eq!(read().err(), Some(code));
        set(db, b"k", b"v").unwrap();
        Faults::remove(&url).unwrap();
        assert!(read().is_ok());
    }
    let delay = Duration::from_millis(50);
    plan().slow(1.0, delay).install(&url).unwrap();
    let started = Instant::now();
    set(db, b"k", b"w").unwrap();
    assert!(started.elapsed() >= delay);
    Faults::remove(&url).unwrap();
}

#[test]
fn an_idle_database_needs_no_recovery_after_a_kill() {
    network();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::from_path(&url(dir.path())).unwrap();
    for n in 0..4_u8 {
        let tr = db.create_trx().unwrap();
        for m in 0..95_u8 {
            tr.set(&[n, m], &[7; 100_000]);
        }
        block_on(tr.commit()).unwrap();
    }
    let found_after_a_kill = || {
        let copy = tempfile::tempdir().unwrap();
        for file in ["data.redb", "log"] {
            fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
        }
        let report = fdb_embedded::doctor::check(copy.path());
        let text = |about| report.findings.iter().find(|f| f.about == about).unwrap().text.clone();
        assert!(text("structure").starts_with("sound, and opens at once"), "no walk, whenever it is killed");
        text("log")
    };
    set(&db, b"k", b"v").unwrap();
    assert!(found_after_a_kill().contains("are in it"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while found_after_a_kill() != "nothing in it is needed" {
        assert!(Instant::now() < deadline, "the log was never emptied");
        std::thread::sleep(Duration::from_millis(100));
    }
    set(&db, b"k", b"w").unwrap();
}
