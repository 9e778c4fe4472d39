//! Finding keys without reading their values, and without a conflict.

use foundationdb::{KeySelector, Transaction};

use crate::model::error::QueueError;
use crate::run::range_read::RangeRead;

/// The longest stride in keys: how many the database walks over at a time.
const STRIDE: i32 = 1 << 13;

/// Up to this many bytes of keys and values are counted one by one, which takes the database a hundred reads of its own.
const COUNTED: i64 = 50_000_000;

/// How many rows are read to estimate the length of a row.
const SAMPLE: usize = 1_000;

/// The first key in a range. It is found by a selector, which looks behind a range without keys; see [`RangeRead::first_row_key`].
pub(crate) async fn first_key(
    tr: &Transaction,
    (begin, end): &(Vec<u8>, Vec<u8>),
) -> Result<Option<Vec<u8>>, QueueError> {
    let key = tr.get_key(&KeySelector::first_greater_or_equal(begin.as_slice()), true).await?;
    Ok((key[..] < end[..]).then(|| key.to_vec()))
}

/// The last key in a range.
pub(crate) async fn last_key(
    tr: &Transaction,
    (begin, end): &(Vec<u8>, Vec<u8>),
) -> Result<Option<Vec<u8>>, QueueError> {
    let key = tr.get_key(&KeySelector::last_less_than(end.as_slice()), true).await?;
    Ok((key[..] >= begin[..]).then(|| key.to_vec()))
}

/// Whether a range has this many keys.
pub(crate) async fn has_keys(
    tr: &Transaction,
    (begin, end): &(Vec<u8>, Vec<u8>),
    count: usize,
) -> Result<bool, QueueError> {
    let last = i32::try_from(count).unwrap_or(i32::MAX);
    let key = tr.get_key(&KeySelector::new(begin.as_slice().into(), false, last), true).await?;
    Ok(key[..] < end[..])
}

/// How many keys there are in a range: exactly, while the database can count them by reading [`COUNTED`] bytes or so; beyond that, an
/// estimate: the size of the range, which the database knows without reading it, and the average length of the first rows.
pub(crate) async fn count_keys(
    tr: &Transaction,
    (begin, end): (Vec<u8>, Vec<u8>),
) -> Result<u64, QueueError> {
    count_up_to(tr, (begin, end), COUNTED).await
}

async fn count_up_to(
    tr: &Transaction,
    (begin, end): (Vec<u8>, Vec<u8>),
    most_bytes: i64,
) -> Result<u64, QueueError> {
    let bytes = tr.get_estimated_range_size_bytes(&begin, &end).await?;
    if bytes <= most_bytes {
        return count_all(tr, (begin, end)).await;
    }
    let sample = RangeRead::of((begin, end)).limit(SAMPLE).page(tr).await?;
    Ok((bytes as f64 * sample.len() as f64 / sample.byte_len().max(1) as f64) as u64)
}

/// By striding over them: a read for every [`STRIDE`] keys, and a few at both ends.
pub(crate) async fn count_all(tr: &Transaction, (begin, end): (Vec<u8>, Vec<u8>)) -> Result<u64, QueueError> {
    let (mut at, mut count) = (begin, 0);
    // Strides grow until one leads out of the range, and shrink from there on.
    let (mut stride, mut growing) = (1, true);
    while stride > 0 {
        // The key this many places behind the first key at or behind `at`.
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
    // At most a single key is left.
    Ok(count + u64::from(first_key(tr, &(at, end)).await?.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::on_database;

    #[test]
    fn few_keys_are_counted_and_many_are_estimated() {
        on_database(async |db| {
            let range = || (b"k/".to_vec(), b"k0".to_vec());
            let tr = db.create_trx().unwrap();
            (0..5_000_u32).for_each(|n| tr.set(&[b"k/", &n.to_be_bytes()[..]].concat(), &[b'x'; 100]));
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            assert_eq!(count_keys(&tr, range()).await.unwrap(), 5_000);
            let estimated = count_up_to(&tr, range(), 100_000).await.unwrap();
            assert!((4_000..6_000).contains(&estimated), "{estimated}");
            assert_eq!(count_up_to(&tr, (b"l".to_vec(), b"m".to_vec()), -1).await.unwrap(), 0);
        });
    }
}
