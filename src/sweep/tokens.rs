//! Clearing what sessions left behind that ended without closing: killed processes, failed consumers.

use std::time::Duration;
use std::time::SystemTime;

use kvqueue_queue::{QueueError, TokenPlace, sweep_tokens};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{POLICY, Swept, queue::warn};

/// How often it is done; the first time, when the queue is taken up.
const EVERY: Duration = Duration::from_hours(1);

/// A session that has done nothing for a day, by the database's versions and by the clock, is gone.
const GONE: Duration = Duration::from_hours(24);

/// Sweeps the queue again and again, until it is stopped.
pub(super) async fn sweep(swept: &Swept, stop: &CancellationToken) {
    let Swept { db, queue, history, pause, shutdown, .. } = swept;
    let mut place = TokenPlace::default();
    while stop.run_until_cancelled(pause.unfrozen()).await.is_some() {
        // Before the clock is read: the noted version existed at that time. The sweep reports an error.
        let _: Result<(), QueueError> = history.observe(db, EVERY).await;
        match sweep_tokens(db, queue, history, &mut place, SystemTime::now(), GONE, &POLICY).await {
            Ok(swept) if swept.cleared == 0 => {}
            Ok(swept) => {
                let name = queue.name().escape_ascii();
                tracing::info!(
                    event = "sessions_removed",
                    queue = %name,
                    sessions = swept.cleared,
                    "removed the records of dead sessions"
                );
            }
            Err(error) => warn(shutdown, queue, &error),
        }
        if stop.run_until_cancelled(sleep(EVERY)).await.is_none() {
            return;
        }
    }
}
