//! When items are finished durably, as the database tells it: a watch on the queue's counter of finished items.
//!
//! The counter says how many, and not which. Consumers finish items about in the order in which they began them, so the n-th that was
//! begun counts as finished once the counter says n. Where some overtake others their times are exchanged, and the distribution of all
//! times stays the same but for what they differ by.

use std::{sync::Arc, time::Instant};

use foundationdb::{Database, FdbError};
use tokio::task::JoinHandle;
use tokio_util::{future::FutureExt, sync::CancellationToken};

use super::{
    keys::{Keys, counter},
    tally::Tally,
};

/// The number of items that were finished at a time, in the tally's nanoseconds.
type Sight = (u64, u64);

/// Somebody who watches the counter.
pub(super) struct Watcher {
    stop: CancellationToken,
    task: JoinHandle<Result<Vec<Sight>, FdbError>>,
}

impl Watcher {
    pub(super) fn start(db: Arc<Database>, keys: Keys, tally: Arc<Tally>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(watch(db, keys, tally, stop.clone()));
        Self { stop, task }
    }

    /// What was seen, in order.
    pub(super) async fn stop(self) -> anyhow::Result<Vec<Sight>> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

async fn watch(
    db: Arc<Database>,
    keys: Keys,
    tally: Arc<Tally>,
    stop: CancellationToken,
) -> Result<Vec<Sight>, FdbError> {
    let mut seen = Vec::new();
    let mut tr = db.create_trx()?;
    loop {
        let value = match tr.get(&keys.ndone, true).await {
            Ok(value) => value,
            Err(error) => {
                tr = tr.on_error(error).await?;
                continue;
            }
        };
        let (now, finished) = (tally.nanos(Instant::now()), counter(value.as_deref()));
        if seen.last().is_none_or(|(_, before)| *before < finished) {
            seen.push((now, finished));
        }
        if stop.is_cancelled() {
            return Ok(seen);
        }
        let changed = tr.watch(&keys.ndone);
        tr = match tr.commit().await {
            Ok(committed) => committed.reset(),
            Err(error) => {
                tr = error.on_error().await?;
                continue;
            }
        };
        // A watch that failed tells nothing: the counter is looked at again. So it is once more before the end.
        let _ = changed.with_cancellation_token(&stop).await;
    }
}

/// When each of the items was finished that were begun in this order; `None` where that was not seen.
pub(super) fn times(seen: &[Sight], items: usize) -> impl Iterator<Item = Option<u64>> {
    (1..=items as u64).map(|nth| {
        let first = seen.partition_point(|(_, finished)| *finished < nth);
        seen.get(first).map(|(at, _)| *at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_finished_when_the_counter_has_reached_it() {
        let seen = [(10, 0), (20, 2), (30, 3)];
        assert_eq!(times(&seen, 4).collect::<Vec<_>>(), [Some(20), Some(20), Some(30), None]);
    }
}
