//! A process that may have few files open says so.

use std::process::Command;

use crate::support::{Database, Ran, clean, run, run_script};

/// A command with at most this many files open.
fn with_descriptors(most: u32, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n \"$0\"; exec \"$@\"", &most.to_string()]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.current_dir(command.get_current_dir().unwrap());
    limited
}

#[test]
fn a_daemon_that_may_have_too_few_files_open_ends_with_a_sentence() {
    for most in (12..=64).step_by(4) {
        let db = Database::embedded();
        run(&db, &["push", "q", "one"]).ok();
        let command = run_script(&db, "true", "consumers = 40", &["--until-empty"]);
        let mut limited = with_descriptors(most, &command);
        clean(&mut limited, &db);
        let ran = Ran::from(limited.env("KVQUEUE_HTTP__LISTEN", "127.0.0.1:0").output().unwrap());
        if most == 64 {
            ran.ok();
            continue;
        }
        let sentence =
            format!("the process may have {most} files open, and needs 64 at least; raise the limit");
        let error = ran.failed(1);
        assert!(error.contains(&sentence), "{error}");
        assert_eq!(run(&db, &["len", "q"]).ok(), "1\n");
    }
}
