//! Copies of a database that is used.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fdb_embedded::{BackupError, BackupStats, BackupStep, backup, doctor};
use foundationdb::{Database, RangeOption};
use futures::executor::block_on;
use tempfile::TempDir;

use crate::common::{get, guest, open, set};

const ACCOUNTS: u64 = 400;
const EACH: u64 = 1_000;

fn account(number: u64) -> Vec<u8> {
    format!("account/{number:04}").into_bytes()
}

/// Accounts, and enough next to them that a copy has several pages.
fn fill(db: &Database) {
    let tr = db.create_trx().unwrap();
    (0..ACCOUNTS).for_each(|number| tr.set(&account(number), &EACH.to_le_bytes()));
    block_on(tr.commit()).unwrap();
    for part in 0..2 {
        let tr = db.create_trx().unwrap();
        (0..60).for_each(|n| tr.set(format!("bulk/{part}/{n:03}").as_bytes(), &vec![part; 90_000]));
        block_on(tr.commit()).unwrap();
    }
}

/// Moves money between accounts, and notes each number that was acknowledged, until it is stopped.
fn move_money(db: &Database, stop: &AtomicBool, acknowledged: &AtomicU64) {
    for round in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (from, to) = (account(round * 7 % ACCOUNTS), account(round * 13 % ACCOUNTS));
        block_on(db.run(|tr, _| {
            let (from, to) = (from.clone(), to.clone());
            async move {
                let read = |value: Option<foundationdb::future::FdbSlice>| {
                    u64::from_le_bytes(value.unwrap()[..].try_into().unwrap())
                };
                let (a, b) = (read(tr.get(&from, false).await?), read(tr.get(&to, false).await?));
                if from != to && a > 0 {
                    tr.set(&from, &(a - 1).to_le_bytes());
                    tr.set(&to, &(b + 1).to_le_bytes());
                }
                tr.set(b"round", &round.to_le_bytes());
                Ok(())
            }
        }))
        .unwrap();
        acknowledged.store(round, Ordering::SeqCst);
    }
}

fn whole(from: &Path, to: &Path) -> BackupStats {
    backup(from, to, &mut |_| ControlFlow::Continue(())).unwrap().expect("nobody broke it off")
}

/// Checks a copy, and says how far the rounds had come in it.
fn check(copy: &Path, copied: BackupStats) -> u64 {
    let report = doctor::check(copy);
    assert!(report.findings.iter().all(|finding| finding.severity == doctor::Severity::Fine), "{report:?}");
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let db = open(copy);
    let rows = block_on(async {
        let range = RangeOption {
            mode: foundationdb::options::StreamingMode::WantAll,
            ..(&b"account/"[..], &b"account0"[..]).into()
        };
        db.create_trx().unwrap().get_range(&range, 1, false).await.unwrap()
    });
    let sum: u64 = rows.iter().map(|row| u64::from_le_bytes(row.value().try_into().unwrap())).sum();
    assert_eq!((rows.len() as u64, sum), (ACCOUNTS, ACCOUNTS * EACH), "one version, all of it");
    assert_eq!(copied.rows, ACCOUNTS + 121);
    assert!(set(&db, b"k", b"v").unwrap() > copied.version, "versions go on");
    u64::from_le_bytes(get(&db, b"round").unwrap().unwrap().try_into().unwrap())
}

/// Copies twice while money moves.
fn copies_while_it_is_used(db: &Database, from: &Path) {
    fill(db);
    set(db, b"round", &0_u64.to_le_bytes()).unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let place = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| move_money(db, &stop, &acknowledged));
        for name in ["first", "second"] {
            while acknowledged.load(Ordering::SeqCst) < 5 {
                std::thread::yield_now();
            }
            let before = acknowledged.load(Ordering::SeqCst);
            let to = place.path().join(name);
            let copied = whole(from, &to);
            let after = acknowledged.load(Ordering::SeqCst) + 1;
            let round = check(&to, copied);
            assert!((before..=after).contains(&round), "{before} <= {round} <= {after}");
            assert!(!place.path().join(format!("{name}.partial")).exists());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn hosted() -> (TempDir, Database) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    (dir, db)
}

#[test]
fn a_host_backup_has_one_version_with_all_acknowledged_commits() {
    let (dir, db) = hosted();
    copies_while_it_is_used(&db, dir.path());
}

#[test]
fn a_guest_backs_up_a_database_hosted_elsewhere() {
    let (dir, _host, db) = guest();
    copies_while_it_is_used(&db, dir.path());
}

#[test]
fn a_database_that_no_process_has_open_can_be_backed_up() {
    let (dir, db) = hosted();
    fill(&db);
    set(&db, b"round", &3_u64.to_le_bytes()).unwrap();
    drop(db);
    let place = tempfile::tempdir().unwrap();
    // An empty directory may be there.
    let copied = whole(dir.path(), place.path());
    assert_eq!(check(place.path(), copied), 3);
    assert!(doctor::check(dir.path()).is_healthy(), "nobody holds it, and nothing is left in the log");
}

#[test]
fn a_backup_ends_with_its_host_and_the_next_one_starts_over() {
    let (dir, mut host, db) = guest();
    fill(&db);
    set(&db, b"round", &1_u64.to_le_bytes()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("copy");
    let lost = backup(dir.path(), &to, &mut |step| {
        if matches!(step, BackupStep::Copying(_)) {
            host.kill();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(lost, Err(BackupError::Lost)), "{lost:?}");
    assert!(!to.exists() && !place.path().join("copy.partial").exists());
    let copied = whole(dir.path(), &to);
    assert_eq!(check(&to, copied), 1);
}

#[test]
fn a_refused_backup_leaves_no_files() {
    let (dir, db) = hosted();
    fill(&db);
    let refused = |from: &Path, to: PathBuf| {
        backup(from, &to, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    let place = tempfile::tempdir().unwrap();
    let absent = refused(&place.path().join("absent"), place.path().join("to"));
    assert!(absent.contains("absent: it has no data.redb"), "{absent}");
    assert!(!place.path().join("absent").exists(), "no database is made by looking for one");
    std::fs::write(place.path().join("file"), "mine").unwrap();
    for taken in [place.path().to_path_buf(), place.path().join("file")] {
        let error = refused(dir.path(), taken.clone());
        assert!(error.contains(&taken.display().to_string()) && error.contains("does not exist"), "{error}");
    }
    assert!(refused(dir.path(), "..".into()).contains(".."));
    let mut pages = 0;
    let broken_off = backup(dir.path(), &place.path().join("to"), &mut |step| {
        pages += usize::from(matches!(step, BackupStep::Copying(_)));
        if pages == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(broken_off.unwrap(), None);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "the file");
    assert_eq!(std::fs::read_to_string(place.path().join("file")).unwrap(), "mine");
}

#[test]
fn concurrent_backups_are_limited() {
    let (dir, _host, _db) = guest();
    let place = tempfile::tempdir().unwrap();
    fill(&open(dir.path()));
    let deeper = |depth: usize| place.path().join(format!("copy {depth}"));
    fn nested(from: &Path, deeper: &dyn Fn(usize) -> PathBuf, depth: usize) -> usize {
        let mut most = depth;
        let copied = backup(from, &deeper(depth), &mut |step| {
            if most == depth && matches!(step, BackupStep::Copying(_)) {
                most = nested(from, deeper, depth + 1);
            }
            ControlFlow::Continue(())
        });
        match copied {
            Err(BackupError::Busy) => depth,
            other => {
                assert!(other.unwrap().is_some());
                most
            }
        }
    }
    assert_eq!(nested(dir.path(), &deeper, 0), 2);
    assert!(whole(dir.path(), &deeper(9)).rows > 0, "they have ended");
}
