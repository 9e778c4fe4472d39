//! Daemons whose handler is a shell script.

use std::process::Command;

use super::{Database, kvqueue};

/// `kvqueue run` on queue `q`, with a script per item that runs beside the database, these lines in the queue's configuration,
/// and these options.
pub(crate) fn run_script(db: &Database, script: &str, queue: &str, options: &[&str]) -> Command {
    let name = format!("{}.toml", uuid::Uuid::now_v7());
    let config = db.file(&name);
    let text = format!(
        "shutdown-timeout = '10s'\n[queues.q]\nhandler = 'exec'\n{queue}\n\
         [queues.q.handler-config]\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.args(options).current_dir(db.directory.path());
    command
}

/// Makes a pipe for scripts to wait on, or to be waited for.
pub(crate) fn pipe(db: &Database, name: &str) {
    assert!(Command::new("mkfifo").arg(db.file(name)).status().unwrap().success());
}
