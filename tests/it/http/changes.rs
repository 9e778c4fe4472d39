//! Changing items and queues, as the commands do.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::LOG;
use crate::support::{Database, PATIENCE, Served, run, serve};

/// The id of the first item of a queue in a state, once there is one.
fn first(served: &Served, queue: &str, state: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = served.at.get(&format!("/api/v1/queues/{queue}/items?state={state}")).is(200);
        if let Some(id) = page["items"][0]["id"].as_str() {
            return id.to_owned();
        }
        assert!(Instant::now() < deadline, "no item of {queue} is {state}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_item_is_found_requeued_and_deleted_by_its_id() {
    let db = Database::new();
    let served = serve(&db, LOG);
    run(&db, &["push", "other", "later", "--delay", "1h"]).ok();
    let id = first(&served, "other", "scheduled");
    let at = |path: &str| format!("/api/v1/queues/other/items/{id}{path}");
    let ask = |method, path: &str| served.at.request(method, &at(path)).send();
    let item = ask("GET", "").is(200);
    assert_eq!((&item["state"], &item["payload"]), (&json!("scheduled"), &json!("later")));
    assert!(item["due"].is_string(), "{item}");
    assert_eq!(
        ask("POST", "/requeue").is(200),
        json!({ "id": id, "done": "requeued", "state_before": "scheduled" })
    );
    assert_eq!(ask("POST", "/requeue").error(409), "ready");
    assert_eq!(ask("GET", "").is(200)["state"], "ready");
    assert_eq!(ask("DELETE", "").is(200), json!({ "id": id, "done": "deleted", "state_before": "ready" }));
    assert_eq!(ask("GET", "").error(404), "not_found");
    assert_eq!(ask("DELETE", "").error(404), "not_found");
    assert_eq!(ask("POST", "/requeue").error(404), "not_found");
}

#[test]
fn a_running_item_is_left_to_its_worker() {
    let db = Database::new();
    run(&db, &["push", "slow", "one"]).ok();
    let config = "[queues.slow]\nhandler = 'exec'\nhandler-config = { command = ['sleep', '600'] }\n";
    let served = serve(&db, &format!("shutdown-timeout = '0s'\n{config}"));
    let id = first(&served, "slow", "running");
    let item = format!("/api/v1/queues/slow/items/{id}");
    assert_eq!(served.at.get(&item).is(200)["state"], "running");
    assert_eq!(served.at.request("DELETE", &item).send().error(409), "running");
    assert_eq!(served.at.request("POST", &format!("{item}/requeue")).send().error(409), "running");
    let ran = run(&db, &["delete", "slow", "--item", &id, "--yes"]);
    insta::assert_snapshot!(ran.failed(1).replace(&id, "[id]"), @"kvqueue: [id] is not deleted: it is running: a worker has it; cancel it, or wait until its worker is done with it");
}

#[test]
fn items_of_a_queue_are_requeued_and_moved() {
    let db = Database::new();
    let served = serve(&db, LOG);
    let post = |path: &str, body: Value| served.at.post(&format!("/api/v1/queues/from/{path}"), &body);
    run(&db, &["push", "from", "a", "b", "c", "d"]).ok();
    run(&db, &["push", "from", "later", "--delay", "1h"]).ok();
    assert_eq!(post("requeue", json!({})).error(400), "bad_request");
    assert_eq!(
        post("requeue", json!({"waiting": true})).is(200),
        json!({"queue": "from", "done": "requeued", "items": 1, "refused": 0, "unreadable": 0, "more": false})
    );
    let moved = |items: u64| json!({"queue": "from", "to": "to", "done": "moved", "items": items, "refused": 0, "unreadable": 0, "more": false});
    assert_eq!(post("move", json!({"to": "to", "limit": 2})).is(200), moved(2));
    assert_eq!(run(&db, &["peek", "to", "-k", "9"]).ok(), "a\nb\n");
    assert_eq!(post("move", json!({"to": "to"})).error(400), "bad_request");
    assert_eq!(post("move", json!({"to": "to", "all": true, "limit": 1})).error(400), "bad_request");
    assert_eq!(post("move", json!({"to": "from", "all": true})).error(409), "same_queue");
    let mut all = moved(3);
    all["left"] = json!({"ready": 0, "waiting": 0, "running": 0, "dead": 0});
    assert_eq!(post("move", json!({"to": "to", "all": true})).is(200), all);
    assert_eq!(run(&db, &["len", "from"]).ok(), "0\n");
    assert_eq!(run(&db, &["pop", "to", "-k", "9"]).ok(), "a\nb\nc\nd\nlater\n");
}

#[test]
fn dead_letters_are_requeued_and_moved() {
    let db = Database::new();
    super::with_dead(&db, &["one", "two"]);
    let served = serve(&db, LOG);
    let post =
        |path: &str, body: Value| served.at.post(&format!("/api/v1/queues/dead/{path}"), &body).is(200);
    let id = first(&served, "dead", "dead");
    assert_eq!(served.at.get(&format!("/api/v1/queues/dead/items/{id}")).is(200)["attempts"], 1);
    let moved = post("move", json!({"to": "again", "limit": 1, "dead": true}));
    assert_eq!((&moved["items"], &moved["more"]), (&json!(1), &json!(false)));
    assert_eq!(post("requeue", json!({"dead": true}))["items"], 1);
    assert_eq!(
        (run(&db, &["len", "dead"]).ok(), run(&db, &["len", "again"]).ok()),
        ("1\n".into(), "1\n".into())
    );
}

#[test]
fn deleting_a_queue_over_http_needs_confirmation() {
    let db = Database::new();
    let served = serve(&db, LOG);
    run(&db, &["push", "ä/b", "one"]).ok();
    let delete =
        |query: &str| served.at.request("DELETE", &format!("/api/v1/queues/%C3%A4%2Fb{query}")).send();
    assert_eq!(delete("").error(409), "not_confirmed");
    assert_eq!(delete("?confirm=true").error(409), "not_confirmed");
    assert_eq!(run(&db, &["len", "ä/b"]).ok(), "1\n");
    let items = json!({"ready": 1, "waiting": 0, "running": 0, "dead": 0});
    assert_eq!(
        delete("?confirm=%C3%A4%2Fb").is(200),
        json!({"queue": "ä/b", "deleted": true, "items": items, "schedules": 0})
    );
    // One of another kind that the daemon knows nothing of would stay, without its counters.
    run(&db, &["push", "ä/b", "one", "--kind", "priority"]).ok();
    assert_eq!(delete("?confirm=%C3%A4%2Fb").error(409), "other_kind");
    assert_eq!(run(&db, &["len", "ä/b", "--kind", "priority"]).ok(), "1\n");
    run(&db, &["delete", "ä/b", "--kind", "priority", "--yes"]).ok();
    assert_eq!(run(&db, &["list"]).ok(), "");
}

#[test]
fn a_daemon_that_is_read_only_changes_no_items() {
    let db = Database::new();
    run(&db, &["push", "other", "one"]).ok();
    let served = serve(&db, &format!("http.read-only = true\n{LOG}"));
    let id = first(&served, "other", "ready");
    for (method, path) in [
        ("DELETE", "?confirm=other".to_owned()),
        ("POST", "/requeue".to_owned()),
        ("POST", "/move".to_owned()),
        ("DELETE", format!("/items/{id}")),
        ("POST", format!("/items/{id}/requeue")),
    ] {
        let reply = served.at.request(method, &format!("/api/v1/queues/other{path}")).send();
        assert_eq!(reply.error(403), "read_only", "{method} {path}");
    }
}
