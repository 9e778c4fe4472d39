//! Commits that fail, or whose outcome is unknown, while a daemon works: no item is lost, none handled twice.

use std::sync::Once;

use fdb_embedded::{Fault, Faults};
use kvqueue::Event;

use crate::support::{
    Background, Database, Ran, Random, daemon_of_helper, database_of_helper, helper, kvqueue, run,
    run_to_the_end, run_with_input,
};

const ITEMS: u32 = 1_000;

/// Conflicts in a row that take some seconds, by the back-off between them, and less than a take's ten.
const CONFLICTS: usize = 14;

const SEED: &str = "KVQUEUE_TEST_FAULTS";

/// Works the queue off in a storm: a third of its commits goes wrong.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_daemon() {
    let config =
        "[queues.q]\nhandler = 'stdout'\nconsumers = [ { k = 1, count = 2 }, { k = 10, count = 2 } ]";
    let Some(daemon) = daemon_of_helper(config) else { return };
    let (url, _) = database_of_helper().unwrap();
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let storm = Once::new();
    let daemon = daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            storm.call_once(|| {
                let faults = Faults::seeded(seed).conflict(0.05).too_old(0.05);
                faults.unknown_committed(0.1).unknown_not_committed(0.1).install(&url).unwrap();
            });
        }
    });
    run_to_the_end(daemon);
}

/// Its disk fails at its first commit.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_disk_failure() {
    let Some(daemon) = daemon_of_helper("[queues.q]\nhandler = 'stdout'") else { return };
    let (url, _) = database_of_helper().unwrap();
    run_to_the_end(daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            Faults::script([Fault::DiskFailure]).install(&url).unwrap();
        }
    }));
}

/// Its first take loses against others for longer than its lease lasts.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_takes_that_meet_conflicts() {
    let config = "[queues.q]\nhandler = 'log'\nlease = '1s'\nconsumers = [ { k = 1 } ]";
    let Some(daemon) = daemon_of_helper(config) else { return };
    let (url, _) = database_of_helper().unwrap();
    run_to_the_end(daemon.until_empty(true).observe(move |_, event| {
        if event == Event::Started {
            Faults::script([Fault::Conflict; CONFLICTS]).install(&url).unwrap();
        }
    }));
}

#[test]
fn a_lease_is_not_lost_because_its_take_took_longer_than_it_lasts() {
    let db = Database::embedded();
    run(&db, &["push", "q", "item"]).ok();
    let ran = Background::start(helper(&db, "faults::helper_takes_that_meet_conflicts")).end();
    assert!(ran.events("lease_lost") == 0, "{ran:?}");
    assert_eq!(ran.stderr.matches("payload=item").count(), 1, "{ran:?}");
    assert_eq!(ran.code, Some(0));
}

#[test]
fn a_daemon_goes_on_after_its_disk_failed() {
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    let ran = Background::start(helper(&db, "faults::helper_disk_failure")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the embedded database has failed: a fault on purpose"), "{ran:?}");
    assert!(ran.stdout.contains("one\n") && ran.stdout.contains("two\n"), "{ran:?}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn a_disk_that_fails_under_a_sweep_does_not_end_the_daemon_either() {
    let db = Database::embedded();
    run(&db, &["push", "q", "--delay", "1ms", "item"]).ok();
    // Its consumer finds nothing to take, and so writes nothing.
    let ran = Background::start(helper(&db, "faults::helper_disk_failure")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the embedded database has failed: a fault on purpose"), "{ran:?}");
    assert!(ran.stdout.contains("item\n"), "{ran:?}");
}

#[test]
fn each_item_is_handled_once() {
    let mut random = Random::new();
    // The faults are the embedded engine's.
    let db = Database::embedded();
    let numbers: String = (1..=ITEMS).map(|number| format!("{number}\n")).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], numbers).ok();
    let mut command = helper(&db, "faults::helper_daemon");
    command.env(SEED, random.below(u64::MAX).to_string());
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
