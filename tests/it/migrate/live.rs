//! Daemons at both ends work while a queue is moved from one to the other.

use std::{fs, time::Duration};

use rustix::process::Signal;

use super::counts;
use crate::support::{Background, Database, Ran, kvqueue, run, run_script, run_with_input, wait_for};

/// Waits until the queue's counts are such.
#[track_caller]
fn wait_until(db: &Database, what: &str, such: impl Fn(&serde_json::Value) -> bool) {
    wait_for(|| match counts(db, "q") {
        now if such(&now) => Ok(()),
        now => Err(format!("{what}: {now}")),
    });
}

#[test]
fn a_migration_between_running_daemons_handles_each_item_once() {
    const ITEMS: usize = 2_000;
    let ends = [Database::embedded(), Database::embedded()];
    let lines: String = (0..ITEMS).map(|item| format!("{item}\n")).collect();
    run_with_input(&ends[0], &["push", "q", "--lines", "-"], lines).ok();
    let consumers = "consumers = [ { k = 7 }, { k = 1, count = 3 } ]";
    let daemons = ends.each_ref().map(|end| {
        let script = "read item; echo $item >> handled";
        let mut daemon = Background::start(run_script(end, script, consumers, &[]));
        daemon.wait_for_event("ready");
        daemon
    });

    let [from, to] = &ends;
    wait_until(from, "under way", |counts| counts["done"].as_u64() > Some(200));
    let mut migrate = kvqueue(from, &["migrate", "--from", &from.url, "--to", &to.url]);
    let moved = Ran::from(migrate.output().unwrap()).ok();
    assert!(moved.contains("checksum"), "{moved}");
    wait_until(to, "all done", |counts| counts["done"] == ITEMS);
    // What was left behind is nobody's any more.
    let left = fs::read_to_string(from.file("handled")).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read_to_string(from.file("handled")).unwrap(), left);

    for daemon in daemons {
        daemon.signal(Signal::TERM);
        daemon.end().ok();
    }
    let handled = ends.each_ref().map(|end| fs::read_to_string(end.file("handled")).unwrap());
    assert!(handled.iter().all(|lines| lines.lines().count() > 100), "both ends handle items");
    let mut items: Vec<usize> = handled.concat().lines().map(|item| item.parse().unwrap()).collect();
    items.sort_unstable();
    assert!(items.into_iter().eq(0..ITEMS), "not each item once");
    assert_eq!(run(to, &["len", "q"]).ok(), "0\n");
}
