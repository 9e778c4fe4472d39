//! The watchdog's pings stop if a part of the daemon is stuck.

use super::WATCHDOG;
use crate::support::{Background, Database, NotifySocket, helper, listening, pings, run};

/// A daemon with this fault. Returns it once it is seen to be stuck, by these words; and it feeds nothing any more.
fn gets_stuck(name: &str, words: &str) {
    let db = Database::new();
    run(&db, &["push", "q", "item"]).ok();
    let systemd = NotifySocket::new(&db);
    let mut command = helper(&db, &format!("systemd::stuck::{name}"));
    systemd.watch(&mut command, Some(WATCHDOG));
    let mut daemon = Background::start(command);
    let at = listening(&mut daemon);
    systemd.until("READY=1");
    let (_, before) = systemd.until("STATUS=consumer 1 of \"q\" is stuck in ");
    assert!(pings(&before) > 0, "{before:?}");
    let line = daemon.wait_for_event("watchdog_stopped");
    assert!(line.contains(words), "{line}");
    let said = systemd.all_within(WATCHDOG * 3);
    assert_eq!(pings(&said), 0, "{said:?}");
    assert!(said.iter().all(|said| said.contains("is stuck in")), "{said:?}");
    // Who asks over HTTP sees the same.
    let told = at.get("/livez").is(503);
    let reason = told["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("consumer 1 of \"q\" is stuck in "), "{told}");
    assert!(reason.contains(words), "{told}");
    assert_eq!(told["status"], "stuck");
}

#[test]
fn a_consumer_stuck_in_a_fetch_stops_the_watchdog_pings() {
    gets_stuck("take_lost", "stuck in fetching");
}

#[test]
fn a_consumer_stuck_after_its_handler_stops_the_watchdog_pings() {
    gets_stuck("end_of_dispatch_lost", "its items are handled, and it does not continue");
}

#[test]
fn a_consumer_that_misses_its_wake_stops_the_watchdog_pings() {
    gets_stuck("wakening_lost", "its queue is not polled any more");
}

#[test]
fn a_blocked_actors_thread_stops_the_pings() {
    let db = Database::new();
    let systemd = NotifySocket::new(&db);
    let mut command = helper(&db, "systemd::stuck::thread_blocked");
    systemd.watch(&mut command, Some(WATCHDOG));
    let mut daemon = Background::start(command);
    systemd.until("READY=1");
    run(&db, &["push", "q", "item"]).ok();
    daemon.wait_for("blocked");
    systemd.forget();
    let said = systemd.all_within(WATCHDOG * 3);
    assert!(said.is_empty(), "{said:?}");
}
