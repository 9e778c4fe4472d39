//! A database that cannot be used: exit code 69, and what to do.

use std::fs::File;

use crate::support::{Database, Ran, kvqueue, run};

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
