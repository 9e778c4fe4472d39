//! Reloads at bad moments.

use std::{
    fs,
    io::Write,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{RELOADED, Reloading, queues, wait_until_done};
use crate::support::{Background, Database, PATIENCE, event_field, hears_hup, helper, kvqueue, pipe, run};

#[test]
fn a_consumer_that_panics_while_leaving_is_replaced() {
    let db = Database::new();
    let config = db.file("kvqueue.toml");
    let text = |lease: &str| {
        format!("log.level = 'debug'\nlog.format = 'json'\n[queues.q]\nhandler = 'stdout'\nlease = '{lease}'")
    };
    fs::write(&config, text("9s")).unwrap();
    let mut command = helper(&db, "reload::races::panic_on_leaving");
    let mut daemon = Background::start({
        command.arg(&config);
        command
    });
    daemon.wait_for_event("consumer_idle");
    fs::write(&config, text("8s")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for_event("consumer_failed");
    daemon.wait_for_all(&[&event_field(RELOADED), r#""consumer":2,"#]);
    run(&db, &["push", "q", "one"]).ok();
    wait_until_done(&db, "q", 1);
    daemon.signal(Signal::TERM);
    let ran = daemon.end();
    assert_eq!((ran.code, ran.events("consumer_restarted")), (Some(0), 0), "{ran:?}");
    assert!(ran.stdout.contains("one\n"), "{ran:?}");
}

#[test]
fn hup_before_readiness_is_remembered() {
    let db = Database::new();
    let config = db.file("kvqueue.toml");
    fs::write(&config, queues(&[("q", "handler = 'log'")])).unwrap();
    let command = kvqueue(&db, &["run", "--config", config.to_str().unwrap()]);
    let mut daemon = Background::start(command);
    let deadline = Instant::now() + PATIENCE;
    while !hears_hup(daemon.pid()) {
        assert!(Instant::now() < deadline, "it never watches for HUP");
        std::thread::yield_now();
    }
    daemon.signal(Signal::HUP);
    daemon.wait_for_event(RELOADED);
    assert_eq!(daemon.events("ready"), 1);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

/// A file may be a pipe that nobody writes to.
#[test]
fn a_configuration_read_that_never_ends_delays_no_stop() {
    let test = Reloading::start(Database::new(), &queues(&[("q", "handler = 'stdout'")]), &["-v"]);
    fs::remove_file(&test.config).unwrap();
    pipe(&test.db, "kvqueue.toml");
    test.daemon.signal(Signal::HUP);
    run(&test.db, &["push", "q", "one"]).ok();
    wait_until_done(&test.db, "q", 1);
    let told = Instant::now();
    test.daemon.signal(Signal::TERM);
    assert_eq!(test.daemon.end().ok(), "one\n");
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
}

/// Any number of HUPs during a reload cause one more reload. The file is a pipe, so that the daemon
/// reads it for as long as the test wants.
#[test]
fn many_hups_during_a_reload_cause_one_more_reload() {
    let text = queues(&[("q", "handler = 'stdout'")]);
    let mut test = Reloading::start(Database::new(), &text, &["-v"]);
    fs::remove_file(&test.config).unwrap();
    pipe(&test.db, "kvqueue.toml");
    test.daemon.signal(Signal::HUP);
    // Returns when the daemon reads.
    let mut first = fs::OpenOptions::new().write(true).open(&test.config).unwrap();
    for _ in 0..200 {
        test.daemon.signal(Signal::HUP);
    }
    first.write_all(text.as_bytes()).unwrap();
    drop(first);
    test.daemon.wait_for_event(RELOADED);
    // The one more.
    fs::write(&test.config, &text).unwrap();
    test.daemon.wait_for_event(RELOADED);
    // A third would read this now, and say that something has changed.
    fs::remove_file(&test.config).unwrap();
    fs::write(&test.config, queues(&[("q", "handler = 'stdout'\nlease = '9s'")])).unwrap();
    for _ in 0..2 {
        test.daemon.signal(Signal::USR1);
        test.daemon.wait_for_event("daemon_status");
    }
    test.daemon.signal(Signal::HUP);
    assert!(test.daemon.wait_for_event(RELOADED).contains("queues.q.lease"));
    run(&test.db, &["push", "q", "one"]).ok();
    wait_until_done(&test.db, "q", 1);
    test.daemon.signal(Signal::TERM);
    let ran = test.daemon.end();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "one\n"), "{ran:?}");
    assert_eq!(ran.events(RELOADED), 3, "{ran:?}");
}

/// A queue is not fetched from before its pause state is known.
#[test]
fn a_queue_added_without_a_database_is_idle_until_it_answers() {
    let db = Database::embedded();
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "host", "--handler", "log"]));
    host.wait_for_event("ready");
    run(&db, &["push", "n", "one"]).ok();
    let mut test = Reloading::start(db, &queues(&[("q", "handler = 'stdout'")]), &["-v"]);
    host.suspend();
    test.hang_up(&queues(&[("q", "handler = 'stdout'"), ("n", "handler = 'stdout'")]));
    test.daemon.wait_for_event("pause_state_unknown");
    test.daemon.wait_for_event(RELOADED);
    host.signal(Signal::CONT);
    wait_until_done(&test.db, "n", 1);
    test.daemon.signal(Signal::TERM);
    assert_eq!(test.daemon.end().ok(), "one\n");
}
