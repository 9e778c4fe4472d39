//! stdout that is closed early.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::support::{Database, Ran, kvqueue, run, run_script};

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
fn output_to_a_closed_pipe_does_not_panic() {
    let (_, ran) = first_line_only(&pushed(), &["peek", "q", "-k", "6"]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
}

/// Runs a command whose stdout nobody reads.
fn unread(db: &Database, args: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = kvqueue(db, args);
    if args[0] == "config" {
        // It warns of a configuration without queues.
        command.env("KVQUEUE_QUEUES__Q__HANDLER", "log");
    }
    command.stdin(Stdio::null()).stdout(writer).output().unwrap().into()
}

/// One dead letter, `(queue, id)`, in a queue where an item waits.
fn dead_letter() -> (Database, String) {
    let db = Database::new();
    run(&db, &["push", "q", "bad"]).ok();
    let script = run_script(&db, "exit 65", "", &["--until-empty"]).output().unwrap();
    assert!(script.status.success());
    let letter: serde_json::Value =
        serde_json::from_str(&run(&db, &["dead", "list", "q", "--json"]).ok()).unwrap();
    (db, letter["id"].as_str().unwrap().to_owned())
}

#[test]
fn reading_commands_end_quietly_on_a_closed_pipe() {
    let (db, letter) = dead_letter();
    run(&db, &["push", "q", "item"]).ok();
    for args in [
        &["list"][..],
        &["len", "q"],
        &["len", "q", "--json"],
        &["peek", "q"],
        &["peek", "q", "--json"],
        &["dead", "list", "q"],
        &["dead", "list", "q", "--json"],
        &["dead", "show", "q", &letter],
        &["config", "check"],
        &["config", "show"],
        &["doctor"],
        &["completions", "bash"],
        &["help", "push"],
        &["--help"],
        &["--version"],
    ] {
        let ran = if args.contains(&"--version") || args.contains(&"help") {
            // These take no database.
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            Command::new(env!("CARGO_BIN_EXE_kvqueue")).args(args).stdout(writer).output().unwrap().into()
        } else {
            unread(&db, args)
        };
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn changing_commands_report_their_effect_on_a_closed_pipe() {
    let (db, letter) = dead_letter();
    insta::assert_snapshot!(unread(&db, &["requeue", "q", &letter]).failed(1), @"kvqueue: requeued 1 item, which could not be printed: Broken pipe (os error 32)");
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
    insta::assert_snapshot!(unread(&db, &["requeue", "q", "--dead"]).failed(1), @"kvqueue: it is done, and the answer could not be printed: Broken pipe (os error 32)");
    insta::assert_snapshot!(unread(&db, &["dead", "purge", "q", "--all", "--yes"]).failed(1), @"kvqueue: it is done, and the answer could not be printed: Broken pipe (os error 32)");
    insta::assert_snapshot!(unread(&db, &["push", "q", "a"]).failed(1), @"kvqueue: pushed 1 item, which could not be printed: Broken pipe (os error 32)");
    insta::assert_snapshot!(unread(&db, &["pop", "q"]).failed(1), @"kvqueue: popped 1 item, which could not all be printed: Broken pipe (os error 32)");
    insta::assert_snapshot!(unread(&db, &["delete", "q", "--yes", "--json"]).failed(1), @"kvqueue: it is done, and the answer could not be printed: Broken pipe (os error 32)");
    assert_eq!(run(&db, &["list"]).ok(), "");
}

/// The output of a command at a terminal, which script(1) provides, in an environment of these variables alone.
fn at_a_terminal(args: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command.args(["--quiet", "--command", &format!("{} {args}", env!("CARGO_BIN_EXE_kvqueue")), "/dev/null"]);
    // One who tests us under CI has CI set, and there colours are for a dumb terminal too.
    command.env_clear().envs(variables.iter().copied());
    String::from_utf8(command.stdin(Stdio::null()).output().unwrap().stdout).unwrap()
}

#[test]
fn help_colours_need_a_terminal_and_no_no_color() {
    // Help, and an error.
    for args in ["--help", "psuh"] {
        let coloured = |variables: &[_]| at_a_terminal(args, variables).contains('\x1b');
        assert!(coloured(&[("TERM", "xterm")]), "{args}");
        assert!(!coloured(&[("TERM", "xterm"), ("NO_COLOR", "1")]), "{args}");
        assert!(!coloured(&[("TERM", "dumb")]), "{args}");
        let ran =
            Command::new(env!("CARGO_BIN_EXE_kvqueue")).arg(args).env("TERM", "xterm").output().unwrap();
        assert!(![ran.stdout, ran.stderr].concat().contains(&0x1b), "{args}");
    }
}

#[test]
fn pop_reports_popped_items_that_could_not_be_printed() {
    let (_, ran) = first_line_only(&pushed(), &["pop", "q", "-k", "6"]);
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: popped 6 items, which could not all be printed: Broken pipe (os error 32)");
}

#[test]
fn push_reports_pushed_items_that_could_not_be_printed() {
    let db = Database::new();
    let mut command = kvqueue(&db, &["push", "q", "a", "b"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran: Ran = command.stdout(full).output().unwrap().into();
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: pushed 2 items, which could not be printed: No space left on device (os error 28)");
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
