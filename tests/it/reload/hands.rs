//! Items in hand while settings change: what is taken under some settings ends under them, and nobody takes before.

use rustix::process::Signal;

use super::{IN_HAND, Reloading, queues};
use crate::support::{Database, events, run};

/// One consumer with an item in hand, and another item behind it.
fn busy(options: &[&str]) -> Reloading {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    let test = Reloading::start(db, &queues(&[("q", IN_HAND)]), options);
    assert_eq!(test.begun(), "one");
    test
}

/// The queue with this lease.
fn leased(lease: &str) -> String {
    queues(&[("q", &format!("{IN_HAND}lease = '{lease}'"))])
}

/// Lets both items be handled, and the daemon end. Returns what it said.
fn finish(test: Reloading) -> String {
    test.let_go("one");
    assert_eq!(test.begun(), "two");
    test.daemon.signal(Signal::TERM);
    let mut test = test;
    test.daemon.wait_for_event("draining");
    test.let_go("two");
    let Reloading { daemon, db, .. } = test;
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(Reloading::did(&db), "begin one\nend one\nbegin two\nend two\n");
    assert!(run(&db, &["len", "q", "--json"]).ok().contains(r#""done":2"#));
    ran.stderr
}

#[test]
fn a_reload_starts_no_consumer_before_a_busy_one_ends() {
    let mut test = busy(&["-v"]);
    test.reload(&leased("7s"));
    assert_eq!(test.daemon.events("consumer_started"), 1, "the next waits for it to end");
    let said = finish(test);
    assert_eq!(events(&said, "consumer_started"), 2, "{said}");
}

#[test]
fn of_two_reloads_during_one_item_the_last_takes_effect() {
    let mut test = busy(&["-v"]);
    for lease in ["7s", "8s", "9s"] {
        test.reload(&leased(lease));
    }
    let said = finish(test);
    // The second reload answers for the first at once, and says what it waited for.
    assert!(events(&said, "consumers_finishing") > 0, "{said}");
    assert_eq!(events(&said, "consumer_started"), 2, "{said}");
}

#[test]
fn a_queue_that_is_removed_and_added_again_waits_for_its_old_consumer() {
    let mut test = busy(&["-v"]);
    let other = queues(&[("other", "handler = 'log'")]);
    test.reload(&other);
    test.reload(&format!("{other}{}", leased("9s")));
    let said = finish(test);
    // Of `q` two, of the other one.
    assert_eq!(events(&said, "consumer_started"), 3, "{said}");
}

#[test]
fn more_consumers_start_while_others_work() {
    let mut test = busy(&["-v"]);
    test.reload(&queues(&[("q", &IN_HAND.replace("{ k = 1 }", "{ k = 1, count = 2 }"))]));
    assert_eq!(test.begun(), "two", "the second does not wait for the first");
    test.let_go("one");
    test.let_go("two");
    test.stop();
}

#[test]
fn a_stop_before_a_waiting_consumer_starts_lets_none_start() {
    let mut test = busy(&["-v"]);
    test.reload(&leased("7s"));
    test.daemon.signal(Signal::TERM);
    test.daemon.wait_for_event("draining");
    test.let_go("one");
    let Reloading { daemon, db, .. } = test;
    let ran = daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.events("consumer_started"), 1, "{ran:?}");
    assert_eq!(Reloading::did(&db), "begin one\nend one\n");
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
}

#[test]
fn hup_during_a_drain_is_ignored() {
    let mut test = busy(&["-v"]);
    test.daemon.signal(Signal::TERM);
    test.daemon.wait_for_event("draining");
    test.hang_up(&leased("7s"));
    test.let_go("one");
    let Reloading { daemon, db, .. } = test;
    let ran = daemon.end();
    assert_eq!((ran.code, ran.events(super::RELOADED)), (Some(0), 0), "{ran:?}");
    assert_eq!(Reloading::did(&db), "begin one\nend one\n");
}
