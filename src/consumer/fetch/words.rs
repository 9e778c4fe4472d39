//! What a daemon says that is to end with its queues, and cannot yet.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kvqueue_queue::Unfinished;
use tokio::time::Instant;

use crate::json::time;

/// A wait shorter than this is not spoken of.
const FIRST: Duration = Duration::from_secs(2);

/// Then it is said as often as this.
const AGAIN: Duration = Duration::from_secs(30);

/// When the daemon next says what it waits for, once it waits.
#[derive(Debug, Default)]
pub(crate) struct LastWords(Mutex<Option<Instant>>);

impl LastWords {
    /// There is something left, and nothing that could be taken now.
    pub(super) fn wait_for(&self, queue: &str, rest: Unfinished) {
        let now = Instant::now();
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now < *next.get_or_insert(now + FIRST) {
            return;
        }
        *next = Some(now + AGAIN);
        let due = rest.waiting.map(time);
        match (rest.running, due) {
            (false, Some(due)) => {
                tracing::info!(
                    event = "scheduled_items_awaited",
                    queue,
                    due,
                    "--until-empty waits for scheduled items"
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
