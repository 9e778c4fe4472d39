//! Commands do not outlive their daemon, however it ends.

#![cfg(target_os = "linux")]

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Background, Database, run, run_script, wait_until};

/// The number that a script has written into a file.
fn pid(db: &Database, name: &str) -> Option<i32> {
    fs::read_to_string(db.file(name)).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Whether a process runs: one that has ended may wait for its new parent to notice.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[test]
fn running_commands_end_with_a_killed_daemon_and_detached_processes_stay() {
    let db = Database::new();
    run(&db, &["push", "q", "first", "second"]).ok();
    // The second command and all it starts hang; one of them is in a session of its own.
    let script = "case $(cat) in first) sleep 1000 & echo $! > left ;; \
        *) echo $$ > command; sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > apart; wait ;; esac";
    let daemon = Background::start(run_script(&db, script, "consumers = [{ k = 1, count = 1 }]", &[]));
    let names = ["left", "command", "child", "apart"];
    wait_until("both commands have started", || names.iter().all(|name| pid(&db, name).is_some()));
    let [left, others @ ..] = names.map(|name| pid(&db, name).unwrap());
    assert!(others.iter().all(|pid| runs(*pid)));
    daemon.signal(Signal::KILL);
    wait_until("the commands have ended", || !others.iter().any(|pid| runs(*pid)));
    let left_runs = runs(left);
    kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    assert!(left_runs, "its command has ended, so it is nobody's");
    drop(daemon);
}
