//! (q, "cancelled", session, number): which items of a lease were cancelled while they were on it.
//!
//! Written by the cancellation of a running item, in the transaction that marks the item as acknowledged in the lease's header. The header
//! alone does not tell a holder whether an attempt of its own, of unknown outcome, acknowledged the item; and a lease is gone with its
//! last item. Cleared with the lease by its holder, or, once it is old, by sweepers and later cancellations.

use bytes::Bytes;

use crate::keys::leases::key as lease_key;
use crate::model::id::ItemId;
use crate::model::lease_id::LeaseId;

/// Second element of the record's key.
pub(crate) const CANCELLED: &[u8] = b"cancelled";

/// The first byte of a record.
const FORMAT: u8 = 1;
/// How long a record is kept after its lease's deadline and after the cancellation, in versions: a minute. The holder of a lease that is over knows
/// it by then.
const KEPT: u64 = 60_000_000;

/// The cancelled items of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CancelledItems {
    /// The version after which nobody needs the record any more.
    pub(crate) until: u64,
    /// Each by its index in the lease, and its id.
    pub(crate) items: Vec<(u32, ItemId)>,
}

impl CancelledItems {
    /// None yet, to be kept for a while from this version on.
    pub(crate) fn none(from: u64) -> CancelledItems {
        CancelledItems { until: from.saturating_add(KEPT), items: Vec::new() }
    }

    /// Whether the item of this index was cancelled.
    pub(crate) fn contains(&self, index: usize) -> bool {
        self.items.iter().any(|(item, _)| *item as usize == index)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.until.to_le_bytes());
        for (index, id) in &self.items {
            let len = u32::try_from(id.as_bytes().len()).expect("an id is shorter than a key may be");
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(id.as_bytes());
        }
        out
    }

    /// Reads a record; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<CancelledItems> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (until, mut rest) = rest.split_first_chunk::<8>()?;
        let mut items = Vec::new();
        while !rest.is_empty() {
            let (index, more) = rest.split_first_chunk::<4>()?;
            let (len, more) = more.split_first_chunk::<4>()?;
            let (id, more) = more.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            items.push((u32::from_le_bytes(*index), ItemId::new(Bytes::copy_from_slice(id))));
            rest = more;
        }
        Some(CancelledItems { until: u64::from_le_bytes(*until), items })
    }
}

/// The key of a lease's record; `subspace` is the packed (q, "cancelled").
pub(crate) fn key(subspace: &[u8], id: LeaseId) -> Vec<u8> {
    lease_key(subspace, id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_round_trip(until: u64, items in prop::collection::vec(any::<(u32, Vec<u8>)>(), 0..9)) {
            let items: Vec<_> = items.into_iter().map(|(index, id)| (index, ItemId::new(id.into()))).collect();
            let record = CancelledItems { until, items };
            prop_assert!(record.items.iter().all(|(index, _)| record.contains(*index as usize)));
            prop_assert_eq!(CancelledItems::decode(&record.encode()), Some(record));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = CancelledItems::decode(&value);
        }
    }
}
