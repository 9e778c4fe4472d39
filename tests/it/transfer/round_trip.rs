//! An exported queue can be imported, and is then equal to the original.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{LAYOUTS, any, args, export_of, exported, file, in_order, len, normal, peeked, plain};
use crate::support::{Background, Database, Random, helper, kvqueue, run, run_with_input};

#[test]
fn export_and_import_preserve_items_of_every_state_and_kind() {
    let mut random = Random::new();
    for layout in LAYOUTS {
        let (db, other) = (Database::new(), Database::new());
        let lines = any(&mut random, 60, layout);
        let input = file(&db, "in", &export_of(&lines));
        let imported = run(&db, &args(&[&["import", "q", "--input", &input], layout])).ok();
        assert_eq!(imported, "imported 60 items\n", "{layout:?}");
        assert!(exported(&db, layout) == normal(&lines), "{layout:?}");

        let (first, second) = (db.file("first"), db.file("second"));
        let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
        run(&db, &args(&[&["export", "q", "--output", first], layout])).ok();
        run(&other, &args(&[&["import", "q", "--input", first], layout])).ok();
        run(&other, &args(&[&["export", "q", "-o", second], layout])).ok();
        assert!(exported(&other, layout) == normal(&lines), "{layout:?}");
        // In their order; but in the queues of recipes only ready items have one of their own.
        let ordered: &[&str] = if layout.is_empty() { &["ready", "waiting", "dead"] } else { &["ready"] };
        for state in ordered {
            let of = |db| in_order(db, &args(&[&["--state", state], layout]));
            assert!(of(&db) == of(&other), "{layout:?} {state}");
        }
        let taken = |db| peeked(db, &args(&[&["q"], layout]));
        assert!(taken(&db) == taken(&other), "{layout:?}");
    }
}

#[test]
fn export_and_import_preserve_the_history_of_items() {
    let (db, other) = (Database::new(), Database::new());
    Background::start(helper(&db, "dead::buries")).end().ok();
    run(&db, &["push", "q", "waiting", "--attr", "to=ann"]).ok();
    run(&db, &["push", "q", "later", "--at", "2100-01-01T00:00:00Z"]).ok();
    let text = run(&db, &["export", "q"]).ok();
    assert_eq!(run_with_input(&other, &["import", "q"], text).ok(), "imported 5 items\n");
    assert_eq!(exported(&db, &[]), exported(&other, &[]));
    let letters = run(&other, &["dead", "list", "q", "--json"]).ok();
    let letter: Value = serde_json::from_str(letters.lines().next().unwrap()).unwrap();
    assert_eq!((&letter["reason"], &letter["attempts"]), (&json!("no such address"), &json!(1)));
    let counts: Value = serde_json::from_str(&run(&other, &["len", "q", "--json"]).ok()).unwrap();
    assert_eq!(
        (&counts["ready"], &counts["waiting"], &counts["dead"]),
        (&json!(1), &json!(1), &json!(3)),
        "{counts}"
    );
}

#[test]
fn a_repeated_import_adds_items_only_with_again() {
    let db = Database::new();
    let input = file(&db, "in", &export_of(&plain(450)));
    let import = ["import", "q", "--input", input.as_str()];
    assert_eq!(run(&db, &import).ok(), "imported 450 items\n");
    assert_eq!(run(&db, &import).ok(), "imported 0 items, 450 were imported before\n");
    let object: Value = serde_json::from_str(&run(&db, &args(&[&import, &["--json"]])).ok()).unwrap();
    assert_eq!(object, json!({"queue": "q", "imported": 0, "imported_before": 450, "duplicates": 0}));
    assert_eq!(len(&db, &["q"]), 450);
    // Through a pipe it is the same.
    let text = std::fs::read(&input).unwrap();
    assert_eq!(
        run_with_input(&db, &["import", "q"], text).ok(),
        "imported 0 items, 450 were imported before\n"
    );
    assert_eq!(run(&db, &args(&[&import, &["--again"]])).ok(), "imported 450 items\n");
    assert_eq!(len(&db, &["q"]), 900);
    // Another export of the same items is another.
    let other = export_of(&plain(450)).replacen("\"queue\":\"q\"", "\"queue\":\"p\"", 1);
    let body = &other[..other.trim_end().rfind('\n').unwrap() + 1];
    let sum = twox_hash::xxhash3_128::Hasher::oneshot(body.as_bytes());
    let other = format!("{body}{{\"end\":true,\"items\":450,\"xxh3\":\"{sum:032x}\"}}\n");
    assert_eq!(run_with_input(&db, &["import", "q"], other).ok(), "imported 450 items\n");
}

#[test]
fn a_killed_import_continues_when_repeated() {
    let mut random = Random::new();
    for _ in 0..3 {
        let db = Database::new();
        let lines = plain(3_000);
        let input = file(&db, "in", &export_of(&lines));
        let mut import = Background::start(kvqueue(&db, &["import", "q", "--input", &input, "-v"]));
        let after = 200 * (1 + random.below(10));
        import.wait_for(&format!("imported {after}"));
        import.signal(Signal::KILL);
        assert_eq!(import.end().code, None);
        let there = len(&db, &["q"]);
        assert!((after..3_000).contains(&there), "{there}");
        let again = run(&db, &["import", "q", "--input", &input]).ok();
        assert_eq!(again, format!("imported {} items, {there} were imported before\n", 3_000 - there));
        let payloads: Vec<_> =
            run(&db, &["peek", "q", "-k", "9999"]).ok().lines().map(str::to_owned).collect();
        assert_eq!(payloads, (0..3_000).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn import_skips_items_whose_unique_keys_are_taken() {
    let db = Database::new();
    run(&db, &["push", "q", "there", "--unique", "order 1"]).ok();
    let lines = [
        r#"{"state":"ready","payload":"refused","unique":"order 1"}"#.to_owned(),
        r#"{"state":"ready","payload":"new","unique":"order 2"}"#.to_owned(),
        r#"{"state":"dead","payload":"dead","unique":"order 1"}"#.to_owned(),
    ];
    let input = file(&db, "in", &export_of(&lines));
    for text in ["imported 2 items\n", "imported 0 items, 2 were imported before\n"] {
        let ran = run(&db, &["import", "q", "--input", &input]);
        assert_eq!(ran.stdout, text);
        insta::allow_duplicates! {
            insta::assert_snapshot!(ran.failed(65), @"kvqueue: items left out, since others have their unique keys: 1");
        }
    }
    assert_eq!(run(&db, &["peek", "q", "-k", "9"]).ok(), "there\nnew\n");
}

#[test]
fn an_export_reports_exported_and_skipped_items() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    run(&db, &["push", "q", "c", "--delay", "1h"]).ok();
    let output = db.file("out");
    let output = output.to_str().unwrap();
    let ran = run(&db, &["export", "q", "-o", output]).ok();
    assert_eq!(ran, format!("exported 3 items to {output}\n"));
    let object: Value =
        serde_json::from_str(&run(&db, &["export", "q", "-o", output, "--json"]).ok()).unwrap();
    assert_eq!(
        object,
        json!({"queue": "q", "exported": 3, "ready": 2, "waiting": 1, "dead": 0, "running": 0})
    );
    let text = std::fs::read_to_string(output).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let about = (&header["kvqueue_export"], &header["queue"], &header["kind"], &header["states"]);
    assert_eq!(about, (&json!(1), &json!("q"), &json!("fifo"), &json!(["waiting", "ready", "dead"])));
    assert!(header["exported_at"].as_str().unwrap().ends_with('Z'));
    assert!(!std::fs::exists(format!("{output}.unfinished")).unwrap());
    // They are still in the queue.
    assert_eq!(len(&db, &["q"]), 2);
    run(&db, &["push", "none", "x"]).ok();
    run(&db, &["pop", "none"]).ok();
    assert_eq!(run(&db, &["export", "none"]).ok().lines().count(), 2);
}

#[test]
fn a_failed_export_keeps_the_previous_file() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let output = file(&db, "out", "before");
    std::fs::create_dir(format!("{output}.unfinished")).unwrap();
    let error = run(&db, &["export", "q", "-o", &output]).failed(1);
    assert!(error.starts_with("kvqueue: cannot write ") && error.contains(".unfinished"), "{error}");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "before");
    let full = run(&db, &["export", "q", "-o", "/dev/full"]).failed(1);
    assert!(full.contains("No space left on device"), "{full}");
}

#[test]
fn import_into_a_fifo_queue_keeps_the_order_of_the_file() {
    let db = Database::new();
    for (payload, priority) in [("b", "5"), ("a", "-5")] {
        run(&db, &["push", "q", payload, "--kind", "priority", "--priority", priority]).ok();
    }
    let text = run(&db, &["export", "q", "--kind", "priority"]).ok();
    let ran = run_with_input(&db, &["import", "fifo"], text);
    insta::assert_snapshot!(ran.stderr, @"kvqueue: this is an export of a priority queue, and the queue is none: the items go in in the order of the file");
    assert_eq!(ran.ok(), "imported 2 items\n");
    assert_eq!(run(&db, &["peek", "fifo", "-k", "9"]).ok(), "a\nb\n");
}
