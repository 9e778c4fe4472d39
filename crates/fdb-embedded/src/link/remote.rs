//! A guest's view: the part of the host's data that has arrived, at one version.
//!
//! A read of data that has not arrived fails with [`Code::MISSING`] and notes in the view what it
//! needs. The transaction fetches that and repeats the read. Data never has to be fetched twice,
//! because it cannot change at one version.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::ops::ControlFlow;
use std::sync::Arc;

use baton::Mutex;
use bytes::Bytes;

use super::guest::Guest;
use crate::error::{Code, Result};
use crate::fork::is_forked;
use crate::limits::{clamp_bound, exceeds_key_limit};
use crate::range_set::{RangeSet, key_after};
use crate::rows::{Direction, FetchHint, RowSet, RowVisitor};

/// At the start of a new read, fetched data beyond this is dropped: bytes of keys and values of one
/// view.
const MAX_CACHED: usize = 32 << 20;

/// Data that a read needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// The view's version.
    Version,
    /// The value of a key.
    Key(Vec<u8>),
    /// Rows from one end of a range.
    Range { begin: Vec<u8>, end: Vec<u8>, direction: Direction, want: FetchHint },
}

/// Called when the data has arrived, or cannot arrive.
pub type Continuation = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct RemoteViewState {
    /// `None` until the host has sent it; an error if the view cannot be read.
    version: Option<Result<i64>>,
    awaiting_version: Vec<Continuation>,
    /// The connection has ended, so the view cannot be read any more.
    is_lost: bool,
    /// A version or data of this view was given out.
    is_used: bool,
    /// The data that the current read is missing.
    wanted: Vec<Fetch>,
    /// Fetches that failed, for the reads that need them.
    failed: Vec<(Fetch, Code)>,
    /// The ranges of which `rows` holds all rows.
    known: RangeSet,
    rows: BTreeMap<Vec<u8>, Bytes>,
    bytes: usize,
}

/// A read view of the host's engine.
pub struct RemoteView {
    id: u64,
    /// The host keeps the version readable until the view is closed.
    is_pinned: bool,
    guest: Arc<Guest>,
    inner: Mutex<RemoteViewState>,
}

impl RemoteView {
    pub(super) fn new(id: u64, guest: Arc<Guest>, is_pinned: bool) -> RemoteView {
        RemoteView { id, is_pinned, guest, inner: Mutex::default() }
    }

    /// The view's id in the connection.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The connection of the view.
    pub(super) fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }

    /// The version, if it has arrived and the view is not lost.
    pub fn known_version(&self) -> Option<i64> {
        let mut inner = self.inner.lock();
        if inner.is_replaceable() {
            return None;
        }
        let version = inner.version.and_then(Result::ok);
        inner.is_used |= version.is_some();
        version
    }

    /// The version.
    pub fn version(&self) -> Result<i64> {
        let mut inner = self.inner.lock();
        if inner.is_replaceable() {
            return Err(Code::MISSING);
        }
        match inner.version {
            Some(version) => {
                inner.is_used |= version.is_ok();
                version
            }
            None => inner.miss(Fetch::Version),
        }
    }

    /// True if the connection has ended before anything of this view was given out. A view of the
    /// next host can take its place. Until then its reads fail with [`Code::MISSING`].
    pub fn is_replaceable(&self) -> bool {
        self.inner.lock().is_replaceable()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut inner = self.inner.lock();
        inner.check()?;
        if exceeds_key_limit(key) {
            // Such a key may have been derived from stored values. The host would refuse it.
            return Ok(None);
        }
        if inner.known.contains(key) {
            inner.is_used = true;
            return Ok(inner.rows.get(key).cloned());
        }
        inner.miss(Fetch::Key(key.to_vec()))
    }

    /// Visits the rows of `[begin, end)` that have arrived. Fetches missing rows up to `far`, if
    /// that lies beyond the range.
    pub fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        direction: Direction,
        (want, far): (FetchHint, Option<&[u8]>),
        visit: RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut inner = self.inner.lock();
        inner.check()?;
        let (mut begin, mut end) = (clamp_bound(begin).to_vec(), clamp_bound(end).to_vec());
        let (mut passed_rows, mut passed_bytes) = (0, 0);
        while begin < end {
            let Some((from, to)) = inner.known_at(&begin, &end, direction) else {
                // The read repeats from its beginning when this piece arrives. If each piece is as
                // long as all before it, the repeats together cost a small multiple of the whole.
                let want = want.at_least(passed_rows, passed_bytes);
                match (far.map(clamp_bound), direction) {
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
                    inner.is_used = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            match direction {
                Direction::Forward => begin = to,
                Direction::Backward => end = from,
            }
        }
        inner.is_used = true;
        Ok(ControlFlow::Continue(()))
    }

    /// The data that the read, which has just failed with [`Code::MISSING`], needs.
    pub fn take_wanted(&self) -> Vec<Fetch> {
        std::mem::take(&mut self.inner.lock().wanted)
    }

    /// Drops fetched data if it takes much memory, and failures that no read has collected. Only
    /// allowed between reads, because a repeated read needs the data.
    pub fn trim(&self) {
        let mut inner = self.inner.lock();
        inner.failed.clear();
        if inner.bytes > MAX_CACHED {
            inner.known = RangeSet::default();
            inner.rows.clear();
            inner.bytes = 0;
        }
    }

    /// Calls `then` when the version arrives; returns it if the version has arrived already.
    pub(super) fn await_version(&self, then: Continuation) -> Option<Continuation> {
        let mut inner = self.inner.lock();
        if inner.version.is_some() {
            return Some(then);
        }
        inner.awaiting_version.push(then);
        None
    }

    /// Sets the version that the host has sent, or its error.
    pub(super) fn opened(&self, version: Result<i64>) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.version.get_or_insert(version);
            std::mem::take(&mut inner.awaiting_version)
        };
        waiting.into_iter().for_each(|then| then());
    }

    /// Ends the view with the connection. A new host starts above all versions of the old one, so
    /// reads fail with `TRANSACTION_TOO_OLD`, unless the view is replaceable.
    pub(super) fn lost(&self) {
        {
            let mut inner = self.inner.lock();
            inner.is_lost = true;
            // The client of a pinned view does not replace it.
            inner.is_used |= self.is_pinned;
        }
        self.opened(Err(Code::TRANSACTION_TOO_OLD));
    }

    /// Records that a fetch failed. Only the read that needs it fails.
    pub(super) fn fail(&self, fetch: Fetch, code: Code) {
        self.inner.lock().failed.push((fetch, code));
    }

    /// Adds a value that has arrived.
    pub(super) fn insert_value(&self, key: Vec<u8>, value: Option<Bytes>) {
        let mut inner = self.inner.lock();
        inner.known.insert_key(&key);
        if let Some(value) = value {
            inner.insert(key, value);
        }
    }

    /// Adds rows that have arrived from one end of a range: all, or up to the last one.
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

impl RemoteViewState {
    fn is_replaceable(&self) -> bool {
        self.is_lost && !self.is_used
    }

    /// Fails if the view cannot be read.
    fn check(&self) -> Result<()> {
        if self.is_replaceable() {
            return Err(Code::MISSING);
        }
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

    /// The known part of `[begin, end)` at the end where the scan starts.
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
        self.guest.close_view(self.id, self.is_pinned);
    }
}

impl std::fmt::Debug for RemoteView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteView({})", self.id)
    }
}
