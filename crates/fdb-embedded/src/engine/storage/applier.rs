//! The thread that puts a batch into redb while the committer flushes it to the log.
//!
//! Of the two the flush takes longer, as a rule, so it is the one that begins at once: what it costs to wake this thread,
//! and to wait for it, is hidden behind the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::tree::{Commit, Tree};
use super::{Applied, Batch, StorageError};

/// A batch, and its number.
type Job = (Arc<Batch>, u64);

/// The thread, and the ways to it and back.
#[derive(Debug)]
pub struct Applier {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Result<Applied, StorageError>>,
    thread: Option<JoinHandle<()>>,
}

impl Applier {
    /// Starts it.
    pub fn start(tree: &Arc<Tree>) -> io::Result<Applier> {
        let (jobs, waiting) = sync_channel::<Job>(1);
        let (answers, done) = sync_channel(1);
        let tree = Arc::clone(tree);
        let work = move || {
            for (batch, number) in waiting {
                if answers.send(tree.apply(&batch, number, Commit::InMemory)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("fdb-applier".to_owned()).spawn(work)?;
        Ok(Applier { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Applies a batch to what redb has in memory, and runs `meanwhile`; returns when both are done.
    pub fn apply<T>(
        &self,
        batch: &Arc<Batch>,
        number: u64,
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<Applied, StorageError>, T) {
        let job = (Arc::clone(batch), number);
        let is_begun = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let other = meanwhile();
        let applied = if is_begun { self.done.recv().ok() } else { None };
        // It ends early only if redb panics.
        (applied.unwrap_or(Err(StorageError::Panicked)), other)
    }
}

impl Drop for Applier {
    /// redb's file is closed by the last who has it, and that is not to be this thread.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
