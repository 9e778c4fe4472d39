//! `kvqueue doctor`: what it says of a database.

use std::{fs, os::unix::fs::PermissionsExt};

use rustix::process::Signal;

use crate::support::{Background, Database, kvqueue, run};

/// Without what differs from run to run: each number is an N.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            other => plain.push(other),
        }
    }
    plain
}

fn pushed() -> Database {
    let db = Database::embedded();
    run(&db, &["push", "q", "one", "two"]).ok();
    db
}

/// An empty directory that others may look into.
fn make_readable(db: &Database) {
    let directory = db.directory.path().join("data");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_sound_directory() {
    insta::assert_snapshot!(plain(&run(&pushed(), &["doctor"]).ok()), @r#"
    directory fine     mode N, for its user alone
    lock      fine     nobody holds it
    file      fine     data.redb, N bytes, format N
    pages     fine     N match their checksums, N were never written
    log       fine     nothing in it is needed
    structure fine     sound, and opens at once
    rows      fine     N can be read, N bytes of keys and values
    versions  fine     none above N has been handed out
    space     fine     N of N pages are free
    "#);
}

#[test]
fn findings_as_json() {
    let db = Database::embedded();
    make_readable(&db);
    insta::assert_snapshot!(run(&db, &["doctor", "--json"]).ok(), @r#"
    {"about":"directory","advice":"chmod 700 the directory: whoever can write in it can change the database","text":"mode 0755: other users may look into it","verdict":"note"}
    {"about":"lock","text":"nobody holds it","verdict":"fine"}
    {"about":"file","text":"there is no data.redb: nothing has been stored here yet","verdict":"note"}
    "#);
}

#[test]
fn a_directory_that_is_held_and_one_that_was_left_by_a_kill() {
    let db = pushed();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--queue", "other", "--handler", "log"]));
    daemon.wait_for("ready");
    let held = run(&db, &["doctor"]).ok();
    assert!(held.contains(&daemon.pid().to_string()), "{held}");
    insta::assert_snapshot!(plain(&held), @r#"
    directory fine     mode N, for its user alone
    lock      fine     held by the process with pid N
    file      fine     data.redb, N bytes, format N
    pages     note     not read: the file changes while it is held; stop the process that holds it to have everything checked
    "#);
    daemon.signal(Signal::KILL);
    daemon.end();
    let left = plain(&run(&db, &["doctor"]).ok());
    assert!(left.contains("structure fine     sound, and opens at once"), "{left}");
    assert_eq!(run(&db, &["len", "q"]).ok(), "2\n");
}

#[test]
fn a_directory_that_a_file_names() {
    let db = pushed();
    let data = db.file("data/data.redb");
    let before = fs::read(&data).unwrap();
    let file = db.file("fdb.cluster");
    fs::write(&file, "embedded:data\n").unwrap();
    let by_file = Database::at(file.display().to_string(), String::new());
    let told = run(&by_file, &["doctor"]).ok();
    assert_eq!(plain(&told), plain(&run(&db, &["doctor"]).ok()));
    assert_eq!(fs::read(&data).unwrap(), before);
    fs::remove_dir_all(db.file("data")).unwrap();
    run(&by_file, &["doctor"]).failed(1);
    assert!(!db.file("data").exists());
}

#[test]
fn a_file_that_is_a_link_which_leads_nowhere() {
    let db = Database::embedded();
    make_readable(&db);
    let link = db.directory.path().join("data/data.redb");
    std::os::unix::fs::symlink("/not/mounted", &link).unwrap();
    let ran = run(&db, &["doctor"]);
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(plain(ran.stdout.lines().last().unwrap()), @"file      PROBLEM  data.redb: No such file or directory (os error N); check whether this user may read it, and where it leads if it is a link");
    run(&db, &["push", "q", "lost"]).failed(69);
    assert!(link.is_symlink(), "no empty database has taken its place");
}

#[test]
fn a_damaged_directory() {
    let db = pushed();
    let data = db.directory.path().join("data/data.redb");
    let mut bytes = fs::read(&data).unwrap();
    for page in bytes.chunks_exact_mut(4096).skip(2).filter(|page| page.iter().any(|byte| *byte != 0)) {
        page[100] ^= 4;
    }
    fs::write(&data, &bytes).unwrap();
    let ran = run(&db, &["doctor"]);
    assert_eq!(ran.code, Some(1));
    let told = plain(&ran.stdout).replace(&*plain(&data.display().to_string()), "DATA");
    insta::assert_snapshot!(told, @r#"
    directory fine     mode N, for its user alone
    lock      fine     nobody holds it
    file      fine     data.redb, N bytes, format N
    pages     fine     N match their checksums, N were never written
    pages     PROBLEM  N do not match, first N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N), N (byte N); restore the directory from a copy: what is damaged cannot be read
    structure PROBLEM  DATA is damaged: page N (bytes N..N) does not match its checksum; restore the directory from a copy: what is damaged cannot be read
    "#);
    let refused = run(&db, &["len", "q"]).failed(69);
    assert!(refused.contains("does not match its checksum"), "{refused}");
}

#[test]
fn an_old_format_and_a_directory_that_is_not_there() {
    let db = Database::embedded();
    let told = |db: &Database| plain(&run(db, &["doctor"]).stdout);
    insta::assert_snapshot!(told(&db), @"directory PROBLEM  No such file or directory (os error N); check the path, and whether this user may read it");
    make_readable(&db);
    fs::write(db.directory.path().join("data/data.redb"), [b"redb".as_slice(), &[0; 9000]].concat()).unwrap();
    insta::assert_snapshot!(told(&db), @r#"
    directory note     mode N: other users may look into it; chmod N the directory: whoever can write in it can change the database
    lock      fine     nobody holds it
    file      PROBLEM  data.redb: format N is not one that this version reads (it reads N to N); open it with the version that wrote it, or move it away to begin an empty database
    "#);
}

#[test]
fn a_cluster_that_answers() {
    let db = Database::new();
    if !db.url.starts_with("embedded:") {
        let told = run(&db, &["doctor"]).ok();
        assert!(told.contains("it answers: read version") && told.contains("FoundationDB 7."), "{told}");
    }
}
