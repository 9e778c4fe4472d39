//! A view of a database that another process hosts, and what of it has arrived.
//!
//! A read of something that is not here yet fails with [`MISSING`] and leaves in the view what it wants; the transaction
//! has it fetched and repeats the read. A key or range that has arrived is not asked for again: at one version it cannot
//! change.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::guest::Guest;
use crate::error::{Code, Result};
use crate::fork::is_forked;
use crate::limits::{cut, is_too_long_to_be_there};
use crate::range_set::{RangeSet, key_after};
use crate::rows::{Direction, RowSet, Visit, Want};

/// What has been fetched is forgotten beyond this, when a new read begins: bytes of keys and values of one view.
const MAX_CACHED: usize = 32 << 20;

/// Something that a read needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// The view's version.
    Version,
    /// The value of a key.
    Key(Vec<u8>),
    /// Rows of a range, from one side.
    Range { begin: Vec<u8>, end: Vec<u8>, direction: Direction, want: Want },
}

/// Called when what was fetched is here, or never will be.
pub type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Inner {
    /// `None` until the host has said; an error if there can be no reads.
    version: Option<Result<i64>>,
    awaiting_version: Vec<Then>,
    /// The connection has ended: there can be no reads any more, whatever has arrived.
    is_lost: bool,
    /// What the read that is being run has missed.
    wanted: Vec<Fetch>,
    /// What could not be fetched, for the reads that asked for it.
    failed: Vec<(Fetch, Code)>,
    /// Where `rows` holds everything that there is.
    known: RangeSet,
    rows: BTreeMap<Vec<u8>, Bytes>,
    bytes: usize,
}

/// A read version of another process's engine.
pub struct RemoteView {
    id: u64,
    /// The host keeps its version readable until it is closed.
    is_pinned: bool,
    guest: Arc<Guest>,
    inner: Mutex<Inner>,
}

impl RemoteView {
    pub(super) fn new(id: u64, guest: Arc<Guest>, is_pinned: bool) -> RemoteView {
        RemoteView { id, is_pinned, guest, inner: Mutex::default() }
    }

    /// Its name in the connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whose view it is.
    pub(super) fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }

    /// The version, if it has arrived.
    pub fn known_version(&self) -> Option<i64> {
        self.inner.lock().version.and_then(Result::ok)
    }

    /// The version.
    pub fn version(&self) -> Result<i64> {
        let mut inner = self.inner.lock();
        match inner.version {
            Some(version) => version,
            None => inner.miss(Fetch::Version),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut inner = self.inner.lock();
        inner.check()?;
        if is_too_long_to_be_there(key) {
            // Derived from stored values, say. The host takes no such key.
            return Ok(None);
        }
        if inner.known.contains(key) {
            return Ok(inner.rows.get(key).cloned());
        }
        inner.miss(Fetch::Key(key.to_vec()))
    }

    /// Visits the rows of `[begin, end)` as far as they have arrived. What is missing is fetched to `far`, if it lies beyond.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        (want, far): (Want, Option<&[u8]>),
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut inner = self.inner.lock();
        inner.check()?;
        let (mut begin, mut end) = (cut(begin).to_vec(), cut(end).to_vec());
        let (mut passed_rows, mut passed_bytes) = (0, 0);
        while begin < end {
            let Some((from, to)) = inner.known_at(&begin, &end, direction) else {
                // The read is run again from its beginning when this is here. If each piece is as long as all before it,
                // the runs together come to a few times the whole.
                let want = want.at_least(passed_rows, passed_bytes);
                match (far.map(cut), direction) {
                    (Some(far), Direction::Forward) if far > end.as_slice() => end = far.to_vec(),
                    (Some(far), Direction::Backward) if far < begin.as_slice() => begin = far.to_vec(),
                    _ => {}
                }
                return inner.miss(Fetch::Range { begin, end, direction, want });
            };
            let range = (Included(from.as_slice()), Excluded(to.as_slice()));
            let mut rows = inner.rows.range::<[u8], _>(range);
            let mut next = || match direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.next_back(),
            };
            while let Some((key, value)) = next() {
                passed_rows += 1;
                passed_bytes += key.len() + value.len();
                if visit(key, value).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match direction {
                Direction::Forward => begin = to,
                Direction::Backward => end = from,
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What the read that has just failed with [`Code::MISSING`] was missing; more than one thing, if it went on to see.
    pub fn take_wanted(&self) -> Vec<Fetch> {
        std::mem::take(&mut self.inner.lock().wanted)
    }

    /// Forgets what has been fetched if it has become much, and failures that no read came for. Only between reads: a read
    /// that is being repeated needs it.
    pub fn trim(&self) {
        let mut inner = self.inner.lock();
        inner.failed.clear();
        if inner.bytes > MAX_CACHED {
            inner.known = RangeSet::default();
            inner.rows.clear();
            inner.bytes = 0;
        }
    }

    /// Runs `then` when the version is here; gives it back if it is already.
    pub(super) fn await_version(&self, then: Then) -> Option<Then> {
        let mut inner = self.inner.lock();
        if inner.version.is_some() {
            return Some(then);
        }
        inner.awaiting_version.push(then);
        None
    }

    /// The host has said which version it is, or that it cannot be read.
    pub(super) fn opened(&self, version: Result<i64>) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.version.get_or_insert(version);
            std::mem::take(&mut inner.awaiting_version)
        };
        waiting.into_iter().for_each(|then| then());
    }

    /// The connection has ended. A new host starts above every version of the old one, which is what the error of reads
    /// from now on means.
    pub(super) fn lost(&self) {
        self.inner.lock().is_lost = true;
        self.opened(Err(Code::TRANSACTION_TOO_OLD));
    }

    /// Something cannot be fetched, which concerns nobody but who asked for it.
    pub(super) fn fail(&self, fetch: Fetch, code: Code) {
        self.inner.lock().failed.push((fetch, code));
    }

    /// A value has arrived.
    pub(super) fn insert_value(&self, key: Vec<u8>, value: Option<Bytes>) {
        let mut inner = self.inner.lock();
        inner.known.insert_key(&key);
        if let Some(value) = value {
            inner.insert(key, value);
        }
    }

    /// Rows have arrived, from one side of a range; all of them, or as far as the last one.
    pub(super) fn insert_rows(&self, begin: Vec<u8>, end: Vec<u8>, direction: Direction, rows: &RowSet) {
        let mut inner = self.inner.lock();
        let last = rows.iter().next_back().map(|(key, _)| key.to_vec()).filter(|_| rows.more);
        match (last, direction) {
            (None, _) => inner.known.insert(begin, end),
            (Some(last), Direction::Forward) => inner.known.insert(begin, key_after(&last)),
            (Some(last), Direction::Backward) => inner.known.insert(last, end),
        }
        for (key, value) in rows.iter() {
            inner.insert(key.to_vec(), Bytes::copy_from_slice(value));
        }
    }
}

impl Inner {
    /// Fails once it is known that there can be no reads.
    fn check(&self) -> Result<()> {
        if self.is_lost {
            return Err(Code::TRANSACTION_TOO_OLD);
        }
        self.version.map_or(Ok(()), |version| version.map(drop))
    }

    fn miss<T>(&mut self, fetch: Fetch) -> Result<T> {
        if let Some(at) = self.failed.iter().position(|(failed, _)| *failed == fetch) {
            return Err(self.failed.swap_remove(at).1);
        }
        self.wanted.push(fetch);
        Err(Code::MISSING)
    }

    /// The known piece at the side of `[begin, end)` that a scan starts from.
    fn known_at(&self, begin: &[u8], end: &[u8], direction: Direction) -> Option<(Vec<u8>, Vec<u8>)> {
        match direction {
            Direction::Forward => {
                let (_, to) = self.known.containing(begin)?;
                Some((begin.to_vec(), to.min(end).to_vec()))
            }
            Direction::Backward => {
                let (from, to) = self.known.intersecting(begin, end).next_back()?;
                (to >= end).then(|| (from.max(begin).to_vec(), end.to_vec()))
            }
        }
    }

    fn insert(&mut self, key: Vec<u8>, value: Bytes) {
        self.bytes += key.len() + value.len();
        self.rows.insert(key, value);
    }
}

impl Drop for RemoteView {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        self.guest.forget_view(self.id, self.is_pinned);
    }
}

impl std::fmt::Debug for RemoteView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteView({})", self.id)
    }
}
