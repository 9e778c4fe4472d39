//! Conflict ranges as rows: "1" at the begin of each range, "0" at its end.

use super::Rows;
use crate::range_set::RangeSet;

/// The bounds of `ranges` under `prefix`, without one at the end of all keys.
pub fn rows(prefix: &[u8], ranges: &RangeSet) -> Rows {
    let boundaries = ranges.iter().flat_map(|(begin, end)| [(begin, b"1"), (end, b"0")]);
    let within = boundaries.filter(|(key, _)| *key < super::SPACE_BEGIN);
    within.map(|(key, value)| ([prefix, key].concat(), value.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_range_boundaries_have_the_values_one_and_zero() {
        let ranges: RangeSet =
            [(vec![], b"a".to_vec()), (b"b".to_vec(), b"\xff\xff".to_vec())].into_iter().collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"p/", b"1"), (b"p/a", b"0"), (b"p/b", b"1")];
        let rows = rows(b"p/", &ranges);
        assert!(rows.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected));
    }
}
