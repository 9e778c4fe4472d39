//! Ended items are kept if the configuration says so: `kvqueue history`, `kvqueue item show`, `GET /api/v1/queues/{queue}/ended`.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, first_id, kvqueue, run, serve, serve_with, wait_until};

const KEPT: &str = "[queues.q]\nhandler = 'exec'\nhistory = '24h'\nhandler-config.command = ['sh', '-c', 'test \"$(cat)\" != bad || { echo bad address >&2; exit 65; }']\n";

fn history(db: &Database, args: &str) -> Vec<Value> {
    let line = format!("history q --json {args}");
    let text = run(db, &line.split_whitespace().collect::<Vec<_>>()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn outcomes(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["outcome"].as_str().unwrap()).collect()
}

/// Runs a daemon with this configuration until the queue is empty.
fn burn_down(db: &Database, config: &str) {
    let path = db.file("history.toml");
    fs::write(&path, config).unwrap();
    run(db, &["run", "--config", path.to_str().unwrap(), "--until-empty"]).ok();
}

#[test]
fn a_queue_with_a_history_tells_what_became_of_each_item() {
    let db = Database::new();
    run(&db, &["push", "q", "good", "--attr", "customer=ann"]).ok();
    let id = first_id(&db, "q");
    run(&db, &["push", "q", "bad"]).ok();
    burn_down(&db, KEPT);
    let items = history(&db, "");
    assert_eq!(outcomes(&items), ["dead", "done"]);
    let [dead, done] = &items[..] else { panic!("{items:?}") };
    assert!(dead["reason"].as_str().unwrap().contains("bad address"), "{dead}");
    assert_eq!((&done["id"], &done["attempts"], &done["state"]), (&json!(id), &json!(1), &json!("finished")));
    assert_eq!(done["attributes"], json!({"customer": "ann"}));
    let times: Vec<_> =
        ["enqueued_at", "started_at", "ended_at"].map(|key| done[key].as_str().unwrap()).into();
    assert!(times.is_sorted(), "{done}");
    assert!(done["worker"].as_str().unwrap().contains('/'), "{done}");
    // An item that has ended is shown like any other.
    let shown: Value = serde_json::from_str(&run(&db, &["item", "show", "q", &id, "--json"]).ok()).unwrap();
    assert_eq!(&shown, done);
    let text = run(&db, &["item", "show", "q", &id]).ok();
    for part in ["state        finished", "outcome      done", "attribute    customer=ann", "took "] {
        assert!(text.contains(part), "{text}");
    }
    // The setting is stored, so that commands record ends too.
    run(&db, &["push", "q", "x", "y"]).ok();
    let cancelled = first_id(&db, "q");
    run(&db, &["item", "cancel", "q", &cancelled]).ok();
    run(&db, &["pop", "q"]).ok();
    assert_eq!(outcomes(&history(&db, "")), ["taken", "cancelled", "dead", "done"]);
    assert_eq!(outcomes(&history(&db, "--outcome cancelled")), ["cancelled"]);
    assert_eq!(outcomes(&history(&db, "--attribute customer=ann")), ["done"]);
    assert_eq!(outcomes(&history(&db, "--until 1h")), [""; 0]);
    assert_eq!(outcomes(&history(&db, "--since 1h --schedule none")), [""; 0]);
    // Page by page.
    let first = run(&db, &["history", "q", "--json", "-n", "3"]);
    let cursor = first.stderr.rsplit_once("--after ").unwrap().1.trim().to_owned();
    assert_eq!(first.stdout.lines().count(), 3);
    assert_eq!(outcomes(&history(&db, &format!("--after {cursor}"))), ["done"]);
    let all = run(&db, &["history", "q", "--json", "-n", "4"]);
    assert_eq!((all.stdout.lines().count(), &*all.stderr), (4, ""), "there are no more");
    let table = run(&db, &["history", "q"]).ok();
    assert!(table.contains("outcome") && table.contains("bad address"), "{table}");
}

#[test]
fn a_history_is_indexed_as_configured() {
    let db = Database::new();
    run(&db, &["push", "q", "good", "--attr", "customer=ann"]).ok();
    burn_down(&db, KEPT);
    let indexed = KEPT.replace("'24h'\n", "'24h'\nhistory-index = ['customer', 'schedule']\n");
    let path = db.file("indexed.toml");
    fs::write(&path, indexed).unwrap();
    let mut served = serve_with(kvqueue(&db, &["run", "--config", path.to_str().unwrap()]), false);
    let stored: Value = serde_json::from_str(&served.daemon.event("history_set")).unwrap();
    assert_eq!(stored["index"], "customer, schedule", "{stored}");
    let at = served.at;
    let page = |query: &str| at.get(&format!("/api/v1/queues/q/ended{query}")).is(200);
    assert_eq!(page("")["indexed"], json!(["customer", "schedule"]));
    // What ended before is found all the same.
    run(&db, &["push", "q", "fine", "--attr", "customer=ann"]).ok();
    run(&db, &["push", "q", "other", "--attr", "customer=bob"]).ok();
    wait_until("all have ended", || page("")["items"].as_array().unwrap().len() == 3);
    assert_eq!(page("?attribute=customer%3Dann")["items"].as_array().unwrap().len(), 2);
    assert_eq!(outcomes(&history(&db, "--attribute customer=bob")), ["done"]);
    assert_eq!(page("?schedule=none")["items"], json!([]));
    // Without the key there is no index.
    fs::write(&path, KEPT).unwrap();
    served.daemon.signal(Signal::HUP);
    wait_until("the index is removed", || page("")["indexed"] == json!([]));
}

#[test]
fn a_queue_without_a_history_keeps_no_ended_items() {
    let db = Database::new();
    run(&db, &["push", "q", "good"]).ok();
    let id = first_id(&db, "q");
    burn_down(&db, &KEPT.replace("history = '24h'\n", ""));
    let ran = run(&db, &["history", "q"]);
    insta::assert_snapshot!(ran.stderr, @r#"kvqueue: queue "q" keeps no history; set history = "24h" in its configuration"#);
    assert_eq!(ran.ok(), "");
    run(&db, &["item", "show", "q", &id]).failed(1);
    run(&db, &["history", "q", "--outcome", "finished"]).failed(2);
    run(&db, &["history", "q", "--since", "tomorrow"]).failed(2);
    run(&db, &["history", "q", "--after", "x"]).failed(2);
}

#[test]
fn the_http_api_has_the_history() {
    let db = Database::new();
    run(&db, &["push", "q", "good", "bad", "fine", "--attr", "a=b"]).ok();
    burn_down(&db, KEPT);
    let served = serve(&db, KEPT);
    let page = |query: &str| served.at.get(&format!("/api/v1/queues/q/ended{query}")).is(200);
    let all = page("");
    let items = all["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    assert_eq!(
        (&all["next"], &all["unreadable"], &all["kept_seconds"]),
        (&json!(null), &json!(0), &json!(86_400))
    );
    let dead = page("?outcome=dead&since=1h&attribute=a%3Db");
    assert_eq!(outcomes(dead["items"].as_array().unwrap()), ["dead"]);
    assert_eq!(page("?attribute=a%3Dc")["items"], json!([]));
    let first = page("?limit=2");
    let next = first["next"].as_str().unwrap();
    let second = page(&format!("?after={next}"));
    assert_eq!(second["items"].as_array().unwrap()[..], items[2..]);
    let id = items[2]["id"].as_str().unwrap();
    assert_eq!(served.at.get(&format!("/api/v1/queues/q/items/{id}")).is(200), items[2]);
    for wrong in ["?outcome=x", "?since=tomorrow", "?attribute=a", "?after=x", "?limit=0"] {
        served.at.get(&format!("/api/v1/queues/q/ended{wrong}")).is(400);
    }
    // A change of this daemon is recorded, too.
    run(&db, &["pause", "q"]).ok();
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    served.at.request("DELETE", &format!("/api/v1/queues/q/items/{id}")).send().is(200);
    let item = served.at.get(&format!("/api/v1/queues/q/items/{id}")).is(200);
    assert_eq!((&item["outcome"], &item["reason"]), (&json!("cancelled"), &json!("deleted")));
}

#[test]
fn the_history_names_the_workers_that_acknowledge_over_http() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nhistory = '24h'\n");
    run(&db, &["push", "q", "x", "y"]).ok();
    let request = |path: &str| {
        let request = served.at.request("POST", &format!("/api/v1/queues/q/{path}"));
        request.header("User-Agent", "mailer-7/1.0")
    };
    let leased = request("lease").json(&json!({"max": 2, "wait_ms": 10_000})).send().is(200);
    let (lease, items) = (leased["lease"].as_str().unwrap(), leased["items"].as_array().unwrap());
    let outcomes = [
        json!({"id": items[0]["id"], "outcome": "done"}),
        json!({"id": items[1]["id"], "outcome": "dead", "reason": "no"}),
    ];
    request(&format!("leases/{lease}/acknowledge")).json(&json!({"outcomes": outcomes})).send().is(200);
    let items = history(&db, "");
    assert_eq!(items.len(), 2);
    for item in &items {
        let worker = item["worker"].as_str().unwrap();
        assert!(
            worker.starts_with("anyone at 127.0.0.1:") && worker.ends_with(" (mailer-7/1.0)"),
            "{worker}"
        );
        assert!(item["started_at"].is_string(), "{item}");
    }
}

#[test]
fn a_reload_turns_the_history_on_and_removes_it() {
    let db = Database::new();
    let path = db.file("reload.toml");
    let with = |line: &str| {
        fs::write(&path, format!("[queues.q]\nhandler = 'log'\nlease = '1s'\n{line}\n")).unwrap();
    };
    with("");
    let mut daemon = Background::start(kvqueue(&db, &["run", "--config", path.to_str().unwrap(), "-v"]));
    daemon.wait_for_event("ready");
    run(&db, &["push", "q", "before"]).ok();
    let wait = |n: usize| wait_until("the history is as it should be", || history(&db, "").len() == n);
    wait_until("the item is done", || run(&db, &["len", "q"]).ok() == "0\n");
    with("history = '1h'");
    daemon.signal(Signal::HUP);
    daemon.wait_for_event("history_set");
    run(&db, &["push", "q", "kept"]).ok();
    wait(1);
    with("history = '0s'");
    daemon.signal(Signal::HUP);
    daemon.wait_for_event("history_set");
    // An idle queue is looked through once in ten minutes, and any other one soon.
    run(&db, &["push", "q", "not kept"]).ok();
    wait(0);
    daemon.signal(Signal::TERM);
    daemon.end();
}
