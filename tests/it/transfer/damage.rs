//! Exports that are damaged or cut off.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use super::{export_of, file, len, plain};
use crate::support::{Database, Ran, Random, kvqueue, run, run_with_input};

/// The error of an import from a damaged file, and that nothing was imported.
#[track_caller]
fn refused(text: &str) -> String {
    let db = Database::new();
    let input = file(&db, "in", text);
    let ran = run(&db, &["import", "q", "--input", &input]);
    assert_eq!(ran.stdout, "");
    assert_eq!(run(&db, &["list"]).ok(), "");
    ran.failed(65).replace(&input, "FILE")
}

#[test]
fn a_file_that_is_damaged_is_refused_with_the_line_s_number() {
    let whole = export_of(&plain(3));
    let lines: Vec<&str> = whole.lines().collect();
    let with = |at: usize, line: &str| {
        let mut lines = lines.clone();
        lines[at] = line;
        lines.join("\n")
    };
    insta::assert_snapshot!(refused(""), @"kvqueue: FILE ends at line 0, and the line that ends an export is missing: it was cut off; nothing was imported");
    insta::assert_snapshot!(refused("a\nb\n"), @"kvqueue: line 1 of FILE: this is no export of kvqueue; items by the line are for `kvqueue push --lines`; nothing was imported");
    insta::assert_snapshot!(refused(&with(0, "{\"kvqueue_export\":7}")), @"kvqueue: line 1 of FILE: this is an export of format 7, and this version of kvqueue reads format 1; use a newer one; nothing was imported");
    insta::assert_snapshot!(refused(&with(2, "{\"state\":\"ready\",\"payl")), @"kvqueue: line 3 of FILE: the line is cut off; nothing was imported");
    insta::assert_snapshot!(refused(&with(2, "{\"state\":\"gone\"}")), @"kvqueue: line 3 of FILE: unknown variant `gone`, expected one of `ready`, `waiting`, `dead` at column 15; nothing was imported");
    insta::assert_snapshot!(refused(&with(2, "{\"state\":\"ready\",\"payload\":\"8\"}")), @"kvqueue: line 5 of FILE: the checksum here is not that of the lines before it: one of them was changed; nothing was imported");
    insta::assert_snapshot!(refused(&lines[..3].join("\n")), @"kvqueue: FILE ends at line 3, and the line that ends an export is missing: it was cut off; nothing was imported");
    insta::assert_snapshot!(refused(&[lines[0], lines[1], lines[4]].join("\n")), @"kvqueue: line 3 of FILE: this says that there are 3 items, and there are 1: lines are missing or were added; nothing was imported");
    insta::assert_snapshot!(refused(&format!("{whole}{whole}")), @"kvqueue: line 6 of FILE: it follows the line that ends the export; import several one by one; nothing was imported");
}

#[test]
fn an_item_that_the_queue_cannot_hold_is_refused_with_its_line() {
    let long = format!("{{\"state\":\"ready\",\"payload\":\"{}\"}}", "x".repeat((8 << 20) + 1));
    insta::assert_snapshot!(refused(&export_of(&[plain(1).remove(0), long])), @"kvqueue: line 3 of FILE: payload has 8388609 bytes, at most 8388608 are possible; store it elsewhere and push where it is; nothing was imported");
}

#[test]
fn a_missing_import_file_is_an_input_error() {
    let db = Database::new();
    let ran = run(&db, &["import", "q", "--input", "/nowhere/it"]);
    assert_eq!(ran.stdout, "");
    let error = ran.failed(1);
    insta::assert_snapshot!(error, @"kvqueue: cannot read /nowhere/it: No such file or directory (os error 2)");
    let error = run(&db, &["import", "q", "--input", "/"]).failed(1);
    insta::assert_snapshot!(error, @"kvqueue: cannot read /: Is a directory (os error 21)");
}

#[test]
fn importing_the_whole_completes_an_import_cut_off_in_a_pipe() {
    let mut random = Random::new();
    let whole = export_of(&plain(1_000));
    for _ in 0..5 {
        let db = Database::new();
        let cut = random.below(whole.len() as u64 - 1) as usize;
        let ran = run_with_input(&db, &["import", "q"], &whole.as_bytes()[..cut]);
        let error = ran.failed(65);
        assert!(error.contains("cut off") || error.contains("no export"), "{error}");
        let there = len(&db, &["q"]);
        assert_eq!(there % 200, 0, "parts of groups went in");
        run_with_input(&db, &["import", "q"], whole.as_bytes()).ok();
        let payloads: Vec<_> =
            run(&db, &["peek", "q", "-k", "9999"]).ok().lines().map(str::to_owned).collect();
        assert_eq!(payloads, (0..1_000).map(|n| n.to_string()).collect::<Vec<_>>(), "cut at {cut}");
    }
}

#[test]
fn import_from_a_truncated_pipe_reports_the_imported_items() {
    let db = Database::new();
    let whole = export_of(&plain(450));
    let lines: Vec<&str> = whole.lines().collect();
    let ran = run_with_input(&db, &["import", "q"], lines[..300].join("\n"));
    assert_eq!(ran.stdout, "imported 200 items\n");
    insta::assert_snapshot!(ran.failed(65), @"kvqueue: stdin ends at line 300, and the line that ends an export is missing: it was cut off; some of the items before it are imported, and are not added again when you import the whole export");
}

#[test]
fn partial_import_takes_all_complete_lines() {
    let db = Database::new();
    let whole = export_of(&plain(450));
    let cut = &whole[..whole.find("\"300\"").unwrap()];
    let input = file(&db, "in", cut);
    let ran = run(&db, &["import", "q", "--input", &input, "--partial"]);
    assert_eq!(
        ran.stderr.replace(&input, "FILE"),
        "kvqueue: line 302 of FILE: the line is cut off; what comes before is imported\n"
    );
    assert_eq!(ran.ok(), "imported 300 items\n");
    assert_eq!(
        run(&db, &["import", "q", "--input", &input, "--partial"]).ok(),
        "imported 0 items, 300 were imported before\n"
    );
    assert_eq!(len(&db, &["q"]), 300);
}

#[test]
fn an_export_to_a_closed_pipe_ends_quietly() {
    let db = Database::new();
    let input = file(&db, "in", &export_of(&plain(20_000)));
    run(&db, &["import", "q", "--input", &input]).ok();
    let mut child = kvqueue(&db, &["export", "q"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"kvqueue_export\":1"), "{line}");
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.stderr, "");
}
