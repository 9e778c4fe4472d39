//! With `--until-empty`: the log of what a daemon waits for before it can end.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kvqueue_queue::Unfinished;
use tokio::time::Instant;

use crate::base::json::time;

/// A shorter wait is not logged.
const FIRST: Duration = Duration::from_secs(2);

/// A longer one is logged once in this time.
const PERIOD: Duration = Duration::from_secs(30);

/// When the next log event is due, once the daemon waits.
#[derive(Debug, Default)]
pub(crate) struct WaitLog(Mutex<Option<Instant>>);

impl WaitLog {
    /// Logs that the queue has unfinished items of which none is ready, unless it was logged recently.
    pub(super) fn wait_for(&self, queue: &str, unfinished: Unfinished) {
        let now = Instant::now();
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *next.get_or_insert(now + FIRST) {
            return;
        }
        *next = Some(now + PERIOD);
        let due = unfinished.waiting.map(time);
        match (unfinished.running, due) {
            (false, Some(due)) => {
                tracing::info!(
                    event = "scheduled_items_awaited",
                    queue,
                    due,
                    "--until-empty waits for items that are scheduled, or tried again later"
                );
            }
            (_, due) => tracing::info!(
                event = "running_items_awaited",
                queue,
                due,
                "--until-empty waits for running items"
            ),
        }
    }
}
