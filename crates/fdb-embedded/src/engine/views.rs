//! Read versions and what can be read at them.
//!
//! Every published batch has one snapshot, shared by all transactions that read at a version between it and the
//! next batch. A snapshot pins the pages that later batches free, so it is let go when its last reader is done,
//! when a newer batch replaced it five seconds ago, or when [`MAX_PINNED_BYTES`] were written since, whichever is first.
//! A reader that is still there goes on reading from the newest state and what the batches since have changed
//! ([`super::history`]), and so does one that comes back to a version of its choice.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;

use super::clock::Clock;
use super::faults::Switch;
use super::history::{History, Layer, Past};
use super::storage::Snapshot;
use crate::error::{Code, Result};
use crate::limits::{MAX_PINNED_BYTES, VERSION_WINDOW, VERSIONS_PER_SECOND};
use crate::rows::{Direction, Visit};

/// How long a version can be read.
pub const WINDOW: Duration = Duration::from_secs((VERSION_WINDOW / VERSIONS_PER_SECOND).unsigned_abs());

/// How much longer than usual a version can be read while versions stand still.
const HELD: Duration = Duration::from_secs(3_600);

/// The state after one batch.
#[derive(Debug)]
struct Published {
    /// Bytes that had been written to the file by then, in all.
    written: u64,
    /// `None` once it has been let go.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
}

/// The newest state, and the way back from it.
#[derive(Debug)]
struct Timeline {
    newest: Arc<Published>,
    history: History,
}

impl Timeline {
    /// What was there at `version`, seen from the newest state.
    fn look_back(&self, version: i64) -> Result<(Arc<Published>, Past)> {
        let past = self.history.since(version).ok_or(Code::TRANSACTION_TOO_OLD)?;
        Ok((Arc::clone(&self.newest), past))
    }
}

/// A read version and what can be read at it.
#[derive(Debug, Clone)]
pub struct View {
    /// The version; a commit of this transaction conflicts with writes after it.
    pub version: i64,
    /// The state at the version. `None` where a batch has replaced it before: it is made anew for each read, so that a
    /// view keeps nothing alive that the history has forgotten.
    published: Option<Arc<Published>>,
    timeline: Arc<RwLock<Timeline>>,
    expires: Instant,
    faults: Option<Arc<Switch>>,
}

impl View {
    /// The same, for a client: its reads may fail on purpose.
    pub(super) fn with_faults(mut self, faults: &Arc<Switch>) -> View {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// Is it too old for every read?
    pub fn is_expired(&self) -> bool {
        Instant::now() > self.expires
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.read(|snapshot, past| match past.get(key) {
            Some(value) => Ok(value.map(Bytes::copy_from_slice)),
            None => snapshot.get(key).map_err(|error| error.code()),
        })
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        self.read(|snapshot, past| {
            if past.is_empty() {
                return scan_stored(snapshot, begin, end, direction, visit);
            }
            let mut changed: Vec<_> = past.range(begin, end).into_iter().collect();
            if direction == Direction::Backward {
                changed.reverse();
            }
            scan_merged(snapshot, begin, end, direction, changed, visit)
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Snapshot, &Past) -> Result<T>) -> Result<T> {
        if self.is_expired() {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        self.faults.as_ref().map_or(Ok(()), |faults| faults.read())?;
        let own = self.published.as_ref().and_then(|published| published.snapshot.read().clone());
        if let Some(snapshot) = own {
            return read(&snapshot, &Past::default());
        }
        let (newest, past) = self.timeline.read().look_back(self.version)?;
        let snapshot = newest.snapshot.read().clone().ok_or(Code::TRANSACTION_TOO_OLD)?;
        read(&snapshot, &past)
    }
}

fn scan_stored(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let mut rows = snapshot.range(begin, end).map_err(|error| error.code())?;
    loop {
        let row = match direction {
            Direction::Forward => rows.next(),
            Direction::Backward => rows.next_back(),
        };
        let Some(row) = row else { return Ok(ControlFlow::Continue(())) };
        let (key, value) = row.map_err(|error| error.code())?;
        if visit(key.value(), value.value()).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// The stored rows, but for keys of `changed`, which held what is there. Both in the order of the scan.
fn scan_merged(
    snapshot: &Snapshot,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    changed: Vec<(&[u8], Option<&[u8]>)>,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>> {
    let comes_before = |a: &[u8], b: &[u8]| if direction == Direction::Forward { a < b } else { a > b };
    let mut changed = changed.into_iter().peekable();
    let outcome = scan_stored(snapshot, begin, end, direction, &mut |key, value| {
        while let Some((gone, old)) = changed.next_if(|(changed, _)| comes_before(changed, key)) {
            if let Some(old) = old {
                visit(gone, old)?;
            }
        }
        match changed.next_if(|(changed, _)| *changed == key) {
            Some((key, Some(old))) => visit(key, old),
            Some((_, None)) => ControlFlow::Continue(()),
            None => visit(key, value),
        }
    })?;
    if outcome.is_break() {
        return Ok(outcome);
    }
    for (gone, old) in changed {
        if let Some(old) = old
            && visit(gone, old).is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// What a durable batch leaves to read.
pub struct Batch {
    /// The state after it.
    pub snapshot: Snapshot,
    /// What it changed, if that is not too much to keep.
    pub layer: Option<Layer>,
    /// Bytes written to the file so far, in all.
    pub written: u64,
}

/// Hands out views and lets old snapshots go.
#[derive(Debug)]
pub struct Views {
    clock: Clock,
    newest: Arc<Published>,
    timeline: Arc<RwLock<Timeline>>,
    /// Replaced states that may still have readers, oldest first, with the version that replaced them.
    replaced: VecDeque<(i64, Weak<Published>)>,
}

impl Views {
    /// Starts with the state that the clock's published version stands for.
    pub fn new(clock: Clock, snapshot: Snapshot) -> Views {
        let version = clock.published();
        let newest = Arc::new(Published::new(0, snapshot));
        let timeline = Timeline { newest: Arc::clone(&newest), history: History::new(version) };
        Views { clock, newest, timeline: Arc::new(RwLock::new(timeline)), replaced: VecDeque::new() }
    }

    /// The clock, for the committer.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// A new read version.
    pub fn read(&mut self, now: Instant) -> View {
        let version = self.clock.read_version(now);
        self.view(version, Some(Arc::clone(&self.newest)), now + WINDOW)
    }

    /// The view at a version that the client chose: `TRANSACTION_TOO_OLD` when its state is gone,
    /// `FUTURE_VERSION` when it lies ahead.
    pub fn at(&mut self, version: i64, now: Instant) -> Result<View> {
        let latest = self.clock.read_version(now);
        if version > latest {
            return Err(Code::FUTURE_VERSION);
        }
        let age = u64::try_from(latest.saturating_sub(version)).expect("it is not ahead");
        let age = Duration::from_micros(age);
        if age > WINDOW {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        let is_newest = version >= self.clock.published();
        if !is_newest && !self.timeline.read().history.reaches(version) {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        Ok(self.view(version, is_newest.then(|| Arc::clone(&self.newest)), now + (WINDOW - age)))
    }
    fn view(&self, version: i64, published: Option<Arc<Published>>, expires: Instant) -> View {
        // Where a test has stopped time, it stops here too.
        let expires = if self.clock.is_held() { expires + HELD } else { expires };
        View { version, published, timeline: Arc::clone(&self.timeline), expires, faults: None }
    }

    /// A batch is durable: its state is what is read from now on.
    pub fn publish(&mut self, version: i64, ceiling: Option<i64>, batch: Batch) {
        self.clock.publish(version, ceiling);
        let new = Arc::new(Published::new(batch.written, batch.snapshot));
        let old = std::mem::replace(&mut self.newest, Arc::clone(&new));
        self.replaced.push_back((version, Arc::downgrade(&old)));
        {
            let mut timeline = self.timeline.write();
            timeline.history.push(version, batch.layer, version - VERSION_WINDOW);
            timeline.newest = new;
        }
        drop(old);
        self.let_go(version, batch.written);
    }

    /// Forgets the changes that nobody may read any more, when no batches come that would.
    pub fn forget(&mut self, now: Instant) {
        let expired = self.clock.at(now) - VERSION_WINDOW;
        self.timeline.write().history.forget(expired);
    }

    /// Ends all reads: the file is about to belong to another process.
    pub fn close(&mut self) {
        let replaced = self.replaced.drain(..).filter_map(|(_, published)| published.upgrade());
        for published in replaced.chain([Arc::clone(&self.newest)]) {
            *published.snapshot.write() = None;
        }
    }

    /// Lets go of snapshots that have pinned freed pages for long enough.
    fn let_go(&mut self, version: i64, written: u64) {
        while let Some((replaced_by, published)) = self.replaced.front() {
            let is_expired = *replaced_by < version - VERSION_WINDOW;
            match published.upgrade() {
                Some(pinning) if is_expired || written - pinning.written > MAX_PINNED_BYTES => {
                    *pinning.snapshot.write() = None;
                }
                Some(_) => return,
                None => {}
            }
            self.replaced.pop_front();
        }
    }
}

impl Published {
    fn new(written: u64, snapshot: Snapshot) -> Published {
        Published { written, snapshot: RwLock::new(Some(Arc::new(snapshot))) }
    }
}

#[cfg(test)]
mod tests;
