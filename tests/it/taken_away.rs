//! Somebody removes, moves or replaces the directory of a database that a daemon works on.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Database, Served, run, serve};

/// A second is promised; what shares the machine with this test may need some.
const LIMIT: Duration = Duration::from_secs(4);

/// Cuts a file in place: its name and its inode stay.
fn cut(file: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len).unwrap();
}

#[test]
fn a_daemon_stops_acknowledging_when_its_directory_is_removed() {
    type Verb = fn(&Path, &Path);
    // Where there is no database any more, a new start would make an empty one: systemd does not start it.
    let verbs: [(&str, i32, Verb); 3] = [
        ("rm -rf", 66, |dir, _| std::fs::remove_dir_all(dir).unwrap()),
        ("mv", 66, |dir, aside| std::fs::rename(dir, aside).unwrap()),
        ("a restored copy", 1, |dir, aside| {
            std::fs::rename(dir, aside).unwrap();
            std::fs::create_dir(dir).unwrap();
            for file in ["data.redb", "log"] {
                std::fs::copy(aside.join(file), dir.join(file)).unwrap();
            }
        }),
    ];
    for (name, code, verb) in verbs {
        let db = Database::embedded();
        let mut served = serve(&db, "[queues.q]\nhandler = 'log'\n");
        let item = json!({"items": [{"payload": "item"}]});
        served.at.post("/api/v1/queues/later/items", &item).is(201);
        verb(&db.directory.path().join("data"), &db.file("aside"));
        let since = Instant::now();
        // The daemon does not wait for a push to notice.
        served.daemon.wait_for("while this process worked on it");
        assert!(since.elapsed() < LIMIT, "{name}: {:?}", since.elapsed());
        let ran = served.daemon.end();
        assert_eq!(ran.code, Some(code), "{name}: {ran:?}");
        assert!(ran.stderr.contains("storage failed"), "{name}: {ran:?}");
        assert!(
            ran.stderr.contains("put the directory back, or restore it from a backup"),
            "{name}: {ran:?}"
        );
        assert!(!ran.stderr.contains("start this one again"), "{name}: {ran:?}");
    }
}

#[test]
fn http_acknowledges_no_push_after_the_directory_is_removed() {
    let db = Database::embedded();
    let served = serve(&db, "[queues.q]\nhandler = 'log'\n");
    std::fs::remove_dir_all(db.directory.path().join("data")).unwrap();
    let item = json!({"items": [{"payload": "item"}]});
    let reply = served.at.post("/api/v1/queues/later/items", &item);
    assert!(reply.status >= 500, "{reply:?}");
    assert_eq!(served.daemon.end().code, Some(66));
    assert!(run(&db, &["len", "later"]).failed(69).contains("there is no database"));
}

#[test]
fn http_acknowledges_no_push_after_a_file_is_cut() {
    for file in ["data.redb", "log"] {
        for push_at_once in [true, false] {
            let db = Database::embedded();
            let mut served = serve(&db, "[queues.q]\nhandler = 'log'\n");
            let push = |served: &Served| {
                let item = json!({"items": [{"payload": "item"}]});
                served.at.post("/api/v1/queues/later/items", &item).status
            };
            assert_eq!(push(&served), 201);
            cut(&db.directory.path().join("data").join(file), 0);
            let since = Instant::now();
            if push_at_once {
                assert!(push(&served) >= 500, "{file}");
            }
            served.daemon.wait_for("cut");
            assert!(since.elapsed() < LIMIT, "{file}: {:?}", since.elapsed());
            assert!(served.daemon.end().code.is_some_and(|code| code != 0), "{file}");
        }
    }
}

#[test]
fn a_command_and_doctor_give_the_same_advice_for_a_missing_data_file() {
    let db = Database::embedded();
    run(&db, &["push", "q", "one"]).ok();
    std::fs::remove_file(db.file("data").join("data.redb")).unwrap();
    let error = run(&db, &["len", "q"]).failed(69);
    let doctor = run(&db, &["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    for said in [&error, &doctor.stdout] {
        assert!(
            said.contains("data.redb is missing, and its log is there; put data.redb back, or restore"),
            "{said}"
        );
    }
    assert!(!doctor.stdout.contains("is damaged"), "{doctor:?}");
}

#[test]
fn a_host_reopens_the_database_when_its_lock_file_is_removed() {
    let db = Database::embedded();
    let mut served = serve(&db, "[queues.q]\nhandler = 'log'\n");
    std::fs::remove_file(db.file("data").join("lock")).unwrap();
    served.daemon.wait_for("opening the embedded database again: ");
    let item = json!({"items": [{"payload": "item"}]});
    served.at.post("/api/v1/queues/later/items", &item).is(201);
    served.daemon.signal(rustix::process::Signal::TERM);
    let ran = served.daemon.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("database has failed"), "{ran:?}");
}
