//! The items that are left in queues that a reload removed.

use foundationdb::{Database, FdbError};
use futures::{StreamExt, stream};
use kvqueue_queue::{Counts, Queue, QueueError};
use tokio::time::timeout;

use crate::{config::Config, control::Left, deadlines::LEFT};

/// How many queues are counted at a time.
const TOGETHER: usize = 16;

/// The removed queues that have items. A queue is left out if the database does not answer in time.
pub(in crate::daemon) async fn left(db: &Database, old: &Config, new: &Config) -> Vec<Left> {
    let removed = old.queues.iter().filter(|(name, _)| !new.queues.contains_key(*name));
    let counted = removed.map(async |(name, settings)| {
        let queue = Queue::of_kind(old.prefix.as_bytes(), name.as_bytes(), settings.layout()).ok()?;
        let Counts { ready, waiting, .. } = counts(db, &queue).await.ok()?;
        let items = u64::try_from(ready.max(0).saturating_add(waiting.max(0))).ok()?;
        (items > 0).then(|| Left { queue: name.clone(), items })
    });
    let mut found = Vec::new();
    let mut counted = stream::iter(counted).buffered(TOGETHER).filter_map(std::future::ready).boxed_local();
    let all = async {
        while let Some(left) = counted.next().await {
            found.push(left);
        }
    };
    // The counts so far are reported.
    let _ = timeout(LEFT, all).await;
    drop(counted);
    found
}

async fn counts(db: &Database, queue: &Queue) -> Result<Counts, QueueError> {
    let tr = db.create_trx().map_err(|error| FdbError::from_code(error.code()))?;
    queue.counts(&tr).await
}
