//! Pushed items are processed: each once, and in order with one consumer.

use rustix::process::Signal;

use crate::support::{Background, Database, kvqueue, run, run_with_input};

/// Debug builds are slow.
const ITEMS: u32 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };

fn numbers(to: u32) -> String {
    (1..=to).map(|number| format!("{number}\n")).collect()
}

fn pushed(items: u32) -> Database {
    let db = Database::new();
    let out = run_with_input(&db, &["push", "numbers", "--lines", "-"], numbers(items)).ok();
    assert_eq!(out, format!("pushed {items} items\n"));
    assert_eq!(run(&db, &["len", "numbers"]).ok(), format!("{items}\n"));
    db
}

fn processed(db: &Database, consumers: &str, k: &str) -> String {
    let args = ["run", "--queue", "numbers", "--handler", "stdout", "--until-empty"];
    let out = run(db, &[&args[..], &["--consumers", consumers, "-k", k]].concat()).ok();
    assert_eq!(run(db, &["len", "numbers"]).ok(), "0\n");
    out
}

#[test]
fn one_consumer_handles_items_in_order() {
    let db = pushed(ITEMS);
    assert!(processed(&db, "1", "100") == numbers(ITEMS), "not the numbers in order");
}

#[test]
fn eight_consumers_handle_each_item_once() {
    let items = ITEMS / 5;
    let db = pushed(items);
    let out = processed(&db, "8", "10");
    let mut seen: Vec<u32> = out.lines().map(|line| line.parse().unwrap()).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=items), "not each number once");
}

#[test]
fn several_queues_with_their_own_consumers() {
    let db = Database::new();
    run(&db, &["push", "a", "1", "2", "3"]).ok();
    run(&db, &["push", "b", "4", "5"]).ok();
    let config = db.file("kvqueue.toml");
    let queue = "handler = 'stdout'\nconsumers = [ { k = 1, count = 2 }, { k = 10, count = 1 } ]";
    std::fs::write(&config, format!("[queues.a]\n{queue}\n[queues.b]\n{queue}\n")).unwrap();
    let out = run(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2", "3", "4", "5"]);
}

#[test]
fn queues_that_are_empty_from_the_start_do_not_end_the_others() {
    let db = Database::new();
    let numbers = numbers(1_000);
    run_with_input(&db, &["push", "z", "--lines", "-"], numbers.as_str()).ok();
    let config = db.file("kvqueue.toml");
    let queues = ["a", "b", "c", "z"].map(|name| format!("[queues.{name}]\nhandler = 'stdout'\n"));
    std::fs::write(&config, queues.concat()).unwrap();
    let out = run(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
    assert!(out == numbers, "not all numbers in order");
}

#[test]
fn until_empty_waits_for_scheduled_items_and_logs_their_due_time() {
    let db = Database::new();
    run(&db, &["push", "q", "bill", "--at", "2100-01-01T08:00:00Z"]).ok();
    let args = ["run", "--queue", "q", "--handler", "stdout", "--until-empty"];
    let mut daemon = Background::start(kvqueue(&db, &args));
    let line = daemon.wait_for_event("scheduled_items_awaited");
    assert!(line.contains("2100-01-01T08:00:00.000Z"), "{line}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().stdout, "");
}
