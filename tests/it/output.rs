//! stdout that is closed early.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use crate::support::{Database, Ran, kvqueue, run};

/// Starts a command, reads its first line of output, and closes its stdout.
fn first_line_only(db: &Database, args: &[&str]) -> (String, Ran) {
    let mut command = kvqueue(db, args);
    let mut child: Child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (line, child.wait_with_output().unwrap().into())
}

/// More than a pipe holds.
fn pushed() -> Database {
    let db = Database::new();
    let item = "x".repeat(90_000);
    for _ in 0..3 {
        run(&db, &["push", "q", &item, &item]).ok();
    }
    db
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let (_, ran) = first_line_only(&pushed(), &["peek", "q", "-k", "6"]);
    assert_eq!(ran.failed(1), "");
}

#[test]
fn pop_says_what_it_took() {
    let (_, ran) = first_line_only(&pushed(), &["pop", "q", "-k", "6"]);
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: 6 items were popped and not all printed: Broken pipe (os error 32)");
}

#[test]
fn push_says_what_it_pushed() {
    let db = Database::new();
    let mut command = kvqueue(&db, &["push", "q", "a", "b"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran: Ran = command.stdout(full).output().unwrap().into();
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: 2 acknowledged, which could not be printed: No space left on device (os error 28)");
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
}

#[test]
fn a_daemon_that_prints_stops_rather_than_empty_the_queue() {
    let db = pushed();
    let args = ["run", "--queue", "q", "--handler", "stdout", "-k", "1", "-q"];
    let (_, ran) = first_line_only(&db, &args);
    let error = ran.failed(1);
    assert!(error.contains("stdout is closed"), "{error}");
    let left: usize = run(&db, &["len", "q"]).ok().trim().parse().unwrap();
    assert!(left >= 3, "{left} of 6 items are left");
}
