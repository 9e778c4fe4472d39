//! The rows of a range read, in one buffer.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key up.
    Forward,
    /// From the highest key down.
    Backward,
}

/// Called with each row of a scan; tells whether to continue.
pub type RowVisitor<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// How much of a scan will be needed: a hint for data that has to be fetched from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchHint {
    /// Rows.
    pub rows: u32,
    /// Bytes of keys and values.
    pub bytes: u32,
}

impl FetchHint {
    /// The most that one response can carry. Together with the last row and eight bytes for each
    /// row it fits into a frame.
    pub const MAX: FetchHint = FetchHint { rows: 1 << 18, bytes: 4 << 20 };

    /// Raises the hint to this many rows and bytes, up to the maximum.
    #[must_use]
    pub fn at_least(self, rows: usize, bytes: usize) -> FetchHint {
        let raised = |want: u32, by: usize, most: u32| want.max(u32::try_from(by).unwrap_or(most)).min(most);
        let (rows, bytes) =
            (raised(self.rows, rows, Self::MAX.rows), raised(self.bytes, bytes, Self::MAX.bytes));
        FetchHint { rows, bytes }
    }

    /// A hint for this many rows, of the default size.
    #[must_use]
    pub fn rows(rows: usize) -> FetchHint {
        FetchHint { rows: u32::try_from(rows).unwrap_or(u32::MAX), ..FetchHint::default() }
    }

    /// True if `rows` reach one of the limits.
    #[must_use]
    pub fn is_met_by(self, rows: &RowSet) -> bool {
        rows.len() >= self.rows as usize || rows.byte_len() >= self.bytes as usize
    }
}

impl Default for FetchHint {
    /// A reasonable piece of a scan.
    fn default() -> FetchHint {
        FetchHint { rows: 4_096, bytes: 128 << 10 }
    }
}

/// Rows in the order of the read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RowSet {
    bytes: Vec<u8>,
    /// For each row the offsets of its key, its value, and its end.
    rows: Vec<[usize; 3]>,
    /// A limit ended the read, so there may be more rows.
    pub more: bool,
}

impl RowSet {
    /// Appends a row.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.rows.push([begin, middle, self.bytes.len()]);
    }

    /// Keeps the first `len` rows. True if there were more.
    pub fn truncate(&mut self, len: usize) -> bool {
        let is_longer = self.rows.len() > len;
        self.rows.truncate(len);
        self.bytes.truncate(self.rows.last().map_or(0, |[_, _, end]| *end));
        is_longer
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The key and value of row `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let [begin, middle, end] = *self.rows.get(index)?;
        let cut = |range: Range<usize>| &self.bytes[range];
        Some((cut(begin..middle), cut(middle..end)))
    }

    /// The rows in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

/// A row of a mapped range read: an index row, and the rows that its mapper selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRow {
    /// The index row's key.
    pub key: Bytes,
    /// The index row's value.
    pub value: Bytes,
    /// The begin of the secondary range.
    pub begin: Bytes,
    /// The end of the secondary range, exclusive.
    pub end: Bytes,
    /// The rows of the secondary range.
    pub rows: RowSet,
}

/// The rows of a mapped range read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MappedRows {
    /// The rows in the order of the read.
    pub rows: Vec<MappedRow>,
    /// A limit ended the read, so there may be more rows.
    pub more: bool,
}
