//! The committer: a thread that turns queued commits into durable batches.
//!
//! ```text
//! queue -> [ resolve in order -> stamp -> log, flush -> publish ] -> fire watches, complete promises
//! ```
//! While one batch is flushed, the next one collects in the queue. So the more clients commit at a
//! time, the more commits share a flush. Asynchronous commits are written to the log, published and
//! acknowledged without a flush of their own; the next flush covers them.

mod commit_queue;
mod look_out;
mod request;
mod resolve;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton::MutexGuard;
use mutant::mutant;

use super::admission::Admission;
use super::clock::Clock;
use super::directory::Directory;
use super::mutation::Mutation;
use super::read_views::READ_WINDOW;
use super::resolver::Resolver;
use super::shared::Shared;
use super::storage::{self, Durability, Storage, StorageError, StorageUpdate, WrittenKeys};
use crate::capi::process::heap;
use crate::error::Code;
use crate::network;

use look_out::LookOut;

pub(super) use commit_queue::CommitQueue;
pub(super) use request::NOT_STARTED;
pub use request::{CommitFailure, CommitPromise, CommitRequest, CommitResult, Committed};

/// How long the committer spins, yielding to other threads, before it sleeps. A client that commits
/// one transaction after the other is back by then, and waking a thread takes as long ([`LookOut`]).
const SPIN_TIME: Duration = Duration::from_micros(150);

/// After this delay without commits, asynchronous commits are flushed and the memtable goes to
/// redb.
const FLUSH_DELAY: Duration = Duration::from_millis(2);

/// After this delay without commits, a checkpoint empties the log, so that the next process opens
/// the directory fast.
const CHECKPOINT_DELAY: Duration = Duration::from_millis(500);

pub(super) struct Committer {
    shared: Arc<Shared>,
    /// Only the committer writes to it, and it also closes it.
    pub(super) storage: Storage,
    /// Locked until the storage is closed.
    directory: Arc<Directory>,
    pub(super) resolver: Resolver,
    idle_stage: IdleStage,
    look_out: LookOut,
    /// When the oldest published commit that is not flushed was published.
    pub(super) unflushed: Option<Instant>,
    /// The last batch had only asynchronous commits, so the next one takes all that wait.
    was_asynchronous: bool,
    /// Bytes written since memory was last returned to the system.
    untrimmed_bytes: usize,
    /// Bytes of the requests of the next batch.
    batch_bytes: usize,
    admission: Admission,
}

/// After this many written bytes it is worth returning free memory to the system.
const TRIM_MEMORY_AFTER: usize = 16 << 20;

/// The work done since the last batch, while no commits came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleStage {
    /// None.
    Busy,
    /// The log is flushed and the memtable is in redb.
    Flushed,
    /// A checkpoint has emptied the log.
    Checkpointed,
    /// The undo log and the conflict history are empty: no old version can be read any more.
    Trimmed,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        storage: Storage,
        directory: Arc<Directory>,
        resolver: Resolver,
    ) -> Committer {
        let admission = Admission::new(directory.path().to_path_buf());
        let (idle_stage, unflushed, was_asynchronous) = (IdleStage::Trimmed, None, false);
        let (untrimmed_bytes, batch_bytes) = (0, 0);
        Committer {
            shared,
            storage,
            directory,
            resolver,
            idle_stage,
            look_out: LookOut::new(),
            unflushed,
            was_asynchronous,
            untrimmed_bytes,
            batch_bytes,
            admission,
        }
    }

    /// Runs until the engine closes, and then closes the directory.
    pub(super) fn run(mut self) {
        let work = || {
            while let Some(requests) = self.next_requests() {
                self.commit(requests);
            }
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            // The panic hook has reported it. Half of a batch may be stored.
            self.poison(&"its committer panicked");
        }
        self.lower_ceiling();
        self.close();
    }

    /// Lowers the durable ceiling, which is ahead of the versions in use, to a last version. The
    /// next process continues from there.
    fn lower_ceiling(&self) {
        if self.shared.is_poisoned() || self.admission.is_full() {
            return;
        }
        let version = self.shared.views.lock().clock().end(baton::now());
        let batch = storage::WriteBatch { version, ceiling: Some(version), mutations: Vec::new() };
        // If this fails, the higher ceiling stays, which only leaves a larger gap in versions.
        let _ = self.storage.apply(batch, Durability::Asynchronous);
    }

    /// Ends all reads, refuses queued commits, and closes the directory.
    fn close(self) {
        let Committer { shared, storage, directory, .. } = self;
        let left = {
            let mut queue = shared.queue.lock();
            queue.closed = true;
            #[cfg(feature = "testing")]
            drop(queue.take_examiners());
            std::mem::take(&mut queue.requests)
        };
        for request in left {
            request.promise.complete(Err(NOT_STARTED.into()));
        }
        shared.views.lock().close();
        drop(storage);
        directory.release();
        let last = std::mem::take(&mut shared.queue.lock().on_closed);
        last.into_iter().for_each(|last| last());
    }

    /// Waits for commits, or for a request to raise the ceiling, which returns an empty batch.
    /// `None` when the engine is closing.
    // `.ci/instructions` excludes this function by its name.
    #[inline(never)]
    pub(super) fn next_requests(&mut self) -> Option<Vec<CommitRequest>> {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.queue.lock();
        if self.idle_stage == IdleStage::Busy && queue.is_idle() && self.look_out.is_worth_it() {
            let until = baton::now() + SPIN_TIME;
            while queue.is_idle() && baton::now() < until {
                MutexGuard::unlocked(&mut queue, baton::thread::yield_now);
            }
            self.look_out.note(!queue.is_idle());
        }
        loop {
            if !queue.requests.is_empty() || queue.raise_ceiling {
                queue.raise_ceiling = false;
                let (requests, bytes) = queue.take(!self.was_asynchronous, self.admission.max_batch());
                self.batch_bytes = bytes;
                self.was_asynchronous = requests.iter().all(CommitRequest::is_asynchronous);
                return Some(requests);
            }
            #[cfg(feature = "testing")]
            for examiner in queue.take_examiners() {
                // It may have given up.
                let _ = examiner.send(MutexGuard::unlocked(&mut queue, || self.come_to_rest()));
            }
            if queue.closing {
                return None;
            }
            let pause = match self.idle_stage {
                IdleStage::Busy => FLUSH_DELAY,
                IdleStage::Flushed => CHECKPOINT_DELAY,
                IdleStage::Checkpointed => READ_WINDOW,
                IdleStage::Trimmed => {
                    self.shared.work.wait(&mut queue);
                    continue;
                }
            };
            if self.shared.work.wait_for(&mut queue, pause).timed_out() {
                MutexGuard::unlocked(&mut queue, || self.advance_idle_stage());
            }
        }
    }

    /// Does the next step of work that is left for idle times.
    pub(super) fn advance_idle_stage(&mut self) {
        self.idle_stage = match self.idle_stage {
            IdleStage::Busy => {
                self.unflushed = None;
                self.update_storage(Storage::flush_idle);
                IdleStage::Flushed
            }
            IdleStage::Flushed => {
                // A checkpoint now takes a few milliseconds, which a process that takes over would
                // otherwise need to read the log.
                self.update_storage(Storage::checkpoint);
                IdleStage::Checkpointed
            }
            IdleStage::Checkpointed | IdleStage::Trimmed => {
                self.trim_expired(baton::now());
                if self.untrimmed_bytes >= TRIM_MEMORY_AFTER {
                    heap::give_back();
                    self.untrimmed_bytes = 0;
                }
                IdleStage::Trimmed
            }
        };
    }

    /// Drops what no read at `now` or later needs. Nothing waits for this thread meanwhile.
    pub(super) fn trim_expired(&mut self, now: Instant) {
        let (version, retired) = {
            let mut views = self.shared.views.lock();
            let retired = views.trim_expired(now);
            (views.clock().version_at(now), retired)
        };
        drop(retired);
        self.storage.free_retired();
        self.resolver.trim_expired(version);
    }

    pub(super) fn update_storage(&self, work: impl FnOnce(&Storage) -> Result<StorageUpdate, StorageError>) {
        if self.shared.is_poisoned() {
            return;
        }
        match work(&self.storage) {
            Ok(update) => {
                let retired = self.shared.views.lock().install(update);
                self.storage.retire(retired);
            }
            Err(error) => self.poison(&error),
        }
    }

    /// Ends the engine after a failed write. The outcome of that write is unknown: the next process
    /// to open the directory may find a commit that this one does not know, so this one must not
    /// answer reads either.
    fn poison(&self, error: &dyn std::fmt::Display) {
        self.storage.stop_writes();
        self.shared.poison(error);
    }

    pub(super) fn commit(&mut self, requests: Vec<CommitRequest>) {
        // Checked here, because a batch of refused commits writes nothing and so meets no error.
        if !self.shared.is_poisoned()
            && let Some(failure) = self.storage.latch().failure()
        {
            // If the data file failed, asynchronous commits in the log can still be flushed.
            self.storage.flush_log();
            self.poison(failure);
        }
        if self.shared.is_poisoned() {
            return refuse_all(requests);
        }
        let raise_only = requests.is_empty();
        let now = baton::now();
        self.update_admission(now);
        if self.shared.is_poisoned() {
            return refuse_all(requests);
        }
        let (version, ceiling) = self.shared.views.lock().clock().begin_batch(now);
        self.resolver.start_batch(version);
        let mut batch = self.resolve(requests, version);
        self.resolver.finish_batch(version);
        if batch.accepted.is_empty() && !raise_only {
            self.shared.views.lock().clock().abandon_batch();
            // A stream of refused commits keeps the committer from its idle work.
            if self.is_flush_due() {
                self.unflushed = None;
                self.update_storage(Storage::flush_idle);
            }
        } else {
            if !batch.delay.is_zero() {
                baton::thread::sleep(batch.delay);
            }
            if mutant("acknowledged-before-published") && !batch.fails && !batch.flush_fails {
                for accepted in batch.accepted.drain(..) {
                    accepted.promise.complete(Ok(accepted.committed));
                }
            }
            let durable = if batch.fails {
                Err("a fault on purpose".to_owned())
            } else {
                let ceiling = ceiling.max(batch.advance.map(Clock::ceiling_over));
                let stored = storage::WriteBatch { version, ceiling, mutations: batch.mutations };
                // No version above the durable ceiling may be handed out.
                let is_flushed = batch.is_flushed || ceiling.is_some() || self.is_flush_due();
                if batch.flush_fails {
                    let written = self.storage.apply(stored, Durability::Asynchronous);
                    Err(written.map_or_else(|error| error.to_string(), |_| "a fault on purpose".to_owned()))
                } else {
                    self.store(stored, is_flushed, batch.advance).map_err(|error| error.to_string())
                }
            };
            if let Err(error) = durable {
                self.poison(&error);
                for accepted in batch.accepted {
                    accepted.promise.complete(Err(Code::COMMIT_UNKNOWN_RESULT.into()));
                }
                return refuse(batch.refused);
            }
        }
        network::batch_posts(|| {
            for accepted in batch.accepted {
                let unknown = accepted.unknown.then(|| Err(Code::COMMIT_UNKNOWN_RESULT.into()));
                accepted.promise.complete(unknown.unwrap_or(Ok(accepted.committed)));
            }
            refuse(batch.refused);
        });
    }

    fn update_admission(&mut self, now: Instant) {
        let limits_before = self.admission.pin_limits();
        self.admission.begin(&self.storage, self.batch_bytes, now);
        if self.admission.may_reopen() {
            self.shared.is_reopening.store(true, Ordering::Release);
            return self.poison(&"its disk was full, so it could only be read; there is space now");
        }
        for _ in 0..2 {
            if self.admission.is_full() && self.storage.needs_checkpoint_for_space() {
                // Refused transactions cause no checkpoint, and only a checkpoint frees space.
                self.update_storage(Storage::checkpoint);
                self.admission.begin(&self.storage, self.batch_bytes, now);
            }
        }
        let limits = self.admission.pin_limits();
        if limits != limits_before {
            self.shared.views.lock().limit_pinned_space(limits);
        }
    }

    fn is_flush_due(&self) -> bool {
        self.unflushed.is_some_and(|since| baton::now().saturating_duration_since(since) >= FLUSH_DELAY)
    }

    /// Stores a batch and publishes it. Later versions continue from `advance`, if that is higher.
    fn store(
        &mut self,
        batch: storage::WriteBatch,
        is_flushed: bool,
        advance: Option<i64>,
    ) -> Result<(), StorageError> {
        self.idle_stage = IdleStage::Busy;
        self.untrimmed_bytes += batch.mutations.iter().map(Mutation::payload_len).sum::<usize>();
        let durability = if is_flushed { Durability::Flushed } else { Durability::Asynchronous };
        let (version, ceiling) = (batch.version, batch.ceiling);
        let mut update = self.storage.apply(batch, durability)?;
        self.verify_file_links()?;
        let written_keys = std::mem::take(&mut update.written_keys);
        self.unflushed = if is_flushed { None } else { self.unflushed.or_else(|| Some(baton::now())) };
        let retired = {
            let mut views = self.shared.views.lock();
            let retired = views.publish(version, ceiling, update);
            advance.into_iter().for_each(|version| views.clock().advance_to(version, baton::now()));
            retired
        };
        self.storage.retire(retired);
        if !(is_flushed && mutant("flushed-commits-fire-no-watch")) {
            self.fire_watches(&written_keys);
        }
        Ok(())
    }

    /// Checks after a write that both files still have names, so that the write went to files that
    /// others will open.
    fn verify_file_links(&self) -> Result<(), StorageError> {
        let latch = self.storage.latch();
        if let Err(lost) = self.directory.check_links() {
            let _ = latch.file_lost(&lost.to_string());
        }
        latch.failure().map_or(Ok(()), |failure| Err(StorageError::Failed(failure.clone())))
    }

    /// Fires watches after the batch is published. A watch armed later reads the new state itself;
    /// a watch armed before is in the table.
    fn fire_watches(&self, written_keys: &WrittenKeys) {
        let written_keys = match written_keys {
            WrittenKeys::Keys(keys) => self.shared.watches.affected_by_keys(keys),
            WrittenKeys::Mutations(batch) => self.shared.watches.affected_by(&batch.mutations),
        };
        if written_keys.is_empty() {
            return;
        }
        let view = self.shared.views.lock().read(baton::now());
        for key in written_keys {
            self.shared.watches.recheck(&key, &view);
        }
    }
}

#[cfg(feature = "testing")]
impl Committer {
    /// Does all work that is left for idle times, and tells what the engine holds then.
    fn come_to_rest(&mut self) -> super::holdings::Holdings {
        self.update_storage(Storage::flush_idle);
        self.update_storage(Storage::checkpoint);
        self.trim_expired(baton::now() + READ_WINDOW);
        let mut holdings = super::holdings::Holdings::default();
        self.storage.add_holdings(&mut holdings);
        holdings.conflicts = self.resolver.bytes();
        self.shared.add_holdings(&mut holdings);
        holdings
    }
}

/// Completes the promises of requests that were not started.
fn refuse_all(requests: Vec<CommitRequest>) {
    for request in requests {
        request.promise.complete(Err(NOT_STARTED.into()));
    }
}

fn refuse(refused: Vec<(CommitFailure, CommitPromise)>) {
    for (failure, promise) in refused {
        promise.complete(Err(failure));
    }
}
