//! `kvqueue requeue`

use serde_json::{Value, json};

use super::{export_of, file, len};
use crate::support::{Background, Database, freeze, helper, run};

/// A queue with delayed items, dead letters and a ready one.
fn filled() -> Database {
    let db = Database::new();
    let lines = [
        r#"{"state":"waiting","due":"2100-01-01T00:00:00Z","payload":"later 1","attempts":3}"#,
        r#"{"state":"waiting","due":"2200-01-01T00:00:00Z","payload":"later 2"}"#,
        r#"{"state":"ready","payload":"ready"}"#,
        r#"{"state":"dead","payload":"dead 1","attempts":20}"#,
        r#"{"state":"dead","payload":"dead 2","unique":"order 1"}"#,
    ];
    let text = export_of(&lines.map(str::to_owned));
    run(&db, &["import", "q", "--input", &file(&db, "in", &text)]).ok();
    db
}

/// The ids of all items, by payload.
fn id(db: &Database, payload: &str) -> String {
    let text = run(db, &["export", "q"]).ok();
    let of = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let item = text.lines().map(of).find(|item| item["payload"] == payload).unwrap();
    item["id"].as_str().unwrap().to_owned()
}

fn ready(db: &Database) -> Vec<String> {
    let mut ready: Vec<_> = run(db, &["peek", "q", "-k", "99"]).ok().lines().map(str::to_owned).collect();
    ready.sort();
    ready
}

#[test]
fn requeue_makes_all_items_of_a_state_ready() {
    let db = filled();
    assert_eq!(run(&db, &["requeue", "q", "--waiting"]).ok(), "requeued 2 items\n");
    assert_eq!(ready(&db), ["later 1", "later 2", "ready"]);
    let first: Value = serde_json::from_str(run(&db, &["peek", "q", "--json"]).ok().trim()).unwrap();
    assert_eq!((&first["payload"], &first["attempt"]), (&json!("later 1"), &json!(4)));
    let object: Value = serde_json::from_str(&run(&db, &["requeue", "q", "--dead", "--json"]).ok()).unwrap();
    assert_eq!(
        object,
        json!({"queue": "q", "done": "requeued", "items": 2, "refused": 0, "unreadable": 0, "more": false})
    );
    assert_eq!(len(&db, &["q"]), 5);
    assert_eq!(
        run(&db, &["requeue", "q", "--dead", "--waiting", "--expired"]).ok(),
        "requeued 0 items of expired leases\nrequeued 0 items\n"
    );
    let both = filled();
    assert_eq!(run(&both, &["requeue", "q", "--dead", "--waiting"]).ok(), "requeued 4 items\n");
}

#[test]
fn requeue_selects_items_by_id() {
    let db = filled();
    let ids = ["later 2", "dead 1", "ready"].map(|payload| id(&db, payload));
    let unknown = "0123456789abcdef01234567";
    let ran = run(&db, &["requeue", "q", &ids[0], &ids[1]]).ok();
    assert_eq!(
        ran,
        format!("requeued {}, which was scheduled\nrequeued {}, which was dead\n", ids[0], ids[1])
    );
    assert_eq!(ready(&db), ["dead 1", "later 2", "ready"]);
    let ran = run(&db, &["requeue", "q", &ids[2], unknown]);
    assert_eq!(ran.stdout, "");
    insta::assert_snapshot!(ran.failed(1).replace(&ids[2], "[id]"), @r"
    kvqueue: [id] is not requeued: it is ready already; there is nothing to do
    kvqueue: 0123456789abcdef01234567 is not requeued: there is no such item; it has ended, or was never in this queue
    kvqueue: items not requeued: 2 of 2
    ");
    let ran = run(&db, &["requeue", "q", unknown, "--json"]);
    let why =
        format!("{unknown} is not requeued: there is no such item; it has ended, or was never in this queue");
    assert_eq!(
        serde_json::from_str::<Value>(&ran.stdout).unwrap(),
        json!({"id": unknown, "done": null, "why": why})
    );
}

#[test]
fn requeue_leaves_a_dead_letter_whose_unique_key_is_taken() {
    let db = filled();
    run(&db, &["push", "q", "another", "--unique", "order 1"]).ok();
    let ran = run(&db, &["requeue", "q", "--dead"]);
    assert_eq!(ran.stdout, "requeued 1 item\n");
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: items not requeued: 1, since other items have their unique keys");
    let id = id(&db, "dead 2");
    let error = run(&db, &["requeue", "q", &id]).failed(1);
    assert!(error.contains(" has its unique key; cancel that item"), "{error}");
}

#[test]
fn requeue_needs_ids_or_a_state() {
    let db = Database::new();
    for wrong in [&["requeue", "q"][..], &["requeue", "q", "x01", "--dead"], &["requeue", "q", "no id"]] {
        run(&db, wrong).failed(2);
    }
}

#[test]
fn requeue_returns_items_of_expired_leases_only() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c"]).ok();
    run(&db, &["push", "q", "later", "--delay", "1h"]).ok();
    Background::start(helper(&db, "transfer::requeue::take_and_die")).end().ok();
    assert_eq!(ready(&db), ["c"]);
    assert_eq!(run(&db, &["requeue", "q", "--expired"]).ok(), "requeued 1 item of expired leases\n");
    assert_eq!(ready(&db), ["a", "c"]);
    assert_eq!(run(&db, &["requeue", "q", "--expired"]).ok(), "requeued 0 items of expired leases\n");
    let ran = run(&db, &["export", "q"]);
    assert_eq!(ran.stderr, "kvqueue: running items, which are not exported: 1\n");
    assert_eq!(ran.ok().lines().count(), 5);
}

#[test]
fn requeue_move_and_import_are_refused_for_a_frozen_queue() {
    let db = filled();
    let input = file(&db, "in", &export_of(&[]));
    run(&db, &["push", "other", "item"]).ok();
    freeze(&db);
    let commands = [
        &["requeue", "q", "--waiting"][..],
        &["move", "q", "other", "--all"],
        &["move", "other", "q", "--all"],
        &["import", "q", "--input", &input],
        &["push", "q", "more"],
        &["pop", "q"],
        &["requeue", "q", "--dead"],
        &["dead", "purge", "q", "--all", "--yes"],
    ];
    for command in commands {
        insta::allow_duplicates! {
            insta::assert_snapshot!(run(&db, command).failed(1), @r#"kvqueue: queue "q" is frozen since 2027-01-15T08:00:00.000Z: migrating; use it where it is moved to; or if you know that nobody moves it: kvqueue resume q --frozen"#);
        }
    }
    assert_eq!(ready(&db), ["ready"]);
    assert!(run(&db, &["len", "q", "--json"]).ok().contains(r#""dead":2"#));
}
