//! `kvqueue push`: what goes with items, and pushes that are not to be repeated.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, kvqueue, object, run, run_with_input};

/// The first item of a queue: what was pushed.
fn first(db: &Database, args: &[&str]) -> Value {
    let mut item = object(db, &[&["peek"], args].concat());
    let own = ["id", "state", "attempt", "attempts", "bytes", "cut"];
    item.as_object_mut().unwrap().retain(|name, _| !own.contains(&name.as_str()));
    item
}

fn len(db: &Database, queue: &str) -> String {
    run(db, &["len", queue]).ok().trim_end().to_owned()
}

#[test]
fn attributes_are_shown_with_the_item() {
    let db = Database::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let args =
        ["--attr", "to=ann", "--attr", "sum=1=1", "--content-type", "text/plain", "--trace-parent", trace];
    assert_eq!(run(&db, &[&["push", "q", "letter"], &args[..]].concat()).pushed(), "pushed 1 item");
    let mut item = first(&db, &["q"]);
    let at = item.as_object_mut().unwrap().remove("enqueued_at").unwrap();
    assert!(at.as_str().unwrap().ends_with('Z'), "{at}");
    let attributes = json!({"to": "ann", "sum": "1=1"});
    let expected = json!({"payload": "letter", "attributes": attributes, "content_type": "text/plain", "trace_parent": trace});
    assert_eq!(item, expected);
    // Each item of a push has them, and one without has no more than its payload.
    run(&db, &["push", "many", "a", "b", "--attr", "k=v"]).ok();
    let many = run(&db, &["pop", "many", "-k", "2", "--json"]).ok();
    assert_eq!(many.matches(r#""attributes":{"k":"v"}"#).count(), 2);
    run(&db, &["push", "plain", "a"]).ok();
    let mut plain = first(&db, &["plain"]);
    // By the version of its push.
    assert!(plain.as_object_mut().unwrap().remove("enqueued_at").is_some());
    assert_eq!(plain, json!({"payload": "a"}));
}

#[test]
fn duplicate_attributes_and_malformed_trace_parents_are_refused() {
    let db = Database::new();
    run(&db, &["push", "q", "there"]).ok();
    let refused = |args: &[&str]| run(&db, &[&["push", "q", "letter"], args].concat()).failed(2);
    let twice = refused(&["--attr", "to=ann", "--attr", "to=bob"]);
    insta::assert_snapshot!(twice, @"kvqueue: --attr to=... is given twice; an item has one value of each attribute");
    let none = refused(&["--trace-parent", "abc"]);
    assert!(
        none.contains("'abc' for '--trace-parent <TRACEPARENT>': not a W3C traceparent; write it as in 00-"),
        "{none}"
    );
    assert_eq!(len(&db, "q"), "1");
}

#[test]
fn a_delayed_item_is_not_ready_yet() {
    let db = Database::new();
    let pushed = object(&db, &["push", "q", "later", "too", "--delay", "1h"]);
    assert_eq!((&pushed["acknowledged"], pushed["ids"].as_array().unwrap().len()), (&json!(2), 2));
    run(&db, &["push", "q", "later", "--at", "2100-01-01T00:00:00Z"]).ok();
    run(&db, &["push", "q", "later", "--at", "4102444800"]).ok();
    assert_eq!((run(&db, &["peek", "q"]).ok().as_str(), len(&db, "q").as_str()), ("", "0"));
    // What is due already is.
    run(&db, &["push", "q", "now", "--delay", "0s"]).ok();
    run(&db, &["push", "q", "past", "--at", "2000-01-01T00:00:00Z"]).ok();
    assert_eq!(run(&db, &["peek", "q", "-k", "9"]).ok(), "now\npast\n");
}

#[test]
fn a_daemon_handles_a_delayed_item_when_due() {
    let db = Database::new();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]));
    run(&db, &["push", "q", "for later", "--delay", "300ms"]).ok();
    daemon.wait_for("for later");
    run(&db, &["push", "q", "never", "--delay", "1h"]).ok();
    run(&db, &["push", "q", "for now"]).ok();
    daemon.wait_for("for now");
    daemon.signal(Signal::TERM);
    let ended = daemon.end();
    assert!(!ended.stderr.contains("never"), "{ended:?}");
    ended.ok();
}

#[test]
fn push_replaces_the_item_that_waits_under_its_unique_key() {
    let db = Database::new();
    let newest = |payload| run(&db, &["push", "q", payload, "--unique", "k", "--replace"]).pushed();
    assert_eq!(newest("first"), "pushed 1 item");
    assert_eq!(newest("second"), "pushed 0 items; replaced 1 item");
    let replaced = object(&db, &["push", "q", "third", "--unique", "k", "--replace"]);
    assert_eq!((&replaced["replaced"], replaced["ids"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(run(&db, &["pop", "q"]).ok(), "third\n");
    assert_eq!(
        run(&db, &["push", "q", "a", "--unique", "k", "--unique-for", "1h"]).pushed(),
        "pushed 1 item"
    );
    assert_eq!(run(&db, &["pop", "q"]).ok(), "a\n");
    assert_eq!(
        run(&db, &["push", "q", "b", "--unique", "k"]).pushed(),
        "pushed 0 items; 1 not pushed: an item with this key is there",
        "it has ended, and the key is taken for its time"
    );
}

#[test]
fn push_skips_an_item_whose_unique_key_is_taken() {
    let db = Database::new();
    let pushed = object(&db, &["push", "q", "first", "--unique", "k"]);
    assert_eq!(
        run(&db, &["push", "q", "second", "--unique", "k"]).pushed(),
        "pushed 0 items; 1 not pushed: an item with this key is there"
    );
    let again = object(&db, &["push", "q", "second", "--unique", "k"]);
    let expected = json!({
        "queue": "q", "acknowledged": 0, "duplicates": 1, "refused": 0, "repeated": false, "ids": pushed["ids"],
    });
    assert_eq!(again, expected);
    assert_eq!(first(&db, &["q"])["unique"], "k");
    assert_eq!(run(&db, &["pop", "q"]).ok(), "first\n");
    assert_eq!(run(&db, &["push", "q", "second", "--unique", "k"]).pushed(), "pushed 1 item");
}

#[test]
fn push_with_an_idempotency_key_happens_once() {
    let db = Database::new();
    let args = ["push", "q", "a", "--lines", "-", "--idempotency-key", "op"];
    assert_eq!(run_with_input(&db, &args, "b\nc\n").pushed(), "pushed 3 items");
    let again = "pushed 0 items; a push with this key was done before, with 3 items";
    assert_eq!(run_with_input(&db, &args, "b\nc\n").pushed(), again);
    assert_eq!(run(&db, &["pop", "q", "-k", "9"]).ok(), "a\nb\nc\n");
    assert_eq!(run_with_input(&db, &args, "b\nc\n").pushed(), again);
    let again = object(&db, &["push", "q", "a", "b", "c", "--idempotency-key", "op"]);
    assert_eq!((&again["acknowledged"], &again["acknowledged_before"]), (&json!(0), &json!(3)));
    assert_eq!((&again["repeated"], again["ids"].as_array().unwrap().len()), (&json!(true), 3));
    assert_eq!(object(&db, &["push", "q", "a", "--idempotency-key", "other"])["repeated"], json!(false));
    assert_eq!(len(&db, "q"), "1");
}

#[test]
fn an_idempotency_key_is_refused_for_other_items() {
    let db = Database::new();
    let push = |payload| run(&db, &["push", "q", "first", payload, "--idempotency-key", "morning"]);
    assert_eq!(push("second").pushed(), "pushed 2 items");
    let ran = push("third");
    assert_eq!(ran.summary(), "pushed 0 items");
    insta::assert_snapshot!(ran.failed(65), @r#"kvqueue: cannot push to queue "q" with idempotency key "morning": it was used for other items; repeat a push with the same items, and use a new key for other items"#);
    assert_eq!(run(&db, &["pop", "q", "-k", "9"]).ok(), "first\nsecond\n");
    // A delay that is counted from now is the same delay.
    let later = ["push", "q", "later", "--delay", "1h", "--idempotency-key", "evening"];
    assert_eq!(run(&db, &later).pushed(), "pushed 1 item");
    assert!(run(&db, &later).ok().contains("was done before"));
}

#[test]
fn a_push_with_an_idempotency_key_is_all_or_nothing() {
    let db = Database::new();
    let config = db.file("limited.toml");
    std::fs::write(&config, "[queues.q]\nhandler = 'log'\nmax-payload = '100kB'").unwrap();
    let args = ["push", "q", "--lines", "-", "--idempotency-key", "op", "--config", config.to_str().unwrap()];
    let ran = run_with_input(&db, &args, format!("a\n{}\n", "x".repeat(100_001)));
    assert_eq!(ran.summary(), "pushed 0 items");
    insta::assert_snapshot!(ran.failed(65), @r"
    kvqueue: line 2 of stdin not pushed: it has 100001 bytes, an item at most 100000
    kvqueue: items refused: 1; nothing was pushed
    ");
    let ran = run(&db, &["push", "q", "a", "--file", "/nowhere", "--idempotency-key", "op"]);
    assert_eq!(ran.summary(), "pushed 0 items");
    ran.failed(1);
    let ran = run_with_input(&db, &args, format!("{}\n", "x".repeat(90_000)).repeat(100));
    insta::assert_snapshot!(ran.failed(2), @"kvqueue: --idempotency-key is for what fits into one transaction: up to 65536 items and 9000000 bytes, with some hundred added for each item; push it in parts, each with a key of its own");
    assert_eq!((run(&db, &args[..2]).code, len(&db, "q").as_str()), (Some(2), "0"));
    let ran = run_with_input(&db, &args, format!("{}\n", "x".repeat(90_000)).repeat(98));
    assert_eq!(ran.pushed(), "pushed 98 items");
}

#[test]
fn invalid_push_options_are_usage_errors() {
    let db = Database::new();
    let error = |args: &[&str]| run(&db, &[&["push", "q"], args].concat()).failed(2);
    insta::assert_snapshot!(error(&["a", "b", "--unique", "k"]), @"kvqueue: --unique is for a single item; push several one by one, each with a key of its own");
    insta::assert_snapshot!(error(&["a", "--unique", ""]), @"kvqueue: unique key has 0 bytes, 1 to 1024 are possible; give it another");
    insta::assert_snapshot!(error(&["a", "--idempotency-key", ""]), @"kvqueue: idempotency key has 0 bytes, 1 to 1024 are possible; give it another");
    insta::assert_snapshot!(error(&["a", "--priority", "-1"]), @"kvqueue: priority -1 is for priority queues, this queue has none; leave it at 0");
    insta::assert_snapshot!(error(&["a", "--values", "tuple"]), @"kvqueue: --values is for --kind recipe and --kind priority; add --kind, or leave it out");
    let long = format!("k={}", "x".repeat(20_000));
    insta::assert_snapshot!(error(&["a", "--attr", &long]), @"kvqueue: attributes have 20009 bytes with 8 added for each, at most 16384 are possible; put what is long into the payload");
    insta::assert_snapshot!(error(&["a", "--attr", "k"]), @r#"
    error: invalid value 'k' for '--attr <NAME=VALUE>': "k" is not an attribute; write it as in "customer=ann"

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(error(&["a", "--delay", "5"]), @r#"
    error: invalid value '5' for '--delay <DURATION>': "5" is not a duration; write it as in "30s" or "500ms"

    For more information, try '--help'.
    "#);
    insta::assert_snapshot!(error(&["a", "--at", "noon"]), @r#"
    error: invalid value 'noon' for '--at <TIME>': "noon" is not a time; write it as in "2030-01-31T08:00:00Z", or in seconds since 1970

    For more information, try '--help'.
    "#);
    assert_eq!(run(&db, &["list"]).ok(), "");
}

#[test]
fn recipe_queues_are_used_by_options() {
    let db = Database::new();
    let recipe = ["--kind", "recipe", "--values", "tuple"];
    run(&db, &[&["push", "q", "a", "b"], &recipe[..]].concat()).ok();
    assert_eq!(run(&db, &[&["peek", "q", "-k", "9"], &recipe[..]].concat()).ok(), "a\nb\n");
    // Without its kind it is not taken for an empty one.
    let error = run(&db, &["peek", "q"]).failed(1);
    assert!(error.contains("it has items of kind recipe"), "{error}");
    assert_eq!(run(&db, &[&["pop", "q"], &recipe[..]].concat()).ok(), "a\n");
    assert_eq!(run(&db, &[&["len", "q"], &recipe[..]].concat()).ok(), "1\n");
    run(&db, &[&["delete", "q", "--yes"], &recipe[..]].concat()).ok();
    assert_eq!(run(&db, &[&["len", "q"], &recipe[..]].concat()).ok(), "0\n");
}

#[test]
fn push_takes_the_kind_of_a_queue_from_the_configuration() {
    let db = Database::new();
    let config = db.file("priority.toml");
    std::fs::write(&config, "[queues.p]\nhandler = 'log'\nkind = 'priority'\nend = 'max'").unwrap();
    let with_config =
        |args: &[&str]| run(&db, &[args, &["--config", config.to_str().unwrap()]].concat()).ok();
    for (payload, priority) in [("low", "-5"), ("high", "7"), ("middle", "0")] {
        with_config(&["push", "p", payload, "--priority", priority]);
    }
    assert_eq!(with_config(&["peek", "p", "-k", "9"]), "high\nmiddle\nlow\n");
    assert_eq!(with_config(&["pop", "p", "--end", "min"]), "low\n");
    assert_eq!(run(&db, &["len", "p", "--kind", "priority"]).ok(), "2\n");
}

#[test]
fn a_due_time_in_the_past_is_noted() {
    let db = Database::new();
    let ran = run(&db, &["push", "q", "late", "--at", "2001-09-09T01:46:40Z"]);
    let note = "kvqueue: --at 2001-09-09T01:46:40.000Z is in the past, so the items are ready at once";
    assert!(ran.stderr.lines().any(|line| line == note), "{ran:?}");
    assert_eq!(ran.pushed(), "pushed 1 item");
    assert_eq!(run(&db, &["pop", "q"]).ok(), "late\n");
    assert_eq!(run(&db, &["push", "q", "late", "--at", "1000000000", "-q"]).stderr, "");
}
