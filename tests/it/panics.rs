//! Panics: a handler's is contained, a consumer's is survived, and a consumer that keeps panicking ends the daemon.

use rustix::process::Signal;

use crate::support::{Background, Database, helper, run};

fn handled(stdout: &str) -> Vec<&str> {
    stdout.lines().filter_map(|line| line.split_once("handled ").map(|(_, item)| item)).collect()
}

#[test]
fn a_handler_that_panics_fails_its_item_and_no_other() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "panic", "two"]).ok();
    let ran = Background::start(helper(&db, "panics::handler")).end();
    assert!(ran.stderr.contains("the handler panicked"), "{ran:?}");
    assert!(ran.events("consumer_failed") == 0, "{ran:?}");
    assert_eq!(handled(&ran.stdout), ["one", "two"]);
    assert_eq!(ran.code, Some(0));
}

#[test]
fn a_consumer_that_panics_is_replaced() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two", "three", "four"]).ok();
    let ran = Background::start(helper(&db, "panics::consumer_panics_twice")).end();
    assert_eq!(ran.events("consumer_restarted"), 2, "{ran:?}");
    assert_eq!(handled(&ran.stdout), ["one", "two", "three", "four"]);
    assert_eq!(ran.code, Some(0));
}

/// The reply to its request is not the next consumer's, and the items of that reply are released.
#[test]
fn a_consumer_that_panics_during_a_fetch_loses_no_items() {
    panics_during_a_fetch("1");
    panics_during_a_fetch("2");
}

fn panics_during_a_fetch(consumers: &str) {
    // Slow commits are the embedded engine's.
    let db = Database::embedded();
    let items: Vec<String> = (0..12).map(|item| item.to_string()).collect();
    run(&db, &[&["push", "q"], &items.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat()).ok();
    let mut command = helper(&db, "panics::consumer_panics_during_a_fetch");
    command.env("FDB_EMBEDDED_FAULTS", "seed=1,slow=1,slow-ms=200").arg(consumers);
    let ran = Background::start(command).end();
    let mut done: Vec<String> = handled(&ran.stdout).into_iter().map(str::to_owned).collect();
    done.sort_by_key(|item| item.parse::<u32>().unwrap());
    assert_eq!(done, items, "{ran:?}");
    assert_eq!(ran.events("consumer_restarted"), 1, "{ran:?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_fetcher_that_panics_is_replaced_with_its_consumers() {
    let db = Database::new();
    let mut daemon = Background::start(helper(&db, "panics::fetcher_panics"));
    daemon.wait_for("idle");
    run(&db, &["push", "q", "one"]).ok();
    daemon.wait_for_event("fetcher_failed");
    daemon.wait_for("idle");
    run(&db, &["push", "q", "two"]).ok();
    daemon.wait_for("idle");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!(handled(&ran.stdout), ["one", "two"], "{ran:?}");
    assert_eq!(ran.events("fetcher_failed"), 1, "{ran:?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_consumer_that_keeps_panicking_ends_the_daemon() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let ran = Background::start(helper(&db, "panics::consumer_keeps_panicking")).end();
    assert_eq!(ran.events("consumer_restarted"), 5, "{ran:?}");
    let message = "ended: consumers of queue \"q\" failed more than 5 times within 30 s; the log says how";
    assert!(ran.stderr.contains(message), "{ran:?}");
    assert_eq!(ran.code, Some(70));
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
}

#[test]
fn a_stop_waits_for_the_batch_of_a_consumer_that_panicked() {
    let db = Database::new();
    run(&db, &["push", "q", "slow", "rest"]).ok();
    let mut daemon = Background::start(helper(&db, "panics::consumer_panics_in_drain"));
    daemon.wait_for("slow begins");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(ran.events("consumer_failed") > 0, "{ran:?}");
    assert_eq!(handled(&ran.stdout), ["slow"]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
}
