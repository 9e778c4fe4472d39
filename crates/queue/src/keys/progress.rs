//! (q, "progress", session, number): how far the handlers of a lease's items are.
//!
//! Written by extensions of the lease that have news, and cleared with the lease. The lease's header tells whether there is a record, so
//! that leases without one pay nothing for it.

use std::collections::BTreeMap;

use crate::keys::fields::{each, put, text};
use crate::keys::leases::key as lease_key;
use crate::model::lease_id::LeaseId;
use crate::model::progress::Progress;
use crate::model::time::{from_millis, millis};

/// Second element of the record's key.
pub(crate) const PROGRESS: &[u8] = b"progress";

/// The most bytes of a record. Of more, the items whose progress is the oldest are left out.
const MOST: usize = 90_000;

/// The tag of an item.
const ITEM: u8 = 1;
/// In the place of a percentage: it is not known.
const UNKNOWN: u8 = 255;
/// The bytes of an item but for its message.
const FIXED: usize = 1 + 4 + 4 + 8 + 1;

/// The progress of a lease's items, by their indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProgressRecord(pub(crate) BTreeMap<u32, Progress>);

impl ProgressRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut items: Vec<_> = self.0.iter().collect();
        items.sort_by_key(|(_, progress)| std::cmp::Reverse(millis(progress.at)));
        let mut bytes = 0;
        items.retain(|(_, progress)| {
            bytes += FIXED + progress.message.len();
            bytes <= MOST
        });
        items.sort_by_key(|(index, _)| **index);
        let mut out = Vec::new();
        for (index, Progress { at, percent, message }) in items {
            let (at, percent) = (millis(*at), percent.unwrap_or(UNKNOWN));
            put(&mut out, ITEM, &[&index.to_le_bytes(), &at.to_le_bytes(), &[percent], message.as_bytes()]);
        }
        out
    }

    /// Reads a record; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<ProgressRecord> {
        let mut record = ProgressRecord::default();
        for field in each(value) {
            let (ITEM, content) = field? else { continue };
            let (index, rest) = content.split_first_chunk()?;
            let (at, rest) = rest.split_first_chunk()?;
            let (percent, message) = rest.split_first()?;
            let percent = Some(*percent).filter(|percent| *percent != UNKNOWN);
            let at = from_millis(u64::from_le_bytes(*at));
            let progress = Progress { at, percent, message: text(message)? };
            record.0.insert(u32::from_le_bytes(*index), progress);
        }
        Some(record)
    }
}

/// The key of a lease's record; `subspace` is the packed (q, "progress").
pub(crate) fn key(subspace: &[u8], id: LeaseId) -> Vec<u8> {
    lease_key(subspace, id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_record_has_the_newest_progress() {
        let message = "m".repeat(200);
        let progress = |at: u64| Progress::new(from_millis(at), None, &message);
        let record = ProgressRecord((0..1_000).map(|index| (index, progress(u64::from(index)))).collect());
        let encoded = record.encode();
        assert!(encoded.len() <= MOST && encoded.len() > MOST - 300, "{}", encoded.len());
        let kept = ProgressRecord::decode(&encoded).unwrap().0;
        assert!(kept.keys().copied().eq(1_000 - kept.len() as u32..1_000));
    }

    proptest! {
        #[test]
        fn records_round_trip(items in prop::collection::btree_map(any::<u32>(), any::<(u64, Option<u8>, String)>(), 0..5)) {
            let items = items.into_iter().map(|(index, (at, percent, message))| (index, Progress::new(from_millis(at), percent, &message)));
            let record = ProgressRecord(items.collect());
            prop_assert_eq!(ProgressRecord::decode(&record.encode()), Some(record));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = ProgressRecord::decode(&value);
        }
    }
}
