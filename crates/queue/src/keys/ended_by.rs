//! (q, "ended-by", hour, name, value, minute, stamp, id): a group of ended items, one or more of which have the attribute `name` with this value.
//!
//! The last three elements are the key of the group, so the rows of a value are in the order of its groups. The hour stands first, so that the rows
//! are cleared by time. Of a value only the beginning is in the key: readers compare the items of the group with all of it. The row has no
//! value of its own.
//!
//! Another kind of row would change these together: what writes rows (`Recorded::values`), what counts them (`cost::indexed`), and what reads them (`Index::find`).

use crate::keys::ended::{from_minute, hour};
use crate::keys::items;
use crate::model::element::{append_bytes, append_number};
use crate::model::id::ItemId;

/// Second element of the keys.
pub(crate) const ENDED_BY: &[u8] = b"ended-by";

/// How many bytes of a value are in the key. Longer values that begin alike have the same rows, and readers compare them.
const VALUE: usize = 128;

/// Where the rows of an hour begin whose items have this attribute; `subspace` is the packed (q, "ended-by").
pub(crate) fn of_value(subspace: &[u8], hour: u64, name: &str, value: &str) -> Vec<u8> {
    let mut key = from_minute(subspace, hour);
    append_bytes(&mut key, name.as_bytes());
    append_bytes(&mut key, &value.as_bytes()[..value.len().min(VALUE)]);
    key
}

/// The parameter of SET_VERSIONSTAMPED_KEY for a row of a group of this minute and with this first item.
pub(crate) fn pending(
    subspace: &[u8],
    minute: u64,
    (name, value): (&str, &str),
    group_first: &ItemId,
) -> Vec<u8> {
    let mut before = of_value(subspace, hour(minute), name, value);
    append_number(&mut before, minute);
    items::pending_record(&before, 0, group_first.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::ended::pending_group;
    use crate::keys::range;
    use crate::model::history::GroupKey;
    use crate::model::stamp::Stamp;
    use crate::testing::stamped;

    proptest! {
        #[test]
        fn a_row_ends_with_the_key_of_its_group(
            minute: u64, transaction: [u8; 10], first: [u8; 12], name in ".{0,9}", value in ".{0,200}",
        ) {
            let first = ItemId::from(Stamp::from(first));
            let row = stamped(pending(b"p", minute, (&name, &value), &first), transaction);
            let group = stamped(pending_group(b"g", minute, &first), transaction);
            let before = of_value(b"p", hour(minute), &name, &value);
            prop_assert_eq!(row.strip_prefix(before.as_slice()), group.strip_prefix(b"g"));
            prop_assert_eq!(GroupKey::decode(&before, &row), GroupKey::decode(b"g", &group));
        }

        #[test]
        fn rows_of_another_value_are_elsewhere(
            value in "[a\u{0}\u{ff}]{0,6}", other in "[a\u{0}\u{ff}]{0,6}", minute: u64, first: [u8; 12],
        ) {
            prop_assume!(value != other);
            let row = pending(b"p", minute, ("n", &value), &ItemId::from(Stamp::from(first)));
            let (begin, end) = range(&of_value(b"p", hour(minute), "n", &other));
            prop_assert!(row < begin || row >= end);
        }
    }
}
