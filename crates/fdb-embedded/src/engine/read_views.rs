//! Read views: which version a transaction reads, and from which superversion.
//!
//! A [`Superversion`] serves all versions since its snapshot, until a newer memtable is in redb.
//! Its snapshot pins pages that later batches free. It is released when its last reader ends, when
//! it was replaced five seconds ago, or when [`MAX_PINNED_BYTES`] were written since. A reader that
//! still needs it continues from the newest superversion with the undo log ([`super::undo_log`]),
//! and so does a transaction that sets an old read version.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;

use super::clock::Clock;
use super::faults::InstalledFaults;
use super::storage::{StorageError, StorageUpdate, Superversion};
use super::undo_log::{UndoLog, UndoView};
use super::versioned_reader::VersionedReader;
use crate::error::{Code, Result};
use crate::limits::{
    MAX_PINNED_BYTES, MAX_PINNED_BYTES_FULL, MAX_PINNED_VIEWS, VERSION_WINDOW, VERSIONS_PER_SECOND,
};
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
        Instant::now() > self.expires
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
        let own = self.state.as_ref().and_then(|state| Some((Arc::clone(state), state.snapshot()?)));
        let (state, snapshot, undo) = match own {
            Some((state, snapshot)) => (state, snapshot, UndoView::default()),
            None => {
                let (newest, undo) = self.current.read().at_version(self.version)?;
                let snapshot = newest.snapshot().ok_or(Code::TRANSACTION_TOO_OLD)?;
                (newest, snapshot, undo)
            }
        };
        read(state.reader_at(self.version, &snapshot, &undo)).map_err(|error| {
            // The directory was closed during the read.
            let is_closed = error.code() == Code::IO_ERROR && self.current.read().newest.snapshot().is_none();
            if is_closed { Code::TRANSACTION_TOO_OLD } else { error.code() }
        })
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
    /// A snapshot is released after this many bytes were written, even if a transaction still reads
    /// from it.
    max_pinned: u64,
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
            max_pinned: MAX_PINNED_BYTES,
        }
    }

    /// The clock.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Limits the space that snapshots may pin: on a full disk, to almost nothing.
    pub fn limit_pinned_space(&mut self, is_full: bool) {
        self.max_pinned = if is_full { MAX_PINNED_BYTES_FULL } else { MAX_PINNED_BYTES };
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

    /// Publishes a durable batch: later read views include it.
    pub fn publish(&mut self, version: i64, ceiling: Option<i64>, update: StorageUpdate) {
        self.clock.publish(version, ceiling);
        self.install(update);
    }

    /// Installs the superversion of an update.
    pub fn install(&mut self, update: StorageUpdate) {
        let StorageUpdate { superversion: Some(new), flushed, .. } = update else { return };
        let now = self.clock.published();
        let old = std::mem::replace(&mut self.newest, Arc::clone(&new));
        self.replaced.push_back((now, Arc::downgrade(&old)));
        let written = new.bytes_written();
        {
            let mut current = self.current.write();
            for group in flushed {
                current.undo_log.push(group, now - VERSION_WINDOW);
            }
            current.newest = new;
        }
        drop(old);
        self.release_old_snapshots(now, written);
    }

    /// Drops undo segments that have expired, while no batches do so.
    pub fn trim_undo_log(&mut self, now: Instant) {
        let expired = self.clock.version_at(now) - VERSION_WINDOW;
        self.current.write().undo_log.trim_expired(expired);
    }

    /// Ends all reads, because the directory is about to be closed.
    pub fn close(&mut self) {
        let replaced = self.replaced.drain(..).filter_map(|(_, state)| state.upgrade());
        let pinned = self.pinned.drain(..).filter_map(|state| state.upgrade());
        for state in replaced.chain(pinned).chain([Arc::clone(&self.newest)]) {
            state.release_snapshot();
        }
    }

    /// Releases the snapshots of superversions that were replaced long ago.
    fn release_old_snapshots(&mut self, version: i64, written: u64) {
        while let Some((replaced_at, state)) = self.replaced.front() {
            let is_expired = *replaced_at < version - VERSION_WINDOW;
            match state.upgrade() {
                Some(pinning) if is_expired || written - pinning.bytes_written() > self.max_pinned => {
                    pinning.release_snapshot();
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
