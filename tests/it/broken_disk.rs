//! The disk under an embedded database refuses a write.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::{Background, Database, kvqueue, run};

#[test]
fn the_log_of_a_daemon_whose_storage_failed_names_the_file_and_the_cause() {
    let db = Database::embedded();
    let config = db.file("kvqueue.toml");
    std::fs::write(&config, "[queues.q]\nhandler = 'log'\n").unwrap();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--config", config.to_str().unwrap()]));
    daemon.wait_for_event("ready");
    // From here on no file of the daemon can be written beyond its first block: EFBIG.
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap());
    let limit = Rlimit { current: Some(4096), ..getrlimit(Resource::Fsize) };
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let is_over = AtomicBool::new(false);
    let line = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // One that the daemon does not take.
                let _ = run(&db, &["push", "q", "item", "--timeout", "2s"]);
            }
        });
        let line = daemon.wait_for_event("storage_failed");
        is_over.store(true, Ordering::Relaxed);
        line
    });
    let ran = daemon.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let data = db.directory.path().join("data");
    for text in [&line, &ran.stderr[ran.stderr.rfind("cannot go on").unwrap()..]] {
        assert!(text.contains("storage failed: ") || text.contains("\"reason\":\""), "{text}");
        assert!(text.contains("File too large (os error 27)"), "{text}");
        assert!(text.contains(data.to_str().unwrap()), "{text}");
    }
}
