//! Attempts: a failure is tried again, the last one makes a dead letter, and so do items that kill their daemon.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt};

use crate::support::{Database, Ran, run, run_script};

/// How often a daemon may be killed by an item that it handles.
const DEATHS: u32 = 10;

fn read(db: &Database, name: &str) -> String {
    fs::read_to_string(db.file(name)).unwrap_or_default()
}

fn processed(db: &Database, script: &str, retry: &str) -> Ran {
    let queue = format!("retry = {{ base = '10ms', {retry} }}");
    let mut command = run_script(db, script, &queue, &["--until-empty"]);
    command.env("KVQUEUE_LOG__FORMAT", "json").output().unwrap().into()
}

#[test]
fn a_failing_item_is_retried_until_done() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    let script = "echo $KVQUEUE_ATTEMPT >> tried; [ $KVQUEUE_ATTEMPT = 3 ] && cat >> done";
    let ran = processed(&db, script, "max-attempts = 5");
    assert_eq!(ran.events("item_failed"), 4, "{ran:?}");
    ran.ok();
    assert_eq!(read(&db, "done").len(), "onetwo".len());
    let tried = read(&db, "tried");
    let mut tried: Vec<_> = tried.lines().collect();
    tried.sort_unstable();
    assert_eq!(tried, ["1", "1", "2", "2", "3", "3"]);
}

#[test]
fn after_the_last_attempt_an_item_is_a_dead_letter() {
    let db = Database::new();
    run(&db, &["push", "q", "bad", "good"]).ok();
    let script = "word=$(cat); echo $word >> tried; [ $word = good ]";
    let ran = processed(&db, script, "max-attempts = 3");
    assert!(
        ran.stderr.contains("sh failed with exit status: 1") && !ran.stderr.contains("3 of 3"),
        "{ran:?}"
    );
    assert_eq!(ran.events("item_dead"), 1, "{ran:?}");
    ran.ok();
    assert_eq!(read(&db, "tried").matches("bad").count(), 3);
    assert_eq!(read(&db, "tried").matches("good").count(), 1);
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn only_the_item_that_kills_its_daemon_becomes_a_dead_letter() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "poison", "two"]).ok();
    let script = "word=$(cat); echo $word >> tried; [ $word = poison ] && kill -9 $PPID; echo $word >> done";
    let queue = "lease = '1s'\nretry = { max-attempts = 3 }";
    let mut deaths = 0;
    loop {
        let output = run_script(&db, script, queue, &["--until-empty"]).output().unwrap();
        if output.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(9), "{said}");
        deaths += 1;
        assert!(deaths < DEATHS, "it is tried without end: {said}");
    }
    assert_eq!((deaths, read(&db, "tried").matches("poison").count()), (3, 3));
    assert!(run(&db, &["len", "q", "--json"]).ok().contains("\"dead\":1"));
    let done = read(&db, "done");
    // What was done and not settled when the daemon died was done again.
    assert_eq!(done.lines().filter(|line| *line != "poison").collect::<BTreeSet<_>>(), ["one", "two"].into());
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}
