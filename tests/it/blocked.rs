//! Handlers that block their threads: signals, timers and the drain do not depend on them, and nobody else gets their items.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Background, Database, helper, run};

/// More than the threads of the pool on any machine that runs tests.
const CONSUMERS: usize = 256;

#[test]
fn a_stop_ends_with_the_shutdown_timeout() {
    let db = Database::new();
    let items = vec!["item"; CONSUMERS];
    run(&db, &[&["push", "q"], &items[..]].concat()).ok();
    let mut command = helper(&db, "blocked::daemon");
    command.arg(CONSUMERS.to_string());
    let mut daemon = Background::start(command);
    let threads = std::thread::available_parallelism().unwrap().get();
    (0..threads).for_each(|_| drop(daemon.wait_for("blocked")));
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(
        ran.stderr.contains("ended: consumers still at work after the shutdown timeout of 100 ms"),
        "{ran:?}"
    );
    assert_eq!(ran.code, Some(1));
}

/// The handler runs beyond its timeout and three times as long as its lease.
#[test]
fn an_item_whose_handler_still_runs_is_not_handed_out_again() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        // The only thread of the pool is blocked: nothing can overtake it.
        return;
    }
    let db = Database::new();
    run(&db, &["push", "q", "slow", "other"]).ok();
    let mut daemon = Background::start(helper(&db, "blocked::overdue"));
    daemon.wait_for_event("handler_overdue");
    // The consumer goes on with others.
    daemon.wait_for("end other 1");
    daemon.wait_for("begin slow 2");
    assert_eq!(daemon.said("end slow 1"), 1, "both attempts ran at the same time");
    daemon.wait_for("end slow 2");
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!((ran.code, ran.events("lease_lost")), (Some(0), 0), "{ran:?}");
}

#[test]
fn a_stop_does_not_wait_for_an_overdue_handler() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let db = Database::new();
    run(&db, &["push", "q", "stuck"]).ok();
    let mut daemon = Background::start(helper(&db, "blocked::overdue"));
    daemon.wait_for_event("handler_overdue");
    let told = Instant::now();
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("after the shutdown timeout of 500 ms"), "{ran:?}");
}
