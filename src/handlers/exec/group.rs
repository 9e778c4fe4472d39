//! The process group of a command.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a command that has not ended. Dropped, it kills the command and all it
/// started.
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group that the command leads.
    pub(super) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Sends a signal to all its processes.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended this instant.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills them.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }

    /// The command has ended. Processes that it left running go on.
    pub(super) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
