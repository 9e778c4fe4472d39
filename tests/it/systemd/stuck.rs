//! What stops the watchdog's word: something of the daemon's own that does not move.

use std::time::Duration;

use kvqueue::{Event, Found};

use super::WATCHDOG;
use crate::support::{
    Background, Database, NotifySocket, daemon_of_helper, helper, listening, pings, run, run_to_the_end,
};

/// Not the daemon's own, of which the tests could not wait for the end.
const PATIENCE: Duration = Duration::from_secs(1);

const CONFIG: &str = "log.format = 'json'\nhttp.listen = '127.0.0.1:0'\n[queues.q]\nhandler = 'log'\nlease = '1s'\nslow-look = '1s'\nconsumers = [ { k = 1 } ]";

/// A daemon whose consumer never hears of events that are `lost`.
fn run_wedged(lost: impl Fn(Event) -> bool + Send + Sync + 'static) {
    let Some(daemon) = daemon_of_helper(CONFIG) else { return };
    run_to_the_end(daemon.patience(PATIENCE).withhold(move |_, event| lost(event)));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_take_lost() {
    run_wedged(|event| matches!(event, Event::Took(Found::Batches(_))));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_end_of_dispatch_lost() {
    run_wedged(|event| matches!(event, Event::Dispatched { .. }));
}

#[test]
#[ignore = "a helper, run by other tests"]
fn helper_wakening_lost() {
    run_wedged(|event| event == Event::Woken);
}

/// The thread of the actors is blocked at the first push.
#[test]
#[ignore = "a helper, run by other tests"]
fn helper_thread_blocked() {
    run_wedged(|event| {
        if event != Event::Woken {
            return false;
        }
        eprintln!("blocked");
        loop {
            std::thread::park();
        }
    });
}

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
fn a_consumer_whose_take_never_comes_back_stops_the_pings() {
    gets_stuck("helper_take_lost", "stuck in taking");
}

#[test]
fn a_consumer_that_does_not_go_on_after_its_handler_stops_the_pings() {
    gets_stuck("helper_end_of_dispatch_lost", "its items are handled, and it does not go on");
}

#[test]
fn a_consumer_that_sleeps_on_stops_the_pings() {
    gets_stuck("helper_wakening_lost", "nobody looks into its queue any more");
}

#[test]
fn a_blocked_actors_thread_stops_the_pings() {
    let db = Database::new();
    let systemd = NotifySocket::new(&db);
    let mut command = helper(&db, "systemd::stuck::helper_thread_blocked");
    systemd.watch(&mut command, Some(WATCHDOG));
    let mut daemon = Background::start(command);
    systemd.until("READY=1");
    run(&db, &["push", "q", "item"]).ok();
    daemon.wait_for("blocked");
    systemd.forget();
    let said = systemd.all_within(WATCHDOG * 3);
    assert!(said.is_empty(), "{said:?}");
}
