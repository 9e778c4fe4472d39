//! Clearing what sessions left behind that ended without closing: killed processes, failed consumers.

use std::time::Duration;

use kvqueue_queue::sweep_tokens;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{POLICY, Swept, queue::warn};

/// How often it is done; the first time, when the queue is taken up.
const EVERY: Duration = Duration::from_hours(1);

/// A session that has done nothing for a day, in database versions, is gone.
const GONE: u64 = 86_400_000_000;

/// Sweeps the queue, again and again, until it is told to stop.
pub(super) async fn sweep(Swept { db, queue, gate, signals, .. }: &Swept, stop: &CancellationToken) {
    while stop.run_until_cancelled(gate.thawed()).await.is_some() {
        match sweep_tokens(db, queue, GONE, &POLICY).await {
            Ok(swept) if swept.cleared == 0 => {}
            Ok(swept) => {
                let name = queue.name().escape_ascii();
                tracing::info!(queue = %name, sessions = swept.cleared, "cleared what dead sessions left");
            }
            Err(error) => warn(signals, queue, &error),
        }
        if stop.run_until_cancelled(sleep(EVERY)).await.is_none() {
            return;
        }
    }
}
