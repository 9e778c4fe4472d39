//! Interruptions, limits, wrong values.

use rustix::process::Signal;

use super::Scratch;
use crate::support::{Background, Database, Ran, kvqueue, run};

/// A cell that goes on for long, and tells when its daemon works.
const LONG: [&str; 6] = ["sustained", "--seconds", "100", "--rate", "100", "-v"];

#[track_caller]
fn interrupted(mut bench: Background, signal: Signal) {
    bench.wait_for_event("items_fetched");
    bench.signal(signal);
    let said = bench.end().failed(1);
    assert!(said.contains("interrupted"), "{said}");
}

#[test]
fn a_signal_ends_a_cell_and_its_directory() {
    for signal in [Signal::INT, Signal::TERM] {
        let scratch = Scratch::new();
        interrupted(Background::start(scratch.bench(&LONG)), signal);
        scratch.is_empty();
    }
}

#[test]
fn a_signal_ends_a_cell_and_its_queues() {
    let db = Database::new();
    run(&db, &["push", "other", "stays"]).ok();
    interrupted(Background::start(kvqueue(&db, &[&["bench"], &LONG[..]].concat())), Signal::INT);
    assert_eq!(run(&db, &["list"]).ok(), "other\n");
    assert_eq!(run(&db, &["len", "other"]).ok(), "1\n");
}

#[test]
fn a_signal_ends_a_cell_that_processes_a_full_queue() {
    let scratch = Scratch::new();
    let cell = ["burn", "--items", "30000", "--k", "1", "-v"];
    interrupted(Background::start(scratch.bench(&cell)), Signal::INT);
    scratch.is_empty();
}

#[test]
fn a_signal_ends_the_suite() {
    let scratch = Scratch::new();
    interrupted(Background::start(scratch.bench(&["--seconds", "0.1", "-v"])), Signal::INT);
    scratch.is_empty();
}

#[test]
fn a_cell_over_its_limit_is_aborted() {
    let scratch = Scratch::new();
    let cell = ["burn", "--items", "30000000", "--limit", "1.5", "--seconds", "0.1"];
    let ran: Ran = scratch.bench(&cell).output().unwrap().into();
    let said = ran.failed(1);
    assert!(said.contains("it did not end within 1.5 s; ask for less, or raise --limit"), "{said}");
    scratch.is_empty();
}

#[test]
fn wrong_values_are_refused_by_name() {
    let scratch = Scratch::new();
    let wrong: &[(&[&str], &str)] = &[
        (&["push", "--clients", "0"], "--clients"),
        (&["push", "--batch", "0"], "--batch"),
        (&["push", "--batch", "10000", "--payload", "10000"], "--batch 10000 times --payload 10000"),
        (&["push", "--shared", "--batch", "2"], "--shared"),
        (&["push", "--payload", "7"], "--payload"),
        (&["push", "--seconds", "0"], "--seconds"),
        (&["push", "--limit", "0"], "--limit"),
        (&["push", "--limit", "3", "--seconds", "3"], "--seconds 3 is not below --limit 3"),
        (&["burn", "--k", "0"], "--k"),
        (&["burn", "--workers", "0"], "--workers"),
        (&["burn", "--items", "0"], "--items"),
        (&["burn", "--fetch-strategy", "back"], "--fetch-strategy"),
        (&["burn", "--baseline", "--fetch-strategy", "front"], "--fetch-strategy"),
        (&["burn", "--baseline", "--delivery", "at-most-once"], "--delivery"),
        (&["sustained", "--rate", "0"], "--rate"),
        (&["sustained", "--rate", "200000", "--seconds", "200"], "--rate 200000 for --seconds 200"),
        (&["flood", "--producers", "0"], "--producers"),
        (&["pickup", "--every", "200"], "--every"),
        (&["pickup", "--count", "0"], "--count"),
        (&["idle", "--queues", "0"], "--queues"),
        (&["scale"], "scale"),
        (&["swim"], "swim"),
    ];
    for (args, name) in wrong {
        let ran: Ran = scratch.bench(args).output().unwrap().into();
        let said = ran.failed(2);
        assert!(said.contains(name), "{args:?}: {said}");
    }
    scratch.is_empty();
}

#[test]
fn dir_and_database_options_exclude_each_other() {
    let db = Database::embedded();
    let said = run(&db, &["bench", "push", "--dir", "."]).failed(2);
    assert!(said.contains("--dir") && said.contains("--database"), "{said}");
}

#[test]
fn an_unusable_directory_or_database_is_named() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("missing");
    for cell in [&["push"][..], &[]] {
        let ran: Ran = scratch.bench_in(&missing, cell).output().unwrap().into();
        let said = ran.failed(1);
        assert!(
            said.contains(missing.to_str().unwrap()) && said.contains("name another with --dir"),
            "{said}"
        );
    }
    let nowhere = Database::at("embedded:/proc/nowhere".to_owned(), String::new());
    for cell in [&["bench", "push"][..], &["bench"]] {
        let said = run(&nowhere, cell).failed(69);
        assert!(said.contains("/proc/nowhere"), "{said}");
    }
}
