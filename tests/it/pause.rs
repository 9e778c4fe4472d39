//! A paused queue is left alone by all daemons, until it is resumed.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use serde_json::Value;

use crate::support::{
    Background, Database, Ran, event_field, freeze, kvqueue, run, run_with_input, serve, wait_until,
};

/// Longer than a daemon that may take needs to.
const A_WHILE: Duration = Duration::from_millis(500);

/// A daemon that prints the items of `q`.
fn daemon(db: &Database, options: &[&str]) -> Background {
    let command = kvqueue(db, &[&["run", "--queue", "q", "--handler", "stdout", "-v"], options].concat());
    let mut daemon = Background::start(command);
    daemon.wait_for_all(&[&event_field("ready")]);
    daemon
}

fn stop(daemon: Background) -> String {
    daemon.signal(Signal::TERM);
    daemon.end().ok()
}

/// Waits until nothing waits or is in hand.
fn wait_until_empty(db: &Database) {
    wait_for(db, &[r#""ready":0"#, r#""running":0"#]);
}

/// Waits until the queue's counts have all of these.
#[track_caller]
fn wait_for(db: &Database, parts: &[&str]) {
    crate::support::wait_for(|| {
        let counts = run(db, &["len", "q", "--json"]).ok();
        match parts.iter().all(|part| counts.contains(part)) {
            true => Ok(()),
            false => Err(format!("{parts:?}: {counts}")),
        }
    });
}

#[test]
fn pause_stops_all_daemons_and_resume_wakes_them_within_a_second() {
    let db = Database::new();
    let mut daemons = [daemon(&db, &["--consumers", "4"]), daemon(&db, &["--consumers", "1"])];
    for round in 0..3 {
        run(&db, &["pause", "q", "--reason", "the mail server is down", "--create"]).ok();
        for daemon in &mut daemons {
            let said = daemon.wait_for_event("queue_paused");
            assert!(said.contains("the mail server is down"), "{said}");
        }
        run(&db, &["push", "q", "one", "two"]).ok();
        thread::sleep(A_WHILE);
        assert_eq!(run(&db, &["len", "q"]).ok(), "2\n", "round {round}");
        run(&db, &["resume", "q"]).ok();
        let resumed = Instant::now();
        wait_until_empty(&db);
        assert!(resumed.elapsed() < Duration::from_secs(1), "{:?}", resumed.elapsed());
        for daemon in &mut daemons {
            daemon.wait_for_event("queue_resumed");
        }
    }
    // And it goes on as ever.
    run(&db, &["push", "q", "three"]).ok();
    wait_until_empty(&db);
    let printed = daemons.map(stop).concat();
    assert_eq!(printed.lines().count(), 7, "{printed}");
}

#[test]
fn a_pause_outlives_a_restart_and_delays_no_stop() {
    let db = Database::new();
    run(&db, &["pause", "q", "--create"]).ok();
    run(&db, &["push", "q", "one"]).ok();
    for _ in 0..2 {
        let mut daemon = daemon(&db, &[]);
        daemon.wait_for_all(&[&event_field("queue_paused")]);
        thread::sleep(A_WHILE);
        let told = Instant::now();
        assert_eq!(stop(daemon), "");
        assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    }
    run(&db, &["resume", "q"]).ok();
    let daemon = daemon(&db, &[]);
    wait_until_empty(&db);
    assert_eq!(stop(daemon), "one\n");
}

/// Consumers wait for the pause to end, for their turn to fetch, and for pushes.
#[test]
fn pauses_under_load_lose_no_items() {
    const ITEMS: usize = 5_000;
    let db = Database::new();
    let mut daemon = daemon(&db, &["--consumers", "8", "-k", "5"]);
    let lines: String = (0..ITEMS).map(|item| format!("{item}\n")).collect();
    thread::scope(|scope| {
        let push = scope.spawn(|| run_with_input(&db, &["push", "q", "--lines", "-"], lines).ok());
        let mut rounds = 0;
        while rounds < 10 || !push.is_finished() {
            run(&db, &["pause", "q", "--create"]).ok();
            daemon.wait_for_event("queue_paused");
            run(&db, &["resume", "q"]).ok();
            daemon.wait_for_event("queue_resumed");
            rounds += 1;
        }
    });
    wait_until_empty(&db);
    let printed = stop(daemon);
    let mut items: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    items.sort_unstable();
    assert!(items.into_iter().eq(0..ITEMS), "not each item once");
}

#[test]
fn running_items_finish_during_a_pause() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    let script = "read item; sleep 0.3; echo $item >> done";
    let command = crate::support::run_script(&db, script, "consumers = [ { k = 2 } ]", &["-v"]);
    let mut daemon = Background::start(command);
    daemon.wait_for_event("items_fetched");
    run(&db, &["pause", "q"]).ok();
    daemon.wait_for_event("queue_paused");
    wait_for(&db, &[r#""done":2"#]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn a_deleted_queue_is_not_paused() {
    let db = Database::new();
    let mut daemon = daemon(&db, &[]);
    run(&db, &["pause", "q", "--create"]).ok();
    daemon.wait_for_event("queue_paused");
    run(&db, &["delete", "q", "--yes"]).ok();
    daemon.wait_for_event("queue_resumed");
    run(&db, &["push", "q", "one"]).ok();
    wait_until_empty(&db);
    assert_eq!(stop(daemon), "one\n");
}

#[test]
fn until_empty_waits_for_a_paused_queue() {
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    run(&db, &["pause", "q"]).ok();
    let mut daemon = daemon(&db, &["--until-empty"]);
    daemon.wait_for_all(&[&event_field("queue_paused")]);
    run(&db, &["resume", "q"]).ok();
    assert_eq!(daemon.end().ok(), "one\n");
}

#[test]
fn a_frozen_queue_is_not_swept_and_not_resumed_by_mistake() {
    let db = Database::new();
    run(&db, &["push", "q", "later", "--delay", "1s"]).ok();
    freeze(&db);
    let mut daemon = daemon(&db, &[]);
    daemon.wait_for_all(&[&event_field("queue_paused")]);
    thread::sleep(Duration::from_secs(2));
    let counts = run(&db, &["len", "q", "--json"]).ok();
    assert!(counts.contains(r#""waiting":1"#), "{counts}");
    let error = run(&db, &["resume", "q"]).failed(1);
    assert!(error.contains("is frozen") && error.contains("kvqueue resume q --frozen"), "{error}");
    let error = run(&db, &["pause", "q"]).failed(1);
    assert!(error.contains("is frozen since"), "{error}");
    let error = run(&db, &["delete", "q", "--yes"]).failed(1);
    assert!(error.ends_with("a migration left here: kvqueue delete q --frozen\n"), "{error}");
    run(&db, &["resume", "q", "--frozen"]).ok();
    wait_for(&db, &[r#""done":1"#]);
    assert_eq!(stop(daemon), "later\n");
}

#[test]
fn pause_and_resume_report_their_effect() {
    let db = Database::new();
    let said = run(&db, &["pause", "q", "--reason", "why", "--json", "--create"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["queue"], &said["paused"], &said["reason"]),
        (&"q".into(), &true.into(), &"why".into())
    );
    assert!(said["since"].as_str().unwrap().starts_with("20"), "{said}");
    let said = run(&db, &["resume", "q", "--json"]).ok();
    assert_eq!(said, "{\"paused\":false,\"queue\":\"q\",\"was_paused\":true}\n");
    run(&db, &["push", "q", "one"]).ok();
    let ran = run(&db, &["resume", "q"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "q was not paused\n"));
    let long = "x".repeat(300);
    assert!(run(&db, &["pause", &long]).failed(2).contains("name"));
}

/// The JSON output of a command.
fn told(db: &Database, words: &[&str]) -> Value {
    serde_json::from_str(&run(db, words).stdout).unwrap()
}

#[test]
fn a_pause_is_shown_without_a_daemon() {
    const NOTE: &str = "pauses    note     paused, or frozen by a migration: q; kvqueue status says why";
    let db = Database::new();
    run(&db, &["push", "q", "one"]).ok();
    assert!(told(&db, &["len", "q", "--json"])["paused"].is_null());
    assert!(!run(&db, &["doctor"]).stdout.contains("pauses"));
    run(&db, &["pause", "q", "--reason", "bills"]).ok();
    let status = run(&db, &["status"]).stdout;
    assert!(status.contains("paused: bills\n"), "{status}");
    for pause in [
        &told(&db, &["status", "--json"])["queues"][0]["paused"],
        &told(&db, &["len", "q", "--json"])["paused"],
    ] {
        assert_eq!((&pause["reason"], &pause["frozen"]), (&"bills".into(), &false.into()), "{pause}");
        assert!(pause["since"].is_u64(), "{pause}");
    }
    let doctor = run(&db, &["doctor"]);
    assert!(doctor.stdout.contains(NOTE), "{doctor:?}");
    // It looks in another way at a database that is used.
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    let doctor = run(&db, &["doctor"]);
    assert!(doctor.stdout.contains(NOTE), "{doctor:?}");
    run(&db, &["resume", "q"]).ok();
    assert!(!run(&db, &["doctor"]).stdout.contains("pauses"));
}

#[test]
fn a_pause_is_shown_for_queues_that_the_daemon_does_not_process() {
    let db = Database::new();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let served = serve(&db, &format!("http.listen = '{listen}'\n[queues.q]\nhandler = 'log'"));
    run(&db, &["push", "other", "one"]).ok();
    for queue in ["q", "other"] {
        run(&db, &["pause", queue, "--reason", "bills", "--create"]).ok();
    }
    wait_until("the daemon knows of the pause", || {
        !served.at.get("/api/v1/queues/q").is(200)["paused"].is_null()
    });
    let ask = |words: &[&str]| -> Ran {
        kvqueue(&db, words).env("KVQUEUE_HTTP__LISTEN", &listen).output().unwrap().into()
    };
    let status = ask(&["status"]).ok();
    assert!(status.ends_with("\n1 other queue in the database: other 1 ready (paused)\n"), "{status}");
    let status: Value = serde_json::from_str(&ask(&["status", "--json"]).ok()).unwrap();
    assert_eq!(status["other_queues"][0]["paused"]["reason"], "bills", "{status}");
    // The daemon has told of its own queue.
    let doctor = ask(&["doctor"]).ok();
    assert!(doctor.contains("\ndaemon    note     paused: q; "), "{doctor}");
    assert!(doctor.contains("\npauses    note     paused, or frozen by a migration: other; "), "{doctor}");
}

#[test]
fn resume_names_the_daemon_that_has_paused_the_queue_for_itself() {
    let db = Database::new();
    let listen = format!("unix:{}", db.file("http.sock").display());
    let _served = serve(&db, &format!("http.listen = '{listen}'\n[queues.q]\nhandler = 'log'"));
    let ask = |words: &[&str]| -> Ran {
        kvqueue(&db, words).env("KVQUEUE_HTTP__LISTEN", &listen).output().unwrap().into()
    };
    run(&db, &["push", "q", "one"]).ok();
    ask(&["pause", "q", "--local"]).ok();
    let here = "kvqueue: a daemon has it paused for itself alone; to have that take its items: kvqueue resume q --local\n";
    let resumed = ask(&["resume", "q"]);
    assert_eq!(
        (resumed.stdout.as_str(), resumed.stderr.as_str()),
        ("q was not paused for all daemons\n", here)
    );
    ask(&["pause", "q"]).ok();
    let resumed = ask(&["resume", "q", "--json"]);
    assert_eq!(
        (resumed.stdout.as_str(), resumed.stderr.as_str()),
        ("{\"paused\":false,\"paused_locally\":true,\"queue\":\"q\",\"was_paused\":true}\n", here)
    );
    ask(&["resume", "q", "--local"]).ok();
    let resumed = ask(&["resume", "q"]);
    assert_eq!((resumed.stdout.as_str(), resumed.stderr.as_str()), ("q was not paused\n", ""));
}
