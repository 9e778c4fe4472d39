//! An item that kills the daemon, among items that are handled at the same time.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt};

use crate::support::{Database, run, run_script};

/// So often the daemon may be killed.
const DEATHS: u32 = 10;

/// Attempts of each item.
const ATTEMPTS: u32 = 3;

/// Innocent items take longer than the poison takes to kill the daemon. So at first none of them is ever finished.
const SCRIPT: &str = "item=$(cat); echo $item >> tried; \
    if [ $item = poison ]; then sleep 0.2; kill -9 $PPID; exit; fi; sleep 0.7; echo $item >> done";

#[test]
fn slow_items_survive_an_item_that_kills_the_daemon() {
    let db = Database::new();
    let innocent: BTreeSet<String> = (0..15).map(|n| format!("innocent-{n:02}")).collect();
    let mut items: Vec<&str> = innocent.iter().map(String::as_str).collect();
    items.insert(7, "poison");
    run(&db, &[&["push", "q"], &items[..]].concat()).ok();
    let queue = format!(
        "lease = '1s'\nconsumers = [ {{ k = 1, count = 16 }} ]\n\
         retry = {{ max-attempts = {ATTEMPTS}, base = '100ms' }}"
    );
    let mut deaths = 0;
    loop {
        let output = run_script(&db, SCRIPT, &queue, &["--until-empty"]).output().unwrap();
        if output.status.success() {
            break;
        }
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(9), "{log}");
        deaths += 1;
        assert!(deaths < DEATHS, "it is tried without end: {log}");
    }
    let read = |name: &str| fs::read_to_string(db.file(name)).unwrap_or_default();
    assert_eq!((deaths, read("tried").matches("poison").count()), (ATTEMPTS, ATTEMPTS as usize));
    let letters = run(&db, &["dead", "list", "q"]).ok();
    assert!(!letters.contains("innocent"), "{letters}");
    let counts = run(&db, &["len", "q", "--json"]).ok();
    assert!(counts.contains("\"dead\":1"), "{counts}");
    let done: BTreeSet<String> = read("done").lines().map(str::to_owned).collect();
    assert_eq!(done, innocent);
}
