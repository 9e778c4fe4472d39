//! Divides a queue into the partitions that the configuration names, when the daemon starts to work on the queue and when
//! the configuration changes.

use std::time::Duration;

use kvqueue_queue::{Partitions, retry};
use tokio::{sync::watch, time::sleep};

use super::POLICY;
use crate::{base::causes::with_causes, config::duration, consumer::runtime::NamedQueue};

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// Follows the configuration, until the sweeper of the queue is dropped.
pub(super) async fn keep(queue: &NamedQueue, mut wanted: watch::Receiver<Option<Partitions>>) {
    loop {
        let to = *wanted.borrow_and_update();
        let done = match to {
            Some(to) => divide(queue, to).await,
            None => true,
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = sleep(PAUSE), if !done => {}
        }
    }
}

/// Returns whether it is done.
async fn divide(queue: &NamedQueue, to: Partitions) -> bool {
    let NamedQueue { db, name, .. } = queue;
    let divided = retry::run(db, &POLICY, |tr| async move {
        let changed = queue.queue.set_partitions(&tr, to).await;
        (tr, changed)
    });
    match divided.await {
        Ok(done) if done.value => {
            tracing::info!(
                event = "queue_divided",
                queue = %name,
                partitions = to.count(),
                max_disorder = duration::format(to.max_disorder()),
                "queue divided into partitions as configured"
            );
            true
        }
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(
                event = "queue_not_divided",
                queue = %name,
                error = with_causes(&error),
                "cannot divide the queue into partitions; retrying later"
            );
            false
        }
    }
}
