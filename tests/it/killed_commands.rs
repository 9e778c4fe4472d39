//! Commands do not outlive their daemon, however it ends.

#![cfg(target_os = "linux")]

use std::{fs, process::Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Background, Database, clean, first_id, kvqueue, run, run_script, serve, wait_until};

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

/// What starts processes in other process groups and sessions, and what stays in the command's. Each writes its number into a file.
const APART: &str = "sleep 1000 & echo $! > child
timeout 1000 sh -c 'echo $$ > timed; sleep 1000; :' &
setsid sh -c 'echo $$ > apart; sleep 1000; :' &
sh -c 'set -m; sleep 1000 & echo $! > job; wait' &
(setsid sh -c 'sleep 1000 & echo $! > orphan') &
wait";

const NAMES: [&str; 5] = ["child", "timed", "apart", "job", "orphan"];

/// Waits until all of [`APART`] run, has something done, and checks that they end.
fn check_ends(db: &Database, verb: &str, end: impl FnOnce()) {
    wait_until("all processes have started", || NAMES.iter().all(|name| pid(db, name).is_some()));
    let pids = NAMES.map(|name| (name, pid(db, name).unwrap()));
    end();
    wait_until("the processes have ended", || !pids.iter().any(|(_, pid)| runs(*pid)));
    for name in NAMES {
        fs::remove_file(db.file(name)).unwrap_or_else(|error| panic!("{verb}: {name}: {error}"));
    }
}

#[test]
fn processes_in_other_groups_end_with_their_command_whatever_ends_it() {
    let queue = "consumers = [{ k = 1, count = 1 }]\nretry.max-attempts = 1\nhandler-timeout = ";
    for verb in ["time limit", "cancellation", "stop", "second signal"] {
        let db = Database::new();
        run(&db, &["push", "q", "item"]).ok();
        let limit = if verb == "time limit" { "'3s'" } else { "'1000s'" };
        let mut command = run_script(&db, APART, &format!("{queue}{limit}"), &[]);
        let shutdown_timeout = if verb == "second signal" { "1000s" } else { "100ms" };
        command.env("KVQUEUE_SHUTDOWN_TIMEOUT", shutdown_timeout);
        let mut daemon = Background::start(command);
        check_ends(&db, verb, || match verb {
            "cancellation" => _ = run(&db, &["item", "cancel", "q", "--all", "--yes"]).ok(),
            "stop" => daemon.signal(Signal::TERM),
            "second signal" => {
                daemon.signal(Signal::TERM);
                daemon.wait_for_event("draining");
                daemon.signal(Signal::TERM);
            }
            _ => {}
        });
    }
}

#[test]
fn processes_in_other_groups_end_with_the_command_of_a_worker_over_http() {
    for verb in ["time limit", "second signal"] {
        let db = Database::new();
        run(&db, &["push", "q", "item"]).ok();
        let served = serve(&db, "[queues.q]\nhandler = 'pull'\nretry.max-attempts = 1\n");
        let url = format!("http://{}", served.at.tcp());
        let limit = if verb == "time limit" { "3s" } else { "1000s" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
        clean(&mut command, &db);
        command.args(["work", "q", "--url", &url, "--handler-timeout", limit, "--", "sh", "-c", APART]);
        command.current_dir(db.directory.path());
        let worker = Background::start(command);
        check_ends(&db, verb, || {
            if verb == "second signal" {
                // It waits for its command after the first one. Both may arrive together.
                worker.signal(Signal::TERM);
                worker.signal(Signal::INT);
            }
        });
    }
}

#[test]
fn processes_in_other_groups_end_with_a_resident_process() {
    for verb in ["time limit", "cancellation", "stop"] {
        let db = Database::new();
        let script = format!("read hello; echo '{{\"kvqueue\":1}}'; read item; {APART}");
        fs::write(db.file("worker.sh"), script).unwrap();
        let limit = if verb == "time limit" { "3s" } else { "1000s" };
        let text = format!(
            "[queues.q]\nhandler = 'exec'\nconsumers = 1\nhandler-timeout = '{limit}'\nretry.max-attempts = 1\n\
             [queues.q.handler-config]\ncommand = ['sh', 'worker.sh']\nmode = 'worker'\n"
        );
        fs::write(db.file("kvqueue.toml"), text).unwrap();
        run(&db, &["push", "q", "item"]).ok();
        let id = first_id(&db, "q");
        let config = db.file("kvqueue.toml").display().to_string();
        let mut command = kvqueue(&db, &["run", "--config", &config]);
        command.current_dir(db.directory.path()).env("KVQUEUE_SHUTDOWN_TIMEOUT", "100ms");
        let daemon = Background::start(command);
        check_ends(&db, verb, || match verb {
            "cancellation" => _ = run(&db, &["item", "cancel", "q", &id]).ok(),
            "stop" => daemon.signal(Signal::TERM),
            _ => {}
        });
    }
}
