//! Panics: a handler's is contained, a consumer's is survived, and a consumer that keeps panicking ends the daemon.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use kvqueue::{Context, Daemon, Event, Handler, Item, Outcome, Settings, SettingsError};
use rustix::process::Signal;

use crate::support::{Background, Database, daemon_of_helper, helper, run, run_to_the_end};

/// Prints what it handles; panics at an item that says so.
struct Touchy;

impl Touchy {
    fn from_config(_: &Settings) -> Result<Self, SettingsError> {
        Ok(Self)
    }
}

#[kvqueue::async_trait]
impl Handler for Touchy {
    async fn handle(&self, item: &Item, _: &Context) -> Outcome {
        assert_ne!(&item.payload[..], b"panic", "panic on purpose");
        if &item.payload[..] == b"slow" {
            eprintln!("slow begins");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("handled {}", String::from_utf8_lossy(&item.payload));
        Outcome::Done
    }
}

/// How many consumers a helper has, one by default.
const CONSUMERS: &str = "HELPER_CONSUMERS";

/// A daemon on queue `q`, for a helper to run to its end.
fn run_daemon(with: impl FnOnce(Daemon) -> Daemon) {
    let consumers = std::env::var(CONSUMERS).unwrap_or("1".to_owned());
    let config = format!(
        "[queues.q]
         handler = 'touchy'
         consumers = [ {{ k = 1, count = {consumers} }} ]
         retry = {{ max-attempts = 1 }}"
    );
    let Some(daemon) = daemon_of_helper(&config) else { return };
    run_to_the_end(with(daemon.handler("touchy", Touchy::from_config).until_empty(true)));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_handler() {
    run_daemon(|daemon| daemon);
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_consumer_panics_twice() {
    let takes = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.observe(move |_, event| {
            if matches!(event, Event::Dispatched { .. }) {
                assert!(takes.fetch_add(1, Ordering::Relaxed) >= 2, "panic on purpose");
            }
        })
    });
}

/// The fetch for the next batches is under way then, since commits are slow.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_consumer_panics_during_a_fetch() {
    let batches = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.observe(move |_, event| {
            if matches!(event, Event::Dispatched { .. }) {
                assert!(batches.fetch_add(1, Ordering::Relaxed) != 1, "panic on purpose");
            }
        })
    });
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_fetcher_panics() {
    let wakenings = AtomicU32::new(0);
    run_daemon(|daemon| {
        daemon.until_empty(false).observe(move |_, event| match event {
            Event::Idle => eprintln!("idle"),
            Event::Woken => assert!(wakenings.fetch_add(1, Ordering::Relaxed) > 0, "panic on purpose"),
            _ => {}
        })
    });
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_consumer_keeps_panicking() {
    run_daemon(|daemon| daemon.observe(|_, event| assert!(event != Event::Started, "panic on purpose")));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_consumer_panics_in_drain() {
    run_daemon(|daemon| daemon.observe(|_, event| assert!(event != Event::Drain, "panic on purpose")));
}

fn handled(stdout: &str) -> Vec<&str> {
    stdout.lines().filter_map(|line| line.split_once("handled ").map(|(_, item)| item)).collect()
}

#[test]
fn a_handler_that_panics_fails_its_item_and_no_other() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "panic", "two"]).ok();
    let ran = Background::start(helper(&db, "panics::helper_handler")).end();
    assert!(ran.stderr.contains("the handler panicked"), "{ran:?}");
    assert!(ran.events("consumer_failed") == 0, "{ran:?}");
    assert_eq!(handled(&ran.stdout), ["one", "two"]);
    assert_eq!(ran.code, Some(0));
}

#[test]
fn a_consumer_that_panics_is_replaced() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two", "three", "four"]).ok();
    let ran = Background::start(helper(&db, "panics::helper_consumer_panics_twice")).end();
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
    let mut command = helper(&db, "panics::helper_consumer_panics_during_a_fetch");
    command.env("FDB_EMBEDDED_FAULTS", "seed=1,slow=1,slow-ms=200").env(CONSUMERS, consumers);
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
    let mut daemon = Background::start(helper(&db, "panics::helper_fetcher_panics"));
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
    let ran = Background::start(helper(&db, "panics::helper_consumer_keeps_panicking")).end();
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
    let mut daemon = Background::start(helper(&db, "panics::helper_consumer_panics_in_drain"));
    daemon.wait_for("slow begins");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(ran.events("consumer_failed") > 0, "{ran:?}");
    assert_eq!(handled(&ran.stdout), ["slow"]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
}
