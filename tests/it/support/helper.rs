//! Programs of the tests' own: a daemon with other handlers, say. Each is an ignored test of this binary, run as a process
//! of its own, since a process has one daemon.

use std::process::Command;

use kvqueue::{Config, Daemon, Exit, config::Listen};

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

/// In a helper: a daemon on the database it was given, with this configuration besides.
pub(crate) fn daemon_of_helper(config: &str) -> Option<Daemon> {
    let (database, prefix) = database_of_helper()?;
    let mut config = Config { database, prefix, ..toml::from_str(config).unwrap() };
    // As the variable says that its command was given, and a configuration that is loaded anew.
    if config.http.listen == Listen::Auto {
        config.http.listen = Listen::Off;
    }
    kvqueue::telemetry::init(&config.log).unwrap();
    Some(Daemon::new(config))
}

/// The daemon, with this file to load anew.
pub(crate) fn reloadable(daemon: Daemon, path: String) -> Daemon {
    daemon.reload_with(Some((&path).into()), move || {
        let config = kvqueue::config::load(Some(path.as_ref()))?;
        let (database, prefix) = database_of_helper().expect("a helper has a database");
        Ok(Config { database, prefix, ..config })
    })
}

/// Whether a process has something to be done at HUP; before, it would be killed by it.
pub(crate) fn hears_hup(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught
        .and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok())
        .is_some_and(|caught| caught & 1 == 1)
}

/// Runs a daemon as the program does, and ends the process.
pub(crate) fn run_to_the_end(daemon: Daemon) -> ! {
    let exit = match daemon.run() {
        Ok(()) => Exit::Done,
        Err(error) => {
            eprintln!("ended: {error}");
            error.exit()
        }
    };
    std::process::exit(exit as i32);
}
