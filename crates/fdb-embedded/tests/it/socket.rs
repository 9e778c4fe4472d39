//! The host's socket, which anybody may remove: programs that clean up, copy or restore a directory do.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::common::{Helper, get, open, set};

#[test]
fn a_host_makes_its_socket_again_after_it_was_removed_or_replaced() {
    type Verb = fn(&Path);
    let verbs: [(&str, Verb); 4] = [
        ("rm", |socket| std::fs::remove_file(socket).unwrap()),
        ("mv", |socket| std::fs::rename(socket, socket.with_file_name("aside")).unwrap()),
        ("another file", |socket| {
            std::fs::remove_file(socket).unwrap();
            std::fs::write(socket, "restored from a copy").unwrap();
        }),
        ("a dead socket", |socket| {
            std::fs::remove_file(socket).unwrap();
            drop(UnixListener::bind(socket).unwrap());
        }),
    ];
    let dirs = verbs.map(|_| tempfile::tempdir().unwrap());
    let all = verbs.iter().zip(&dirs);
    // All at once, because each waits until its host has noticed.
    let hosts: Vec<_> = all
        .map(|((name, verb), dir)| {
            let (db, before) = (open(dir.path()), Helper::start("hosts", dir.path()));
            set(&db, b"k", b"v").unwrap();
            verb(&dir.path().join("socket"));
            (name, dir, db, before)
        })
        .collect();
    for (name, dir, db, before) in hosts {
        let mut newcomer = Helper::start("reads_in_the_end", dir.path());
        let report = fdb_embedded::doctor::check(dir.path());
        assert!(report.findings.iter().all(|finding| finding.about != "socket"), "{name}: {report:?}");
        let mode = std::fs::metadata(dir.path().join("socket")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        drop(newcomer.stdin.take());
        assert!(newcomer.child.wait().unwrap().success(), "{name}");
        drop(before);
        assert_eq!(get(&db, b"k").unwrap().as_deref(), Some(&b"kept"[..]), "{name}: what the newcomer wrote");
    }
}

#[test]
fn the_doctor_finds_a_host_without_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    // A host of the time before hosts looked after their sockets.
    let lock = std::fs::File::open(dir.path().join("lock")).unwrap();
    lock.try_lock().unwrap();
    let find = || {
        let patience = std::time::Duration::from_millis(20);
        let report = fdb_embedded::doctor::check_rows(dir.path(), patience, &mut |_, _| {});
        report.findings.into_iter().find(|finding| finding.about == "socket")
    };
    let found = find().expect("a finding");
    assert!(found.text.contains("no process listens"), "{found:?}");
    assert!(found.advice.is_some(), "{found:?}");
    let _listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    assert_eq!(find(), None, "it listens, and does not answer");
}
