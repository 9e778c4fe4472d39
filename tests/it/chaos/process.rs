//! Processes that are killed, stopped and continued. None outlives its value.

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::PATIENCE;

/// A process with a log. Killed when dropped.
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) name: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, well.
    Done,
    /// kill -9: by this test, or by itself.
    Killed,
    /// In any other way.
    Failed,
}

impl Process {
    /// Starts it. Its stderr goes to the log of its name, unless the command redirects it.
    pub(super) fn start(name: String, command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { child, name }
    }

    /// A file for what processes say.
    pub(super) fn log(path: &Path) -> File {
        File::options().create(true).append(true).open(path).unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Does nothing to a process that has ended: its id is kept until it is asked how.
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its name, and whether it sleeps, runs or is stopped, for a person.
    pub(super) fn at_work(&self) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let state = status.lines().find(|line| line.starts_with("State:"));
        format!("{} ({})", self.name, state.unwrap_or("ended"))
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<End> {
        self.child.try_wait().unwrap().map(end)
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> End {
        self.wait_for(PATIENCE)
    }

    /// The same; a process that takes longer hangs.
    pub(super) fn wait_for(&mut self, patience: Duration) -> End {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(end) = self.ended() {
                return end;
            }
            assert!(Instant::now() < deadline, "{} has not ended after {patience:?}", self.name);
            // Waiting for a child with a limit is not to be had otherwise.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(0), _) => End::Done,
        (_, Some(9)) => End::Killed,
        _ => End::Failed,
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either may fail because it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
