//! Clearing what sessions left behind that ended without closing: killed processes, failed consumers.

use std::{convert::Infallible, sync::Arc, time::Duration};

use foundationdb::Database;
use kvqueue_queue::{Queue, RetryPolicy, sweep_tokens};
use tokio::time::sleep;

/// How often the daemon sweeps; the first time, when it starts.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// A session that has done nothing for a day, in database versions, is gone.
const GONE: u64 = 86_400_000_000;

/// A sweep that takes longer is given up until the next.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(60)) };

/// Sweeps the queues, again and again.
pub(crate) async fn forever(db: Arc<Database>, queues: Vec<Queue>) -> Infallible {
    loop {
        for queue in &queues {
            let name = queue.name().escape_ascii();
            match sweep_tokens(&db, queue, GONE, &POLICY).await {
                Ok(swept) if swept.cleared == 0 => {}
                Ok(swept) => tracing::info!(queue = %name, cleared = swept.cleared, "swept"),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(queue = %name, error, "sweep failed, trying again later");
                }
            }
        }
        sleep(EVERY).await;
    }
}
