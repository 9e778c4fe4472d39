//! The processes of a command.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

#[cfg(target_os = "linux")]
use super::search;

/// The processes of a command that has not ended: its process group, and processes that have left the group and are still known by the name of
/// the run in their environment. Dropped, it kills the command and all it started, which blocks the thread; [`kill`](Self::kill) does not.
pub(super) struct Group {
    leader: Option<Pid>,
    /// The name of the run; none where there is no reaper.
    run: Option<String>,
}

impl Group {
    /// The group that the command leads, in a run of this name.
    pub(super) fn of(child: &Child, run: Option<&str>) -> Self {
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Self { leader, run: run.map(str::to_owned) }
    }

    /// Sends a signal to all its processes. Processes that `timeout`, `setsid` and the like have put into other groups get it, too.
    pub(super) async fn signal(&self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        // It may have ended this instant.
        let _ = kill_process_group(leader, signal);
        #[cfg(target_os = "linux")]
        if let Some(run) = &self.run {
            search::signal_run(run, leader, signal).await;
        }
    }

    /// Kills them, and returns when none is left.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::KILL).await;
        self.leader = None;
    }

    /// The command has ended. Processes that it left running go on.
    pub(super) fn ended(mut self) {
        self.leader = None;
    }
}

/// As where a call is dropped.
impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.leader else { return };
        let _ = kill_process_group(leader, Signal::KILL);
        #[cfg(target_os = "linux")]
        if let Some(run) = &self.run {
            search::signal_run_blocking(run, leader, Signal::KILL);
        }
    }
}
