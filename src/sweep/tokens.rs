//! Clearing what sessions left behind that ended without closing: killed processes, failed consumers.

use std::{convert::Infallible, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Queue, sweep_tokens};
use tokio::time::sleep;

use super::{POLICY, warn};
use crate::consumer::signals::Signals;

/// How often it is done; the first time, when the daemon starts.
const EVERY: Duration = Duration::from_hours(1);

/// A session that has done nothing for a day, in database versions, is gone.
const GONE: u64 = 86_400_000_000;

/// Sweeps the queues, again and again.
pub(super) async fn forever(db: &Database, signals: &Signals, queues: Vec<Queue>) -> Infallible {
    loop {
        for queue in &queues {
            match sweep_tokens(db, queue, GONE, &POLICY).await {
                Ok(swept) if swept.cleared == 0 => {}
                Ok(swept) => {
                    let name = queue.name().escape_ascii();
                    tracing::info!(queue = %name, sessions = swept.cleared, "cleared what dead sessions left");
                }
                Err(error) => warn(signals, queue, &error),
            }
        }
        sleep(EVERY).await;
    }
}
