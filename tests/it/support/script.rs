//! Daemons whose handler is a shell script.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use super::{Database, kvqueue};

/// `kvqueue run` on queue `q`, with a script per item that runs in the database's directory, these lines in the queue's configuration,
/// and these options.
pub(crate) fn run_script(db: &Database, script: &str, queue: &str, options: &[&str]) -> Command {
    let name = format!("{}.toml", uuid::Uuid::now_v7());
    let config = db.file(&name);
    let text = format!(
        "shutdown-timeout = '10s'\n[queues.q]\nhandler = 'exec'\n{queue}\n\
         [queues.q.handler-config]\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.args(options).current_dir(db.directory.path());
    command
}

/// Makes a pipe for scripts to wait on, or to be waited for.
pub(crate) fn pipe(db: &Database, name: &str) {
    assert!(Command::new("mkfifo").arg(db.file(name)).status().unwrap().success());
}

/// Lets a command find this script in `PATH` in place of a program.
pub(crate) fn fake_program(db: &Database, command: &mut Command, program: &str, script: &str) {
    let directory = db.file("fake");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join(program);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", directory.display()));
}
