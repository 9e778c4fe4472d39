//! Stopped in the middle of a cell, the harness ends what it started and removes its directory.

#![expect(clippy::unwrap_used, reason = "a test helper that fails is a test that fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// Waits until something is there.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "{what} takes longer than {LIMIT:?}");
        thread::sleep(LOOK);
    }
}

/// The harness, with a kvqueue that says who it is and never ends.
fn start(place: &Path) -> (Child, Pid) {
    let (program, said) = (place.join("kvqueue"), place.join("pid"));
    fs::write(&program, format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", said.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.join("scratch")).unwrap();
    let harness = Command::new(env!("CARGO_BIN_EXE_kvqueue-compare"))
        .args(["--peers", "none", "--only", "pickup", "--kvqueue"])
        .arg(&program)
        .arg("--scratch")
        .arg(place.join("scratch"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = until("the first cell", || {
        fs::read_to_string(&said).ok()?.trim().parse().ok().and_then(Pid::from_raw)
    });
    (harness, pid)
}

#[test]
fn a_signal_ends_all_processes_and_removes_scratch_files() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let place = tempfile::tempdir().unwrap();
        let (mut harness, kvqueue) = start(place.path());
        test_kill_process(kvqueue).expect("it runs");
        kill_process(Pid::from_child(&harness), signal).unwrap();
        let status = until("the end", || harness.try_wait().unwrap());
        assert_eq!(status.code(), Some(128 + signal.as_raw()));
        assert!(test_kill_process(kvqueue).is_err(), "kvqueue is still there after {signal:?}");
        assert_eq!(fs::read_dir(place.path().join("scratch")).unwrap().count(), 0);
    }
}
