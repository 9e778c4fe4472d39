//! Exactly-once delivery: what handlers write to the database happens once per item, whatever happens to commits and daemons.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Background, Database, Random, helper, run, run_with_input};

/// As many at a time.
const ITEMS: usize = 300;

/// How often a daemon is killed at its work before one may finish.
const KILLS: u32 = 3;

/// When, at the latest, after it has handled its first items.
const KILLED_WITHIN: Duration = Duration::from_millis(200);

/// Pushes the items from this number on.
fn push(db: &Database, first: usize) {
    let numbers: String = (first..first + ITEMS).map(|number| format!("{number}\n")).collect();
    run_with_input(db, &["push", "q", "--lines", "-"], numbers).ok();
}

/// Each of these items had its effect once.
#[track_caller]
fn assert_effects(db: &Database, items: usize) {
    let out = Background::start(helper(db, "exactly_once::effects")).end().ok();
    let expected = format!("effects {items} {items} 1");
    assert!(out.lines().any(|line| line == expected), "not {expected:?}: {out}");
    assert_eq!(run(db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn effects_happen_once_for_every_outcome_of_commits() {
    let mut random = Random::new();
    for name in ["exactly_once::each", "exactly_once::whole"] {
        let db = Database::embedded();
        push(&db, 0);
        let mut command = helper(&db, name);
        command.arg(random.below(u64::MAX).to_string());
        let ran = Background::start(command).end();
        assert!(ran.stderr.contains("wrote"), "{ran:?}");
        ran.ok();
        assert_effects(&db, ITEMS);
    }
}

#[test]
fn effects_happen_once_despite_killed_daemons() {
    let mut random = Random::new();
    let db = Database::new();
    let (mut kills, mut items) = (0, 0);
    while kills < KILLS {
        // Each has work of its own, as the one before may have been done before it was killed.
        push(&db, items);
        items += ITEMS;
        let mut daemon = Background::start(helper(&db, "exactly_once::each"));
        daemon.wait_for("wrote");
        // The moment of death is what is random here.
        std::thread::sleep(random.time_below(KILLED_WITHIN));
        daemon.signal(Signal::KILL);
        kills += u32::from(daemon.end().code.is_none());
    }
    Background::start(helper(&db, "exactly_once::each")).end().ok();
    assert_effects(&db, items);
}

#[test]
fn a_handler_with_a_transaction_may_take_longer_than_its_lease() {
    let db = Database::new();
    run(&db, &["push", "q", "1", "3"]).ok();
    let ran = Background::start(helper(&db, "exactly_once::slow")).end();
    // One consumer has both, on one lease.
    assert!(!ran.stderr.contains("again"), "{ran:?}");
    ran.ok();
    assert_effects(&db, 2);
}
