//! The thread that puts groups of batches into redb while the committer goes on.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::tree::{Tree, TreeCommit, TreeWrites};
use super::{FlushedTree, StorageError, WriteBatch};
use crate::engine::memtable::Memtable;

/// A group of batches.
#[derive(Debug, Clone)]
pub struct FlushJob {
    /// What they have written.
    pub memtable: Arc<Memtable>,
    /// One more, after them, which is not in the memtable.
    pub batch: Option<Arc<WriteBatch>>,
    /// The newest version ceiling among them.
    pub ceiling: Option<i64>,
    /// The lsn of the last one.
    pub lsn: u64,
}

/// Applies a job to what redb has in memory.
pub fn flush_job(tree: &Tree, job: FlushJob) -> Result<FlushedTree, StorageError> {
    let FlushJob { memtable, batch, ceiling, lsn } = job;
    let mutations = batch.as_ref().map_or(&[][..], |batch| &batch.mutations);
    tree.apply(TreeWrites { memtable: Some(&memtable), mutations }, ceiling, lsn, TreeCommit::InMemory)
}

/// Puts groups of batches into redb. It has one job at a time.
pub trait MemtableFlusher: Debug + Send {
    /// Begins to apply a group to what redb has in memory.
    fn begin(&mut self, job: FlushJob) -> Result<(), StorageError>;

    /// What became of the group, if it is done.
    fn poll(&mut self) -> Option<Result<FlushedTree, StorageError>>;

    /// What became of the group, when it is done.
    fn wait(&mut self) -> Result<FlushedTree, StorageError>;
}

/// The thread, and the ways to it and back.
#[derive(Debug)]
pub struct FlusherThread {
    jobs: Option<SyncSender<FlushJob>>,
    done: Receiver<Result<FlushedTree, StorageError>>,
    thread: Option<JoinHandle<()>>,
}

impl FlusherThread {
    /// Starts it.
    pub fn start(tree: &Arc<Tree>) -> io::Result<FlusherThread> {
        let (jobs, waiting) = sync_channel::<FlushJob>(1);
        let (answers, done) = sync_channel(1);
        let tree = Arc::clone(tree);
        let work = move || {
            for job in waiting {
                if answers.send(flush_job(&tree, job)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("fdb-flusher".to_owned()).spawn(work)?;
        Ok(FlusherThread { jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl MemtableFlusher for FlusherThread {
    fn begin(&mut self, job: FlushJob) -> Result<(), StorageError> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        // It ends early only if redb panics.
        if sent { Ok(()) } else { Err(StorageError::Panicked) }
    }

    fn poll(&mut self) -> Option<Result<FlushedTree, StorageError>> {
        use std::sync::mpsc::TryRecvError;
        match self.done.try_recv() {
            Ok(applied) => Some(applied),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(StorageError::Panicked)),
        }
    }

    fn wait(&mut self) -> Result<FlushedTree, StorageError> {
        self.done.recv().unwrap_or(Err(StorageError::Panicked))
    }
}

impl Drop for FlusherThread {
    /// redb's file is closed by the last who has it, and that is not to be this thread.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
