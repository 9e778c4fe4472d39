//! `kvqueue demo` consumes each item exactly once, and shows its consumers at it.

use crate::support::{Database, run};

#[test]
fn demo_consumes_each_item_exactly_once() {
    let ran = run(&Database::embedded(), &["demo", "--json", "-v"]);
    let waits = ran.events("consumer_idle");
    assert!(waits >= 5, "two consumers wait, then all three: {}", ran.stderr);
    let report: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!((&report["duplicates"], &report["losses"]), (&0.into(), &0.into()));
    let consumers = report["consumers"].as_array().unwrap();
    assert_eq!(consumers.iter().map(|consumer| consumer["items"].as_u64().unwrap()).sum::<u64>(), 1000);
    let ks: Vec<_> = consumers.iter().map(|consumer| consumer["k"].as_u64().unwrap()).collect();
    assert_eq!(ks, [1, 10, 10]);
}

#[test]
fn demo_prints_a_table() {
    let ran = run(&Database::embedded(), &["demo"]);
    if cfg!(debug_assertions) {
        assert!(ran.stderr.contains("this program is not optimised"), "{}", ran.stderr);
    } else {
        assert_eq!(ran.stderr, "", "the table is all that it shows");
    }
    let out = ran.ok();
    for row in ["push rate", "consumer 1 (K = 1)", "consumer 2 (K = 10)", "duplicates", "losses"] {
        assert!(out.contains(row), "{row} is missing in\n{out}");
    }
}
