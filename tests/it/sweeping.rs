//! The daemon's sweeper: delayed items come at their time, and what dead workers had in hand comes back, or ends.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Background, Database, helper, kvqueue, run, wait_until};

/// A daemon that logs the items of `q`, and looks for nothing by itself for hours.
fn daemon(db: &Database, more: &str) -> Background {
    let config = db.file("kvqueue.toml");
    let queue = "[queues.q]\nhandler = 'log'\nlease = '12h'\npoll-interval = '12h'";
    std::fs::write(&config, format!("{queue}\n{more}")).unwrap();
    Background::start(kvqueue(db, &["run", "-v", "--config", config.to_str().unwrap()]))
}

fn stop(daemon: Background) {
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn a_delayed_item_becomes_ready_while_the_sweeper_waits_for_a_later_one() {
    let db = Database::new();
    run(&db, &["push", "q", "--delay", "10h", "much later"]).ok();
    let mut daemon = daemon(&db, "");
    daemon.wait_for_event("ready");
    let delay = Duration::from_millis(300);
    let before = Instant::now();
    run(&db, &["push", "q", "--delay", "300ms", "soon"]).ok();
    daemon.wait_for("\"soon\"");
    assert!(before.elapsed() >= delay, "it came after {:?}", before.elapsed());
    let len: serde_json::Value = serde_json::from_str(&run(&db, &["len", "q", "--json"]).ok()).unwrap();
    assert_eq!((&len["ready"], &len["waiting"]), (&0.into(), &1.into()), "{len}");
    stop(daemon);
}

#[test]
fn a_sweeper_after_a_failure_is_woken_by_a_push() {
    let db = Database::new();
    Background::start(helper(&db, "sweeping::break_lease")).end().ok();
    let mut daemon = daemon(&db, "");
    daemon.wait_for("sweep failed");
    let before = Instant::now();
    run(&db, &["push", "q", "--delay", "1ms", "soon"]).ok();
    daemon.wait_for("\"soon\"");
    // What failed is tried again after ten seconds.
    assert!(before.elapsed() < Duration::from_secs(6), "it came after {:?}", before.elapsed());
    stop(daemon);
}

#[test]
fn items_of_a_worker_that_died_are_handled() {
    let db = Database::new();
    run(&db, &["push", "q", "first", "second"]).ok();
    assert_ne!(Background::start(helper(&db, "sweeping::die_with_items")).end().code, Some(0));
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
    let mut daemon = daemon(&db, "");
    // The watch may be faster than the sweeper's word.
    daemon.wait_for_all(&["leases expired; their items will be retried", "\"first\"", "\"second\""]);
    stop(daemon);
}

#[test]
fn an_item_that_kills_its_workers_becomes_a_dead_letter() {
    let db = Database::new();
    run(&db, &["push", "q", "poison"]).ok();
    Background::start(helper(&db, "sweeping::die_with_items")).end();
    let mut daemon = daemon(&db, "retry = { max-attempts = 1 }");
    daemon.wait_for_event("expired_items_dead");
    stop(daemon);
    let letter: serde_json::Value =
        serde_json::from_str(&run(&db, &["dead", "list", "q", "--json"]).ok()).unwrap();
    assert_eq!((&letter["attempts"], &letter["crashes"]), (&1.into(), &1.into()), "{letter}");
    let id = letter["id"].as_str().unwrap();
    assert!(run(&db, &["dead", "show", "q", id]).ok().ends_with("\n\npoison\n"));
}

#[test]
fn a_daemon_that_stops_gives_up_the_duty_of_its_sweeper() {
    let db = Database::new();
    let is_on_duty = || Background::start(helper(&db, "sweeping::duty")).end().ok() == "true\n";
    run(&db, &["push", "q", "x"]).ok();
    let config = db.file("kvqueue.toml");
    std::fs::write(&config, "[queues.q]\nhandler = 'log'\nlease = '1s'").unwrap();
    let daemon = Background::start(kvqueue(&db, &["run", "--config", config.to_str().unwrap()]));
    wait_until("the sweeper is on duty", is_on_duty);
    stop(daemon);
    assert!(!is_on_duty());
}
