//! The rows of a queue as they are stored, for a copy of it elsewhere.

use bytes::Bytes;
use foundationdb::Transaction;
use mutant::bound;

use crate::keys::{Space, after};
use crate::model::error::QueueError;
use crate::ops::exists::{ranges, stays};
use crate::run::range_read::RangeRead;

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

/// The rows behind `behind`, as many as fit into a page. A snapshot read.
pub(crate) async fn page(space: &Space, tr: &Transaction, behind: &[u8]) -> Result<Page, QueueError> {
    let (page_rows, page_bytes) =
        (bound("migration-page", PAGE_ROWS), bound("migration-page-bytes", PAGE_BYTES));
    let mut page = Page::default();
    let mut bytes = 0;
    for (begin, end) in ranges(space) {
        let mut rest = Some(begin.max(after(behind)));
        while let Some(begin) = rest.filter(|begin| *begin < end) {
            let range = RangeRead::of((&begin[..], &end[..])).limit(page_rows - page.rows.len());
            let found = range.page_bytes(page_bytes).page(tr).await?;
            for row in found.iter().filter(|row| !stays(space, row.key())) {
                bytes += row.key().len() + row.value().len();
                page.rows.push((Bytes::copy_from_slice(row.key()), Bytes::copy_from_slice(row.value())));
            }
            if page.rows.len() >= page_rows || bytes >= page_bytes {
                page.through = found.last().map(|row| row.key().to_vec());
                return Ok(page);
            }
            rest = found.next();
        }
    }
    Ok(page)
}
