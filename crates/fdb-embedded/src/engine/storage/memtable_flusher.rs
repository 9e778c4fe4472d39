//! The flusher: a thread that writes memtables to redb while the committer continues.

use baton::mpsc::{Receiver, SyncSender, sync_channel};
use baton::thread::{self, JoinHandle};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use super::batch::WriteBatch;
use super::error::StorageError;
use super::memtable::Memtable;
use super::tree::{FlushedTree, Tree, TreeCommit, TreeWrites};
use super::undo_log::RetainedSegment;

/// A memtable to write to redb.
#[derive(Debug)]
pub struct FlushJob {
    /// The writes of some batches.
    pub memtable: Arc<Memtable>,
    /// A large batch to apply after the memtable.
    pub batch: Option<Arc<WriteBatch>>,
    /// The newest version ceiling of these batches.
    pub ceiling: Option<i64>,
    /// The LSN of the last batch.
    pub lsn: u64,
    /// Memory to free after the job.
    pub retired: Vec<RetainedSegment>,
}

/// Applies a job to redb's in-memory state.
pub fn flush_job(tree: &Tree, job: &FlushJob) -> Result<FlushedTree, StorageError> {
    let FlushJob { memtable, batch, ceiling, lsn, .. } = job;
    let mutations = batch.as_ref().map_or(&[][..], |batch| &batch.mutations);
    tree.apply(TreeWrites { memtable: Some(memtable), mutations }, *ceiling, *lsn, TreeCommit::InMemory)
}

/// Writes memtables to redb, one job at a time. The simulation has its own implementation.
pub trait MemtableFlusher: Debug + Send {
    /// Starts a job. The previous one must have been collected.
    fn begin(&mut self, job: FlushJob) -> Result<(), StorageError>;

    /// The result of the job, if it has finished.
    fn poll(&mut self) -> Option<Result<FlushedTree, StorageError>>;

    /// Waits for the result of the job.
    fn wait(&mut self) -> Result<FlushedTree, StorageError>;
}

/// The flusher as a thread, with a channel in each direction.
#[derive(Debug)]
pub struct FlusherThread {
    jobs: Option<SyncSender<FlushJob>>,
    done: Receiver<Result<FlushedTree, StorageError>>,
    thread: Option<JoinHandle<()>>,
}

impl FlusherThread {
    /// Starts the thread.
    pub fn start(tree: &Arc<Tree>) -> io::Result<FlusherThread> {
        let (jobs, waiting) = sync_channel::<FlushJob>(1);
        let (answers, done) = sync_channel(1);
        let tree = Arc::clone(tree);
        let work = move || {
            for job in waiting {
                let applied = flush_job(&tree, &job);
                if answers.send(applied).is_err() {
                    return;
                }
                // The committer has its answer.
                drop(job.retired);
            }
        };
        let thread = thread::Builder::new().name("fdb-flusher".to_owned()).spawn(work)?;
        Ok(FlusherThread { jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl MemtableFlusher for FlusherThread {
    fn begin(&mut self, job: FlushJob) -> Result<(), StorageError> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        // The thread ends early only if redb panics.
        if sent { Ok(()) } else { Err(StorageError::Panicked) }
    }

    fn poll(&mut self) -> Option<Result<FlushedTree, StorageError>> {
        use baton::mpsc::TryRecvError;
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
    /// Joins the thread, so that the last reference to redb's file, which closes it, is not dropped
    /// there.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
