//! The state of an item is visible: by `peek --state`, over HTTP, and in the consumers' status.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, PATIENCE, Served, run, serve};

/// A daemon whose handler does with each item of `q` what its payload says.
struct Busy {
    db: Database,
    served: Served,
    /// As long as it is there, an item `slow` is being handled.
    held_by: std::path::PathBuf,
}

impl Busy {
    /// One with an item in each state.
    fn new() -> Self {
        let db = Database::new();
        let held_by = db.file("held");
        std::fs::write(&held_by, "").unwrap();
        let script = db.file("handle");
        let text = format!(
            "case $(cat) in\nbad) echo no such address >&2; exit 65;;\nfail) echo the mail server is down >&2; exit 1;;\n\
             slow) while [ -e '{}' ]; do sleep 0.05; done;;\nesac\n",
            held_by.display()
        );
        std::fs::write(&script, text).unwrap();
        let config = format!(
            "shutdown-timeout = '9s'\n[queues.q]\nhandler = 'exec'\nconsumers = [{{ k = 1, count = 3 }}]\nretry.max-attempts = 7\nretry.base = '1h'\n\
             handler-config.command = ['sh', '{}']\n",
            script.display()
        );
        let served = serve(&db, &config);
        run(&db, &["push", "q", "bad", "fail", "slow"]).ok();
        run(&db, &["push", "q", "scheduled", "--delay", "1h"]).ok();
        let busy = Self { db, served, held_by };
        for (state, payload) in [("dead", "bad"), ("retrying", "fail"), ("running", "slow")] {
            busy.until(|| busy.peek(state).iter().any(|item| item["payload"] == payload));
        }
        // It is leased a moment before its handler begins.
        busy.until(|| {
            let page = busy.served.at.get("/api/v1/queues/q/items?state=running").is(200);
            page["items"].as_array().unwrap().iter().any(|item| item["handled_by"].is_object())
        });
        run(&busy.db, &["pause", "q"]).ok();
        busy.until(|| busy.served.at.get("/api/v1/queues/q").is(200)["paused"].is_object());
        run(&busy.db, &["push", "q", "ready"]).ok();
        busy
    }

    fn until(&self, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(
                Instant::now() < deadline,
                "it does not come to that: {}",
                run(&self.db, &["len", "q", "--json"]).ok()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The output of the command for a state.
    fn peek(&self, state: &str) -> Vec<Value> {
        let lines = run(&self.db, &["peek", "q", "--state", state, "--json"]).ok();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn end(self) {
        std::fs::remove_file(&self.held_by).unwrap();
        self.served.daemon.signal(Signal::TERM);
        assert_eq!(self.served.daemon.end().code, Some(0));
    }
}

const STATES: [(&str, &str); 5] = [
    ("ready", "ready"),
    ("scheduled", "scheduled"),
    ("retrying", "fail"),
    ("running", "slow"),
    ("dead", "bad"),
];

#[test]
fn peek_shows_the_reason_for_each_state() {
    let busy = Busy::new();
    for (state, payload) in STATES {
        let items = busy.peek(state);
        assert_eq!(items.len(), 1, "{state}: {items:?}");
        assert_eq!((&items[0]["payload"], &items[0]["state"]), (&json!(payload), &json!(state)));
        assert_eq!(items[0]["id"].as_str().unwrap().len(), 24);
    }
    let of = |state: &str| busy.peek(state).remove(0);
    let retrying = of("retrying");
    assert_eq!((&retrying["attempts"], &retrying["attempt"]), (&json!(1), &json!(2)));
    assert!(retrying["reason"].as_str().unwrap().contains("the mail server is down"), "{retrying}");
    assert!(
        retrying["due"].as_str().unwrap() > retrying["failures"][0]["at"].as_str().unwrap(),
        "{retrying}"
    );
    let scheduled = of("scheduled");
    assert!(scheduled["due"].as_str().unwrap() > scheduled["enqueued_at"].as_str().unwrap(), "{scheduled}");
    let dead = of("dead");
    assert!(
        dead["reason"].as_str().unwrap().contains("no such address") && dead["died_at"].is_string(),
        "{dead}"
    );
    let running = of("running");
    assert_eq!(running["attempt"], 1);
    assert_eq!(running["lease"]["process"], busy.served.daemon.pid());
    // On a busy machine it may be extended late.
    busy.until(|| busy.peek("running")[0]["lease"]["expires_in"].as_f64().is_some_and(|left| left > 0.0));
    // People get a table.
    let table = run(&busy.db, &["peek", "q", "--state", "retrying"]).ok();
    assert!(table.contains("last reason") && table.contains("the mail server is down"), "{table}");
    let table = run(&busy.db, &["peek", "q", "--state", "running"]).ok();
    assert!(
        table.contains(&format!("process {}", busy.served.daemon.pid())) && table.contains("slow"),
        "{table}"
    );
    busy.end();
}

#[test]
fn http_shows_items_of_each_state_and_which_consumer_has_one_since_when() {
    let busy = Busy::new();
    let get = |query: &str| busy.served.at.get(&format!("/api/v1/queues/q/items{query}"));
    for (state, payload) in STATES {
        let page = get(&format!("?state={state}")).is(200);
        let items = page["items"].as_array().unwrap();
        assert_eq!((items.len(), &page["next"], &page["unreadable"]), (1, &json!(null), &json!(0)), "{page}");
        let item = &items[0];
        assert_eq!(
            (&item["payload"], &item["state"], &item["max_attempts"]),
            (&json!(payload), &json!(state), &json!(7))
        );
        assert_eq!(item.get("handled_by").is_some(), state == "running", "{item}");
        assert_eq!(item.get("due").is_some(), state == "scheduled" || state == "retrying", "{item}");
    }
    assert_eq!(get("").is(200)["items"][0]["id"], get("?state=ready").is(200)["items"][0]["id"]);
    let running = get("?state=running").is(200)["items"][0].clone();
    let handled_by = &running["handled_by"];
    assert!((1..=3).contains(&handled_by["consumer"].as_u64().unwrap()), "{running}");
    assert!(
        handled_by["for_seconds"].as_f64().unwrap() > 0.0 && handled_by["started_at"].is_string(),
        "{running}"
    );
    assert_eq!(running["lease"]["process"], busy.served.daemon.pid());
    // Only the daemon that handles an item knows its consumer.
    let other = serve(&busy.db, "[queues.other]\nhandler = 'log'\n");
    let seen = other.at.get("/api/v1/queues/q/items?state=running").is(200)["items"][0].clone();
    assert_eq!((&seen["id"], seen.get("handled_by")), (&running["id"], None));
    assert_eq!(seen["lease"]["session"], running["lease"]["session"]);
    assert_eq!(get("?state=later").error(400), "bad_request");
    assert_eq!(get("?state=running&after=x00").error(400), "bad_request");
    busy.end();
}

#[test]
fn http_shows_scheduled_items_page_by_page_and_bounds_their_payloads() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'log'\n");
    run(&db, &["push", "q", "aaaa", "bbbb", "cccc", "--delay", "1h"]).ok();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page =
            served.at.get(&format!("/api/v1/queues/q/items?state=scheduled&limit=2&bytes=2{after}")).is(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["payload"].clone()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["aa", "bb", "cc"]);
}

#[test]
fn peek_continues_after_the_last_page() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c", "--delay", "1h"]).ok();
    let peek = |options: &[&str]| run(&db, &[&["peek", "q", "--json"], options].concat());
    let first = peek(&["--state", "scheduled", "-k", "2"]);
    let place = first.stderr.trim().rsplit_once(' ').unwrap().1.to_owned();
    assert_eq!(first.ok().lines().count(), 2);
    let second = peek(&["--state", "scheduled", "--after", &place]);
    assert_eq!(second.stderr, "");
    assert!(second.ok().contains(r#""payload":"c""#));
    assert_eq!(peek(&["--state", "ready"]).ok(), "");
    insta::assert_snapshot!(peek(&["--state", "running", "--after", "soon"]).failed(2), @r#"kvqueue: after: "soon" is not a place among running items; use the `next` of the page before"#);
    insta::assert_snapshot!(peek(&["--state", "later"]).failed(2), @r"
    error: invalid value 'later' for '--state <STATE>'
      [possible values: ready, scheduled, retrying, running, dead]

    For more information, try '--help'.
    ");
}
