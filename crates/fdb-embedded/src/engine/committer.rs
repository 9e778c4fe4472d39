//! The commit pipeline: one thread that turns waiting commits into durable batches.
//!
//! ```text
//! submit -> waiting -> [ resolve in order -> stamp -> log, flush -> publish ] -> fire watches, answer
//! ```
//! While one batch is being flushed the next one collects, so the more clients commit at once, the more share a
//! flush. Commits that ask not to wait for one are written to the log, published and answered; the next flush is theirs too.

mod request;
mod resolve;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::admission::Admission;
use super::clock::Clock;
use super::directory::Directory;
use super::mutation::Mutation;
use super::resolver::Resolver;
use super::storage::{self, Changed, Durability, Storage, StorageError, Touched};
use super::views::WINDOW;
use super::{NOT_TAKEN, Shared};
use crate::capi::heap;
use crate::error::Code;
use crate::network;

pub use request::{Answer, CommitFailure, CommitRequest, CommitResult, Committed};
pub(super) use waiting::Waiting;

/// How long the committer looks out for the next commit before it sleeps: a client that commits one after the other is
/// back by then, and waking a thread takes as long. Meanwhile it yields to any other thread.
const LINGER: Duration = Duration::from_micros(150);

/// How long what was only written waits for a batch that is flushed anyway, and what redb does not have for others.
const UNFLUSHED: Duration = Duration::from_millis(2);

/// After this long without commits what is in the log goes to redb's file, so that the next process opens it fast.
const IDLE: Duration = Duration::from_millis(500);

pub(super) struct Committer {
    shared: Arc<Shared>,
    /// Nobody else writes, so the file is closed where the last write was.
    pub(super) storage: Storage,
    /// Held until the storage is closed.
    directory: Arc<Directory>,
    pub(super) resolver: Resolver,
    rest: Rest,
    /// Since when something has been published that is not flushed.
    pub(super) unflushed: Option<Instant>,
    /// The last batch was one that did not wait for a flush: the next one is of all that wait.
    was_quick: bool,
    /// Bytes written since memory was given back.
    stirred: usize,
    /// Bytes of the requests that are to be committed next.
    taken: usize,
    admission: Admission,
}

/// So many bytes written leave so much free memory behind that it is worth giving back.
const MUCH: usize = 16 << 20;

/// What has been done since the last batch, as nothing was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing yet.
    No,
    /// All batches are flushed, and in redb.
    Applied,
    /// The log was emptied.
    Settled,
    /// What changed in the last batches was forgotten: all versions that can still be read are the newest state.
    Forgotten,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        storage: Storage,
        directory: Arc<Directory>,
        resolver: Resolver,
    ) -> Committer {
        let admission = Admission::new(directory.path().to_path_buf());
        let (rest, unflushed, was_quick) = (Rest::Forgotten, None, false);
        let (stirred, taken) = (0, 0);
        Committer {
            shared,
            storage,
            directory,
            resolver,
            rest,
            unflushed,
            was_quick,
            stirred,
            taken,
            admission,
        }
    }

    /// Works until the engine closes, and then closes the directory.
    pub(super) fn run(mut self) {
        let work = || {
            while let Some(requests) = self.next_requests() {
                self.commit(requests);
            }
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            // The panic hook has reported it. The storage may hold half a batch.
            self.poison(&"its committer panicked");
        }
        self.lower_ceiling();
        self.close();
    }

    /// Leaves the last version as the ceiling, which is ahead of it: the next process goes on from there.
    fn lower_ceiling(&self) {
        if self.shared.is_poisoned() || self.admission.is_full() {
            return;
        }
        let version = self.shared.views.lock().clock().end(Instant::now());
        let batch = storage::Batch { version, ceiling: Some(version), mutations: Vec::new() };
        // If it fails, the ceiling on the disk is the higher one, which is as good but for the gap in versions.
        let _ = self.storage.apply(batch, Durability::Written);
    }

    /// Ends all reads, refuses all commits, and closes the directory.
    fn close(self) {
        let Committer { shared, storage, directory, .. } = self;
        let left = {
            let mut waiting = shared.waiting.lock();
            waiting.closed = true;
            std::mem::take(&mut waiting.requests)
        };
        for request in left {
            request.answer.give(Err(NOT_TAKEN.into()));
        }
        shared.views.lock().close();
        drop(storage);
        directory.release();
        let last = std::mem::take(&mut shared.waiting.lock().last);
        last.into_iter().for_each(|last| last());
    }

    /// Waits for commits, or for the wish for an empty batch; `None` when the engine is closing.
    // Where instructions are counted, what waits is left out, by its name.
    #[inline(never)]
    pub(super) fn next_requests(&mut self) -> Option<Vec<CommitRequest>> {
        let shared = Arc::clone(&self.shared);
        let mut waiting = shared.waiting.lock();
        if self.rest == Rest::No {
            let until = Instant::now() + LINGER;
            while waiting.is_idle() && Instant::now() < until {
                MutexGuard::unlocked(&mut waiting, std::thread::yield_now);
            }
        }
        loop {
            if !waiting.requests.is_empty() || waiting.raise_ceiling {
                waiting.raise_ceiling = false;
                let (requests, bytes) = waiting.take(!self.was_quick, self.admission.max_batch());
                self.taken = bytes;
                self.was_quick = requests.iter().all(CommitRequest::is_quick);
                return Some(requests);
            }
            if waiting.closing {
                return None;
            }
            let pause = match self.rest {
                Rest::No => UNFLUSHED,
                Rest::Applied => IDLE,
                Rest::Settled => WINDOW,
                Rest::Forgotten => {
                    self.shared.work.wait(&mut waiting);
                    continue;
                }
            };
            if self.shared.work.wait_for(&mut waiting, pause).timed_out() {
                MutexGuard::unlocked(&mut waiting, || self.rest());
            }
        }
    }

    /// Does what is to be done next while nothing is committed.
    pub(super) fn rest(&mut self) {
        self.rest = match self.rest {
            Rest::No => {
                self.unflushed = None;
                self.change(Storage::rest);
                Rest::Applied
            }
            Rest::Applied => {
                // Some milliseconds now, for those that it takes another process to read the log when it has to take over.
                self.change(Storage::settle);
                Rest::Settled
            }
            Rest::Settled | Rest::Forgotten => {
                let now = Instant::now();
                let version = {
                    let mut views = self.shared.views.lock();
                    views.forget(now);
                    views.clock().at(now)
                };
                self.resolver.rest(version);
                if self.stirred >= MUCH {
                    heap::give_back();
                    self.stirred = 0;
                }
                Rest::Forgotten
            }
        };
    }

    fn change(&self, work: impl FnOnce(&Storage) -> Result<Changed, StorageError>) {
        if self.shared.is_poisoned() {
            return;
        }
        match work(&self.storage) {
            Ok(changed) => self.shared.views.lock().change(changed),
            Err(error) => self.poison(&error),
        }
    }

    /// After a failed write nobody knows what is on the disk: the engine takes no further commits, and nothing is read from it, because the
    /// next one to open the directory may find a commit there that this one does not know.
    fn poison(&self, error: &dyn std::fmt::Display) {
        self.storage.give_up();
        self.shared.poison(error);
    }

    pub(super) fn commit(&mut self, requests: Vec<CommitRequest>) {
        // Asked for here, because no batch need come of the requests: one of which none is accepted writes nothing.
        if !self.shared.is_poisoned()
            && let Some(failure) = self.storage.health().failure()
        {
            // What was acknowledged before it was flushed is not lost with a data file that failed.
            self.storage.flush_log();
            self.poison(failure);
        }
        if self.shared.is_poisoned() {
            return refuse_all(requests);
        }
        let raise_only = requests.is_empty();
        let now = Instant::now();
        self.look_at_space(now);
        if self.shared.is_poisoned() {
            return refuse_all(requests);
        }
        let (version, ceiling) = self.shared.views.lock().clock().begin_batch(now);
        self.resolver.begin(version);
        let batch = self.resolve(requests, version);
        self.resolver.seal(version);
        if batch.accepted.is_empty() && !raise_only {
            self.shared.views.lock().clock().abandon_batch();
            // Commits that are all refused wake the committer before it rests, however long they come.
            if self.is_flush_due() {
                self.unflushed = None;
                self.change(Storage::rest);
            }
        } else {
            if !batch.delay.is_zero() {
                std::thread::sleep(batch.delay);
            }
            let durable = if batch.fails {
                Err("a fault on purpose".to_owned())
            } else {
                let ceiling = ceiling.max(batch.advance.map(Clock::ceiling_over));
                let stored = storage::Batch { version, ceiling, mutations: batch.mutations };
                // No version is handed out that is above the ceiling on the disk.
                let is_flushed = batch.is_flushed || ceiling.is_some() || self.is_flush_due();
                if batch.flush_fails {
                    let written = self.storage.apply(stored, Durability::Written);
                    Err(written.map_or_else(|error| error.to_string(), |_| "a fault on purpose".to_owned()))
                } else {
                    self.store(stored, is_flushed, batch.advance).map_err(|error| error.to_string())
                }
            };
            if let Err(error) = durable {
                self.poison(&error);
                for accepted in batch.accepted {
                    accepted.answer.give(Err(Code::COMMIT_UNKNOWN_RESULT.into()));
                }
                return refuse(batch.refused);
            }
        }
        network::together(|| {
            for accepted in batch.accepted {
                let unknown = accepted.unknown.then(|| Err(Code::COMMIT_UNKNOWN_RESULT.into()));
                accepted.answer.give(unknown.unwrap_or(Ok(accepted.committed)));
            }
            refuse(batch.refused);
        });
    }

    fn look_at_space(&mut self, now: Instant) {
        let was_full = self.admission.is_full();
        self.admission.begin(&self.storage, self.taken, now);
        if self.admission.may_open_again() {
            self.shared.is_reopening.store(true, Ordering::Release);
            return self.poison(&"its disk was full, so it could only be read; there is space now");
        }
        for _ in 0..2 {
            if self.admission.is_full() && self.storage.is_crowded() {
                // Transactions that are refused would bring no checkpoint.
                self.change(Storage::settle);
                self.admission.begin(&self.storage, self.taken, now);
            }
        }
        if was_full != self.admission.is_full() {
            self.shared.views.lock().save_space(!was_full);
        }
    }

    fn is_flush_due(&self) -> bool {
        self.unflushed.is_some_and(|since| since.elapsed() >= UNFLUSHED)
    }

    /// Stores a batch and publishes it; versions go on from `advance`, if that is ahead.
    fn store(
        &mut self,
        batch: storage::Batch,
        is_flushed: bool,
        advance: Option<i64>,
    ) -> Result<(), StorageError> {
        self.rest = Rest::No;
        self.stirred += batch.mutations.iter().map(Mutation::payload_len).sum::<usize>();
        let durability = if is_flushed { Durability::Flushed } else { Durability::Written };
        let (version, ceiling) = (batch.version, batch.ceiling);
        let mut changed = self.storage.apply(batch, durability)?;
        self.insist_on_files()?;
        let touched = std::mem::take(&mut changed.touched);
        self.unflushed = if is_flushed { None } else { self.unflushed.or_else(|| Some(Instant::now())) };
        {
            let mut views = self.shared.views.lock();
            views.publish(version, ceiling, changed);
            advance.into_iter().for_each(|version| views.clock().advance_to(version, Instant::now()));
        }
        self.fire_watches(&touched);
        Ok(())
    }

    /// What was written is where others will find it: both files have names, and those have led to them until now.
    fn insist_on_files(&self) -> Result<(), StorageError> {
        let health = self.storage.health();
        if let Err(lost) = self.directory.check_links() {
            let _ = health.lost(&lost.to_string());
        }
        health.failure().map_or(Ok(()), |failure| Err(StorageError::Failed(failure.clone())))
    }

    /// After the publication, so that none is missed: a watch that is armed later sees the new state by itself, one
    /// that was armed before is found here.
    fn fire_watches(&self, touched: &Touched) {
        let touched = match touched {
            Touched::Keys(keys) => self.shared.watches.touched_keys(keys),
            Touched::By(batch) => self.shared.watches.touched(&batch.mutations),
        };
        if touched.is_empty() {
            return;
        }
        let view = self.shared.views.lock().read(Instant::now());
        for key in touched {
            self.shared.watches.recheck(&key, &view);
        }
    }
}

/// Answers requests that the committer has not looked at.
fn refuse_all(requests: Vec<CommitRequest>) {
    for request in requests {
        request.answer.give(Err(NOT_TAKEN.into()));
    }
}

fn refuse(refused: Vec<(CommitFailure, Answer)>) {
    for (failure, answer) in refused {
        answer.give(Err(failure));
    }
}
