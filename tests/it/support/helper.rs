//! The programs of `tests/helper`: a daemon with a handler of a test's, say. Each runs as a process of its own, since a
//! process has one daemon.

use std::process::Command;

use super::{Database, command::clean};

/// The command that runs the program `name` of `tests/helper` on `db`.
pub(crate) fn helper(db: &Database, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue-test-helper"));
    clean(&mut command, db);
    command.arg(name).env("KVQUEUE_TEST_HELPER_DATABASE", &db.url);
    command
}

/// Whether a process has something to be done at HUP; before, it would be killed by it.
pub(crate) fn hears_hup(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok())
        .is_some_and(|caught| caught & 1 == 1)
}
