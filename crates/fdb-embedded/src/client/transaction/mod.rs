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
//! | `pending` | reads whose data is still to arrive |
//! | `retry` | on_error, reset, cancel, timeouts |
//!
//! Where this process hosts the database, reads are answered on the caller's thread, from memory or the page cache; only
//! commits, watches and the delay of `on_error` are waited for. Every call takes the transaction's lock, so calls take effect in call order.

mod commit;
mod mapped;
mod pending;
mod reads;
mod retry;
mod sizes;
mod special;
mod watch;
mod writes;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::database::Database;
use super::merged::Merged;
use super::special_keys::Session;
use super::write_map::WriteMap;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::link::View;
use crate::network::TimerId;
use crate::options::TransactionOptions;
use crate::range_set::{KeyRange, RangeSet};
use crate::rows::Want;

pub use reads::RangeArguments;
pub use writes::ConflictKind;

use special::SpecialRead;
use watch::PendingWatch;

/// End of the keys that a transaction without system access may touch.
const NORMAL_END: &[u8] = b"\xff";
/// End of the keys that a transaction with system access may touch; special keys follow.
const SYSTEM_END: &[u8] = b"\xff\xff";
/// The one system key that every transaction may read.
const METADATA_VERSION: &[u8] = b"\xff/metadataVersion";

/// The first backoff of `on_error`.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);

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
    view: Option<View>,
    /// Shared with the reads that wait for data: they see what was written before them.
    writes: Arc<WriteMap>,
    reads: RangeSet,
    write_conflicts: RangeSet,
    /// What `get_approximate_size` answers, bytes.
    size: i64,
    watches: Vec<PendingWatch>,
    stamps: Vec<Arc<Future>>,
    /// Futures that fail when the transaction is reset, cancelled or destroyed.
    outstanding: Vec<Arc<Future>>,
    committed_version: i64,
    conflicting: Vec<KeyRange>,
    /// What it has done to special keys.
    special: Session,
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
            reading: Vec::new(),
            waiting_specials: Vec::new(),
            waiting_commit: None,
            timer: None,
            chosen_version: None,
            view: None,
            writes: Arc::default(),
            reads: RangeSet::default(),
            write_conflicts: RangeSet::default(),
            size: 0,
            watches: Vec::new(),
            stamps: Vec::new(),
            outstanding: Vec::new(),
            committed_version: -1,
            conflicting: Vec::new(),
            special: Session::default(),
            retries: 0,
            backoff: FIRST_BACKOFF,
        }
    }

    /// Has the transaction read or written anything?
    fn is_touched(&self) -> bool {
        self.has_read || !self.writes.is_empty() || !self.reads.is_empty()
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

    /// Fails when the transaction takes no further calls of the ordinary kind.
    fn check_open(&mut self) -> Result<()> {
        if self.phase == Phase::Used {
            return Err(Code::USED_DURING_COMMIT);
        }
        self.check_alive()?;
        self.deferred.map_or(Ok(()), Err)
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

    /// The read version: the client's choice, whether it can be read at or not, or one taken now.
    fn read_version(&mut self, database: &Database) -> Result<i64> {
        match self.chosen_version {
            Some(version) => Ok(version),
            None => self.view(database)?.version(),
        }
    }

    /// The view at the read version, taken now if there is none yet.
    fn view(&mut self, database: &Database) -> Result<&View> {
        let view = match self.view.take() {
            Some(view) => view,
            None => database.link().view(self.chosen_version)?,
        };
        Ok(self.view.insert(view))
    }

    /// What a read sees.
    fn merged<'s>(&'s mut self, database: &'s Database, snapshot: bool) -> Result<Merged<'s>> {
        self.view(database)?;
        self.has_read = true;
        let own = !self.options.ryw_disabled && (!snapshot || self.options.snapshot_ryw > 0);
        let view = self.view.as_ref().ok_or(Code::INTERNAL_ERROR)?;
        Ok(Merged {
            view,
            writes: own.then_some(&*self.writes),
            epoch: database.epoch(),
            want: Want::default(),
        })
    }

    /// Remembers what a read depended on, less what the transaction has itself overwritten.
    fn add_read_conflict(&mut self, (begin, end): KeyRange) {
        if begin >= end {
            return;
        }
        self.size += conflict_size(&begin, &end);
        if self.writes.is_empty() || self.options.ryw_disabled {
            self.reads.insert(begin, end);
            return;
        }
        for (begin, end) in self.writes.dependent_parts(&begin, &end) {
            self.reads.insert(begin, end);
        }
    }
}

/// What a conflict range adds to a transaction's size, bytes.
fn conflict_size(begin: &[u8], end: &[u8]) -> i64 {
    24 + len(begin) + len(end)
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

    /// The state, for a call that may not come while a commit is under way. Such a call fails, and unless the
    /// protection is disabled the commit fails with it.
    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if let Err(code) = state.check_open() {
            let spoils =
                code == Code::USED_DURING_COMMIT && !state.options.used_during_commit_protection_disabled;
            let spoiled = if spoils { state.outstanding.clone() } else { Vec::new() };
            drop(state);
            for future in spoiled {
                future.fail(Code::USED_DURING_COMMIT);
            }
            return Err(code);
        }
        Ok(state)
    }

    /// Runs a call that reads, while the transaction takes such calls. It may be run more than once: see `pending`.
    fn answer(
        self: &Arc<Self>,
        call: impl Fn(&Arc<Transaction>, &mut State) -> Result<Output> + Send + 'static,
    ) -> Arc<Future> {
        self.read(self.open(), call)
    }

    /// Runs a call that has no way to report an error; the next one that has, does.
    fn apply(&self, call: impl FnOnce(&mut State) -> Result<()>) {
        let Ok(mut state) = self.open() else { return };
        if let Err(code) = call(&mut state) {
            state.deferred.get_or_insert(code);
        }
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transaction")
    }
}
