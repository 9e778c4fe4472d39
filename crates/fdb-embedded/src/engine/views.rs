//! Read versions and the snapshots behind them.
//!
//! Every published batch has one snapshot, shared by all transactions that read at a version between it and the
//! next batch. A snapshot pins the pages that later batches free, so it is let go when its last reader is done,
//! or five seconds after a newer batch replaced it, whichever is first; readers then get `transaction_too_old`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;

use super::clock::Clock;
use super::storage::{Rows, Snapshot};
use crate::error::{Code, Result};
use crate::limits::{VERSION_WINDOW, VERSIONS_PER_SECOND};
use crate::rows::{Direction, Visit};

const WINDOW: Duration = Duration::from_secs((VERSION_WINDOW / VERSIONS_PER_SECOND).unsigned_abs());

/// The state after one batch.
#[derive(Debug)]
struct Published {
    version: i64,
    /// `None` once the window has passed.
    snapshot: RwLock<Option<Snapshot>>,
}

/// A read version and what can be read at it.
#[derive(Debug, Clone)]
pub struct View {
    /// The version; a commit of this transaction conflicts with writes after it.
    pub version: i64,
    published: Arc<Published>,
    expires: Instant,
}

impl View {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.read(|snapshot| snapshot.get(key).map_err(|error| error.code()))
    }

    /// The rows of `[begin, end)`.
    pub fn range(&self, begin: &[u8], end: &[u8]) -> Result<Rows> {
        self.read(|snapshot| snapshot.range(begin, end).map_err(|error| error.code()))
    }

    /// Visits the rows of `[begin, end)` until the visitor breaks.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut rows = self.range(begin, end)?;
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

    fn read<T>(&self, read: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        if Instant::now() > self.expires {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        match &*self.published.snapshot.read() {
            Some(snapshot) => read(snapshot),
            None => Err(Code::TRANSACTION_TOO_OLD),
        }
    }
}

/// Hands out views and lets old snapshots go.
#[derive(Debug)]
pub struct Views {
    clock: Clock,
    current: Arc<Published>,
    /// Replaced states that may still have readers, oldest first, with the version that replaced them.
    replaced: VecDeque<(i64, Weak<Published>)>,
}

impl Views {
    /// Starts with the state that the clock's published version stands for.
    pub fn new(clock: Clock, snapshot: Snapshot) -> Views {
        let current = Published { version: clock.published(), snapshot: RwLock::new(Some(snapshot)) };
        Views { clock, current: Arc::new(current), replaced: VecDeque::new() }
    }

    /// The clock, for the committer.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// A new read version.
    pub fn read(&mut self, now: Instant) -> View {
        let version = self.clock.read_version(now);
        View { version, published: Arc::clone(&self.current), expires: now + WINDOW }
    }

    /// The view at a version that the client chose: `TRANSACTION_TOO_OLD` when its state is gone,
    /// `FUTURE_VERSION` when it lies ahead.
    pub fn at(&mut self, version: i64, now: Instant) -> Result<View> {
        let latest = self.clock.read_version(now);
        if version > latest {
            return Err(Code::FUTURE_VERSION);
        }
        let age = u64::try_from(latest - version).expect("it is not ahead");
        let age = Duration::from_micros(age);
        if age > WINDOW {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        let published = if version >= self.current.version {
            Arc::clone(&self.current)
        } else {
            let next = self.replaced.partition_point(|(replaced_by, _)| *replaced_by <= version);
            let found = self.replaced.get(next).and_then(|(_, published)| published.upgrade());
            found.ok_or(Code::TRANSACTION_TOO_OLD)?
        };
        Ok(View { version, published, expires: now + (WINDOW - age) })
    }

    /// A batch is durable: `snapshot` is what is read from now on.
    pub fn publish(&mut self, version: i64, ceiling: Option<i64>, snapshot: Snapshot) {
        self.clock.publish(version, ceiling);
        let new = Arc::new(Published { version, snapshot: RwLock::new(Some(snapshot)) });
        let old = std::mem::replace(&mut self.current, new);
        self.replaced.push_back((version, Arc::downgrade(&old)));
        drop(old);
        while self.replaced.front().is_some_and(|(replaced_by, _)| *replaced_by < version - VERSION_WINDOW) {
            if let Some(expired) = self.replaced.pop_front().and_then(|(_, published)| published.upgrade()) {
                *expired.snapshot.write() = None;
            }
        }
    }
}
