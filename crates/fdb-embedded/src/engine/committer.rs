//! The commit pipeline: one thread that turns waiting commits into durable batches.
//!
//! ```text
//! submit -> waiting -> [ resolve in order -> stamp -> log, flush -> publish ] -> fire watches, answer
//! ```
//! While one batch is being flushed the next one collects, so the more clients commit at once, the more share a
//! flush. Commits that ask not to wait for one are written to the log, published and answered; the next flush is theirs too.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::admission::Admission;
use super::clock::Clock;
use super::directory::Directory;
use super::faults::Fault;
use super::mutation::{Mutation, Stamp};
use super::resolver::{Resolver, Verdict};
use super::storage::{self, Changed, Durability, Storage, StorageError, Touched};
use super::views::WINDOW;
use super::{NOT_TAKEN, Shared};
use crate::capi::heap;
use crate::error::Code;
use crate::limits::{MAX_BATCH_TRANSACTIONS, MAX_WAITING_BYTES};
use crate::network;
use crate::range_set::KeyRange;

/// A commit that took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its version.
    pub version: i64,
    /// Its place among the transactions of that version.
    pub order: u16,
}

impl Committed {
    /// The versionstamp of the commit.
    #[must_use]
    pub fn stamp(self) -> Stamp {
        Stamp::new(self.version, self.order)
    }
}

/// A commit that did not, or may not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFailure {
    /// Why.
    pub code: Code,
    /// The read ranges that were written by others since, when `code` is `NOT_COMMITTED`.
    pub conflicting: Vec<KeyRange>,
}

impl From<Code> for CommitFailure {
    fn from(code: Code) -> Self {
        CommitFailure { code, conflicting: Vec::new() }
    }
}

/// The answer to a commit.
pub type CommitResult = Result<Committed, CommitFailure>;

/// Who waits for the answer. One that is dropped unanswered says `COMMIT_UNKNOWN_RESULT`: nobody waits for ever,
/// even if the committer dies.
pub struct Answer(Option<Box<dyn FnOnce(CommitResult) + Send>>);

impl Answer {
    /// `waiting` is called once: on the committer's thread, or on that of whoever commits when no commits are taken any more.
    pub fn new(waiting: impl FnOnce(CommitResult) + Send + 'static) -> Answer {
        Answer(Some(Box::new(waiting)))
    }

    /// Gives the answer.
    pub(crate) fn give(mut self, result: CommitResult) {
        if let Some(waiting) = self.0.take() {
            waiting(result);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting(Err(Code::COMMIT_UNKNOWN_RESULT.into()));
        }
    }
}

/// A transaction that wants to commit.
pub struct CommitRequest {
    /// Writes after this version to what it read make it conflict.
    pub read_version: i64,
    /// What it read: disjoint, in key order.
    pub reads: Vec<KeyRange>,
    /// Say which of the reads conflict, not only that one does.
    pub report_conflicts: bool,
    /// What it writes, as others' reads see it; the final keys of stamped mutations are added on commit.
    pub writes: Vec<KeyRange>,
    /// Its changes in order.
    pub mutations: Vec<Mutation>,
    /// What it waits for before it is answered, at least.
    pub durability: Durability,
    /// What is to happen to it, where a test has decided that; else the installed plan says so.
    pub fault: Option<Fault>,
    /// Gets the outcome.
    pub answer: Answer,
}

impl CommitRequest {
    /// Does it not wait for a flush?
    fn is_quick(&self) -> bool {
        self.durability == Durability::Written
    }

    /// Bytes of keys and values, those of conflict ranges included.
    fn len(&self) -> usize {
        let ranges = self.reads.iter().chain(&self.writes);
        let ranges: usize = ranges.map(|(begin, end)| begin.len() + end.len()).sum();
        ranges + self.mutations.iter().map(Mutation::payload_len).sum::<usize>()
    }
}

/// How long the committer looks out for the next commit before it sleeps: a client that commits one after the other is
/// back by then, and waking a thread takes as long. Meanwhile it yields to any other thread.
const LINGER: Duration = Duration::from_micros(60);

/// The commits that wait for the next batch.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) requests: VecDeque<CommitRequest>,
    /// Bytes of the requests.
    pub(super) bytes: usize,
    /// An empty batch is wanted, to raise the version ceiling.
    pub(super) raise_ceiling: bool,
    /// The committer is to end when no commit waits any more.
    pub(super) closing: bool,
    /// The committer has ended.
    pub(super) closed: bool,
    /// What the committer calls last, when the directory is free.
    pub(super) last: Vec<Box<dyn FnOnce() + Send>>,
}

impl Waiting {
    /// Adds a request, unless too much waits already.
    pub(super) fn add(&mut self, request: CommitRequest) -> Result<(), CommitRequest> {
        let bytes = self.bytes + request.len();
        if bytes > MAX_WAITING_BYTES && !self.requests.is_empty() {
            return Err(request);
        }
        self.bytes = bytes;
        self.requests.push_back(request);
        Ok(())
    }

    /// Takes the requests of the next batch. With `quick_first` those that do not wait for a flush go by themselves, before the others: they
    /// are done by the time that a flush would begin. Says how many bytes they have, or more.
    fn take(&mut self, quick_first: bool, max_bytes: usize) -> (Vec<CommitRequest>, usize) {
        let mut bytes = 0;
        let mut count = 0;
        for request in self.requests.iter().take(MAX_BATCH_TRANSACTIONS) {
            if count > 0 && bytes >= max_bytes {
                break;
            }
            bytes += request.len();
            count += 1;
        }
        let next = self.requests.drain(..count);
        if !quick_first {
            self.bytes = self.bytes.saturating_sub(bytes);
            return (next.collect(), bytes);
        }
        let (quick, others): (Vec<_>, Vec<_>) = next.partition(CommitRequest::is_quick);
        if quick.is_empty() {
            self.bytes = self.bytes.saturating_sub(bytes);
            return (others, bytes);
        }
        self.bytes = self.bytes.saturating_sub(quick.iter().map(CommitRequest::len).sum());
        others.into_iter().rev().for_each(|request| self.requests.push_front(request));
        (quick, bytes)
    }

    fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.raise_ceiling && !self.closing
    }
}

/// An accepted transaction, to be answered when its batch is durable.
struct Accepted {
    committed: Committed,
    unknown: bool,
    answer: Answer,
}

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

/// A batch between its resolution and its answers.
#[derive(Default)]
struct Batch {
    /// A fault is to fail it.
    fails: bool,
    /// A fault is to fail its flush: it is written, and nobody knows what of it is on the disk.
    flush_fails: bool,
    /// A fault is to hold it up.
    delay: Duration,
    /// Somebody waits for a flush.
    is_flushed: bool,
    mutations: Vec<Mutation>,
    /// Versions are to go on from here.
    advance: Option<i64>,
    accepted: Vec<Accepted>,
    refused: Vec<(CommitFailure, Answer)>,
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
        self.close();
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

    /// Decides each transaction in order and stamps the mutations of those that commit.
    fn resolve(&mut self, requests: Vec<CommitRequest>, version: i64) -> Batch {
        let mut batch = Batch::default();
        for request in requests {
            let fault = request.fault.unwrap_or_else(|| self.shared.faults.commit());
            let refusal = self.refusal(&request, fault).or_else(|| self.lack_of_space(&request));
            if let Some(failure) = refusal {
                batch.refused.push((failure, request.answer));
                continue;
            }
            batch.fails |= fault == Fault::DiskFailure;
            batch.flush_fails |= fault == Fault::FlushFailure;
            batch.is_flushed |= request.durability == Durability::Flushed;
            if let Fault::Slow(delay) = fault {
                batch.delay = batch.delay.max(delay);
            }
            let order = u16::try_from(batch.accepted.len()).expect("MAX_BATCH_TRANSACTIONS is below 65536");
            let committed = Committed { version, order };
            self.resolver.admit(request.writes);
            for mutation in request.mutations {
                let is_stamped_key = matches!(mutation, Mutation::StampedKey { .. });
                let mutation = mutation.stamped(committed.stamp());
                if is_stamped_key {
                    self.resolver.admit([mutation.write_range()]);
                }
                batch.advance = batch.advance.max(mutation.min_commit_version());
                batch.mutations.push(mutation);
            }
            let unknown = fault == Fault::UnknownCommitted;
            batch.accepted.push(Accepted { committed, unknown, answer: request.answer });
        }
        batch
    }

    fn refusal(&self, request: &CommitRequest, fault: Fault) -> Option<CommitFailure> {
        match fault {
            Fault::None
            | Fault::UnknownCommitted
            | Fault::Slow(_)
            | Fault::DiskFailure
            | Fault::FlushFailure => {}
            Fault::UnknownNotCommitted => return Some(Code::COMMIT_UNKNOWN_RESULT.into()),
            Fault::Conflict => return Some(Code::NOT_COMMITTED.into()),
            Fault::TooOld => return Some(Code::TRANSACTION_TOO_OLD.into()),
        }
        match self.resolver.check(request.read_version, &request.reads, request.report_conflicts) {
            Verdict::Commit => None,
            Verdict::TooOld => Some(Code::TRANSACTION_TOO_OLD.into()),
            Verdict::Conflict(indices) => {
                let conflicting = indices.iter().map(|i| request.reads[*i].clone()).collect();
                Some(CommitFailure { code: Code::NOT_COMMITTED, conflicting })
            }
        }
    }

    fn look_at_space(&mut self, now: Instant) {
        let was_full = self.admission.is_full();
        self.admission.begin(&self.storage, self.taken, now);
        if self.admission.may_open_again() {
            return self.poison(
                &"its disk was full, so it could only be read; there is space now, so it is opened again",
            );
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

    /// A commit that conflicts gets 1020 before this is asked. If a row cannot be read, applying the batch reports that.
    fn lack_of_space(&mut self, request: &CommitRequest) -> Option<CommitFailure> {
        let admitted = self.admission.admits(&self.storage, &request.mutations);
        (!admitted.unwrap_or(true)).then(|| Code::COMMIT_PROXY_MEMORY.into())
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

/// Says that they were not looked at.
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
