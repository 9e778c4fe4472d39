//! Grouping payloads into transactions.

use crate::model::new_item::weight;
use crate::model::sizes::MAX_PUSHES;

/// How much one transaction may hold.
///
/// FoundationDB's limit is 10,000,000 bytes with everything counted, and it recommends to stay below a tenth of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most payloads, 1 to [`MAX_PUSHES`]; other values count as the nearest of these.
    pub max_items: usize,
    /// The most bytes, with 256 added for each value that a payload is stored in. A single payload is never refused for it; a
    /// long one is alone in its transaction.
    pub max_bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> BatchLimits {
        BatchLimits { max_items: 1_000, max_bytes: 1_000_000 }
    }
}

/// Splits payloads into groups that fit into one transaction each, in order, as full as the limits allow.
///
/// Lazy: it asks for one payload more than a group holds, so a stream that never ends can be pushed as it comes.
pub fn batches<I>(payloads: I, limits: BatchLimits) -> Batches<I::IntoIter>
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    batches_by(payloads, limits, |payload| weight(payload.as_ref().len()))
}

/// As [`batches`], of anything whose bytes in a transaction `weigh` tells: of items, [`NewItem::weight`](crate::NewItem::weight).
pub fn batches_by<I: IntoIterator>(
    items: I,
    limits: BatchLimits,
    weigh: fn(&I::Item) -> usize,
) -> Batches<I::IntoIter> {
    Batches { items: items.into_iter(), limits, weigh, held: None }
}

/// Iterator over groups of payloads; see [`batches`].
#[derive(Debug)]
pub struct Batches<I: Iterator> {
    items: I,
    limits: BatchLimits,
    weigh: fn(&I::Item) -> usize,
    /// The item that did not fit into the last group.
    held: Option<I::Item>,
}

impl<I: Iterator> Iterator for Batches<I> {
    type Item = Vec<I::Item>;

    fn next(&mut self) -> Option<Vec<I::Item>> {
        let max_items = self.limits.max_items.clamp(1, MAX_PUSHES);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < max_items {
            let Some(item) = self.held.take().or_else(|| self.items.next()) else { break };
            bytes += (self.weigh)(&item);
            if bytes > self.limits.max_bytes && !batch.is_empty() {
                self.held = Some(item);
                break;
            }
            batch.push(item);
        }
        (!batch.is_empty()).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::sizes::MAX_PAYLOAD;

    #[test]
    fn no_payloads_make_no_batch() {
        assert_eq!(batches(Vec::<Vec<u8>>::new(), BatchLimits::default()).count(), 0);
    }

    #[test]
    fn payloads_are_read_only_for_the_batch_asked_for() {
        let mut asked = 0;
        let endless = std::iter::repeat_with(|| {
            asked += 1;
            b"payload"
        });
        let limits = BatchLimits { max_items: 3, ..BatchLimits::default() };
        assert_eq!(batches(endless, limits).next().map(|batch| batch.len()), Some(3));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_long_payload_has_a_batch_of_its_own() {
        let (short, long) = (vec![0; 100], vec![0; MAX_PAYLOAD]);
        let payloads = [&short, &long, &short, &short, &long, &long];
        let sizes: Vec<usize> = batches(payloads, BatchLimits::default()).map(|batch| batch.len()).collect();
        assert_eq!(sizes, [1, 1, 2, 1, 1]);
    }

    proptest! {
        #[test]
        fn batches_keep_order_and_limits(
            sizes in prop::collection::vec(0..2_000_usize, 0..200),
            max_items in 0..20_usize,
            max_bytes in 0..10_000_usize,
        ) {
            let payloads: Vec<Vec<u8>> = sizes.iter().map(|size| vec![7; *size]).collect();
            let limits = BatchLimits { max_items, max_bytes };
            let split: Vec<_> = batches(&payloads, limits).collect();
            for batch in &split {
                let bytes: usize = batch.iter().map(|payload| weight(payload.len())).sum();
                prop_assert!(!batch.is_empty() && batch.len() <= max_items.max(1));
                prop_assert!(bytes <= max_bytes || batch.len() == 1);
            }
            // As full as possible: the first of the next batch would not have fitted.
            for pair in split.windows(2) {
                let bytes: usize = pair[0].iter().map(|payload| weight(payload.len())).sum();
                let next = weight(pair[1][0].len());
                prop_assert!(pair[0].len() == max_items.max(1) || bytes + next > max_bytes);
            }
            let joined: Vec<&Vec<u8>> = split.into_iter().flatten().collect();
            prop_assert_eq!(joined, payloads.iter().collect::<Vec<_>>());
        }
    }
}
