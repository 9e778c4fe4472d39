//! A daemon that is the first process of a container, or of another PID namespace: the kernel gives it the processes that others leave behind.

#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Background, Database, run, run_script, run_with_input, wait_until};

/// The same command in a PID namespace of its own, where it is the first process. None where that is not allowed.
fn first_process(command: &Command) -> Option<Command> {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        unshare
    };
    let tried = unshare().arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("left out: this user may not make a PID namespace");
        return None;
    }
    let mut first = unshare();
    first.arg(command.get_program()).args(command.get_args()).process_group(0);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first.current_dir(command.get_current_dir()?);
    Some(first)
}

/// The children of a process, each with its state.
fn children(of: u32) -> Vec<(u32, char)> {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
        Some((pid, fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    });
    let states = stats.filter_map(|(pid, stat)| {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(of)).then_some((pid, state))
    });
    states.collect()
}

#[test]
fn processes_that_commands_leave_behind_do_not_stay_zombies_and_exit_codes_are_those_of_the_commands() {
    let db = Database::new();
    // Each leaves two processes behind, which end after it. Every tenth item is refused for good.
    let script = "read code; (sleep 0.02 &) ; (setsid sleep 0.01 &) ; echo $code >> codes; exit $code";
    let items: String = (0..100).map(|number| if number % 10 == 0 { "65\n" } else { "0\n" }).collect();
    run_with_input(&db, &["push", "q", "--lines", "-"], items).ok();
    let command = run_script(&db, script, "consumers = 4\nretry.max-attempts = 1", &[]);
    let Some(command) = first_process(&command) else { return };
    let daemon = Background::start(command);
    let codes = || fs::read_to_string(db.file("codes")).unwrap_or_default();
    wait_until("all commands have run", || codes().lines().count() == 100);
    let (first, _) = children(daemon.pid())[0];
    let zombies = || children(first).iter().filter(|(_, state)| *state == 'Z').count();
    wait_until("no zombies are left", || zombies() == 0);
    kill_process(Pid::from_raw(first.cast_signed()).unwrap(), Signal::TERM).unwrap();
    let ended = daemon.end();
    assert_eq!((ended.code, ended.events("drained")), (Some(0), 1), "{ended:?}");
    let counts: Value = serde_json::from_str(&run(&db, &["len", "q", "--json"]).ok()).unwrap();
    assert_eq!((&counts["done"], &counts["dead"]), (&json!(90), &json!(10)), "{counts}");
}

#[test]
fn the_first_process_exits_with_the_code_of_the_daemon() {
    let db = Database::new();
    let mut wrong = run_script(&db, "true", "consumers = 1", &["--queue", "absent"]);
    let code = wrong.output().unwrap().status.code();
    let Some(mut first) = first_process(&wrong) else { return };
    assert_eq!((first.output().unwrap().status.code(), code), (Some(78), Some(78)));
    let until_empty = run_script(&db, "true", "consumers = 1", &["--until-empty"]);
    assert_eq!(first_process(&until_empty).unwrap().status().unwrap().code(), Some(0));
}
