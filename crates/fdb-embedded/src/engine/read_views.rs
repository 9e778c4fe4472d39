//! Read versions and what can be read at them.
//!
//! A [`Superversion`] is a snapshot of redb's and what was written since; it serves all versions from the one that the snapshot is of until
//! the next group of batches is in redb. A snapshot pins the pages that later batches free, so it is let go when its last reader is done,
//! when a newer one replaced it five seconds ago, or when [`MAX_PINNED_BYTES`] were written since, whichever is first.
//! A reader that is still there goes on reading from the newest state and what the groups since have changed
//! ([`super::undo_log`]), and so does one that comes back to a version of its choice.

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
    MAX_PINNED, MAX_PINNED_BYTES, MAX_PINNED_BYTES_FULL, VERSION_WINDOW, VERSIONS_PER_SECOND,
};
use crate::rows::{Direction, Visit};

/// How long a version can be read.
pub const READ_WINDOW: Duration = Duration::from_secs((VERSION_WINDOW / VERSIONS_PER_SECOND).unsigned_abs());

/// How much longer than usual a version can be read while versions stand still.
const HELD_CLOCK_EXTENSION: Duration = Duration::from_secs(3_600);

/// How long a view can be read that is kept for a backup: longer than any takes.
const PINNED_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The newest state, and the way back from it.
#[derive(Debug)]
struct CurrentData {
    newest: Arc<Superversion>,
    undo_log: UndoLog,
}

impl CurrentData {
    /// What was there at `version`, seen from the newest state.
    fn at_version(&self, version: i64) -> Result<(Arc<Superversion>, UndoView)> {
        let undo = self.undo_log.undo_to(version).ok_or(Code::TRANSACTION_TOO_OLD)?;
        Ok((Arc::clone(&self.newest), undo))
    }
}

/// A read version and what can be read at it.
#[derive(Debug, Clone)]
pub struct ReadView {
    /// The version; a commit of this transaction conflicts with writes after it.
    pub version: i64,
    /// A state that has the version. `None` where another one has replaced that before: it is made anew for each read, so that a
    /// view keeps nothing alive that the undo_log has forgotten.
    state: Option<Arc<Superversion>>,
    current: Arc<RwLock<CurrentData>>,
    expires: Instant,
    faults: Option<Arc<InstalledFaults>>,
}

impl ReadView {
    /// The same, for a client: its reads may fail on purpose.
    pub(super) fn with_faults(mut self, faults: &Arc<InstalledFaults>) -> ReadView {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// Is it too old for every read?
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
        visit: Visit<'_>,
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
            // The file was closed under the read.
            let is_closed = error.code() == Code::IO_ERROR && self.current.read().newest.snapshot().is_none();
            if is_closed { Code::TRANSACTION_TOO_OLD } else { error.code() }
        })
    }
}

/// Hands out views and lets old snapshots go.
#[derive(Debug)]
pub struct ReadViews {
    clock: Clock,
    newest: Arc<Superversion>,
    current: Arc<RwLock<CurrentData>>,
    /// Replaced states that may still have readers, oldest first, with the version that replaced them.
    replaced: VecDeque<(i64, Weak<Superversion>)>,
    /// States that are read for as long as somebody does.
    pinned: Vec<Weak<Superversion>>,
    /// The engine drops a snapshot after so many written bytes, although a transaction reads from it.
    max_pinned: u64,
}

impl ReadViews {
    /// Starts with the state that the clock's published version stands for.
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

    /// The clock, for the committer.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// On a full disk readers may keep next to nothing from being used again.
    pub fn limit_pinned_space(&mut self, is_full: bool) {
        self.max_pinned = if is_full { MAX_PINNED_BYTES_FULL } else { MAX_PINNED_BYTES };
    }

    /// A new read version.
    pub fn read(&mut self, now: Instant) -> ReadView {
        let version = self.clock.read_version(now);
        self.view(version, Some(Arc::clone(&self.newest)), now + READ_WINDOW)
    }

    /// The view at a version that the client chose: `TRANSACTION_TOO_OLD` when its state is gone,
    /// `FUTURE_VERSION` when it lies ahead.
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

    /// A new read version that can be read until the view is dropped.
    pub fn pin(&mut self, now: Instant) -> Result<ReadView> {
        self.pinned.retain(|state| state.strong_count() > 0);
        if self.pinned.len() >= MAX_PINNED {
            return Err(Code::OPERATION_FAILED);
        }
        let version = self.clock.read_version(now);
        // A state of its own, that is not let go with those that are replaced.
        let own = Arc::new(self.newest.duplicate());
        self.pinned.push(Arc::downgrade(&own));
        Ok(self.view(version, Some(own), now + PINNED_LIFETIME))
    }

    fn view(&self, version: i64, state: Option<Arc<Superversion>>, expires: Instant) -> ReadView {
        // Where a test has stopped time, it stops here too.
        let expires = if self.clock.is_held() { expires + HELD_CLOCK_EXTENSION } else { expires };
        ReadView { version, state, current: Arc::clone(&self.current), expires, faults: None }
    }

    /// A batch is durable: it is what is read from now on.
    pub fn publish(&mut self, version: i64, ceiling: Option<i64>, update: StorageUpdate) {
        self.clock.publish(version, ceiling);
        self.install(update);
    }

    /// Groups of batches have gone to redb.
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

    /// Forgets the changes that nobody may read any more, when no batches come that would.
    pub fn trim_undo_log(&mut self, now: Instant) {
        let expired = self.clock.version_at(now) - VERSION_WINDOW;
        self.current.write().undo_log.trim_expired(expired);
    }

    /// Ends all reads: the file is about to belong to another process.
    pub fn close(&mut self) {
        let replaced = self.replaced.drain(..).filter_map(|(_, state)| state.upgrade());
        let pinned = self.pinned.drain(..).filter_map(|state| state.upgrade());
        for state in replaced.chain(pinned).chain([Arc::clone(&self.newest)]) {
            state.release_snapshot();
        }
    }

    /// Lets go of snapshots that have pinned freed pages for long enough.
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
