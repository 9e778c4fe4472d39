//! (q, "partitions"): how many partitions a queue has. (q, "part", i, stamp), i from 1: the ready items of partition i.
//!
//! Partition 0 is `(q, "val", stamp)`, so a queue without the record is a plain queue. The id of an item in another partition begins with
//! the partition's number, so every record of the item tells its place. Written by the operator; read by pushes and fetches.

use crate::model::partitions::{MAX_PARTITIONS, Partitions};
use crate::model::time::{duration, versions};

/// Second element of the keys of items in partitions from 1 on.
pub(crate) const PART: &[u8] = b"part";
/// Second element of the record's key.
pub(crate) const PARTITIONS: &[u8] = b"partitions";

const FORMAT: u8 = 1;

/// The record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// How many partitions pushes use.
    pub(crate) count: u8,
    /// The most that there ever were. Items may return to any of them.
    pub(crate) most: u8,
    /// How much younger than the oldest ready item a fetched item may be, in versions.
    pub(crate) max_disorder: u64,
}

impl Record {
    /// As the operator sees it.
    pub(crate) fn settings(self) -> Partitions {
        Partitions { count: self.count, max_disorder: duration(self.max_disorder) }
    }

    /// The record after a change to these settings.
    pub(crate) fn changed(earlier: Option<Record>, to: Partitions) -> Record {
        let most = earlier.map_or(1, |record| record.most).max(to.count);
        Record { count: to.count, most, max_disorder: versions(to.max_disorder) }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut value = vec![FORMAT, self.count, self.most];
        value.extend_from_slice(&self.max_disorder.to_le_bytes());
        value
    }

    /// `None` if the value is of another layout. What follows the fields is passed over.
    pub(crate) fn decode(value: &[u8]) -> Option<Record> {
        let ([FORMAT, count, most], rest) = value.split_first_chunk()? else { return None };
        let max_disorder = u64::from_le_bytes(*rest.first_chunk()?);
        let is_possible = (1..=*most).contains(count) && *most <= MAX_PARTITIONS;
        is_possible.then_some(Record { count: *count, most: *most, max_disorder })
    }
}

/// This many items of a transaction go to one partition, in their order, and the next ones to the next partition. So a small push stays
/// together, and a large one does not make one partition much longer than the others.
const RUN: u16 = 100;

/// How a transaction deals its items out to partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deal {
    /// How many partitions there are.
    pub(crate) count: u8,
    /// The partition of the first item.
    pub(crate) first: u8,
}

impl Deal {
    /// To a queue without partitions.
    pub(crate) const PLAIN: Deal = Deal { count: 1, first: 0 };

    /// The transactions of a pusher take turns; `turn` counts them.
    pub(crate) fn new(record: Option<Record>, turn: u64) -> Deal {
        let count = record.map_or(1, |record| record.count);
        let first = u8::try_from(turn % u64::from(count)).unwrap_or(0);
        Deal { count, first }
    }

    /// The partition of an item, by its number in the transaction.
    pub(crate) fn partition(self, user: u16) -> u8 {
        let run = u16::from(self.first) + user / RUN;
        u8::try_from(run % u16::from(self.count.max(1))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_round_trip(count in 1..=MAX_PARTITIONS, more in 0..MAX_PARTITIONS, max_disorder: u64, rest: Vec<u8>) {
            let record = Record { count, most: count.saturating_add(more).min(MAX_PARTITIONS), max_disorder };
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
            // A later version may add fields.
            prop_assert_eq!(Record::decode(&[record.encode(), rest].concat()), Some(record));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn a_malformed_record_is_refused() {
        let good = Record { count: 2, most: 4, max_disorder: 5 }.encode();
        assert!(Record::decode(&good).is_some());
        assert_eq!(Record::decode(&good[..10]), None);
        for (at, byte) in [(0, 2), (1, 0), (1, 5), (2, 65)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(Record::decode(&bad), None, "byte {at} is {byte}");
        }
    }

    #[test]
    fn a_transaction_is_dealt_out_in_runs() {
        let record = Record { count: 3, most: 4, max_disorder: 0 };
        let deal = Deal::new(Some(record), 8);
        assert_eq!(deal, Deal { count: 3, first: 2 });
        let partitions = [0, RUN - 1, RUN, 2 * RUN, 3 * RUN, u16::MAX].map(|user| deal.partition(user));
        assert_eq!(partitions, [2, 2, 0, 1, 2, ((2 + u16::MAX / RUN) % 3) as u8]);
        assert_eq!(Deal::new(None, 7), Deal::PLAIN);
        assert_eq!(Deal::PLAIN.partition(u16::MAX), 0);
    }
}
