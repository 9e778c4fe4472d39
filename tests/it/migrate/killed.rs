//! Killed in each of its phases, on a database whose commits have unknown outcomes, and run again.

use std::time::Duration;

use super::{checksum, counts, killed_in, migrate, migration};
use crate::support::{Database, Ran, Random, helper, run};

/// Runs a helper to its end, and returns what it printed.
fn helped(db: &Database, name: &str) -> String {
    Ran::from(helper(db, name).output().unwrap()).ok()
}

/// In which phase it is killed, up to which line of that, and up to how many milliseconds later. Each phase has more to do than that.
const KILLS: [(&str, u64, u64); 9] = [
    ("copying", 1, 1),
    ("copying", 10, 20),
    ("copying", 10, 20),
    ("copying", 10, 20),
    ("comparing", 1, 20),
    ("comparing", 30, 20),
    ("fencing", 1, 4),
    ("landing", 1, 2),
    ("landing", 1, 2),
];

#[test]
fn a_migration_killed_in_every_phase_moves_each_item_once() {
    let mut random = Random::new();
    let (from, to) = (Database::embedded(), Database::embedded());
    let ready = helped(&from, "migrate::items::fills");
    let mut kills = 0;
    for (phase, lines, millis) in KILLS {
        let count = 1 + random.below(lines) as usize;
        let mut command = migration(&from, &to, &[]);
        let seed = random.below(u64::MAX);
        command.env("FDB_EMBEDDED_FAULTS", format!("seed={seed},unknown=0.05,conflict=0.02,too-old=0.01"));
        let pause = random.time_below(Duration::from_millis(millis));
        match killed_in(command, phase, count, pause) {
            None => kills += 1,
            Some(ended) => {
                ended.ok();
            }
        }
    }
    // Only the last ones may come too late.
    assert!(kills >= 7, "it was killed {kills} times only");
    let moved = migrate(&from, &to, &[]).ok();
    let again = migrate(&from, &to, &[]).ok();
    assert!(again.contains("an earlier run has brought it"), "{moved}{again}");
    let verified = migrate(&from, &to, &["--verify-only"]);
    let left = counts(&from, "q");
    assert_eq!(left["ready"].to_string(), ready.trim(), "{left}");
    assert_eq!(left["running"], 0, "nobody holds anything at the source any more");
    // But for these both are the same.
    let differing = verified.failed(1);
    assert!(differing.is_empty(), "{differing}");
    helped(&to, "migrate::items::works_off");
    assert_eq!(run(&to, &["doctor"]).code, Some(0));
}

#[test]
fn migrate_and_verify_report_the_same_counts() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run(&from, &["push", "q", "one", "two", "three"]).ok();
    run(&from, &["push", "other", "--delay", "1h", "later"]).ok();
    let moved = migrate(&from, &to, &[]);
    let said: Vec<_> = moved.stdout.lines().collect();
    assert!(said[0].starts_with("\"other\": 1 item (1 waiting) in "), "{said:?}");
    assert!(said[1].starts_with("\"q\": 3 items (3 ready) in "), "{said:?}");
    let verified = migrate(&from, &to, &["--verify-only"]).ok();
    for (said, verified) in said.iter().zip(verified.lines()) {
        assert_eq!(checksum(said), checksum(verified));
    }
    assert_eq!(run(&to, &["pop", "q"]).ok(), "one\n");
    let differing = migrate(&from, &to, &["--verify-only", "--json", "--queue", "q"]);
    assert_eq!(differing.code, Some(1), "{differing:?}");
    let differing: serde_json::Value = serde_json::from_str(&differing.stdout).unwrap();
    assert_eq!((&differing["same"], &differing["differing"]), (&false.into(), &1.into()));
    assert_eq!((&differing["source"]["ready"], &differing["target"]["ready"]), (&3.into(), &2.into()));
}
