//! Changes that take effect at once, changes that are refused, and the messages about both.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{IN_HAND, RELOADED, Reloading, queues, wait_until_done};
use crate::support::{Database, events, run};

#[test]
fn a_reload_adds_and_removes_queues() {
    let db = Database::new();
    run(&db, &["push", "a", "in a"]).ok();
    let stdout = "handler = 'stdout'";
    let mut test = Reloading::start(db, &queues(&[("q", stdout)]), &["-vv"]);
    let said = test.reload(&queues(&[("q", stdout), ("a", stdout)]));
    assert!(said.contains(r#""changed":"queues.a""#), "{said}");
    wait_until_done(&test.db, "a", 1);
    let said = test.reload(&queues(&[("a", stdout)]));
    assert!(said.contains(r#""changed":"queues.q""#), "{said}");
    run(&test.db, &["push", "q", "in q"]).ok();
    run(&test.db, &["push", "a", "again in a"]).ok();
    wait_until_done(&test.db, "a", 2);
    assert_eq!(run(&test.db, &["len", "q"]).ok(), "1\n", "nobody works on q any more");
    test.daemon.signal(Signal::TERM);
    assert_eq!(test.daemon.end().ok(), "in a\nagain in a\n");
}

#[test]
fn an_invalid_file_changes_nothing_and_the_error_names_the_reason() {
    let good = queues(&[("q", "handler = 'stdout'")]);
    let mut test = Reloading::start(Database::new(), &good, &["-v"]);
    for (text, why) in [
        ("[queues.q", "is not valid TOML"),
        ("[queues.q]\nhandler = 'lag'", "there is no such handler; use one of exec, http, log, pull, stdout"),
        ("[queues.q]\nhandler = 'stdout'\nlease = '1ms'", "queues.q.lease"),
        ("", "there is no queue to process"),
        ("[queues.q]\nhandler = 'exec'\nhandler-config = { command = [] }", "queues.q.handler-config"),
    ] {
        let said = test.refused(text);
        assert!(said.contains(why), "{why:?} is not in {said}");
    }
    std::fs::remove_file(&test.config).unwrap();
    test.daemon.signal(Signal::HUP);
    let said = test.daemon.wait_for_event(super::REFUSED);
    assert!(said.contains("kvqueue.toml") && said.contains("No such file"), "{said}");
    run(&test.db, &["push", "q", "still here"]).ok();
    wait_until_done(&test.db, "q", 1);
    assert!(test.reload(&good).contains(r#""changed":"""#));
    assert_eq!(test.daemon.events("consumer_started"), 1, "the consumer has stayed the same");
    test.daemon.signal(Signal::TERM);
    assert_eq!(test.daemon.end().ok(), "still here\n");
}

#[test]
fn the_log_of_a_reload_is_bounded_for_any_number_of_changes() {
    let few = "[queues.q]\nhandler = 'log'\n";
    let mut test = Reloading::start(Database::new(), few, &[]);
    let names: Vec<_> = (0..300).map(|number| format!("{}-{number}", "n".repeat(200))).collect();
    let table = |name: &String| format!("[queues.{name}]\nhandler = 'log'\npoll-interval = '1h'\n");
    let many = few.to_owned() + &names.iter().map(table).collect::<String>();
    // journald splits lines of more than 48 KiB.
    let said = test.reload(&many);
    assert!(said.len() < 8 << 10 && said.contains("\"keys\":300"), "{} bytes: {said}", said.len());
    assert!(said.contains(&names[0]) && said.contains(" more\""), "{said}");
    let kinds = many.replace("poll-interval = '1h'", "kind = 'recipe'");
    let said = test.refused(&kinds);
    assert!(
        said.len() < 8 << 10 && said.contains(" more: changed, and read only"),
        "{} bytes: {said}",
        said.len()
    );
}

#[test]
fn keys_that_need_a_restart_are_named() {
    let mut test = Reloading::start(Database::new(), &queues(&[("q", "handler = 'log'")]), &[]);
    let said = test.refused("[queues.q]\nhandler = 'log'\nkind = 'recipe'\nvalues = 'tuple'");
    assert!(
        said.contains("queues.q.kind, queues.q.values: changed, and read only when the daemon starts"),
        "{said}"
    );
    test.stop();
}

#[test]
fn level_and_shutdown_timeout_change_at_once() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    let queue = queues(&[("q", IN_HAND)]);
    let mut test = Reloading::start(db, &format!("shutdown-timeout = '1h'\n{queue}"), &[]);
    assert_eq!(test.begun(), "one");
    let said = test.reload(&format!("shutdown-timeout = '100ms'\nlog.level = 'debug'\n{queue}"));
    assert!(said.contains(r#""changed":"log.level, shutdown-timeout""#), "{said}");
    let db = std::mem::replace(&mut test.db, Database::embedded());
    run(&db, &["push", "q", "two"]).ok();
    let told = Instant::now();
    let said = test.stop();
    assert!(told.elapsed() < Duration::from_secs(60), "{:?}", told.elapsed());
    assert!(said.contains(r#""level":"DEBUG""#), "{said}");
    assert_eq!(events(&said, "shutdown_timed_out"), 1, "{said}");
}

#[test]
fn a_handler_is_rebuilt_only_if_its_settings_change() {
    let line = |word: &str, more: &str| {
        format!(
            "handler = 'exec'\nhandler-config = {{ command = ['sh', '-c', 'read item; echo {word} $item >> log'] }}\n{more}\n"
        )
    };
    let mut test = Reloading::start(Database::new(), &queues(&[("q", &line("old", ""))]), &["-v"]);
    run(&test.db, &["push", "q", "one"]).ok();
    wait_until_done(&test.db, "q", 1);
    test.reload(&queues(&[("q", &line("new", ""))]));
    run(&test.db, &["push", "q", "two"]).ok();
    wait_until_done(&test.db, "q", 2);
    let db = std::mem::replace(&mut test.db, Database::embedded());
    test.stop();
    assert_eq!(Reloading::did(&db), "old one\nnew two\n");
}

#[test]
fn usr1_logs_the_whole_status() {
    let mut test = Reloading::start(
        Database::new(),
        &queues(&[("q", "handler = 'log'\nconsumers = [ { k = 7, count = 2 } ]")]),
        &["-v"],
    );
    test.daemon.wait_for_event("consumer_idle");
    test.daemon.signal(Signal::USR1);
    let state = test.daemon.wait_for_event("daemon_status");
    for part in [r#""phase":"ready""#, r#""queues":1"#, r#""consumers":2"#, "kvqueue.toml"] {
        assert!(state.contains(part), "{part} is not in {state}");
    }
    let queue = test.daemon.wait_for_event("queue_status");
    assert!(queue.contains(r#""queue":"q""#) && queue.contains(r#""paused":false"#), "{queue}");
    for _ in 0..2 {
        let consumer = test.daemon.wait_for_event("consumer_status");
        assert!(consumer.contains(r#""k":7"#), "{consumer}");
    }
    test.stop();
}

#[test]
fn a_daemon_without_a_file_reads_its_options_again() {
    let db = Database::new();
    let mut daemon = crate::support::Background::start(crate::support::kvqueue(
        &db,
        &["run", "--queue", "q", "--handler", "log"],
    ));
    daemon.wait_for_event("ready");
    daemon.signal(Signal::HUP);
    let said = daemon.wait_for_event(RELOADED);
    assert!(said.contains(r#""changed":"""#), "{said}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}
