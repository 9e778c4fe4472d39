//! The processes that handlers keep, as the daemon ends them.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// From the end of its input to the signal TERM for a process that is no longer needed.
pub(super) const EXIT_DELAY: Duration = Duration::from_secs(2);

/// From TERM to KILL for such a process.
pub(super) const EXIT_TERM_DELAY: Duration = Duration::from_secs(1);

/// How long the daemon's end waits for all processes.
const END_TIMEOUT: Duration =
    EXIT_DELAY.saturating_add(EXIT_TERM_DELAY).saturating_add(Duration::from_millis(500));

/// The tasks of all processes of a daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    pub(super) tasks: TaskTracker,
    pub(super) end: CancellationToken,
}

impl Processes {
    /// Ends all processes. Call it only after the last item has ended.
    pub(crate) async fn end(&self) {
        self.end.cancel();
        self.tasks.close();
        if timeout(END_TIMEOUT, self.tasks.wait()).await.is_err() {
            let processes = self.tasks.len();
            tracing::warn!(event = "workers_not_ended", processes, "worker processes did not end in time");
        }
    }
}
