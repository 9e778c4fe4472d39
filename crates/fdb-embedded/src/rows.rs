//! The rows of a range read: one buffer of bytes and where each key and value lies in it.

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

/// Gets each row of a scan and tells whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// How much of a scan its reader is going to need: a hint, for data that has to be fetched from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Rows.
    pub rows: u32,
    /// Bytes of keys and values.
    pub bytes: u32,
}

impl Want {
    /// As much as is carried from one process to another at once, whatever is wanted: a frame holds it, with the last
    /// row and eight bytes for each.
    pub const MOST: Want = Want { rows: 1 << 18, bytes: 4 << 20 };

    /// At least so much, but for [`Want::MOST`].
    #[must_use]
    pub fn at_least(self, rows: usize, bytes: usize) -> Want {
        let raised = |want: u32, by: usize, most: u32| want.max(u32::try_from(by).unwrap_or(most)).min(most);
        let (rows, bytes) =
            (raised(self.rows, rows, Self::MOST.rows), raised(self.bytes, bytes, Self::MOST.bytes));
        Want { rows, bytes }
    }

    /// So many rows, without a word about their size.
    #[must_use]
    pub fn rows(rows: usize) -> Want {
        Want { rows: u32::try_from(rows).unwrap_or(u32::MAX), ..Want::default() }
    }

    /// Do `rows` reach one of the limits?
    #[must_use]
    pub fn is_met_by(self, rows: &RowSet) -> bool {
        rows.len() >= self.rows as usize || rows.byte_len() >= self.bytes as usize
    }
}

impl Default for Want {
    /// A good piece.
    fn default() -> Want {
        Want { rows: 4_096, bytes: 128 << 10 }
    }
}

/// Rows in the order in which they were read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RowSet {
    bytes: Vec<u8>,
    /// For each row where its key begins, where its value begins, and where that ends.
    rows: Vec<[usize; 3]>,
    /// A limit stopped the read: there may be more rows.
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

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without rows.
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

/// One row of a mapped range read: a row of the index, and what its mapper found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRow {
    /// The index row's key.
    pub key: Bytes,
    /// The index row's value.
    pub value: Bytes,
    /// First key of the secondary range that was read.
    pub begin: Bytes,
    /// End of the secondary range, exclusive.
    pub end: Bytes,
    /// What was found there.
    pub rows: RowSet,
}

/// The rows of a mapped range read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MappedRows {
    /// The rows in the order in which they were read.
    pub rows: Vec<MappedRow>,
    /// A limit stopped the read: there may be more rows.
    pub more: bool,
}
