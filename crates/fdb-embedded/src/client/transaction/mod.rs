//! One transaction.
//!
//! | file | calls |
//! |---|---|
//! | `reads` | get, get_key, get_range, versions |
//! | `mapped` | get_mapped_range |
//! | `writes` | set, clear, atomic operations, conflict ranges, options |
//! | `sizes` | get_addresses_for_key, get_estimated_range_size_bytes, get_range_split_points |
//! | `special` | special keys |
//! | `watch` | watch |
//! | `commit` | commit, get_versionstamp |
//! | `cost` | get_total_cost |
//! | `pending` | reads whose data is still to arrive |
//! | `ahead` | reads whose version is still to come |
//! | `retry` | on_error, reset, cancel, timeouts |
//!
//! Where this process hosts the database, reads are answered on the caller's thread, from memory or the page cache; only
//! commits, watches, versions that lie ahead and the delay of `on_error` are waited for. Every call takes the transaction's lock, so calls take effect in call order.

mod ahead;
mod commit;
mod cost;
mod mapped;
mod pending;
mod reads;
mod retry;
mod sizes;
mod special;
mod watch;
mod writes;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::database::Database;
use super::merged::Merged;
use super::special_keys::Session;
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

use ahead::Ahead;
use commit::Sent;
use pending::Sees;
use special::SpecialRead;
use watch::PendingWatch;

/// End of the keys that a transaction without system access may touch.
const NORMAL_END: &[u8] = b"\xff";
/// End of the keys that a transaction with system access may touch; special keys follow.
const SYSTEM_END: &[u8] = b"\xff\xff";
/// The one system key that every transaction may read.
const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";
/// What follows it: a read conflict range from the one to the other needs no option either.
const METADATA_VERSION_END: &[u8] = b"\xff/metadataVersion\0";

/// What there is for a version where nothing has been committed.
const NO_VERSION: i64 = -1;

/// The first backoff of `on_error`.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);

/// Futures of which there is rarely more than one.
type Futures = SmallVec<[Arc<Future>; 1]>;

/// Where a transaction is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It takes reads and writes.
    Open,
    /// Its commit has begun, and perhaps ended; only a reset or `on_error` opens it again.
    Used,
}

struct State {
    options: TransactionOptions,
    created: Instant,
    phase: Phase,
    /// Cancelled or timed out: every call fails with this until a reset.
    dead: Option<Code>,
    /// The first error of a call that could not report it; the next call that returns a future does.
    deferred: Option<Code>,
    /// Something has been read from the database.
    has_read: bool,
    /// A read that failed: the commit fails with the same.
    failed_read: Option<Code>,
    /// Reads whose data is still to arrive.
    reading: Vec<Arc<Future>>,
    /// Reads of special keys that wait for them.
    waiting_specials: Vec<(SpecialRead, Arc<Future>)>,
    /// A commit that waits for them.
    waiting_commit: Option<Arc<Future>>,
    /// Fails what is pending when the timeout is over.
    timer: Option<TimerId>,
    /// The read version that the client chose.
    chosen_version: Option<i64>,
    ahead: Ahead,
    view: Option<View>,
    /// Where the size of a range is being looked up.
    sizes_view: Option<View>,
    /// Shared with the reads of ranges that wait for data: they see what was written before them.
    writes: Arc<WriteMap>,
    reads: RangeSet,
    write_conflicts: RangeSet,
    /// Those of writes that are on their way before the commit.
    early_conflicts: RangeSet,
    /// The ranges of all three, and the stamped keys of the writes, once the commit has taken them.
    sent: Sent,
    /// What `get_approximate_size` answers, bytes.
    size: i64,
    /// What the size limit is held against in a transaction that does not read its own writes, bytes: there nothing
    /// is put together.
    plain_size: i64,
    /// What reads have cost, bytes in whole pages.
    read_cost: usize,
    /// What the writes have cost, once the commit has taken them.
    sent_cost: Option<usize>,
    watches: Vec<PendingWatch>,
    stamps: Futures,
    /// Futures that fail when the transaction is reset, cancelled or destroyed.
    outstanding: Futures,
    committed_version: i64,
    conflicting: Vec<KeyRange>,
    /// What it has done to special keys, once it has had to do with them.
    special: Option<Session>,
    retries: i64,
    backoff: Duration,
}

impl State {
    fn new(options: TransactionOptions) -> State {
        State {
            options,
            created: Instant::now(),
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

    /// Is it too late to do without read-your-writes? What was written without them already is not in the way.
    fn is_touched(&self) -> bool {
        let has_read = self.has_read || self.failed_read.is_some() || !self.reading.is_empty();
        let has_written =
            !self.writes.is_empty() || !self.write_conflicts.is_empty() || self.sent_cost.is_some();
        has_read || has_written && !self.options.ryw_disabled
    }

    /// When the timeout option ends the transaction.
    fn deadline(&self) -> Option<Instant> {
        let timeout = u64::try_from(self.options.timeout_ms).ok().filter(|ms| *ms > 0)?;
        Some(self.created + Duration::from_millis(timeout))
    }

    /// Fails when the transaction is cancelled or has run out of time.
    fn check_alive(&mut self) -> Result<()> {
        if self.dead.is_none() && self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            self.dead = Some(Code::TRANSACTION_TIMED_OUT);
        }
        self.dead.map_or(Ok(()), Err)
    }

    /// Fails when a call has failed that could not say so.
    fn check_deferred(&self) -> Result<()> {
        self.deferred.map_or(Ok(()), Err)
    }

    /// Fails once the commit has begun; unless the protection is disabled that is the end of the transaction, too.
    fn check_unused(&mut self) -> Result<()> {
        if self.phase == Phase::Open {
            return Ok(());
        }
        if !self.options.used_during_commit_protection_disabled && self.check_alive().is_ok() {
            self.dead = Some(Code::USED_DURING_COMMIT);
        }
        Err(Code::USED_DURING_COMMIT)
    }

    /// Keys below this may be read.
    fn max_read_key(&self) -> &'static [u8] {
        let system = self.options.access_system_keys || self.options.read_system_keys;
        if system { SYSTEM_END } else { NORMAL_END }
    }

    /// Keys below this may be written.
    fn max_write_key(&self) -> &'static [u8] {
        if self.options.access_system_keys { SYSTEM_END } else { NORMAL_END }
    }

    /// May keys be longer by what raw access allows? Access to system keys implies it.
    fn has_raw_access(&self) -> bool {
        let options = &self.options;
        options.raw_access || options.access_system_keys || options.read_system_keys
    }

    /// The read version: the client's choice, whether it can be read at or not, or one taken now.
    fn read_version(&mut self, database: &Database) -> Result<i64> {
        match self.chosen_version {
            Some(version) => Ok(version),
            None => self.view(database)?.version(),
        }
    }

    /// The read version, if it is known by now.
    fn known_read_version(&self) -> Option<i64> {
        self.chosen_version.or_else(|| self.view.as_ref().and_then(View::known_version))
    }

    /// The view at the read version, taken now if there is none yet.
    fn view(&mut self, database: &Database) -> Result<&View> {
        let view = self.obtain(database)?;
        Ok(self.view.insert(view))
    }

    /// Do reads see the transaction's own writes?
    fn sees_own(&self, snapshot: bool) -> bool {
        !self.options.ryw_disabled && (!snapshot || self.options.snapshot_ryw > 0)
    }

    /// Runs `read` over what reads see: everything, or with `snapshot` perhaps without the transaction's own writes. A
    /// read that does not have to look at the database leaves the read version open; of another `bytes` says how much it
    /// has found, if that counts.
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

    /// Remembers that a read failed, so that the commit fails too.
    fn spoil(&mut self, code: Code) -> Code {
        if code != Code::MISSING {
            self.failed_read.get_or_insert(code);
        }
        code
    }

    /// Remembers that one key was read.
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

    /// Remembers what a read depended on, less what the transaction has itself overwritten.
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

    /// Has the transaction written anything in a range, or marked it as written?
    fn is_cut(&self, begin: &[u8], end: &[u8]) -> bool {
        self.write_conflicts.intersects(begin, end)
            || self.writes.unreadable().intersects(begin, end)
            || self.writes.touches(begin, end)
    }

    /// The parts of a range that another transaction can spoil, cut where FoundationDB's own map of writes is: where
    /// write conflict ranges begin and end, too.
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

/// What a conflict range adds to a transaction's size, bytes.
fn conflict_size(begin: &[u8], end: &[u8]) -> i64 {
    24 + len(begin) + len(end)
}

/// What the conflict range of one key adds to a transaction's size, bytes.
fn key_conflict_size(key: &[u8]) -> i64 {
    conflict_size(key, key) + 1
}

/// What a mutation adds to a transaction's size, bytes.
fn mutation_size(a: &[u8], b: &[u8]) -> i64 {
    44 + len(a) + len(b)
}

fn len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX / 4)
}

/// One `FDBTransaction`.
pub struct Transaction {
    database: Arc<Database>,
    state: Mutex<State>,
    /// Counts resets, so that the answer to an older commit finds no one. Beside the lock: the committer must not wait
    /// for a transaction that is busy with something else by now.
    generation: AtomicU64,
}

impl Transaction {
    /// A new transaction with the database's default options.
    #[must_use]
    pub fn new(database: &Arc<Database>) -> Arc<Transaction> {
        let state = Mutex::new(State::new(database.defaults()));
        let generation = AtomicU64::new(0);
        Arc::new(Transaction { database: Arc::clone(database), state, generation })
    }

    /// The state, for a call that may not come once the commit has begun. Such a call fails, and unless the
    /// protection is disabled everything that is pending fails with it.
    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        state.check_deferred()?;
        let state = self.unused(state)?;
        self.alive(state)
    }

    fn alive<'s>(&self, mut state: MutexGuard<'s, State>) -> Result<MutexGuard<'s, State>> {
        state.check_alive().map(|()| state)
    }

    fn unused<'s>(&self, mut state: MutexGuard<'s, State>) -> Result<MutexGuard<'s, State>> {
        let was_dead = state.dead.is_some();
        let Err(code) = state.check_unused() else { return Ok(state) };
        if state.dead.is_some() && !was_dead {
            let ended = self.end_pending(&mut state, code);
            drop(state);
            ended.fail();
        }
        Err(code)
    }

    /// Runs a call that reads, while the transaction takes such calls. It may be run more than once: see `pending`.
    fn answer(
        self: &Arc<Self>,
        sees: Sees<'_>,
        call: impl Fn(&Arc<Transaction>, &mut State) -> Result<Output> + Send + 'static,
    ) -> Arc<Future> {
        self.read(self.open(), sees, call)
    }

    /// Like [`Transaction::apply`], for the calls that the commit does not end.
    fn apply_always(&self, call: impl FnOnce(&mut State) -> Result<()>) {
        let mut state = self.state.lock();
        if state.deferred.is_none() {
            state.deferred = call(&mut state).err();
        }
    }

    /// Runs a call that has no way to report an error; the next one that has, does. It runs on a transaction that is
    /// cancelled, too, but on none that has such an error already.
    fn apply(&self, call: impl FnOnce(&mut State) -> Result<()>) {
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
