//! The C arrays that the getters of futures return. They point into the future's value, which
//! outlives them.

use std::ffi::c_int;

use bytes::Bytes;
use foundationdb_sys::{
    FDBGetRangeReqAndResult, FDBKey, FDBKeyRange, FDBKeySelector, FDBKeyValue, FDBMappedKeyValue,
};

use crate::rows::{MappedRow, MappedRows, RowSet};

/// A length as a C integer.
pub(super) fn c_len<T>(items: &[T]) -> c_int {
    c_int::try_from(items.len()).expect("what one future holds is far smaller than 2 GiB")
}

/// A key, or any bytes.
pub(super) fn key_of(bytes: &[u8]) -> FDBKey {
    FDBKey { key: bytes.as_ptr(), key_length: c_len(bytes) }
}

/// A range of keys.
pub(super) fn range_of((begin, end): &(Bytes, Bytes)) -> FDBKeyRange {
    FDBKeyRange {
        begin_key: begin.as_ptr(),
        begin_key_length: c_len(begin),
        end_key: end.as_ptr(),
        end_key_length: c_len(end),
    }
}

/// The rows of a range read.
pub(super) fn rows_of(rows: &RowSet) -> Vec<FDBKeyValue> {
    let row = |(key, value): (&[u8], &[u8])| FDBKeyValue {
        key: key.as_ptr(),
        key_length: c_len(key),
        value: value.as_ptr(),
        value_length: c_len(value),
    };
    rows.iter().map(row).collect()
}

/// The rows of a mapped range read: an outer array whose elements point to the inner arrays.
pub(super) struct MappedArray {
    rows: Vec<FDBMappedKeyValue>,
    _found: Vec<Vec<FDBKeyValue>>,
}

impl MappedArray {
    pub(super) fn new(mapped: &MappedRows) -> MappedArray {
        let mut found: Vec<_> = mapped.rows.iter().map(|row| rows_of(&row.rows)).collect();
        let rows = mapped.rows.iter().zip(&mut found).map(|(row, found)| mapped_row(row, found)).collect();
        MappedArray { rows, _found: found }
    }

    pub(super) fn rows(&self) -> &[FDBMappedKeyValue] {
        &self.rows
    }
}

fn mapped_row(row: &MappedRow, found: &mut [FDBKeyValue]) -> FDBMappedKeyValue {
    let first_not_below = |key: &[u8]| FDBKeySelector { key: key_of(key), orEqual: 0, offset: 1 };
    FDBMappedKeyValue {
        key: key_of(&row.key),
        value: key_of(&row.value),
        getRange: FDBGetRangeReqAndResult {
            begin: first_not_below(&row.begin),
            end: first_not_below(&row.end),
            m_size: c_len(found),
            m_capacity: c_len(found),
            data: found.as_mut_ptr(),
        },
        buffer: [0; 32],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(key: FDBKey) -> Vec<u8> {
        let length = usize::try_from(key.key_length).unwrap();
        // SAFETY: the arrays point into rows that the test holds.
        unsafe { std::slice::from_raw_parts(key.key, length) }.to_vec()
    }

    #[test]
    fn mapped_row_array_has_the_rows_of_each_range() {
        let mut rows = RowSet::default();
        rows.push(b"r/1", b"one");
        rows.push(b"r/2", b"");
        let row = |key: &'static [u8], rows: RowSet| MappedRow {
            key: Bytes::from_static(key),
            value: Bytes::from_static(b"v"),
            begin: Bytes::from_static(b"r/"),
            end: Bytes::from_static(b"r0"),
            rows,
        };
        let mapped = MappedRows { rows: vec![row(b"i1", rows), row(b"i2", RowSet::default())], more: false };
        let array = MappedArray::new(&mapped);
        let [first, second] = array.rows() else { panic!("two rows") };
        assert_eq!((bytes(first.key), bytes(first.value)), (b"i1".to_vec(), b"v".to_vec()));
        let range = first.getRange;
        assert_eq!((bytes(range.begin.key), bytes(range.end.key)), (b"r/".to_vec(), b"r0".to_vec()));
        assert_eq!((range.begin.orEqual, range.begin.offset, range.m_size), (0, 1, 2));
        // SAFETY: `data` points at `m_size` rows, which the array holds.
        let last = unsafe { *range.data.add(1) };
        assert_eq!(bytes(FDBKey { key: last.key, key_length: last.key_length }), b"r/2");
        assert!({ last.value_length } == 0 && !{ last.value }.is_null());
        assert_eq!(second.getRange.m_size, 0);
    }
}
