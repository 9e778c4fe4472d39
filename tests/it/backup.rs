//! `kvqueue backup`: copies of a directory that is used, and what becomes of them.

use std::{fs, path::Path};

use rustix::process::Signal;

use crate::support::{Background, Database, kvqueue, run, run_with_input};

/// The database that a copy is.
fn copy_at(path: &Path) -> Database {
    Database::at(format!("embedded:{}", path.display()), String::new())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Leaves out values that differ from run to run.
fn plain(said: &str, db: &Database) -> String {
    let said = said.replace(text(db.directory.path()), "TMP");
    let words = said.split(' ').map(|word| if word.parse::<f64>().is_ok() { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn backup_of_a_running_daemons_directory_has_all_earlier_items() {
    let db = Database::embedded();
    let lines: String = (0..5_000).map(|n| format!("item {n}\n")).collect();
    run_with_input(&db, &["push", "kept", "--lines", "-"], lines.clone()).ok();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    daemon.wait_for_event("ready");
    run(&db, &["push", "late", "--delay", "1h", "one"]).ok();
    let to = db.file("copy");
    let made = run(&db, &["backup", "--to", text(&to)]);
    assert_eq!(made.stdout, "");
    insta::assert_snapshot!(plain(&made.stderr, &db), @"copied 5,006 rows, N KiB, to TMP/copy in N s, and read the copy through");
    run(&db, &["push", "kept", "afterwards"]).ok();
    let copy = copy_at(&to);
    assert_eq!(run(&copy, &["peek", "kept", "-k", "10000"]).ok(), lines);
    assert_eq!(run(&copy, &["len", "late", "--json"]).ok(), run(&db, &["len", "late", "--json"]).ok());
    assert_eq!(run(&copy, &["doctor"]).code, Some(0));
    run(&copy, &["push", "kept", "in the copy"]).ok();
    daemon.signal(Signal::TERM);
    daemon.end();
}

#[test]
fn a_restored_backup_is_processed_in_place_of_the_lost_directory() {
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    let to = db.file("copy");
    let told = run(&db, &["backup", "--json", "--to", text(&to)]).ok();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["to"].as_str(), told["rows"].as_u64().map(|rows| rows > 2)), (to.to_str(), Some(true)));
    fs::remove_dir_all(db.file("data")).unwrap();
    fs::rename(&to, db.file("data")).unwrap();
    assert_eq!(run(&db, &["pop", "q"]).ok(), "one\n");
}

#[test]
fn refused_backups_name_the_cause_and_change_nothing() {
    let db = Database::embedded();
    let refused = |to: &str, code| plain(&run(&db, &["backup", "--to", to]).failed(code), &db);
    insta::assert_snapshot!(refused(text(&db.file("copy")), 69), @"kvqueue: there is no database in TMP/data: it has no data.redb");
    assert!(!db.file("data").exists(), "nothing is made by looking for it");
    run(&db, &["push", "q", "one"]).ok();
    insta::assert_snapshot!(refused(text(&db.file("data")), 2), @"kvqueue: TMP/data exists and is not an empty directory; name one that does not exist");
    insta::assert_snapshot!(refused("..", 2), @"kvqueue: .. exists and is not an empty directory; name one that does not exist");
    insta::assert_snapshot!(refused("/proc/copy", 1), @"kvqueue: cannot open /proc/copy.partial: No such file or directory (os error 2); check that it is a directory that this user may write");
    let inside = db.file("data/copies/new");
    insta::assert_snapshot!(refused(text(&inside), 2), @"kvqueue: cannot make a copy in TMP/data/copies/new: it is inside the database's own directory, and is lost with that; name a place outside of it, on another disk if there is one");
    std::os::unix::fs::symlink(db.file("data"), db.file("link")).unwrap();
    assert!(refused(text(&db.file("link/copy")), 2).contains("inside the database's own directory"));
    let above = refused(text(db.directory.path()), 2);
    assert!(above.contains("is not an empty directory"), "{above}");
    let cluster = Database::at("/nowhere/fdb.cluster".to_owned(), String::new());
    insta::assert_snapshot!(run(&cluster, &["backup", "--to", "copy"]).failed(2), @r#"kvqueue: only an embedded directory is copied, and "/nowhere/fdb.cluster" names a cluster: use FoundationDB's fdbbackup"#);
    assert!(!db.file("copy").exists());
}
