//! The rows of a queue as they are stored, for a copy of it elsewhere.

use bytes::Bytes;
use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};

use crate::error::QueueError;
use crate::keys::{Space, after};
use crate::kind::Kind;

/// A key and its value.
pub type Row = (Bytes, Bytes);

/// The most rows of a page.
pub const PAGE_ROWS: usize = 2_000;
/// The bytes of keys and values after which a page ends. It has one row more at most.
pub const PAGE_BYTES: usize = 1 << 20;

/// Rows of a queue in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// They are all that there are up to this key; `None`: up to the end.
    pub through: Option<Vec<u8>>,
}

impl Page {
    /// Bytes of keys and values.
    pub fn byte_len(&self) -> usize {
        self.rows.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// Where rows of a queue lie. A recipe's items lie apart, and higher.
fn ranges(space: &Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    match space.kind {
        Kind::Fifo => vec![space.queue_range()],
        Kind::Recipe(_) | Kind::Priority(..) => vec![space.queue_range(), space.item_range()],
    }
}

/// Whether a row is one of its own database, and not of the queue: what a migration or a pause says there, who sweeps and
/// when, who waits in line. The counters are not copied as rows either, but set at the end: until then nobody else may have counted anything.
fn stays(space: &Space, key: &[u8]) -> bool {
    let own = [&space.pause, &space.migrate, &space.claim, &space.times];
    own.into_iter().chain(space.counters()).any(|own| key == own.as_slice()) || key.starts_with(&space.wants)
}

/// The rows behind `behind`, as many as fit into a page. A snapshot read.
pub(crate) async fn page(space: &Space, tr: &Transaction, behind: &[u8]) -> Result<Page, QueueError> {
    let mut page = Page::default();
    let mut bytes = 0;
    for (begin, end) in ranges(space) {
        let mut begin = begin.max(after(behind));
        while begin < end {
            let range = RangeOption {
                limit: Some(PAGE_ROWS - page.rows.len()),
                target_bytes: PAGE_BYTES,
                mode: StreamingMode::WantAll,
                ..RangeOption::from((begin.as_slice(), end.as_slice()))
            };
            let found = tr.get_range(&range, 1, true).await?;
            let Some(last) = found.iter().next_back().map(|row| row.key().to_vec()) else { break };
            for row in found.iter().filter(|row| !stays(space, row.key())) {
                bytes += row.key().len() + row.value().len();
                page.rows.push((Bytes::copy_from_slice(row.key()), Bytes::copy_from_slice(row.value())));
            }
            if page.rows.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                page.through = Some(last);
                return Ok(page);
            }
            if !found.more() {
                break;
            }
            begin = after(&last);
        }
    }
    Ok(page)
}

/// Whether there is anything of a queue: items in any state, counters, what producers left to be remembered.
pub(crate) async fn is_there(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    if super::migrate::counters(space, tr, false).await?.iter().any(|counter| *counter != 0) {
        return Ok(true);
    }
    for (begin, end) in ranges(space) {
        let mut begin = begin;
        loop {
            let range =
                RangeOption { limit: Some(100), ..RangeOption::from((begin.as_slice(), end.as_slice())) };
            let found = tr.get_range(&range, 1, false).await?;
            // The slots of sessions are of no use to anybody who was not there.
            let counts = |key: &[u8]| !stays(space, key) && !key.starts_with(&space.tokens);
            if found.iter().any(|row| counts(row.key())) {
                return Ok(true);
            }
            match found.iter().next_back() {
                Some(last) if found.more() => begin = after(last.key()),
                _ => break,
            }
        }
    }
    Ok(false)
}
