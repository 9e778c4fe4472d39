//! Leases, with the real program: a daemon that dies or is suspended loses its items to others, one that lives keeps them however
//! long its handlers take.

use std::fs;

use rustix::process::Signal;

use crate::support::{Background, Database, Ran, helper, kvqueue, pipe, run, run_script};

/// Tells that it has begun, waits until it is let go, and tells that it is done.
const WAITS: &str = "echo $$ > begun; read word < go; echo $KVQUEUE_ATTEMPT >> done";

/// Handles at once.
const AT_ONCE: &str = "echo $KVQUEUE_ATTEMPT >> done";

const SHORT: &str = "lease = '1s'";

fn read(db: &Database, name: &str) -> String {
    fs::read_to_string(db.file(name)).unwrap_or_default()
}

/// Waits until a script has begun, and returns the pid of its command.
fn begun(db: &Database) -> u32 {
    read(db, "begun").trim().parse().unwrap()
}

fn pushed() -> Database {
    let db = Database::new();
    pipe(&db, "begun");
    pipe(&db, "go");
    run(&db, &["push", "q", "item"]).ok();
    db
}

#[test]
fn an_item_whose_daemon_is_killed_is_handled_again_by_another() {
    let db = pushed();
    let first = Background::start(run_script(&db, WAITS, SHORT, &[]));
    begun(&db);
    first.signal(Signal::KILL);
    first.end();
    let ran: Ran = run_script(&db, AT_ONCE, SHORT, &["--until-empty"]).output().unwrap().into();
    ran.ok();
    assert_eq!(read(&db, "done"), "2\n", "the second attempt, and no other");
}

#[test]
fn a_daemon_suspended_past_its_lease_cannot_finish_items_of_others() {
    let db = pushed();
    // Hosts an embedded database, which must not be suspended with the daemon.
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    let mut first = Background::start(run_script(&db, WAITS, SHORT, &[]));
    let command = begun(&db);
    first.suspend();
    let ran: Ran = run_script(&db, AT_ONCE, SHORT, &["--until-empty"]).output().unwrap().into();
    ran.ok();
    assert_eq!(read(&db, "done"), "2\n");

    first.signal(Signal::CONT);
    first.wait_for_event("lease_lost");
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, Some(0));
    let state = fs::read_to_string(format!("/proc/{command}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "its handler goes on: {state}");
    assert_eq!(read(&db, "done"), "2\n", "finished once");
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn a_handler_may_take_longer_than_its_lease() {
    let db = Database::new();
    run(&db, &["push", "q", "item"]).ok();
    // What it takes is the point here.
    let script = "echo $KVQUEUE_ATTEMPT >> begun; sleep 3; echo $KVQUEUE_ATTEMPT >> done";
    let mut other = Background::start(run_script(&db, script, SHORT, &[]));
    other.wait_for_event("ready");
    let ran: Ran = run_script(&db, script, SHORT, &["--until-empty"]).output().unwrap().into();
    ran.ok();
    assert_eq!((read(&db, "begun").as_str(), read(&db, "done").as_str()), ("1\n", "1\n"));
}

#[test]
fn outcomes_after_the_loss_of_a_lease_are_ignored() {
    let db = pushed();
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    let mut first = Background::start(helper(&db, "leases::late"));
    first.wait_for("late begins");
    first.suspend();
    let fails = "echo $KVQUEUE_ATTEMPT >> done; exit 1";
    let retry = "lease = '1s'\nretry = { max-attempts = 2 }";
    let ran: Ran = run_script(&db, fails, retry, &["--until-empty"]).output().unwrap().into();
    ran.ok();
    first.signal(Signal::CONT);
    first.wait_for("late is done");
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, Some(0));
    let counts = run(&db, &["len", "q", "--json"]).ok();
    assert!(counts.contains("\"dead\":1") && counts.contains("\"done\":0"), "{counts}");
}

#[test]
fn handlers_that_block_all_threads_lose_no_lease() {
    let db = Database::new();
    let threads = std::thread::available_parallelism().unwrap().get();
    let items = vec!["item"; 2 * threads];
    run(&db, &[&["push", "q"], &items[..]].concat()).ok();
    let ran = Background::start(helper(&db, "leases::daemon")).end();
    assert_eq!(ran.stderr.matches("handled in attempt 1").count(), items.len(), "{ran:?}");
    assert_eq!(ran.stderr.matches("handled in").count(), items.len(), "{ran:?}");
    assert!(ran.events("lease_lost") == 0, "{ran:?}");
    assert_eq!(ran.code, Some(0));
}
