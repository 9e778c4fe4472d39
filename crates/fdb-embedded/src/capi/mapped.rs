//! Mapped rows, laid out as C reads them.

use foundationdb_sys::{FDBGetRangeReqAndResult, FDBKeySelector, FDBKeyValue, FDBMappedKeyValue};

use super::future::{key_of, rows_of};
use crate::rows::MappedRows;

/// The C array of a mapped range read, and the arrays that it points to.
pub(super) struct MappedArray {
    rows: Vec<FDBMappedKeyValue>,
    /// The secondary rows; the pointers in `rows` lead here.
    _secondary: Vec<Vec<FDBKeyValue>>,
}

impl MappedArray {
    /// Lays out `rows`, which have to outlive the array.
    pub(super) fn new(mapped: &MappedRows) -> MappedArray {
        let mut secondary: Vec<_> = mapped.rows.iter().map(|row| rows_of(&row.rows)).collect();
        let first_at_or_after = |key: &[u8]| FDBKeySelector { key: key_of(key), orEqual: 0, offset: 1 };
        let pairs = mapped.rows.iter().zip(&mut secondary);
        let rows = pairs.map(|(row, found)| {
            let count = i32::try_from(found.len()).expect("a secondary read has at most 2,000 rows");
            FDBMappedKeyValue {
                key: key_of(&row.key),
                value: key_of(&row.value),
                getRange: FDBGetRangeReqAndResult {
                    begin: first_at_or_after(&row.begin),
                    end: first_at_or_after(&row.end),
                    data: found.as_mut_ptr(),
                    m_size: count,
                    m_capacity: count,
                },
                buffer: [0; 32],
            }
        });
        MappedArray { rows: rows.collect(), _secondary: secondary }
    }

    /// The array.
    pub(super) fn rows(&self) -> &[FDBMappedKeyValue] {
        &self.rows
    }
}
