//! A transaction.
//!
//! If this process hosts the database, reads complete on the caller's thread, from memory or the
//! page cache. Only commits, watches, future versions and the delay of `on_error` have to wait.
//! Each call locks the transaction, so calls take effect in order.

mod ahead;
mod commit;
mod cost;
mod mapped;
mod pending;
mod pending_watch;
mod reads;
mod retry;
mod sent;
mod sizes;
mod special;
mod watch;
mod writes;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use baton::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::database::Database;
use super::merged::Merged;
use super::special_keys::{Facts, SpecialKeyWrites};
use super::write_map::WriteMap;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::View;
use crate::network::TimerId;
use crate::options::TransactionOptions;
use crate::range_set::{KeyRange, RangeSet, key_after};
use crate::rows::FetchHint;

pub use reads::RangeArguments;
pub use writes::ConflictKind;

use pending_watch::PendingWatch;
use sent::Sent;

/// The end of the keys that a transaction without system access may use.
const NORMAL_END: &[u8] = b"\xff";
/// The end of the keys that a transaction with system access may use. Special keys follow.
const SYSTEM_END: &[u8] = b"\xff\xff";
/// The one system key that every transaction may read.
const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";
/// The key after it: a conflict range of this one key needs no option either.
const METADATA_VERSION_END: &[u8] = b"\xff/metadataVersion\0";

/// The committed version before any commit.
const NO_VERSION: i64 = -1;

/// The first retry delay of `on_error`.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);

/// Rarely more than one.
type Futures = SmallVec<[Arc<Future>; 1]>;

/// The phase of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Accepts reads and writes.
    Open,
    /// The commit has begun and may have ended. Only a reset or `on_error` opens the transaction
    /// again.
    Used,
}

/// A read of special keys, on the given facts.
type SpecialRead = Box<dyn FnOnce(&Facts<'_>) -> Result<Output> + Send>;

/// The progress towards the version that the client chose.
#[derive(Debug, Default)]
struct Ahead {
    /// The version was reached.
    is_reached: bool,
    /// The current read has waited as long as it may.
    is_impatient: bool,
    /// The last read failed because its version was not reached.
    is_awaited: bool,
}

struct TransactionState {
    options: TransactionOptions,
    created: Instant,
    phase: Phase,
    /// Cancelled or timed out: every call fails with this until a reset.
    dead: Option<Code>,
    /// The first error of a call that could not report it. The next call that returns a future
    /// reports it.
    deferred: Option<Code>,
    /// The database was read.
    has_read: bool,
    /// The error of a failed read: the commit fails with it too.
    failed_read: Option<Code>,
    /// Reads whose data has not arrived.
    reading: Vec<Arc<Future>>,
    /// Reads of special keys that wait for those.
    waiting_specials: Vec<(SpecialRead, Arc<Future>)>,
    /// A commit that waits for those.
    waiting_commit: Option<Arc<Future>>,
    /// Fails pending futures when the timeout expires.
    timer: Option<TimerId>,
    /// The read version that the client chose.
    chosen_version: Option<i64>,
    ahead: Ahead,
    view: Option<View>,
    /// The view for estimates of sizes.
    sizes_view: Option<View>,
    /// Shared with suspended reads, which see the writes of the time when they were called.
    writes: Arc<WriteMap>,
    reads: RangeSet,
    write_conflicts: RangeSet,
    /// Write conflict ranges that are sent before the others.
    early_conflicts: RangeSet,
    /// The conflict ranges and stamped keys of the last commit.
    sent: Sent,
    /// The result of `get_approximate_size`, in bytes.
    size: i64,
    /// The size for the size limit in a transaction without read-your-writes, where writes are not
    /// combined, in bytes.
    plain_size: i64,
    /// The cost of reads, in bytes of whole pages.
    read_cost: usize,
    /// The cost of writes, after the commit has taken them.
    sent_cost: Option<usize>,
    watches: Vec<PendingWatch>,
    stamps: Futures,
    /// Futures that fail when the transaction is reset, cancelled or destroyed.
    outstanding: Futures,
    committed_version: i64,
    conflicting: Vec<KeyRange>,
    /// The writes to special keys, if there are any.
    special: Option<SpecialKeyWrites>,
    retries: i64,
    backoff: Duration,
}

impl TransactionState {
    /// Of a transaction that begins.
    fn of(database: &Database) -> TransactionState {
        TransactionState { deferred: database.failure(), ..TransactionState::new(database.defaults()) }
    }

    fn new(options: TransactionOptions) -> TransactionState {
        TransactionState {
            options,
            created: baton::now(),
            phase: Phase::Open,
            dead: None,
            deferred: None,
            has_read: false,
            failed_read: None,
            reading: Vec::new(),
            waiting_specials: Vec::new(),
            waiting_commit: None,
            timer: None,
            chosen_version: None,
            ahead: Ahead::default(),
            view: None,
            sizes_view: None,
            writes: Arc::default(),
            reads: RangeSet::default(),
            write_conflicts: RangeSet::default(),
            early_conflicts: RangeSet::default(),
            sent: Sent::default(),
            size: 0,
            plain_size: 0,
            read_cost: 0,
            sent_cost: None,
            watches: Vec::new(),
            stamps: Futures::new(),
            outstanding: Futures::new(),
            committed_version: NO_VERSION,
            conflicting: Vec::new(),
            special: None,
            retries: 0,
            backoff: FIRST_BACKOFF,
        }
    }

    /// True if read-your-writes can no longer be disabled. Writes without it do not count.
    fn has_been_used(&self) -> bool {
        let has_read = self.has_read || self.failed_read.is_some() || !self.reading.is_empty();
        let has_written =
            !self.writes.is_empty() || !self.write_conflicts.is_empty() || self.sent_cost.is_some();
        has_read || has_written && !self.options.ryw_disabled
    }

    /// When the timeout expires.
    fn deadline(&self) -> Option<Instant> {
        let timeout = u64::try_from(self.options.timeout_ms).ok().filter(|ms| *ms > 0)?;
        Some(self.created + Duration::from_millis(timeout))
    }

    /// Fails if the transaction was cancelled or has timed out.
    fn check_alive(&mut self) -> Result<()> {
        if self.dead.is_none() && self.deadline().is_some_and(|deadline| baton::now() >= deadline) {
            self.dead = Some(Code::TRANSACTION_TIMED_OUT);
        }
        self.dead.map_or(Ok(()), Err)
    }

    /// Fails if an earlier call failed without a way to report it.
    fn check_deferred(&self) -> Result<()> {
        self.deferred.map_or(Ok(()), Err)
    }

    /// Fails if the commit has begun. Unless the protection is disabled, this also ends the
    /// transaction.
    fn check_unused(&mut self) -> Result<()> {
        if self.phase == Phase::Open {
            return Ok(());
        }
        if !self.options.used_during_commit_protection_disabled && self.check_alive().is_ok() {
            self.dead = Some(Code::USED_DURING_COMMIT);
        }
        Err(Code::USED_DURING_COMMIT)
    }

    /// The end of the keys that may be read.
    fn max_read_key(&self) -> &'static [u8] {
        let system = self.options.access_system_keys || self.options.read_system_keys;
        if system { SYSTEM_END } else { NORMAL_END }
    }

    /// The end of the keys that may be written.
    fn max_write_key(&self) -> &'static [u8] {
        if self.options.access_system_keys { SYSTEM_END } else { NORMAL_END }
    }

    /// True if keys may be longer because of raw access, which access to system keys implies.
    fn has_raw_access(&self) -> bool {
        let options = &self.options;
        options.raw_access || options.access_system_keys || options.read_system_keys
    }

    /// The read version: the client's choice, or a new one.
    fn read_version(&mut self, database: &Database) -> Result<i64> {
        match self.chosen_version {
            Some(version) => Ok(version),
            None => self.view(database)?.version(),
        }
    }

    /// The read version, if it is known.
    fn known_read_version(&self) -> Option<i64> {
        self.chosen_version.or_else(|| self.view.as_ref().and_then(View::known_version))
    }

    /// The view at the read version, which is opened if there is none.
    fn view(&mut self, database: &Database) -> Result<&View> {
        let view = self.obtain(database)?;
        Ok(self.view.insert(view))
    }

    /// True if reads see the transaction's own writes.
    fn sees_own(&self, snapshot: bool) -> bool {
        !self.options.ryw_disabled && (!snapshot || self.options.snapshot_ryw > 0)
    }

    /// Runs `read` on the merged view; with `snapshot`, possibly without own writes. If the read
    /// does not need the database, the read version stays open. Otherwise `bytes` returns the size
    /// of its result, if that counts as cost.
    fn look<T>(
        &mut self,
        database: &Database,
        snapshot: bool,
        read: impl FnOnce(&Merged<'_>) -> Result<T>,
        bytes: impl FnOnce(&T) -> Option<usize>,
    ) -> Result<T> {
        let view = self.obtain(database);
        let own = self.sees_own(snapshot);
        let looked = Cell::new(false);
        let writes = own.then_some(&*self.writes);
        let result = read(&Merged {
            view: view.as_ref().map_err(|code| *code),
            writes,
            epoch: Some(database.epoch()),
            want: FetchHint::default(),
            looked: &looked,
            ahead: None,
        });
        if looked.get()
            && let Ok(view) = view
        {
            self.view.get_or_insert(view);
            self.has_read |= result.is_ok();
        }
        if looked.get()
            && let Some(bytes) = result.as_ref().ok().and_then(bytes)
        {
            self.count_read(bytes);
        }
        result
    }

    /// Stores the error of a read, so that the commit fails too.
    fn spoil(&mut self, code: Code) -> Code {
        if code != Code::MISSING {
            self.failed_read.get_or_insert(code);
        }
        code
    }

    /// Adds the conflict range of a key that was read.
    fn add_key_read(&mut self, key: &[u8]) {
        let size = key_conflict_size(key);
        if self.options.ryw_disabled {
            self.plain_size += size;
        } else if self.writes.decides(key) {
            return;
        } else {
            self.size += size;
        }
        self.reads.insert_key(key);
    }

    /// Adds the conflict range of a read, without the parts that the transaction has overwritten
    /// itself.
    fn add_read_conflict(&mut self, (begin, end): KeyRange) {
        if begin >= end {
            return;
        }
        if self.options.ryw_disabled {
            self.reads.insert(begin, end);
            return;
        }
        // FoundationDB counts the whole range for each of its parts.
        let size = conflict_size(&begin, &end);
        if !self.is_cut(&begin, &end) {
            self.size += size;
            self.reads.insert(begin, end);
            return;
        }
        for (begin, end) in self.dependent_parts(&begin, &end) {
            self.size += size;
            self.reads.insert(begin, end);
        }
    }

    /// True if the transaction has written in the range, or added a write conflict range.
    fn is_cut(&self, begin: &[u8], end: &[u8]) -> bool {
        self.write_conflicts.intersects(begin, end)
            || self.writes.unreadable().intersects(begin, end)
            || self.writes.touches(begin, end)
    }

    /// The parts of a range that other transactions can change, split as FoundationDB's write map
    /// is: also at the bounds of write conflict ranges.
    fn dependent_parts(&self, begin: &[u8], end: &[u8]) -> Vec<KeyRange> {
        let mut cuts: Vec<Vec<u8>> = Vec::new();
        for (b, e) in self
            .write_conflicts
            .intersecting(begin, end)
            .chain(self.writes.unreadable().intersecting(begin, end))
        {
            cuts.extend([b.to_vec(), e.to_vec()]);
        }
        for (key, writes) in self.writes.range(begin, end) {
            if writes.is_dependent() {
                cuts.extend([key.to_vec(), key_after(key)]);
            }
        }
        cuts.sort_unstable();
        let mut parts = Vec::new();
        for (b, e) in self.writes.dependent_parts(begin, end).iter() {
            let mut from = b;
            let first = cuts.partition_point(|cut| cut.as_slice() <= b);
            for cut in cuts[first..].iter().take_while(|cut| cut.as_slice() < e) {
                if cut.as_slice() > from {
                    parts.push((from.to_vec(), cut.clone()));
                    from = cut;
                }
            }
            parts.push((from.to_vec(), e.to_vec()));
        }
        parts
    }
}

/// Bytes that a conflict range adds to a transaction's size.
fn conflict_size(begin: &[u8], end: &[u8]) -> i64 {
    24 + len(begin) + len(end)
}

/// Bytes that the conflict range of a key adds to a transaction's size.
fn key_conflict_size(key: &[u8]) -> i64 {
    conflict_size(key, key) + 1
}

/// Bytes that a mutation adds to a transaction's size.
fn mutation_size(a: &[u8], b: &[u8]) -> i64 {
    44 + len(a) + len(b)
}

fn len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX / 4)
}

/// A transaction (`FDBTransaction`).
pub struct Transaction {
    database: Arc<Database>,
    state: Mutex<TransactionState>,
    /// Counts resets, so that the result of an earlier commit is ignored. Not under the lock,
    /// because the committer must not wait for a transaction.
    generation: AtomicU64,
}

impl Transaction {
    /// A new transaction with the database's default options.
    #[must_use]
    pub fn new(database: &Arc<Database>) -> Arc<Transaction> {
        let state = Mutex::new(TransactionState::of(database));
        let generation = AtomicU64::new(0);
        Arc::new(Transaction { database: Arc::clone(database), state, generation })
    }

    /// Locks the state for a call that is not allowed after the commit has begun. Such a call
    /// fails, and all pending futures with it, unless the protection is disabled.
    fn open(&self) -> Result<MutexGuard<'_, TransactionState>> {
        let state = self.state.lock();
        state.check_deferred()?;
        let state = self.unused(state)?;
        self.alive(state)
    }

    fn alive<'s>(
        &self,
        mut state: MutexGuard<'s, TransactionState>,
    ) -> Result<MutexGuard<'s, TransactionState>> {
        state.check_alive().map(|()| state)
    }

    fn unused<'s>(
        &self,
        mut state: MutexGuard<'s, TransactionState>,
    ) -> Result<MutexGuard<'s, TransactionState>> {
        let was_dead = state.dead.is_some();
        let Err(code) = state.check_unused() else { return Ok(state) };
        if state.dead.is_some() && !was_dead {
            let ended = self.end_pending(&mut state, code);
            drop(state);
            ended.fail();
        }
        Err(code)
    }

    /// Like [`Transaction::apply`], for calls that are allowed after the commit has begun.
    fn apply_always(&self, call: impl FnOnce(&mut TransactionState) -> Result<()>) {
        let mut state = self.state.lock();
        if state.deferred.is_none() {
            state.deferred = call(&mut state).err();
        }
    }

    /// Runs a call that cannot report an error; the next call that can does. It also runs on a
    /// cancelled transaction, but not if an earlier call has failed.
    fn apply(&self, call: impl FnOnce(&mut TransactionState) -> Result<()>) {
        let state = self.state.lock();
        if state.deferred.is_some() {
            return;
        }
        match self.unused(state) {
            Ok(mut state) => {
                if let Err(code) = call(&mut state) {
                    state.deferred = Some(code);
                }
            }
            Err(code) => {
                self.state.lock().deferred.get_or_insert(code);
            }
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transaction")
    }
}
