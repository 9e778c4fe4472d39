//! Sources and targets that somebody uses while a queue is moved.

use std::{process::Stdio, time::Duration};

use super::{counts, killed_in, migrate, migration};
use crate::support::{Background, Database, Ran, helper, run, run_with_input};

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("item {n}\n")).collect()
}

#[test]
fn pushes_to_the_source_are_noticed_and_migrated_when_they_end() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run_with_input(&from, &["push", "q", "--lines", "-"], lines(20_000)).ok();
    let mut producer = helper(&from, "migrate::others::pushes");
    let mut producer = producer.stdout(Stdio::piped()).spawn().unwrap();
    let refused = migrate(&from, &to, &[]).failed(1);
    assert!(refused.contains("4 times it changed while it was compared"), "{refused}");
    assert!(refused.contains("rows were copied again"), "{refused}");
    producer.kill().unwrap();
    producer.wait().unwrap();
    let there = counts(&from, "q");
    migrate(&from, &to, &[]).ok();
    assert!(there["ready"].as_u64().unwrap() > 20_000, "{there}");
    assert_eq!(counts(&to, "q"), there);
}

#[test]
fn leases_are_lost_when_the_queue_has_moved() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run(&from, &["push", "q", "one", "two"]).ok();
    let holder = helper(&from, "migrate::others::holds");
    let (mut holder, input) = Background::fed(holder);
    holder.wait_for("holds an item");
    let moved = migrate(&from, &to, &[]);
    assert!(moved.stderr.contains("1 batches of \"q\" are still running"), "{moved:?}");
    let said = moved.ok();
    assert!(said.contains("2 items (1 ready, 1 running)"), "{said}");
    drop(input);
    let holder = holder.end();
    assert!(holder.stderr.contains("moved and lost"), "{holder:?}");
    assert_eq!(counts(&from, "q")["running"], 0);
    let there = counts(&to, "q");
    assert_eq!((&there["ready"], &there["running"]), (&1.into(), &1.into()));
}

#[test]
fn a_target_that_is_used_too_early_is_noticed_and_keeps_its_items() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run_with_input(&from, &["push", "q", "--lines", "-"], lines(20_000)).ok();
    assert!(killed_in(migration(&from, &to, &[]), "copying", 2, Duration::ZERO).is_none());
    let error = run(&to, &["push", "q", "by hand"]).failed(1);
    assert!(error.contains("is frozen since") && error.contains("is moving it here from"), "{error}");
    push_all_the_same(&to, "pushed too early");
    let refused = migrate(&from, &to, &[]).failed(1);
    assert!(refused.contains("queue \"q\" is used at the target"), "{refused}");
    let copied = run(&to, &["peek", "q", "-k", "30000"]).ok();
    assert!(copied.ends_with("pushed too early\n"), "it is still there");
    run(&to, &["delete", "q", "--frozen", "--yes"]).ok();
    migrate(&from, &to, &[]).ok();
    assert_eq!(run(&to, &["peek", "q", "-k", "30000"]).ok(), lines(20_000));
}

#[test]
fn pushes_to_the_target_after_the_copy_are_counted() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run(&from, &["push", "q", "one", "two"]).ok();
    // Everything is compared, and the source fenced; only the end is missing.
    assert!(killed_in(migration(&from, &to, &[]), "landing", 1, Duration::ZERO).is_none());
    let before = counts(&to, "q");
    push_all_the_same(&to, "three");
    let moved = migrate(&from, &to, &[]).ok();
    assert!(moved.contains("\"q\": it is at the target"), "{moved}");
    assert_eq!(counts(&to, "q")["ready"], 3, "{before}");
    assert_eq!(run(&to, &["peek", "q", "-k", "9"]).ok(), "one\ntwo\nthree\n");
}

/// Pushes as a program does that knows nothing of frozen queues.
fn push_all_the_same(db: &Database, item: &str) {
    Ran::from(helper(db, "migrate::others::pushes").arg(item).output().unwrap()).ok();
}

/// How the queues of a database are paused; `first` pauses one of them.
fn pauses(db: &Database, first: bool) -> Vec<String> {
    let mut command = helper(db, "migrate::others::pauses");
    if first {
        command.arg("pause");
    }
    let said = Ran::from(command.output().unwrap()).ok();
    said.lines().filter_map(|line| line.strip_prefix("pause ").map(str::to_owned)).collect()
}

#[test]
fn a_migrated_queue_is_paused_until_it_arrives_unless_paused_before() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run_with_input(&from, &["push", "q", "--lines", "-"], lines(10_000)).ok();
    run(&from, &["push", "paused", "one"]).ok();
    let by_hand = ["q none", "paused by hand, frozen false"];
    assert_eq!(pauses(&from, true), by_hand);
    assert!(killed_in(migration(&from, &to, &["--queue", "q"]), "comparing", 1, Duration::ZERO).is_none());
    let moving =
        |pauses: &[String]| pauses[0].contains("kvqueue migrate is moving it") && pauses[0].ends_with("true");
    for (db, other) in [(&from, &to), (&to, &from)] {
        let pauses = pauses(db, false);
        assert!(moving(&pauses) && pauses[0].contains(&other.url), "{pauses:?}");
    }
    migrate(&from, &to, &[]).ok();
    assert_eq!(pauses(&to, false), by_hand);
    for pause in pauses(&from, false) {
        assert!(pause.contains("kvqueue migrate moved it to") && pause.ends_with("true"), "{pause}");
    }
    // A daemon at the target begins with it.
    run(&to, &["run", "--queue", "q", "--handler", "log", "--until-empty"]).ok();
    assert_eq!(counts(&to, "q")["done"], 10_000);
}

#[test]
fn two_migrations_of_a_queue_at_once_end_as_one() {
    let (from, to) = (Database::embedded(), Database::embedded());
    run_with_input(&from, &["push", "q", "--lines", "-"], lines(20_000)).ok();
    let start = || {
        let mut command = migration(&from, &to, &[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [start(), start()].map(|child| Ran::from(child.wait_with_output().unwrap()));
    for ran in &both {
        let is_refused =
            ran.code == Some(1) && ran.stderr.contains("by another kvqueue migrate at the same time");
        assert!(ran.code == Some(0) || is_refused, "{ran:?}");
    }
    migrate(&from, &to, &[]).ok();
    assert_eq!(run(&to, &["peek", "q", "-k", "30000"]).ok(), lines(20_000));
    assert_eq!(counts(&to, "q")["ready"], 20_000);
}

#[test]
fn queues_of_recipes_are_migrated_in_order() {
    let (from, to) = (Database::embedded(), Database::embedded());
    let kind = ["--kind", "priority"];
    for (item, priority) in [("low", "-3"), ("high", "7"), ("middle", "0"), ("higher", "700")] {
        run(&from, &[&["push", "p", item, "--priority", priority], &kind[..]].concat()).ok();
    }
    run(&from, &["push", "r", "first", "second", "--kind", "recipe"]).ok();
    let moved = migrate(&from, &to, &["--queue", "p", "--kind", "priority"]).ok();
    assert!(moved.starts_with("\"p\": 4 items (4 ready) in "), "{moved}");
    migrate(&from, &to, &["--queue", "r", "--kind", "recipe"]).ok();
    let items = |queue, kind| run(&to, &["peek", queue, "-k", "9", "--kind", kind]).ok();
    assert_eq!(items("p", "priority"), "low\nmiddle\nhigh\nhigher\n");
    assert_eq!(items("r", "recipe"), "first\nsecond\n");
    assert_eq!(run(&to, &["pop", "p", "--kind", "priority", "--end", "max"]).ok(), "higher\n");
}

#[test]
fn a_history_and_its_index_are_migrated() {
    let (from, to) = (Database::embedded(), Database::embedded());
    let config = from.file("history.toml");
    let queue = "[queues.q]\nhandler = 'log'\nhistory = '24h'\nhistory-index = ['customer']\n";
    std::fs::write(&config, queue).unwrap();
    for customer in ["customer=ann", "customer=bob"] {
        run(&from, &["push", "q", "x", "--attr", customer]).ok();
        run(&from, &["run", "--config", config.to_str().unwrap(), "--until-empty"]).ok();
    }
    let ended = |db: &Database, args: &[&str]| run(db, &[&["history", "q", "--json"], args].concat()).ok();
    let all = ended(&from, &[]);
    assert_eq!(all.lines().count(), 2);
    migrate(&from, &to, &[]).ok();
    assert_eq!(ended(&to, &[]), all);
    assert_eq!(ended(&to, &["--attribute", "customer=bob"]).lines().count(), 1);
    // Ends are recorded there, too: the setting is there.
    run(&to, &["push", "q", "y"]).ok();
    run(&to, &["pop", "q"]).ok();
    assert_eq!(ended(&to, &[]).lines().count(), 3);
}
