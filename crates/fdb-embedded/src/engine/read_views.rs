//! Read views: which version a transaction reads, and from which superversion.
//!
//! A [`Superversion`] serves all versions since its snapshot, until a newer memtable is in redb.
//! Its snapshot pins pages that later batches free, and its memtables take memory. Both are released when its last reader ends, when
//! it was replaced five seconds ago, or when [`MAX_PINNED_BYTES`] were written since. A reader that
//! still needs it continues from the newest superversion with the undo log ([`super::storage::undo_log`]),
//! and so does a transaction that sets an old read version.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use baton::RwLock;
use bytes::Bytes;
use mutant::mutant;

use super::clock::Clock;
use super::faults::InstalledFaults;
use super::storage::undo_log::{RetainedSegment, UndoLog, UndoView};
use super::storage::versioned_reader::VersionedReader;
use super::storage::{StorageError, StorageUpdate, Superversion};
use crate::error::{Code, Result};
use crate::limits::{MAX_PINNED_BYTES, MAX_PINNED_VIEWS, VERSION_WINDOW, VERSIONS_PER_SECOND};
use crate::rows::{Direction, RowVisitor};

/// How long a version stays readable.
pub const READ_WINDOW: Duration = Duration::from_secs((VERSION_WINDOW / VERSIONS_PER_SECOND).unsigned_abs());

/// Extends the readable time while a test holds versions still.
const HELD_CLOCK_EXTENSION: Duration = Duration::from_secs(3_600);

/// The readable time of a pinned view: longer than any backup takes.
const PINNED_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The newest superversion and the undo log that leads back from it.
#[derive(Debug)]
struct CurrentData {
    newest: Arc<Superversion>,
    undo_log: UndoLog,
}

impl CurrentData {
    /// The newest superversion, and the undo data for `version`.
    fn at_version(&self, version: i64) -> Result<(Arc<Superversion>, UndoView)> {
        let undo = self.undo_log.undo_to(version).ok_or(Code::TRANSACTION_TOO_OLD)?;
        Ok((Arc::clone(&self.newest), undo))
    }
}

/// A read version, and access to the keys at that version.
#[derive(Debug, Clone)]
pub struct ReadView {
    /// The read version. A commit conflicts with writes after it.
    pub version: i64,
    /// A superversion that serves the version. `None` if it was replaced before the view was made:
    /// each read then takes the newest one, so that the view keeps no memory alive that the undo
    /// log has dropped.
    state: Option<Arc<Superversion>>,
    current: Arc<RwLock<CurrentData>>,
    expires: Instant,
    faults: Option<Arc<InstalledFaults>>,
}

impl ReadView {
    /// The same view with injected faults, for a client.
    pub(super) fn with_faults(mut self, faults: &Arc<InstalledFaults>) -> ReadView {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// True if every read fails because the version is too old.
    pub fn is_expired(&self) -> bool {
        baton::now() > self.expires
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.read(|at| at.get(key))
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        self.read(|at| at.scan(begin, end, direction, visit))
    }

    fn read<T>(&self, read: impl FnOnce(VersionedReader<'_>) -> Result<T, StorageError>) -> Result<T> {
        if self.is_expired() {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        self.faults.as_ref().map_or(Ok(()), |faults| faults.read())?;
        let own = self.state.as_ref().and_then(|state| state.contents());
        let (contents, undo) = match own {
            Some(contents) => (contents, UndoView::default()),
            None => {
                let (newest, undo) = self.current.read().at_version(self.version)?;
                (newest.contents().ok_or(Code::TRANSACTION_TOO_OLD)?, undo)
            }
        };
        read(contents.reader_at(self.version, &undo)).map_err(|error| {
            // The directory was closed during the read. The next host may have written to its files
            // since, so a page that does not match its checksum means nothing either.
            let is_closed = self.current.read().newest.snapshot().is_none();
            if is_closed { Code::TRANSACTION_TOO_OLD } else { error.code() }
        })
    }
}

/// How many bytes may be written before a snapshot is released that is still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinLimits {
    /// The snapshot of a transaction, which then reads with the undo log.
    pub transaction: u64,
    /// The snapshot of a view that was pinned, which then is lost.
    pub pinned_view: u64,
}

impl Default for PinLimits {
    fn default() -> PinLimits {
        PinLimits { transaction: MAX_PINNED_BYTES, pinned_view: u64::MAX }
    }
}

/// Creates read views, and releases old snapshots.
#[derive(Debug)]
pub struct ReadViews {
    clock: Clock,
    newest: Arc<Superversion>,
    current: Arc<RwLock<CurrentData>>,
    /// Replaced superversions that may still have readers, oldest first, with the version at which
    /// they were replaced.
    replaced: VecDeque<(i64, Weak<Superversion>)>,
    /// Superversions that stay readable until their view is dropped.
    pinned: Vec<Weak<Superversion>>,
    limits: PinLimits,
}

impl ReadViews {
    /// Starts with the superversion of the clock's published version.
    pub fn new(clock: Clock, newest: Arc<Superversion>) -> ReadViews {
        let version = clock.published();
        let current = CurrentData { newest: Arc::clone(&newest), undo_log: UndoLog::new(version) };
        ReadViews {
            clock,
            newest,
            current: Arc::new(RwLock::new(current)),
            replaced: VecDeque::new(),
            pinned: Vec::new(),
            limits: PinLimits::default(),
        }
    }

    /// The clock.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Limits the space that snapshots may pin: on a full disk, to almost nothing.
    pub fn limit_pinned_space(&mut self, limits: PinLimits) {
        self.limits = limits;
        self.release_pinned_views(self.newest.bytes_written());
    }

    /// Releases the snapshots of pinned views that cost more space than the disk has left.
    fn release_pinned_views(&mut self, written: u64) {
        let limit = self.limits.pinned_view;
        if self.pinned.is_empty() || limit == u64::MAX || mutant("pins-fill-the-disk") {
            return;
        }
        let mut lost = 0;
        self.pinned.retain(|state| {
            let Some(state) = state.upgrade() else { return false };
            let is_lost = written - state.bytes_written() > limit;
            if is_lost {
                state.release();
                lost += 1;
            }
            !is_lost
        });
        if lost > 0 {
            crate::reports::report(
                "a backup that is being made has lost its version, because the disk needs the space that it pins",
            );
        }
    }

    /// A view at a new read version.
    pub fn read(&mut self, now: Instant) -> ReadView {
        let version = self.clock.read_version(now);
        self.view(version, Some(Arc::clone(&self.newest)), now + READ_WINDOW)
    }

    /// A view at a version chosen by the client. Fails with `TRANSACTION_TOO_OLD` or
    /// `FUTURE_VERSION` if it cannot be read.
    pub fn at(&mut self, version: i64, now: Instant) -> Result<ReadView> {
        let latest = self.clock.read_version(now);
        if version > latest {
            return Err(Code::FUTURE_VERSION);
        }
        let age = u64::try_from(latest.saturating_sub(version)).expect("it is not ahead");
        let age = Duration::from_micros(age);
        if age > READ_WINDOW {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        let is_newest = version >= self.newest.base_version();
        if !is_newest && !self.current.read().undo_log.reaches(version) {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        Ok(self.view(version, is_newest.then(|| Arc::clone(&self.newest)), now + (READ_WINDOW - age)))
    }

    /// A view at a new read version that stays readable until it is dropped.
    pub fn pin(&mut self, now: Instant) -> Result<ReadView> {
        self.pinned.retain(|state| state.strong_count() > 0);
        if self.pinned.len() >= MAX_PINNED_VIEWS {
            return Err(Code::OPERATION_FAILED);
        }
        let version = self.clock.read_version(now);
        // A separate superversion, whose snapshot is not released with the replaced ones.
        let own = Arc::new(self.newest.duplicate());
        self.pinned.push(Arc::downgrade(&own));
        Ok(self.view(version, Some(own), now + PINNED_LIFETIME))
    }

    fn view(&self, version: i64, state: Option<Arc<Superversion>>, expires: Instant) -> ReadView {
        // While a test holds versions still, views do not expire.
        let expires = if self.clock.is_held() { expires + HELD_CLOCK_EXTENSION } else { expires };
        ReadView { version, state, current: Arc::clone(&self.current), expires, faults: None }
    }

    /// Publishes a durable batch: later read views include it. Returns what nothing reads any more:
    /// freeing it takes time, in which this lock should not be held.
    #[must_use]
    pub fn publish(
        &mut self,
        version: i64,
        ceiling: Option<i64>,
        update: StorageUpdate,
    ) -> Vec<RetainedSegment> {
        self.clock.publish(version, ceiling);
        self.install(update)
    }

    /// Installs the superversion of an update, and returns what nothing reads any more.
    #[must_use]
    pub fn install(&mut self, update: StorageUpdate) -> Vec<RetainedSegment> {
        let StorageUpdate { superversion: Some(new), flushed, .. } = update else { return Vec::new() };
        let now = self.clock.published();
        let old = std::mem::replace(&mut self.newest, Arc::clone(&new));
        self.replaced.push_back((now, Arc::downgrade(&old)));
        let written = new.bytes_written();
        let mut retired = Vec::new();
        {
            let mut current = self.current.write();
            for group in flushed {
                retired.extend(current.undo_log.push(group, now - VERSION_WINDOW));
            }
            current.newest = new;
        }
        drop(old);
        self.release_old_snapshots(now, written);
        self.release_pinned_views(written);
        retired
    }

    /// Drops superversions that have expired, and returns such undo segments, while no batches do
    /// so.
    #[must_use]
    pub fn trim_expired(&mut self, now: Instant) -> Vec<RetainedSegment> {
        let version = self.clock.version_at(now);
        let retired = self.current.write().undo_log.trim_expired(version - VERSION_WINDOW);
        self.release_old_snapshots(version, self.newest.bytes_written());
        retired
    }

    /// Adds what the views hold.
    #[cfg(feature = "testing")]
    pub fn add_holdings(&self, holdings: &mut super::holdings::Holdings) {
        let replaced = self.replaced.iter().map(|(_, state)| state);
        let old = replaced.chain(&self.pinned).filter_map(Weak::upgrade);
        holdings.old_states = old.filter(|state| state.contents().is_some()).count();
        holdings.undo_log.0 = self.current.read().undo_log.bytes();
    }

    /// Ends all reads, because the directory is about to be closed.
    pub fn close(&mut self) {
        let replaced = self.replaced.drain(..).filter_map(|(_, state)| state.upgrade());
        let pinned = self.pinned.drain(..).filter_map(|state| state.upgrade());
        for state in replaced.chain(pinned).chain([Arc::clone(&self.newest)]) {
            state.release();
        }
    }

    /// Releases the snapshots of superversions that were replaced long ago.
    fn release_old_snapshots(&mut self, version: i64, written: u64) {
        while let Some((replaced_at, state)) = self.replaced.front() {
            let is_expired = *replaced_at < version - VERSION_WINDOW;
            match state.upgrade() {
                Some(pinning)
                    if is_expired || written - pinning.bytes_written() > self.limits.transaction =>
                {
                    pinning.release();
                }
                Some(_) => return,
                None => {}
            }
            self.replaced.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
