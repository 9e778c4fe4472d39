//! The suspects of this process, for all its queues: items whose lease has expired before. One of
//! them may have killed its worker.
//!
//! A fetch passes over suspects while this process has others. If there is nothing else, its consumer becomes idle, and no push
//! wakes it when those suspects are done. So the end of each lease of suspects wakes an idle consumer of every queue
//! that found nothing meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use kvqueue_queue::Quarantine;

use tokio::sync::Notify;

/// The quarantine of this process, and the queues that wait for it.
#[derive(Debug)]
pub(crate) struct Suspects {
    /// For the sessions of all queues.
    pub(crate) quarantine: Quarantine,
    waiting: Arc<Mutex<Waiting>>,
}

/// Queues that found nothing since a lease of suspects last ended.
#[derive(Debug, Default)]
struct Waiting {
    /// How many leases of suspects have ended.
    ended: u64,
    /// What makes each of them look again.
    queues: Vec<Weak<Notify>>,
}

impl Default for Suspects {
    fn default() -> Self {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let queues = waiting.clone();
        let quarantine = Quarantine::notifying(move || {
            let mut waiting = lock(&queues);
            waiting.ended += 1;
            let queues = std::mem::take(&mut waiting.queues);
            drop(waiting);
            queues.iter().filter_map(Weak::upgrade).for_each(|look_again| look_again.notify_one());
        });
        Self { quarantine, waiting }
    }
}

impl Suspects {
    /// How many leases of suspects have ended so far.
    pub(crate) fn ended(&self) -> u64 {
        lock(&self.waiting).ended
    }

    /// A fetch of a queue that began when `ended` leases of suspects had ended found nothing, and its consumer is idle. `look_again` makes the queue look
    /// again.
    pub(crate) fn wait(&self, look_again: &Arc<Notify>, ended: u64) {
        let mut waiting = lock(&self.waiting);
        if waiting.ended != ended {
            drop(waiting);
            look_again.notify_one();
        } else {
            let is_other = |queue: &Weak<Notify>| !std::ptr::eq(queue.as_ptr(), Arc::as_ptr(look_again));
            waiting.queues.retain(|queue| queue.strong_count() > 0 && is_other(queue));
            waiting.queues.push(Arc::downgrade(look_again));
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().expect("nothing panics while it holds the lock")
}
