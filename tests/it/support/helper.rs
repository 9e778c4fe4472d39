//! Programs of the tests' own: a daemon with other handlers, say. Each is an ignored test of this binary, run as a process
//! of its own, since a process has one daemon.

use std::process::Command;

use super::{Database, command::clean};

const URL: &str = "KVQUEUE_TEST_HELPER_DATABASE";

/// The command that runs the ignored test `name` as a program on `db`.
pub(crate) fn helper(db: &Database, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    clean(&mut command, db);
    command.args(["--ignored", "--exact", "--nocapture", name]).env(URL, &db.url);
    command
}

/// In a helper: the database it was given, as URL and prefix. `None` when someone runs the ignored tests by hand.
pub(crate) fn database_of_helper() -> Option<(String, String)> {
    Some((std::env::var(URL).ok()?, std::env::var("KVQUEUE_PREFIX").unwrap_or_default()))
}
