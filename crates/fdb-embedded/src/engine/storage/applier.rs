//! The thread that puts groups of batches into redb while the committer goes on.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::tree::{Commit, Tree, Writes};
use super::{Applied, Batch, StorageError};
use crate::engine::delta::Delta;

/// A group of batches.
#[derive(Debug, Clone)]
pub struct Job {
    /// What they have written.
    pub delta: Arc<Delta>,
    /// One more, after them, which is not in the delta.
    pub batch: Option<Arc<Batch>>,
    /// The newest version ceiling among them.
    pub ceiling: Option<i64>,
    /// The number of the last one.
    pub number: u64,
}

/// Applies a job to what redb has in memory.
pub fn apply_job(tree: &Tree, job: Job) -> Result<Applied, StorageError> {
    let Job { delta, batch, ceiling, number } = job;
    let mutations = batch.as_ref().map_or(&[][..], |batch| &batch.mutations);
    tree.apply(Writes { delta: Some(&delta), mutations }, ceiling, number, Commit::InMemory)
}

/// Puts groups of batches into redb. It has one job at a time.
pub trait Apply: Debug + Send {
    /// Begins to apply a group to what redb has in memory.
    fn begin(&mut self, job: Job) -> Result<(), StorageError>;

    /// What became of the group, if it is done.
    fn poll(&mut self) -> Option<Result<Applied, StorageError>>;

    /// What became of the group, when it is done.
    fn wait(&mut self) -> Result<Applied, StorageError>;
}

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
            for job in waiting {
                if answers.send(apply_job(&tree, job)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("fdb-applier".to_owned()).spawn(work)?;
        Ok(Applier { jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl Apply for Applier {
    fn begin(&mut self, job: Job) -> Result<(), StorageError> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        // It ends early only if redb panics.
        if sent { Ok(()) } else { Err(StorageError::Panicked) }
    }

    fn poll(&mut self) -> Option<Result<Applied, StorageError>> {
        use std::sync::mpsc::TryRecvError;
        match self.done.try_recv() {
            Ok(applied) => Some(applied),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(StorageError::Panicked)),
        }
    }

    fn wait(&mut self) -> Result<Applied, StorageError> {
        self.done.recv().unwrap_or(Err(StorageError::Panicked))
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
