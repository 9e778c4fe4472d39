//! The cancellation follower of a queue: it wakes the keepers of this process's leases when items of theirs are cancelled.
//!
//! It watches one key of the queue, which changes with each cancellation of a running item, and only while this process holds leases of the
//! queue. A cancellation that the watch does not report is found by the next change of the lease: after a third of its length at the
//! latest.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::future::try_join_all;
use kvqueue_queue::{LeaseId, RetryError, RetryPolicy, Watch, retry};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    base::{background, backoff, causes::with_causes},
    consumer::runtime::NamedQueue,
};

/// The database is asked again after this time, even if the watch has not fired.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// After a cancellation it looks once more, for leases that were fetched before and that this process did not know yet.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// The shortest time between two looks: cancellations of many items share one.
const PACE: Duration = Duration::from_millis(50);

/// How long the watch is kept while no lease is held. A busy queue has moments without.
const LINGER: Duration = Duration::from_secs(10);

/// How many leases are looked up at once.
const TOGETHER: usize = 100;

/// A read that takes longer is given up, and tried again.
const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_secs(10)) };

/// The running follower. Dropped, it stops.
#[derive(Debug)]
pub(crate) struct CancellationFollower(JoinHandle<Infallible>);

impl CancellationFollower {
    /// Starts to follow.
    pub(crate) fn start(queue: Arc<NamedQueue>) -> Self {
        let follow = background::restarted("cancellation follower", move || {
            let following = Following { queue: queue.clone(), seen: None, look_again: false };
            tokio::spawn(following.forever())
        });
        Self(tokio::spawn(follow))
    }
}

impl Drop for CancellationFollower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Following {
    queue: Arc<NamedQueue>,
    /// The number of cancellations at the last look.
    seen: Option<u64>,
    /// There was one since the look before.
    look_again: bool,
}

impl Following {
    async fn forever(mut self) -> Infallible {
        let mut failures = 0;
        loop {
            self.queue.held.any().await;
            match self.look().await {
                Ok(watch) => {
                    let lost = self.wait(watch).await;
                    failures = if lost { failures + 1 } else { 0 };
                }
                Err(error) => {
                    failures += 1;
                    tracing::debug!(
                        event = "cancellations_not_read",
                        queue = %self.queue.name,
                        error = with_causes(&error),
                        "cannot read the queue's cancellations; retrying"
                    );
                }
            }
            sleep(if failures > 0 { backoff::pause(failures) } else { PACE }).await;
        }
    }

    /// Waits for the next look. Returns whether the watch is lost.
    async fn wait(&self, watch: Watch) -> bool {
        let pause = if self.look_again { LOOK_AGAIN } else { POLL_INTERVAL };
        let look_at = Instant::now() + pause;
        tokio::select! {
            fired = watch => fired.is_err(),
            () = sleep_until(look_at) => false,
            () = self.idle() => false,
        }
    }

    /// Resolves when no lease has been held for a while.
    async fn idle(&self) {
        let mut was_empty = false;
        loop {
            sleep(LINGER).await;
            let is_empty = self.queue.held.is_empty();
            if is_empty && was_empty {
                return;
            }
            was_empty = is_empty;
        }
    }

    /// Reads which items were cancelled, wakes their keepers, and watches from there on.
    async fn look(&mut self) -> Result<Watch, RetryError> {
        let (queue, held, seen) = (&self.queue.queue, &self.queue.held.ids(), self.seen);
        let always = self.look_again;
        let read = retry::run(&self.queue.db, &POLICY, |tr| async move {
            let read = async {
                let count = queue.cancellations(&tr).await?;
                let watch = queue.watch_cancellations(&tr);
                let mut found: Vec<(LeaseId, usize)> = Vec::new();
                if always || seen != Some(count) {
                    for leases in held.chunks(TOGETHER) {
                        let read = leases.iter().map(|lease| queue.cancelled_items(&tr, *lease));
                        let read = try_join_all(read).await?.into_iter().map(|items| items.len());
                        found.extend(leases.iter().copied().zip(read));
                    }
                }
                Ok((count, watch, found))
            };
            let read = read.await;
            (tr, read)
        });
        let (count, watch, found) = read.await?.value;
        self.look_again = seen.is_some_and(|seen| seen != count);
        self.seen = Some(count);
        for (lease, cancelled) in found {
            self.queue.held.wake(lease, cancelled);
        }
        Ok(watch)
    }
}
