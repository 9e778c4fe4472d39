//! Commits that fail, or whose outcome is unknown, while a daemon works: no item is lost, none handled twice.

use crate::support::{Background, Database, Ran, Random, helper, kvqueue, run, run_with_input};

const ITEMS: u32 = 1_000;

#[test]
fn a_lease_is_not_lost_when_its_fetch_took_longer_than_the_lease() {
    let db = Database::embedded();
    run(&db, &["push", "q", "item"]).ok();
    let ran = Background::start(helper(&db, "faults::takes_that_meet_conflicts")).end();
    assert!(ran.events("lease_lost") == 0, "{ran:?}");
    assert_eq!(ran.stderr.matches("payload=item").count(), 1, "{ran:?}");
    assert_eq!(ran.code, Some(0));
}

#[test]
fn a_daemon_continues_after_a_disk_failure() {
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    let ran = Background::start(helper(&db, "faults::disk_failure")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the embedded database has failed: a fault on purpose"), "{ran:?}");
    assert!(ran.stdout.contains("one\n") && ran.stdout.contains("two\n"), "{ran:?}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn a_daemon_survives_a_disk_failure_during_a_sweep() {
    let db = Database::embedded();
    run(&db, &["push", "q", "--delay", "1ms", "item"]).ok();
    // Its consumer finds nothing to take, and so writes nothing.
    let ran = Background::start(helper(&db, "faults::disk_failure")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the embedded database has failed: a fault on purpose"), "{ran:?}");
    assert!(ran.stdout.contains("item\n"), "{ran:?}");
}

#[test]
fn each_item_is_handled_once_under_faults() {
    let mut random = Random::new();
    // The faults are the embedded engine's.
    let db = Database::embedded();
    let numbers: String = (1..=ITEMS).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], numbers).ok();
    let mut command = helper(&db, "faults::daemon");
    command.arg(random.below(u64::MAX).to_string());
    let out = Background::start(command).end().ok();
    // The test harness prints as well, perhaps on the same line.
    let words = out.lines().filter_map(|line| line.rsplit(' ').next());
    let mut seen: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=ITEMS), "{} lines, not each number once", seen.len());
}

#[test]
fn faults_from_the_environment_are_announced_and_bad_ones_refused() {
    let db = Database::embedded();
    let push = |faults: &str| -> Ran {
        let mut command = kvqueue(&db, &["push", "q", "one", "two"]);
        command.env("FDB_EMBEDDED_FAULTS", faults).output().unwrap().into()
    };
    let ran = push("seed=3,conflict=0.4,unknown=0.2,read-too-old=0.2,slow=0.3,slow-ms=1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("faults on purpose in") && ran.stderr.contains("=seed=3,"), "{ran:?}");
    assert_eq!(run(&db, &["peek", "q", "-k", "9"]).ok(), "one\ntwo\n");
    let refused = push("seed=3,conflict=lots").failed(69);
    assert!(refused.contains("\"conflict=lots\" does not give a probability"), "{refused}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
}
