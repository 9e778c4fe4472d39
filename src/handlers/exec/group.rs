//! The process group of a command.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a command that has not ended. Dropped, it kills the command and all it started.
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group that the command leads.
    pub(super) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Asks the command and all it started to end.
    pub(super) fn terminate(&self) {
        if let Some(group) = self.0 {
            // It may have ended this instant.
            let _ = kill_process_group(group, Signal::TERM);
        }
    }

    /// The command has ended. Processes that it left running go on.
    pub(super) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended this instant; then there is nothing left to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
