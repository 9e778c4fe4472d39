//! A database that cannot be used: exit code 69, and what to do.

use rustix::process::Signal;

use crate::support::{Background, Database, Ran, kvqueue, run};

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
fn a_directory_that_another_process_holds() {
    let db = Database::embedded();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]));
    daemon.wait_for("ready");
    let error = run(&db, &["len", "q"]).failed(69);
    assert!(error.contains(&daemon.pid().to_string()), "the holder's pid is not in: {error}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
    assert_eq!(run(&db, &["len", "q"]).ok(), "0\n");
}

#[test]
fn a_directory_that_cannot_be_made() {
    let db = Database::at("embedded:/proc/nowhere".to_owned(), String::new());
    let error = run(&db, &["len", "q"]).failed(69);
    assert!(error.contains("/proc/nowhere"), "{error}");
}
