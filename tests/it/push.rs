//! `kvqueue push`: where items come from, and which are refused.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Background, Database, Ran, freeze, kvqueue, object, run, run_with_input};

/// The limit of [`limited`].
const LIMIT: usize = 100_000;

/// A configuration with a limit that an argument can exceed.
fn limited(db: &Database) -> String {
    let file = db.file("limited.toml");
    std::fs::write(&file, "[queues.q]\nhandler = 'log'\nmax-payload = '100kB'").unwrap();
    file.to_str().unwrap().to_owned()
}

fn items(db: &Database) -> Vec<String> {
    let out = run(db, &["peek", "q", "-k", "1000"]).ok();
    out.lines().map(str::to_owned).collect()
}

#[test]
fn items_are_pushed_from_arguments_then_lines_then_a_file() {
    let db = Database::new();
    let file = db.file("whole");
    std::fs::write(&file, "of\na file").unwrap();
    let args = ["push", "q", "first", "second", "--lines", "-", "--file", file.to_str().unwrap()];
    assert_eq!(run_with_input(&db, &args, "third\n\nlast").pushed(), "pushed 6 items");
    assert_eq!(items(&db), ["first", "second", "third", "", "last", "of", "a file"]);
    assert_eq!(run(&db, &["len", "q"]).ok(), "6\n");
}

#[test]
fn the_ids_of_few_items_are_printed() {
    let db = Database::new();
    let ids = |printed: &str| printed.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let show = |id: &str| object(&db, &["item", "show", "q", id])["payload"].clone();
    let one = run(&db, &["push", "q", "one"]).ok();
    assert_eq!(show(one.trim_end().strip_prefix("pushed 1 item: ").unwrap()), "one");
    let two = ids(&run(&db, &["push", "q", "two", "three"]).ok());
    assert_eq!((two.len(), show(&two[0]), show(&two[1])), (2, "two".into(), "three".into()));
    let lines = |n: usize| run_with_input(&db, &["push", "q", "--lines", "-"], "a\n".repeat(n)).ok();
    assert_eq!((ids(&lines(20)).len(), lines(21).as_str()), (20, "pushed 21 items\n"));
}

#[test]
fn an_empty_line_is_an_item_and_a_final_newline_is_not() {
    let db = Database::new();
    assert_eq!(run_with_input(&db, &["push", "q", "--lines", "-"], "").pushed(), "pushed 0 items");
    assert_eq!(run_with_input(&db, &["push", "q", "--lines", "-"], "\n").pushed(), "pushed 1 item");
    assert_eq!(run_with_input(&db, &["push", "q", "--lines", "-"], "a\n").pushed(), "pushed 1 item");
    assert_eq!(items(&db), ["", "a"]);
}

#[test]
fn push_refuses_a_line_over_the_limit_and_pushes_the_rest() {
    let db = Database::new();
    let long = "x".repeat(LIMIT + 1);
    let input = format!("before\n{long}\nafter\n");
    let ran = run_with_input(&db, &["push", "q", "--lines", "-", "--config", &limited(&db)], input);
    assert_eq!(ran.summary(), "pushed 2 items");
    insta::assert_snapshot!(ran.failed(65), @r"
        kvqueue: line 2 of stdin not pushed: it has 100001 bytes, an item at most 100000
        kvqueue: items refused: 1; everything else was pushed
        ");
    assert_eq!(items(&db), ["before", "after"]);
}

#[test]
fn an_argument_or_file_over_the_limit_is_refused_by_name() {
    let db = Database::new();
    let file = db.file("long");
    std::fs::write(&file, "x".repeat(3 * LIMIT)).unwrap();
    let long = "x".repeat(LIMIT + 1);
    let file = ["--file", file.to_str().unwrap(), "--config", &limited(&db)];
    let ran = run(&db, &[&["push", "q", "ok", "too", &long], &file[..], &["--json"]].concat());
    let mut object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(object["ids"].take().as_array().map(Vec::len), Some(2));
    let expected = json!({
        "acknowledged": 2, "duplicates": 0, "ids": null, "queue": "q", "refused": 2, "repeated": false,
    });
    assert_eq!(object, expected);
    let error = ran.failed(65).replace(&db.directory.path().display().to_string(), "DIR");
    insta::assert_snapshot!(error, @r"
        kvqueue: argument 3 not pushed: it has 100001 bytes, an item at most 100000
        kvqueue: DIR/long not pushed: it has 300000 bytes, an item at most 100000
        kvqueue: items refused: 2; everything else was pushed
        ");
}

#[test]
fn the_longest_items_are_pushed_by_line_and_by_file() {
    let db = Database::new();
    let longest = "x".repeat(kvqueue_queue::MAX_PAYLOAD);
    let file = db.file("longest");
    std::fs::write(&file, &longest).unwrap();
    let input = format!("{longest}\n{longest}x\nafter\n");
    let ran = run_with_input(&db, &["push", "q", "--lines", "-", "--file", file.to_str().unwrap()], input);
    assert_eq!(ran.summary(), "pushed 3 items");
    insta::assert_snapshot!(ran.failed(65), @r"
    kvqueue: line 2 of stdin not pushed: it has 8388609 bytes, an item at most 8388608
    kvqueue: items refused: 1; everything else was pushed
    ");
    let popped = run(&db, &["pop", "q", "-k", "3"]).ok();
    assert!(popped == format!("{longest}\nafter\n{longest}\n"), "{} bytes", popped.len());
}

#[test]
fn many_long_items_are_spread_over_transactions() {
    let db = Database::new();
    let input = format!("{}\n", "x".repeat(LIMIT)).repeat(150);
    let ran = run_with_input(&db, &["push", "q", "--lines", "-", "-v"], input);
    let transactions = ran.stderr.matches("acknowledged").count();
    assert_eq!(ran.pushed(), "pushed 150 items");
    assert!(transactions >= 15, "150 items of 100 kB in {transactions} transactions");
}

#[test]
fn push_reports_the_items_pushed_before_an_input_error() {
    let db = Database::new();
    let ran = run(&db, &["push", "q", "stored", "--file", "/nowhere"]);
    assert_eq!(ran.summary(), "pushed 1 item");
    insta::assert_snapshot!(ran.failed(1), @"kvqueue: cannot read /nowhere: No such file or directory (os error 2)");
    assert_eq!(items(&db), ["stored"]);
}

#[test]
fn nothing_to_push_is_a_usage_error() {
    insta::assert_snapshot!(run(&Database::new(), &["push", "q"]).failed(2), @"kvqueue: nothing to push: give items as arguments, or --lines FILE, or --file FILE");
}

#[test]
fn payloads_and_names_that_are_not_text_are_kept() {
    use std::os::unix::ffi::OsStrExt;
    let db = Database::new();
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let ran: Ran = kvqueue(&db, &["push"]).arg(bytes).arg(bytes).output().unwrap().into();
    assert_eq!(ran.pushed(), "pushed 1 item");
    assert_eq!(run(&db, &["list", "--json"]).ok(), "{\"queue_base64\":\"//4=\"}\n");
}

#[test]
fn a_stream_ends_when_the_queue_is_frozen_under_it() {
    let db = Database::new();
    let (mut push, mut input) = Background::fed(kvqueue(&db, &["push", "q", "--lines", "-", "-v"]));
    input.write_all(b"one\ntwo\n").unwrap();
    push.wait_for("acknowledged 2");
    freeze(&db);
    // The first lines may still go in. The program ends at one that does not, and closes the pipe.
    while input.write_all(b"more\n").is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ran = push.end();
    let pushed = run(&db, &["len", "q"]).ok().trim_end().to_owned();
    assert_eq!(ran.summary(), format!("pushed {pushed} items"));
    let error = ran.failed(1);
    assert!(error.contains("queue \"q\" is frozen since"), "{error}");
    assert!(error.contains(&format!("migrating; {pushed} were pushed before, nothing since")), "{error}");
}

#[test]
fn one_item_may_come_from_standard_input() {
    let db = Database::new();
    run_with_input(&db, &["push", "q", "--file", "-"], "two\nlines\n").ok();
    assert_eq!(run(&db, &["pop", "q"]).ok(), "two\nlines\n\n");
}
