//! Items that expire, with the real program: by the sweeper, before a handler is called, and before a worker gets them.

use std::{thread::sleep, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Background, Database, kvqueue, object, run, serve, wait_until};

/// A daemon that logs the items of `q`.
fn daemon(db: &Database, settings: &str) -> Background {
    let config = db.file("kvqueue.toml");
    std::fs::write(&config, format!("[queues.q]\nhandler = 'log'\n{settings}")).unwrap();
    Background::start(kvqueue(db, &["run", "-v", "--config", config.to_str().unwrap()]))
}

fn stop(daemon: Background) {
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn no_handler_is_called_with_an_item_that_expired_while_the_daemon_was_stopped() {
    for delivery in ["at-least-once", "at-most-once"] {
        let db = Database::new();
        run(&db, &["push", "q", "--ttl", "1ms", "expired"]).ok();
        run(&db, &["push", "q", "--ttl", "1h", "lives"]).ok();
        sleep(Duration::from_millis(20));
        let mut daemon = daemon(&db, &format!("delivery = '{delivery}'"));
        daemon.wait_for("\"lives\"");
        daemon.signal(Signal::TERM);
        let ended = daemon.end();
        assert_eq!(ended.code, Some(0));
        assert!(!ended.stderr.contains("\"expired\""), "{}", ended.stderr);
        let len = object(&db, &["len", "q"]);
        assert_eq!((&len["ready"], &len["dead"]), (&json!(0), &json!(0)), "{len}");
    }
}

#[test]
fn the_ttl_of_a_queue_holds_for_items_that_other_programs_pushed() {
    let db = Database::new();
    // Without the configuration, as a program does that pushes to the database itself.
    run(&db, &["push", "q", "old"]).ok();
    let mut daemon = daemon(&db, "ttl = '1ms'\non-expiry = 'dead'");
    daemon.wait_for_event("item_expired");
    wait_until("the item is a dead letter", || object(&db, &["len", "q"])["dead"] == 1);
    stop(daemon);
    let letter = object(&db, &["dead", "list", "q"]);
    assert_eq!(letter["reason"], "expired: no attempt began in time", "{letter}");
    assert_eq!(letter["attempts"], 0, "{letter}");
}

#[test]
fn a_sweeper_ends_expired_items_of_a_paused_queue() {
    let db = Database::new();
    run(&db, &["pause", "q", "--create"]).ok();
    let mut daemon = daemon(&db, "lease = '1s'\nttl = '300ms'");
    daemon.wait_for_event("ready");
    let config = db.file("kvqueue.toml");
    run(&db, &["push", "q", "--config", config.to_str().unwrap(), "--unique", "u", "waits"]).ok();
    let item = object(&db, &["peek", "q"]);
    assert!(item["expires_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{item}");
    daemon.wait_for_event("items_expired");
    assert_eq!(object(&db, &["len", "q"])["ready"], 0);
    stop(daemon);
}

#[test]
fn items_of_schedules_have_the_ttl_of_their_queue() {
    let db = Database::new();
    run(&db, &["pause", "q", "--create"]).ok();
    let mut daemon = daemon(&db, "ttl = '1h'\n[queues.q.schedules.s]\nevery = '1s'");
    daemon.wait_for_event("ready");
    wait_until("the schedule fires", || object(&db, &["len", "q"])["ready"] != 0);
    stop(daemon);
    let item = object(&db, &["peek", "q", "-k", "1"]);
    assert!(item["expires_at"].is_string(), "{item}");
    let config = db.file("kvqueue.toml");
    let id = run(&db, &["schedule", "fire", "q", "s", "--config", config.to_str().unwrap()]).ok();
    let item = object(&db, &["item", "show", "q", id.trim()]);
    assert!(item["expires_at"].is_string(), "{item}");
}

#[test]
fn a_worker_over_http_does_not_get_expired_items() {
    let db = Database::new();
    run(&db, &["push", "q", "--ttl", "1ms", "expired"]).ok();
    run(&db, &["push", "q", "lives"]).ok();
    run(&db, &["push", "other", "--ttl", "1ms", "expired"]).ok();
    sleep(Duration::from_millis(20));
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n[queues.other]\nhandler = 'pull'\n");
    let lease = |queue: &str| {
        let answer = served.at.post(&format!("/api/v1/queues/{queue}/lease"), &json!({"max": 9})).is(200);
        let items = answer["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["payload"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((lease("q"), lease("other")), (vec!["lives".to_owned()], vec![]));
    let pushed = json!({"items": [{"payload": "a", "ttl_ms": 3_600_000}]});
    served.at.post("/api/v1/queues/other/items", &pushed).is(201);
    assert!(object(&db, &["peek", "other"])["expires_at"].is_string());
}

#[test]
fn an_export_and_an_import_keep_the_expiry() {
    let db = Database::new();
    run(&db, &["push", "q", "--ttl", "1h", "a"]).ok();
    let before = object(&db, &["peek", "q"]);
    let file = db.file("items.ndjson");
    std::fs::write(&file, run(&db, &["export", "q"]).ok()).unwrap();
    run(&db, &["import", "copy", "--input", file.to_str().unwrap()]).ok();
    run(&db, &["move", "q", "moved", "--all"]).ok();
    for queue in ["copy", "moved"] {
        assert_eq!(object(&db, &["peek", queue])["expires_at"], before["expires_at"], "{queue}");
    }
}
