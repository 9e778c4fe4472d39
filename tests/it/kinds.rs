//! A queue that is opened with another `kind` than its items have says so: nobody's items are out of sight.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, Served, kvqueue, run, serve_with, wait_until};

/// Of these the first is the kind of the items, the second that of the configuration.
const PAIRS: [(&str, &str); 10] = [
    ("fifo", "recipe"),
    ("fifo", "priority"),
    ("recipe", "fifo"),
    ("recipe", "priority"),
    ("priority", "fifo"),
    ("priority", "recipe"),
    ("keyed", "fifo"),
    ("keyed", "priority"),
    ("fifo", "keyed"),
    ("recipe", "keyed"),
];

fn configure(db: &Database, kind: &str) -> String {
    let config = db.file("kvqueue.toml");
    fs::write(&config, format!("[queues.q]\nhandler = 'log'\nkind = '{kind}'\n")).unwrap();
    config.to_str().unwrap().to_owned()
}

/// The finding of `doctor`, which is a problem.
fn doctor(db: &Database, config: &str) -> String {
    let ran = run(db, &["doctor", "--config", config]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.stdout
}

fn warnings(served: &Served) -> Value {
    served.at.get("/readyz").is(200)["warnings"].clone()
}

#[test]
fn commands_refuse_a_queue_with_items_of_another_kind() {
    for (items, other) in PAIRS {
        let db = Database::new();
        run(&db, &["push", "q", "first", "--kind", items]).ok();
        let why = format!("it has items of kind {items}");
        for command in [&["push", "q", "second"][..], &["peek", "q"], &["pop", "q"], &["recount", "q"]] {
            let args = [command, &["--kind", other]].concat();
            let said = run(&db, &args).failed(1);
            assert!(said.contains(&why), "{args:?}: {said}");
        }
        if items == "fifo" || other == "fifo" {
            for command in
                ["len q", "delete q --yes", "export q", "move q to --all", "dead purge q --all --yes"]
            {
                let args: Vec<_> = command.split(' ').chain(["--kind", other]).collect();
                let said = run(&db, &args).failed(1);
                assert!(
                    said.starts_with("kvqueue: cannot use queue \"q\"") && said.contains(&why),
                    "{args:?}: {said}"
                );
            }
        }
        assert_eq!(run(&db, &["pop", "q", "--kind", items]).ok(), "first\n");
        // An empty queue is of any kind.
        run(&db, &["push", "q", "fourth", "--kind", other]).ok();
        assert_eq!(run(&db, &["pop", "q", "--kind", other]).ok(), "fourth\n");
    }
}

#[test]
fn pushes_use_the_configured_kind() {
    for (items, kind) in PAIRS {
        let db = Database::new();
        let config = configure(&db, kind);
        let said = run(&db, &["push", "q", "x", "--kind", items, "--config", &config]).failed(2);
        assert!(said.contains(&format!("queue \"q\" is of kind {kind} in the configuration")), "{said}");
        run(&db, &["push", "other", "x", "--config", &config]).ok();
        let args = ["move", "other", "q", "--all", "--to-kind", items, "--config", &config];
        let said = run(&db, &args).failed(2);
        assert!(said.contains("leave out --to-kind"), "{said}");
        run(&db, &["push", "q", "x", "--kind", kind, "--config", &config]).ok();
    }
}

#[test]
fn a_daemon_reports_items_of_another_kind_everywhere() {
    for (items, kind) in PAIRS {
        let db = Database::new();
        run(&db, &["push", "q", "x", "--kind", items]).ok();
        let config = configure(&db, kind);
        let mut served = serve_with(kvqueue(&db, &["run", "--config", &config]), false);
        let why = format!("it has items of kind {items}");
        let line = served.daemon.wait_for_event("fetch_failed");
        assert!(line.contains(&why), "{line}");
        wait_until("it warns of it", || {
            let warnings = warnings(&served);
            let warning = warnings[0].as_str().unwrap_or_default();
            warning.contains("fetches from queue \"q\" fail: ") && warning.contains(&why)
        });
        let queue = served.at.get("/api/v1/status").is(200)["queues"][0].clone();
        assert!(queue["fetch_error"].as_str().is_some_and(|error| error.contains(&why)), "{queue}");
        let status = run(&db, &["status", "--at", served.at.tcp()]).ok();
        assert!(status.contains("fetches fail: ") && status.contains(&why), "{status}");
        let found = doctor(&db, &config);
        let problem = format!("is of kind {kind} in the configuration, and has items of kind {items}");
        assert!(found.contains(&problem), "{found}");

        configure(&db, items);
        served.daemon.signal(Signal::TERM);
        assert_eq!(served.daemon.end().code, Some(0));
        let served = serve_with(kvqueue(&db, &["run", "--config", &config]), false);
        wait_until("the item is done", || {
            served.at.get("/api/v1/status").is(200)["queues"][0]["finished"] == 1
        });
        assert_eq!(warnings(&served), json!([]));
        assert!(served.at.get("/api/v1/status").is(200)["queues"][0]["fetch_error"].is_null());
    }
}

#[test]
fn doctor_reports_items_of_another_kind_without_a_daemon() {
    for (items, kind) in PAIRS {
        let db = Database::embedded();
        run(&db, &["push", "q", "x", "--kind", items]).ok();
        let config = configure(&db, kind);
        let found = doctor(&db, &config);
        let problem = format!("is of kind {kind} in the configuration, and has items of kind {items}");
        assert!(found.contains(&problem) && found.contains(&format!("set kind = \"{items}\"")), "{found}");
    }
}
