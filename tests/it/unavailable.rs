//! A database that cannot be used: exit code 69, and what to do.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use rustix::process::Signal;

use crate::support::{Background, Database, PATIENCE, Ran, kvqueue, run};

/// A push that reads lines and has pushed a first one, through a daemon that hosts the database.
fn push_under_way(db: &Database, more: &[&str]) -> (Background, Child, ChildStdin) {
    let mut host = Background::start(kvqueue(db, &["run", "--queue", "other", "--handler", "log"]));
    host.wait_for("\"ready\"");
    let mut command = kvqueue(db, &[&["push", "q", "--lines", "-"], more].concat());
    let mut push =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = push.stdin.take().unwrap();
    lines.write_all(b"first\n").unwrap();
    let began = Instant::now();
    while run(db, &["len", "q"]).ok() != "1\n" {
        assert!(began.elapsed() < PATIENCE, "the first line is not pushed");
    }
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
    assert_eq!(ran.stdout, "1 acknowledged\n");
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
fn a_command_without_a_timeout_waits_and_says_so() {
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
        let line = said.recv_timeout(left).expect("it says that it waits");
        if line.contains("still waiting") {
            break;
        }
    }
    assert!(push.try_wait().unwrap().is_none(), "the push has ended");
    host.signal(Signal::CONT);
    let ran: Ran = push.wait_with_output().unwrap().into();
    assert_eq!(ran.ok(), "2 acknowledged\n");
}

#[test]
fn a_timeout_has_to_be_a_time() {
    let db = Database::embedded();
    for wrong in ["5", "0s", "soon"] {
        let error = run(&db, &["len", "q", "--timeout", wrong]).failed(2);
        assert!(error.contains("--timeout"), "{error}");
    }
}

#[test]
fn without_the_client_library() {
    let db = Database::at("/nowhere/fdb.cluster".to_owned(), String::new());
    let mut command = kvqueue(&db, &["len", "q"]);
    let ran: Ran = command.env("FDB_CLIENT_LIB", "/nowhere/libfdb_c.so").output().unwrap().into();
    let error = ran.failed(69);
    for part in ["/nowhere/libfdb_c.so", "embedded:", "/nowhere/fdb.cluster"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn a_directory_that_another_process_holds_without_hosting_it() {
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
fn a_directory_that_cannot_be_made() {
    let db = Database::at("embedded:/proc/nowhere".to_owned(), String::new());
    let error = run(&db, &["len", "q"]).failed(69);
    assert!(error.contains("/proc/nowhere"), "{error}");
}
