//! The state that all consumers of a process share.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kvqueue_queue::VersionHistory;
use tokio::{runtime::Handle, sync::watch};
use tokio_util::task::TaskTracker;

use super::messages::Observer;
use crate::{
    base::clock::version_history,
    consumer::{shutdown::ShutdownTokens, suspects::Suspects},
    status::DaemonStatus,
    sweep::Sweepers,
};

/// The state that all consumers of a process share.
pub(crate) struct ConsumerContext {
    /// Where handlers run.
    pub(crate) pool: Handle,
    pub(crate) shutdown: Arc<ShutdownTokens>,
    /// Dispatchers and lease keepers. They go on when their consumer panics.
    pub(crate) work: TaskTracker,
    pub(crate) observer: Option<Observer>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) status: Arc<DaemonStatus>,
    /// The versions that all sweepers of this process have seen of the database.
    pub(crate) history: VersionHistory,
    pub(crate) sweepers: Sweepers,
    consumers: AtomicUsize,
    finishing: watch::Sender<BTreeSet<String>>,
}

impl ConsumerContext {
    pub(crate) fn new(pool: Handle, observer: Option<Observer>, status: Arc<DaemonStatus>) -> Arc<Self> {
        Arc::new(Self {
            pool,
            shutdown: Arc::default(),
            work: TaskTracker::new(),
            observer,
            suspects: Arc::default(),
            status,
            history: version_history(),
            sweepers: Sweepers::default(),
            consumers: AtomicUsize::new(0),
            finishing: watch::Sender::default(),
        })
    }

    /// The supervisor publishes the number of consumers.
    pub(super) fn left(&self, consumers: usize) {
        self.consumers.store(consumers, Ordering::Relaxed);
    }

    /// The supervisor publishes whether a queue has consumers that are leaving, or new ones that wait for that.
    pub(super) fn finishing(&self, queue: &str, is_finishing: bool) {
        let changed = self.finishing.send_if_modified(|finishing| {
            let changed = finishing.contains(queue) != is_finishing;
            if !changed {
                return false;
            }
            if is_finishing { finishing.insert(queue.to_owned()) } else { finishing.remove(queue) }
        });
        if changed {
            self.status.finishing(queue, is_finishing);
        }
    }

    /// The queues where consumers of an earlier configuration still run.
    pub(crate) fn still_finishing(&self) -> watch::Receiver<BTreeSet<String>> {
        self.finishing.subscribe()
    }

    /// The number of consumers.
    pub(crate) fn consumers(&self) -> usize {
        self.consumers.load(Ordering::Relaxed)
    }
}
