//! Each cell, with tiny sizes.

use serde_json::Value;

use super::{Scratch, is_latency, number, on, throw_away};
use crate::support::Database;

/// On a directory of its own, and on a database that was named: embedded, or the cluster of the environment.
fn everywhere(args: &[&str], check: impl Fn(&Value)) {
    let report = throw_away(args);
    assert_eq!(report["engine"], "embedded");
    check(&report);
    let db = Database::new();
    let report = on(&db, args);
    assert_eq!(report["engine"], if db.url.starts_with("embedded:") { "embedded" } else { "cluster" });
    check(&report);
}

#[test]
fn push_cell_reports_rate_and_latency() {
    everywhere(&["push", "--clients", "3", "--batch", "4", "--seconds", "0.2"], |report| {
        assert_eq!(
            (&report["clients"], &report["batch"], &report["payload"]),
            (&3.into(), &4.into(), &100.into())
        );
        let items = number(report, "items");
        assert!(items >= 12.0 && items % 4.0 == 0.0, "{report}");
        let rate = items / number(report, "seconds");
        assert!((rate - number(report, "per_second")).abs() < 1.0, "{report}");
        is_latency(&report["latency_us"]);
    });
}

#[test]
fn push_cell_with_a_shared_producer_reports_latency() {
    everywhere(&["push", "--clients", "8", "--shared", "--seconds", "0.2"], |report| {
        assert_eq!((&report["shared"], &report["clients"]), (&true.into(), &8.into()));
        assert!(number(report, "items") >= 8.0, "{report}");
        is_latency(&report["latency_us"]);
    });
}

#[test]
fn push_cell_accepts_long_payloads() {
    let report = throw_away(&["push", "--payload", "100000", "--batch", "3", "--seconds", "0.1"]);
    assert_eq!(report["payload"], 100_000);
}

#[test]
fn burn_cell_runs_every_delivery_and_fetch_strategy() {
    let db = Database::new();
    for delivery in ["at-least-once", "at-most-once", "exactly-once"] {
        for take in ["front", "spread", "staged"] {
            let cell = [
                "burn",
                "--items",
                "60",
                "--workers",
                "2",
                "--k",
                "7",
                "--delivery",
                delivery,
                "--fetch-strategy",
                take,
            ];
            let report = on(&db, &cell);
            assert_eq!((&report["delivery"], &report["fetch_strategy"]), (&delivery.into(), &take.into()));
            assert_eq!(
                (&report["items"], &report["k"], &report["workers"]),
                (&60.into(), &7.into(), &2.into())
            );
        }
    }
}

#[test]
fn burn_cell_accepts_a_handler_of_single_items() {
    let report =
        throw_away(&["burn", "--seconds", "0.05", "--workers", "1", "--k", "3", "--handler", "each"]);
    assert!(number(&report, "items") >= 3.0, "{report}");
    assert_eq!(report["handler"], "each");
}

#[test]
fn burn_cell_runs_as_the_baseline() {
    everywhere(&["burn", "--items", "200", "--workers", "4", "--k", "5", "--baseline"], |report| {
        assert_eq!((&report["items"], &report["baseline"]), (&200.into(), &true.into()));
        assert_eq!(
            (&report["delivery"], &report["fetch_strategy"]),
            (&"at-most-once".into(), &"front".into())
        );
        assert!(number(report, "conflicts_per_100_takes") >= 0.0);
    });
}

#[test]
fn sustained_cell_reports_rate_and_latency() {
    everywhere(&["sustained", "--rate", "100", "--seconds", "0.3"], |report| {
        assert_eq!(
            (&report["items"], &report["rate"], &report["unfinished"]),
            (&30.into(), &100.into(), &0.into())
        );
        for latency in ["latency_us", "ack_us", "push_us"] {
            is_latency(&report[latency]);
        }
        assert!(report["ack_us"]["p50"].as_f64() >= report["latency_us"]["p50"].as_f64(), "{report}");
    });
}

#[test]
fn sustained_cell_runs_as_the_baseline() {
    let report = throw_away(&["sustained", "--rate", "100", "--seconds", "0.3", "--baseline"]);
    is_latency(&report["latency_us"]);
    assert!(report["ack_us"].is_null());
}

#[test]
fn flood_cell_reports_its_rates() {
    everywhere(&["flood", "--seconds", "0.3", "--producers", "3", "--workers", "2"], |report| {
        let (pushes, items, left) =
            (number(report, "pushes"), number(report, "items"), number(report, "left"));
        assert!(items + left <= pushes && pushes > 0.0, "{report}");
        is_latency(&report["push_us"]);
    });
}

#[test]
fn flood_cell_runs_with_a_shared_producer() {
    let report = throw_away(&["flood", "--seconds", "0.2", "--producers", "8", "--shared"]);
    assert!(number(&report, "pushes") > 0.0 && report["shared"] == true, "{report}");
}

#[test]
fn flood_cell_runs_as_the_baseline() {
    let report = throw_away(&["flood", "--seconds", "0.2", "--producers", "3", "--baseline"]);
    assert!(number(&report, "pushes_per_second") > 0.0, "{report}");
}

#[test]
fn pickup_cell_reports_latency() {
    for baseline in [&[][..], &["--baseline"]] {
        let cell = [&["pickup", "--every", "30ms", "--count", "4"], baseline].concat();
        everywhere(&cell, |report| {
            assert_eq!((&report["items"], &report["every_ms"]), (&4.into(), &30.into()));
            is_latency(&report["latency_us"]);
            is_latency(&report["push_us"]);
        });
    }
}

#[test]
fn pull_cell_processes_all_items() {
    for separate in [&[][..], &["--separate"]] {
        let cell = [&["pull", "--items", "300", "--workers", "3", "--k", "7"], separate].concat();
        everywhere(&cell, |report| {
            assert_eq!(
                (&report["items"], &report["k"], &report["workers"]),
                (&300.into(), &7.into(), &3.into())
            );
            assert!(number(report, "daemon_cpu_us_per_item") > 0.0, "{report}");
        });
    }
}

#[test]
fn idle_cell_reports_cpu_time_and_memory() {
    everywhere(&["idle", "--queues", "3", "--workers", "2", "--seconds", "0.2"], |report| {
        assert!(number(report, "cpu_seconds_per_second") < 1.0, "{report}");
        assert!(number(report, "resident_kb") > 1_000.0, "{report}");
        assert!(number(report, "resident_kb_per_queue") >= 0.0, "{report}");
    });
}

#[test]
fn bench_without_a_cell_prints_a_table() {
    let scratch = Scratch::new();
    let ran: crate::support::Ran = scratch.bench(&["--seconds", "0.05"]).output().unwrap().into();
    let out = ran.ok();
    for text in ["push, 32 clients", "exactly once", "an idle daemon: ", "repeated", "flushes"] {
        assert!(out.contains(text), "{text} is missing in\n{out}");
    }
    scratch.is_empty();
}
