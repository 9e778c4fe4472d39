//! A database that cannot be used: exit code 69, and what to do.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use rustix::process::Signal;

use crate::support::{Background, Database, PATIENCE, Ran, kvqueue, run, wait_until};

/// A push that reads lines and has pushed a first one, through a daemon that hosts the database.
fn push_under_way(db: &Database, more: &[&str]) -> (Background, Child, ChildStdin) {
    let mut host = Background::start(kvqueue(db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    let mut command = kvqueue(db, &[&["push", "q", "--lines", "-"], more].concat());
    let mut push =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = push.stdin.take().unwrap();
    lines.write_all(b"first\n").unwrap();
    wait_until("the first line is pushed", || run(db, &["len", "q"]).ok() == "1\n");
    (host, push, lines)
}

#[test]
fn a_command_gives_up_after_its_timeout() {
    let db = Database::embedded();
    let (host, push, mut lines) = push_under_way(&db, &["--timeout", "700ms"]);
    host.suspend();
    lines.write_all(b"second\n").unwrap();
    drop(lines);
    let began = Instant::now();
    let ran: Ran = push.wait_with_output().unwrap().into();
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(ran.summary(), "pushed 1 item");
    let error = ran.failed(69);
    for part in ["has not answered within 700ms (--timeout)", "these may be in the queue all the same"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    host.signal(Signal::CONT);
    // The second line may have come in or not; the first is there once.
    let items = run(&db, &["pop", "q", "-k", "9"]).ok();
    assert!(["first\n", "first\nsecond\n"].contains(&&*items), "{items}");
}

#[test]
fn a_command_without_a_timeout_waits_and_logs_it() {
    let db = Database::embedded();
    let (host, mut push, mut lines) = push_under_way(&db, &[]);
    host.suspend();
    lines.write_all(b"second\n").unwrap();
    drop(lines);
    // The message comes after five seconds. It must not be the end.
    let (sender, said) = mpsc::channel();
    let stderr = BufReader::new(push.stderr.take().unwrap());
    thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let last = Instant::now() + PATIENCE;
    loop {
        let left = last.saturating_duration_since(Instant::now());
        let line = said.recv_timeout(left).expect("it reports that it waits");
        if line.contains("still waiting") {
            break;
        }
    }
    assert!(push.try_wait().unwrap().is_none(), "the push has ended");
    host.signal(Signal::CONT);
    let ran: Ran = push.wait_with_output().unwrap().into();
    assert_eq!(ran.pushed(), "pushed 2 items");
}

#[test]
fn an_invalid_timeout_is_a_usage_error() {
    let db = Database::embedded();
    for wrong in ["5", "0s", "soon"] {
        let error = run(&db, &["len", "q", "--timeout", wrong]).failed(2);
        assert!(error.contains("--timeout"), "{error}");
    }
}

#[test]
fn a_missing_client_library_is_reported() {
    let file = Database::embedded().file("fdb.cluster");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "a:a@127.0.0.1:1\n").unwrap();
    let file = file.display().to_string();
    let db = Database::at(file.clone(), String::new());
    let ran = |args: &[&str]| -> Ran {
        kvqueue(&db, args).env("FDB_CLIENT_LIB", "/nowhere/libfdb_c.so").output().unwrap().into()
    };
    let error = ran(&["len", "q"]).failed(69);
    let doctor = ran(&["doctor", "--json"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    let findings = doctor.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let problem = findings.into_iter().find(|found| found["verdict"] == "problem").unwrap();
    for part in ["/nowhere/libfdb_c.so", "embedded:", &file] {
        assert!(error.contains(part), "{part} is not in: {error}");
        assert!(problem["text"].as_str().unwrap().contains(part), "{part} is not in: {problem}");
    }
}

#[test]
fn a_directory_held_by_a_process_that_does_not_host_is_refused() {
    let db = Database::embedded();
    run(&db, &["push", "q", "kept"]).ok();
    let lock = File::open(db.file("data").join("lock")).unwrap();
    lock.lock().unwrap();
    let error = run(&db, &["len", "q"]).failed(69);
    for part in ["data", "held by the process with pid", "lets no other process in"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    drop(lock);
    assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
}

#[test]
fn a_directory_that_cannot_be_created_is_reported() {
    let db = Database::at("embedded:/proc/nowhere".to_owned(), String::new());
    let error = run(&db, &["len", "q"]).failed(69);
    assert!(error.contains("/proc/nowhere"), "{error}");
}

/// A database whose host is stopped, and the process that hosts it.
fn stopped() -> (Database, Background) {
    let db = Database::embedded();
    run(&db, &["push", "q", "kept"]).ok();
    let mut host = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for_event("ready");
    host.suspend();
    (db, host)
}

#[test]
fn every_command_names_the_stopped_host_within_its_timeout() {
    let (db, host) = stopped();
    let url = format!("embedded:{}", db.file("data").display());
    let copy = db.file("copy").display().to_string();
    let other = format!("embedded:{}", db.file("other").display());
    let all: &[&[&str]] = &[
        &["len", "q"],
        &["list"],
        &["push", "q", "one"],
        &["pause", "q"],
        &["dead", "list", "q"],
        &["dead", "purge", "q", "--all", "--yes"],
        &["status"],
        &["backup", "--to", &copy],
        &["migrate", "--to", &other],
        // The host takes a second to be known as stopped.
        &["len", "q", "--timeout", "300ms"],
    ];
    for args in all {
        let timeout: &[&str] = if args.contains(&"--timeout") { &[] } else { &["--timeout", "1500ms"] };
        let began = Instant::now();
        let error = run(&db, &[args, timeout].concat()).failed(69);
        assert!(began.elapsed() < PATIENCE, "{args:?}: {:?}", began.elapsed());
        let mend = format!(
            "process {pid} hosts it and is stopped: continue it with kill -CONT {pid}",
            pid = host.pid()
        );
        for part in [&*url, "has not answered within ", "(--timeout)", &mend] {
            assert!(error.contains(part), "{args:?}: {part} is not in: {error}");
        }
        assert!(!error.contains("refused: "), "{args:?}: {error}");
    }
    assert!(!db.file("copy").exists());
    host.signal(Signal::CONT);
    assert_eq!(run(&db, &["len", "q"]).code, Some(0));
}

#[test]
fn a_backup_that_waits_for_a_stopped_host_ends_at_the_first_signal() {
    let (db, host) = stopped();
    for signal in [Signal::TERM, Signal::INT] {
        let copy = db.file("copy").display().to_string();
        let mut backup = Background::start(kvqueue(&db, &["backup", "--to", &copy]));
        backup.wait_for_event("database_silent");
        backup.signal(signal);
        let ran = backup.end();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("there is no copy"), "{ran:?}");
        assert!(!db.file("copy").exists());
    }
    host.signal(Signal::CONT);
}

#[test]
fn a_cluster_file_that_is_missing_is_named() {
    let db = Database::embedded();
    let missing = db.file("fdb.cluster");
    let db = Database::at(missing.display().to_string(), String::new());
    for args in [&["len", "q"][..], &["run", "--queue", "q", "--handler", "log"]] {
        let error = run(&db, args).failed(69);
        for part in [missing.to_str().unwrap(), "No such file", "cluster file"] {
            assert!(error.contains(part), "{args:?}: {part} is not in: {error}");
        }
    }
    let doctor = run(&db, &["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(
        doctor.stdout.contains("cluster   PROBLEM") && doctor.stdout.contains("No such file"),
        "{doctor:?}"
    );
}
