//! Conflict ranges, as rows: at each key where such a range begins a "1", at each where it ends a "0".

use super::Rows;
use crate::range_set::RangeSet;

/// The boundaries of `ranges` below `prefix`; one at the end of all keys is left out.
pub fn rows(prefix: &[u8], ranges: &RangeSet) -> Rows {
    let boundaries = ranges.iter().flat_map(|(begin, end)| [(begin, b"1"), (end, b"0")]);
    let within = boundaries.filter(|(key, _)| *key < super::SPACE_BEGIN);
    within.map(|(key, value)| ([prefix, key].concat(), value.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_ones_and_zeros() {
        let ranges: RangeSet =
            [(vec![], b"a".to_vec()), (b"b".to_vec(), b"\xff\xff".to_vec())].into_iter().collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"p/", b"1"), (b"p/a", b"0"), (b"p/b", b"1")];
        let rows = rows(b"p/", &ranges);
        assert!(rows.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected));
    }
}
