//! Removes the records of sessions that were not closed, such as those of killed processes.

use std::time::Duration;
use std::time::SystemTime;

use kvqueue_queue::{QueueError, TokenPlace, sweep_tokens};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{POLICY, queue::warn};
use crate::consumer::runtime::NamedQueue;

/// How often they are looked for. The first time is when the daemon starts to work on the queue.
const PERIOD: Duration = Duration::from_hours(1);

/// A session that has done nothing for a day, by the database's versions and by the clock, is gone.
const GONE: Duration = Duration::from_hours(24);

/// Sweeps the queue until it is stopped.
pub(super) async fn sweep(queue: &NamedQueue, stop: &CancellationToken) {
    let NamedQueue { db, history, .. } = queue;
    let mut place = TokenPlace::default();
    while stop.run_until_cancelled(queue.pause.unfrozen()).await.is_some() {
        // Before the clock is read, so that the noted version existed at that time. The sweep reports errors.
        let _: Result<(), QueueError> = history.observe(db, PERIOD).await;
        match sweep_tokens(db, &queue.queue, history, &mut place, SystemTime::now(), GONE, &POLICY).await {
            Ok(swept) if swept.cleared == 0 => {}
            Ok(swept) => {
                let name = queue.queue.name().escape_ascii();
                tracing::info!(
                    event = "sessions_removed",
                    queue = %name,
                    sessions = swept.cleared,
                    "removed the records of dead sessions"
                );
            }
            Err(error) => warn(queue, &error),
        }
        if stop.run_until_cancelled(sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}
