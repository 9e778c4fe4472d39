//! What an engine and its process hold in memory, as threads and on the disk, for tests that nothing
//! grows with time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use super::committer::{CommitQueue, Committer};
use super::read_views::READ_WINDOW;
use super::storage::Storage;
use super::{Engine, Shared};

/// What the host of a directory holds when it is at rest: all memtables are in the data file, and no
/// old version can be read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Bytes of memtables.
    pub memtables: usize,
    /// Bytes of the undo log, and the pieces of it that wait to be freed.
    pub undo_log: (usize, usize),
    /// Bytes of the ranges that commits are checked against.
    pub conflicts: usize,
    /// Replaced and pinned states that transactions keep readable.
    pub old_states: usize,
    /// Commits that wait, and their bytes.
    pub commits: (usize, usize),
    /// Armed watches, and their bytes.
    pub watches: (usize, usize),
    /// Watches that this process would arm at the next host.
    pub kept_watches: usize,
    /// Connections of guests.
    pub guests: usize,
    /// Bytes of the disk that the data file occupies.
    pub data_file: u64,
    /// Bytes of all keys and values in it.
    pub rows: u64,
    /// Bytes of the log.
    pub log: u64,
}

impl Holdings {
    /// What would be there longer than the transactions that made it; empty if there is nothing of
    /// that kind. Does not judge the files: how large they may be depends on what was written.
    #[must_use]
    pub fn left_over(&self) -> Vec<String> {
        let counts = [
            ("bytes of memtables", self.memtables),
            ("bytes of the undo log", self.undo_log.0),
            ("pieces of the undo log to free", self.undo_log.1),
            ("bytes of ranges for conflicts", self.conflicts),
            ("old states", self.old_states),
            ("waiting commits", self.commits.0),
            ("bytes of waiting commits", self.commits.1),
            ("watches", self.watches.0),
            ("bytes of watches", self.watches.1),
            ("watches for the next host", self.kept_watches),
            ("guests", self.guests),
        ];
        counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect()
    }
}

/// What the embedded databases of this process hold together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessHoldings {
    /// Threads of the engines and their connections, by name, without the network thread.
    pub threads: BTreeMap<String, usize>,
    /// Open files and sockets.
    pub descriptors: usize,
    /// Timers of the network thread.
    pub timers: usize,
    /// Links to directories.
    pub links: usize,
}

/// The thread of [`crate::Network`], which a process has once.
const NETWORK_THREAD: &str = "fdb-callbacks";
/// How often [`ProcessHoldings::await_none`] looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl ProcessHoldings {
    /// What there is now.
    #[must_use]
    pub fn now() -> ProcessHoldings {
        let mut threads = BTreeMap::new();
        for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            let name = name.trim();
            if name.starts_with("fdb-") && name != NETWORK_THREAD {
                *threads.entry(name.to_owned()).or_default() += 1;
            }
        }
        let descriptors = crate::fork::REGISTERED.lock().len();
        let (timers, links) = (crate::network::timers(), crate::link::Link::count());
        ProcessHoldings { threads, descriptors, timers, links }
    }

    /// Waits until there is nothing; after `patience`, what is left. Threads end a little later than
    /// what they worked for.
    #[must_use]
    pub fn await_none(patience: Duration) -> ProcessHoldings {
        let deadline = Instant::now() + patience;
        loop {
            let now = ProcessHoldings::now();
            if now == ProcessHoldings::default() || Instant::now() >= deadline {
                return now;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Engine {
    /// Has the committer do all work that is left for idle times, and tells what the engine holds
    /// then. `None` if the engine has ended.
    pub fn holdings_at_rest(&self) -> Option<Holdings> {
        let (sender, receiver) = mpsc::channel();
        {
            let mut queue = self.shared.queue.lock();
            if queue.closed {
                return None;
            }
            queue.examiners.push(sender);
        }
        self.shared.work.notify_one();
        receiver.recv().ok()
    }
}

impl CommitQueue {
    /// Takes the tests that ask what the engine holds.
    pub(super) fn take_examiners(&mut self) -> Vec<Sender<Holdings>> {
        std::mem::take(&mut self.examiners)
    }
}

impl Committer {
    /// Does all work that is left for idle times, and tells what the engine holds then.
    pub(super) fn come_to_rest(&mut self) -> Holdings {
        self.update_storage(Storage::flush_idle);
        self.update_storage(Storage::checkpoint);
        self.trim_expired(Instant::now() + READ_WINDOW);
        let mut holdings = Holdings::default();
        self.storage.add_holdings(&mut holdings);
        holdings.conflicts = self.resolver.bytes();
        self.shared().add_holdings(&mut holdings);
        holdings
    }
}

impl Shared {
    fn add_holdings(self: &Arc<Self>, holdings: &mut Holdings) {
        self.views.lock().add_holdings(holdings);
        self.watches.add_holdings(holdings);
        let queue = self.queue.lock();
        holdings.commits = (queue.requests.len(), queue.bytes);
    }
}
