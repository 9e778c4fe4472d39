//! Finding keys without reading their values, and without a conflict.

use foundationdb::{KeySelector, Transaction};

use crate::error::QueueError;

/// The longest stride in keys: so many the database walks over at a time.
const STRIDE: i32 = 1 << 13;

/// The first key in a range.
pub(crate) async fn first_key(
    tr: &Transaction,
    (begin, end): &(Vec<u8>, Vec<u8>),
) -> Result<Option<Vec<u8>>, QueueError> {
    let key = tr.get_key(&KeySelector::first_greater_or_equal(begin.as_slice()), true).await?;
    Ok((key[..] < end[..]).then(|| key.to_vec()))
}

/// Whether there are so many keys in a range.
pub(crate) async fn has_keys(
    tr: &Transaction,
    (begin, end): &(Vec<u8>, Vec<u8>),
    count: usize,
) -> Result<bool, QueueError> {
    let last = i32::try_from(count).unwrap_or(i32::MAX);
    let key = tr.get_key(&KeySelector::new(begin.as_slice().into(), false, last), true).await?;
    Ok(key[..] < end[..])
}

/// How many keys there are in a range, by striding over them: a read for every [`STRIDE`] keys, and a few at both ends.
pub(crate) async fn count_keys(
    tr: &Transaction,
    (begin, end): (Vec<u8>, Vec<u8>),
) -> Result<u64, QueueError> {
    let (mut at, mut count) = (begin, 0);
    // Strides grow until one leads out of the range, and shrink from there on.
    let (mut stride, mut growing) = (1, true);
    while stride > 0 {
        // The key so many places behind the first at or behind `at`.
        let selector = KeySelector::new(at.as_slice().into(), false, 1 + stride);
        let key = tr.get_key(&selector, true).await?.to_vec();
        if key < end {
            count += u64::from(stride.unsigned_abs());
            at = key;
        } else {
            growing = false;
        }
        stride = if growing { (stride * 2).min(STRIDE) } else { stride / 2 };
    }
    // What is left is a single key at most.
    Ok(count + u64::from(first_key(tr, &(at, end)).await?.is_some()))
}
